use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;

use super::*;

struct Shared {
    state: State,
    context: UnsafeCell<u32>,
    queued: AtomicUsize,
}
// SAFETY: loom checks that accesses to the context are ordered.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

fn begun() -> (Arc<Shared>, u64) {
    let s = Arc::new(Shared {
        state: State::new(8),
        context: UnsafeCell::new(0),
        queued: AtomicUsize::new(0),
    });
    s.state.begin();
    let generation = s.state.generation();
    (s, generation)
}

fn run(s: &Shared) {
    // SAFETY: only the thread that queues it runs it; loom checks that.
    s.context.with_mut(|c| unsafe { *c += 1 });
    s.queued.fetch_add(1, Ordering::Relaxed);
}

/// Park against two wakers: the microprocess runs again at least once, never on two carriers at
/// once, and no wake-up is lost.
#[test]
fn park_racing_two_wakers_ends_once() {
    loom::model(|| {
        let (s, generation) = begun();
        // SAFETY: no other thread has it yet.
        s.context.with_mut(|c| unsafe { *c += 1 });
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let s = s.clone();
                loom::thread::spawn(move || {
                    if s.state.wake(generation) == Wake::Queue {
                        run(&s);
                    }
                })
            })
            .collect();
        if s.state.commit_park() == Park::Permit {
            run(&s);
        }
        for w in wakers {
            w.join().unwrap();
        }
        assert_eq!(
            s.queued.load(Ordering::Relaxed),
            1,
            "one park ends once, whatever the number of wake-ups"
        );
    });
}

/// The end against a late waker: a reference to the former life never changes the next life.
#[test]
fn stale_wake_does_not_change_the_next_life() {
    loom::model(|| {
        let (s, generation) = begun();
        let waker = {
            let s = s.clone();
            loom::thread::spawn(move || s.state.wake(generation))
        };
        s.state.finish();
        s.state.release(9);
        s.state.begin();
        let parked = s.state.commit_park();
        assert_ne!(waker.join().unwrap(), Wake::Queue);
        assert_eq!(parked, Park::Parked);
    });
}

/// Cancel and its wake-up against a park: the microprocess runs again and observes the request.
#[test]
fn cancel_racing_park_is_observed() {
    loom::model(|| {
        let (s, generation) = begun();
        let canceller = {
            let s = s.clone();
            loom::thread::spawn(move || {
                assert!(s.state.cancel(generation));
                s.state.wake(generation)
            })
        };
        let park = s.state.commit_park();
        let wake = canceller.join().unwrap();
        assert!(
            (park == Park::Permit) != (wake == Wake::Queue),
            "exactly one thread queues the microprocess"
        );
        assert!(s.state.is_cancelled());
    });
}

/// A permit left while running ends exactly one later park.
#[test]
fn permit_ends_exactly_one_park() {
    loom::model(|| {
        let (s, generation) = begun();
        let waker = {
            let s = s.clone();
            loom::thread::spawn(move || s.state.wake(generation))
        };
        let taken = s.state.take_permit();
        let park = s.state.commit_park();
        let woken = waker.join().unwrap();
        match (taken, park) {
            (true, Park::Permit) => panic!("one wake-up left two permits"),
            (true, Park::Parked) | (false, Park::Permit) => assert_eq!(woken, Wake::Permit),
            (false, Park::Parked) => assert_eq!(woken, Wake::Queue),
        }
    });
}

