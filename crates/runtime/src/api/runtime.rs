//! Start, measurement and end of a runtime.
//!
//! For a program that builds none, the first `thread::spawn` starts a runtime with default
//! settings, which lives as long as the process.

use std::io;
use std::panic::resume_unwind;
use std::process::{ExitCode, Termination};
use std::sync::{Arc, Mutex, PoisonError};

use kumihimo_policy::Priority;

use crate::lifecycle::spawn::{self, SpawnRequest};
use crate::lifecycle::{join, linked, outcome, shutdown};
use crate::memory::pool::{self, SlotKind};
use crate::scheduler::instance::{self, Instance};

pub use crate::api::builder::{Builder, OnPanic};
pub use crate::api::stack_watch::StackWatch;
pub use crate::config::{DEFAULT_DESIGN, DEFAULT_STACK, OnDeadlock, ReadyOrder};
pub use crate::observe::dump::dump;
pub use crate::observe::metrics::{Metrics, VpMetrics, metrics};
pub use crate::process::mode::{Mode, mode};
pub use crate::syscall::direct_read::AnchorMetrics;
pub use crate::wait::syscall_batch::{BatchMetrics, set_batch_policy};
pub use kumihimo_arbiter::share::{Share, ShareError};
pub use kumihimo_batch::{Backend, Policy as BatchPolicy};
pub use kumihimo_events::preempt::Means as Preemption;
pub use kumihimo_events::source::Kind as Events;
pub use kumihimo_events::watchdog::{Distrust, OnMisbehaviour};
pub use kumihimo_queue::{Capacity, Design};
pub use kumihimo_resource::locking::Locking;

/// Stack of the microprocess that [`Runtime::run`] starts, in bytes: the usual size of a main
/// thread's stack.
const MAIN_STACK: usize = 8 << 20;

/// Exit code of a process whose implicit runtime cannot be configured. The same as for a panic, by
/// which other failures of such a start end `thread::spawn`.
const START_FAILED: i32 = 101;

/// A running runtime. Dropping it ends it, as [`shutdown`](Runtime::shutdown) does, and blocks the
/// kernel thread meanwhile.
///
/// # Examples
///
/// ```
/// use kumihimo::{runtime::Runtime, thread};
///
/// let runtime = Runtime::builder().vps(2).build()?;
/// // Every `spawn` of the process uses it, in kernel threads as well.
/// let handle = thread::spawn(|| 6 * 7);
/// assert_eq!(handle.join().unwrap(), 42);
/// drop(runtime);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Runtime {
    instance: Option<Arc<Instance>>,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("vps", &self.vps.len()).finish_non_exhaustive()
    }
}

impl Builder {
    /// Starts the runtime with its kernel threads, one per VP. Blocks the kernel thread for about a
    /// millisecond.
    ///
    /// # Errors
    /// - `InvalidInput`: an environment variable has an invalid value or a name of an earlier
    ///   version; zero VPs or more than 1,024; a stack beyond 1 GiB; a trace buffer out of range; a
    ///   dump signal that does not exist or has a handler already.
    /// - `AlreadyExists`: a runtime runs in this process (also when called from a microprocess of
    ///   it).
    /// - `Unsupported`: the process was forked from one that ran a runtime.
    /// - `WouldBlock`: no kernel threads were available for half a second.
    /// - Otherwise the error of the kernel: no threads, descriptors or memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Runtime;
    /// use std::io::ErrorKind;
    ///
    /// let runtime = Runtime::builder().vps(1).build()?;
    /// // There is one runtime at a time in a process.
    /// let error = Runtime::builder().build().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    /// drop(runtime);
    /// assert!(Runtime::builder().vps(1).build().is_ok());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn build(self) -> io::Result<Runtime> {
        Ok(Runtime { instance: Some(self.start()?) })
    }
}

impl Runtime {
    /// Returns a builder with the default settings.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Runtime;
    ///
    /// assert_eq!(Runtime::builder().vps(1).build()?.run(|| 6 * 7), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Runs `f` as a microprocess with a stack of 8 MiB, waits for it, and ends the runtime. Blocks
    /// the kernel thread.
    ///
    /// When `f` returns, the other microprocesses are cancelled and waited for, up to
    /// `Builder::shutdown_grace`; meanwhile `spawn` fails. Microprocesses that are alive after that
    /// never run again; see [`Runtime::shutdown`].
    ///
    /// # Panics
    /// With the panic of `f`, after the end of the runtime. If no stack is available for `f`.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::{runtime::Runtime, thread};
    ///
    /// let words = ["gate", "board", "arbiter"];
    /// let runtime = Runtime::builder().build()?;
    /// let longest = runtime.run(|| {
    ///     assert_eq!(thread::current().name(), Some("main"));
    ///     // Cancelled when the closure returns.
    ///     thread::spawn(thread::park);
    ///     words.iter().map(|word| word.len()).max()
    /// });
    /// assert_eq!(longest, Some(7));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn run<F, T>(mut self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let instance = self.instance.take();
        let outcome = run_one(f);
        if let Some(instance) = instance {
            shutdown::end(&instance);
        }
        match outcome {
            Ok(value) => value,
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Ends the runtime: cancels the living microprocesses, waits for them up to the grace time,
    /// and stops the VPs. Returns the number of microprocesses that were left.
    ///
    /// Those keep their stacks for ever and never run again, and their destructors do not run. The
    /// exception is a microprocess that never waits, which continues on its kernel thread. Blocks
    /// the kernel thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Runtime;
    /// use kumihimo::thread::{self, Cancelled};
    ///
    /// let runtime = Runtime::builder().build()?;
    /// let waiting = thread::spawn(thread::park);
    /// assert_eq!(runtime.shutdown(), 0, "no microprocess was left");
    /// assert!(waiting.join().unwrap_err().is::<Cancelled>());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown(mut self) -> u64 {
        self.instance.take().map_or(0, |instance| shutdown::end(&instance))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(instance) = self.instance.take() {
            shutdown::end(&instance);
        }
    }
}

