use super::*;

#[test]
fn computing_peers_are_yielded_to_ever_more_rarely() {
    let yield_core = YieldCore::default();
    let mut now = 1;
    for rest in [20, 40, 80, 160] {
        assert!(yield_core.is_due(now));
        assert!(!yield_core.note_duration(3_000_000, now));
        yield_core.note_result(true);
        assert!(!yield_core.is_due(now + rest * 1_000_000 - 1));
        now += rest * 1_000_000;
    }
    for _ in 0..20 {
        yield_core.note_duration(LATE + 1, now);
    }
    assert!(!yield_core.is_due(now + LONGEST_REST - 1) && yield_core.is_due(now + LONGEST_REST));
}

#[test]
fn where_nothing_comes_it_is_tried_now_and_then() {
    let yield_core = YieldCore::default();
    for _ in 0..CREDIT {
        assert!(yield_core.is_due(0));
        assert!(!yield_core.note_duration(300, 0), "nobody ran");
        yield_core.note_result(false);
    }
    let tried = (0..10 * SELDOM).filter(|_| yield_core.is_due(0)).count();
    assert_eq!(tried, 10);
    yield_core.note_result(true);
    assert!(yield_core.is_due(0) && yield_core.is_due(0), "something comes again");
    assert!(yield_core.note_duration(AT_ONCE, 0), "others ran, and may be about to ask");
}
