//! One that runs on without entering the runtime is preempted, and notices nothing of it.

mod bad_input;
// The sanitizer's allocator has spin locks of its own, in the program itself, where one is
// preempted with them.
#[cfg(not(kumihimo_asan))]
mod fire;
mod loops;
#[path = "../gates/pair.rs"]
#[allow(dead_code)]
mod pair;
