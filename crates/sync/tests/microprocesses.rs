//! The types of the crate shared by microprocesses and kernel threads; cancellation of waiters;
//! order by priority.
#![cfg(not(loom))]

mod seed;

use kumihimo_policy::Priority;
use kumihimo_runtime::thread;
use kumihimo_sync::msg::{self, Request};
use kumihimo_sync::{Barrier, Condvar, Mutex, Once, RwLock, Semaphore, mpmc, mpsc, select};
use seed::{Rng, microprocesses, seed};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Runs `f` `n` times, half of them on microprocesses and half on kernel threads. Returns the
/// results.
fn mixed<T: Send + 'static>(n: usize, f: impl Fn(usize) -> T + Send + Sync + 'static) -> Vec<T> {
    let f = Arc::new(f);
    let (mut micro, mut kernel) = (Vec::new(), Vec::new());
    for i in 0..n {
        let f = f.clone();
        if i % 2 == 0 {
            micro.push(thread::spawn(move || f(i)));
        } else {
            kernel.push(std::thread::spawn(move || f(i)));
        }
    }
    let micro = micro.into_iter().map(|t| t.join().unwrap());
    micro
        .collect::<Vec<_>>()
        .into_iter()
        .chain(kernel.into_iter().map(|t| t.join().unwrap()))
        .collect()
}

fn add(sum: &AtomicU64, n: u64) {
    sum.fetch_add(n, Ordering::SeqCst);
}

