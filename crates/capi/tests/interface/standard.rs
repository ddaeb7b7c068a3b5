//! kumihimo.hpp, and the example in C++, which also runs under AddressSanitizer.

use std::process::Command;

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

/// Whether OpenSSL 3 can be linked. Reports the test as skipped if not.
fn has_openssl(test: &str) -> bool {
    if !has(test, "pkg-config") {
        return false;
    }
    let mut asks = Command::new("pkg-config");
    let found = asks.args(["--exists", "openssl >= 3.0"]).status().is_ok_and(|s| s.success());
    if !found {
        kumihimo_tests::skip(test, "no OpenSSL 3 here: apt-get install libssl-dev");
    }
    found
}

/// Builds the example with further flags, and runs it with 10,000 threads.
fn run_sessions(test: &str, compiler: &str, flags: &[&str], environment: &[(&str, &str)]) {
    let place = Place::new(&format!("{test}-{compiler}"));
    let source = kumihimo_tests::root().join("examples/c/sessions.cpp");
    let flags = [&STRICT_CPP[..], &["-O1"], flags].concat();
    let libraries = ["-lssl", "-lcrypto"];
    let Some(mut built) = build(compiler, &flags, &source, test, &place, &libraries) else {
        return;
    };
    let said = done(built.envs(environment.iter().copied())).stdout;
    let said = String::from_utf8(said).expect("UTF-8");
    assert!(
        said.contains("10000 sessions on ") && said.contains("100 TLS connections: done"),
        "{said}"
    );
    let threads = said.split(" on ").nth(1).and_then(|rest| rest.split(' ').next());
    let threads: usize = threads.and_then(|number| number.parse().ok()).expect("a number");
    assert!(threads < 100, "{said}");
}

#[test]
fn sessions_keep_what_belongs_to_a_thread() {
    let test = "standard::sessions_keep_what_belongs_to_a_thread";
    if has_openssl(test) {
        COMPILERS.iter().for_each(|compiler| run_sessions(test, compiler, &[], &[]));
    }
}

/// The allocator of AddressSanitizer has a spin lock, and a holder that is preempted has the others
/// spin until their quanta are over. Stacks and pools live for ever, and are no roots to the leak
/// scanner.
#[test]
fn sessions_run_under_address_sanitizer() {
    let test = "standard::sessions_run_under_address_sanitizer";
    if !has_openssl(test) {
        return;
    }
    for compiler in COMPILERS {
        let place = Place::new(&format!("{test}-{compiler}-probe"));
        let probe = place.0.join("probe.cpp");
        std::fs::write(&probe, "int main() {}\n").expect("room");
        let mut compile = Command::new(compiler);
        compile.arg("-fsanitize=address").arg("-o").arg(place.0.join("probe")).arg(&probe);
        if !compile.output().is_ok_and(|output| output.status.success()) {
            kumihimo_tests::skip(test, &format!("{compiler} cannot link AddressSanitizer here"));
            continue;
        }
        let environment = [("ASAN_OPTIONS", "detect_leaks=0"), ("KUMI_PREEMPT", "off")];
        run_sessions(test, compiler, &["-fsanitize=address"], &environment);
    }
}
