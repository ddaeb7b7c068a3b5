//! C and C++ programs of `programs`, each run plainly and by `kumi run`. Both runs have to agree,
//! and the program's own checks have to hold.

use crate::bed::{Built, build, counts, run};

/// Runs the program in both ways, and by `kumi run` on one virtual processor and on several. All of
/// its threads have to be microprocesses there.
pub(crate) fn agree(test: &str, source: &str) {
    let Some(built) = Built::new(test, source) else { return };
    runs_agree(test, &built, 0);
}

/// As [`agree`], of a program with so many kernel threads of its own.
fn runs_agree(test: &str, built: &Built, kernel_threads: u64) {
    let plain = run(test, &mut built.plainly());
    assert!(plain.status.success() && plain.stdout == "ok\n", "plainly: {}", plain.told());
    for vps in ["1", "2", "4"] {
        let ended = run(test, &mut built.by_kumi(&["--strict", "--vps", vps]));
        assert_eq!(ended.stdout, plain.stdout, "--vps {vps}: {}", ended.told());
        assert_eq!(ended.status, plain.status, "--vps {vps}: {}", ended.told());
        // A line for each process of the program, and no other one.
        let all_are = |(micro, all)| micro > 0 && micro + kernel_threads == all;
        let is_told = !ended.stderr.is_empty()
            && ended.stderr.lines().all(|line| counts(line).is_some_and(all_are));
        assert!(is_told, "--vps {vps}: {}", ended.told());
    }
}

#[test]
fn values_of_threads_reach_the_joiner() {
    agree("programs::values_of_threads_reach_the_joiner", "join.c");
}

#[test]
fn classes_and_processors_are_read_back_and_inherited() {
    let test = "programs::classes_and_processors_are_read_back_and_inherited";
    let Some(built) = Built::new(test, "scheduling.c") else { return };
    // Those that are created by a thread of another class, or by one that keeps its kernel thread.
    runs_agree(test, &built, 3);
}

#[test]
fn event_loops_wait_in_the_kernel_as_elsewhere() {
    agree("programs::event_loops_wait_in_the_kernel_as_elsewhere", "event_loop.c");
}

#[test]
fn joins_end_at_their_limits() {
    agree("programs::joins_end_at_their_limits", "timed_join.c");
}

#[test]
fn keys_and_cleanup_handlers_belong_to_the_thread() {
    agree("programs::keys_and_cleanup_handlers_belong_to_the_thread", "keys.c");
}

#[test]
fn objects_and_exceptions_belong_to_the_thread() {
    agree("programs::objects_and_exceptions_belong_to_the_thread", "objects.cpp");
}

#[test]
fn mutexes_of_each_kind_exclude() {
    agree("programs::mutexes_of_each_kind_exclude", "mutex.c");
}

#[test]
fn condition_variable_may_go_after_a_broadcast() {
    agree("programs::condition_variable_may_go_after_a_broadcast", "condition.c");
}

#[test]
fn writers_progress_beside_readers() {
    agree("programs::writers_progress_beside_readers", "rwlock.c");
}

#[test]
fn writer_is_preferred_on_request() {
    agree("programs::writer_is_preferred_on_request", "prefers_writers.c");
}

#[test]
fn barrier_has_one_serial_thread_a_round() {
    agree("programs::barrier_has_one_serial_thread_a_round", "barrier.c");
}

#[test]
fn holder_of_a_spin_lock_may_sleep() {
    agree("programs::holder_of_a_spin_lock_may_sleep", "spin.c");
}

#[test]
fn semaphores_pass_units_on() {
    agree("programs::semaphores_pass_units_on", "semaphore.c");
}

#[test]
fn futex_waits_and_wakes() {
    agree("programs::futex_waits_and_wakes", "futex.c");
}

#[test]
fn c11_threads_and_locks_work() {
    agree("programs::c11_threads_and_locks_work", "c11.c");
}

#[test]
fn sleeps_are_never_too_short() {
    agree("programs::sleeps_are_never_too_short", "sleep.c");
}

