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
    // SAFETY: access is exclusive if the protocol is right, which loom checks.
    vp.0.with_mut(|p| unsafe { *p += 1 });
}

/// The carrier leaves and returns while spares claim: exactly one thread has the VP afterwards, and
/// it sees all of the VP's contents.
fn one_round(claimers: usize) {
    let mut model = loom::model::Builder::new();
    // Exploring all interleavings of three threads takes minutes. Three preemptions reach every
    // pair of steps.
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
fn carrier_and_one_claimer_never_share_the_vp() {
    one_round(1);
}

#[test]
fn carrier_and_two_claimers_never_share_the_vp() {
    one_round(2);
}

/// The source lends the VP while the carrier is off its core. A spare and the carrier settle the
/// ownership.
#[test]
fn lent_vp_goes_to_the_spare_or_the_carrier() {
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
        // Runs on the carrier's core, between two of its steps.
        assert!(slot.lend());
        let mine = slot.enter(VP);
        if mine {
            touch(&vp);
        }
        assert_ne!(mine, spare.join().unwrap());
    });
}

/// One spare was called (`blocking`) and another was woken by the source. Either one of them or the
/// carrier gets the VP.
#[test]
fn vp_that_is_lent_and_claimed_has_one_carrier() {
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
        // Fails if the called spare is already claiming.
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

/// A refused claim leaves the slot usable: the carrier leaves twice.
#[test]
fn refused_claim_leaves_the_slot_usable() {
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

/// The carrier of a VP that it lends enters and leaves a short masked section. The VP goes to the
/// spare, or the carrier sees that a spare waits for the end of the section.
#[test]
fn spare_refused_by_a_short_section_takes_the_vp_or_is_woken() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        slot.install(VP);
        slot.unmask();
        let spare = {
            let slot = slot.clone();
            // Returns whether the spare waits to be woken.
            loom::thread::spawn(move || {
                while slot.claim() != Claim::Taken(VP) {
                    if slot.await_unmask() {
                        return true;
                    }
                }
                false
            })
        };
        slot.mask();
        let wakes = slot.exit();
        let waits = spare.join().unwrap();
        assert!(wakes || !waits, "nobody takes the VP");
    });
}