/// Runs `f` in a runtime with the default settings: [`Runtime::run`]. Blocks the kernel thread.
///
/// # Errors
/// As [`Builder::build`].
///
/// # Examples
///
/// ```
/// use kumihimo::{runtime, thread};
///
/// let sum = runtime::run(|| {
///     let parts: Vec<_> = (1..=10).map(|n| thread::spawn(move || n * n)).collect();
///     parts.into_iter().map(|part| part.join().unwrap()).sum::<u32>()
/// })?;
/// assert_eq!(sum, 385);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn run<F, T>(f: F) -> io::Result<T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    Ok(Builder::new().build()?.run(f))
}

fn run_one<F, T>(f: F) -> std::thread::Result<T>
where
    F: FnOnce() -> T,
{
    if Instance::one_to_one() {
        // In 1:1 mode the calling kernel thread runs `f`.
        return std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    }
    let order = SpawnRequest {
        kind: SlotKind::for_stack(MAIN_STACK, false).expect("a stack of 8 MiB is possible"),
        priority: Priority::DEFAULT,
        name: Some("main".into()),
        child_first: false,
        bound: false,
        deadline: None,
        due_ns: None,
        on_block: None,
    };
    let started = match spawn::spawn(&order, None, f) {
        Ok(started) => started,
        Err(e) => panic!("kumihimo: cannot start the main microprocess: {e}"),
    };
    while !join::wait(started.who, None) {}
    // SAFETY: `wait` returned true, so the outcome exists; it is taken once. It outlives no borrow
    // of `f`, because the caller waits here.
    unsafe { outcome::take(started.who.mp, started.outcome) }
}

/// Exit code of a program whose runtime cannot start, or whose `main` panics: that of a panic.
const FAILED: u8 = START_FAILED as u8;

/// Runs `main` as a microprocess in a runtime with the default settings. Returns the exit code of
/// the program, which ends then with all of its threads, as std's do. `#[kumihimo::main]` calls it.
/// Blocks the calling kernel thread until `main` returns.
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
    let on_deadlock = if linked::is_linked() { OnDeadlock::Ignore } else { OnDeadlock::default() };
    let runtime = match Builder::new().on_deadlock(on_deadlock).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("kumihimo: {error}");
            return FAILED.into();
        }
    };
    let body = move || main().report();
    let outcome = if linked::is_linked() {
        // A thread as any other of the program.
        std::thread::Builder::new()
            .name("main".into())
            .stack_size(MAIN_STACK)
            .spawn(body)
            .map_err(|error| Box::new(error) as Box<dyn std::any::Any + Send>)
            .and_then(std::thread::JoinHandle::join)
    } else {
        run_one(body)
    };
    // It ends with the process.
    std::mem::forget(runtime);
    outcome.unwrap_or(FAILED.into())
}

/// Starts the default runtime if none runs. Called by the first spawn of a program that built none.
/// Blocks the kernel thread, for some milliseconds the first time.
///
/// An environment variable with an invalid value ends the process. The program did not request a
/// runtime, so it cannot be expected to handle the error.
///
/// # Errors
/// As [`Builder::build`].
///
/// # Examples
///
/// ```
/// use kumihimo::runtime;
///
/// assert!(runtime::metrics().is_none(), "no runtime runs yet");
/// runtime::ensure()?;
/// assert!(runtime::metrics().is_some());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn ensure() -> io::Result<()> {
    if instance::running() {
        return Ok(());
    }
    if let Err(error) = kumihimo_config::check() {
        eprintln!("kumihimo: {error}");
        std::process::exit(START_FAILED);
    }
    static STARTING: Mutex<()> = Mutex::new(());
    let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if instance::running() {
        return Ok(());
    }
    match Builder::new().start() {
        // Never dropped: it lives as long as the process.
        Ok(instance) => {
            std::mem::forget(instance);
            Ok(())
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

/// Sets the number of unbound kernel threads that the running runtime's pool keeps
/// (`set_concurrency` of paper P0). Surplus threads end.
///
/// # Errors
/// `NotFound` if no runtime runs.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime;
/// use std::io::ErrorKind;
///
/// assert_eq!(runtime::set_concurrency(4).unwrap_err().kind(), ErrorKind::NotFound);
/// let changed = runtime::run(|| runtime::set_concurrency(4))?;
/// assert!(changed.is_ok());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn set_concurrency(n: usize) -> io::Result<()> {
    instance::visit(|instance| match instance {
        Some(instance) => {
            instance.set_concurrency(n);
            Ok(())
        }
        None => {
            Err(io::Error::new(io::ErrorKind::NotFound, "no Kumihimo runtime runs in this process"))
        }
    })
}

/// Returns the memory of all pooled stacks to the kernel at once, and returns the number of stacks.
/// Blocks the kernel thread.
///
/// An idle runtime does the same with stacks that were not used for a second.
///
/// # Examples
///
/// ```
/// use kumihimo::{runtime, thread};
///
/// thread::spawn(|| ()).join().unwrap();
/// let trimmed = runtime::trim();
/// assert!(trimmed <= runtime::metrics().unwrap().stacks);
/// ```
pub fn trim() -> usize {
    pool::trim()
}
