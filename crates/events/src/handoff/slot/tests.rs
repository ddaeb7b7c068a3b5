use super::*;
use std::sync::Arc;

const VP: u64 = token(15);

#[test]
fn masked_carrier_keeps_its_vp() {
    let slot = Slot::new();
    slot.install(VP);
    assert_eq!(slot.claim(), Claim::Refused);
    slot.unmask();
    assert!(slot.enter(VP));
    assert!(slot.has_vp());
}

#[test]
fn pending_event_waits_for_the_outermost_exit() {
    let slot = Slot::new();
    slot.install(VP);
    assert!(slot.enter(VP));
    slot.pending.store(1, Ordering::Relaxed);
    assert!(!slot.exit());
    assert!(slot.exit());
}

#[test]
fn enter_detects_a_token_of_another_vp() {
    let slot = Slot::new();
    slot.install(token(7));
    slot.unmask();
    let failure = std::panic::catch_unwind(|| slot.enter(VP)).expect_err("another VP's token");
    let text = failure.downcast_ref::<String>().expect("a text");
    assert!(text.contains("the shared page is corrupt"), "{text}");
}

/// Many rounds on kernel threads with the real barriers: the VP is never lost and never has two
/// carriers.
#[test]
fn vp_has_one_carrier_on_real_threads() {
    let slot = Arc::new(Slot::new());
    let owners = Arc::new(AtomicU32::new(0));
    let rounds = 20_000;
    let offered = Arc::new(AtomicU32::new(0));
    let given_back = Arc::new(AtomicU64::new(0));
    let claimer = {
        let (slot, owners, offered, given_back) =
            (slot.clone(), owners.clone(), offered.clone(), given_back.clone());
        std::thread::spawn(move || {
            let mut taken = 0;
            while offered.load(Ordering::Acquire) < rounds {
                if let Claim::Taken(vp) = slot.claim() {
                    assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0);
                    owners.fetch_sub(1, Ordering::SeqCst);
                    given_back.store(vp, Ordering::Release);
                    taken += 1;
                } else {
                    std::thread::yield_now();
                }
            }
            taken
        })
    };
    slot.install(VP);
    let (mut kept, mut lost) = (0, 0);
    for round in 1..=rounds {
        if slot.depth() == 1 {
            slot.unmask();
        }
        if round % 3 == 0 {
            std::thread::yield_now();
        }
        if slot.enter(VP) {
            assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0);
            owners.fetch_sub(1, Ordering::SeqCst);
            kept += 1;
        } else {
            while given_back.swap(0, Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            slot.install(VP);
            lost += 1;
        }
        offered.store(round, Ordering::Release);
    }
    let taken = claimer.join().unwrap();
    assert_eq!(taken, lost);
    assert_eq!(kept + lost, rounds);
}
