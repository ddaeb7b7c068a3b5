use super::super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;

struct Vp(UnsafeCell<u32>);
// SAFETY: the model checks that accesses are ordered; loom's cell panics on a race.
unsafe impl Sync for Vp {}
// SAFETY: as above.
unsafe impl Send for Vp {}

const VP: u64 = token(15);

fn touch(vp: &Vp) {
    // SAFETY: exclusive if the protocol is right, which loom checks.
    vp.0.with_mut(|p| unsafe { *p += 1 });
}

/// The carrier leaves and comes back while one spare claims: exactly one of them has the VP,
/// and sees all of its contents.
fn one_round(claimers: usize) {
    let mut model = loom::model::Builder::new();
    // All interleavings of three threads take minutes; three preemptions reach every pair of
    // steps.
    model.preemption_bound = (claimers > 1).then_some(3);
    model.check(move || {
        let slot = Arc::new(Slot::new());
        let vp = Arc::new(Vp(UnsafeCell::new(0)));
        let taken = Arc::new(AtomicU32::new(0));
        slot.install(VP);
        touch(&vp);
        slot.unmask();
        let spares: Vec<_> = (0..claimers)
            .map(|_| {
                let (slot, vp, taken) = (slot.clone(), vp.clone(), taken.clone());
                loom::thread::spawn(move || {
                    if slot.claim() == Claim::Taken(VP) {
                        taken.fetch_add(1, Ordering::Relaxed);
                        touch(&vp);
                    }
                })
            })
            .collect();
        let mine = slot.enter(VP);
        if mine {
            touch(&vp);
        }
        for s in spares {
            s.join().unwrap();
        }
        assert_eq!(
            u32::from(mine) + taken.load(Ordering::Relaxed),
            1,
            "the VP has exactly one carrier"
        );
    });
}

#[test]
fn one_claimer() {
    one_round(1);
}

#[test]
fn two_claimers() {
    one_round(2);
}

/// The source lends the VP while the carrier is off its core; a spare and the carrier settle
/// whose it is.
#[test]
fn lent_while_asleep() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        let vp = Arc::new(Vp(UnsafeCell::new(0)));
        slot.install(VP);
        touch(&vp);
        slot.unmask();
        let spare = {
            let (slot, vp) = (slot.clone(), vp.clone());
            loom::thread::spawn(move || {
                let taken = slot.accept() == Claim::Taken(VP);
                if taken {
                    touch(&vp);
                }
                taken
            })
        };
        // On the carrier's core, between its steps.
        assert!(slot.lend());
        let mine = slot.enter(VP);
        if mine {
            touch(&vp);
        }
        assert_ne!(mine, spare.join().unwrap());
    });
}

/// A spare that was called (`blocking`) and one that was told by the source: one of them, or
/// the carrier.
#[test]
fn lent_and_claimed() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let slot = Arc::new(Slot::new());
        let vp = Arc::new(Vp(UnsafeCell::new(0)));
        let taken = Arc::new(AtomicU32::new(0));
        slot.install(VP);
        touch(&vp);
        slot.unmask();
        let spares: Vec<_> = [true, false]
            .map(|called| {
                let (slot, vp, taken) = (slot.clone(), vp.clone(), taken.clone());
                loom::thread::spawn(move || {
                    let outcome = if called { slot.claim() } else { slot.accept() };
                    if outcome == Claim::Taken(VP) {
                        taken.fetch_add(1, Ordering::Relaxed);
                        touch(&vp);
                    }
                })
            })
            .into();
        // Not if the called one is at it already.
        let _ = slot.lend();
        let mine = slot.enter(VP);
        if mine {
            touch(&vp);
        }
        for s in spares {
            s.join().unwrap();
        }
        assert_eq!(
            u32::from(mine) + taken.load(Ordering::Relaxed),
            1,
            "the VP has exactly one carrier"
        );
    });
}

/// A refused claim leaves the slot usable: away twice.
#[test]
fn away_twice() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        let vp = Arc::new(Vp(UnsafeCell::new(0)));
        slot.install(VP);
        slot.unmask();
        let spare = {
            let (slot, vp) = (slot.clone(), vp.clone());
            loom::thread::spawn(move || {
                let taken = slot.claim() == Claim::Taken(VP);
                if taken {
                    touch(&vp);
                }
                taken
            })
        };
        let mut mine = slot.enter(VP);
        if mine {
            touch(&vp);
            let _ = slot.exit();
            mine = slot.enter(VP);
            if mine {
                touch(&vp);
            }
        }
        assert_ne!(mine, spare.join().unwrap());
    });
}