#[test]
fn locks_exclude_microprocesses_and_kernel_threads() {
    let seed = seed("locks_exclude_microprocesses_and_kernel_threads");
    let shared = Arc::new((
        Mutex::new((0u64, 0u64)),
        RwLock::new((0u64, 0u64)),
        Semaphore::new(3),
        AtomicUsize::new(0),
    ));
    let all = shared.clone();
    let done = mixed(16, move |t| {
        let (mutex, rwlock, semaphore, inside) = &*all;
        let (mut rng, mut done) = (Rng::new(seed, t as u64), (0, 0));
        for _ in 0..3_000 {
            match rng.below(6) {
                0 | 1 => {
                    let mut guard = mutex.lock().unwrap();
                    guard.0 += 1;
                    if rng.below(16) == 0 {
                        thread::yield_now();
                    }
                    guard.1 += 1;
                    assert_eq!(guard.0, guard.1);
                    done.0 += 1;
                }
                2 => {
                    if let Ok(mut guard) = mutex.lock_timeout(Duration::from_micros(rng.below(60)))
                    {
                        *guard = (guard.0 + 1, guard.1 + 1);
                        done.0 += 1;
                    }
                }
                3 => {
                    let guard = rwlock.read().unwrap();
                    if rng.below(8) == 0 {
                        thread::yield_now();
                    }
                    assert_eq!(guard.0, guard.1);
                }
                4 => {
                    let mut guard = rwlock.write().unwrap();
                    guard.0 += 1;
                    if rng.below(8) == 0 {
                        thread::yield_now();
                    }
                    guard.1 += 1;
                    done.1 += 1;
                }
                _ => {
                    let _permit = semaphore.acquire();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            }
        }
        done
    });
    let (locked, written) = done.iter().fold((0, 0), |sum, d| (sum.0 + d.0, sum.1 + d.1));
    assert_eq!(*shared.0.lock().unwrap(), (locked, locked));
    assert_eq!(*shared.1.read().unwrap(), (written, written));
    assert_eq!(shared.2.available_permits(), 3);
}

#[test]
fn condvar_barrier_and_once_work_across_thread_types() {
    const N: usize = 8;
    let shared = Arc::new((
        Mutex::new(0usize),
        Condvar::new(),
        Barrier::new(N),
        Once::new(),
        AtomicUsize::new(0),
    ));
    let all = shared.clone();
    let leaders: usize = mixed(N, move |t| {
        let (turn, changed, barrier, once, runs) = &*all;
        once.call_once(|| {
            thread::yield_now();
            runs.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        let mut leader = 0;
        for _ in 0..300 {
            let mut turn = changed.wait_while(turn.lock().unwrap(), |turn| *turn % N != t).unwrap();
            *turn += 1;
            changed.notify_all();
            drop(turn);
            leader += usize::from(barrier.wait().is_leader());
        }
        leader
    })
    .into_iter()
    .sum();
    assert_eq!((leaders, *shared.0.lock().unwrap()), (300, 300 * N));
}

#[test]
fn channels_and_selects_deliver_every_message() {
    let seed = seed("channels_and_selects_deliver_every_message");
    for bound in [0, 1, 16, usize::MAX] {
        let (a, from_a) = mpmc::sync_channel::<u64>(bound);
        let (b, from_b) = mpsc::sync_channel::<u64>(bound);
        let sums = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let got = sums.clone();
        let reader = thread::spawn(move || {
            let (mut a_open, mut b_open) = (true, true);
            while a_open && b_open {
                select! {
                    recv(from_a) -> m => match m { Ok(n) => add(&got.1, n), Err(_) => a_open = false },
                    recv(from_b) -> m => match m { Ok(n) => add(&got.1, n), Err(_) => b_open = false },
                }
            }
            from_a.iter().chain(from_b.iter()).for_each(|n| add(&got.1, n));
        });
        let sent = sums.clone();
        mixed(6, move |t| {
            let mut rng = Rng::new(seed, t as u64);
            for n in 1..=1_000 {
                match rng.below(3) {
                    0 => select! { send(a, n) -> r => r.unwrap(), send(b, n) -> r => r.unwrap() },
                    1 => a.send(n).unwrap(),
                    _ => b.send(n).unwrap(),
                }
                add(&sent.0, n);
            }
        });
        reader.join().unwrap();
        assert_eq!(sums.0.load(Ordering::Relaxed), sums.1.load(Ordering::Relaxed));
    }
}

#[test]
fn messages_cross_thread_types() {
    let (address, mailbox) = msg::mailbox::<u64, u64>();
    let server = thread::spawn(move || {
        let mut served = 0;
        let mut next = mailbox.receive();
        while let Ok(Request { message, from }) = next {
            served += 1;
            next = mailbox.reply_and_receive(from, message + 1);
        }
        served
    });
    let clients = address.clone();
    mixed(8, move |t| {
        for n in 0..2_000 {
            assert_eq!(clients.send_recv(n * 8 + t as u64), Ok(n * 8 + t as u64 + 1));
        }
    });
    drop(address);
    assert_eq!(server.join().unwrap(), 16_000);
}

/// Microprocesses that wait in different ways are cancelled at random moments. Nothing that they
/// had received or would have passed on is lost, and the other waiters continue.
#[test]
fn cancelled_waiters_lose_nothing() {
    if !microprocesses("cancelled_waiters_lose_nothing") {
        return;
    }
    let seed = seed("cancelled_waiters_lose_nothing");
    let mut rng = Rng::new(seed, 1);
    let semaphore = Arc::new(Semaphore::new(0));
    let (sender, receiver) = mpmc::channel::<u64>();
    let (slow_sender, slow_receiver) = mpmc::sync_channel::<u64>(0);
    let pair = Arc::new((Mutex::new(0u64), Condvar::new()));
    let (address, mailbox) = msg::mailbox::<u64, u64>();
    let mailbox = Arc::new(mailbox);
    let (acquired, received, taken, calls) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut sent = (0u64, 0u64, 0u64);
    let mut waiters = std::collections::VecDeque::new();
    for n in 0..6_000u64 {
        let kind = rng.below(7);
        let waiter = match kind {
            0 => {
                let (semaphore, acquired) = (semaphore.clone(), acquired.clone());
                thread::spawn(move || {
                    semaphore.acquire().forget();
                    acquired.fetch_add(1, Ordering::SeqCst);
                })
            }
            1 => {
                let (receiver, received) = (receiver.clone(), received.clone());
                thread::spawn(move || {
                    let n = receiver.recv().unwrap();
                    received.fetch_add(n, Ordering::SeqCst);
                })
            }
            2 => {
                let (receiver, slow, received) =
                    (receiver.clone(), slow_receiver.clone(), received.clone());
                thread::spawn(move || {
                    select! {
                        recv(receiver) -> n => add(&received, n.unwrap()),
                        recv(slow) -> n => assert!(n.is_ok()),
                    }
                })
            }
            3 => {
                let (pair, taken) = (pair.clone(), taken.clone());
                thread::spawn(move || {
                    let mut items =
                        pair.1.wait_while(pair.0.lock().unwrap(), |items| *items == 0).unwrap();
                    *items -= 1;
                    taken.fetch_add(1, Ordering::SeqCst);
                })
            }
            4 => {
                let sender = slow_sender.clone();
                thread::spawn(move || sender.send(n).unwrap())
            }
            5 => {
                let (address, calls) = (address.clone(), calls.clone());
                thread::spawn(move || {
                    assert_eq!(address.send_recv(n), Ok(n + 1));
                    calls.fetch_add(1, Ordering::SeqCst);
                })
            }
            _ => {
                let mailbox = mailbox.clone();
                thread::spawn(move || {
                    if let Ok(Request { message, from }) = mailbox.receive() {
                        let _ = from.reply(message + 1);
                    }
                })
            }
        };
        waiters.push_back((kind, waiter));
        if rng.below(4) == 0 {
            thread::yield_now();
        }
        match rng.below(8) {
            0 => {
                semaphore.add_permits(1);
                sent.0 += 1;
            }
            1 => {
                sender.send(n).unwrap();
                sent.1 += n;
            }
            2 => {
                *pair.0.lock().unwrap() += 1;
                pair.1.notify_one();
                sent.2 += 1;
            }
            _ => {
                let victim = rng.below(waiters.len() as u64) as usize;
                waiters[victim].1.thread().cancel();
            }
        }
        if waiters.len() > 64 {
            let (_, waiter) = waiters.pop_front().unwrap();
            waiter.cancel();
            let _ = waiter.join();
        }
    }
    // Supplies enough for all remaining waiters before the first join. The order in which they are
    // served is unspecified, so a waiter must not depend on a later supply.
    for (kind, waiter) in &waiters {
        match kind {
            0 => {
                semaphore.add_permits(1);
                sent.0 += 1;
            }
            1 | 2 => {
                sender.send(1).unwrap();
                sent.1 += 1;
            }
            3 => {
                *pair.0.lock().unwrap() += 1;
                pair.1.notify_one();
                sent.2 += 1;
            }
            _ => waiter.cancel(),
        }
    }
    for (kind, waiter) in waiters {
        match waiter.join() {
            Ok(()) => {}
            Err(payload) => {
                assert!(payload.is::<kumihimo_runtime::cancel::Cancelled>(), "kind {kind}")
            }
        }
    }
    assert!(!pair.0.is_poisoned());
    assert_eq!(semaphore.available_permits() as u64 + acquired.load(Ordering::SeqCst), sent.0);
    assert_eq!(receiver.try_iter().sum::<u64>() + received.load(Ordering::SeqCst), sent.1);
    assert_eq!(*pair.0.lock().unwrap() + taken.load(Ordering::SeqCst), sent.2);
    assert!(slow_receiver.try_recv().is_err());
    assert!(mailbox.try_receive().is_err());
}

#[test]
fn cancelled_arm_runs_instead_of_unwinding() {
    if !microprocesses("cancelled_arm_runs_instead_of_unwinding") {
        return;
    }
    let (_sender, receiver) = mpsc::channel::<()>();
    let waiting = Arc::new(AtomicBool::new(false));
    let told = waiting.clone();
    let t = thread::spawn(move || {
        told.store(true, Ordering::SeqCst);
        select! { recv(receiver) -> _ => 1, cancelled => 2 }
    });
    while !waiting.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    t.cancel();
    assert_eq!(t.join().unwrap(), 2);
}

/// A cancelled microprocess still gets its lock.
#[test]
fn locks_are_no_cancellation_points() {
    let mutex = Arc::new(Mutex::new(0));
    let guard = mutex.lock().unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mutex = mutex.clone();
            let t = thread::spawn(move || *mutex.lock().unwrap() += 1);
            t.cancel();
            t
        })
        .collect();
    drop(guard);
    threads.into_iter().for_each(|t| drop(t.join()));
    assert!(!mutex.is_poisoned());
    assert!(*mutex.lock().unwrap() <= 4);
}

fn at(priority: u8) -> thread::Builder {
    thread::Builder::new().priority(Priority::new(priority).unwrap())
}

/// Waiters are served by priority, regardless of the order in which they queued.
#[test]
fn waiters_are_served_by_priority() {
    if !microprocesses("waiters_are_served_by_priority") {
        return;
    }
    let semaphore = Arc::new(Semaphore::new(0));
    let (sender, receiver) = mpsc::channel();
    let queued = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = [10u8, 40, 20, 50, 30]
        .into_iter()
        .map(|p| {
            let (semaphore, sender, counted) = (semaphore.clone(), sender.clone(), queued.clone());
            at(p)
                .spawn(move || {
                    counted.fetch_add(1, Ordering::SeqCst);
                    semaphore.acquire().forget();
                    sender.send(p).unwrap();
                })
                .unwrap()
        })
        .collect();
    // One permit at a time, once all are queued: each waiter gets its permit before the next permit
    // is added.
    while queued.load(Ordering::SeqCst) < 5 || !all_parked(&semaphore) {
        std::thread::yield_now();
    }
    let order: Vec<u8> = (0..5)
        .map(|_| {
            semaphore.add_permits(1);
            receiver.recv().unwrap()
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(order, [50, 40, 30, 20, 10]);
}

/// Whether five threads wait: the `Debug` output of the semaphore contains their number.
fn all_parked(semaphore: &Semaphore) -> bool {
    format!("{semaphore:?}").contains("waiting: 5")
}
