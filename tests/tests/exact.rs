//! Exact priorities over several VPs: no VP runs something while something higher is runnable anywhere, but for a few steps.
//!
//! Counted in *rounds*, since kernel threads share cores and stop for milliseconds: a round is over when every VP has taken a step. Of a round
//! all that can be said is that nobody took less.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use kumihimo::policy::{Feedback, FixedPriority, Info, Placement, Policy, Priority, RoundRobin, Why};
use kumihimo::runtime::{Capacity, Design, Runtime, Step, Steps};
use kumihimo::thread::{self, Builder, Thread};
use kumihimo_tests::process::{alone, one_to_one};
use kumihimo_tests::{Random, rounds, skip};

const DESIGNS: [Design; 3] = [Design::Ring, Design::Locked, Design::Steal];
const VPS: usize = 3;
/// Rounds for which the highest of all that waits may wait while something lower runs. One is under way when it becomes runnable, in one its
/// VP hands it over, in one it is taken in; what was handed over and met something higher goes on to another VP.
const ROUNDS: u32 = 4;

fn level(n: u64) -> Priority {
    Priority::new(n as u8).expect("0 to 63")
}

/// Levels that have to do with the priority only roughly, and keys.
struct Own;

impl Policy for Own {
    fn name(&self) -> &str {
        "own"
    }
    fn place(&self, info: &Info, why: Why) -> Placement {
        let level = info.effective().get() / 2 + if why == Why::Woken { 7 } else { 0 };
        Placement { level, quantum: Duration::from_micros(200), key: (info.id % 3 == 0).then_some(info.now_ns) }
    }
}

#[derive(Clone, Copy, Default)]
struct Wait {
    level: u8,
    /// Rounds with something lower running; and while it was the highest; and who has taken a step of the round that is not over.
    inverted: (u32, usize),
    highest: (u32, usize),
}

/// The longest inversions of a log, in rounds: of the highest that waits, of any; and how many there were.
fn inversions(steps: &[Step]) -> (u32, u32, usize) {
    let mut waits: HashMap<u64, Wait> = HashMap::new();
    let mut running = [None; VPS];
    let (mut worst, mut worst_of_any, mut count) = (0, 0, 0);
    for step in steps {
        let stepped = match *step {
            Step::Ready(id, level) => {
                waits.entry(id).or_default().level = level;
                None
            }
            Step::Runs(vp, id, level) => {
                waits.remove(&id);
                running[vp] = Some(level);
                Some(vp)
            }
            Step::Idles(vp) => {
                running[vp] = None;
                Some(vp)
            }
        };
        let lowest = running.iter().flatten().min().copied().unwrap_or(u8::MAX);
        let highest = waits.values().map(|wait| wait.level).max().unwrap_or(0);
        for wait in waits.values_mut() {
            let mut count_round = |of: &mut (u32, usize), goes_on: bool| {
                if !goes_on {
                    *of = (0, 0);
                } else if let Some(vp) = stepped {
                    of.1 |= 1 << vp;
                    if of.1 == (1 << VPS) - 1 {
                        *of = (of.0 + 1, 0);
                        count += 1;
                    }
                }
                of.0
            };
            let inverted = wait.level > lowest;
            worst_of_any = worst_of_any.max(count_round(&mut wait.inverted, inverted));
            worst = worst.max(count_round(&mut wait.highest, inverted && wait.level == highest));
        }
    }
    (worst, worst_of_any, count)
}

/// What microprocesses do to each other.
fn actor(mut random: Random, peers: Arc<Vec<std::sync::OnceLock<Thread>>>, sink: Arc<AtomicU64>) {
    for _ in 0..150 {
        let chosen = random.below(peers.len() as u64) as usize;
        let peer = || peers[chosen].get();
        match random.below(12) {
            0..=3 => thread::yield_now(),
            4 => thread::park_timeout(Duration::from_micros(random.below(100))),
            5 | 6 => {
                if let Some(peer) = peer() {
                    peer.unpark();
                }
            }
            7 => thread::current().set_priority(level(random.below(8) * 8)),
            8 => {
                if let Some(peer) = peer() {
                    peer.set_priority(level(random.below(8) * 8));
                }
            }
            9 => {
                let sink = sink.clone();
                let child = Builder::new().priority(level(random.below(8) * 8));
                let child = child.spawn(move || sink.fetch_add(1, SeqCst)).expect("it begins");
                child.join().expect("no panic");
            }
            _ => {
                for n in 0..random.below(3000) {
                    black_box(n);
                }
                thread::cancellation_point();
            }
        }
    }
}

fn load(random: &mut Random, design: Design, policy: Box<dyn Policy>, capacity: Capacity) -> Option<Vec<Step>> {
    let log = Arc::new(Steps::new(1 << 18));
    let runtime = Runtime::builder().vps(VPS).queue(design).policy(policy).capacity(capacity).steps(log.clone());
    let mut random = random.split();
    let scheduled = runtime.build().expect("a runtime").run(move || {
        let sink = Arc::new(AtomicU64::new(0));
        let peers: Arc<Vec<_>> = Arc::new((0..40).map(|_| std::sync::OnceLock::new()).collect());
        let all: Vec<_> = (0..peers.len())
            .map(|i| {
                let (random, its, sink) = (random.split(), peers.clone(), sink.clone());
                let actor = Builder::new().priority(level(i as u64 % 8 * 8)).spawn(move || actor(random, its, sink));
                let actor = actor.expect("it begins");
                peers[i].set(actor.thread().clone()).expect("set once");
                actor
            })
            .collect();
        for actor in all {
            actor.join().expect("no panic");
        }
        !one_to_one()
    });
    scheduled.then(|| log.read())
}

#[test]
fn what_outranks_a_running_one_waits_for_a_few_steps_at_most() {
    const NAME: &str = "what_outranks_a_running_one_waits_for_a_few_steps_at_most";
    alone(NAME, || {
        for mut round in rounds(NAME) {
            for design in DESIGNS {
                let policies: [Box<dyn Policy>; 4] =
                    [Box::new(FixedPriority), Box::new(RoundRobin::new()), Box::new(Feedback::new()), Box::new(Own)];
                for policy in policies {
                    let name = policy.name().to_owned();
                    let capacity = if round.random.one_in(2) { Capacity::default() } else { Capacity::Fixed(4) };
                    let Some(steps) = load(&mut round.random, design, policy, capacity) else {
                        return skip(NAME, "the kernel schedules there");
                    };
                    let (worst, worst_of_any, count) = inversions(&steps);
                    eprintln!("{design:?} {name}: {} steps, worst {worst} of any {worst_of_any}, {count} rounds", steps.len());
                    assert!(steps.len() > 1000, "{design:?} {name}: {} steps", steps.len());
                    assert!(worst <= ROUNDS, "{design:?} {name}: {worst} rounds");
                }
            }
        }
    });
}
