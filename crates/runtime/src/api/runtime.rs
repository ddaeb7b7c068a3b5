//! Starting, measuring and ending a runtime.
//!
//! A program that calls nothing here gets one at its first `thread::spawn`, with the defaults, for
//! as long as the process lives.

use std::any::Any;
use std::io;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kumihimo_events::limit::Limit;
use kumihimo_policy::{Policy, Priority, RoundRobin};

use crate::api::handle::{Thread, current};
use crate::config::{MAX_VPS, Settings};
use crate::kernel_thread::fork;
use crate::lifecycle::spawn::{self, SpawnRequest};
use crate::lifecycle::{join, process_handlers, shutdown};
use crate::memory::pool::{self, SlotKind};
use crate::observe::dump_signal;
use crate::priority::placement::Placer;
use crate::resource::membership;
use crate::scheduler::instance::{self, Instance};

pub use crate::config::{DEFAULT_DESIGN, DEFAULT_STACK, OnDeadlock};
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

/// Stack of the microprocess that [`Runtime::run`] makes, in bytes, as a main thread has it.
const MAIN_STACK: usize = 8 << 20;

/// Exit code of a process whose implicit runtime cannot be configured: that of a panic, which is
/// how other failures of such a start end `thread::spawn`.
const START_FAILED: i32 = 101;

/// What a panic hook of the runtime gets: the microprocess that panicked and the payload.
pub type OnPanic = Arc<dyn Fn(&Thread, &(dyn Any + Send)) + Send + Sync>;

/// Settings of a [`Runtime`].
///
/// Variables of the environment apply where the program does not call the setting of the same
/// meaning: `KUMI_VPS`, `KUMI_EVENTS`, `KUMI_PREEMPT`, `KUMI_KERNEL_THREADS`, `KUMI_STACK`,
/// `KUMI_TRACE`, `KUMI_SHARE`, `KUMI_WATCHDOG`, `KUMI_DUMP_SIGNAL`, and for tests and experiments
/// `KUMI_LAB=key=value,...`. `kumi doctor` lists them. A value that means nothing is an error of
/// [`build`](Builder::build), also where the program calls the setting.
///
/// The first runtime of a process also joins the machine: it takes a number in the user's run-time
/// directory and answers at a control socket there (`kumihimo::machine`). Where that cannot be, or
/// with `KUMI_DIR=off`, it runs as well, and nobody sees it from outside.
#[must_use]
pub struct Builder {
    vps: Option<usize>,
    design: Option<Design>,
    policy: Box<dyn Policy>,
    batch: Option<BatchPolicy>,
    sticky: Option<bool>,
    stack_size: Option<usize>,
    settings: Settings,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("vps", &self.vps)
            .field("queue", &self.design)
            .field("policy", &self.policy.name())
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// The defaults: as many VPs as cores, round robin, the measured queue design, no limits.
    pub fn new() -> Builder {
        Builder {
            vps: None,
            design: None,
            policy: Box::new(RoundRobin::default()),
            batch: None,
            sticky: None,
            stack_size: None,
            settings: Settings {
                vps: 1,
                design: DEFAULT_DESIGN,
                capacity: Capacity::default(),
                stack_size: DEFAULT_STACK,
                concurrency: None,
                limit: None,
                events: None,
                preempt: None,
                max_microprocesses: u64::MAX,
                max_stacks: usize::MAX,
                max_stack_memory: u64::MAX,
                grace: Duration::from_secs(1),
                on_panic: None,
                on_deadlock: OnDeadlock::default(),
                trace: None,
                trace_buffer: None,
                dump_signal: None,
                distrust: None,
                sticky: true,
                locking: None,
                share: None,
                batch: BatchPolicy::default(),
                batch_back_end: None,
            },
        }
    }

