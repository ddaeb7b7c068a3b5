//! `events part=preempts`: from the cause until the other microprocess runs, beside one that
//! computes and calls nothing. All on one core.
//!
//! What interferes is a kernel thread: no other microprocess runs where the only VP is held. When
//! it has given the core up, the one that loops must be interrupted, and the other one must run.
//! `floor` is the same with bare signals: `tgkill` until the handler is entered.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::time::Duration;

use kumihimo::runtime;
use kumihimo::thread::{self, Priority};
use kumihimo_bench_kit::work::spin;
use kumihimo_bench_kit::{Lateness, Request, sample};
use kumihimo_bench_stall::now_ns;

use crate::variant::Variant;

/// Preemptions of each kind.
const ROUNDS: usize = 2_000;
/// Before each: the core is the looping one's.
const PAUSE: Duration = Duration::from_micros(300);
/// Rounds of [`spin`] between two looks at whether it is over: some microseconds.
const CHUNK: u32 = 1_000;
/// Levels of those that wait, as seen from the one that loops.
const ABOVE: i8 = 8;

/// One that computes until it is over, and calls nothing meanwhile.
#[derive(Debug, Default)]
pub struct Looping {
    over: AtomicBool,
    chunks: AtomicU64,
}

impl Looping {
    /// Returns how many chunks came out right.
    pub fn run(&self) -> u64 {
        let right = spin(1, CHUNK);
        let mut n = 0;
        while !self.over.load(Relaxed) {
            n += u64::from(spin(black_box(1), CHUNK) == right);
            self.chunks.store(self.chunks.load(Relaxed) + 1, Relaxed);
        }
        n
    }

    /// It ends soon, if it runs.
    pub fn end(&self) {
        self.over.store(true, Relaxed);
    }

    /// How many it has computed, right or wrong.
    pub fn chunks(&self) -> u64 {
        self.chunks.load(Relaxed)
    }

    /// Blocks the kernel thread until it has gone on since it had computed `chunks`.
    fn await_progress(&self, chunks: u64) {
        loop {
            std::thread::sleep(PAUSE);
            if self.chunks() > chunks {
                return;
            }
        }
    }
}

/// What both sides of a round know.
#[derive(Debug, Default)]
struct Round {
    /// When the cause came.
    at: AtomicU64,
    /// Which one was caused, and which one was seen.
    caused: AtomicUsize,
    seen: AtomicUsize,
    looping: Looping,
}

impl Round {
    /// By a kernel thread: `cause` for each of `rounds`, while the looping one runs.
    fn cause(&self, rounds: usize, cause: impl Fn()) {
        for n in 1..=rounds {
            self.looping.await_progress(self.looping.chunks());
            self.caused.store(n, Release);
            self.at.store(now_ns(), Release);
            cause();
            while self.seen.load(Acquire) < n {
                // Off the core: no interruption is seen where the looping one does not run.
                std::thread::park();
            }
        }
    }

    /// By the one that is to run: whether this is round `n`. Then it took as long as that.
    fn is_caused(&self, n: usize) -> Option<Duration> {
        let now = now_ns();
        (self.caused.load(Acquire) >= n)
            .then(|| Duration::from_nanos(now.saturating_sub(self.at.load(Acquire))))
    }

    fn see(&self, n: usize, other: &std::thread::Thread) {
        self.seen.store(n, Release);
        other.unpark();
    }
}

/// How microprocesses are preempted.
///
/// # Panics
/// If they are not: an endless computation would never be interrupted, and the benchmark not end.
pub fn means() -> String {
    let means = runtime::metrics().expect("a runtime runs").preemption;
    assert_ne!(means, "off", "nobody would be preempted");
    means
}

pub fn preempts(request: &Request) {
    let source = request.get("events").unwrap_or("off");
    let rounds = request.value("rounds", ROUNDS);
    let variant = Variant::of(request);
    let now = || runtime::metrics().expect("a runtime runs");
    let means = means().replace('=', "-");
    for (metric, measure) in
        [("preempted", ready as fn(Variant, usize) -> Lateness), ("changed", outranked)]
    {
        let before = now();
        let late = measure(variant, rounds);
        let after = now();
        assert_eq!(late.len(), rounds as u64, "one for each cause");
        let keys = format!(
            "events={source} means:={means} injected:={} stood_aside:={} p99:={:.1} least:={:.1}",
            after.preempted - before.preempted,
            after.stood_aside - before.stood_aside,
            late.us(0.99),
            late.us(0.0),
        );
        sample(metric, late.us(0.5), "us", &keys);
    }
    // Nothing of the runtime runs meanwhile.
    let late = thread::blocking(|| floor(rounds));
    let keys = format!(
        "events={source} p99:={:.1} least:={:.1} runtime=floor",
        late.us(0.99),
        late.us(0.0)
    );
    sample("preempted", late.us(0.5), "us", &keys);
}

/// One of higher priority waits; a kernel thread wakes it.
fn ready(variant: Variant, rounds: usize) -> Lateness {
    measure(variant, variant.above(ABOVE), rounds, |waiting| waiting.unpark(), || {}, thread::park)
}

