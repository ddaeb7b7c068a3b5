//! The kernel thread that starts the child processes of microprocesses.
//!
//! The kernel ties some of a child's state to the kernel *thread* that started it. The signal of
//! `PR_SET_PDEATHSIG` (prctl(2)) is sent when that thread ends, and the threads of the pool end
//! long before the process. This thread lives as long as the process.

use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use kumihimo_runtime::park;
use kumihimo_runtime::thread::blocking;

type Job = Box<dyn FnOnce() + Send>;

/// Runs `start`, which starts a child process, on the kernel thread for that. The child gets the
/// caller's signal mask. On a thread that is no microprocess, and for a caller with a nice value of
/// its own, runs it in place: the child inherits that value, which not every process may lower
/// again.
///
/// Blocks the microprocess until `start` has returned; other microprocesses continue. Not a
/// cancellation point.
pub(super) fn run<T: Send>(start: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let is_microprocess = park::is_microprocess();
    blocking(|| match is_microprocess.then(spawner).flatten() {
        Some(spawner) if nice() == spawner.nice => spawner.run(start),
        _ => start(),
    })
}

struct Spawner {
    jobs: Sender<Job>,
    process: u32,
    nice: i32,
}

/// The spawner, which the first call starts. `None` if no kernel thread can be started, and in a
/// forked child, which lacks it.
fn spawner() -> Option<&'static Spawner> {
    static SPAWNER: OnceLock<Option<Spawner>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, next) = channel::<Job>();
        let (tells, nice) = channel();
        let thread = std::thread::Builder::new().name("kumi-spawn".into()).spawn(move || {
            // Of the first caller. From here on each job brings its own.
            let _ = set_mask(&all_signals());
            let _ = tells.send(self::nice());
            next.iter().for_each(|job| job());
        });
        thread.ok()?;
        Some(Spawner { jobs, process: std::process::id(), nice: nice.recv().ok()? })
    });
    spawner.as_ref().filter(|spawner| spawner.process == std::process::id())
}

impl Spawner {
    /// Blocks the kernel thread until `start` has returned there.
    fn run<T: Send>(&self, start: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let mask = mask();
        let (done, outcome) = channel();
        let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
            let before = set_mask(&mask);
            let started = start();
            let _ = set_mask(&before);
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

/// The nice value of the calling kernel thread.
fn nice() -> i32 {
    // SAFETY: takes integers. -1 is a value, too; no error is possible for the caller itself.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

fn all_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: fills the set.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// The signal mask of the calling kernel thread.
fn mask() -> libc::sigset_t {
    let mut set = all_signals();
    // SAFETY: fills a live set; cannot fail with these arguments (pthread_sigmask(3)).
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut set) };
    set
}

/// Sets the signal mask of the calling kernel thread. Returns the one before.
fn set_mask(mask: &libc::sigset_t) -> libc::sigset_t {
    let mut before = all_signals();
    // SAFETY: two live sets; cannot fail with these arguments.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut before) };
    before
}
