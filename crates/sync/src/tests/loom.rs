//! loom models: `RUSTFLAGS="--cfg loom" cargo test -p kumihimo-sync --release --lib loom`. The
//! parker for loom treats a deadline as passed, so a wait with a deadline explores the race between
//! time-out and wake-up.

use crate::channel::chan::{Chan, WaitError};
use crate::init::once::Once;
use crate::lock::rawmutex::RawMutex;
use crate::lock::rawrwlock::RawRwLock;
use crate::semaphore::Semaphore;
use crate::{Barrier, Condvar, Mutex, msg};
use ::loom::cell::UnsafeCell;
use ::loom::sync::Arc;
use ::loom::sync::atomic::{AtomicUsize, Ordering};
use ::loom::thread;
use std::time::Instant;

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = ::loom::model::Builder::new();
    // Overrides the environment: with a bound of three the larger models take many minutes.
    builder.preemption_bound = Some(2);
    builder.max_branches = 50_000;
    builder.check(f);
}

struct Counted<L> {
    lock: L,
    data: UnsafeCell<usize>,
}

// SAFETY: the models access `data` only under `lock`, which is the property under test.
unsafe impl<L: Sync> Sync for Counted<L> {}
// SAFETY: as above.
unsafe impl<L: Send> Send for Counted<L> {}

impl<L> Counted<L> {
    fn new(lock: L) -> Arc<Counted<L>> {
        Arc::new(Counted { lock, data: UnsafeCell::new(0) })
    }
    fn add(&self) {
        // SAFETY: loom reports concurrent accesses.
        self.data.with_mut(|data| unsafe { *data += 1 });
    }
    fn get(&self) -> usize {
        // SAFETY: loom reports concurrent writes.
        self.data.with(|data| unsafe { *data })
    }
}

fn locked(shared: &Counted<RawMutex>) {
    shared.lock.lock();
    shared.add();
    // SAFETY: locked above.
    unsafe { shared.lock.unlock() };
}

#[test]
fn mutex_excludes_three_lockers() {
    model(|| {
        let shared = Counted::new(RawMutex::new());
        let others: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || locked(&shared))
            })
            .collect();
        locked(&shared);
        others.into_iter().for_each(|t| t.join().unwrap());
        shared.lock.lock();
        assert_eq!(shared.get(), 3);
    });
}

/// The main thread locks repeatedly, so the other thread is passed over and then handed the lock.
#[test]
fn mutex_hands_over_to_a_waiter_passed_over() {
    model(|| {
        let shared = Counted::new(RawMutex::new());
        let other = shared.clone();
        let other = thread::spawn(move || locked(&other));
        for _ in 0..3 {
            locked(&shared);
        }
        other.join().unwrap();
        shared.lock.lock();
        assert_eq!(shared.get(), 4);
    });
}

/// A waiter that times out passes its wake-up on to the next waiter.
#[test]
fn mutex_time_out_passes_wake_up_on() {
    model(|| {
        let shared = Counted::new(RawMutex::new());
        let (a, b) = (shared.clone(), shared.clone());
        shared.lock.lock();
        let a = thread::spawn(move || {
            if a.lock.lock_until(Instant::now()) {
                a.add();
                // SAFETY: locked above.
                unsafe { a.lock.unlock() };
            }
        });
        let b = thread::spawn(move || locked(&b));
        shared.add();
        // SAFETY: locked above.
        unsafe { shared.lock.unlock() };
        a.join().unwrap();
        b.join().unwrap();
        assert!(shared.lock.try_lock());
    });
}

