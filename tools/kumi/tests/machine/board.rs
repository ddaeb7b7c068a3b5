//! `kumi board` and `kumi top` with processes that violate the board's protocol.

use std::io::{BufRead, BufReader, Write};
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kumihimo::runtime::{NoEvents, Runtime};
use kumihimo::thread::{self, Builder, Priority};
use kumihimo_arbiter::view::View;
use kumihimo_tests::process::{has_vps, is_child, is_preempted, start};
use rustix::process::{Pid, Signal, kill_process};

use super::double::Folder;
use super::pty::{Controlling, Pty};

/// Timeout of every wait. Reaching it means a hang.
const LIMIT: Duration = Duration::from_secs(60);

/// A process with one virtual processor at the board of the test's run-time directory, and with a
/// name of its own. All such processes run on the same core.
struct One(Child);

impl One {
    fn start(test: &str, folder: &Folder, name: &str) -> One {
        let place = folder.path().to_str().expect("text");
        let mut child = start(
            test,
            &[
                ("KUMI_DIR", place),
                ("KUMI_ARBITER", "on"),
                ("KUMI_WATCHDOG", "off"),
                ("KUMI_VPS", "1"),
                ("KUMI_TEST_SIDE", name),
            ],
        );
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("runs") {
            line.clear();
            assert_ne!(lines.read_line(&mut line).expect("it writes"), 0, "{name} ended");
        }
        One(child)
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it lives");
    }
}

impl Drop for One {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The child process: runs until it is killed.
fn child() {
    let name = std::env::var("KUMI_TEST_SIDE").expect("said");
    keep_to_first_core();
    std::fs::write("/proc/self/comm", &name).expect("a name");
    let priority = Priority::new(if name == "meek" { 10 } else { 50 }).expect("a priority");
    Runtime::builder().build().expect("a runtime").run(|| {
        thread::scope(|scope| {
            // The number of VPs comes from the metrics, because this kernel thread's affinity mask
            // allows one core only.
            for _ in 0..kumihimo::runtime::metrics().expect("a runtime runs").vps.len() {
                let runs = || {
                    println!("runs");
                    std::io::stdout().flush().expect("it is read");
                    match name.as_str() {
                        "masked" => {
                            let _told_nothing = NoEvents::new();
                            loop {
                                std::hint::spin_loop();
                            }
                        }
                        "scribbler" => scribble(),
                        _ => loop {
                            std::hint::spin_loop();
                        },
                    }
                };
                Builder::new()
                    .priority(priority)
                    .spawn_scoped(scope, runs)
                    .expect("a microprocess");
            }
        });
    });
}

/// Restricts the process to one core, so that the processes compete for it.
fn keep_to_first_core() {
    let all = rustix::thread::sched_getaffinity(None).expect("of this thread");
    let first = (0..).find(|core| all.is_set(*core)).expect("it runs on one");
    let mut one = rustix::thread::CpuSet::new();
    one.set(first);
    rustix::thread::sched_setaffinity(None, &one).expect("it is one of its own");
}

/// Overwrites the whole board with random words in a loop.
fn scribble() {
    let path = std::path::Path::new(&std::env::var_os("KUMI_DIR").expect("said")).join("board");
    let file = std::fs::File::options().read(true).write(true).open(path).expect("the board");
    let words = file.metadata().expect("it is there").len() as usize / 8;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping of the whole file, for good.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), words * 8, protection, flags, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: mapped, aligned, and written by atomic stores only.
    let board = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), words) };
    let mut random = 88_172_645_463_325_252_u64;
    loop {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        board[(random >> 20) as usize % words].store(random, Ordering::Relaxed);
    }
}

