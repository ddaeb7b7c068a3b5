//! A microprocess that does not enter the runtime is preempted, without effects on its results.

mod bad_input;
// AddressSanitizer's allocator has its own spin locks in the program, and a holder could be
// preempted.
#[cfg(not(kumihimo_asan))]
mod fire;
mod loops;
#[path = "../gates/pair.rs"]
#[allow(dead_code)]
mod pair;
