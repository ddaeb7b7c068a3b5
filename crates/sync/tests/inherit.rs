//! Priority inheritance through Mutex.
#![cfg(not(loom))]

mod seed;

use kumihimo_policy::Priority;
use kumihimo_runtime::{park, thread};
use kumihimo_sync::Mutex;
use seed::microprocesses;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

fn at<T: Send + 'static>(
    priority: u8,
    f: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    thread::Builder::new().priority(Priority::new(priority).unwrap()).spawn(f).unwrap()
}

/// The caller's effective priority.
fn mine() -> u8 {
    park::current().priority()
}

/// Sleeps repeatedly until the caller's effective priority is `p`. If it never is, the suite's time
/// limit fails the test.
fn until(p: u8) {
    while mine() != p {
        thread::sleep(Duration::from_micros(50));
    }
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_micros(50));
    }
}

/// Starts a microprocess of priority 5 that holds the mutex until it has had each of these
/// priorities in turn. Returns once it holds the mutex.
fn holder(mutex: &Arc<Mutex<()>>, lent: &'static [u8]) -> thread::JoinHandle<()> {
    let held = Arc::new(AtomicBool::new(false));
    let (m, h) = (mutex.clone(), held.clone());
    let holder = at(5, move || {
        let guard = m.lock().unwrap();
        h.store(true, Ordering::SeqCst);
        lent.iter().for_each(|&p| until(p));
        drop(guard);
        assert_eq!(mine(), 5);
    });
    wait_for(&held);
    holder
}

#[test]
fn owner_inherits_while_it_holds() {
    if !microprocesses("owner_inherits_while_it_holds") {
        return;
    }
    let mutex = Arc::new(Mutex::new(()));
    let low = holder(&mutex, &[60]);
    let m = mutex.clone();
    let high = at(60, move || drop(m.lock().unwrap()));
    low.join().unwrap();
    high.join().unwrap();
}

#[test]
fn priority_propagates_along_a_chain() {
    if !microprocesses("priority_propagates_along_a_chain") {
        return;
    }
    let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    let low = holder(&a, &[60]);
    let b_held = Arc::new(AtomicBool::new(false));
    let (m, n, h) = (a.clone(), b.clone(), b_held.clone());
    let middle = at(20, move || {
        let outer = n.lock().unwrap();
        h.store(true, Ordering::SeqCst);
        let inner = m.lock().unwrap();
        assert_eq!(mine(), 60);
        drop(inner);
        assert_eq!(mine(), 60);
        drop(outer);
        assert_eq!(mine(), 20);
    });
    wait_for(&b_held);
    let m = b.clone();
    let high = at(60, move || drop(m.lock().unwrap()));
    for t in [low, middle, high] {
        t.join().unwrap();
    }
}

/// A loan ends with the wait for which it was granted, along the whole chain and also on a
/// time-out. Loans of other waiters stay.
#[test]
fn loan_ends_with_its_wait() {
    if !microprocesses("loan_ends_with_its_wait") {
        return;
    }
    let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    let low = holder(&a, &[60, 40]);
    let (b_held, end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (m, n, h) = (a.clone(), b.clone(), b_held.clone());
    let middle = at(20, move || {
        let _outer = n.lock().unwrap();
        h.store(true, Ordering::SeqCst);
        drop(m.lock().unwrap());
    });
    wait_for(&b_held);
    let (n, over) = (b.clone(), end.clone());
    let brief = at(60, move || {
        while n.lock_timeout(Duration::from_millis(2)).is_err() && !over.load(Ordering::SeqCst) {
            // The next lender may queue before or after the last loan ends: either way the priority
            // passes through 40.
            thread::sleep(Duration::from_millis(2));
        }
    });
    let n = b.clone();
    let steady = at(40, move || drop(n.lock().unwrap()));
    low.join().unwrap();
    end.store(true, Ordering::SeqCst);
    for t in [middle, brief, steady] {
        t.join().unwrap();
    }
}

#[test]
fn loans_of_two_mutexes_end_separately() {
    if !microprocesses("loans_of_two_mutexes_end_separately") {
        return;
    }
    let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    let held = Arc::new(AtomicBool::new(false));
    let (m, n, h) = (a.clone(), b.clone(), held.clone());
    let low = at(5, move || {
        let (first, second) = (m.lock().unwrap(), n.lock().unwrap());
        h.store(true, Ordering::SeqCst);
        until(60);
        // Both waiters must have queued: the lower loan takes effect when the higher loan ends.
        drop(first);
        until(50);
        drop(second);
        assert_eq!(mine(), 5);
    });
    wait_for(&held);
    let (m, n) = (a.clone(), b.clone());
    let others = [at(50, move || drop(n.lock().unwrap())), at(60, move || drop(m.lock().unwrap()))];
    low.join().unwrap();
    others.into_iter().for_each(|t| t.join().unwrap());
}

/// Kernel threads lend with priority 32, but do not borrow.
#[test]
fn kernel_threads_lend_but_do_not_borrow() {
    if !microprocesses("kernel_threads_lend_but_do_not_borrow") {
        return;
    }
    let mutex = Arc::new(Mutex::new(()));
    let low = holder(&mutex, &[32]);
    let m = mutex.clone();
    let lender = std::thread::spawn(move || drop(m.lock().unwrap()));
    low.join().unwrap();
    lender.join().unwrap();
    let guard = mutex.lock().unwrap();
    let m = mutex.clone();
    let high = at(60, move || drop(m.lock().unwrap()));
    assert_eq!(mine(), 32);
    drop(guard);
    high.join().unwrap();
}

/// Many mutexes, priorities and time-outs at once: no microprocess keeps a lent priority.
#[test]
fn no_loan_is_left_over() {
    if !microprocesses("no_loan_is_left_over") {
        return;
    }
    let mutexes: Arc<Vec<Mutex<u64>>> = Arc::new((0..4).map(|_| Mutex::new(0)).collect());
    let done = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..24u8)
        .map(|t| {
            let (mutexes, done) = (mutexes.clone(), done.clone());
            at(t * 2, move || {
                for n in 0..300usize {
                    let (i, j) = (n * 7 % 4, n * 5 % 4);
                    let mut outer = mutexes[i.min(j)].lock().unwrap();
                    *outer += 1;
                    let time = Duration::from_micros(n as u64 % 50);
                    if i != j
                        && n % 3 != 0
                        && let Ok(mut inner) = mutexes[i.max(j)].lock_timeout(time)
                    {
                        *inner += 1;
                        thread::yield_now();
                    }
                    drop(outer);
                    assert_eq!(mine(), t * 2);
                }
                done.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(done.load(Ordering::SeqCst), 24);
}
