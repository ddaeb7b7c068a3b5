use super::*;

fn interval(low: f64, median: f64, high: f64) -> Interval {
    Interval { low, median, high }
}

#[test]
fn narrow_interval_around_one_is_the_same() {
    let near = interval(0.98, 1.0, 1.02);
    for better in [Better::Lower, Better::Higher] {
        assert_eq!(judge(better, &near, PAIRS), Verdict::Same);
    }
    // A proven loss of less than 3 % does not fail.
    assert_eq!(judge(Better::Lower, &interval(1.01, 1.02, 1.029), PAIRS), Verdict::Same);
    assert_eq!(judge(Better::Lower, &interval(1.02, 1.05, 1.079), PAIRS), Verdict::Same);
}

#[test]
fn interval_wholly_above_the_limit_fails_a_time() {
    assert_eq!(judge(Better::Lower, &interval(1.031, 1.05, 1.06), PAIRS), Verdict::Regressed);
    assert_eq!(judge(Better::Lower, &interval(1.5, 2.0, 2.5), PAIRS), Verdict::Regressed);
    assert!(Verdict::Regressed.fails() && Verdict::Regressed.is_decided());
}

#[test]
fn interval_wholly_below_the_limit_fails_a_rate() {
    let lower = interval(0.94, 0.95, 0.969);
    assert_eq!(judge(Better::Higher, &lower, PAIRS), Verdict::Regressed);
    assert_eq!(judge(Better::Lower, &lower, PAIRS), Verdict::Improved);
    assert_eq!(judge(Better::Higher, &interval(1.04, 1.05, 1.06), PAIRS), Verdict::Improved);
}

#[test]
fn wide_interval_is_undecided_until_its_median_drifts() {
    assert_eq!(judge(Better::Lower, &interval(0.95, 1.05, 1.2), MOST_PAIRS), Verdict::Undecided);
    assert_eq!(judge(Better::Lower, &interval(1.0, 1.11, 1.2), MOST_PAIRS), Verdict::Drifted);
    assert_eq!(judge(Better::Higher, &interval(0.8, 0.91, 1.0), MOST_PAIRS), Verdict::Undecided);
    assert_eq!(judge(Better::Higher, &interval(0.8, 0.89, 1.0), MOST_PAIRS), Verdict::Drifted);
    assert!(!Verdict::Undecided.fails() && Verdict::Drifted.fails());
    assert!(!Verdict::Undecided.is_decided() && !Verdict::Drifted.is_decided());
}

#[test]
fn median_far_on_the_better_side_does_not_drift() {
    assert_eq!(judge(Better::Lower, &interval(0.5, 0.7, 1.1), MOST_PAIRS), Verdict::Undecided);
    assert_eq!(judge(Better::Higher, &interval(0.9, 1.3, 1.6), MOST_PAIRS), Verdict::Undecided);
}

#[test]
fn too_few_pairs_decide_nothing() {
    assert_eq!(judge(Better::Lower, &interval(1.0, 1.0, 1.0), PAIRS - 1), Verdict::Undecided);
    assert_eq!(judge(Better::Lower, &interval(2.0, 2.0, 2.0), PAIRS - 1), Verdict::Undecided);
}

#[test]
fn undecided_row_doubles_its_pairs_up_to_sixty() {
    let wide = interval(0.95, 1.0, 1.05);
    assert_eq!(next_stage(Verdict::Undecided, &wide, 15), 30);
    assert_eq!(next_stage(Verdict::Drifted, &wide, 30), 60);
    assert_eq!(next_stage(Verdict::Undecided, &wide, 60), 60);
    assert_eq!(next_stage(Verdict::Undecided, &wide, 20), 40);
    assert_eq!(next_stage(Verdict::Undecided, &wide, 40), 60);
    assert_eq!(next_stage(Verdict::Undecided, &wide, 100), 100);
}

#[test]
fn row_decided_by_a_narrow_interval_gets_no_more_pairs() {
    for verdict in [Verdict::Same, Verdict::Improved, Verdict::Regressed] {
        assert_eq!(next_stage(verdict, &interval(1.04, 1.06, 1.08), 15), 15);
    }
}

#[test]
fn row_decided_by_a_wide_interval_doubles_its_pairs() {
    for verdict in [Verdict::Improved, Verdict::Regressed] {
        assert_eq!(next_stage(verdict, &interval(1.031, 1.068, 1.247), 15), 30);
        assert_eq!(next_stage(verdict, &interval(1.031, 1.068, 1.247), 60), 60);
    }
}
