//! loom models of the protocol against lost wake-ups.

use super::super::*;
use ::loom::sync::Arc;
use ::loom::sync::atomic::AtomicBool;

/// Two threads post the same bit. The owner takes the posts and checks, and does so once more
/// before it sleeps. The owner finds each post, or a thread claims the wake-up.
#[test]
fn no_lost_post() {
    ::loom::model(|| {
        let shared =
            Arc::new((Head::new(), Cell::new(), [AtomicBool::new(false), AtomicBool::new(false)]));
        let posters: Vec<_> = (0..2)
            .map(|i| {
                let shared = shared.clone();
                ::loom::thread::spawn(move || {
                    shared.2[i].store(true, Ordering::Relaxed);
                    shared.0.post(3);
                    shared.1.claim_wake_remote().is_some()
                })
            })
            .collect();
        let mut seen = [false; 2];
        let mut look = || {
            if shared.0.has_posts() && shared.0.take_posts() != 0 {
                for i in 0..2 {
                    seen[i] |= shared.2[i].load(Ordering::Relaxed);
                }
            }
        };
        look();
        shared.1.prepare_sleep(SleepMode::Futex);
        look();
        let called = posters.into_iter().fold(false, |called, p| called | p.join().unwrap());
        assert!(called || seen == [true; 2], "asleep with a post and without a wake-up");
    });
}

/// One waker and one sleeper: the sleeper finds the work before it sleeps, or the waker claims the
/// wake-up.
#[test]
fn no_lost_wake_up() {
    ::loom::model(|| {
        let cell = Arc::new(Cell::new());
        let work = Arc::new(AtomicBool::new(false));
        let waker = {
            let (cell, work) = (cell.clone(), work.clone());
            ::loom::thread::spawn(move || {
                work.store(true, Ordering::Relaxed);
                cell.claim_wake()
            })
        };
        cell.prepare_sleep(SleepMode::Futex);
        let saw = work.load(Ordering::Relaxed);
        let called = waker.join().unwrap();
        assert!(saw || called == Some(SleepMode::Futex), "asleep with work and without a wake-up");
        assert_eq!(cell.finish_sleep(), called.is_some());
    });
}

/// Two wakers: at most one of them claims the wake-up and makes the system call.
#[test]
fn wake_up_is_claimed_once() {
    ::loom::model(|| {
        let cell = Arc::new(Cell::new());
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let cell = cell.clone();
                ::loom::thread::spawn(move || cell.claim_wake().is_some())
            })
            .collect();
        cell.prepare_sleep(SleepMode::Descriptors);
        let calls = wakers.into_iter().map(|w| u32::from(w.join().unwrap())).sum::<u32>();
        assert!(calls <= 1);
        assert_eq!(cell.finish_sleep(), calls == 1);
    });
}
