//! A process that serves, and is killed, stopped and starved at random.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use kumihimo_tests::Random;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

/// Bytes beyond those in use that a starved process may map.
const SPARE_MEMORY: u64 = 3 << 20;

/// What a fault does to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Kill,
    /// Stopped for a while.
    Stop,
    /// No further descriptor for a while.
    Descriptors,
    /// No further memory for a while.
    Memory,
}

struct Life {
    child: Child,
    /// Held open: some programs end with their standard input.
    _input: Option<ChildStdin>,
    /// Killed by the test.
    killed: bool,
    /// Had no memory for a while: an allocation that fails ends the process.
    starved: bool,
}

/// A program that is started again whenever it has ended.
pub struct Service {
    pub name: String,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    /// The first word that it prints when it serves.
    ready: &'static str,
    errors: PathBuf,
    life: Mutex<Option<Life>>,
}

impl Service {
    pub fn new(
        name: &str,
        errors: PathBuf,
        ready: &'static str,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Service {
        let command = Box::new(command);
        Service { name: name.to_owned(), command, ready, errors, life: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Life>> {
        // After a panic, the program is still to be ended.
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the program, and waits until it serves.
    ///
    /// # Errors
    /// Its exit status and its standard error, if it ends instead.
    pub fn start(&self) -> Result<(), (ExitStatus, String)> {
        let mut life = self.lock();
        assert!(life.is_none(), "{} runs already", self.name);
        let errors = fs::OpenOptions::new().create(true).append(true).open(&self.errors);
        let mut child = (self.command)()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.expect("a file"))
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        loop {
            let mut line = String::new();
            if output.read_line(&mut line).expect("it writes") == 0 {
                return Err((child.wait().expect("our child"), self.errors()));
            }
            if line.contains(self.ready) {
                break;
            }
        }
        thread::spawn(move || output.read_to_end(&mut Vec::new()));
        let input = child.stdin.take();
        *life = Some(Life { child, _input: input, killed: false, starved: false });
        Ok(())
    }

    /// What it has written to its standard error in all its lives.
    pub fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }

    /// Starts the program again if it has ended. Returns whether it had.
    ///
    /// # Panics
    /// If the program has ended without a reason, or does not start.
    pub fn revive(&self) -> bool {
        if self.is_alive() {
            return false;
        }
        self.start().unwrap_or_else(|(status, said)| {
            panic!("{} does not start again: {status}\n{said}", self.name)
        });
        true
    }

    /// Returns whether the program runs.
    ///
    /// # Panics
    /// If it has ended without a reason.
    pub fn is_alive(&self) -> bool {
        let mut life = self.lock();
        let Some(one) = &mut *life else { return false };
        let Some(status) = one.child.try_wait().expect("our child") else { return true };
        self.check(one, status);
        *life = None;
        false
    }

    /// Whether the end was one that the faults explain.
    fn check(&self, life: &Life, status: ExitStatus) {
        let by_fault = matches!(status.signal(), Some(libc::SIGSEGV | libc::SIGBUS | libc::SIGILL));
        let explained =
            life.killed && status.signal() == Some(libc::SIGKILL) || life.starved && !by_fault;
        assert!(explained, "{} has ended: {status}\n{}", self.name, self.errors());
    }

    fn with<R>(&self, act: impl FnOnce(&mut Life, Pid) -> R) -> Option<R> {
        let mut life = self.lock();
        let one = life.as_mut()?;
        let pid = Pid::from_child(&one.child);
        // Not reaped, so the number is still its own.
        Some(act(one, pid))
    }

    /// Ends the program, waits for its end, and returns its exit status.
    pub fn end(&self, signal: Signal) -> Option<ExitStatus> {
        let mut one = self.lock().take()?;
        let _ = kill_process(Pid::from_child(&one.child), Signal::CONT);
        let _ = kill_process(Pid::from_child(&one.child), signal);
        let status = one.child.wait().expect("our child");
        one.killed = true;
        if signal == Signal::KILL {
            self.check(&one, status);
        }
        Some(status)
    }

    /// Ends the program as its user would.
    ///
    /// # Panics
    /// If it fails to end in order.
    pub fn end_in_order(&self) {
        let status = self.end(Signal::TERM);
        let succeeded = status.is_some_and(|status| status.success());
        assert!(succeeded, "{} at SIGTERM: {status:?}\n{}", self.name, self.errors());
    }

    /// Notes a fault among the messages of the program.
    fn note(&self, fault: Fault) {
        let file = fs::OpenOptions::new().create(true).append(true).open(&self.errors);
        // Whole lines, so that they stand between those of the program.
        file.expect("a file").write_all(format!("-- {fault:?}\n").as_bytes()).expect("a line");
    }

    /// Exposes the program to one fault of `faults`.
    pub fn disturb(&self, random: &mut Random, faults: &[Fault]) {
        let fault = faults[random.below(faults.len() as u64) as usize];
        let pause = Duration::from_millis(random.below(120));
        self.note(fault);
        match fault {
            Fault::Kill => {
                self.with(|life, pid| {
                    life.killed = true;
                    let _ = kill_process(pid, Signal::KILL);
                });
            }
            Fault::Stop => {
                self.with(|_, pid| kill_process(pid, Signal::STOP));
                thread::sleep(pause);
                self.with(|_, pid| kill_process(pid, Signal::CONT));
            }
            Fault::Descriptors => {
                self.starve(Resource::Nofile, pause, |pid| {
                    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |all| all.count() as u64)
                });
            }
            Fault::Memory => {
                self.with(|life, _| life.starved = true);
                self.starve(Resource::As, pause, |pid| {
                    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).ok();
                    let pages = pages.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
                    pages.unwrap_or(1 << 20) * 4096 + SPARE_MEMORY
                });
            }
        }
    }

    /// Lowers a limit of the program to what `used` returns, and raises it again.
    fn starve(&self, resource: Resource, pause: Duration, used: impl Fn(u32) -> u64) {
        let of = |limit: Rlimit| {
            self.with(|life, pid| {
                prlimit(Some(pid), resource, limit).is_ok().then_some(life.child.id())
            })
        };
        let own = getrlimit(resource);
        let Some(pid) = self.with(|life, _| life.child.id()) else { return };
        of(Rlimit { current: Some(used(pid)), maximum: own.maximum });
        thread::sleep(pause);
        // Perhaps another life by now, which then has what it had before.
        of(own);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.end(Signal::KILL);
    }
}

/// Disturbs `service` from time to time, until `over`.
pub fn disturb(service: &Service, mut random: Random, over: &AtomicBool, faults: &[Fault]) {
    while !over.load(SeqCst) {
        thread::sleep(Duration::from_millis(20 + random.below(250)));
        service.disturb(&mut random, faults);
    }
}
