//! mpmc and `select!` on kernel threads.
#![cfg(not(loom))]

mod seed;

use kumihimo_sync::mpsc::{RecvError, RecvTimeoutError};
use kumihimo_sync::{mpmc, mpsc, select};
use seed::{Rng, crew, seed};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn mpmc_delivers_each_message_once() {
    let seed = seed("mpmc_delivers_each_message_once");
    for bound in [0, 1, 7, usize::MAX] {
        let (sender, receiver) = mpmc::sync_channel(bound);
        let sum = AtomicU64::new(0);
        crew(|s| {
            for _ in 0..4 {
                let sender = sender.clone();
                s.spawn(move || (1..=2_000u64).for_each(|n| sender.send(n).unwrap()));
            }
            for t in 0..4 {
                let (receiver, sum, mut rng) = (receiver.clone(), &sum, Rng::new(seed, t));
                s.spawn(move || {
                    loop {
                        let n = match rng.below(3) {
                            0 => receiver
                                .recv_timeout(Duration::from_micros(20))
                                .map_err(|e| e.to_string()),
                            _ => receiver.recv().map_err(|_| "closed".into()),
                        };
                        match n {
                            Ok(n) => sum.fetch_add(n, Ordering::Relaxed),
                            Err(e) if e.contains("closed") => break,
                            Err(_) => continue,
                        };
                    }
                });
            }
            drop(sender);
        });
        assert_eq!(sum.into_inner(), 4 * 2_000 * 2_001 / 2);
        assert_eq!(receiver.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }
}

#[test]
fn each_kind_of_arm_is_chosen_when_ready() {
    let (sender, receiver) = mpsc::sync_channel(1);
    let (other, others) = mpmc::channel::<()>();
    assert_eq!(select! { recv(receiver) -> m => m, default => Ok(0) }, Ok(0));
    assert!(select! { send(sender, 1) -> r => r.is_ok(), default => false });
    assert!(select! { send(sender, 2) -> _ => false, after(Duration::from_millis(1)) => true });
    let n = select! {
        recv(others) -> _ => 0,
        recv(&receiver) -> m => { m.unwrap() }
        at(Instant::now()) => { 2 }
    };
    assert_eq!(n, 1);
    let deadline = Instant::now() + Duration::from_millis(2);
    select! {
        recv(receiver) -> _ => panic!("nothing was sent"),
        after(Duration::MAX) => panic!("never"),
        at(deadline) => assert!(Instant::now() >= deadline),
        cancelled => panic!("nobody cancelled"),
    }
    drop(other);
    assert_eq!(select! { recv(receiver) -> _ => Ok(()), recv(others) -> m => m }, Err(RecvError));
    drop(receiver);
    assert_eq!(select! { send(sender, 3) -> r => r.unwrap_err().0, default => 0 }, 3);
}

#[test]
fn arms_may_break_and_continue() {
    let (sender, receiver) = mpsc::channel();
    (0..10).for_each(|n| sender.send(n).unwrap());
    let mut seen = 0;
    loop {
        select! {
            recv(receiver) -> n => {
                if n.unwrap() == 5 { break }
                seen += 1;
                continue;
            }
            default => unreachable!(),
        }
    }
    assert_eq!(seen, 5);
    drop(receiver);
}

/// Selects on both sides of rendezvous channels run against each other and against plain calls:
/// each message arrives once.
#[test]
fn opposing_selects_deliver_each_message_once() {
    let seed = seed("opposing_selects_deliver_each_message_once");
    for bound in [0, 1] {
        let (a, from_a) = mpmc::sync_channel(bound);
        let (b, from_b) = mpmc::sync_channel(bound);
        let (sent, got) = (AtomicU64::new(0), AtomicU64::new(0));
        crew(|s| {
            for t in 0..4 {
                let (a, b, sent) = (a.clone(), b.clone(), &sent);
                s.spawn(move || {
                    let mut rng = Rng::new(seed, t);
                    for n in 1..=2_000u64 {
                        let done = match rng.below(4) {
                            0 => a.send(n).is_ok(),
                            1 => select! {
                                send(a, n) -> r => r.is_ok(),
                                send(b, n) -> r => r.is_ok(),
                                after(Duration::from_micros(rng.below(30))) => false,
                            },
                            _ => select! { send(b, n) -> r => r.is_ok(), send(a, n) -> r => r.is_ok() },
                        };
                        if done {
                            sent.fetch_add(n, Ordering::Relaxed);
                        }
                    }
                });
            }
            for t in 0..3 {
                let (from_a, from_b, got) = (from_a.clone(), from_b.clone(), &got);
                s.spawn(move || {
                    let (mut rng, mut open) = (Rng::new(seed, 10 + t), [true; 2]);
                    while open != [false; 2] {
                        let which = rng.below(4);
                        // A plain wait on one channel has a time limit: all senders may be waiting
                        // at the other channel.
                        let limit = Duration::from_micros(20);
                        let (channel, message) = if which == 0 || !open[1] {
                            match from_a.recv_timeout(limit) {
                                Err(RecvTimeoutError::Timeout) => continue,
                                m => (0, m.map_err(|_| RecvError)),
                            }
                        } else if which == 1 || !open[0] {
                            match from_b.recv_timeout(limit) {
                                Err(RecvTimeoutError::Timeout) => continue,
                                m => (1, m.map_err(|_| RecvError)),
                            }
                        } else {
                            select! {
                                recv(from_a) -> m => (0, m),
                                recv(from_b) -> m => (1, m),
                                after(Duration::from_micros(rng.below(30))) => continue,
                            }
                        };
                        match message {
                            Ok(n) => drop(got.fetch_add(n, Ordering::Relaxed)),
                            Err(_) => open[channel] = false,
                        }
                    }
                });
            }
            drop((a, b));
        });
        assert_eq!(sent.into_inner(), got.into_inner());
    }
}

#[test]
fn select_does_not_match_its_own_arms() {
    let (sender, receiver) = mpmc::sync_channel(0);
    select! {
        send(sender, 1) -> _ => panic!("sent to itself"),
        recv(receiver) -> _ => panic!("received from itself"),
        after(Duration::from_millis(2)) => {}
    }
}

#[test]
fn unchosen_arms_drop_their_values() {
    let token = std::sync::Arc::new(());
    let (sender, receiver) = mpsc::sync_channel(0);
    for _ in 0..100 {
        select! { send(sender, token.clone()) -> _ => panic!(), after(Duration::from_micros(10)) => {} }
        select! { send(sender, token.clone()) -> _ => panic!(), default => {} }
    }
    drop(receiver);
    let back = select! { send(sender, token.clone()) -> r => r };
    assert_eq!(std::sync::Arc::strong_count(&token), 2);
    drop(back);
    assert_eq!(std::sync::Arc::strong_count(&token), 1);
}
