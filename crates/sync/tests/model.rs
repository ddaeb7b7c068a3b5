//! Checks each type against a sequential model, with random sequences of non-blocking operations by
//! one thread.
#![cfg(not(loom))]

use kumihimo_sync::mpsc::{TryRecvError, TrySendError};
use kumihimo_sync::{
    Condvar, Mutex, Once, OnceLock, RwLock, RwLockWriteGuard, Semaphore, mpmc, mpsc, msg, select,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// A channel behaves as a queue with a bound.
    #[test]
    fn channel_matches_bounded_queue(bound in 0usize..5, ops in prop::collection::vec((0u8..7, any::<u16>()), 0..300)) {
        let (sender, receiver) = mpmc::sync_channel(bound);
        let (mut sender, mut receiver) = (Some(sender), Some(receiver));
        let mut queue = VecDeque::new();
        for (op, n) in ops {
            match (op, &sender, &receiver) {
                (0 | 1, Some(s), r) => {
                    let expected = if r.is_none() {
                        Err(TrySendError::Disconnected(n))
                    } else if queue.len() < bound {
                        queue.push_back(n);
                        Ok(())
                    } else {
                        Err(TrySendError::Full(n))
                    };
                    prop_assert_eq!(s.try_send(n), expected);
                }
                (2 | 3, s, Some(r)) => {
                    let none = if s.is_some() { TryRecvError::Empty } else { TryRecvError::Disconnected };
                    prop_assert_eq!(r.try_recv(), queue.pop_front().ok_or(none));
                }
                (4, Some(s), Some(r)) => {
                    // A select takes one of the ready arms and does not wait.
                    let taken = select! {
                        send(s, n) -> sent => { sent.unwrap(); 1 }
                        recv(r) -> got => { prop_assert_eq!(got.ok(), queue.pop_front()); 2 }
                        default => 0,
                    };
                    match taken {
                        1 => { prop_assert!(queue.len() < bound); queue.push_back(n) }
                        2 => {}
                        _ => prop_assert!(bound == 0),
                    }
                }
                (5, Some(s), Some(r)) => {
                    prop_assert_eq!(s.send_timeout(n, Duration::ZERO).is_ok(), queue.len() < bound);
                    if queue.len() < bound { queue.push_back(n) }
                    prop_assert_eq!(r.recv_timeout(Duration::ZERO).ok(), queue.pop_front());
                }
                (6, ..) if n < 4_000 => {
                    if n % 2 == 0 { sender = None } else { receiver = None; queue.clear() }
                }
                _ => {}
            }
            if let Some(r) = &receiver {
                prop_assert_eq!(r.len(), queue.len());
            }
        }
    }

    /// An unbounded channel keeps the order over several blocks.
    #[test]
    fn unbounded_channel_keeps_order(runs in prop::collection::vec((0usize..400, 0usize..400), 0..10)) {
        let (sender, receiver) = mpsc::channel();
        let (mut sent, mut got) = (0usize, 0usize);
        for (send, recv) in runs {
            for _ in 0..send {
                sender.send(sent).unwrap();
                sent += 1;
            }
            for n in receiver.try_iter().take(recv) {
                prop_assert_eq!(n, got);
                got += 1;
            }
        }
        drop(sender);
        prop_assert!(receiver.into_iter().eq(got..sent));
    }

    #[test]
    fn semaphore_matches_counter(start in 0usize..6, ops in prop::collection::vec((0u8..5, 0usize..4), 0..200)) {
        let semaphore = Semaphore::new(start);
        let (mut free, mut held) = (start, Vec::new());
        for (op, n) in ops {
            match op {
                0 | 1 => {
                    let permit = match op {
                        0 => semaphore.try_acquire_many(n),
                        _ => semaphore.acquire_many_until(n, Instant::now()),
                    };
                    prop_assert_eq!(permit.is_some(), n <= free);
                    if let Some(permit) = permit {
                        free -= n;
                        held.push(permit);
                    }
                }
                2 => { semaphore.add_permits(n); free += n }
                3 => if let Some(permit) = held.pop() { free += permit.count() },
                _ => if let Some(permit) = held.pop() { permit.forget() },
            }
            prop_assert_eq!(semaphore.available_permits(), free);
        }
    }

    /// Readers, writer and poison behave as in the model.
    #[test]
    fn rwlock_matches_model(ops in prop::collection::vec(0u8..8, 0..100)) {
        let lock = RwLock::new(0u32);
        let (mut readers, mut writer) = (Vec::new(), None);
        let (mut value, mut poisoned) = (0, false);
        for op in ops {
            match op {
                0 | 1 => {
                    let free = writer.is_none();
                    // A caller that holds the write lock gets a panic from `read_until`, so that is
                    // called only if the lock is free.
                    let guard = if op == 0 || !free { lock.try_read() } else { lock.read_until(Instant::now()) };
                    match guard {
                        Ok(guard) => { prop_assert!(free && !poisoned); prop_assert_eq!(*guard, value); readers.push(guard) }
                        Err(kumihimo_sync::TryLockError::Poisoned(e)) => { prop_assert!(free && poisoned); readers.push(e.into_inner()) }
                        Err(kumihimo_sync::TryLockError::WouldBlock) => prop_assert!(!free),
                    }
                }
                2 => {
                    let free = writer.is_none() && readers.is_empty();
                    match lock.try_write() {
                        Ok(guard) => { prop_assert!(free && !poisoned); writer = Some(guard) }
                        Err(kumihimo_sync::TryLockError::Poisoned(e)) => { prop_assert!(free && poisoned); writer = Some(e.into_inner()) }
                        Err(kumihimo_sync::TryLockError::WouldBlock) => prop_assert!(!free),
                    }
                }
                3 => drop(readers.pop()),
                4 => writer = None,
                5 => if let Some(guard) = &mut writer { **guard += 1; value += 1 },
                6 => if let Some(guard) = writer.take() { readers.push(RwLockWriteGuard::downgrade(guard)) },
                _ => if let Some(guard) = writer.take() {
                    let _ = catch_unwind(AssertUnwindSafe(|| { let _guard = guard; std::panic::resume_unwind(Box::new(())) }));
                    poisoned = true;
                },
            }
            prop_assert_eq!(lock.is_poisoned(), poisoned);
        }
    }

    #[test]
    fn mutex_and_condvar_match_model(ops in prop::collection::vec(0u8..7, 0..100)) {
        let (mutex, condvar) = (Mutex::new(0u32), Condvar::new());
        let (mut held, mut value, mut poisoned) = (None, 0, false);
        for op in ops {
            let free = held.is_none();
            match op {
                0 => match mutex.try_lock() {
                    Ok(guard) => { prop_assert!(free && !poisoned); prop_assert_eq!(*guard, value); held = Some(guard) }
                    Err(kumihimo_sync::TryLockError::Poisoned(e)) => { prop_assert!(free && poisoned); held = Some(e.into_inner()) }
                    Err(kumihimo_sync::TryLockError::WouldBlock) => prop_assert!(!free),
                },
                1 => held = None,
                2 => if let Some(guard) = &mut held { **guard += 1; value += 1 },
                3 => {
                    // Without a waiter, a notification has no effect.
                    condvar.notify_one();
                    condvar.notify_all();
                }
                4 => if let Some(guard) = held.take() {
                    let (guard, result) = condvar.wait_until(guard, Instant::now()).unwrap_or_else(|e| e.into_inner());
                    prop_assert!(result.timed_out());
                    held = Some(guard);
                },
                5 => { mutex.clear_poison(); poisoned = false }
                _ => if let Some(guard) = held.take() {
                    let _ = catch_unwind(AssertUnwindSafe(|| { let _guard = guard; std::panic::resume_unwind(Box::new(())) }));
                    poisoned = true;
                },
            }
            prop_assert_eq!(mutex.is_poisoned(), poisoned);
        }
    }

    #[test]
    fn once_and_oncelock_match_model(ops in prop::collection::vec(0u8..6, 0..40)) {
        let (once, mut cell) = (Once::new(), OnceLock::new());
        let (mut complete, mut poisoned, mut value) = (false, false, None);
        for (n, op) in ops.into_iter().enumerate() {
            let mut ran = false;
            match op {
                0 => {
                    let result = catch_unwind(AssertUnwindSafe(|| once.call_once(|| ran = true)));
                    prop_assert_eq!((result.is_ok(), ran), (complete || !poisoned, !complete && !poisoned));
                    complete |= ran;
                }
                1 => {
                    once.call_once_force(|state| { assert_eq!(state.is_poisoned(), poisoned); ran = true });
                    prop_assert_eq!(ran, !complete);
                    complete = true;
                }
                2 => {
                    let _ = catch_unwind(AssertUnwindSafe(|| once.call_once_force(|_| std::panic::resume_unwind(Box::new(())))));
                    poisoned |= !complete;
                }
                3 => {
                    prop_assert_eq!(cell.set(n).is_ok(), value.is_none());
                    value = value.or(Some(n));
                }
                4 => {
                    let _ = catch_unwind(AssertUnwindSafe(|| *cell.get_or_init(|| std::panic::resume_unwind(Box::new(())))));
                }
                _ => prop_assert_eq!(cell.take(), value.take()),
            }
            prop_assert_eq!(once.is_completed(), complete);
            prop_assert_eq!(cell.get().copied(), value);
        }
    }

    /// Without a peer a message returns to the sender, by time-out or at once.
    #[test]
    fn message_without_peer_returns(n in any::<u32>(), gone in any::<bool>()) {
        let (address, mailbox) = msg::mailbox::<u32, ()>();
        let kept = (!gone).then_some(mailbox);
        let expected = if gone { msg::SendRecvError::Closed(n) } else { msg::SendRecvError::Timeout(Some(n)) };
        prop_assert_eq!(address.send_recv_until(n, Instant::now()), Err(expected));
        if let Some(mailbox) = kept {
            prop_assert_eq!(mailbox.try_receive().unwrap_err(), msg::ReceiveError::Empty);
        }
    }
}
