//! Runs a test in several processes. The first one leads: it starts the others and exchanges lines
//! with them.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};

use kumihimo::thread;
use kumihimo_tests::place::Place;
use kumihimo_tests::process::{finish, start};

use crate::pair::side;

/// Prefix of lines between the processes, because the test program also prints lines of its own.
const MARK: &str = "> ";

/// Runs the part of this process if it has one. Otherwise runs the first part in a child process,
/// which must succeed.
pub fn play(name: &str, parts: &[(&str, &dyn Fn())]) {
    play_with(name, &[], parts);
}

/// As [`play`], with environment variables for all processes.
pub fn play_with(name: &str, environment: &[(&str, &str)], parts: &[(&str, &dyn Fn())]) {
    if let Some(side) = side(name) {
        let part = parts.iter().find(|(part, _)| *part == side);
        return part.unwrap_or_else(|| panic!("{name} has no part {side}")).1();
    }
    let place = Place::new(name);
    let own = [("KUMI_DIR", place.path()), ("KUMI_TEST_SIDE", parts[0].0)];
    let all: Vec<_> = own.into_iter().chain(environment.iter().copied()).collect();
    let ended = finish(name, start(name, &all));
    for line in ended.stderr.lines().filter(|line| line.starts_with("[skip]")) {
        let _ = writeln!(std::io::stderr(), "\n{line}");
    }
    assert!(ended.status.success(), "{name}: {}", ended.told());
}

/// Another process of the test, killed when dropped.
pub struct Part {
    pub child: Child,
    lines: BufReader<ChildStdout>,
    input: ChildStdin,
}

impl Part {
    /// Starts a part in the run-time directory of this process.
    pub fn start(side: &str) -> Part {
        Part::start_with(side, &[])
    }

    /// As [`start`](Part::start), with environment variables.
    pub fn start_with(side: &str, environment: &[(&str, &str)]) -> Part {
        let name = std::env::var("KUMI_TEST_CHILD").expect("a test's own process");
        let all: Vec<_> = environment.iter().copied().chain([("KUMI_TEST_SIDE", side)]).collect();
        let mut child = start(&name, &all);
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let input = child.stdin.take().expect("a pipe");
        Part { child, lines, input }
    }

    /// Starts a part that serves, and waits until it does.
    pub fn serving(side: &str) -> Part {
        let mut part = Part::start(side);
        part.expect("serving");
        part
    }

    /// The next line from the process. Blocks the microprocess.
    pub fn line(&mut self) -> String {
        thread::blocking(|| {
            loop {
                let mut line = String::new();
                if self.lines.read_line(&mut line).expect("it writes") == 0 {
                    let mut said = String::new();
                    let _ = self.child.stderr.take().expect("a pipe").read_to_string(&mut said);
                    panic!("the process ended: {said}");
                }
                // libtest's own line precedes it without a line feed.
                if let Some((_, told)) = line.split_once(MARK) {
                    return told.trim_end().to_owned();
                }
            }
        })
    }

    pub fn expect(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    /// Sends a line to the process.
    pub fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it lives");
    }

    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: an own child that has not been reaped.
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
    }

    /// Stops the process, and returns when it is stopped.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let stat = format!("/proc/{}/stat", self.child.id());
        until("the process is stopped", || {
            std::fs::read_to_string(&stat).expect("it lives").contains(") T ")
        });
    }

    /// Kills the process, and returns when it has ended.
    pub fn kill(mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("it ends");
    }

    /// Lets the process end on its own.
    pub fn end(self) {
        let name = std::env::var("KUMI_TEST_CHILD").expect("a test's own process");
        let Part { child, lines, input } = &mut *std::mem::ManuallyDrop::new(self);
        // SAFETY: each field is moved out once, and nothing is dropped twice.
        let (mut child, lines, input) =
            unsafe { (std::ptr::read(child), std::ptr::read(lines), std::ptr::read(input)) };
        child.stdout = Some(lines.into_inner());
        drop(input);
        let ended = thread::blocking(|| finish(&name, child));
        assert!(ended.status.success(), "{}", ended.told());
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a line to the parent process.
pub fn tell(line: &str) {
    println!("{MARK}{line}");
    std::io::stdout().flush().expect("standard output is open");
}

/// Receives a line from the parent process; empty if it has ended. Blocks the microprocess.
pub fn hear() -> String {
    thread::blocking(|| {
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
        line.trim_end().to_owned()
    })
}

/// Reports that this process serves, and waits until its input ends.
pub fn serve_on() {
    tell("serving");
    while !hear().is_empty() {}
}

/// Waits until `is` returns true.
pub fn until(what: &str, is: impl FnMut() -> bool) {
    kumihimo_tests::until(what, Held::now, is);
}

/// Objects of links that this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Sockets and memory only. The number of the runtime's other descriptors grows with its kernel
    /// threads.
    pub descriptors: usize,
    pub lanes: usize,
    pub regions: usize,
    pub links: usize,
}

impl Held {
    pub fn now() -> Held {
        let mut links = 0;
        kumihimo::resource::table()
            .usage(Some(kumihimo::resource::Kind::LINK), &mut |_, _| links += 1);
        let is_ours = |fd: &std::fs::DirEntry| {
            let what = std::fs::read_link(fd.path()).unwrap_or_default();
            ["socket:", "/memfd:kumihimo"]
                .iter()
                .any(|start| what.to_string_lossy().starts_with(start))
        };
        let descriptors =
            std::fs::read_dir("/proc/self/fd").expect("/proc").flatten().filter(is_ours).count();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
        Held {
            descriptors,
            lanes: maps.matches("memfd:kumihimo-lane").count(),
            regions: maps.matches("memfd:kumihimo-region").count(),
            links,
        }
    }
}

/// Waits until this process has the same links, lanes and regions as `before`.
pub fn until_no_link_is_left(before: &Held) {
    let of = |held: &Held| (held.lanes, held.links, held.regions);
    until(&format!("the remaining objects are {before:?}"), || of(&Held::now()) == of(before));
}
