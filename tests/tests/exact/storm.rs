//! Changes of priority at a high rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use kumihimo::policy::FixedPriority;
use kumihimo::runtime::Runtime;
use kumihimo::sync::Mutex;
use kumihimo::thread::{self, Builder, Thread};
use kumihimo_tests::process::{alone, one_to_one};
use kumihimo_tests::{Random, rounds, skip};

use crate::{DESIGNS, level};

/// Several kernel threads change priorities hundreds of times a millisecond, while the changed
/// microprocesses run, wait and end. None is lost, and the final order is that of the last changes.
#[test]
fn storm_of_priority_changes_ends_in_the_right_order() {
    const NAME: &str = "storm::storm_of_priority_changes_ends_in_the_right_order";
    alone(NAME, || {
        for mut round in rounds(NAME) {
            let design = DESIGNS[round.number as usize % DESIGNS.len()];
            let vps = 1 + round.random.below(3) as usize;
            let runtime = Runtime::builder()
                .vps(vps)
                .queue(design)
                .policy(FixedPriority)
                .build()
                .expect("a runtime");
            let mut random = round.random.split();
            let scheduled = runtime.run(move || storm(&mut random, vps) && !one_to_one());
            if !scheduled {
                return skip(NAME, "the kernel does the scheduling");
            }
        }
    });
}

fn storm(random: &mut Random, vps: usize) -> bool {
    const CHANGED: u64 = 30;
    thread::current().set_priority(level(63));
    if one_to_one() {
        return false;
    }
    let (calm, log) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let turns = Arc::new(AtomicU64::new(0));
    let all: Vec<_> = (0..CHANGED)
        .map(|n| {
            let (calm, log, turns) = (calm.clone(), log.clone(), turns.clone());
            let changed = move || {
                let mut rest = 0;
                while !calm.load(SeqCst) {
                    turns.fetch_add(1, SeqCst);
                    rest = (rest + 1) % 7;
                    if rest == n % 7 {
                        thread::sleep(Duration::from_micros(20));
                    } else {
                        thread::yield_now();
                    }
                }
                thread::park();
                log.lock().expect("not poisoned").push(n);
            };
            Builder::new().priority(level(20)).spawn(changed).expect("it begins")
        })
        .collect();
    let threads: Vec<Thread> = all.iter().map(|one| one.thread().clone()).collect();
    let stormers: Vec<_> = (0..3)
        .map(|_| {
            let (mut random, threads) = (random.split(), threads.clone());
            std::thread::spawn(move || {
                for _ in 0..5000 {
                    let one = &threads[random.below(CHANGED) as usize];
                    one.set_priority(level(random.below(60)));
                }
            })
        })
        .collect();
    // The caller's VP is free for the others meanwhile.
    thread::blocking(|| stormers.into_iter().for_each(|one| one.join().expect("no panic")));
    while turns.load(SeqCst) < CHANGED {
        thread::sleep(Duration::from_micros(100));
    }
    calm.store(true, SeqCst);
    // All have parked: after one of priority 0 has run, none of a lower priority than this caller
    // is runnable.
    for one in &threads {
        one.set_priority(level(20));
    }
    Builder::new().priority(level(0)).spawn(|| ()).expect("it begins").join().expect("no panic");
    // A permutation of priorities. Some are changed several times while they are queued.
    let mut last: Vec<u64> = (1..=CHANGED).collect();
    for i in (1..last.len()).rev() {
        last.swap(i, random.below(i as u64 + 1) as usize);
    }
    for one in &threads {
        one.unpark();
    }
    for _ in 0..100 {
        threads[random.below(CHANGED) as usize].set_priority(level(1 + random.below(60)));
    }
    for (one, last) in threads.iter().zip(&last) {
        one.set_priority(level(*last));
    }
    for one in all {
        one.join().expect("no panic");
    }
    let log = log.lock().expect("not poisoned");
    assert_eq!(log.len() as u64, CHANGED, "each once");
    if vps == 1 {
        // Nothing else affects the order, and no other microprocess ran: the caller has kept the
        // VP, at priority 63, until all were changed.
        let order: Vec<_> = log.iter().map(|n| last[*n as usize]).collect();
        assert!(order.is_sorted_by(|a, b| a > b), "{order:?}");
    }
    true
}
