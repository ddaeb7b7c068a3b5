//! Measures how long it takes to list 100,000 microprocesses of 10 address spaces: `cargo run
//! --release -p kumihimo-machine --example list`.
//!
//! Prints one line per round: first one address space after the other, then all at once. Each
//! address space is a process that answers from generated tables, so the time that the runtime
//! needs to examine its microprocesses is not included.

use std::error::Error;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use kumihimo_machine::directory::Directory;
use kumihimo_machine::handler::{
    Action, ControlHandler, Done, Metric, Microprocess, Refused, Resource, Space, State,
};
use kumihimo_machine::space::{Control, Number};
use kumihimo_machine::{Machine, Neighbour};
use kumihimo_resource::id::{Id, Kind, Location, Serial};

const SPACES: usize = 10;
const EACH: u32 = 10_000;

struct Crowd(Location);

impl ControlHandler for Crowd {
    fn space(&self) -> Space {
        let text = String::new;
        let (id, pid) = (Id::new(self.0, Kind::SPACE, Serial::new(0, 0)), std::process::id());
        let living = EACH.into();
        let (program, version, queue, policy, events, locking) =
            (text(), text(), text(), text(), text(), text());
        let (mode, why, kernel_threads, most_kernel_threads) = (text(), None, 3, 100);
        Space {
            id,
            pid,
            program,
            version,
            vps: 2,
            living,
            queue,
            policy,
            events,
            locking,
            mode,
            why,
            kernel_threads,
            most_kernel_threads,
        }
    }

    fn microprocesses(&self, each: &mut dyn FnMut(Microprocess)) {
        for slot in 0..EACH {
            each(Microprocess {
                id: Id::new(self.0, Kind::MICROPROCESS, Serial::new(slot, slot % 1000)),
                name: slot.is_multiple_of(4).then(|| "worker".into()),
                state: State::Waiting,
                stopping: false,
                waits_for: Some("a descriptor".into()),
                holder: None,
                priority: 32,
                inherited: None,
                vp: (slot % 2) as u16,
                kernel_thread: None,
                sticky: None,
            });
        }
    }

    fn microprocess(&self, id: Id) -> Result<Microprocess, Refused> {
        Err(Refused::Stale(id.to_string()))
    }

    fn resources(&self, _: Option<Kind>, _: &mut dyn FnMut(Resource)) {}

    fn act(&self, id: Id, _: Action) -> Result<Done, Refused> {
        Err(Refused::Stale(id.to_string()))
    }

    fn backtrace(&self, id: Id) -> Result<String, Refused> {
        Err(Refused::Stale(id.to_string()))
    }

    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }

    fn trace(&self, _: &mut dyn Write) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn serve(directory: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let number = Arc::new(Number::take_in(Directory::own(directory)?)?);
    let crowd: Arc<dyn ControlHandler> = Arc::new(Crowd(number.location()));
    let _control = Control::start(number, Arc::downgrade(&crowd))?;
    println!();
    // Serves until the measuring process closes the pipe.
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn list(mut one: Neighbour) -> usize {
    one.microprocesses().expect("the address space answers").len()
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(directory) = std::env::args_os().nth(1) {
        return serve(directory.as_ref());
    }
    let directory = std::env::temp_dir().join(format!("kumihimo-list-{}", std::process::id()));
    let mut spaces: Vec<Child> = Vec::new();
    for _ in 0..SPACES {
        let mut command = Command::new(std::env::current_exe()?);
        let mut space =
            command.arg(&directory).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        space.stdout.as_mut().expect("a pipe").read_exact(&mut [0])?;
        spaces.push(space);
    }
    let machine = Machine::at(&directory)?;
    for _ in 0..10 {
        let begun = Instant::now();
        let count: usize = machine.spaces()?.into_iter().map(list).sum();
        let in_turn = begun.elapsed();
        let begun = Instant::now();
        let threads: Vec<_> = machine
            .spaces()?
            .into_iter()
            .map(|one| std::thread::spawn(move || list(one)))
            .collect();
        let at_once: usize = threads
            .into_iter()
            .map(|thread| thread.join().expect("the listing thread does not panic"))
            .sum();
        println!("{count} in turn: {in_turn:?}; {at_once} at once: {:?}", begun.elapsed());
    }
    for mut space in spaces {
        drop(space.stdin.take());
        space.wait()?;
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
