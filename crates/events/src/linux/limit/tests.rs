use super::*;

#[test]
fn default_limit_is_positive_and_names_its_source() {
    let limit = Limit::of_machine();
    assert!((1..=MOST as usize).contains(&limit.threads), "{limit}");
    assert_eq!(limit.threads == MOST as usize, limit.source == LimitSource::Nothing, "{limit}");
}

#[test]
fn display_names_the_source() {
    let of =
        Limit { threads: 3, source: LimitSource::Group { path: "/g".into(), most: 9, has: 6 } };
    assert_eq!(of.to_string(), "3 kernel threads (pids.max of /g: 9, of which 6 are in use)");
    assert_eq!(Limit::asked(7, "a test").to_string(), "7 kernel threads (a test)");
}
