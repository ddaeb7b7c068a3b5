//! Tests of `Row::ring`.

use super::super::*;

/// Other address spaces do not claim the wake-up, so the VP's own address space still can.
#[test]
fn remote_waker_does_not_claim_descriptor_sleep() {
    let row = Row::private(2);
    row.cells.iter().for_each(|cell| cell.prepare_sleep(SleepMode::Descriptors));
    for _ in 0..2 {
        assert_eq!(row.ring(Caller::Anywhere, || 0), RingOutcome::Unreachable);
        assert_eq!(row.cells[0].claim_wake_remote(), Some(SleepMode::Descriptors));
    }
    assert_eq!(row.cells[0].claim_wake(), Some(SleepMode::Descriptors));
}

#[test]
fn wakeable_vps_are_preferred() {
    let row = Row::private(3);
    row.cells.iter().for_each(|cell| cell.set_core(1));
    row.cells.iter().for_each(|cell| cell.prepare_sleep(SleepMode::Descriptors));
    row.cells[1].prepare_sleep(SleepMode::Futex);
    row.cells[1].set_core(2);
    assert_eq!(row.ring(Caller::Waits(1), || 0), RingOutcome::Woken);
    assert_eq!(row.cells[1].claim_wake(), None);
    // The woken VP counts as awake and will check.
    assert_eq!(row.ring(Caller::Waits(1), || 0), RingOutcome::Awake);
}
