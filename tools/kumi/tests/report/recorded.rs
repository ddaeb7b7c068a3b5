//! The whole way: a program is traced, killed or not, and its trace becomes a page.

use std::process::Command;
use std::sync::Arc;

use kumihimo::runtime::Runtime;
use kumihimo::sync::{Mutex, mpsc};
use kumihimo::thread;
use kumihimo_tests::{browser, process};
use kumihimo_trace::script::Script;

use crate::bed::{Folder, KUMI};

const TRACED: &str = "recorded::traced_program";
/// Variable with the file that a sampler has to write before the traced program goes on.
const SAMPLES: &str = "KUMI_TEST_SAMPLES";

/// Traces the program above by `kumi trace ARGS`, and returns what it printed.
fn trace_program(folder: &Folder, args: &[&str], environment: &[(&str, &str)]) -> String {
    let output = Command::new(KUMI)
        .args(["trace", "-o", "run.perfetto", "--buffer", "1000000"])
        .args(args)
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", TRACED, "--nocapture", "--test-threads=1"])
        .env("KUMI_TEST_CHILD", TRACED)
        .env("KUMI_DIR", folder.file("machine"))
        .envs(environment.iter().copied())
        .current_dir(&folder.0)
        .output()
        .expect("kumi");
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    said
}

/// Returns the lock of the report that `holder` held.
fn held_lock(folder: &Folder) -> serde_json::Value {
    let text = std::fs::read_to_string(folder.file("report.html")).expect("written");
    let facts = text.split("id=\"facts\">").nth(1).and_then(|rest| rest.split('<').next());
    let facts: serde_json::Value = serde_json::from_str(facts.expect("a block")).expect("JSON");
    let locks = facts["runs"][0]["contention"]["locks"].as_array().expect("a list");
    let is_it = |lock: &&serde_json::Value| {
        let holders = lock["holders"].as_array().expect("a list");
        holders.iter().any(|one| one[0].as_str().is_some_and(|name| name.starts_with("holder #")))
    };
    locks.iter().find(is_it).unwrap_or_else(|| panic!("no holder: {locks:#?}")).clone()
}

/// A lock that one microprocess holds while others wait. Does nothing unless it runs as the traced
/// child.
#[test]
fn traced_program() {
    if !process::is_child(TRACED) {
        return;
    }
    let runtime = Runtime::builder().vps(2).build().expect("a runtime");
    runtime.run(|| {
        let lock = Arc::new(Mutex::new(0));
        println!("lock at {:p}", Arc::as_ptr(&lock));
        let (go_on, until) = mpsc::channel();
        let hold = {
            let lock = lock.clone();
            move || {
                let mut held = lock.lock().expect("not poisoned");
                // Parked, so that it has a stack without being interrupted.
                until.recv().expect("the main one sends");
                *held += 1;
            }
        };
        let holder = thread::Builder::new().name("holder".into()).spawn(hold).expect("room");
        while lock.try_lock().is_ok() {
            thread::yield_now();
        }
        let waits = |n: u32| {
            let lock = lock.clone();
            let body = move || *lock.lock().expect("not poisoned") += 1;
            thread::Builder::new().name(format!("waiter-{n}")).spawn(body).expect("room")
        };
        let waiters: Vec<_> = (0..3).map(waits).collect();
        // Until all of them have to wait, and have been sampled if they are to be.
        let is_sampled = || {
            let samples = std::env::var_os(SAMPLES).map(std::fs::read_to_string);
            samples.is_none_or(|text| text.is_ok_and(|text| text.contains("\"waiters\":3,")))
        };
        while kumihimo::observe::locks().totals.waiters < 3 || !is_sampled() {
            thread::yield_now();
        }
        go_on.send(()).expect("the holder receives");
        waiters.into_iter().for_each(|one| one.join().expect("no panic"));
        holder.join().expect("no panic");
        assert_eq!(*lock.lock().expect("not poisoned"), 4);
    });
}