    /// When system calls of several microprocesses enter the kernel together: see
    /// [`syscall_batch`](crate::wait::syscall_batch). `KUMI_LAB=batch=...` applies where the
    /// program does not call this.
    pub fn batch(mut self, policy: BatchPolicy) -> Builder {
        self.batch = Some(policy);
        self
    }

    /// The back end that makes the system calls of a batch, one for each virtual processor: for
    /// tests and experiments. By default a uring where the kernel allows it, else plain calls
    /// (always with `KUMI_LAB=uring=off`).
    pub fn batch_back_end(
        mut self,
        make: impl Fn() -> Box<dyn Backend> + Send + Sync + 'static,
    ) -> Builder {
        self.settings.batch_back_end = Some(Arc::new(make));
        self
    }

    /// Number of virtual processors, 1 to 1,024. More than cores is allowed; it helps nothing but
    /// tests.
    pub fn vps(mut self, n: usize) -> Builder {
        self.vps = Some(n);
        self
    }

    /// The scheduling policy. Default: round robin.
    pub fn policy(mut self, policy: impl Policy) -> Builder {
        self.policy = Box::new(policy);
        self
    }

    /// The run-queue design. Default: [`DEFAULT_DESIGN`], the only one unless the feature `lab` is
    /// on.
    pub fn queue(mut self, design: Design) -> Builder {
        self.design = Some(design);
        self
    }

    /// How the resource table keeps its resources from being used by two at once. Default:
    /// [`Locking::default`], the only one unless the feature `lab` is on. The first runtime of the
    /// process decides, unless it had a socket, file, mailbox or region before that; another design
    /// later is an error of `build`.
    /// `KUMI_LAB=locking=...` applies where the program does not call this.
    pub fn locking(mut self, design: Locking) -> Builder {
        self.settings.locking = Some(design);
        self
    }

    /// How much CPU time this address space may use (P0, 3.4), all virtual processors together,
    /// while this runtime runs. Default: as much as it gets. `KUMI_SHARE` stands in where the
    /// program does not say: `50%` is half a core in each 100 ms, `250%,20ms,hard` two and a half
    /// cores in each 20 ms and no more.
    ///
    /// An address space that has used its share up runs below all levels of other address spaces
    /// until the next period (not with `KUMI_ARBITER=off`); with a hard share it does not run at
    /// all. CPU time is booked late, and an excess is owed: see CAVEATS.md.
    pub fn share(mut self, share: Share) -> Builder {
        self.settings.share = Some(share);
        self
    }

    /// How many runnable microprocesses a VP keeps before it gives away: for experiments.
    pub fn capacity(mut self, capacity: Capacity) -> Builder {
        self.settings.capacity = capacity;
        self
    }

    /// Usable stack of microprocesses whose own builder says nothing, in bytes. At least the
    /// machine's minimum is used. `KUMI_STACK` applies where the program does not call this.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Where events come from. Default: the best source that the machine allows. `KUMI_EVENTS`
    /// stands in where the program does not say.
    pub fn events(mut self, source: Events) -> Builder {
        self.settings.events = Some(source);
        self
    }

    /// How a microprocess is interrupted that runs on without entering the runtime while another is
    /// to run. Default: the best way that the machine allows, `clock` or else `signal`; never with
    /// the event source `off`, nor under a debugger. `KUMI_PREEMPT` stands in where the program
    /// does not say: `clock`, `signal`, `signal=N`, `off`.
    ///
    /// By a signal, system calls may end early: see CAVEATS.md.
    pub fn preemption(mut self, means: Preemption) -> Builder {
        self.settings.preempt = Some(means);
        self
    }

    /// How many unbound kernel threads the pool keeps ready (P0: `set_concurrency`, whose default
    /// is 1). Default: one a VP.
    pub fn concurrency(mut self, n: usize) -> Builder {
        self.settings.concurrency = Some(n);
        self
    }