#[test]
fn threads_run_before_and_after_main() {
    agree("programs::threads_run_before_and_after_main", "before_main.cpp");
}

#[test]
fn stacks_of_the_program_are_used() {
    agree("programs::stacks_of_the_program_are_used", "stacks.c");
}

#[test]
fn names_and_numbers_belong_to_the_thread() {
    agree("programs::names_and_numbers_belong_to_the_thread", "names.c");
}

#[test]
fn rounding_modes_and_masks_belong_to_the_thread() {
    agree("programs::rounding_modes_and_masks_belong_to_the_thread", "state.c");
}

#[test]
fn overflow_is_caught_by_the_program_s_own_handler() {
    agree("programs::overflow_is_caught_by_the_program_s_own_handler", "overflow.c");
}

#[test]
fn thousand_threads_live_at_once() {
    agree("programs::thousand_threads_live_at_once", "thousand.c");
}

#[test]
fn forty_threads_block_in_calls_of_the_kernel() {
    agree("programs::forty_threads_block_in_calls_of_the_kernel", "blocked.c");
}

#[test]
fn child_of_a_fork_goes_on() {
    agree("programs::child_of_a_fork_goes_on", "fork.c");
}

#[test]
fn handlers_of_a_fork_may_wait() {
    agree("programs::handlers_of_a_fork_may_wait", "fork_handlers.c");
}

#[test]
fn endless_loops_are_preempted() {
    agree("programs::endless_loops_are_preempted", "loops.c");
}

#[test]
fn cpu_clocks_belong_to_the_thread() {
    agree("programs::cpu_clocks_belong_to_the_thread", "clocks.c");
}

#[test]
fn contexts_of_the_program_switch() {
    agree("programs::contexts_of_the_program_switch", "contexts.c");
}

#[test]
fn objects_of_two_processes_are_shared() {
    agree("programs::objects_of_two_processes_are_shared", "shared.c");
}

#[test]
fn library_that_is_loaded_late_has_variables_of_each_thread() {
    let test = "programs::library_that_is_loaded_late_has_variables_of_each_thread";
    let Some(built) = Built::new(test, "late.c") else { return };
    let library = built.place.0.join("late.so");
    if build(test, "late_library.c", &["-shared", "-fPIC"], &library).is_some() {
        runs_agree(test, &built, 0);
    }
}

#[test]
fn times_and_clocks_that_are_none_are_refused() {
    agree("programs::times_and_clocks_that_are_none_are_refused", "bad_times.c");
}

#[test]
fn sockets_wait_as_the_program_says() {
    agree("programs::sockets_wait_as_the_program_says", "sockets.c");
}

#[test]
fn connections_are_made_refused_and_timed_out() {
    agree("programs::connections_are_made_refused_and_timed_out", "connections.c");
}

#[test]
fn messages_and_refusals_are_those_of_the_kernel() {
    agree("programs::messages_and_refusals_are_those_of_the_kernel", "messages.c");
}

#[test]
fn child_that_shares_memory_closes_its_own_descriptors() {
    agree("programs::child_that_shares_memory_closes_its_own_descriptors", "child_closes.c");
}

#[test]
fn one_of_several_descriptors_is_waited_for() {
    agree("programs::one_of_several_descriptors_is_waited_for", "several.c");
}

/// Every other thread has a set of processors in its attributes.
#[test]
fn kernel_threads_and_microprocesses_share_objects() {
    let test = "programs::kernel_threads_and_microprocesses_share_objects";
    let Some(built) = Built::new(test, "mixed.c") else { return };
    runs_agree(test, &built, 4);
}

/// The C library refuses it while the memory of the thread is there.
#[test]
fn detached_thread_that_has_ended_is_not_joined() {
    agree("programs::detached_thread_that_has_ended_is_not_joined", "late_join.c");
}

/// A kernel thread may take longer than usual to answer the one that blocks its signals.
#[test]
fn signals_are_blocked_beside_a_stopped_thread() {
    agree("programs::signals_are_blocked_beside_a_stopped_thread", "masks.c");
}
