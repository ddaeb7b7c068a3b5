use super::super::*;
use loom::sync::Arc;

/// The waiter gives up while a scheduler picks its entry. Either the waiter receives the VP or the
/// scheduler keeps it, and the run queue has exactly one entry.
#[test]
fn entry_is_picked_while_the_waiter_gives_up() {
    loom::model(|| {
        let waiter = Arc::new(Waiter::new());
        let generation = waiter.begin(Some(0)).expect("a new entry");
        let picker = {
            let waiter = waiter.clone();
            loom::thread::spawn(move || {
                let taken = waiter.offer(generation) == Offer::Accepted;
                if taken {
                    waiter.hand(4);
                }
                taken
            })
        };
        let is_detached = waiter.give_up();
        if is_detached {
            // The waiter later waits again: it needs a new entry only if the old one was dropped.
            let new_entry = waiter.begin(Some(0)).is_some();
            let taken = picker.join().unwrap();
            assert_eq!(new_entry, !taken, "one entry, and one offer for it");
            if taken {
                assert!(waiter.wait(|| poll_interval(1), || false));
            }
        } else {
            assert!(picker.join().unwrap());
            assert!(waiter.wait(|| poll_interval(1), || false));
            assert_eq!(waiter.token(), 4);
        }
    });
}

/// A detached thread leaves while a scheduler picks its entry. Either the entry is dropped and
/// the thread adds a new one, or the entry stays valid and the scheduler finds the context.
#[test]
fn entry_is_picked_while_the_thread_leaves() {
    loom::model(|| {
        let waiter = Arc::new(Waiter::new());
        let context = Arc::new(AtomicU64::new(0));
        let generation = waiter.begin(Some(0)).expect("a new entry");
        assert!(waiter.give_up());
        let picker = {
            let (waiter, context) = (waiter.clone(), context.clone());
            loom::thread::spawn(move || {
                if context.load(Ordering::Acquire) != 0 {
                    return true;
                }
                match waiter.offer(generation) {
                    Offer::Accepted => panic!("the waiter has left the phase QUEUED"),
                    Offer::EntryDropped => false,
                    Offer::Switchable => {
                        assert_eq!(context.load(Ordering::Relaxed), 7, "the context is visible");
                        true
                    }
                }
            })
        };
        context.store(7, Ordering::Release);
        let has_entry = waiter.leave();
        // The thread waits again, with another microprocess.
        let next = waiter.begin(Some(0)).expect("a new entry");
        assert!(
            waiter.offer(next) == Offer::Accepted,
            "the former entry does not affect the new wait"
        );
        waiter.hand(4);
        assert!(waiter.wait(|| poll_interval(1), || false));
        assert_eq!(has_entry, picker.join().unwrap(), "the microprocess is switched to once");
    });
}

/// Another thread releases the waiter while a scheduler picks its entry. The waiter continues in
/// any case, with a VP exactly if the scheduler handed it over.
#[test]
fn entry_is_picked_while_the_waiter_is_released() {
    loom::model(|| {
        let waiter = Arc::new(Waiter::new());
        let generation = waiter.begin(Some(0)).expect("a new entry");
        let picker = {
            let waiter = waiter.clone();
            loom::thread::spawn(move || {
                let taken = waiter.offer(generation) == Offer::Accepted;
                if taken {
                    waiter.hand(4);
                }
                taken
            })
        };
        let releaser = {
            let waiter = waiter.clone();
            loom::thread::spawn(move || waiter.release(0))
        };
        let has_vp = waiter.wait(|| poll_interval(1), || false);
        assert_eq!(has_vp, picker.join().unwrap());
        releaser.join().unwrap();
    });
}
