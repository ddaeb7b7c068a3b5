use super::super::rows::ROWS;
use super::super::statistics::Interval;
use super::*;

fn compared(row: usize, low: f64, median: f64, high: f64, verdict: Verdict) -> Outcome {
    let interval = Interval { low, median, high };
    let comparison =
        Comparison { base: 10.0, new: 10.0 * median, interval, verdict, instructions: None };
    Outcome { row: ROWS[row], pairs: 15, cut_short: false, result: Ok(comparison) }
}

fn uncompared(row: usize, why: Uncompared) -> Outcome {
    Outcome { row: ROWS[row], pairs: 0, cut_short: false, result: Err(why) }
}

fn same(row: usize) -> Outcome {
    compared(row, 0.99, 1.0, 1.01, Verdict::Same)
}

fn report(named: bool, outcomes: Vec<Outcome>) -> Report {
    Report {
        base: "1234 a".into(),
        new: "5678 b".into(),
        notes: vec!["idle".into()],
        named,
        outcomes,
    }
}

#[test]
fn check_passes_when_all_rows_are_the_same() {
    let report = report(false, (0..20).map(same).collect());
    assert_eq!(report.failures(), Vec::<String>::new());
    assert!(report.markdown().ends_with("Passed.\n"));
    assert!(report.plain().contains("20 of 20 rows decided (12 have to be)"));
}

#[test]
fn regressed_and_drifted_rows_fail_by_name() {
    let mut outcomes: Vec<Outcome> = (0..20).map(same).collect();
    outcomes[0] = compared(0, 1.04, 1.05, 1.06, Verdict::Regressed);
    outcomes[1] = compared(1, 0.9, 1.2, 1.5, Verdict::Drifted);
    let failures = report(false, outcomes).failures();
    assert_eq!(failures.len(), 2);
    assert!(
        failures[0].starts_with("yield: ") && failures[0].contains("1.040..1.060"),
        "{failures:?}"
    );
    assert!(failures[1].starts_with("fork: ") && failures[1].contains("1.200"), "{failures:?}");
}

#[test]
fn fewer_than_twelve_decided_rows_fail_unless_rows_were_named() {
    let wide = |row| compared(row, 0.9, 1.0, 1.1, Verdict::Undecided);
    let outcomes = |decided: usize| {
        (0..20).map(|row| if row < decided { same(row) } else { wide(row) }).collect()
    };
    assert_eq!(report(false, outcomes(12)).failures(), Vec::<String>::new());
    let failures = report(false, outcomes(11)).failures();
    assert!(failures[0].contains("only 11 of 20") && failures[0].contains("idle"), "{failures:?}");
    assert_eq!(report(true, outcomes(0)).failures(), Vec::<String>::new());
    assert!(report(true, outcomes(0)).plain().contains("rows were named"));
}

#[test]
fn skipped_rows_are_counted_and_named_and_not_decided() {
    let mut outcomes: Vec<Outcome> = (0..20).map(same).collect();
    outcomes[3] = uncompared(3, Uncompared::Skipped("no such benchmark".into()));
    outcomes[4] = uncompared(4, Uncompared::Refused("no FUSE".into()));
    let report = report(false, outcomes);
    assert!(report.failures().is_empty());
    let text = report.plain();
    for part in [
        "1 skipped, because BASE does not have them: message",
        "1 skipped, because this machine cannot measure them: sieve",
        "sieve: no FUSE",
        "18 of 20 rows decided",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn failed_and_unmeasured_rows_fail() {
    let outcomes = vec![
        uncompared(0, Uncompared::Failed("new: died".into())),
        uncompared(1, Uncompared::Unmeasured),
    ];
    let failures = report(true, outcomes).failures();
    assert_eq!(failures.len(), 2);
    assert!(
        failures[0].contains("yield: new: died") && failures[1].contains("fork"),
        "{failures:?}"
    );
}

#[test]
fn row_without_fifteen_pairs_fails_for_want_of_time_only() {
    let mut one = compared(0, 1.0, 1.0, 1.0, Verdict::Undecided);
    one.pairs = 9;
    // As many as were asked for, to try the row out.
    assert!(report(true, vec![one.clone()]).failures().is_empty());
    one.cut_short = true;
    let failures = report(true, vec![one]).failures();
    assert!(failures[0].starts_with("yield: ") && failures[0].contains("9 pairs"), "{failures:?}");
}

#[test]
fn undecided_rows_are_named() {
    let mut outcomes: Vec<Outcome> = (0..20).map(same).collect();
    outcomes[8] = compared(8, 0.9, 1.0, 1.1, Verdict::Undecided);
    outcomes[8].cut_short = true;
    let text = report(false, outcomes).markdown();
    assert!(
        text.contains("1 undecided: echo-p99")
            && text.contains("because the time was over: echo-p99"),
        "{text}"
    );
}

#[test]
fn instructions_are_reported_if_counted() {
    let mut one = same(0);
    if let Ok(comparison) = &mut one.result {
        comparison.instructions = Some((41.5, 42.0));
    }
    assert!(report(true, vec![one]).plain().contains("41.50 42.00"));
}

#[test]
fn figures_have_four_digits() {
    for (value, text) in
        [(0.0, "0"), (0.012345, "0.01235"), (12.3456, "12.35"), (123_456.7, "123457")]
    {
        assert_eq!(figure(value), text);
    }
}
