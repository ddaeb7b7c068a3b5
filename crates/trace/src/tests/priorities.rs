//! Inversions of priority, and the step at which each is counted.

use super::*;

#[test]
fn what_a_vp_was_asked_for_and_keeps_is_counted_in_its_steps() {
    let mut script = inverted();
    for _ in 0..=BOUND {
        script.step(0, Some((2, 9)), Some(9), ASKED);
    }
    let report = script.report(2);
    let kept = report.kept.clone().unwrap();
    assert_eq!(
        (kept.fault, kept.steps, &*kept.vp, kept.level),
        (Fault::Kept, BOUND + 1, "VP 0", 9)
    );
    assert_eq!(kept.behind, ("low #0.microprocess.1.1".to_owned(), "VP 1".to_owned(), 3));
    assert_eq!((report.bound, report.beyond, report.verdict()), (BOUND, 1, Verdict::Violated));
    assert_eq!((report.steps, report.inverted, report.missed), (BOUND + 2, BOUND + 1, None));
    // The low one begins at 1 us, and each record is written 1 us after the one before: the first
    // of these steps ends at 12.
    assert_eq!((kept.from, kept.to), (12_000, 12_000 + BOUND * 2_000));
    // With a bound of its own it holds.
    let trace = script.trace(2).0;
    let verdict = |bound| super::report(&trace, Some(bound)).verdict();
    assert_eq!((verdict(BOUND), verdict(BOUND + 1)), (Verdict::Violated, Verdict::Holds));
}

#[test]
fn one_that_nobody_asks_for_is_counted_when_all_have_stepped() {
    // Steps of VP 0 alone prove nothing: VP 1 may not have seen it yet.
    let mut script = inverted();
    for _ in 0..50 {
        script.step(0, Some((2, 9)), Some(9), 0);
    }
    assert_eq!((steps(&script.report(2).kept), script.report(2).verdict()), (0, Verdict::Holds));
    for _ in 0..=BOUND {
        script.step(1, Some((1, 3)), None, 0);
    }
    script.step(0, Some((2, 9)), Some(9), 0);
    let report = script.report(2);
    assert_eq!(
        (steps(&report.kept), report.beyond, report.verdict()),
        (BOUND + 1, 1, Verdict::Violated),
        "{report}"
    );
    // Of a third VP nothing was heard in that time.
    assert_eq!((steps(&script.report(3).kept), script.report(3).verdict()), (0, Verdict::Holds));
}

#[test]
fn one_that_was_asked_once_is_to_blame_until_it_is_over() {
    let mut script = inverted();
    script.step(0, Some((2, 9)), Some(9), 0).step(0, Some((2, 9)), Some(9), ASKED);
    (0..BOUND).for_each(|_| _ = script.step(0, Some((2, 9)), Some(9), 0));
    let report = script.report(2);
    assert_eq!((steps(&report.kept), report.verdict()), (BOUND + 1, Verdict::Violated), "{report}");
}

#[test]
fn of_two_that_have_the_same_one_is_to_blame() {
    let mut script = inverted();
    for _ in 0..BOUND + 2 {
        (0..3).filter(|vp| *vp != 1).for_each(|vp| _ = script.step(vp, Some((2, 9)), Some(9), 0));
        script.step(1, Some((1, 3)), None, 0);
    }
    script.step(2, Some((2, 9)), Some(9), 0);
    let kept = script.report(3).kept.unwrap();
    assert_eq!((kept.steps, &*kept.vp), (BOUND + 1, "VP 2"));
}

#[test]
fn a_vp_in_the_middle_of_a_step_is_not_counted() {
    // VP 1 has no core: what was told of it is not so any more.
    let mut script = inverted();
    script.add(1, Record::new(Kind::Settles));
    for _ in 0..50 {
        script.step(0, Some((2, 9)), Some(9), ASKED);
    }
    let report = script.report(2);
    assert_eq!(
        (report.inverted, report.kept.clone(), report.verdict()),
        (0, None, Verdict::Holds),
        "{report}"
    );
    // As soon as it is known to run the low one still, it counts.
    script.add(1, Record { id: 1, level: 3, ..Record::new(Kind::Settled) });
    script.step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 1);
}

#[test]
fn a_vp_that_is_overridden_is_not_counted_until_its_next_step() {
    let mut script = inverted();
    script.add(OUTSIDE, Record { arg: 1, ..Record::new(Kind::Overridden) });
    for _ in 0..50 {
        script.step(0, Some((2, 9)), Some(9), ASKED);
    }
    let report = script.report(2);
    assert_eq!(
        (report.inverted, report.kept.clone(), report.verdict()),
        (0, None, Verdict::Holds),
        "{report}"
    );
    script.step(1, Some((1, 3)), None, 0).step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 1);
}

#[test]
fn one_that_outranks_the_running_one_at_the_same_vp_is_missed() {
    let missed = |flags, waits| {
        let mut script = Script::default();
        (1..=2).for_each(|id| _ = script.spawn(0, id, 1, "low"));
        script.switch(0, 1, 1, Cause::None).spawn(0, 3, 5, "high");
        for _ in 0..6 {
            for id in [2, 1] {
                script.switch(0, id, 1, Cause::Yielded).step(0, Some((id, 1)), Some(waits), flags);
            }
        }
        script.report(1)
    };
    let report = missed(0, 5);
    let found = report.missed.clone().unwrap();
    assert_eq!((found.fault, found.steps, found.level, found.behind.2), (Fault::Missed, 12, 5, 1));
    assert_eq!((report.beyond, report.verdict()), (1, Verdict::Violated), "{report}");
    // Equals wait in turn; what is given away is another VP's.
    for (flags, waits) in [(0, 1), (GIVEN, 5)] {
        let report = missed(flags, waits);
        assert_eq!((report.missed.clone(), report.verdict()), (None, Verdict::Holds), "{report}");
    }
}

#[test]
fn an_inversion_ends_when_nobody_below_runs() {
    let mut script = inverted();
    for _ in 0..6 {
        script.step(0, Some((2, 9)), Some(9), ASKED).step(0, Some((2, 9)), Some(9), ASKED);
        // VP 1 idles: nobody runs before the high one. Then the low one is back, and it is a new
        // inversion.
        script.step(1, None, None, 0).step(0, Some((2, 9)), Some(9), ASKED).step(
            1,
            Some((1, 3)),
            None,
            0,
        );
    }
    assert_eq!((steps(&script.report(2).kept), script.report(2).verdict()), (2, Verdict::Holds));
}

#[test]
fn what_is_on_its_way_counts_as_its_vp_s() {
    let mut script = inverted();
    script.sent(1, 3, 9);
    for _ in 0..50 {
        script.step(0, Some((2, 9)), Some(9), ASKED);
    }
    // VP 1 has not got it yet, however many steps it takes.
    (0..50).for_each(|_| _ = script.step(1, Some((1, 3)), None, 0));
    script.step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 0);
    // But two steps after it is in it runs there, or waits there, or is gone.
    script.put(1, 3).step(1, Some((1, 3)), None, 0).step(1, Some((1, 3)), None, 0);
    script.step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 1);
    // Sent on, it counts for the other VP.
    let mut script = inverted();
    script.sent(1, 3, 9).sent(0, 3, 9).step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 1);
}
