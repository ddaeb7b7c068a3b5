use super::*;

#[test]
fn repeated_rest_keeps_the_state() {
    let watchdog = Watchdog::new(1, 2);
    for rests in [true, true, false, false, true] {
        watchdog.rest(2, rests);
        assert_eq!(watchdog.rests[2].load(Ordering::Relaxed) & 1 == 1, rests);
    }
}
