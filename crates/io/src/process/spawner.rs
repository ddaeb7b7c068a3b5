//! The kernel thread that starts the child processes of microprocesses.
//!
//! The kernel ties some of a child's state to the kernel *thread* that started it. The signal of
//! `PR_SET_PDEATHSIG` (prctl(2)) is sent when that thread ends, and the threads of the pool end
//! long before the process. This thread lives as long as the process.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use kumihimo_arch::{kernel_attributes, signal_mask};
use kumihimo_runtime::park;
use kumihimo_runtime::remote_wake::begin_on_all_cores;
use kumihimo_runtime::thread::blocking;

type Job = Box<dyn FnOnce() + Send>;

/// The timer slack of a process that has not changed it, in nanoseconds (prctl(2)). Threads of the
/// runtime's pool have less.
const USUAL_SLACK: u64 = 50_000;

/// Runs `start`, which starts a child process, on the kernel thread for that. The child gets the
/// caller's signal mask and timer slack. Runs it in place on a thread that is no microprocess, and
/// if the caller's kernel thread differs in what else a child inherits: a sandbox of the caller's
/// must hold for its children. A landlock domain is not visible; it nearly always comes with
/// `no_new_privs`, which is.
///
/// Blocks the microprocess until `start` has returned; other microprocesses continue. Not a
/// cancellation point.
pub(super) fn run<T: Send>(start: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let slack = own_timer_slack();
    // A bound microprocess has a kernel thread that differs, or may; that thread lives as long as
    // the microprocess does.
    let is_unbound = park::is_microprocess() && !park::is_bound();
    blocking(|| match is_unbound.then(spawner).flatten() {
        Some(spawner) if spawner.is_like_the_caller() => spawner.run(slack, start),
        _ => with_timer_slack(slack, start),
    })
}

/// The timer slack of the calling microprocess or thread, in nanoseconds.
fn own_timer_slack() -> u64 {
    // SAFETY: integers only.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
    u64::try_from(slack).unwrap_or(USUAL_SLACK)
}

/// Runs `start` with that timer slack of the calling kernel thread.
fn with_timer_slack<T>(slack: u64, start: impl FnOnce() -> T) -> T {
    let before = kernel_attributes::timer_slack();
    kernel_attributes::set_timer_slack(slack);
    let started = start();
    kernel_attributes::set_timer_slack(before);
    started
}

/// What a child inherits from the kernel thread that starts it, besides the signal mask.
#[derive(PartialEq, Eq)]
struct Inherited {
    nice: i32,
    /// Credentials, capabilities and filters, from `status` (proc_pid_status(5)).
    status: Vec<String>,
    cgroups: String,
    namespaces: Vec<PathBuf>,
}

impl Inherited {
    /// What a child of thread `tid` of this process would inherit. `None` without /proc.
    fn of(tid: libc::pid_t) -> Option<Inherited> {
        const LINES: [&str; 6] = ["Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:", "Seccomp"];
        const NAMESPACES: [&str; 8] =
            ["cgroup", "ipc", "mnt", "net", "pid_for_children", "time_for_children", "user", "uts"];
        let thread = PathBuf::from(format!("/proc/self/task/{tid}"));
        let status = fs::read_to_string(thread.join("status")).ok()?;
        let is_inherited = |line: &&str| LINES.iter().any(|begins| line.starts_with(begins));
        // SAFETY: takes integers. -1 is a value, too; a thread of this process exists.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, tid as libc::id_t) };
        // A namespace that this kernel does not have is absent for every thread.
        let namespace = |name| fs::read_link(thread.join("ns").join(name)).ok();
        Some(Inherited {
            nice,
            status: status.lines().filter(is_inherited).map(str::to_owned).collect(),
            cgroups: fs::read_to_string(thread.join("cgroup")).unwrap_or_default(),
            namespaces: NAMESPACES.into_iter().filter_map(namespace).collect(),
        })
    }
}

fn tid() -> libc::pid_t {
    kumihimo_arch::kernel::gettid()
}

struct Spawner {
    jobs: Sender<Job>,
    process: u32,
    tid: libc::pid_t,
}

/// The spawner, which the first call starts. `None` if no kernel thread can be started, in a forked
/// child, which lacks it, and as long as every caller has a sandbox, which it would inherit.
fn spawner() -> Option<&'static Spawner> {
    static SPAWNER: OnceLock<Option<Spawner>> = OnceLock::new();
    if SPAWNER.get().is_none() {
        let of_process = Inherited::of(std::process::id() as libc::pid_t);
        if of_process.is_none() || of_process != Inherited::of(tid()) {
            return None;
        }
    }
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, next) = channel::<Job>();
        let (tells, told) = channel();
        let builder = std::thread::Builder::new().name("kumi-spawn".into());
        let thread = signal_mask::spawn_blocked(builder, move || {
            // What it has inherited from the first caller's kernel thread, and children would from
            // it. Each job brings its own signal mask.
            begin_on_all_cores();
            kernel_attributes::set_timer_slack(USUAL_SLACK);
            let _ = tells.send(tid());
            next.iter().for_each(|job| job());
        });
        thread.ok()?;
        Some(Spawner { jobs, process: std::process::id(), tid: told.recv().ok()? })
    });
    spawner.as_ref().filter(|spawner| spawner.process == std::process::id())
}

impl Spawner {
    /// Whether a child that is started here inherits what it would from the caller's kernel thread.
    fn is_like_the_caller(&self) -> bool {
        let own = Inherited::of(self.tid);
        own.is_some() && own == Inherited::of(tid())
    }

    /// Blocks the kernel thread until `start` has returned there.
    fn run<T: Send>(
        &self,
        slack: u64,
        start: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let mask = signal_mask::current();
        let (done, outcome) = channel();
        let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
            let before = signal_mask::set(mask);
            let started = with_timer_slack(slack, start);
            signal_mask::set(before);
            let _ = done.send(started);
        });
        // SAFETY: `recv` below returns only after the job has run, or was dropped without having
        // run: the sender `done` is part of it. So what the job borrows outlives it.
        let job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
        let gone = || io::Error::other("the kernel thread that starts child processes has ended");
        self.jobs.send(job).map_err(|_| gone())?;
        outcome.recv().map_err(|_| gone())?
    }
}
