//! Several processes serve and call each other's gates, with random sizes, priorities, deadlines
//! and cancellations, while some processes are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kumihimo::gate::{ErrorKind, Options, Placement, RawGate, Region};
use kumihimo::policy::Priority;
use kumihimo::thread;
use kumihimo_tests::{Random, rounds};

use crate::parts::{Held, Part, hear, play, play_with, tell, until};

const PEERS: u64 = 3;
const CALLERS: u64 = 12;

fn name(peer: u64) -> String {
    format!("peer {peer}")
}

/// The reply to `asked`, which the caller can verify completely.
fn answer_to(asked: &[u8], answer: &mut Vec<u8>) {
    let sum =
        asked.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let mut random = Random(sum);
    let len = match random.below(8) {
        0..5 => random.below(200),
        5 | 6 => random.below(6000),
        _ => random.below(60_000),
    };
    answer.extend_from_slice(&sum.to_ne_bytes());
    answer.extend((0..len).map(|at| (sum as u8).wrapping_add(at as u8)));
}

/// Serves gate `me`. Handlers call other gates, sleep or panic at random.
fn serve(me: u64, random: Random) -> kumihimo::gate::Serving {
    let seeds = AtomicU64::new(random.0);
    let others: Vec<std::sync::OnceLock<RawGate>> =
        (0..PEERS).map(|_| std::sync::OnceLock::new()).collect();
    RawGate::serve(&name(me), &Options::new(), move |asked, context, answer| {
        let mut random = Random(seeds.fetch_add(1, Ordering::Relaxed));
        let _ = context.regions()?;
        match random.below(40) {
            0 => thread::sleep(Duration::from_millis(random.below(5))),
            1 => panic!("by chance"),
            2..6 if me + 1 < PEERS => {
                // Higher gates only: a cycle of calls would be reported as a deadlock.
                let other = me + 1 + random.below(PEERS - me - 1);
                let gate = &others[other as usize];
                if gate.get().is_none()
                    && let Ok(new) = RawGate::connect(&name(other))
                {
                    let _ = gate.set(new);
                }
                if let Some(gate) = gate.get() {
                    let (mut reply, mut right) = (Vec::new(), Vec::new());
                    if gate.call(asked, &mut reply).is_ok() {
                        answer_to(asked, &mut right);
                        assert_eq!(reply, right);
                    }
                }
            }
            _ => {}
        }
        answer_to(asked, answer);
        Ok(Vec::new())
    })
    .expect("it serves")
}

/// A caller.
fn call(gates: &[RawGate], mut random: Random, done: &AtomicBool, went: &AtomicU64) {
    let (mut reply, mut right) = (Vec::new(), Vec::new());
    while !done.load(Ordering::Relaxed) {
        let gate = &gates[random.below(gates.len() as u64) as usize];
        let len = match random.below(10) {
            0..7 => random.below(300),
            7 | 8 => random.below(9000),
            _ => random.below(100_000),
        };
        let mut bytes = random.split();
        let asked: Vec<u8> = (0..len).map(|_| bytes.number() as u8).collect();
        let ended = match random.below(12) {
            0 => gate.call_within(&asked, &mut reply, Duration::from_micros(random.below(3000))),
            1 => {
                let region = Region::copy_of(&asked).expect("memory");
                gate.call_with(&asked, &[region], &mut reply).map(drop)
            }
            2 => {
                if let Err(error) = gate.send(&asked) {
                    check(error.kind(), &error.to_string());
                }
                continue;
            }
            3 => {
                // Cancelled at a random point, or not at all.
                let (its, asked) = (gate.clone(), asked.clone());
                let one = thread::spawn(move || {
                    its.call(&asked, &mut Vec::new()).map_err(|error| error.kind())
                });
                for _ in 0..random.below(20) {
                    thread::yield_now();
                }
                one.cancel();
                match one.join() {
                    Ok(Err(kind)) => check(kind, "of a cancelled call"),
                    Ok(Ok(())) => {}
                    Err(payload) => assert!(payload.is::<thread::Cancelled>()),
                }
                continue;
            }
            _ => gate.call(&asked, &mut reply),
        };
        match ended {
            Ok(()) => {
                right.clear();
                answer_to(&asked, &mut right);
                assert_eq!(reply, right, "the answer to {len} bytes");
                went.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                check(error.kind(), &error.to_string());
                thread::yield_now();
            }
        }
    }
}

