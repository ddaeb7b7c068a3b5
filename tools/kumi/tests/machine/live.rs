//! `kumi top` live, with a real program of which names and numbers are known.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kumihimo::thread;
use kumihimo_tests::{process, until};

use super::double::Folder;
use super::pty::{Controlling, Pty};
use super::real::one_to_one;

/// Number of microprocesses that are called after a connection.
const CONNECTIONS: usize = 150;
/// Number of all microprocesses: two more have names below `http`, and one computes.
const ALL: usize = CONNECTIONS + 3;

/// The child process: microprocesses that wait, and one that computes, until standard input ends.
fn serve() {
    let stop = Arc::new(AtomicBool::new(false));
    let spawn = |name: String, f: Box<dyn FnOnce() + Send>| {
        thread::Builder::new().name(name).spawn(f).expect("a microprocess")
    };
    let mut waiting: Vec<_> =
        (0..CONNECTIONS).map(|n| spawn(format!("http/conn-{n}"), Box::new(thread::park))).collect();
    waiting.push(spawn("http/accept".to_owned(), Box::new(thread::park)));
    waiting.push(spawn("journal".to_owned(), Box::new(thread::park)));
    let stopped = stop.clone();
    let computing = spawn(
        "computing".to_owned(),
        Box::new(move || {
            while !stopped.load(Ordering::Relaxed) {
                std::hint::spin_loop();
                thread::yield_now();
            }
        }),
    );
    println!("\nready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    stop.store(true, Ordering::Relaxed);
    waiting.iter().for_each(|one| one.thread().unpark());
    waiting.into_iter().chain([computing]).for_each(|one| one.join().expect("no panic"));
}

/// A running child process.
struct Program(Child);

impl Program {
    fn start(test: &str, folder: &Folder) -> Program {
        let environment = [("KUMI_DIR", folder.path().to_str().expect("text"))];
        let mut child = process::start(test, &environment);
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line.contains("ready"))));
        Program(child)
    }

    /// `kumi top` of this program only.
    fn top(&self, folder: &Folder, options: &[&str]) -> Pty {
        let pid = self.0.id().to_string();
        let args = [&["top", "--every", "100", &pid], options].concat();
        Pty::start(folder, &args, (100, 30), Controlling::Yes)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The line of the screen that contains `text`, with single spaces.
fn line(screen: &str, text: &str) -> String {
    let line = screen.lines().find(|line| line.contains(text)).unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn ends(mut pty: Pty) {
    pty.send("q");
    assert_eq!(pty.wait().code(), Some(0));
}

#[test]
fn hot_microprocess_is_the_first_row() {
    const NAME: &str = "live::hot_microprocess_is_the_first_row";
    if process::is_child(NAME) {
        return serve();
    }
    if one_to_one(NAME) {
        return;
    }
    let folder = Folder::new("live-hot");
    let program = Program::start(NAME, &folder);
    let mut pty = program.top(&folder, &["--exact"]);
    // The heads are three lines, the address space has two.
    pty.until(|screen| screen.lines().nth(5).is_some_and(|row| row.contains("computing")));
    pty.until(|screen| {
        let row = line(screen, "computing");
        row.split(' ').nth(2).and_then(|cpu| cpu.parse().ok()).is_some_and(|cpu: f64| cpu > 1.0)
    });
    pty.until(|screen| screen.contains("exact") && screen.contains(&format!("{} wait", ALL - 1)));
    // The time in a wait, the stack, and what is waited for.
    pty.send("/journal\r");
    pty.until(|screen| screen.contains("1 match") && !screen.contains("conn"));
    let row = line(&pty.screen(), "  1.");
    assert!(
        row.contains("journal") && row.contains("waiting 32") && row.ends_with("an unpark"),
        "{row}"
    );
    ends(pty);
}

#[test]
fn rows_are_filtered_and_found_by_the_program() {
    const NAME: &str = "live::rows_are_filtered_and_found_by_the_program";
    if process::is_child(NAME) {
        return serve();
    }
    if one_to_one(NAME) {
        return;
    }
    let folder = Folder::new("live-find");
    let program = Program::start(NAME, &folder);
    let mut pty = program.top(&folder, &["--sort", "id"]);
    pty.until(|screen| screen.contains("http/conn-3 ") && !screen.contains("http/conn-140 "));
    pty.send("fCONN-140\r");
    pty.until_shown("http/conn-140 ");
    // The found row is the selected one: commands concern it.
    pty.send("+");
    pty.until_shown("has priority 33");
    pty.until(|screen| line(screen, "http/conn-140 ").contains(" 33 "));
    // Far jumps load their rows.
    pty.send("g");
    pty.until_shown("http/conn-3 ");
    pty.send("G");
    pty.until(|screen| screen.contains("journal") && screen.contains("http/conn-149 "));
    pty.send("fno such name\r");
    pty.until_shown("no row contains \"no such name\"");
    pty.send("/conn-14\r");
    pty.until(|screen| {
        let row = |name| !line(screen, name).is_empty();
        screen.contains("11 match")
            && row("http/conn-149 ")
            && row("http/conn-14 ")
            && !row("http/conn-139 ")
            && !row("journal")
    });
    ends(pty);
}

#[test]
fn groups_open_and_close() {
    const NAME: &str = "live::groups_open_and_close";
    if process::is_child(NAME) {
        return serve();
    }
    if one_to_one(NAME) {
        return;
    }
    let folder = Folder::new("live-groups");
    let program = Program::start(NAME, &folder);
    let mut pty = program.top(&folder, &["--group", "tree"]);
    pty.until(|screen| {
        let row = |name| line(screen, name);
        row(" http").starts_with(&format!("{} ", CONNECTIONS + 1))
            && row("   conn").starts_with(&format!("{CONNECTIONS} "))
            && row("   accept").starts_with("1 ")
            && row(" journal").starts_with("1 ")
    });
    // The first group is http, and the second one http/conn.
    pty.send("gjjj\r");
    pty.until(|screen| screen.contains("in http/conn (Esc leaves)") && screen.contains("conn-7"));
    assert!(!pty.screen().contains("http/accept"), "{}", pty.screen());
    pty.send("\x1b");
    pty.until(|screen| !line(screen, "   accept").is_empty());
    // By what is waited for, and by stack.
    pty.send("t");
    pty.until(|screen| line(screen, "an unpark").starts_with(&format!("{} ", ALL - 1)));
    pty.send("tgjj");
    pty.until_shown(&format!("{} at this place; b shows the whole stack", ALL - 1));
    assert!(pty.screen().contains("0: park"), "{}", pty.screen());
    pty.send("\r");
    pty.until(|screen| screen.contains("(Esc leaves)") && screen.contains("http/conn-7 "));
    pty.send("v");
    pty.until_shown("VP 0: time from wake-up to run");
    pty.send("x");
    ends(pty);
    // The grouping was changed by a key, and is remembered.
    let mut pty = program.top(&folder, &[]);
    pty.until(|screen| screen.contains("by stack") && screen.contains("GROUP"));
    ends(pty);
}

#[test]
fn exact_accounting_ends_with_the_live_screen() {
    const NAME: &str = "live::exact_accounting_ends_with_the_live_screen";
    if process::is_child(NAME) {
        return serve();
    }
    if one_to_one(NAME) {
        return;
    }
    let folder = Folder::new("live-exact");
    let program = Program::start(NAME, &folder);
    let is_exact = || {
        let (code, said, _) = folder.kumi(&["top", "--json"]);
        assert_eq!(code, 0);
        let totals: serde_json::Value =
            serde_json::from_str(said.lines().next().expect("totals")).expect("JSON");
        totals["space"]["exact"].as_bool().expect("a flag")
    };
    let mut pty = program.top(&folder, &[]);
    pty.until_shown("computing");
    assert!(!is_exact());
    pty.send("e");
    pty.until_shown("CPU time is accounted exactly");
    assert!(is_exact());
    ends(pty);
    assert!(!is_exact());
    // A signal ends it like a key.
    let mut pty = program.top(&folder, &["--exact"]);
    pty.until_shown(", exact");
    assert!(is_exact());
    pty.kill(rustix::process::Signal::TERM);
    pty.wait();
    assert!(!is_exact());
    // So does one that cannot be handled, after which the connection closes.
    let mut pty = program.top(&folder, &["--exact"]);
    pty.until_shown(", exact");
    assert!(is_exact());
    pty.kill(rustix::process::Signal::KILL);
    pty.wait();
    until("it is sampled again", || (), || !is_exact());
}
