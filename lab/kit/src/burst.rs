//! `priority`: one process computes on all cores (`side=low`). In the other process, a thread of
//! high priority (`side=high`) wakes repeatedly and computes for a burst. Contenders differ only in
//! how the thread waits and is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Release};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::late::Lateness;
use crate::measure::{CpuClock, sample};
use crate::request::Request;
use crate::work::{Dice, STEP, spin};

/// Number of wake-ups in a run, for short bursts and for long ones.
const ROUNDS: [usize; 2] = [1_000, 100];
/// Bursts from this length on are long.
const LONG: Duration = Duration::from_millis(1);
/// Pause between the end of a burst and the next wake-up, in microseconds: the minimum, and the
/// maximum addition to it.
const PAUSE_US: [u64; 2] = [300, 1_500];

/// Role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Computes all the time.
    Low,
    /// Wakes and computes for a burst.
    High,
}

/// Event that wakes the thread of high priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A wake-up by a kernel thread of the same process on another core.
    Thread,
    /// The expiry of its deadline.
    Timer,
}

/// Parameters of one of the two processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Role of the process.
    pub side: Side,
    /// Event that wakes the thread.
    pub by: By,
    /// CPU time of a burst.
    burst: Duration,
    separate: bool,
    rounds: usize,
    waker_core: Option<usize>,
}

impl Plan {
    /// Parses `side`, `by`, `burst` (for example `100us`, `5ms`), `session`, `waker_core`, and
    /// `rounds`.
    ///
    /// # Errors
    /// If a key is missing or has an invalid value.
    pub fn of(request: &Request) -> Result<Plan, String> {
        let side = match request.get("side") {
            Some("low") => Side::Low,
            Some("high") => Side::High,
            other => {
                return Err(format!(
                    "side={}: expected `low` or `high`",
                    other.unwrap_or_default()
                ));
            }
        };
        let by = match request.get("by").unwrap_or("thread") {
            "thread" => By::Thread,
            "timer" => By::Timer,
            other => return Err(format!("by={other}: expected `thread` or `timer`")),
        };
        let separate = match request.get("session").unwrap_or("same") {
            "same" => false,
            "separate" => true,
            other => return Err(format!("session={other}: expected `same` or `separate`")),
        };
        let text = request.get("burst").unwrap_or("100us");
        let burst = duration(text).ok_or_else(|| {
            format!("burst={text}: expected a duration, for example 100us or 5ms")
        })?;
        let number = |key: &str| match request.get(key).map(str::parse::<usize>) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(format!("{key}: expected a number")),
        };
        let rounds = number("rounds")?.unwrap_or(ROUNDS[usize::from(burst >= LONG)]);
        Ok(Plan { side, by, burst, separate, rounds, waker_core: number("waker_core")? })
    }

    /// Makes this process a session leader if requested. Must be called before other kernel threads
    /// exist.
    ///
    /// # Errors
    /// As setsid(2).
    pub fn enter_session(&self) -> Result<(), String> {
        match self.separate {
            true => rustix::process::setsid().map(|_| ()).map_err(|e| format!("setsid: {e}")),
            false => Ok(()),
        }
    }
}

fn duration(text: &str) -> Option<Duration> {
    let of = |unit: &str| text.strip_suffix(unit)?.parse().ok();
    of("us").map(Duration::from_micros).or_else(|| of("ms").map(Duration::from_millis))
}

/// Ways in which the thread of high priority waits.
pub trait Waits {
    /// Waits for a wake-up.
    fn park(&self);
    /// Waits for the deadline.
    fn sleep_until(&self, deadline: Instant);
    /// Returns a function that ends [`park`](Waits::park), to be called by another kernel thread.
    fn waker(&self) -> Box<dyn Fn() + Send>;
}

/// Delays from readiness to the start and to the end of each burst.
#[derive(Clone, Debug, Default)]
pub struct Bursts {
    ready: Lateness,
    done: Lateness,
}

impl Bursts {
    /// Runs all rounds of a plan on the calling thread.
    ///
    /// # Panics
    /// If a kernel thread cannot be created.
    #[must_use]
    pub fn of(plan: &Plan, one: &impl Waits) -> Bursts {
        let mut bursts = Bursts::default();
        match plan.by {
            By::Timer => {
                let mut pauses = Pauses::new();
                for _ in 0..plan.rounds {
                    let due = Instant::now() + pauses.draw();
                    one.sleep_until(due);
                    bursts.run(plan, due);
                }
            }
            By::Thread => {
                let shared = Arc::new(Shared {
                    begun: Instant::now(),
                    at: AtomicU64::new(0),
                    turn: AtomicUsize::new(0),
                    seen: AtomicUsize::new(0),
                });
                let waker = wake(plan.clone(), shared.clone(), one.waker());
                for turn in 1..=plan.rounds {
                    while shared.turn.load(Acquire) < turn {
                        one.park();
                    }
                    let due = shared.begun + Duration::from_nanos(shared.at.load(Acquire));
                    bursts.run(plan, due);
                    shared.seen.store(turn, Release);
                    waker.unpark();
                }
            }
        }
        bursts
    }

