//! Exact priorities over several VPs: no VP runs something while something higher is runnable anywhere, but for a few steps.
//!
//! Counted are the steps of the VP that has to end the inversion, and no others': kernel threads share cores and stop for milliseconds.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use kumihimo::policy::{Feedback, FixedPriority, Info, Placement, Policy, Priority, RoundRobin, Why};
use kumihimo::runtime::{Capacity, Design, Runtime, Step, Steps, What};
use kumihimo::thread::{self, Builder, Thread};
use kumihimo_tests::process::{alone, one_to_one};
use kumihimo_tests::{Random, rounds, skip};

const DESIGNS: [Design; 3] = [Design::Ring, Design::Locked, Design::Steal];
const VPS: usize = 3;
/// Steps of one VP for which it may keep what it has to hand over, or not yet run what was sent to it: one that is under way, and has looked
/// already, and the one in which it finds out.
const STEPS: u32 = 2;

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

/// What a log says of a VP.
#[derive(Clone, Default)]
struct Vp {
    /// As the runtime shows levels: one more, 0 is none.
    runs: u64,
    waits: u64,
    /// What was sent to it, and it runs nothing as high yet: its id, its mark, whether it is in, and how many steps it has waited since.
    sent: Vec<(u16, u64, bool, u32)>,
    /// Steps in a row that it took with something waiting that outranks what another VP runs, although it was asked for that or has the
    /// highest of all; and with something lower than what was sent to it.
    kept: u32,
}

impl Vp {
    fn highest_sent(&self) -> u64 {
        self.sent.iter().map(|(_, mark, ..)| *mark).max().unwrap_or(0)
    }
}

/// The longest inversions of a log, in steps of the VP that had to end them: those of one that kept what it had to hand over, and those of one
/// that did not take in what was sent to it. And how many steps there were at all with something waiting that outranked what another VP ran.
fn inversions(steps: &[Step]) -> (u32, u32, u32) {
    let mut vps: [Vp; VPS] = Default::default();
    let (mut kept, mut missed, mut count) = (0, 0, 0);
    for &Step { vp, what } in steps {
        match what {
            What::Sent { id, level } => {
                vps.iter_mut().for_each(|vp| vp.sent.retain(|(other, ..)| *other != id));
                vps[vp].sent.push((id, u64::from(level) + 1, false, 0));
            }
            What::Put { id } => {
                if let Some(sent) = vps[vp].sent.iter_mut().find(|(other, ..)| *other == id) {
                    sent.2 = true;
                }
            }
            What::Idles => vps[vp] = Vp { sent: std::mem::take(&mut vps[vp].sent), ..Vp::default() },
            What::Runs { level, waits, asked } => {
                let others = || vps.iter().enumerate().filter(|(i, _)| *i != vp).map(|(_, other)| other);
                let lowest = others().filter(|other| other.runs != 0).map(|other| other.runs.max(other.highest_sent())).min();
                let outranks = lowest.is_some_and(|lowest| lowest < waits);
                let highest = others().all(|other| other.waits.max(other.highest_sent()) < waits);
                let me = &mut vps[vp];
                (me.runs, me.waits) = (u64::from(level) + 1, waits);
                count += u32::from(outranks);
                me.kept = if outranks && (asked || highest) { me.kept + 1 } else { 0 };
                me.sent.retain(|(_, mark, ..)| *mark > me.runs);
                for (_, _, is_in, steps) in &mut me.sent {
                    *steps += u32::from(*is_in);
                    missed = missed.max(*steps);
                }
                kept = kept.max(me.kept);
            }
        }
    }
    (kept, missed, count)
}

fn compute(turns: u64) {
    for n in 0..turns {
        black_box(n);
    }
}

/// What microprocesses do to each other.
fn actor(mut random: Random, peers: Arc<Vec<std::sync::OnceLock<Thread>>>, sink: Arc<AtomicU64>) {
    for _ in 0..150 {
        let chosen = random.below(peers.len() as u64) as usize;
        let peer = || peers[chosen].get();
        match random.below(11) {
            0..=3 => thread::yield_now(),
            4 => thread::park_timeout(Duration::from_micros(random.below(100))),
            5 | 6 => {
                if let Some(peer) = peer() {
                    peer.unpark();
                }
            }
            7 => thread::current().set_priority(level(1 + random.below(8) * 7)),
            8 => {
                let sink = sink.clone();
                let child = Builder::new().priority(level(1 + random.below(8) * 7));
                let child = child.spawn(move || sink.fetch_add(1, SeqCst)).expect("it begins");
                child.join().expect("no panic");
            }
            _ => {
                compute(random.below(10_000));
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
        // So that no VP idles: one that sleeps takes no steps.
        let over = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..3 * VPS)
            .map(|_| {
                let over = over.clone();
                let hog = move || {
                    while !over.load(SeqCst) {
                        compute(500);
                        thread::yield_now();
                    }
                };
                Builder::new().priority(level(0)).spawn(hog).expect("it begins")
            })
            .collect();
        let peers: Arc<Vec<_>> = Arc::new((0..40).map(|_| std::sync::OnceLock::new()).collect());
        let all: Vec<_> = (0..peers.len())
            .map(|i| {
                let (random, its, sink) = (random.split(), peers.clone(), sink.clone());
                let actor = Builder::new().priority(level(1 + i as u64 % 8 * 7)).spawn(move || actor(random, its, sink));
                let actor = actor.expect("it begins");
                peers[i].set(actor.thread().clone()).expect("set once");
                actor
            })
            .collect();
        for actor in all {
            actor.join().expect("no panic");
        }
        over.store(true, SeqCst);
        for hog in hogs {
            hog.join().expect("no panic");
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
                    let (kept, missed, count) = inversions(&steps);
                    eprintln!("{design:?} {name}: {} steps, kept {kept}, missed {missed}, {count} inverted", steps.len());
                    assert!(steps.len() > 1000, "{design:?} {name}: {} steps", steps.len());
                    assert!(kept <= STEPS && missed <= STEPS, "{design:?} {name}: kept for {kept}, missed for {missed}");
                }
            }
        }
    });
}
