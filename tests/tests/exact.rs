//! Exact priorities over several VPs: no VP runs a microprocess while one of higher priority is
//! runnable anywhere, except for a few steps.
//!
//! Real runs are traced, and the trace's checker counts the exceptions: see
//! crates/trace/src/check/priority_order.rs.

#[path = "exact/storm.rs"]
mod storm;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use kumihimo::policy::{
    Feedback, FixedPriority, Info, Placement, Policy, Priority, RoundRobin, Why,
};
use kumihimo::runtime::{Capacity, Design, Distrust, OnMisbehaviour, Runtime, metrics};
use kumihimo::thread::{self, Builder, Thread};
use kumihimo_tests::process::{alone, has_vps, one_to_one};
use kumihimo_tests::{Random, extent, rounds, skip};
use kumihimo_trace::priority_order::Inversion;
use kumihimo_trace::{Report, Verdict, check};

const DESIGNS: [Design; Design::ALL.len()] = Design::ALL;
const VPS: usize = 3;

fn level(n: u64) -> Priority {
    Priority::new(n as u8).expect("0 to 63")
}

/// A policy whose levels follow the priority only roughly.
struct Own;

impl Policy for Own {
    fn name(&self) -> &str {
        "own"
    }
    fn place(&self, info: &Info, why: Why) -> Placement {
        let level = info.effective().get() / 2 + if why == Why::Woken { 7 } else { 0 };
        Placement {
            level,
            quantum: Duration::from_micros(200),
            key: info.id.is_multiple_of(3).then_some(info.now_ns),
        }
    }
}

fn compute(turns: u64) {
    for n in 0..turns {
        black_box(n);
    }
}

