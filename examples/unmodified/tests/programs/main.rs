//! Runs each example with its real peer, and counts its kernel threads while a thousand of its
//! threads wait.

mod built_from;
mod echo;
mod held;
mod http;
mod servers;

use held::Held;

#[test]
fn thousand_threads_wait_in_crossbeam() {
    let mut program = Held::start(env!("CARGO_BIN_EXE_unmodified_crossbeam"), &[]);
    program.assert_waits("1000 waiting in crossbeam");
    assert_eq!(program.release(), "Enter wakes them.\nThe sum of the numbers is 500500.\n");
}

#[test]
fn thousand_threads_wait_in_parking_lot() {
    let mut program = Held::start(env!("CARGO_BIN_EXE_unmodified_parking_lot"), &[]);
    program.assert_waits("1000 waiting in futex");
    assert_eq!(program.release(), "Enter unlocks.\nThe total is 3000.\n");
}

#[test]
fn thousand_jobs_of_rayon_wait() {
    let mut program = Held::start(env!("CARGO_BIN_EXE_unmodified_rayon"), &[]);
    program.assert_waits("1000 waiting in jobs");
    let rest = "Enter ends the jobs.\n1000 threads have computed the sum 500000500000.\n";
    assert_eq!(program.release(), rest);
}