#[test]
fn recorded_lock_has_its_address_and_holder() {
    let name = "recorded_lock_has_its_address_and_holder";
    if !process::has_vps(name) {
        return;
    }
    let folder = Folder::new("recorded");
    let said = trace_program(&folder, &[], &[]);
    let address = said.lines().find_map(|line| line.split("lock at ").nth(1)).expect("printed");
    let (output, said) = folder.report(&["run.perfetto"]);
    assert!(output.status.success(), "{said}");
    let lock = held_lock(&folder);
    assert_eq!(lock["kind"], "mutex");
    assert!(lock["waits"]["count"].as_u64().expect("a number") >= 3, "{lock:#}");
    assert_eq!(lock["waiters"].as_array().map(Vec::len), Some(3), "{lock:#}");
    // The lock is in the allocation that the program printed.
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("hex");
    let at = number(lock["address"].as_str().expect("an address"));
    assert!((0..64).contains(&at.wrapping_sub(number(address.trim()))), "{at:#x} {address}");
    let Some(browser) = browser::start(name) else { return };
    let page = browser.open(&folder.address("report.html"));
    page.until("document.body.dataset.state");
    for section in ["#summary-facts", "#micros", "#locks", "#reasons", "#histogram", "#stalls"] {
        assert!(page.text(section).len() > 20, "{section}: {}", page.text(section));
    }
    assert!(page.text("#locks").contains("holder #"));
    assert_eq!(page.console_errors(), Vec::<String>::new());
}

#[test]
fn sampled_stacks_are_in_the_report() {
    let name = "sampled_stacks_are_in_the_report";
    if !process::has_vps(name) {
        return;
    }
    let folder = Folder::new("stacks");
    let said = trace_program(&folder, &["--stacks"], &[(SAMPLES, "run.perfetto.locks")]);
    assert!(said.contains("run.perfetto.locks: "), "{said}");
    let (output, said) = folder.report(&["run.perfetto"]);
    assert!(output.status.success(), "{said}");
    let lock = held_lock(&folder);
    let stack = |of: &str| lock[of][0][0].as_str().unwrap_or_else(|| panic!("{lock:#}")).to_owned();
    assert!(stack("holder_stacks").contains("recorded::traced_program"), "{lock:#}");
    assert!(stack("waiter_stacks").contains("recorded::traced_program"), "{lock:#}");
    assert!(stack("waiter_stacks").contains("lock"), "{lock:#}");
    // Those of another process are left out, and refused if they were asked for.
    folder.trace("run.perfetto", &Script::known());
    let (output, said) = folder.report(&["run.perfetto"]);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(", and the trace is of process 1: they are left out"), "{said}");
    let (output, said) = folder.report(&["run.perfetto", "--stacks", "run.perfetto.locks"]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    // A file that is none is named.
    std::fs::write(folder.file("other"), "no lines").expect("room");
    let (output, said) = folder.report(&["run.perfetto", "--stacks", "other"]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("kumi: other: line 1 is no output of kumi locks"), "{said}");
}

#[test]
fn spool_of_a_killed_program_becomes_a_page() {
    let folder = Folder::new("spool");
    let mut file = std::fs::File::options();
    let mut file =
        file.read(true).write(true).create_new(true).open(folder.file("x.spool")).expect("room");
    Script::known().write_spool(&mut file).expect("room");
    let (output, said) = folder.report(&["x.spool", "-o", "y.html"]);
    assert!(output.status.success() && said.contains("3 microprocesses"), "{said}");
    assert_eq!(folder.names(), ["x.spool", "y.html"]);
}

#[test]
fn several_runs_are_shown_one_at_a_time() {
    let Some(browser) = browser::start("several_runs_are_shown_one_at_a_time") else { return };
    let folder = Folder::new("runs");
    folder.trace("first", &Script::known());
    let first = std::fs::read(folder.file("first")).expect("readable");
    let mut second = Vec::new();
    Script::busy(5000).write_at(first.len() as u64, &mut second).expect("room");
    std::fs::write(folder.file("both"), [first, second].concat()).expect("room");
    let (output, said) = folder.report(&["both"]);
    assert!(output.status.success() && said.contains("2 run(s)"), "{said}");
    let page = browser.open(&folder.address("report.html"));
    page.until("document.body.dataset.state === 'ready'");
    assert!(page.text("#summary-facts").contains("<b>server</b>"));
    page.evaluate(
        "(() => {
            const select = document.querySelector('#run');
            select.selectedIndex = 1;
            select.dispatchEvent(new Event('change'));
        })()",
    );
    assert!(page.text("#summary-facts").contains("busy"));
    assert_eq!(page.text("#shown"), "2,000 of 2,000");
    assert_eq!(page.console_errors(), Vec::<String>::new());
}
