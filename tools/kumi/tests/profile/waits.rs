//! Profiles of waits.

use std::time::Duration;

use kumihimo::sync::Mutex;
use kumihimo::thread;
use kumihimo_tests::process;

use super::served::{Folder, one_to_one, read, sums};

/// Microprocesses that want the lock. One of them has it, and waits for the clock.
const ALL: usize = 101;
const HELD: Duration = Duration::from_millis(10);

static LOCK: Mutex<u64> = Mutex::new(0);

fn take_the_lock() {
    loop {
        let mut held = LOCK.lock().expect("no panic");
        thread::sleep(HELD);
        *held += 1;
    }
}

#[test]
fn waiters_behind_a_lock_come_first_with_their_total() {
    let test = "waits::waiters_behind_a_lock_come_first_with_their_total";
    if process::is_child(test) {
        let spawn = |_| thread::Builder::new().name("waiter".into()).spawn(take_the_lock);
        let all: Vec<_> = (0..ALL).map(|n| spawn(n).expect("spawned")).collect();
        all.into_iter().for_each(|one| drop(one.join()));
        return;
    }
    if one_to_one(test) {
        return;
    }
    let folder = Folder::new(test);
    let served = folder.served(test, |all| all.len() == ALL);
    let file = folder.file("waits.pprof");
    let args = ["--off-cpu", "--seconds", "3", "-o", &file, &served.pid()];
    let (code, _, complaints) = folder.profile(&args);
    assert_eq!(code, 0, "{complaints}");
    let profile = read(&file);
    let text = |at: Option<i64>| &*profile.string_table[at.expect("set") as usize];
    let waits_for = |kind: &str| -> i64 {
        let of = profile.sample.iter().filter(|one| {
            let has = |label: &&kumihimo_trace::profile::Label| text(label.key) == "wait";
            one.label.iter().find(has).is_some_and(|label| text(label.str) == kind)
        });
        of.map(|one| one.value[1]).sum()
    };
    let time = profile.duration_nanos.expect("a length");
    let want = time * (ALL as i64 - 1);
    let found = waits_for("mutex");
    assert!((found - want).abs() < want / 20, "{found} ns, expected {want} ns");
    let clock = waits_for("clock");
    assert!(clock <= time * 21 / 20, "only the holder waits for the clock: {clock} of {time}");
    let (sums, total) = sums(&profile);
    // A wait that ends while its stack is walked has another one at worst.
    assert!(sums["take_the_lock"] >= (found + clock) / 100 * 99, "{sums:?}");
    assert!(total >= found + clock, "{total}");

    let (code, said, complaints) = folder.profile(&["--off-cpu", "--seconds", "1", &served.pid()]);
    assert_eq!(code, 0, "{complaints}");
    let first = said.lines().find(|line| line.contains("waits for: ")).expect("a stack");
    assert!(first.ends_with("waiter  waits for: mutex"), "{said}");

    let (code, said, complaints) = folder.profile(&["--stacks", &served.pid()]);
    assert_eq!(code, 0, "{complaints}");
    assert!(said.contains(&format!("{ALL} microprocesses")), "{said}");
    let first = said.lines().find(|line| line.ends_with("waiter  mutex")).expect("a stack");
    let count: usize = first.split_whitespace().next().and_then(|n| n.parse().ok()).expect("n");
    assert!((ALL - 2..=ALL).contains(&count), "{said}");
}
