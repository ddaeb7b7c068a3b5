//! Condition variables.

use std::time::{Duration, Instant};

use kumihimo::sync::{Arc, Condvar, Mutex};

use crate::Beside;
use crate::beside::behaviours;

const SOON: Duration = Duration::from_millis(5);
const NEVER: Duration = Duration::from_secs(3600);

behaviours!(
    notify_one_ends_a_wait,
    notify_all_ends_every_wait,
    wait_frees_the_mutex,
    wait_holds_the_mutex_again,
    wait_while_ends_with_the_condition,
    wait_while_of_a_false_condition_never_waits,
    wait_times_out,
    wait_of_no_time_returns,
    notified_wait_has_not_timed_out,
    wait_timeout_while_times_out,
    wait_timeout_while_ends_with_the_condition,
    notification_without_waiters_is_lost,
    wait_reports_poison,
    condvar_formats_as_in_std,
);

type Shared = Arc<(Mutex<u32>, Condvar)>;

fn shared() -> Shared {
    Arc::default()
}

/// Sets the value, with or without the lock held during the notification.
fn set(shared: &Shared, value: u32, all: bool) {
    *shared.0.lock().unwrap() = value;
    if all { shared.1.notify_all() } else { shared.1.notify_one() }
}

fn notify_one_ends_a_wait(beside: Beside) {
    let here = shared();
    let there = here.clone();
    let mut guard = here.0.lock().unwrap();
    let notifies = beside.spawn(move || set(&there, 1, false));
    while *guard == 0 {
        guard = here.1.wait(guard).unwrap();
    }
    assert_eq!(*guard, 1);
    drop(guard);
    notifies.result();
}

fn notify_all_ends_every_wait(beside: Beside) {
    let here = shared();
    let waits: Vec<_> = (0..4)
        .map(|_| {
            let there = here.clone();
            beside.spawn(move || {
                let mut guard = there.0.lock().unwrap();
                *guard += 1;
                there.1.notify_all();
                while *guard < 100 {
                    guard = there.1.wait(guard).unwrap();
                }
                *guard
            })
        })
        .collect();
    let guard = here.1.wait_while(here.0.lock().unwrap(), |n| *n < 4).unwrap();
    drop(guard);
    set(&here, 100, true);
    assert!(waits.into_iter().all(|one| one.result() == 100));
}

fn wait_frees_the_mutex(beside: Beside) {
    let here = shared();
    let there = here.clone();
    let guard = here.0.lock().unwrap();
    // It cannot take the lock before the wait has begun.
    let counts = beside.spawn(move || set(&there, 8, false));
    let guard = here.1.wait_while(guard, |n| *n != 8).unwrap();
    drop(guard);
    counts.result();
}

fn wait_holds_the_mutex_again(beside: Beside) {
    let here = shared();
    let there = here.clone();
    let guard = here.0.lock().unwrap();
    let notifies = beside.spawn(move || set(&there, 1, false));
    let guard = here.1.wait_while(guard, |n| *n == 0).unwrap();
    let there = here.clone();
    assert!(beside.spawn(move || there.0.try_lock().is_err()).result(), "it is held");
    drop(guard);
    notifies.result();
}

fn wait_while_ends_with_the_condition(beside: Beside) {
    let here = shared();
    let there = here.clone();
    let notifies = beside.spawn(move || (1..=20).for_each(|n| set(&there, n, true)));
    let guard = here.1.wait_while(here.0.lock().unwrap(), |n| *n < 20).unwrap();
    assert_eq!(*guard, 20);
    drop(guard);
    notifies.result();
}

fn wait_while_of_a_false_condition_never_waits(_: Beside) {
    let here = shared();
    let mut asked = 0;
    let guard = here.0.lock().unwrap();
    let guard = here
        .1
        .wait_while(guard, |_| {
            asked += 1;
            false
        })
        .unwrap();
    assert_eq!((*guard, asked), (0, 1));
}

fn wait_times_out(_: Beside) {
    let here = shared();
    let mut guard = here.0.lock().unwrap();
    let begun = Instant::now();
    loop {
        // A wait may end without a cause, as in std.
        let (again, waited) = here.1.wait_timeout(guard, SOON).unwrap();
        guard = again;
        if waited.timed_out() {
            break;
        }
    }
    assert!(begun.elapsed() >= SOON, "it does not end early");
    assert_eq!(*guard, 0);
}

fn wait_of_no_time_returns(_: Beside) {
    let here = shared();
    let guard = here.0.lock().unwrap();
    assert!(here.1.wait_timeout(guard, Duration::ZERO).unwrap().1.timed_out());
}

fn notified_wait_has_not_timed_out(beside: Beside) {
    let here = shared();
    let there = here.clone();
    let mut guard = here.0.lock().unwrap();
    let notifies = beside.spawn(move || set(&there, 1, false));
    while *guard == 0 {
        let waited;
        (guard, waited) = here.1.wait_timeout(guard, NEVER).unwrap();
        assert!(!waited.timed_out());
    }
    drop(guard);
    notifies.result();
}

fn wait_timeout_while_times_out(_: Beside) {
    let here = shared();
    let guard = here.0.lock().unwrap();
    let (guard, waited) = here.1.wait_timeout_while(guard, SOON, |n| *n == 0).unwrap();
    assert!(waited.timed_out() && *guard == 0);
}

fn wait_timeout_while_ends_with_the_condition(beside: Beside) {
    let here = shared();
    let there = here.clone();
    let guard = here.0.lock().unwrap();
    let notifies = beside.spawn(move || set(&there, 3, true));
    let (guard, waited) = here.1.wait_timeout_while(guard, NEVER, |n| *n == 0).unwrap();
    assert!(!waited.timed_out() && *guard == 3);
    drop(guard);
    notifies.result();
}

fn notification_without_waiters_is_lost(_: Beside) {
    let here = shared();
    here.1.notify_one();
    here.1.notify_all();
    let guard = here.0.lock().unwrap();
    let (_guard, waited) = here.1.wait_timeout_while(guard, SOON, |n| *n == 0).unwrap();
    assert!(waited.timed_out());
}

fn wait_reports_poison(beside: Beside) {
    let here = shared();
    let there = here.clone();
    let guard = here.0.lock().unwrap();
    let panics = beside.spawn(move || {
        let mut guard = there.0.lock().unwrap();
        *guard = 1;
        there.1.notify_all();
        std::panic::resume_unwind(Box::new(()));
    });
    let poisoned = here.1.wait_while(guard, |n| *n == 0).map(drop);
    assert!(poisoned.is_err() && panics.join().is_err());
}

fn condvar_formats_as_in_std(_: Beside) {
    let of_std = std::sync::Condvar::new();
    assert_eq!(format!("{:?}", Condvar::new()), format!("{of_std:?}"));
}
