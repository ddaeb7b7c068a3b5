//! `kumi locks` against real programs, whose locks are known.

use std::io::{BufRead, BufReader, Write};
use std::process::Child;
use std::sync::{Arc, OnceLock};

use kumihimo::runtime::Runtime;
use kumihimo::sync::{Mutex, Semaphore};
use kumihimo::thread::Builder;
use kumihimo_machine::handler::State;
use kumihimo_tests::process::{is_child, is_one_to_one, start};
use kumihimo_tests::{skip, until};

use super::double::Folder;

const TEST: &str = "locks::deadlock_chain_and_semaphore_of_a_program_are_shown";

/// The program: a deadlock of two, one that waits behind it, and a waiter at a semaphore, until
/// standard input ends.
fn program() {
    let locks = Arc::new((Mutex::new(()), Mutex::new(()), Semaphore::new(0)));
    Runtime::builder().vps(2).build().expect("a runtime").run(|| {
        let spawn = |name: &str, f: Box<dyn FnOnce() + Send>| {
            Builder::new().name(name.to_owned()).spawn(f).expect("it begins")
        };
        let both = Arc::new(kumihimo::sync::Barrier::new(3));
        let (of, met) = (locks.clone(), both.clone());
        spawn(
            "first",
            Box::new(move || {
                let _guard = of.0.lock();
                met.wait();
                drop(of.1.lock());
            }),
        );
        let (of, met) = (locks.clone(), both.clone());
        spawn(
            "second",
            Box::new(move || {
                let _guard = of.1.lock();
                met.wait();
                drop(of.0.lock());
            }),
        );
        both.wait();
        let of = locks.clone();
        spawn("behind", Box::new(move || drop(of.0.lock())));
        let of = locks.clone();
        spawn("served", Box::new(move || drop(of.2.acquire())));
        println!("\nready {:p} {:p}", &raw const locks.0, &raw const locks.1);
        let mut line = String::new();
        kumihimo::thread::blocking(|| std::io::stdin().read_line(&mut line)).expect("it ends");
        std::process::exit(0);
    });
}

/// The program, until it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn deadlock_chain_and_semaphore_of_a_program_are_shown() {
    if is_child(TEST) {
        return program();
    }
    static ONE: OnceLock<bool> = OnceLock::new();
    if *ONE.get_or_init(is_one_to_one) {
        return skip(TEST, "microprocesses are kernel threads here");
    }
    let folder = Folder::new("locks-real");
    let mut running = Running(start(TEST, &[("KUMI_DIR", folder.path().to_str().expect("text"))]));
    let stdout = BufReader::new(running.0.stdout.take().expect("a pipe"));
    let ready =
        stdout.lines().map(|line| line.expect("text")).find(|line| line.starts_with("ready"));
    let ready = ready.expect("the program begins");
    let [_, first, second] = ready.split(' ').collect::<Vec<_>>()[..] else { panic!("{ready}") };
    let pid = running.0.id().to_string();
    let kumi = |args: &[&str]| {
        let (code, said, complaints) = folder.kumi(args);
        assert_eq!((code, complaints.as_str()), (0, ""), "{args:?}: {said}");
        said
    };
    let text = || kumi(&["locks", &pid]);
    until("four wait", text, || text().contains("\n4 waiters for 3 locks, 1 chain, 1 deadlock\n"));
    let said = text();
    let line = |of: &str| {
        said.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("{of}: {said}"))
    };
    assert!(line(&format!("mutex at {first} ")).contains(" (first)"), "{said}");
    assert!(line("semaphore at 0x").contains("unknown") && line("semaphore").contains("(served)"));
    let deadlock = line("deadlock: ");
    for name in ["(first)", "(second)"] {
        assert!(deadlock.contains(name), "{deadlock}");
    }
    assert!(line("chain: ").contains("(behind) waits for the mutex at "), "{said}");

    let json = kumi(&["locks", "--json", "--backtraces"]);
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["space"]["pid"].to_string(), pid);
    let address = u64::from_str_radix(second.trim_start_matches("0x"), 16).expect("a number");
    let lock = lines.iter().map(|line| &line["lock"]).find(|lock| lock["address"] == address);
    let lock = lock.expect("the second mutex");
    assert_eq!((&lock["kind"], &lock["waiters"]), (&"mutex".into(), &1.into()));
    assert_eq!(
        (&lock["holder"]["kind"], &lock["holder"]["name"]),
        (&"microprocess".into(), &"second".into())
    );
    assert!(lock["longest_ns"].as_u64() > Some(0) && lock["first"][0]["name"] == "first", "{lock}");
    let chains = lines.iter().filter(|line| line["chain"]["links"].is_array());
    assert_eq!(
        chains.map(|line| line["chain"]["is_cycle"] == true).collect::<Vec<_>>(),
        [true, false]
    );
    let stacks: Vec<_> =
        lines.iter().filter_map(|line| line["backtrace"]["text"].as_str()).collect();
    assert_eq!(stacks.len(), 4, "{json}");
    assert!(stacks.iter().all(|stack| stack.contains("program")), "{stacks:?}");

    let rows = kumi(&["ps", "--state", State::Waiting.to_string().as_str(), &pid]);
    let row = |name: &str| {
        rows.lines().find(|row| row.contains(name)).unwrap_or_else(|| panic!("{name}: {rows}"))
    };
    assert!(row("first ").contains(&format!("the mutex at {second}, held by ")), "{rows}");
    assert!(row("first ").ends_with(" (second)") && row("behind").ends_with(" (first)"), "{rows}");
    assert!(row("served").ends_with(", holder unknown"), "{rows}");
    let once = kumi(&["top", "--once", "--filter", "behind", &pid]);
    assert!(once.lines().any(|line| line.ends_with(" (first)")), "{once}");
    let rows = kumi(&["top", "--json", "--filter", "behind", &pid]);
    assert!(rows.contains(r#""holder":{"kind":"microprocess""#), "{rows}");

    running.0.stdin.take().expect("a pipe").write_all(b"end\n").expect("it reads");
    assert!(running.0.wait().expect("it ends").success());
}

#[test]
fn address_space_without_locks_or_without_an_answer_is_reported() {
    let folder = Folder::new("locks-none");
    let (code, said, complaints) = folder.kumi(&["locks"]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(complaints.contains("no address space of yours runs"), "{complaints}");
    // The simulated address space refuses, as one of an older version would.
    let one = folder.space();
    let (code, said, complaints) = folder.kumi(&["locks"]);
    assert_eq!((code, said.as_str()), (1, ""));
    assert!(complaints.contains("does not report holders of locks"), "{complaints}");
    drop(one);
    let (code, _, complaints) = folder.kumi(&["locks", "9"]);
    assert!(code == 1 && complaints.contains("no address space 9"), "{complaints}");
}