    /// The most kernel threads of this runtime, including those that carry VPs (at least one each).
    /// At the limit a blocked microprocess holds its VP until its call returns; if no call can
    /// return, the runtime reports a deadlock. Default: what the machine allows, at most 10,000
    /// ([`kumihimo_events::limit`]; `kumi doctor` names the limit that applies). The environment
    /// variable `KUMI_KERNEL_THREADS` applies where the program does not call this.
    pub fn max_kernel_threads(mut self, n: usize) -> Builder {
        self.settings.limit = Some(Limit::asked(n, "Builder::max_kernel_threads"));
        self
    }

    /// Most living microprocesses; one more is an error of `spawn`. Counting costs a little at
    /// every spawn. Default: no limit.
    pub fn max_microprocesses(mut self, n: u64) -> Builder {
        self.settings.max_microprocesses = n;
        self
    }

    /// Most stacks, in use or pooled, of the whole process. Default: no limit.
    pub fn max_stacks(mut self, n: usize) -> Builder {
        self.settings.max_stacks = n;
        self
    }

    /// Most address space for stacks, in bytes, of the whole process. Default: no limit.
    pub fn max_stack_memory(mut self, bytes: u64) -> Builder {
        self.settings.max_stack_memory = bytes;
        self
    }

    /// How long the end of the runtime waits for cancelled microprocesses. Default 1 s.
    pub fn shutdown_grace(mut self, time: Duration) -> Builder {
        self.settings.grace = time;
        self
    }

    /// Called on the microprocess that panicked, after the process's panic hook and before `join`
    /// returns. Not for cancellations. A hook that panics is reported on standard error and
    /// ignored.
    pub fn on_panic(
        mut self,
        hook: impl Fn(&Thread, &(dyn Any + Send)) + Send + Sync + 'static,
    ) -> Builder {
        self.settings.on_panic = Some(Arc::new(move |payload| hook(&current(), payload)));
        self
    }

    /// What happens when all microprocesses wait for each other. Default: a report.
    pub fn on_deadlock(mut self, what: OnDeadlock) -> Builder {
        self.settings.on_deadlock = what;
        self
    }

    /// Writes a trace of this runtime to `path`, complete when the runtime, or the process, ends:
    /// what every microprocess, VP and kernel thread did, for <https://ui.perfetto.dev> and
    /// `kumi trace check`. `%p` in it becomes the process's id.
    ///
    /// Costs a few per cent of time, the buffers, and meanwhile a file beside `path` (24 bytes a
    /// record) that a process that dies leaves behind; a kernel thread writes it. A second runtime
    /// of the process with the same path goes behind the first. A pipe is opened by `build`, which
    /// waits for its reader, and written at the end. `KUMI_TRACE` stands in where the program does
    /// not say. What cannot be written at the end is said on standard error. Without effect where
    /// microprocesses are kernel threads 1:1: VPs do nothing there.
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Builder {
        self.settings.trace = Some(path.into());
        self
    }

    /// How many records the trace's buffers hold, one buffer a VP and one more, 24 bytes a record:
    /// 8 to 2^24, rounded up to a power of two. What finds no room is lost, counted, and shown in
    /// the trace. Default 32,768. `KUMI_LAB=trace_buffer=...` applies where the program does not
    /// call this.
    pub fn trace_buffer(mut self, records: usize) -> Builder {
        self.settings.trace_buffer = Some(records);
        self
    }

    /// This signal makes the process write [`dump`] to standard error, from now on and as long as
    /// it lives: `libc::SIGUSR2`, for example. The handler only calls a kernel thread that waits
    /// for it. `KUMI_DUMP_SIGNAL=USR2` in the environment stands in where the program does not say.
    ///
    /// System calls that are interrupted go on or return EINTR as signal(7) says of a handler with
    /// `SA_RESTART`. Default: none.
    pub fn dump_signal(mut self, signal: i32) -> Builder {
        self.settings.dump_signal = Some(signal);
        self
    }

