use super::*;

#[test]
fn thread_that_runs_may_wake() {
    // This one. The main thread of the test program waits for it.
    assert!(may_wake(|_| false));
}
