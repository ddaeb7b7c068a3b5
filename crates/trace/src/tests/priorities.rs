//! Priority inversions, and the step at which each is counted.

use super::*;

#[test]
fn asked_vp_is_blamed_for_each_step_it_keeps_an_item() {
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
    // The low microprocess starts at 1 us, and each record is 1 us later than the previous one. The
    // first of these steps ends at 12.
    assert_eq!((kept.from, kept.to), (12_000, 12_000 + BOUND * 2_000));
    // A larger bound is not exceeded.
    let trace = script.trace(2).0;
    let verdict = |bound| super::report(&trace, Some(bound)).verdict();
    assert_eq!((verdict(BOUND), verdict(BOUND + 1)), (Verdict::Violated, Verdict::Holds));
}

#[test]
fn unasked_inversion_counts_once_all_vps_have_stepped() {
    // Steps of VP 0 alone prove nothing, because VP 1 may not have read its level yet.
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
    // A third VP took no step in that time.
    assert_eq!((steps(&script.report(3).kept), script.report(3).verdict()), (0, Verdict::Holds));
}

#[test]
fn vp_asked_once_is_blamed_until_the_inversion_ends() {
    let mut script = inverted();
    script.step(0, Some((2, 9)), Some(9), 0).step(0, Some((2, 9)), Some(9), ASKED);
    (0..BOUND).for_each(|_| _ = script.step(0, Some((2, 9)), Some(9), 0));
    let report = script.report(2);
    assert_eq!((steps(&report.kept), report.verdict()), (BOUND + 1, Verdict::Violated), "{report}");
}

#[test]
fn one_of_two_vps_with_equal_levels_is_blamed() {
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
fn vp_in_the_middle_of_a_step_is_not_counted() {
    // VP 1 has no core, so what it runs is unknown.
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
    // Once VP 1 is known to still run the low microprocess, the inversion counts.
    script.add(1, Record { id: 1, level: 3, ..Record::new(Kind::Settled) });
    script.step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 1);
}

#[test]
fn overridden_vp_is_not_counted_until_its_next_step() {
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
fn waiting_item_that_outranks_the_running_one_is_missed() {
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
    // Equal levels take turns, and items given away count for another VP.
    for (flags, waits) in [(0, 1), (GIVEN, 5)] {
        let report = missed(flags, waits);
        assert_eq!((report.missed.clone(), report.verdict()), (None, Verdict::Holds), "{report}");
    }
}

#[test]
fn inversion_ends_when_no_lower_level_runs() {
    let mut script = inverted();
    for _ in 0..6 {
        script.step(0, Some((2, 9)), Some(9), ASKED).step(0, Some((2, 9)), Some(9), ASKED);
        // VP 1 idles, so no lower microprocess runs before the high one. When the low one runs
        // again, a new inversion starts.
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
fn sent_item_counts_for_its_target_vp() {
    let mut script = inverted();
    script.sent(1, 3, 9);
    for _ in 0..50 {
        script.step(0, Some((2, 9)), Some(9), ASKED);
    }
    // VP 1 has not received the microprocess yet, however many steps it takes.
    (0..50).for_each(|_| _ = script.step(1, Some((1, 3)), None, 0));
    script.step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 0);
    // Two steps after the microprocess is in the injector, it runs or waits on VP 1, or is gone.
    script.put(1, 3).step(1, Some((1, 3)), None, 0).step(1, Some((1, 3)), None, 0);
    script.step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 1);
    // If it is sent on, it counts for the other VP.
    let mut script = inverted();
    script.sent(1, 3, 9).sent(0, 3, 9).step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 1);
}