    fn run(&mut self, plan: &Plan, due: Instant) {
        self.ready.record(due.elapsed());
        // The process's CPU clock: no other thread of the process computes meanwhile, and a
        // microprocess may move to another kernel thread.
        let clock = CpuClock::now();
        while clock.elapsed() < plan.burst {
            std::hint::black_box(spin(1, STEP));
        }
        self.done.record(due.elapsed());
    }

    /// Prints both samples.
    pub fn say(&self) {
        let note = |late: &Lateness, q| late.us(q);
        sample(
            "ready_p99",
            self.ready.us(0.99),
            "us",
            &format!("p50:={:.1}", note(&self.ready, 0.5)),
        );
        sample("done_p50", self.done.us(0.5), "us", &format!("p99:={:.1}", note(&self.done, 0.99)));
    }
}

struct Shared {
    begun: Instant,
    /// Time of readiness in nanoseconds after `begun`.
    at: AtomicU64,
    turn: AtomicUsize,
    seen: AtomicUsize,
}

/// Starts a kernel thread that wakes the other one once a round, and waits for the end of its
/// burst. The thread ends after the last round.
fn wake(plan: Plan, shared: Arc<Shared>, waker: Box<dyn Fn() + Send>) -> thread::Thread {
    let handle = thread::spawn(move || {
        if let Some(core) = plan.waker_core {
            let mut set = CpuSet::new();
            set.set(core);
            sched_setaffinity(None, &set).expect("a core of this machine");
        }
        let mut pauses = Pauses::new();
        for turn in 1..=plan.rounds {
            thread::sleep(pauses.draw());
            shared.at.store(shared.begun.elapsed().as_nanos() as u64, Release);
            shared.turn.store(turn, Release);
            waker();
            while shared.seen.load(Acquire) < turn {
                thread::park();
            }
        }
    });
    handle.thread().clone()
}

/// Pauses that are the same for all contenders and not synchronous with the kernel's clock.
struct Pauses(Dice);

impl Pauses {
    fn new() -> Pauses {
        Pauses(Dice::new(1))
    }

    fn draw(&mut self) -> Duration {
        Duration::from_micros(PAUSE_US[0] + self.0.below(PAUSE_US[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        let line = format!("priority {line}");
        Plan::of(&Request::parse(line.split_whitespace().map(str::to_owned)).expect("a request"))
    }

    #[test]
    fn valid_plan_is_parsed_and_invalid_ones_are_refused() {
        let read = plan("side=high burst=5ms session=separate by=timer").unwrap();
        assert_eq!(
            (read.side, read.by, read.burst, read.separate),
            (Side::High, By::Timer, Duration::from_millis(5), true)
        );
        assert_eq!((read.rounds, plan("side=low").unwrap().rounds), (100, 1_000));
        for line in [
            "",
            "side=middle",
            "side=low by=luck",
            "side=low session=mine",
            "side=low burst=5",
            "side=low burst=xms",
            "side=high rounds=few",
            "side=high waker_core=last",
        ] {
            assert!(plan(line).is_err(), "{line}");
        }
    }

    struct KernelThread;

    impl Waits for KernelThread {
        fn park(&self) {
            thread::park();
        }
        fn sleep_until(&self, deadline: Instant) {
            thread::sleep(deadline.saturating_duration_since(Instant::now()));
        }
        fn waker(&self) -> Box<dyn Fn() + Send> {
            let one = thread::current();
            Box::new(move || one.unpark())
        }
    }

    #[test]
    fn every_round_ends_after_it_was_ready() {
        for by in ["thread", "timer"] {
            let plan = plan(&format!("side=high burst=100us rounds=5 by={by}")).unwrap();
            let bursts = Bursts::of(&plan, &KernelThread);
            assert_eq!((bursts.ready.len(), bursts.done.len()), (5, 5), "{by}");
            assert!(bursts.done.us(1.0) >= bursts.ready.us(0.0), "{by}");
        }
    }
}