/// One of lower priority is runnable, behind the one that loops; a kernel thread raises it. When it
/// has run it steps back behind that one.
fn outranked(variant: Variant, rounds: usize) -> Lateness {
    let level = |by: i8| {
        Priority::new(Priority::DEFAULT.get().saturating_add_signed(by)).expect("a priority")
    };
    let (high, low) = (level(ABOVE), level(-ABOVE));
    let step_back = move || thread::current().set_priority(low);
    // It begins above the one that loops, which so goes on only when it has stepped back: else the
    // first cause could come before that, and be undone. (To set one's own priority is a switch
    // point: it returns when this one is raised.)
    measure(
        variant,
        variant.above(ABOVE),
        rounds,
        move |queued| queued.set_priority(high),
        step_back,
        thread::yield_now,
    )
}

fn measure(
    looper: Variant,
    other: Variant,
    rounds: usize,
    cause: impl Fn(&thread::Thread) + Send + 'static,
    step_back: impl Fn() + Send + 'static,
    wait: impl Fn() + Send + 'static,
) -> Lateness {
    let round = Arc::new(Round::default());
    let shared = round.clone();
    let (send, receive) = std::sync::mpsc::channel::<thread::Thread>();
    let causing = round.clone();
    let kernel_thread = std::thread::spawn(move || {
        let one = receive.recv().expect("the one that waits");
        causing.cause(rounds, || cause(&one));
    });
    let back = kernel_thread.thread().clone();
    let waiting = other.spawn(move || {
        let mut late = Lateness::default();
        for n in 1..=rounds {
            let took = loop {
                step_back();
                if let Some(took) = shared.is_caused(n) {
                    break took;
                }
                wait();
                if let Some(took) = shared.is_caused(n) {
                    break took;
                }
            };
            late.record(took);
            shared.see(n, &back);
        }
        late
    });
    let one = waiting.thread().clone();
    let shared = round.clone();
    let looping = looper.spawn(move || (shared.looping.run(), shared.looping.chunks()));
    send.send(one).expect("it listens");
    let late = waiting.join().expect("no panic");
    kernel_thread.join().expect("no panic");
    round.looping.end();
    let (right, all) = looping.join().expect("no panic");
    assert!(all > 0 && right == all, "{right} of {all} chunks are right");
    late
}

/// When the handler of [`floor`] was entered, and how often.
static ENTERED: AtomicU64 = AtomicU64::new(0);
static TIMES: AtomicUsize = AtomicUsize::new(0);

extern "C" fn entered(_: libc::c_int) {
    ENTERED.store(now_ns(), Relaxed);
    TIMES.store(TIMES.load(Relaxed) + 1, Release);
}

/// A kernel thread loops; another one signals it and sleeps. The same core.
fn floor(rounds: usize) -> Lateness {
    const SIGNAL: libc::c_int = libc::SIGUSR1;
    // SAFETY: all zero is a valid action; the handler touches atomics and the vDSO's clock only.
    // SIGUSR1 is nobody else's in this process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = entered as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()), 0);
    }
    let looping = Arc::new(Looping::default());
    let (send, receive) = std::sync::mpsc::channel();
    let shared = looping.clone();
    let looper = std::thread::spawn(move || {
        // SAFETY: a live set; no more than this thread's mask changes, which may have been
        // inherited.
        let tid = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut set, SIGNAL);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
            libc::gettid()
        };
        send.send(tid).expect("it is awaited");
        (shared.run(), shared.chunks())
    });
    let tid = receive.recv().expect("it tells its id");
    let mut late = Lateness::default();
    for n in 1..=rounds {
        looping.await_progress(looping.chunks());
        let at = now_ns();
        // SAFETY: integers; the thread has not been joined.
        let done = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, SIGNAL) };
        assert_eq!(done, 0, "tgkill: {}", std::io::Error::last_os_error());
        while TIMES.load(Acquire) < n {
            std::thread::sleep(Duration::from_micros(50));
        }
        late.record(Duration::from_nanos(ENTERED.load(Relaxed).saturating_sub(at)));
    }
    looping.end();
    let (right, all) = looper.join().expect("no panic");
    assert!(all > 0 && right == all, "{right} of {all} chunks are right");
    late
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_loops_goes_on_until_it_is_told() {
        let looping = Arc::new(Looping::default());
        let other = looping.clone();
        let one = std::thread::spawn(move || other.run());
        looping.await_progress(0);
        looping.end();
        let right = one.join().expect("no panic");
        assert!(right > 0 && right == looping.chunks());
    }

    #[test]
    fn a_cause_is_seen_after_it_came() {
        let round = Round::default();
        assert_eq!(round.is_caused(1), None);
        round.at.store(now_ns(), Release);
        round.caused.store(1, Release);
        assert!(round.is_caused(1).expect("caused") < Duration::from_secs(60));
        assert_eq!(round.is_caused(2), None);
    }

    #[test]
    fn every_signal_of_the_floor_is_handled() {
        assert_eq!(floor(5).len(), 5);
    }
}
