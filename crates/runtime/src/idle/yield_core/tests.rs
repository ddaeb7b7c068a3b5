use super::*;

#[test]
fn yields_to_computing_threads_back_off() {
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
fn fruitless_yields_are_retried_rarely() {
    let yield_core = YieldCore::default();
    for _ in 0..CREDIT {
        assert!(yield_core.is_due(0));
        assert!(!yield_core.note_duration(300, 0), "no other thread ran");
        yield_core.note_result(false);
    }
    let tried = (0..10 * SELDOM).filter(|_| yield_core.is_due(0)).count();
    assert_eq!(tried, 10);
    yield_core.note_result(true);
    assert!(yield_core.is_due(0) && yield_core.is_due(0), "yields bring work again");
    assert!(yield_core.note_duration(AT_ONCE, 0), "another thread ran and may send a request");
}
