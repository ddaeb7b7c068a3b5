//! Test harness: boards of their own, and processes that hold and request cores.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kumihimo_arbiter::board::Board;
use kumihimo_arbiter::core_notify::{CoreNotify, Receiver};
use kumihimo_arbiter::member::Member;
use kumihimo_arbiter::row::{Reach, SleepMode};
use kumihimo_arbiter::seat::{Bounds, Outcome, Seat};
use kumihimo_arbiter::view::View;

/// Notifies by SIGURG to the kernel thread that carries the VP. The default action ignores the
/// signal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signal;

impl CoreNotify for Signal {
    fn notify(&self, receiver: Receiver) {
        // SAFETY: integer arguments. The kernel refuses a thread of another thread group, and a
        // process of another user: tgkill(2).
        unsafe { libc::syscall(libc::SYS_tgkill, receiver.pid, receiver.thread, libc::SIGURG) };
    }
}

/// Time limit of waits; a hang exceeds it, a slow machine does not.
pub const LIMIT: Duration = Duration::from_secs(60);

/// CLOCK_MONOTONIC, nanoseconds.
pub fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Polls for a condition without sleeping in the kernel, because the caller may hold a core.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "hangs: {what}");
        std::thread::yield_now();
    }
}

/// Reports on standard error that a test is skipped, and why; the scripts count the line. Bypasses
/// libtest's capture.
pub fn skip(test: &str, why: &str) {
    std::io::stderr()
        .write_all(format!("\n[skip] {test}: {why}\n").as_bytes())
        .expect("standard error is open");
}

/// Directory of one test, removed on drop.
pub struct Room(pub PathBuf);

impl Room {
    pub fn new() -> Room {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "kumi-arbiter-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a directory for the test");
        Room(path)
    }

    pub fn path(&self) -> PathBuf {
        self.0.join("board")
    }

    pub fn member(&self, vps: usize) -> Arc<Member> {
        let board = Board::open(&self.path()).expect("a board");
        Arc::new(Member::join(board, "test", vps, now(), &Signal).expect("a row"))
    }

    pub fn view(&self) -> View {
        View::open(&self.path()).expect("a board to look at")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Creates a seat at this core.
pub fn seat(member: &Arc<Member>, vp: usize, core: usize, bounds: Bounds) -> Seat {
    let seat = Seat::new(member.clone(), vp, core, true, Arc::new(Signal), bounds);
    seat.on_thread();
    seat
}

/// Requests the core and sleeps while the VP must wait, as the runtime does. Returns false if the
/// VP does not get the core before `end` (CLOCK_MONOTONIC).
pub fn goes_before(seat: &mut Seat, vp: usize, level: u8, end: u64) -> bool {
    let mut outcome = seat.runs(level, now());
    while outcome == Outcome::Wait {
        if now() > end {
            return false;
        }
        let cell = &seat.member().row().cells[vp];
        cell.prepare_sleep(SleepMode::Futex);
        if !seat.is_mine() {
            cell.sleep(Some(seat.nap(now())), Reach::Shared);
        }
        cell.finish_sleep();
        outcome = seat.look(now());
    }
    true
}

/// Requests the core until the VP gets it.
pub fn goes(seat: &mut Seat, vp: usize, level: u8) {
    assert!(
        goes_before(seat, vp, level, now() + LIMIT.as_nanos() as u64),
        "kept from its core: {seat:?}"
    );
}

/// Bounds so long that a busy machine does not exceed them, for tests within the bounds.
pub fn patient() -> Bounds {
    Bounds { quantum: Duration::from_secs(20), watchdog: Duration::from_secs(20) }
}

/// Another process at the board, with one task.
pub struct Other {
    pub child: Child,
    pub says: BufReader<ChildStdout>,
    pub stdin: Option<ChildStdin>,
}

const CHILD: &str = "KUMI_ARBITER_CHILD";

impl Other {
    /// Runs this test program again with its test `child`, which executes `words`.
    pub fn start(board: &Path, words: &str) -> Other {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{} {words}", board.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let says = BufReader::new(child.stdout.take().expect("piped"));
        let stdin = child.stdin.take();
        Other { child, says, stdin }
    }

    /// Waits for a line that ends with `wanted`. Skips libtest's own output, which may precede it
    /// on the same line.
    pub fn expect(&mut self, wanted: &str) {
        loop {
            let line = self.line();
            if line.ends_with(wanted) {
                return;
            }
            assert!(!line.is_empty(), "the process ended without printing {wanted}");
        }
    }

    /// Sends a line, for which the process may be waiting.
    pub fn go(&mut self) {
        self.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
    }

    /// Returns the next line that is not empty, without its end; an empty string at the end of the
    /// output.
    pub fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            let length = self.says.read_line(&mut line).expect("it can be read");
            let line = line.trim_end();
            if length == 0 || !line.is_empty() {
                return line.to_owned();
            }
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it lives");
    }

    /// Closes standard input, upon which the process ends, and checks that it succeeds.
    pub fn ends(mut self) {
        drop(self.stdin.take());
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a process that [`Other::start`] started: returns the board's path and the words.
pub fn words() -> Option<(PathBuf, Vec<String>)> {
    let words = std::env::var(CHILD).ok()?;
    let mut words = words.split(' ').map(str::to_owned);
    let path = PathBuf::from(words.next()?);
    Some((path, words.collect()))
}

pub fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{what}").and_then(|()| out.flush()).expect("standard output is open");
}

/// Returns whether standard input has ended, without waiting.
pub fn is_over() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdin = std::io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&none)).expect("poll") != 0
}
