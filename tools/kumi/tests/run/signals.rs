//! Signals, cancellation and the ends of threads and processes.

use crate::bed::{Built, run};
use crate::programs::agree;

#[test]
fn functions_of_system_v_concern_the_calling_thread() {
    agree("signals::functions_of_system_v_concern_the_calling_thread", "system_v.c");
}

#[test]
fn handlers_end_the_waits_that_the_kernel_would_end() {
    agree("signals::handlers_end_the_waits_that_the_kernel_would_end", "interrupted.c");
}

#[test]
fn handlers_run_on_the_stack_of_their_thread() {
    agree("signals::handlers_run_on_the_stack_of_their_thread", "handlers.c");
}

#[test]
fn signals_of_the_process_find_a_thread() {
    agree("signals::signals_of_the_process_find_a_thread", "process_signals.c");
}

#[test]
fn waiting_first_thread_handles_what_another_received() {
    agree("signals::waiting_first_thread_handles_what_another_received", "restarted.c");
}

#[test]
fn handlers_may_post_and_write_at_any_time() {
    agree("signals::handlers_may_post_and_write_at_any_time", "storm.c");
}

#[test]
fn handlers_do_not_pile_up_on_the_stack() {
    agree("signals::handlers_do_not_pile_up_on_the_stack", "piled.c");
}

#[test]
fn thousand_threads_stop_by_signals() {
    agree("signals::thousand_threads_stop_by_signals", "world.c");
}

#[test]
fn waits_are_cancelled() {
    agree("signals::waits_are_cancelled", "cancelled.c");
}

#[test]
fn cancelled_thread_runs_destructors() {
    agree("signals::cancelled_thread_runs_destructors", "unwound.cpp");
}

#[test]
fn last_thread_ends_the_process() {
    const TEST: &str = "signals::last_thread_ends_the_process";
    let Some(built) = Built::new(TEST, "last.c") else { return };
    // Its children, which are forked while threads exist, have kernel threads.
    let ended = run(TEST, &mut built.by_kumi(&[]));
    assert!(ended.status.success() && ended.stdout == "ok\n", "{}", ended.told());
}

#[test]
fn first_thread_may_leave_before_the_others() {
    agree("signals::first_thread_may_leave_before_the_others", "leaves.c");
}

#[test]
fn end_of_the_owner_of_a_robust_mutex_is_told() {
    agree("signals::end_of_the_owner_of_a_robust_mutex_is_told", "robust.c");
}
