#[test]
fn metric_families_are_unique() {
    let names = super::COUNTERS
        .iter()
        .chain(&super::GAUGES)
        .map(|of| of.0)
        .chain(super::OF_VPS.iter().map(|of| of.0));
    let mut names: Vec<_> = names.collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}