/// Starts a process of low priority and one of high priority. As soon as the latter has the core,
/// `provoke` makes it violate the protocol. `kumi top` and `kumi board` must then name it.
fn is_named(test: &str, name: &str, reason: &str, provoke: impl FnOnce(&One)) {
    if is_child(test) {
        return child();
    }
    if !has_vps(test) || !is_preempted(test) {
        return;
    }
    let folder = Folder::new(&format!("board-{name}"));
    let _meek = One::start(test, &folder, "meek");
    let mut pty = Pty::start(&folder, &["top", "--every", "100"], (120, 30), Controlling::Yes);
    pty.until_shown("1 address space ");
    assert!(!pty.screen().contains("violation"), "{}", pty.screen());
    let offender = One::start(test, &folder, name);
    if name == "killed" || name == "stopped" {
        let view = View::open(&folder.path().join("board")).expect("a board");
        let begun = Instant::now();
        let holds = || {
            let spaces = view.spaces();
            let row = spaces.iter().find(|space| space.pid == offender.id()).map(|space| space.row);
            let cores = view.cores();
            cores
                .iter()
                .any(|core| core.holder.map(|stand| stand.row) == row && !core.waiting.is_empty())
        };
        while !holds() {
            assert!(begun.elapsed() < LIMIT, "the process never got the core: {:?}", view.cores());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    provoke(&offender);
    let said = format!("{name} (pid {}) {reason}", offender.id());
    pty.until_shown("violation");
    pty.send("!");
    pty.until_shown(&said);
    let (code, told, complaints) = folder.kumi(&["board"]);
    assert!(code == 0 && complaints.is_empty() && told.contains(&said), "{told}{complaints}");
    pty.send("xq");
    assert_eq!(pty.wait().code(), Some(0));
}

#[test]
fn killed_address_space_is_named() {
    is_named(
        "board::killed_address_space_is_named",
        "killed",
        "ended while it held a core",
        |one| one.signal(Signal::KILL),
    );
}

#[test]
fn stopped_address_space_is_named() {
    is_named(
        "board::stopped_address_space_is_named",
        "stopped",
        "is stopped, and held a core",
        |one| one.signal(Signal::STOP),
    );
}

#[test]
fn address_space_looping_while_masked_is_named() {
    is_named(
        "board::address_space_looping_while_masked_is_named",
        "masked",
        "did not answer, or did not leave its core",
        |_| {},
    );
}

#[test]
fn address_space_that_corrupts_the_board_is_named() {
    is_named(
        "board::address_space_that_corrupts_the_board_is_named",
        "scribbler",
        "writes to a reserved part of the board",
        |_| {},
    );
}

#[test]
fn rule_of_feedback_applies_to_later_address_spaces() {
    let folder = Folder::new("board-feedback");
    let path = folder.path().join("board");
    let kumi = |args: &[&str]| folder.kumi(args);
    let (code, told, _) = kumi(&["board"]);
    assert!(code == 0 && told.contains("none yet") && !path.exists(), "{told}");
    for (rule, said) in
        [("on", "feedback 40ms,8"), ("5ms,3", "feedback 5ms,3"), ("off", "feedback off")]
    {
        let (code, told, complaints) = kumi(&["board", "--feedback", rule]);
        assert!(
            code == 0
                && complaints.is_empty()
                && told.contains(said)
                && told.contains("no address spaces there"),
            "{told}{complaints}"
        );
        let rule = View::open(&path).expect("a board").feedback();
        assert_eq!(
            rule.map_or_else(|| "off".to_owned(), |rule| rule.to_string()),
            said.trim_start_matches("feedback ")
        );
    }
    let (code, _, complaints) = kumi(&["board", "--feedback", "often"]);
    assert!(code == 2 && complaints.contains("\"often\" is not a feedback rule"), "{complaints}");
    assert_eq!(View::open(&path).expect("a board").feedback(), None);
    // Without a board, and with another file in its place.
    let told = folder.command(&["board"]).env("KUMI_ARBITER", "none").output().expect("kumi");
    assert!(
        told.status.code() == Some(1)
            && String::from_utf8_lossy(&told.stderr).contains("KUMI_ARBITER=none")
    );
    std::fs::write(&path, "something else").expect("ours");
    let (code, _, complaints) = kumi(&["board"]);
    assert!(code == 1 && complaints.contains("it is not a board"), "{complaints}");
}