/// Checks that an error is one of those caused by killed peers, panicking handlers and deadlines.
fn check(kind: ErrorKind, text: &str) {
    use ErrorKind::{Cancelled, Gone, NotFound, Panicked, TimedOut};
    assert!(matches!(kind, Gone | NotFound | Panicked | TimedOut | Cancelled), "{kind:?}: {text}");
}

#[test]
fn random_calls_between_peers_survive_kills() {
    const NAME: &str = "stress::random_calls_between_peers_survive_kills";
    let peer = || {
        let me =
            std::env::var("KUMI_TEST_PEER").expect("it is set").parse::<u64>().expect("a number");
        let mut random = Random(
            std::env::var("KUMI_TEST_RANDOM").expect("it is set").parse().expect("a number"),
        );
        let serving = serve(me, random.split());
        tell("serving");
        assert_eq!(hear(), "call");
        let before = Held::now();
        let placements =
            [Placement::Adaptive, Placement::Handoff, Placement::Scheduled, Placement::Spin];
        let gates: Vec<_> = (0..PEERS)
            .map(|other| {
                loop {
                    let placement = placements[random.below(4) as usize];
                    match RawGate::connect_with(&name(other), &Options::new().placement(placement))
                    {
                        Ok(gate) => break gate,
                        // The server is being replaced.
                        Err(error) => check(error.kind(), &error.to_string()),
                    }
                    thread::yield_now();
                }
            })
            .collect();
        let gates = Arc::new(gates);
        let (done, went) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (gates, random, done, went) =
                    (gates.clone(), random.split(), done.clone(), went.clone());
                let priority = Priority::new(random.clone().below(64) as u8).expect("a priority");
                let caller = thread::Builder::new().priority(priority);
                caller.spawn(move || call(&gates, random, &done, &went)).expect("a microprocess")
            })
            .collect();
        assert_eq!(hear(), "enough");
        done.store(true, Ordering::Relaxed);
        callers.into_iter().for_each(|caller| caller.join().expect("nothing wrong"));
        until("nothing is under way", || gates.iter().all(|gate| gate.under_way() == 0));
        tell(&format!("quiet {}", went.load(Ordering::Relaxed)));
        assert_eq!(hear(), "close");
        drop(gates);
        drop(serving);
        tell("closed");
        assert_eq!(hear(), "look");
        until("nothing is left", || {
            let now = Held::now();
            (now.links, now.lanes, now.regions) == (0, 0, 0)
                && now.descriptors <= before.descriptors
        });
        tell("clean");
        hear();
    };
    let lead = || {
        let mut random = Random(
            std::env::var("KUMI_TEST_RANDOM").expect("it is set").parse().expect("a number"),
        );
        let start = |peer: u64, random: &mut Random| {
            let (me, its) = (peer.to_string(), random.number().to_string());
            let mut part =
                Part::start_with("peer", &[("KUMI_TEST_PEER", &me), ("KUMI_TEST_RANDOM", &its)]);
            part.expect("serving");
            part
        };
        let mut peers: Vec<_> = (0..PEERS).map(|peer| start(peer, &mut random)).collect();
        peers.iter_mut().for_each(|peer| peer.say("call"));
        for _ in 0..random.below(6) {
            // The time between kills is arbitrary.
            thread::sleep(Duration::from_millis(random.below(120)));
            let who = random.below(PEERS);
            peers.remove(who as usize).kill();
            let mut new = start(who, &mut random);
            new.say("call");
            peers.insert(who as usize, new);
        }
        thread::sleep(Duration::from_millis(100));
        for (say, expect) in [("enough", "quiet"), ("close", "closed"), ("look", "clean")] {
            peers.iter_mut().for_each(|peer| peer.say(say));
            for peer in &mut peers {
                let line = peer.line();
                assert!(line.starts_with(expect), "{line}");
            }
        }
        peers.into_iter().for_each(Part::end);
    };
    let parts: [(&str, &dyn Fn()); 2] = [("lead", &lead), ("peer", &peer)];
    if crate::pair::side(NAME).is_some() {
        return play(NAME, &parts);
    }
    for mut round in rounds(NAME) {
        play_with(NAME, &[("KUMI_TEST_RANDOM", &round.random.number().to_string())], &parts);
    }
}