    /// Whether a microprocess that blocks often in calls that the runtime does not know (std's
    /// sockets and locks, a C library) keeps its kernel thread and has no virtual processor, until
    /// it waits in the runtime again: such a block then costs what it costs a thread, where one
    /// that is told to the runtime costs ten times as much. Never where microprocesses of different
    /// levels are there. Default: yes. `KUMI_LAB=sticky=off` or `on` applies where the program
    /// does not call this.
    pub fn sticky(mut self, is: bool) -> Builder {
        self.sticky = Some(is);
        self
    }

    /// What happens when a virtual processor is kept from its part: by a
    /// [`NoEvents`](crate::NoEvents) guard that is not given back, or is waited under, a policy
    /// that loops or waits, or a microprocess that cannot be interrupted while others wait.
    /// Default: after a second of that it is reported on standard error, with the stack, and the
    /// others go on without it. `KUMI_WATCHDOG` stands in where the program does not say: `off`,
    /// `report`, `override`, `end`, or one of these with a bound in milliseconds (`report=2000`).
    ///
    /// What counts, and what "go on" means in each case: [`kumihimo_events::watchdog`].
    pub fn on_misbehaviour(mut self, distrust: Distrust) -> Builder {
        self.settings.distrust = Some(distrust);
        self
    }

    /// Starts the runtime: its kernel threads, one a VP. Blocks the kernel thread for about a
    /// millisecond.
    ///
    /// # Errors
    /// `InvalidInput`: a variable of the environment with a value that means nothing, or of an
    /// earlier version; zero VPs or more than 1,024, a stack beyond 1 GiB, a trace buffer out of
    /// range, a dump signal that is none or has a handler already. `AlreadyExists`: a runtime runs
    /// in this process (also when called from a microprocess of it). `Unsupported`: in a process
    /// forked from one that ran a runtime. `WouldBlock`: no kernel threads were to be had for half
    /// a second. Else what the kernel says: no threads, descriptors or memory.
    pub fn build(self) -> io::Result<Runtime> {
        Ok(Runtime { instance: Some(self.start()?) })
    }

    fn start(mut self) -> io::Result<Arc<Instance>> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        if fork::is_child() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this process was forked from one that ran a runtime: call exec before starting another",
            ));
        }
        let config = kumihimo_config::check()?;
        self.settings.vps = self.vps.or(config.vps).unwrap_or_else(default_vps);
        if !(1..=MAX_VPS).contains(&self.settings.vps) {
            return Err(invalid(format!(
                "{} virtual processors: 1 to {MAX_VPS} are possible",
                self.settings.vps
            )));
        }
        let lab = &config.lab;
        let settings = &mut self.settings;
        settings.design = self
            .design
            .or(lab.queue.and_then(|of| Design::from_name(of.name())))
            .unwrap_or(DEFAULT_DESIGN);
        settings.batch = self.batch.or(lab.batch.map(BatchPolicy::from)).unwrap_or_default();
        settings.sticky = self.sticky.or(lab.sticky).unwrap_or(true);
        settings.stack_size = self.stack_size.or(config.stack).unwrap_or(DEFAULT_STACK);
        settings.events = settings.events.or(config.events.map(Events::from));
        settings.preempt = settings.preempt.or(config.preempt.map(Preemption::from));
        settings.distrust = settings.distrust.or(config.watchdog.map(Distrust::from));
        settings.share = settings.share.or(config.share.map(Share::from));
        settings.locking = settings.locking.or(lab.locking.and_then(|of| of.name().parse().ok()));
        if settings.limit.is_none() {
            let threads = config.kernel_threads;
            settings.limit = threads.map(|n| Limit::asked(n, "KUMI_KERNEL_THREADS"));
        }
        let running = || {
            io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a Kumihimo runtime runs in this process already (one was built, or the first spawn started the default one)",
            )
        };
        if instance::running() {
            return Err(running());
        }
        process_handlers::install_once()?;
        if let (None, Some(bytes)) = (self.stack_size, config.stack) {
            SlotKind::for_stack(bytes, false)
                .map_err(|e| invalid(format!("KUMI_STACK={bytes}: {e}")))?;
        }
        membership::begin(self.settings.locking)?;
        dump_signal::prepare(self.settings.dump_signal)?;
        pool::MAX_SLOTS.store(self.settings.max_stacks, Ordering::Relaxed);
        pool::MAX_STACK_BYTES.store(self.settings.max_stack_memory, Ordering::Relaxed);
        let instance = Instance::new(self.settings, Placer::new(self.policy))?;
        if !instance.publish() {
            return Err(running());
        }
        if let Err(e) = instance.start() {
            shutdown::stop(&instance);
            return Err(e);
        }
        Ok(instance)
    }
}