#[test]
fn rwlock_excludes_writers_and_downgrades() {
    model(|| {
        let shared = Counted::new(RawRwLock::new());
        let (a, b) = (shared.clone(), shared.clone());
        let a = thread::spawn(move || {
            a.lock.write(None);
            a.add();
            // SAFETY: locked above.
            unsafe { a.lock.unlock_write() };
        });
        let b = thread::spawn(move || {
            b.lock.read(None);
            assert!(b.get() <= 2);
            // SAFETY: locked above.
            unsafe { b.lock.unlock_read() };
        });
        shared.lock.write(None);
        shared.add();
        // SAFETY: locked above.
        unsafe { shared.lock.downgrade() };
        assert!(shared.get() >= 1);
        // SAFETY: locked above, for reading now.
        unsafe { shared.lock.unlock_read() };
        a.join().unwrap();
        b.join().unwrap();
        assert!(shared.lock.try_write());
        assert_eq!(shared.get(), 2);
    });
}

/// A reader queued behind a writer gets the lock when the writer times out.
#[test]
fn rwlock_writer_time_out_admits_reader() {
    model(|| {
        let shared = Counted::new(RawRwLock::new());
        let (a, b) = (shared.clone(), shared.clone());
        shared.lock.read(None);
        let a = thread::spawn(move || {
            if a.lock.write(Some(Instant::now())) {
                a.add();
                // SAFETY: locked above.
                unsafe { a.lock.unlock_write() };
            }
        });
        let b = thread::spawn(move || {
            b.lock.read(None);
            // SAFETY: locked above.
            unsafe { b.lock.unlock_read() };
        });
        // SAFETY: locked above.
        unsafe { shared.lock.unlock_read() };
        a.join().unwrap();
        b.join().unwrap();
        assert!(shared.lock.try_write());
    });
}

#[test]
fn once_runs_closure_once() {
    model(|| {
        let shared = Counted::new(Once::new());
        let others: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.lock.call_once(|| shared.add());
                    assert_eq!(shared.get(), 1);
                })
            })
            .collect();
        shared.lock.wait();
        assert_eq!(shared.get(), 1);
        others.into_iter().for_each(|t| t.join().unwrap());
    });
}

#[test]
fn semaphore_with_one_permit_excludes() {
    model(|| {
        let shared = Counted::new(Semaphore::new(1));
        let (a, b) = (shared.clone(), shared.clone());
        let a = thread::spawn(move || {
            let _permit = a.lock.acquire();
            a.add();
        });
        let b = thread::spawn(move || {
            if let Some(_permit) = b.lock.acquire_until(Instant::now()) {
                b.add();
            }
        });
        {
            let _permit = shared.lock.acquire();
            shared.add();
        }
        a.join().unwrap();
        b.join().unwrap();
        assert_eq!(shared.lock.available_permits(), 1);
        let _permit = shared.lock.acquire();
        assert!((2..=3).contains(&shared.get()));
    });
}

#[test]
fn condvar_notification_reaches_a_waiter() {
    model(|| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let (a, b) = (shared.clone(), shared.clone());
        let a = thread::spawn(move || {
            let mut items = a.1.wait_while(a.0.lock().unwrap(), |items| *items == 0).unwrap();
            *items -= 1;
        });
        // This waiter may consume the notification; it leaves the item and notifies the next
        // waiter.
        let b = thread::spawn(move || {
            let (items, result) = b.1.wait_until(b.0.lock().unwrap(), Instant::now()).unwrap();
            if !result.timed_out() && *items > 0 {
                b.1.notify_one();
            }
        });
        *shared.0.lock().unwrap() += 1;
        shared.1.notify_one();
        a.join().unwrap();
        b.join().unwrap();
        assert_eq!(*shared.0.lock().unwrap(), 0);
    });
}

#[test]
fn barrier_time_out_leaves_the_round() {
    model(|| {
        let shared = Arc::new(Barrier::new(2));
        let (a, b) = (shared.clone(), shared.clone());
        let a = thread::spawn(move || a.wait().is_leader());
        let b = thread::spawn(move || b.wait_until(Instant::now()).map(|r| r.is_leader()));
        // Either `a` and `b` met, or `b` timed out and the main thread takes its place.
        let (a, b) = match b.join().unwrap() {
            Some(b) => (a.join().unwrap(), b),
            None => {
                let mine = shared.wait().is_leader();
                (a.join().unwrap(), mine)
            }
        };
        assert!(a != b);
    });
}

