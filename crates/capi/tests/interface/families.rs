//! The families of functions, each with a C program below `native`: what they do, and what they
//! return for bad input. A case runs on a kernel thread before the runtime has started, and then on
//! a microprocess.

use std::process::Command;

use crate::build::{STRICT_C, build};
use crate::place::{Place, done, here};

/// Builds the program with each compiler, and runs one of its cases.
fn run(test: &str, program: &str, case: &str) {
    for compiler in ["gcc", "clang"] {
        let place = Place::new(&format!("{test}-{compiler}"));
        let source = here().join(format!("tests/interface/native/{program}.c"));
        let flags = [&STRICT_C[..], &["-D_GNU_SOURCE", "-pthread"]].concat();
        let Some(built) = build(compiler, &flags, &source, test, &place, &[]) else { continue };
        for setting in [("KUMI_VPS", "1"), ("KUMI_VPS", "2"), ("KUMI_EVENTS", "off")] {
            let mut command = Command::new(built.get_program());
            command.envs(built.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command.env(setting.0, setting.1);
            assert_eq!(done(command.arg(case)).stdout, b"all is well\n", "{setting:?}");
        }
    }
}

#[test]
fn locks_exclude_and_wake() {
    run("families::locks_exclude_and_wake", "locks", "work");
}

#[test]
fn null_locks_are_refused() {
    run("families::null_locks_are_refused", "locks", "null");
}

#[test]
fn objects_that_are_not_live_are_refused() {
    run("families::objects_that_are_not_live_are_refused", "locks", "invalid");
}

#[test]
fn times_of_locks_are_checked() {
    run("families::times_of_locks_are_checked", "locks", "times");
}

#[test]
fn only_the_owner_unlocks() {
    run("families::only_the_owner_unlocks", "locks", "owners");
}

#[test]
fn objects_with_waiters_are_not_destroyed() {
    run("families::objects_with_waiters_are_not_destroyed", "locks", "waiters");
}

#[test]
fn last_user_of_a_mutex_may_free_it() {
    run("families::last_user_of_a_mutex_may_free_it", "locks", "last-user");
}

#[test]
fn cancelled_waits_return_and_locks_do_not() {
    run("families::cancelled_waits_return_and_locks_do_not", "locks", "cancellation");
}

#[test]
fn threads_run_and_return() {
    run("families::threads_run_and_return", "threads", "work");
}

#[test]
fn threads_are_joined_once() {
    run("families::threads_are_joined_once", "threads", "joins");
}

#[test]
fn thread_options_are_checked() {
    run("families::thread_options_are_checked", "threads", "options");
}

#[test]
fn times_and_timers_are_checked() {
    run("families::times_and_timers_are_checked", "threads", "times");
}

#[test]
fn cancelled_thread_returns_by_itself() {
    run("families::cancelled_thread_returns_by_itself", "threads", "cancellation");
}

#[test]
fn kernel_threads_may_call() {
    run("families::kernel_threads_may_call", "threads", "kernel-threads");
}

#[test]
fn channels_pass_items() {
    run("families::channels_pass_items", "channels", "work");
}

#[test]
fn channel_arguments_and_ends_are_checked() {
    run("families::channel_arguments_and_ends_are_checked", "channels", "misuse");
}

#[test]
fn sockets_echo() {
    run("families::sockets_echo", "sockets", "work");
}

#[test]
fn socket_arguments_and_ends_are_checked() {
    run("families::socket_arguments_and_ends_are_checked", "sockets", "misuse");
}