/// Suspend and resume against a park and a wake-up. At every moment at most one thread holds the
/// microprocess, which runs on one carrier only and runs in the end.
#[test]
fn suspend_and_resume_racing_park_and_wake_run_once() {
    loom::model(|| {
        let (s, generation) = begun();
        let waker = {
            let s = s.clone();
            loom::thread::spawn(move || {
                if s.state.wake(generation) == Wake::Queue {
                    switch_to(&s);
                }
            })
        };
        let controller = {
            let s = s.clone();
            loom::thread::spawn(move || {
                assert!(matches!(
                    s.state.request_suspend(generation),
                    Suspend::Asked | Suspend::Waits
                ));
                match s.state.resume(generation) {
                    Resume::Queue => switch_to(&s),
                    resumed => assert_eq!(resumed, Resume::Cleared),
                }
            })
        };
        // SAFETY: the thread acts as the carrier; loom checks accesses.
        s.context.with_mut(|c| unsafe { *c += 1 });
        if s.state.commit_park() == Park::Permit {
            switch_to(&s);
        }
        waker.join().unwrap();
        controller.join().unwrap();
        assert_eq!(
            s.queued.load(Ordering::Relaxed),
            1,
            "a microprocess that was woken and resumed runs once"
        );
    });
}

/// Acts as a carrier that has taken the microprocess from its queue.
fn switch_to(s: &Shared) {
    if !s.state.is_suspended() || !s.state.commit_suspend() {
        run(s);
    }
}

/// The carrier leaves a running microprocess that two threads suspend and resume.
#[test]
fn two_suspends_and_resumes_of_a_running_microprocess_run_it_once() {
    loom::model(|| {
        let (s, generation) = begun();
        let controllers: Vec<_> = (0..2)
            .map(|_| {
                let s = s.clone();
                loom::thread::spawn(move || {
                    let _ = s.state.request_suspend(generation);
                    if s.state.resume(generation) == Resume::Queue {
                        switch_to(&s);
                    }
                })
            })
            .collect();
        // SAFETY: the thread acts as the carrier; loom checks accesses.
        s.context.with_mut(|c| unsafe { *c += 1 });
        if !s.state.commit_suspend() {
            switch_to(&s);
        }
        for c in controllers {
            c.join().unwrap();
        }
        assert!(!s.state.is_suspended());
        assert_eq!(s.queued.load(Ordering::Relaxed), 1);
    });
}

/// Cancelled while suspended: the microprocess observes the request when it is resumed.
#[test]
fn cancel_of_suspended_is_observed_after_resume() {
    loom::model(|| {
        let (s, generation) = begun();
        let controller = {
            let s = s.clone();
            loom::thread::spawn(move || {
                assert!(s.state.cancel(generation));
                s.state.wake(generation)
            })
        };
        let suspended = s.state.request_suspend(generation);
        assert_eq!(suspended, Suspend::Asked);
        let held = s.state.commit_suspend();
        assert!(held);
        let woken = controller.join().unwrap();
        assert_eq!(woken, Wake::Permit);
        assert_eq!(s.state.resume(generation), Resume::Queue);
        assert!(s.state.is_cancelled());
    });
}

/// A microprocess waits for its turn on its own kernel thread. A scheduler hands it a VP while
/// another thread suspends it, raises the event where it finds the microprocess, and looks no more.
/// The microprocess runs with the event pending, or not at all.
#[test]
fn suspension_racing_a_hand_over_is_pending_after_it() {
    loom::model(|| {
        let (s, generation) = begun();
        // Of the slot of the waiting kernel thread.
        let pending = Arc::new(AtomicUsize::new(0));
        let suspender = {
            let (s, pending) = (s.clone(), pending.clone());
            loom::thread::spawn(move || {
                assert_eq!(s.state.request_suspend(generation), Suspend::Asked);
                // The barrier on every core.
                loom::sync::atomic::fence(Ordering::SeqCst);
                pending.fetch_or(1, Ordering::SeqCst);
            })
        };
        // The scheduler's look, before it hands the VP over.
        let is_handed = !s.state.is_suspended() || !s.state.commit_suspend();
        if is_handed {
            // The VP discards the events that were raised while the thread waited.
            pending.store(0, Ordering::Relaxed);
            loom::sync::atomic::fence(Ordering::SeqCst);
            if s.state.is_suspended() {
                pending.fetch_or(1, Ordering::SeqCst);
            }
        }
        suspender.join().unwrap();
        assert!(!is_handed || pending.load(Ordering::Relaxed) != 0);
    });
}
