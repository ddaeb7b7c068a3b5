//! The example of an application's own policy; alone in its process, because it starts a runtime.

#[path = "../examples/earliest_deadline.rs"]
mod earliest_deadline;

#[test]
fn the_earliest_deadline_runs_first() {
    let due: Vec<u64> = (0..200).map(|i| 1_000 + (i * 7_919) % 1_009).collect();
    let mut sorted = due.clone();
    sorted.sort_unstable();
    assert_eq!(earliest_deadline::order(&due).unwrap(), sorted);
}
