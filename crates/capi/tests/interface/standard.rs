//! kumihimo.hpp against the behaviour of the standard library.

use crate::build::{STRICT_CPP, build};
use crate::place::{Place, done, has, here};

const COMPILERS: [&str; 2] = ["g++", "clang++"];

fn run(test: &str, case: &str) {
    for compiler in COMPILERS {
        let place = Place::new(&format!("{test}-{compiler}"));
        let source = here().join("tests/interface/native/standard.cpp");
        let Some(mut built) = build(compiler, &STRICT_CPP, &source, test, &place, &[]) else {
            continue;
        };
        assert_eq!(done(built.arg(case)).stdout, b"all is well\n", "{compiler}");
    }
}

#[test]
fn threads_are_as_in_std() {
    run("standard::threads_are_as_in_std", "threads");
}

#[test]
fn locks_are_as_in_std() {
    run("standard::locks_are_as_in_std", "locks");
}

#[test]
fn conditions_are_as_in_std() {
    run("standard::conditions_are_as_in_std", "conditions");
}

#[test]
fn futures_are_as_in_std() {
    run("standard::futures_are_as_in_std", "futures");
}

#[test]
fn cancelled_waits_throw() {
    run("standard::cancelled_waits_throw", "cancellation");
}
