//! The settings of a runtime, and its start with them.

mod batches;
mod limits;
mod ready_order;
mod start;

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kumihimo_arbiter::share::Share;
use kumihimo_batch::Policy as BatchPolicy;
use kumihimo_events::preempt::Means as Preemption;
use kumihimo_events::source::Kind as Events;
use kumihimo_events::watchdog::Distrust;
use kumihimo_policy::{Policy, RoundRobin};
use kumihimo_queue::{Capacity, Design};
use kumihimo_resource::locking::Locking;

use crate::api::handle::{Thread, current};
use crate::config::{
    BATCH_DEADLINE, DEFAULT_DESIGN, DEFAULT_STACK, OnDeadlock, ReadyOrder, Settings,
};

/// Panic hook of a runtime. Arguments: the microprocess that panicked, and the payload.
pub type OnPanic = Arc<dyn Fn(&Thread, &(dyn Any + Send)) + Send + Sync>;

/// Settings of a [`Runtime`](crate::api::runtime::Runtime).
///
/// An environment variable applies if the program does not call the setting of the same meaning:
/// `KUMI_VPS`, `KUMI_EVENTS`, `KUMI_PREEMPT`, `KUMI_KERNEL_THREADS`, `KUMI_STACK`, `KUMI_TRACE`,
/// `KUMI_SHARE`, `KUMI_WATCHDOG`, `KUMI_DUMP_SIGNAL`, and for tests and experiments
/// `KUMI_LAB=key=value,...`. `kumi doctor` lists them. An invalid value is an error of
/// [`build`](Builder::build), even if the program calls the setting.
///
/// The first runtime of a process also joins the machine: it takes a number in the user's run-time
/// directory and serves a control socket there (`kumihimo::machine`). If that fails, or with
/// `KUMI_DIR=off`, the runtime works nevertheless, but is not visible from outside.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{Builder, metrics};
/// use kumihimo::thread;
///
/// let builder = Builder::new().vps(2).stack_size(256 << 10).max_microprocesses(10_000);
/// let runtime = builder.build()?;
/// let (vps, answer) = runtime.run(|| {
///     let answer = thread::spawn(|| 6 * 7).join().unwrap();
///     (metrics().unwrap().vps.len(), answer)
/// });
/// assert_eq!((vps, answer), (2, 42));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub struct Builder {
    vps: Option<usize>,
    design: Option<Design>,
    policy: Box<dyn Policy>,
    batch: Option<BatchPolicy>,
    sticky: Option<bool>,
    ready_order: Option<ReadyOrder>,
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
    /// Creates a builder with the defaults: as many VPs as cores (CPU affinity, and the CPU quota
    /// of the control groups rounded up), round robin, the default queue design, no limits.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{Builder, metrics};
    ///
    /// let runtime = Builder::new().build()?;
    /// assert_eq!(runtime.run(|| metrics().unwrap().policy), "round-robin");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Builder {
        Builder {
            vps: None,
            design: None,
            policy: Box::new(RoundRobin::default()),
            batch: None,
            sticky: None,
            ready_order: None,
            stack_size: None,
            settings: Settings {
                vps: 1,
                open: 1,
                follows_cores: false,
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
                ready_order: ReadyOrder::Arrival,
                locking: None,
                share: None,
                batch: BatchPolicy::default(),
                batch_back_end: None,
                batch_deadline: BATCH_DEADLINE,
            },
        }
    }

    /// Sets the number of virtual processors, 1 to 1,024. More VPs than cores are allowed, but
    /// useful for tests only. Default: the number of cores that the CPU affinity of the calling
    /// kernel thread and the CPU quotas of its control groups allow ([`kumihimo_events::cores`];
    /// `kumi doctor` shows them). The number in use then follows changes of both, up to the number
    /// of online cores. `KUMI_VPS` applies if the program does not call this.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{Runtime, metrics};
    ///
    /// let runtime = Runtime::builder().vps(3).build()?;
    /// assert_eq!(runtime.run(|| metrics().unwrap().vps.len()), 3);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn vps(mut self, n: usize) -> Builder {
        self.vps = Some(n);
        self
    }

    /// Sets the scheduling policy. Default: round robin.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::policy::FixedPriority;
    /// use kumihimo::runtime::{Runtime, metrics};
    ///
    /// let runtime = Runtime::builder().policy(FixedPriority).build()?;
    /// assert_eq!(runtime.run(|| metrics().unwrap().policy), "fixed");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn policy(mut self, policy: impl Policy) -> Builder {
        self.policy = Box::new(policy);
        self
    }

    /// Sets the run-queue design. Default: [`DEFAULT_DESIGN`], the only one without the feature
    /// `lab`.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{Design, Runtime, metrics};
    ///
    /// let runtime = Runtime::builder().queue(Design::Ring).build()?;
    /// assert_eq!(runtime.run(|| metrics().unwrap().queue), "ring");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn queue(mut self, design: Design) -> Builder {
        self.design = Some(design);
        self
    }

    /// Sets the locking design of the resource table. Default: [`Locking::default`], the only one
    /// without the feature `lab`.
    ///
    /// The first runtime of the process decides, unless the process created a socket, file, mailbox
    /// or region before that. Another design later is an error of `build`. `KUMI_LAB=locking=...`
    /// applies if the program does not call this.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::table;
    /// use kumihimo::runtime::{Locking, Runtime};
    ///
    /// let _runtime = Runtime::builder().locking(Locking::default()).build()?;
    /// assert_eq!(table().locking(), Locking::default());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn locking(mut self, design: Locking) -> Builder {
        self.settings.locking = Some(design);
        self
    }

    /// Sets the share of CPU time (paper P0, 3.4) that this address space may use, with all its VPs
    /// together, while this runtime runs. Default: unlimited. `KUMI_SHARE` applies if the program
    /// does not call this: `50%` is half a core in each 100 ms, `250%,20ms,hard` is a hard limit of
    /// two and a half cores in each 20 ms.
    ///
    /// After an address space has used up its share, it runs below all levels of other address
    /// spaces until the next period (not with `KUMI_ARBITER=off`). With a hard share it does not
    /// run at all. CPU time is booked late, and an excess is deducted later: see the book,
    /// "Limits".
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{Runtime, Share};
    ///
    /// // Half of the time of one core.
    /// let share: Share = "50%".parse().unwrap();
    /// let runtime = Runtime::builder().share(share).build()?;
    /// assert_eq!(runtime.run(|| share.per_mille()), 500);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn share(mut self, share: Share) -> Builder {
        self.settings.share = Some(share);
        self
    }

    /// Sets the number of runnable microprocesses that a VP keeps before it gives some away. For
    /// experiments.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{Capacity, Runtime};
    /// use kumihimo::thread;
    ///
    /// let runtime = Runtime::builder().vps(2).capacity(Capacity::Fixed(4)).build()?;
    /// let sum: u32 = runtime.run(|| {
    ///     let all: Vec<_> = (0..100).map(|n| thread::spawn(move || n)).collect();
    ///     all.into_iter().map(|one| one.join().unwrap()).sum()
    /// });
    /// assert_eq!(sum, 4950);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn capacity(mut self, capacity: Capacity) -> Builder {
        self.settings.capacity = capacity;
        self
    }

    /// Sets the default usable stack of microprocesses, in bytes, for builders that specify none.
    /// It is raised to the machine's minimum. If the program does not call this, `KUMI_STACK`
    /// applies, else std's `RUST_MIN_STACK`, else 160 KiB.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::{runtime::Runtime, thread};
    /// use std::hint::black_box;
    ///
    /// let runtime = Runtime::builder().stack_size(1 << 20).build()?;
    /// let large = || black_box(&[7u8; 512 << 10]).len();
    /// assert_eq!(runtime.run(|| thread::spawn(large).join().unwrap()), 512 << 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets the event source. Default: the best source that the machine allows. `KUMI_EVENTS`
    /// applies if the program does not call this.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{Events, Runtime, metrics};
    ///
    /// let runtime = Runtime::builder().events(Events::Off).build()?;
    /// assert_eq!(runtime.run(|| metrics().unwrap().events), "off");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn events(mut self, source: Events) -> Builder {
        self.settings.events = Some(source);
        self
    }

    /// Sets the means of interrupting a microprocess that runs without entering the runtime while
    /// another one should run. Default: the best means that the machine allows, `clock` or else
    /// `signal`; none with the event source `off` and under a debugger. `KUMI_PREEMPT` applies if
    /// the program does not call this: `clock`, `signal`, `signal=N`, `off`.
    ///
    /// A signal may interrupt system calls: see the book, "Limits".
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{Preemption, Runtime, metrics};
    ///
    /// let runtime = Runtime::builder().preemption(Preemption::Off).build()?;
    /// assert_eq!(runtime.run(|| metrics().unwrap().preemption), "off");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn preemption(mut self, means: Preemption) -> Builder {
        self.settings.preempt = Some(means);
        self
    }

    /// Sets the number of unbound kernel threads that the pool keeps ready (`set_concurrency` of
    /// paper P0, whose default is 1). Default: one per VP.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{Runtime, metrics};
    /// use kumihimo::thread;
    /// use std::sync::Barrier;
    ///
    /// let runtime = Runtime::builder().vps(1).concurrency(3).build()?;
    /// let kernel_threads = runtime.run(|| {
    ///     // Three calls block their kernel threads at once. The pool keeps those threads.
    ///     let barrier = Barrier::new(3);
    ///     thread::scope(|s| {
    ///         for _ in 0..3 {
    ///             s.spawn(|| thread::blocking(|| barrier.wait()));
    ///         }
    ///     });
    ///     metrics().unwrap().kernel_threads
    /// });
    /// assert!(kernel_threads >= 3);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn concurrency(mut self, n: usize) -> Builder {
        self.settings.concurrency = Some(n);
        self
    }

    /// Sets how long the end of the runtime waits for cancelled microprocesses. Default: 1 s.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::{runtime::Runtime, thread};
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().shutdown_grace(Duration::from_millis(5)).build()?;
    /// // Defers its cancellation for ever, so it is left behind after the grace time.
    /// thread::spawn(|| thread::without_cancellation(thread::park));
    /// assert_eq!(runtime.shutdown(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown_grace(mut self, time: Duration) -> Builder {
        self.settings.grace = time;
        self
    }

    /// Sets a hook that the panicking microprocess calls, after the process's panic hook and before
    /// `join` returns. Not called for cancellations. A panic of the hook is reported on standard
    /// error and ignored.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::{runtime::Runtime, sync::mpsc, thread};
    ///
    /// # std::panic::set_hook(Box::new(|_| ()));
    /// let (sender, panics) = mpsc::channel();
    /// let builder = Runtime::builder().on_panic(move |thread, payload| {
    ///     let text = payload.downcast_ref::<&str>().copied();
    ///     sender.send((thread.name().map(str::to_owned), text)).unwrap();
    /// });
    /// builder.build()?.run(|| {
    ///     let worker = thread::Builder::new().name("worker".into());
    ///     worker.spawn(|| panic!("no luck")).unwrap().join().unwrap_err();
    /// });
    /// assert_eq!(panics.recv(), Ok((Some("worker".to_owned()), Some("no luck"))));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_panic(
        mut self,
        hook: impl Fn(&Thread, &(dyn Any + Send)) + Send + Sync + 'static,
    ) -> Builder {
        self.settings.on_panic = Some(Arc::new(move |payload| hook(&current(), payload)));
        self
    }

    /// Sets the action when all microprocesses wait for each other. Default: a report.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{OnDeadlock, Runtime};
    /// use kumihimo::{sync::Semaphore, thread};
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().on_deadlock(OnDeadlock::Ignore).build()?;
    /// // No permit ever comes. The default is a report on standard error.
    /// let stuck = thread::spawn(|| drop(Semaphore::new(0).acquire()));
    /// let stuck = stuck.join_timeout(Duration::from_millis(2)).unwrap_err();
    /// drop(runtime); // Cancels the microprocess.
    /// assert!(stuck.join().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_deadlock(mut self, what: OnDeadlock) -> Builder {
        self.settings.on_deadlock = what;
        self
    }

    /// Writes a trace of this runtime to `path`: what every microprocess, VP and kernel thread did,
    /// for <https://ui.perfetto.dev> and `kumi trace check`. The trace is complete when the
    /// runtime, or the process, ends. `%p` in `path` is replaced by the process ID.
    ///
    /// A trace costs a few per cent of time, and its buffers. A kernel thread writes a temporary
    /// file beside `path` (24 bytes per record), which remains if the process dies. A second
    /// runtime of the process with the same path appends its trace. If `path` is a pipe, `build`
    /// opens it and waits for its reader; the trace is written at the end. Errors at the end are
    /// reported on standard error. `KUMI_TRACE` applies if the program does not call this. Has no
    /// effect where microprocesses are kernel threads 1:1.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::{runtime::Runtime, thread};
    ///
    /// let path = std::env::temp_dir().join(format!("{}.perfetto", std::process::id()));
    /// let runtime = Runtime::builder().trace(&path).build()?;
    /// runtime.run(|| thread::spawn(|| ()).join().unwrap());
    /// assert!(std::fs::metadata(&path)?.len() > 0);
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Builder {
        self.settings.trace = Some(path.into());
        self
    }

    /// Sets the size of each trace buffer in records of 24 bytes: 8 to 2^24, rounded up to a power
    /// of two. There is one buffer per VP, and one more. Records that do not fit are lost, counted,
    /// and shown in the trace. Default: 32,768. `KUMI_LAB=trace_buffer=...` applies if the program
    /// does not call this.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{Runtime, metrics};
    ///
    /// let path = std::env::temp_dir().join(format!("{}.perfetto", std::process::id()));
    /// let runtime = Runtime::builder().trace(&path).trace_buffer(1 << 12).build()?;
    /// let lost = runtime.run(|| metrics().unwrap().trace_lost);
    /// assert_eq!(lost, Some(0));
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn trace_buffer(mut self, records: usize) -> Builder {
        self.settings.trace_buffer = Some(records);
        self
    }

    /// Sets a signal, for example `libc::SIGUSR2`, that makes the process write
    /// [`dump`](crate::observe::dump::dump) to standard error, for the lifetime of the process. The
    /// handler only wakes a kernel thread that waits for it. `KUMI_DUMP_SIGNAL=USR2` in the
    /// environment applies if the program does not call this.
    ///
    /// Interrupted system calls continue or return EINTR, as signal(7) describes for a handler with
    /// `SA_RESTART`. Default: none.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Runtime;
    /// use std::io::ErrorKind;
    ///
    /// // From now on, `kill -USR2` makes this process write its state to standard error.
    /// let runtime = Runtime::builder().dump_signal(libc::SIGUSR2).build()?;
    /// assert_eq!(runtime.run(|| 7), 7);
    ///
    /// // SIGKILL cannot be caught.
    /// let error = Runtime::builder().dump_signal(libc::SIGKILL).build().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidInput);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn dump_signal(mut self, signal: i32) -> Builder {
        self.settings.dump_signal = Some(signal);
        self
    }

    /// Sets whether a microprocess that blocks often in calls unknown to the runtime (std's sockets
    /// and locks, a C library) becomes sticky. A sticky microprocess keeps its kernel thread and
    /// has no VP until it waits in the runtime again.
    ///
    /// Such a block then costs as much as a thread's; a block that is reported to the runtime costs
    /// ten times as much. Microprocesses never become sticky while different levels are in use.
    /// Default: true. `KUMI_LAB=sticky=off` or `on` applies if the program does not call this.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{Runtime, metrics};
    ///
    /// let runtime = Runtime::builder().sticky(false).build()?;
    /// assert_eq!(runtime.run(|| metrics().unwrap().changes), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sticky(mut self, is: bool) -> Builder {
        self.sticky = Some(is);
        self
    }

    /// Sets the action when a virtual processor is prevented from scheduling. Causes are a
    /// [`NoEvents`](crate::NoEvents) guard that is not dropped or is held during a wait, a policy
    /// that loops or waits, and a microprocess that cannot be interrupted while others wait.
    ///
    /// Default: after a second, the runtime reports it on standard error, with the stack, and the
    /// other VPs continue without that VP. `KUMI_WATCHDOG` applies if the program does not call
    /// this: `off`, `report`, `override`, `end`, or one of these with a bound in milliseconds
    /// (`report=2000`).
    ///
    /// [`kumihimo_events::watchdog`] defines the conditions, and how the other VPs continue in each
    /// case.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{Distrust, OnMisbehaviour, Runtime};
    /// use std::time::Duration;
    ///
    /// // Only reports, and only after five seconds.
    /// let distrust = Distrust { on: OnMisbehaviour::Report, bound: Duration::from_secs(5) };
    /// let runtime = Runtime::builder().on_misbehaviour(distrust).build()?;
    /// assert_eq!(runtime.run(|| 7), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_misbehaviour(mut self, distrust: Distrust) -> Builder {
        self.settings.distrust = Some(distrust);
        self
    }
}
