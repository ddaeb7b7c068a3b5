//! `events part=preempts`: time from a cause until another microprocess runs, while a microprocess
//! computes without calls. Everything runs on one core.
//!
//! A kernel thread causes the preemption, because no other microprocess runs while the only VP is
//! occupied. After the kernel thread has left the core, the looping microprocess must be
//! interrupted, and the other one must run. `floor` is the same with plain signals: from `tgkill`
//! until the handler is entered.

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

/// Number of preemptions of each kind.
const ROUNDS: usize = 2_000;
/// Pause before each preemption, in which the looping microprocess has the core.
const PAUSE: Duration = Duration::from_micros(300);
/// Rounds of [`spin`] between two checks of the end: some microseconds.
const CHUNK: u32 = 1_000;
/// Level of the waiting microprocesses, relative to the looping one.
const ABOVE: i8 = 8;

/// Code that computes until it is ended, without calls.
#[derive(Debug, Default)]
pub struct Looping {
    over: AtomicBool,
    chunks: AtomicU64,
}

impl Looping {
    /// Returns the number of correct chunks.
    pub fn run(&self) -> u64 {
        let right = spin(1, CHUNK);
        let mut n = 0;
        while !self.over.load(Relaxed) {
            n += u64::from(spin(black_box(1), CHUNK) == right);
            self.chunks.store(self.chunks.load(Relaxed) + 1, Relaxed);
        }
        n
    }

    /// Makes the loop end soon, if it runs.
    pub fn end(&self) {
        self.over.store(true, Relaxed);
    }

    /// Number of computed chunks, correct or not.
    pub fn chunks(&self) -> u64 {
        self.chunks.load(Relaxed)
    }

    /// Blocks the kernel thread until the loop has computed more than `chunks`.
    fn await_progress(&self, chunks: u64) {
        loop {
            std::thread::sleep(PAUSE);
            if self.chunks() > chunks {
                return;
            }
        }
    }
}

/// State shared by both sides of a round.
#[derive(Debug, Default)]
struct Round {
    /// Time of the cause.
    at: AtomicU64,
    /// Number of the last cause, and of the last one that was observed.
    caused: AtomicUsize,
    seen: AtomicUsize,
    looping: Looping,
}

impl Round {
    /// Called by a kernel thread: runs `cause` in each of `rounds`, while the loop runs.
    fn cause(&self, rounds: usize, cause: impl Fn()) {
        for n in 1..=rounds {
            self.looping.await_progress(self.looping.chunks());
            self.caused.store(n, Release);
            self.at.store(now_ns(), Release);
            cause();
            while self.seen.load(Acquire) < n {
                // Leave the core, because the loop is interrupted only while it runs.
                std::thread::park();
            }
        }
    }

    /// Called by the microprocess that is to run: returns the delay if this is round `n`.
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

/// Mechanism by which microprocesses are preempted.
///
/// # Panics
/// If there is none: an endless computation would never be interrupted, and the benchmark would not
/// end.
pub fn means() -> String {
    let means = runtime::metrics().expect("a runtime runs").preemption;
    assert_ne!(means, "off", "preemption is required");
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

/// A microprocess of higher priority waits; a kernel thread wakes it.
fn ready(variant: Variant, rounds: usize) -> Lateness {
    measure(variant, variant.above(ABOVE), rounds, |waiting| waiting.unpark(), || {}, thread::park)
}

/// A microprocess of lower priority is runnable behind the looping one; a kernel thread raises its
/// priority. After it has run, it lowers its priority again.
fn outranked(variant: Variant, rounds: usize) -> Lateness {
    let level = |by: i8| {
        Priority::new(Priority::DEFAULT.get().saturating_add_signed(by)).expect("a priority")
    };
    let (high, low) = (level(ABOVE), level(-ABOVE));
    let step_back = move || thread::current().set_priority(low);
    // The microprocess starts above the looping one, which therefore continues only after the first
    // lowering. Otherwise the first cause could precede that lowering and be undone by it. (Setting
    // one's own priority is a switch point: it returns when the priority is raised.)
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
        let one = receive.recv().expect("the waiting thread");
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
    send.send(one).expect("a listening socket");
    let late = waiting.join().expect("no panic");
    kernel_thread.join().expect("no panic");
    round.looping.end();
    let (right, all) = looping.join().expect("no panic");
    assert!(all > 0 && right == all, "{right} of {all} chunks are right");
    late
}

/// Time at which the handler of [`floor`] was entered, and number of entries.
static ENTERED: AtomicU64 = AtomicU64::new(0);
static TIMES: AtomicUsize = AtomicUsize::new(0);

extern "C" fn entered(_: libc::c_int) {
    ENTERED.store(now_ns(), Relaxed);
    TIMES.store(TIMES.load(Relaxed) + 1, Release);
}

/// One kernel thread loops; another one signals it and sleeps. On the same core.
fn floor(rounds: usize) -> Lateness {
    const SIGNAL: libc::c_int = libc::SIGUSR1;
    // SAFETY: an all-zero action is valid; the handler accesses only atomics and the vDSO's clock.
    // No other code in this process uses SIGUSR1.
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
        // SAFETY: a live set; only this thread's mask changes, which may have been inherited.
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
    fn loop_runs_until_it_is_ended() {
        let looping = Arc::new(Looping::default());
        let other = looping.clone();
        let one = std::thread::spawn(move || other.run());
        looping.await_progress(0);
        looping.end();
        let right = one.join().expect("no panic");
        assert!(right > 0 && right == looping.chunks());
    }

    #[test]
    fn cause_is_visible_after_it_is_stored() {
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
