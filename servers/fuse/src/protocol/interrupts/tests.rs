use super::*;

#[test]
fn interruption_is_reported_once() {
    let interrupts = Interrupts::default();
    assert_eq!(interrupts.check(4), Ok(()));
    interrupts.note(4);
    assert_eq!(interrupts.check(6), Ok(()));
    assert_eq!(interrupts.check(4), Err(Errno::INTR));
    assert_eq!(interrupts.check(4), Ok(()));
}

#[test]
fn oldest_interrupts_are_dropped() {
    let interrupts = Interrupts::default();
    for unique in 0..=MOST as u64 {
        interrupts.note(unique);
    }
    assert_eq!(interrupts.check(0), Ok(()));
    assert_eq!(interrupts.check(1), Err(Errno::INTR));
}
