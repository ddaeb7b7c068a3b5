//! A program with known contents, for the page to show: this test program as a child process.

use std::io::Read;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use kumihimo::sync::Mutex;
use kumihimo::thread::{self, Builder};
use kumihimo_machine::client::{Error, Machine, Neighbour};
use kumihimo_machine::handler::{Microprocess, Refused};
use kumihimo_tests::process::start;
use kumihimo_tests::until;

use super::double::Folder;

/// Number of microprocesses that wait for one lock, all at the same place.
pub const WAITERS: usize = 30;
/// A name that would act as markup, within the length of a name.
pub const HOSTILE: &str = "<img src=x onerror=document.title='hit'><b>";

/// The program, until this value is dropped.
pub struct Program {
    child: Child,
    machine: Machine,
}

/// The body of the child process. Ends when the parent closes its standard input.
pub fn body() -> ! {
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock().expect("nothing panics");
    let spawn = |name: String, body: Box<dyn FnOnce() + Send>| {
        Builder::new().name(name).spawn(body).expect("a microprocess");
    };
    let its = Arc::clone(&lock);
    spawn(
        "holder".to_owned(),
        Box::new(move || {
            let _held = its.lock().expect("nothing panics");
            loop {
                thread::park();
            }
        }),
    );
    drop(held);
    while lock.try_lock().is_ok() {
        thread::yield_now();
    }
    for n in 0..WAITERS {
        let lock = Arc::clone(&lock);
        spawn(format!("worker-{n}"), Box::new(move || drop(lock.lock())));
    }
    // Ends where it sleeps, when it is cancelled.
    spawn("victim".to_owned(), Box::new(|| thread::sleep(Duration::from_secs(86_400))));
    spawn(
        HOSTILE.to_owned(),
        Box::new(|| {
            loop {
                thread::park();
            }
        }),
    );
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

impl Program {
    /// Starts the child of the test `name`, and waits until everything is in place.
    pub fn start(folder: &Folder, name: &str) -> Program {
        let path = folder.path().to_str().expect("text");
        let child = start(name, &[("KUMI_DIR", path)]);
        let machine = Machine::at(folder.path()).expect("it is there");
        let program = Program { child, machine };
        until(
            "the program is ready",
            || (),
            || {
                let all = program.neighbour().map(|mut neighbour| neighbour.microprocesses());
                let Some(Ok(all)) = all else { return false };
                let waiting = |name: &str| {
                    let is = |one: &&Microprocess| {
                        one.name.as_deref().is_some_and(|of| of.starts_with(name))
                            && one.waits_for.is_some()
                    };
                    all.iter().filter(is).count()
                };
                waiting("worker-") == WAITERS && waiting("victim") == 1 && waiting(HOSTILE) == 1
            },
        );
        program
    }

    /// The program's address space, which is not that of `kumi web`.
    fn neighbour(&self) -> Option<Neighbour> {
        let spaces = self.machine.spaces().expect("the folder is there");
        spaces
            .into_iter()
            .find_map(|mut one| (one.space().ok()?.pid == self.child.id()).then_some(one))
    }

    /// Asks the program for the microprocess with this name; `None` if it has ended.
    pub fn asked(&self, name: &str) -> Option<Microprocess> {
        let mut neighbour = self.neighbour().expect("it lives");
        let all = neighbour.microprocesses().expect("it answers");
        let id = all.into_iter().find(|one| one.name.as_deref() == Some(name))?.id;
        match neighbour.microprocess(id) {
            Ok(one) => Some(one),
            Err(Error::Refused(Refused::Stale(_))) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
