//! `kumi ps` and the like, of a program that knows nothing of microprocesses.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use kumihimo_machine::handler::{Microprocess, State};
use kumihimo_machine::locks::Holder;
use kumihimo_tests::until;

use crate::bed::{Built, KUMI, run};

/// The program, until it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kumi(built: &Built, words: &[&str]) -> String {
    let mut command = Command::new(KUMI);
    built.prepare(&mut command);
    let output = command.args(words).output().expect("kumi");
    let (said, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {said}{complaints}");
    said.into_owned()
}

fn rows(built: &Built) -> Vec<Microprocess> {
    let said = kumi(built, &["ps", "--json"]);
    said.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
}

/// The threads of waits.c, with what each one waits for.
const WAITS: [(&str, &str); 8] = [
    ("on-mutex", "the mutex at "),
    ("on-condition", "the condition variable at "),
    ("on-rwlock", "the rwlock at "),
    ("on-barrier", "the barrier at "),
    ("on-semaphore", "the semaphore at "),
    ("on-futex", "the futex at "),
    ("on-time", "the clock"),
    ("on-join", "the end of microprocess "),
];

#[test]
fn threads_are_shown_by_name_with_their_waits() {
    let test = "observed::threads_are_shown_by_name_with_their_waits";
    let Some(built) = Built::new(test, "waits.c") else { return };
    let mut command = built.by_kumi(&["--strict"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
    let mut said = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    let running = Running(child);
    BufReader::new(stdout).read_line(&mut said).expect("text");
    assert_eq!(said, "ready\n");
    let waits = |name: &str, of: &str| {
        rows(&built).iter().any(|row| {
            row.name.as_deref() == Some(name)
                && row.state == State::Waiting
                && row.waits_for.as_deref().is_some_and(|why| why.starts_with(of))
        })
    };
    for (name, of) in WAITS {
        until(name, || rows(&built), || waits(name, of));
    }
    assert_eq!(rows(&built).len(), WAITS.len());
    let table = kumi(&built, &["ps"]);
    let is_headed = table.contains(&format!("pid {}", running.0.id())) && table.contains("/waits");
    assert!(is_headed, "{table}");
    // Steered like any other.
    let row = rows(&built).into_iter().find(|row| row.name.as_deref() == Some("on-time"));
    let id = row.expect("it is there").id.to_string();
    kumi(&built, &["suspend", &id]);
    let is_suspended =
        || rows(&built).iter().any(|row| row.id.to_string() == id && row.state == State::Suspended);
    until("suspended", || rows(&built), is_suspended);
    kumi(&built, &["resume", &id]);
    assert!(!is_suspended());
    assert!(kumi(&built, &["backtrace", &id]).contains("on_time"));
}

#[test]
fn holders_of_the_locks_of_a_program_are_shown() {
    let test = "observed::holders_of_the_locks_of_a_program_are_shown";
    let Some(built) = Built::new(test, "locks.c") else { return };
    let mut command = built.by_kumi(&["--strict"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
    let stdout = child.stdout.take().expect("a pipe");
    let running = Running(child);
    let mut said = String::new();
    BufReader::new(stdout).read_line(&mut said).expect("text");
    assert_eq!(said, "ready\n");
    // The semaphore has two waiters.
    let text = || kumi(&built, &["locks"]);
    until("all wait", text, || text().contains("\n10 waiters for 9 locks, 1 chain, 2 deadlocks\n"));
    let pid = running.0.id();
    let report: Vec<serde_json::Value> = kumi(&built, &["locks", "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let lock_before = |waiter: &str| {
        let lock = report.iter().map(|line| &line["lock"]).find(|lock| {
            let first = lock["first"].as_array();
            first.is_some_and(|first| first.iter().any(|one| one["name"] == waiter))
        });
        lock.unwrap_or_else(|| panic!("{waiter}: {report:?}"))
    };
    for (waiter, kind, holder) in [
        ("first", "mutex", "middle"),
        ("middle", "mutex", "last"),
        ("one", "mutex", "two"),
        ("two", "mutex", "one"),
        ("reader", "rwlock", "writer"),
    ] {
        let lock = lock_before(waiter);
        assert_eq!((&lock["kind"], &lock["holder"]["name"]), (&kind.into(), &holder.into()));
    }
    let lock = lock_before("behind-main");
    assert_eq!(lock["holder"]["thread"], pid, "the first thread stays a kernel thread: {lock}");
    for (waiter, kind) in [("last", "semaphore"), ("on-futex", "futex")] {
        let lock = lock_before(waiter);
        assert_eq!((&lock["kind"], &lock["holder"]["kind"]), (&kind.into(), &"unknown".into()));
    }
    let said = text();
    let chain = said.lines().find(|line| line.starts_with("chain: ")).expect("a chain");
    let names: Vec<_> = ["(first)", "(middle)", "(last)"].map(|name| chain.find(name)).into();
    assert!(names.iter().all(Option::is_some) && names.is_sorted(), "{chain}");
    assert!(chain.contains("(last), which waits for the semaphore at 0x"), "{chain}");
    let deadlocks: Vec<_> = said.lines().filter(|line| line.starts_with("deadlock: ")).collect();
    let has = |names: [&str; 2]| {
        deadlocks.iter().any(|line| names.iter().all(|name| line.contains(name)))
    };
    assert!(has(["(one)", "(two)"]) && has(["(twice) waits", "held by"]), "{deadlocks:?}");
    let row = rows(&built).into_iter().find(|row| row.name.as_deref() == Some("first"));
    assert!(matches!(row.and_then(|row| row.holder), Some(Holder::Microprocess { .. })));
    let stacks = kumi(&built, &["locks", "--backtraces"]);
    assert!(["middle", "last", "behind_main"].iter().all(|name| stacks.contains(name)), "{stacks}");
}

#[test]
fn event_loop_has_a_kernel_thread_while_it_is_busy() {
    let test = "observed::event_loop_has_a_kernel_thread_while_it_is_busy";
    let Some(built) = Built::new(test, "event_loop.c") else { return };
    // Other tests at a shared board could have other levels.
    let mut command = built.by_kumi(&["--strict", "--vps", "1"]);
    command.arg("fast").env("KUMI_ARBITER", "none").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running(command.spawn().expect("the program"));
    let why = || rows(&built).into_iter().find(|row| row.name.as_deref() == Some("loop"))?.sticky;
    until("busy", why, || why().is_some_and(|why| why.starts_with("waits for events")));
    let mut told = running.0.stdin.take().expect("a pipe");
    told.write_all(b"x").expect("it is taken");
    until("idle", why, || why().is_none());
    drop(told);
    assert!(running.0.wait().expect("it can be waited for").success());
}

#[test]
fn trace_of_a_program_is_complete() {
    let test = "observed::trace_of_a_program_is_complete";
    let Some(built) = Built::new(test, "thousand.c") else { return };
    let file = built.place.0.join("trace");
    let ended = run(test, built.by_kumi(&["--strict"]).env("KUMI_TRACE", &file));
    assert_eq!(ended.stdout, "ok\n", "{}", ended.told());
    let said = kumi(&built, &["trace", "check", file.to_str().expect("text")]);
    assert!(!said.is_empty());
}

#[test]
fn unmodified_program_is_profiled_until_it_ends() {
    let test = "observed::unmodified_program_is_profiled_until_it_ends";
    let Some(built) = Built::with(test, "burns.c", &["-g"]) else { return };
    let folded = built.place.0.join("cpu.folded");
    let mut command = Command::new(KUMI);
    built.prepare(&mut command);
    let output = command
        .args(["profile", "-o"])
        .arg(&folded)
        .arg("--")
        .arg(&built.program)
        .output()
        .expect("kumi");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    let folded = std::fs::read_to_string(folded).expect("written");
    let value = |line: &str| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
    let sum = |of: &mut dyn Iterator<Item = &str>| -> u64 { of.filter_map(value).sum() };
    let all = sum(&mut folded.lines());
    let here = sum(&mut folded.lines().filter(|line| line.contains(";burns;burns_here")));
    assert!(here * 10 > all * 8, "{here} of {all} us: {folded}");
}
