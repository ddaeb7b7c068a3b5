//! A container without any writable directory, or with little room in it: what needs more says so,
//! the rest works.

use kumihimo::gate::Gate;
use kumihimo::runtime::Runtime;
use kumihimo::thread;
use kumihimo_tests::container::{Container, DEFAULT, USER, is_inside};
use kumihimo_tests::process::has_vps;

/// The line on standard error.
const SAID: &str = "kumihimo: this process is not visible to kumi ps, and has no gates: no run-time \
                    directory (/dev/shm/kumihimo-";

#[test]
fn runtime_without_a_writable_directory_says_so_once() {
    const NAME: &str = "writable::runtime_without_a_writable_directory_says_so_once";
    if !is_inside() && !has_vps(NAME) {
        return;
    }
    for user in [0, USER] {
        let container = Container { user, has_shared_memory: false, has_tmp: false, ..DEFAULT };
        container.run(NAME, no_directory, |ended| {
            let lines: Vec<_> =
                ended.stderr.lines().filter(|line| line.starts_with("kumihimo")).collect();
            let is_it = |line: &str| {
                line.starts_with(SAID)
                    && line.contains("set KUMI_DIR to a writable one (KUMI_DIR=off ")
            };
            assert!(matches!(lines[..], [line] if is_it(line)), "{}", ended.told());
        });
    }
}

fn no_directory() {
    for _ in 0..2 {
        Runtime::builder().build().expect("a runtime").run(|| {
            let all: Vec<_> = (0..10).map(|n| thread::spawn(move || n)).collect();
            let sum: i32 = all.into_iter().map(|one| one.join().expect("no panic")).sum();
            assert_eq!(sum, 45);
            let refused = Gate::serve("nowhere", |n: u64| n).expect_err("no directory");
            let text = refused.to_string();
            assert!(text.contains("KUMI_DIR") && text.contains("/tmp/kumihimo-"), "{text}");
        });
    }
}

/// With `KUMI_DIR=off` the program has asked for no directory.
#[test]
fn runtime_that_asks_for_no_directory_says_nothing() {
    const NAME: &str = "writable::runtime_that_asks_for_no_directory_says_nothing";
    let container = Container { has_shared_memory: false, has_tmp: false, ..DEFAULT };
    let body = || {
        Runtime::builder()
            .build()
            .expect("a runtime")
            .run(|| thread::spawn(|| 7).join().expect("no panic"));
    };
    container.run_with(NAME, &[("KUMI_DIR", "off")], body, |ended, _| {
        assert!(!ended.stderr.contains("kumihimo"), "{}", ended.told());
    });
}

/// The run-time directory is in a file system without room for the board. Nothing is written to a
/// page that the file system cannot provide, which would raise SIGBUS.
#[test]
fn gates_work_in_a_shared_memory_without_room_for_the_board() {
    const NAME: &str = "writable::gates_work_in_a_shared_memory_without_room_for_the_board";
    if !is_inside() && !has_vps(NAME) {
        return;
    }
    for shared_memory in ["4k", "16k", "64k"] {
        for user in [0, USER] {
            Container { user, shared_memory, ..DEFAULT }.run(NAME, little_room, |_| {});
        }
    }
}

fn little_room() {
    for _ in 0..2 {
        Runtime::builder().build().expect("a runtime").run(|| {
            let all: Vec<_> = (0..10).map(|n| thread::spawn(move || n)).collect();
            let sum: i32 = all.into_iter().map(|one| one.join().expect("no panic")).sum();
            assert_eq!(sum, 45);
            let serving = Gate::serve("little-room", |n: u64| n + 1).expect("it serves");
            let gate = Gate::<u64, u64>::connect("little-room").expect("it is there");
            assert_eq!(gate.call(&1).expect("a reply"), 2);
            drop(serving);
        });
    }
}