/// A microprocess that acts on its peers at random.
fn actor(mut random: Random, peers: Arc<Vec<std::sync::OnceLock<Thread>>>, sink: Arc<AtomicU64>) {
    for _ in 0..200 {
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
            7 => thread::current().set_priority(level(2 + random.below(8) * 7)),
            8 => {
                let sink = sink.clone();
                let child = Builder::new().priority(level(2 + random.below(8) * 7));
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

/// Runs a random load and returns the checker's report. A faulty trace is kept. Returns `None` if
/// the kernel does the scheduling.
fn load(
    name: &str,
    random: &mut Random,
    design: Design,
    policy: Box<dyn Policy>,
    capacity: Capacity,
) -> Option<Report> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let file = format!("kumi-exact-{}-{}.perfetto", std::process::id(), NEXT.fetch_add(1, SeqCst));
    let path = std::env::temp_dir().join(file);
    let runtime = Runtime::builder().vps(VPS).queue(design).policy(policy).capacity(capacity);
    // A large buffer, so that no record is lost while the writing thread has no core.
    let runtime = runtime.trace(&path).trace_buffer(1 << 19);
    let mut random = random.split();
    let scheduled = runtime.build().expect("a runtime").run(move || {
        let sink = Arc::new(AtomicU64::new(0));
        // Keeps the VPs busy, because an idle VP takes no steps.
        let over = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..VPS)
            .map(|_| {
                let over = over.clone();
                let hog = move || {
                    while !over.load(SeqCst) {
                        // Limits the number of steps, so that the trace contains other records,
                        // too.
                        compute(20_000);
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
                let actor = Builder::new()
                    .priority(level(2 + i as u64 % 8 * 7))
                    .spawn(move || actor(random, its, sink));
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
    let report = scheduled.then(|| check(&path, None).expect("a trace"));
    if let Some(report) = &report {
        assert_eq!(
            (report.lost, report.verdict()),
            (0, Verdict::Holds),
            "{name}: {}: {report}",
            path.display()
        );
        assert!(report.steps > 1000, "{name}: {}: {report}", path.display());
    }
    let _ = std::fs::remove_file(path);
    report
}

#[test]
fn higher_priority_waits_a_few_steps_at_most() {
    const NAME: &str = "higher_priority_waits_a_few_steps_at_most";
    alone(NAME, || {
        for mut round in rounds(NAME) {
            let mut sent = 0;
            for design in DESIGNS {
                let policies: [Box<dyn Policy>; 4] = [
                    Box::new(FixedPriority),
                    Box::new(RoundRobin::new()),
                    Box::new(Feedback::new()),
                    Box::new(Own),
                ];
                for policy in policies {
                    let capacity = if round.random.one_in(2) {
                        Capacity::default()
                    } else {
                        Capacity::Fixed(4)
                    };
                    let name = format!("{design:?} {}", policy.name());
                    let Some(report) = load(&name, &mut round.random, design, policy, capacity)
                    else {
                        return skip(NAME, "the kernel does the scheduling");
                    };
                    sent += report.sent;
                    let longest = |of: Option<Inversion>| of.map_or(0, |inversion| inversion.steps);
                    let (kept, missed) = (longest(report.kept), longest(report.missed));
                    eprintln!(
                        "{name}: {} steps, {} sent, {} inverted, kept {kept}, missed {missed}",
                        report.steps, report.sent, report.inverted
                    );
                }
            }
            assert!(sent > 100, "inversions that had to be ended: {sent}");
        }
    });
}

/// Reads a byte when microprocess `held` is placed because of a wake-up.
///
/// The kernel thread is then blocked inside the scheduler.
struct Waits {
    pipe: std::io::PipeReader,
    held: Arc<AtomicU64>,
}

impl Policy for Waits {
    fn name(&self) -> &str {
        "waits"
    }
    fn place(&self, info: &Info, why: Why) -> Placement {
        if why == Why::Woken && info.id == self.held.load(SeqCst) {
            std::io::Read::read_exact(&mut &self.pipe, &mut [0]).expect("a byte is written");
        }
        Placement { level: info.effective().get(), quantum: Duration::from_millis(5), key: None }
    }
}

/// A VP that the watchdog has overridden receives no microprocess, although it seems to run one of
/// low priority. On a very busy machine, a kernel thread inside the scheduler can wait for the
/// allocator's lock for the watchdog's whole second.
#[test]
fn overridden_vp_causes_no_inversion() {
    const NAME: &str = "overridden_vp_causes_no_inversion";
    alone(NAME, || {
        if !has_vps(NAME) {
            return;
        }
        for design in DESIGNS {
            beside_an_overridden_vp(design);
        }
    });
}

fn beside_an_overridden_vp(design: Design) {
    let path =
        std::env::temp_dir().join(format!("kumi-exact-overridden-{}.perfetto", std::process::id()));
    let (pipe, mut writer) = std::io::pipe().expect("a pipe");
    let held = Arc::new(AtomicU64::new(0));
    let distrust = Distrust { on: OnMisbehaviour::Override, bound: Duration::from_millis(100) };
    let runtime = Runtime::builder()
        .vps(2)
        .queue(design)
        .policy(Waits { pipe, held: held.clone() })
        .on_misbehaviour(distrust);
    let runtime = runtime.trace(&path).trace_buffer(1 << 19).build().expect("a runtime");
    let at = |n| Builder::new().priority(level(n));
    let (over, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let woken = {
        let (over, begun) = (over.clone(), begun.clone());
        let parks = move || {
            begun.fetch_add(1, SeqCst);
            while !over.load(SeqCst) {
                thread::park();
            }
        };
        at(4).spawn(parks).expect("it begins")
    };
    let turns: Arc<[AtomicU64; 2]> = Arc::default();
    let high = [0, 1].map(|n| {
        let (turns, begun) = (turns.clone(), begun.clone());
        let yields = move || {
            begun.fetch_add(1, SeqCst);
            thread::park();
            while turns.iter().any(|turns| turns.load(SeqCst) < 50) {
                turns[n].fetch_add(1, SeqCst);
                thread::yield_now();
            }
        };
        at(30).spawn(yields).expect("it begins")
    });
    // A microprocess that is queued on the VP and has not begun would wait as long as the VP is
    // overridden.
    while begun.load(SeqCst) < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let low = {
        let (over, woken) = (over.clone(), woken.thread().clone());
        let wakes = move || {
            held.store(woken.id().as_u64().get(), SeqCst);
            // Until `parks` has really parked: then this microprocess places it, and keeps running.
            while !over.load(SeqCst) {
                woken.unpark();
                thread::sleep(Duration::from_millis(1));
            }
            woken.unpark();
        };
        at(5).spawn(wakes).expect("it begins")
    };
    while metrics().expect("a runtime runs").overridden == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    for one in &high {
        one.thread().unpark();
    }
    for one in high {
        one.join().expect("no panic");
    }
    over.store(true, SeqCst);
    // More bytes than reads can follow.
    std::io::Write::write_all(&mut writer, &[0; 4096]).expect("a reader");
    low.join().expect("no panic");
    woken.join().expect("no panic");
    drop(runtime);
    let report = check(&path, None).expect("a trace");
    assert_eq!(
        (report.lost, report.verdict()),
        (0, Verdict::Holds),
        "{design:?}: {}: {report}",
        path.display()
    );
    assert!(report.steps > 100, "{design:?}: {}: {report}", path.display());
    let _ = std::fs::remove_file(path);
}

/// Two microprocesses run at the lowest levels and pass switch points frequently. A third one is
/// woken, and must run on one of the two VPs.
#[test]
fn wake_from_outside_outranks_the_lowest() {
    const NAME: &str = "wake_from_outside_outranks_the_lowest";
    alone(NAME, || {
        for design in DESIGNS {
            let runtime = Runtime::builder()
                .vps(2)
                .queue(design)
                .policy(FixedPriority)
                .build()
                .expect("a runtime");
            let scheduled = runtime.run(|| {
                thread::current().set_priority(level(63));
                let (over, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
                let hog = |n| {
                    let (over, turns) = (over.clone(), turns.clone());
                    let hog = move || {
                        while !over.load(SeqCst) {
                            turns.fetch_add(1, SeqCst);
                            thread::cancellation_point();
                        }
                    };
                    Builder::new().priority(level(n)).spawn(hog).expect("it begins")
                };
                // Without exact priorities, all of these stay behind the hogs of their VP, which
                // never end.
                let hogs = [hog(10), hog(20), hog(10), hog(20)];
                // Wait until they have begun.
                while turns.load(SeqCst) == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                for round in 0..50 {
                    let high = Builder::new()
                        .priority(level(30 + round % 3))
                        .spawn(thread::park)
                        .expect("it begins");
                    let thread = high.thread().clone();
                    std::thread::spawn(move || thread.unpark()).join().expect("no panic");
                    high.join().expect("no panic");
                }
                over.store(true, SeqCst);
                for hog in hogs {
                    hog.join().expect("no panic");
                }
                !one_to_one()
            });
            if !scheduled {
                return skip(NAME, "the kernel does the scheduling");
            }
        }
    });
}

/// A microprocess is woken from outside just as its VP switches from the highest level to the
/// lowest, whose microprocess never ends.
#[test]
fn wake_during_a_switch_outranks_the_next_microprocess() {
    const NAME: &str = "wake_during_a_switch_outranks_the_next_microprocess";
    alone(NAME, || {
        // Each delay at least once.
        let wakes: u64 = extent(30_000, 2_100);
        let runtime = Runtime::builder().vps(1).policy(FixedPriority).build().expect("a runtime");
        let scheduled = runtime.run(|| {
            if one_to_one() {
                return false;
            }
            thread::current().set_priority(level(63));
            let over = Arc::new(AtomicBool::new(false));
            let until_over = over.clone();
            let hog = move || {
                while !until_over.load(SeqCst) {
                    thread::cancellation_point();
                }
            };
            let hog = Builder::new().priority(level(10)).spawn(hog).expect("it begins");
            let (asked, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let answers = {
                let answered = answered.clone();
                move || {
                    for round in 1..=wakes {
                        // A permit may be left over from a round in which the microprocess had not
                        // parked yet.
                        while answered.load(SeqCst) < round {
                            thread::park();
                            answered.store(round, SeqCst);
                        }
                    }
                }
            };
            let high = Builder::new().priority(level(30)).spawn(answers).expect("it begins");
            let (main, woken, asks) = (thread::current(), high.thread().clone(), asked.clone());
            let waker = std::thread::spawn(move || {
                for round in 1..=wakes {
                    while asks.load(SeqCst) < round {
                        std::hint::spin_loop();
                    }
                    woken.unpark();
                    while answered.load(SeqCst) < round {
                        std::hint::spin_loop();
                    }
                    // Meanwhile the microprocess most likely parks again.
                    (0..500).for_each(|_| std::hint::spin_loop());
                    main.unpark();
                }
            });
            for round in 1..=wakes {
                asked.store(round, SeqCst);
                // A wake-up takes some hundred nanoseconds. For some delay, it falls between the
                // check for other microprocesses and the switch.
                (0..round % 2048).for_each(|n| {
                    std::hint::black_box(n);
                });
                thread::park();
            }
            over.store(true, SeqCst);
            waker.join().expect("no panic");
            high.join().expect("no panic");
            hog.join().expect("no panic");
            true
        });
        if !scheduled {
            skip(NAME, "the kernel does the scheduling");
        }
    });
}

/// A running microprocess whose priority is lowered below that of a queued one, on any VP, yields
/// to it. A microprocess whose priority is raised runs.
#[test]
fn lowered_running_microprocess_yields_to_one_queued_on_another_vp() {
    const NAME: &str = "lowered_running_microprocess_yields_to_one_queued_on_another_vp";
    alone(NAME, || {
        for design in DESIGNS {
            let runtime = Runtime::builder()
                .vps(2)
                .queue(design)
                .policy(FixedPriority)
                .build()
                .expect("a runtime");
            let scheduled = runtime.run(|| {
                thread::current().set_priority(level(63));
                if one_to_one() {
                    return false;
                }
                let over = Arc::new(AtomicBool::new(false));
                let reached: Arc<Vec<_>> = Arc::new((0..6).map(|_| AtomicU64::new(0)).collect());
                let all: Vec<_> = (0..6)
                    .map(|n| {
                        let (over, reached) = (over.clone(), reached.clone());
                        let runs = move || {
                            while !over.load(SeqCst) {
                                reached[n].fetch_add(1, SeqCst);
                                thread::cancellation_point();
                            }
                        };
                        Builder::new().priority(level(30)).spawn(runs).expect("it begins")
                    })
                    .collect();
                let has_run = |n: usize| reached[n].load(SeqCst) > 0;
                let wait_until = |what: &dyn Fn() -> bool| {
                    while !what() {
                        thread::sleep(Duration::from_micros(100));
                    }
                };
                // The microprocesses never end on their own. The running ones are lowered until all
                // have run.
                for sunk in 1..=6 {
                    wait_until(&|| (0..6).filter(|n| has_run(*n)).count() >= sunk);
                    for one in
                        all.iter().enumerate().filter(|(n, _)| has_run(*n)).map(|(_, one)| one)
                    {
                        one.thread().set_priority(level(20));
                    }
                }
                // Each in turn is raised above all others.
                for (n, one) in all.iter().enumerate() {
                    let before = reached[n].load(SeqCst);
                    one.thread().set_priority(level(40));
                    wait_until(&|| reached[n].load(SeqCst) > before);
                    one.thread().set_priority(level(10));
                }
                over.store(true, SeqCst);
                for one in all {
                    one.join().expect("no panic");
                }
                true
            });
            if !scheduled {
                return skip(NAME, "the kernel does the scheduling");
            }
        }
    });
}
