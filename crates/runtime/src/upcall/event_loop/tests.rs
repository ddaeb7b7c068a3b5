use super::*;

/// Returns the number of waits after which the loop leaves, where every `shared`th one is shared
/// and each takes `each` nanoseconds.
fn waits(shared: u64, each: u64) -> Option<u64> {
    let own = EventLoop::new();
    (1..10_000_u64).find(|n| own.count(!n.is_multiple_of(shared), || n * each))
}

#[test]
fn loop_that_waits_often_with_nobody_else_leaves() {
    assert_eq!(waits(u64::MAX, 1_000), Some(64));
    // memcached: a thread that sleeps for a millisecond runs at every sixteenth wait.
    assert!(waits(16, 60_000).is_some_and(|n| n < 120));
}

#[test]
fn loop_that_shares_its_vp_or_waits_seldom_stays() {
    assert_eq!(waits(2, 1_000), None);
    assert_eq!(waits(5, 1_000), None);
    assert_eq!(waits(u64::MAX, 5_000_000), None);
}
