//! A program whose calls of the C library are interposed, by `crates/interpose` in it: what the
//! start of a runtime does besides, and where `main` runs.

use std::process::{ExitCode, Termination};
use std::sync::OnceLock;

use crate::api::runtime::{Builder, run_one};
use crate::config::OnDeadlock;

/// What the interposed functions need of the start of a runtime.
#[derive(Clone, Copy, Debug)]
pub struct Linked {
    /// Called once, before the first runtime of the process installs handlers of signals.
    pub before_start: fn(),
    /// Called once, when the first runtime runs.
    pub after_start: fn(),
}

static LINKED: OnceLock<Linked> = OnceLock::new();

/// Registers the interposed functions. Only the first registration in a process takes effect.
pub fn register(linked: Linked) {
    let _ = LINKED.set(linked);
}

pub(crate) fn before_start() {
    static ONCE: OnceLock<()> = OnceLock::new();
    if let Some(linked) = LINKED.get() {
        ONCE.get_or_init(linked.before_start);
    }
}

pub(crate) fn after_start() {
    static ONCE: OnceLock<()> = OnceLock::new();
    if let Some(linked) = LINKED.get() {
        ONCE.get_or_init(linked.after_start);
    }
}

/// Exit code of a program whose runtime cannot start, or whose `main` panics: that of a panic.
const FAILED: u8 = 101;

/// Runs `main` as a microprocess in a runtime with the default settings. Returns the exit code of
/// the program, which ends then with all of its threads, as std's do. `#[kumihimo::main]` calls it.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
/// use std::process::ExitCode;
///
/// fn program() -> Result<(), std::num::ParseIntError> {
///     assert_eq!(thread::current().name(), Some("main"));
///     "1".parse::<u32>().map(|_| ())
/// }
///
/// fn main() -> ExitCode {
///     kumihimo::runtime::run_main(program)
/// }
/// ```
pub fn run_main<T: Termination + 'static>(main: fn() -> T) -> ExitCode {
    // Threads of the program may wait for a signal, or for another process.
    let on_deadlock =
        if LINKED.get().is_some() { OnDeadlock::Ignore } else { OnDeadlock::default() };
    let runtime = match Builder::new().on_deadlock(on_deadlock).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("kumihimo: {error}");
            return FAILED.into();
        }
    };
    let body = move || main().report();
    let outcome = match LINKED.get() {
        // A thread as any other of the program.
        Some(_) => std::thread::Builder::new()
            .name("main".into())
            .stack_size(super::runtime::MAIN_STACK)
            .spawn(body)
            .map_err(|error| Box::new(error) as Box<dyn std::any::Any + Send>)
            .and_then(std::thread::JoinHandle::join),
        None => run_one(body),
    };
    // It ends with the process.
    std::mem::forget(runtime);
    outcome.unwrap_or(FAILED.into())
}
