//! `priority`: one process computes on all cores (`side=low`); in the other one of high priority
//! (`side=high`) wakes again and again, and computes for a burst. The same for all but for how one
//! waits and is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Release};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::late::Lateness;
use crate::measure::{CpuClock, sample};
use crate::request::Request;
use crate::work::{Dice, STEP, spin};

/// Wake-ups of a run, of short bursts and of long ones.
const ROUNDS: [usize; 2] = [1_000, 100];
/// From here on a burst is long.
const LONG: Duration = Duration::from_millis(1);
/// Between the end of a burst and the next wake-up, in microseconds: at least, and at most so much
/// more.
const PAUSE_US: [u64; 2] = [300, 1_500];

/// Which of the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It computes all the time.
    Low,
    /// It wakes and computes for a burst.
    High,
}

/// What makes the one of high priority ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A kernel thread of its process, on another core, wakes it.
    Thread,
    /// Its deadline.
    Timer,
}

/// What one of the two processes is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which it is.
    pub side: Side,
    /// What makes ready.
    pub by: By,
    /// CPU time of a burst.
    burst: Duration,
    separate: bool,
    rounds: usize,
    waker_core: Option<usize>,
}

impl Plan {
    /// Reads `side`, `by`, `burst` (as in `100us`, `5ms`), `session`, `waker_core`, and `rounds`.
    ///
    /// # Errors
    /// A key that is missing, or has a value that means nothing.
    pub fn of(request: &Request) -> Result<Plan, String> {
        let side = match request.get("side") {
            Some("low") => Side::Low,
            Some("high") => Side::High,
            other => {
                return Err(format!(
                    "side={}: `low` or `high` is wanted",
                    other.unwrap_or_default()
                ));
            }
        };
        let by = match request.get("by").unwrap_or("thread") {
            "thread" => By::Thread,
            "timer" => By::Timer,
            other => return Err(format!("by={other}: `thread` or `timer` is wanted")),
        };
        let separate = match request.get("session").unwrap_or("same") {
            "same" => false,
            "separate" => true,
            other => return Err(format!("session={other}: `same` or `separate` is wanted")),
        };
        let text = request.get("burst").unwrap_or("100us");
        let burst = duration(text)
            .ok_or_else(|| format!("burst={text}: a duration as in 100us or 5ms is wanted"))?;
        let number = |key: &str| match request.get(key).map(str::parse::<usize>) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(format!("{key}: a number is wanted")),
        };
        let rounds = number("rounds")?.unwrap_or(ROUNDS[usize::from(burst >= LONG)]);
        Ok(Plan { side, by, burst, separate, rounds, waker_core: number("waker_core")? })
    }

    /// Makes a session of its own for this process, if that is asked for. Wants to be called before
    /// there is another kernel thread.
    ///
    /// # Errors
    /// Those of setsid(2).
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

/// How the one of high priority waits.
pub trait Waits {
    /// Until somebody wakes it.
    fn park(&self);
    /// Until then.
    fn sleep_until(&self, deadline: Instant);
    /// What another kernel thread calls to end [`park`](Waits::park).
    fn waker(&self) -> Box<dyn Fn() + Send>;
}

/// How late it ran, and when its bursts were done, since it was ready.
#[derive(Clone, Debug, Default)]
pub struct Bursts {
    ready: Lateness,
    done: Lateness,
}

impl Bursts {
    /// All rounds of a plan, run by the caller.
    ///
    /// # Panics
    /// If a kernel thread cannot be made.
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
        // Nobody else of this process computes meanwhile; and a microprocess may change its kernel
        // thread.
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
    /// Nanoseconds after `begun`.
    at: AtomicU64,
    turn: AtomicUsize,
    seen: AtomicUsize,
}

/// A kernel thread that makes the other one ready, once a round, and waits until its burst is done.
/// It ends after the last one.
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

/// The same for everybody, and not in step with the kernel's clock.
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
    fn reads_a_plan_and_refuses_what_means_nothing() {
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
    fn every_round_is_done_after_it_was_ready() {
        for by in ["thread", "timer"] {
            let plan = plan(&format!("side=high burst=100us rounds=5 by={by}")).unwrap();
            let bursts = Bursts::of(&plan, &KernelThread);
            assert_eq!((bursts.ready.len(), bursts.done.len()), (5, 5), "{by}");
            assert!(bursts.done.us(1.0) >= bursts.ready.us(0.0), "{by}");
        }
    }
}