/// One virtual processor a core, as far as there may be as many.
fn default_vps() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_VPS)
}

/// A running runtime. Dropping it ends it.
#[derive(Debug)]
pub struct Runtime {
    instance: Option<Arc<Instance>>,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("vps", &self.vps.len()).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Settings for one.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Runs `f` as a microprocess (with a stack of 8 MiB), waits for it, and ends the runtime.
    /// Blocks the kernel thread.
    ///
    /// When `f` returns, the other microprocesses are cancelled and waited for, up to
    /// `Builder::shutdown_grace`; meanwhile `spawn` is an error. Those that are then still alive
    /// never run again; see [`Runtime::shutdown`].
    ///
    /// # Panics
    /// With `f`'s panic, after the end of the runtime. If the stack for `f` cannot be had.
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

    /// Ends the runtime: cancels what lives, waits for it up to the grace time, stops the VPs.
    /// Returns how many microprocesses were left.
    ///
    /// Those keep their stacks for ever and never run again, except that one which never waits goes
    /// on on its kernel thread. Their destructors do not run. Blocks the kernel thread.
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

/// Runs `f` in a runtime with the default settings: [`Runtime::run`].
///
/// # Errors
/// As [`Builder::build`].
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
        // Kernel threads instead of microprocesses: the caller's will do.
        return std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    }
    let order = SpawnRequest {
        kind: SlotKind::for_stack(MAIN_STACK, false).expect("a stack of 8 MiB is possible"),
        priority: Priority::DEFAULT,
        name: Some("main".into()),
        child_first: false,
        deadline: None,
        due_ns: None,
    };
    let started = match spawn::spawn(&order, None, f) {
        Ok(started) => started,
        Err(e) => panic!("kumihimo: cannot start the main microprocess: {e}"),
    };
    while !join::wait(started.who, None) {}
    // SAFETY: `wait` said that the outcome is there; taken once. That it outlives no borrow of `f`:
    // the caller waits here.
    unsafe { spawn::take(started.who.mp, started.outcome) }
}

/// The default runtime, started by the first spawn of a program that built none. Blocks the kernel
/// thread, some milliseconds the first time.
///
/// A variable of the environment with a value that means nothing ends the process: the program did
/// not ask for a runtime, so it cannot be expected to handle the error.
///
/// # Errors
/// As [`Builder::build`].
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
        // Lives as long as the process.
        Ok(instance) => {
            std::mem::forget(instance);
            Ok(())
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

/// How many unbound kernel threads the running runtime's pool keeps from now on (P0:
/// `set_concurrency`). Extra ones end.
///
/// # Errors
/// `NotFound` if none runs.
pub fn set_concurrency(n: usize) -> io::Result<()> {
    instance::visit(|instance| match instance {
        Some(instance) => {
            instance.kernel.set_concurrency(n);
            Ok(())
        }
        None => {
            Err(io::Error::new(io::ErrorKind::NotFound, "no Kumihimo runtime runs in this process"))
        }
    })
}

/// Gives the memory of all pooled stacks back to the kernel at once; returns how many stacks.
/// Blocks the kernel thread.
///
/// A runtime that idles does so by itself with those that were not used for a second.
pub fn trim() -> usize {
    pool::trim()
}
