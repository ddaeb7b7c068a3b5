use super::*;

#[test]
fn one_that_rests_is_seen_to_even_if_it_says_so_twice() {
    let watchdog = Watchdog::new(1, 2);
    for rests in [true, true, false, false, true] {
        watchdog.rest(2, rests);
        assert_eq!(watchdog.rests[2].load(Ordering::Relaxed) & 1 == 1, rests);
    }
}
