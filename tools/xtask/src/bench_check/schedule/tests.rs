use super::super::rows::choose;
use super::super::statistics::Random;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn rows(names: &[&str]) -> Vec<Row> {
    choose(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap()
}

/// A sample with the same value for every metric of every row.
fn sample(value: f64) -> Sample {
    let metrics =
        super::super::rows::ROWS.iter().map(|row| (row.metric.to_owned(), value)).collect();
    Sample { metrics, instructions: None }
}

fn plenty() -> Budget {
    Budget::new(1_000_000 * SECOND)
}

#[test]
fn builds_alternate_after_a_discarded_round() {
    let mut seen = Vec::new();
    run(&rows(&["yield"]), 4, &mut plenty(), &mut |_, side, pair| {
        seen.push((side, pair));
        (Ok(sample(1.0)), SECOND)
    });
    use Side::{Base, New};
    assert_eq!(seen[..2], [(Base, None), (New, None)]);
    let order: Vec<Side> = seen[2..10].iter().map(|(side, _)| *side).collect();
    assert_eq!(order, [Base, New, New, Base, Base, New, New, Base]);
    assert_eq!(seen[9].1, Some(3));
}

#[test]
fn equal_builds_are_decided_after_fifteen_pairs() {
    let mut random = Random(1);
    let outcomes =
        run(&rows(&["yield", "echo-rate", "echo-cpu"]), 15, &mut plenty(), &mut |_, _, _| {
            (Ok(sample(100.0 + random.below(100) as f64 / 100.0)), SECOND)
        });
    for outcome in outcomes {
        let comparison = outcome.result.unwrap();
        assert_eq!((outcome.pairs, comparison.verdict), (15, Verdict::Same));
        assert!(!outcome.cut_short);
    }
}

#[test]
fn slower_build_is_found() {
    let outcomes = run(&rows(&["yield", "mutex"]), 15, &mut plenty(), &mut |_, side, _| {
        (Ok(sample(if side == Side::New { 110.0 } else { 100.0 })), SECOND)
    });
    // For the rate of `mutex`, the same change is a gain.
    let verdicts: Vec<Verdict> =
        outcomes.iter().map(|one| one.result.as_ref().unwrap().verdict).collect();
    assert_eq!(verdicts, [Verdict::Regressed, Verdict::Improved]);
}

/// Values with so much noise that no number of pairs narrows the interval to 6 %.
fn scattered(random: &mut Random) -> Sample {
    sample(100.0 + random.below(1_000) as f64)
}

#[test]
fn undecided_row_gets_sixty_pairs_and_a_quiet_one_fifteen() {
    let mut random = Random(3);
    let outcomes = run(&rows(&["yield", "fork"]), 15, &mut plenty(), &mut |program, _, _| {
        let noisy = program.is_same(rows(&["fork"])[0].program);
        (Ok(if noisy { scattered(&mut random) } else { sample(1.0) }), SECOND)
    });
    assert_eq!(outcomes.iter().map(|one| one.pairs).collect::<Vec<_>>(), [15, 60]);
    assert!(!outcomes[1].result.as_ref().unwrap().verdict.is_decided());
}

#[test]
fn fewer_pairs_than_fifteen_are_not_extended() {
    let outcomes =
        run(&rows(&["yield"]), 2, &mut plenty(), &mut |_, _, _| (Ok(sample(1.0)), SECOND));
    assert_eq!(outcomes[0].pairs, 2);
    assert!(!outcomes[0].cut_short);
}

#[test]
fn spent_budget_ends_further_pairs_and_names_the_rows_cut_short() {
    let mut random = Random(5);
    let mut budget = Budget::new(100 * SECOND);
    let outcomes = run(&rows(&["yield", "fork"]), 15, &mut budget, &mut |_, _, _| {
        (Ok(scattered(&mut random)), SECOND)
    });
    assert_eq!(budget.spent(), 100 * SECOND);
    // 4 of 100 measurements are discarded, the rest are 24 pairs of two rows.
    for outcome in &outcomes {
        assert_eq!(outcome.pairs, 24);
        assert!(outcome.cut_short && !outcome.result.as_ref().unwrap().verdict.is_decided());
    }
}

#[test]
fn budget_below_fifteen_pairs_decides_nothing() {
    let mut budget = Budget::new(20 * SECOND);
    let outcomes =
        run(&rows(&["yield"]), 15, &mut budget, &mut |_, _, _| (Ok(sample(1.0)), SECOND));
    assert_eq!(outcomes[0].pairs, 9);
    assert_eq!(outcomes[0].result.as_ref().unwrap().verdict, Verdict::Undecided);
    let mut budget = Budget::new(SECOND);
    let outcomes =
        run(&rows(&["yield"]), 15, &mut budget, &mut |_, _, _| (Ok(sample(1.0)), SECOND));
    assert_eq!(outcomes[0].result.as_ref().unwrap_err(), &Uncompared::Unmeasured);
}

fn failing(side: Side, trouble: &Trouble) -> Uncompared {
    let outcomes = run(&rows(&["yield"]), 15, &mut plenty(), &mut |_, of, pair| {
        let fails = of == side && pair.is_none_or(|pair| pair == 3);
        (if fails { Err(trouble.clone()) } else { Ok(sample(1.0)) }, SECOND)
    });
    outcomes[0].result.as_ref().unwrap_err().clone()
}

#[test]
fn row_that_base_lacks_is_skipped() {
    let missing = Trouble::Missing("no such benchmark".into());
    assert_eq!(failing(Side::Base, &missing), Uncompared::Skipped("no such benchmark".into()));
    assert_eq!(failing(Side::New, &missing), Uncompared::Failed("new: no such benchmark".into()));
}

#[test]
fn row_that_the_machine_refuses_is_refused_only_if_base_is_refused() {
    let refused = Trouble::Refused("no FUSE".into());
    assert_eq!(failing(Side::Base, &refused), Uncompared::Refused("no FUSE".into()));
    assert_eq!(failing(Side::New, &refused), Uncompared::Failed("new: no FUSE".into()));
}

#[test]
fn row_fails_when_a_build_fails_in_the_middle() {
    let mut runs = 0;
    let outcomes = run(&rows(&["yield", "fork"]), 15, &mut plenty(), &mut |program, side, pair| {
        let dies =
            program.is_same(rows(&["yield"])[0].program) && side == Side::New && pair == Some(7);
        runs += 1;
        (if dies { Err(Trouble::Failed("died".into())) } else { Ok(sample(1.0)) }, SECOND)
    });
    assert_eq!(outcomes[0].result.as_ref().unwrap_err(), &Uncompared::Failed("new: died".into()));
    // The other row is still measured.
    assert_eq!(outcomes[1].pairs, 15);
    // One row has sixteen pairs. The other has the discarded pair, seven pairs, and in the eighth
    // pair the new build only, which is first there.
    assert_eq!(runs, 2 * 16 + 2 * 8 + 1);
}

#[test]
fn missing_metric_or_a_value_of_zero_is_no_sample() {
    let outcome = |of: Sample| {
        run(&rows(&["yield"]), 15, &mut plenty(), &mut |_, _, _| (Ok(of.clone()), SECOND))
            .remove(0)
            .result
            .unwrap_err()
    };
    assert!(
        matches!(outcome(Sample::default()), Uncompared::Skipped(why) if why.contains("switch"))
    );
    assert!(matches!(outcome(sample(0.0)), Uncompared::Failed(why) if why.contains("switch is 0")));
}

#[test]
fn rows_of_one_program_take_one_run() {
    let mut runs = 0;
    run(&rows(&["echo-rate", "echo-p99", "echo-cpu"]), 15, &mut plenty(), &mut |_, _, _| {
        runs += 1;
        (Ok(sample(1.0)), SECOND)
    });
    assert_eq!(runs, 2 * 16);
}

#[test]
fn instructions_are_compared_where_both_builds_have_them() {
    let outcomes = run(&rows(&["yield"]), 15, &mut plenty(), &mut |_, side, _| {
        let instructions = Some(if side == Side::New { 52.0 } else { 50.0 });
        (Ok(Sample { instructions, ..sample(1.0) }), SECOND)
    });
    assert_eq!(outcomes[0].result.as_ref().unwrap().instructions, Some((50.0, 52.0)));
}
