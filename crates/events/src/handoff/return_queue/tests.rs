use super::*;
use std::sync::Arc;

/// Longer than any test runs.
const SECONDS: u64 = 1_000_000_000_000;

#[test]
fn waiter_receives_the_vp_that_is_handed_over() {
    let waiter = Arc::new(Waiter::new());
    let generation = waiter.begin(Some(0)).expect("a new entry");
    let other = waiter.clone();
    let picker = std::thread::spawn(move || {
        assert_eq!(other.offer(generation), Offer::Accepted);
        other.hand(8);
    });
    assert!(waiter.wait(|| poll_interval(1), || false));
    assert_eq!(waiter.token(), 8);
    picker.join().expect("no panic");
}

#[test]
fn poll_rate_does_not_depend_on_the_number_of_waiters() {
    const SECOND: u64 = 1_000_000_000;
    for waiters in [1, 10, 100, 1_000, 100_000] {
        let polls = waiters as u64 * SECOND / poll_interval(waiters);
        assert_eq!(polls, 500, "{waiters} waiters");
    }
    assert_eq!(poll_interval(0), POLL_INTERVAL);
}

#[test]
fn released_waiter_continues_without_a_vp() {
    let waiter = Arc::new(Waiter::new());
    let generation = waiter.begin(Some(1)).expect("a new entry");
    waiter.release(0);
    assert!(!waiter.is_detached(), "the wait is for another VP");
    let other = waiter.clone();
    let thread = std::thread::spawn(move || other.wait(|| SECONDS, || false));
    waiter.release(1);
    assert!(!thread.join().expect("no panic"));
    assert!(waiter.is_detached() && waiter.offer(generation) == Offer::EntryDropped);
    // This wait names no VP, so that no stall ends it.
    let generation = waiter.begin(None).expect("a new entry");
    waiter.release(1);
    assert!(
        !waiter.is_detached()
            && waiter.give_up()
            && waiter.offer(generation) == Offer::EntryDropped
    );
    // The waiter is released, and its entry is dropped before it runs.
    let generation = waiter.begin(Some(1)).expect("a new entry");
    waiter.release(1);
    assert!(waiter.offer(generation) == Offer::EntryDropped && !waiter.wait(|| SECONDS, || false));
}

#[test]
fn stuck_waiter_continues_and_its_entry_is_dropped_once() {
    let waiter = Waiter::new();
    let generation = waiter.begin(Some(0)).expect("a new entry");
    assert!(!waiter.wait(|| poll_interval(1), || true));
    assert_eq!(waiter.begin(Some(0)), None, "the entry is still queued");
    assert!(!waiter.wait(|| poll_interval(1), || true));
    assert_eq!(waiter.offer(generation), Offer::EntryDropped);
    let generation = waiter.begin(Some(0)).expect("the entry was dropped");
    assert!(!waiter.wait(|| poll_interval(1), || true));
    assert!(waiter.leave(), "the entry is that of the microprocess now");
    assert_eq!(waiter.offer(generation), Offer::Switchable);
}

/// The next microprocess on the thread must not accept an offer for the former one.
#[test]
fn left_entry_does_not_count_for_the_next_wait() {
    let waiter = Waiter::new();
    let left = waiter.begin(Some(0)).expect("a new entry");
    assert!(waiter.give_up() && waiter.leave());
    let next = waiter.begin(Some(0)).expect("a new entry");
    assert_eq!(waiter.offer(left), Offer::Switchable);
    assert!(waiter.give_up());
    assert_eq!(waiter.offer(left), Offer::Switchable);
    assert!(waiter.is_detached());
    assert_eq!(waiter.offer(next), Offer::EntryDropped);
}
