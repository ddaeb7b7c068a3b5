use super::real::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};

/// Two threads each store a value and then load the other's: at least one of them must see the
/// other's store. One side has only a compiler barrier. Without `heavy`, store buffers make both
/// loads stale within some thousand rounds on two cores.
fn never_both_miss(rounds: u64, heavy: impl Fn()) {
    // The stores go to different cache lines.
    let (mine, theirs) =
        (Box::new([const { AtomicU64::new(0) }; 32]), Box::new([const { AtomicU64::new(0) }; 32]));
    let (seen, answered, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                if mine[16].load(Ordering::Acquire) == round {
                    std::hint::spin_loop();
                    continue;
                }
                round += 1;
                theirs[0].store(round, Ordering::Relaxed);
                compiler_fence(Ordering::SeqCst);
                seen.store(mine[0].load(Ordering::Relaxed), Ordering::Relaxed);
                answered.store(round, Ordering::Release);
            }
        });
        for round in 1..=rounds {
            mine[16].store(round, Ordering::Release);
            // The other thread reacts after about 100 ns: vary the delay around that.
            (0..round * 7 % 61).for_each(|_| std::hint::spin_loop());
            mine[0].store(round, Ordering::Relaxed);
            heavy();
            let saw = theirs[0].load(Ordering::Relaxed) == round;
            while answered.load(Ordering::Acquire) != round {
                std::thread::yield_now();
            }
            let both_missed = !saw && seen.load(Ordering::Relaxed) != round;
            if both_missed {
                stop.store(true, Ordering::Relaxed);
                panic!("round {round}: both missed the other's store");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn selected_barrier_orders_a_store_before_a_load() {
    probe().expect("a barrier");
    never_both_miss(20_000, everywhere);
}

#[test]
fn on_each_cpu_orders_and_restores_the_affinity() {
    let before = affinity().expect("affinity");
    never_both_miss(500, || on_each_cpu().expect("affinity"));
    assert_eq!(affinity().expect("affinity"), before);
}