fn channel<T>(bound: usize) -> Arc<Chan<T>> {
    Arc::new(Chan::new(bound))
}

#[test]
fn rendezvous_channel_delivers_every_message() {
    model(|| {
        let chan = channel(0);
        let (a, b) = (chan.clone(), chan.clone());
        chan.add_sender();
        let senders = [(a, 1), (b, 2)].map(|(chan, n)| {
            thread::spawn(move || {
                assert!(chan.send(n, None).is_ok());
                chan.drop_sender();
            })
        });
        let mut sum = 0;
        while let Ok(n) = chan.recv(None) {
            sum += n;
        }
        assert_eq!(sum, 3);
        senders.into_iter().for_each(|t| t.join().unwrap());
    });
}

#[test]
fn channel_time_out_loses_no_message() {
    model(|| {
        let chan = channel(1);
        let other = chan.clone();
        let sender = thread::spawn(move || {
            let sent = [1, 2]
                .into_iter()
                .filter(|&n| other.send(n, Some(Instant::now())).is_ok())
                .sum::<u32>();
            other.drop_sender();
            sent
        });
        let mut got = chan.recv(Some(Instant::now())).unwrap_or(0);
        while let Ok(n) = chan.recv(None) {
            got += n;
        }
        assert_eq!(sender.join().unwrap(), got);
    });
}

/// A waiter in the lock's word times out while another thread takes it from the word.
#[test]
fn rendezvous_time_out_agrees_on_both_sides() {
    model(|| {
        let chan = channel(0);
        let other = chan.clone();
        let sender = thread::spawn(move || other.send(1, Some(Instant::now())).is_ok());
        let got = chan.recv(Some(Instant::now())).is_ok();
        assert_eq!(sender.join().unwrap(), got);
        assert!(
            matches!(chan.recv(Some(Instant::now())), Err(WaitError::TimedOut(()))),
            "the channel is idle again"
        );
    });
}

/// The receiver is dropped while a sender waits: each message is received or returned to the
/// sender.
#[test]
fn channel_close_returns_unreceived_message() {
    model(|| {
        let chan = channel(0);
        let other = chan.clone();
        let sender = thread::spawn(move || (0..2).filter(|_| other.send((), None).is_ok()).count());
        let got = usize::from(chan.recv(None).is_ok());
        chan.drop_receiver();
        assert_eq!((sender.join().unwrap(), got), (1, 1));
    });
}

#[test]
fn select_takes_one_message() {
    model(|| {
        let (a, from_a) = crate::channel::mpmc::sync_channel::<u32>(0);
        let (b, from_b) = crate::channel::mpmc::sync_channel::<u32>(0);
        let sent = Arc::new(AtomicUsize::new(0));
        let others = [a, b].map(|sender| {
            let sent = sent.clone();
            thread::spawn(move || {
                if sender.send(1).is_ok() {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let n = crate::select! { recv(from_a) -> n => n, recv(from_b) -> n => n };
        assert_eq!(n, Ok(1));
        drop((from_a, from_b));
        others.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(sent.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn message_time_out_loses_no_request() {
    model(|| {
        let (address, mailbox) = msg::mailbox::<u32, u32>();
        let impatient = address.clone();
        let a = thread::spawn(move || impatient.send_recv_until(1, Instant::now()));
        let b = thread::spawn(move || address.send_recv(2));
        let mut served = Vec::new();
        let mut next = mailbox.receive();
        while let Ok(msg::Request { message, from }) = next {
            served.push(message);
            next = mailbox.reply_and_receive(from, message + 10);
        }
        match a.join().unwrap() {
            Ok(reply) => assert_eq!(reply, 11),
            Err(msg::SendRecvError::Timeout(back)) => {
                assert_eq!(back.is_none(), served.contains(&1))
            }
            Err(e) => panic!("{e}"),
        }
        assert_eq!(b.join().unwrap(), Ok(12));
        assert!(served.contains(&2));
    });
}
