//! Runs a test in a child process, for tests that may end the process or cannot share it with other
//! tests' runtimes.

use std::io::Write;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

pub use kumihimo_bench_kit::cargo;
use kumihimo_hang::Watch;
use rustix::process::{Pid, Signal, kill_process};

/// Result of a child process.
#[derive(Debug)]
pub struct Ended {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output, including that of the test program itself.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ended {
    /// Exit status and output, indented. The indentation keeps programs that parse test results
    /// from taking the child's lines for the parent's.
    #[must_use]
    pub fn told(&self) -> String {
        let written = self.stdout.lines().chain(self.stderr.lines());
        written.fold(self.status.to_string(), |told, line| told + "\n  | " + line)
    }
}

/// Number of consecutive idle checks, one second apart, after which a process is considered hung.
const IDLE_LOOKS: u32 = 60;

/// CPU time after which a process that has not ended is considered to be in an endless loop. It is
/// a multiple of the CPU time of every test, and independent of the machine's load.
const CPU_BOUND: Duration = Duration::from_secs(300);

/// Interval between checks of a running process.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Sends a signal to a child process of the test.
///
/// # Errors
/// As kill(2).
pub fn send_signal(pid: u32, signal: Signal) -> std::io::Result<()> {
    let pid =
        i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(std::io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, signal)?)
}

/// Returns true in the child process that [`again`] or [`start`] created for the test `name`.
#[must_use]
pub fn is_child(name: &str) -> bool {
    std::env::var("KUMI_TEST_CHILD").is_ok_and(|child| child == name)
}

/// An environment variable for a child. For `KUMI_LAB`, this process's pairs are kept unless
/// `value` replaces them, because a row of the matrix of fallbacks sets some.
fn with_lab<'a>(name: &'a str, value: &str) -> (&'a str, String) {
    match name {
        "KUMI_LAB" => (name, kumihimo_config::lab_with(value)),
        _ => (name, value.to_owned()),
    }
}

/// Starts this test program as a child process that runs only the test `name`, with pipes for its
/// standard streams.
///
/// # Panics
/// If the process cannot be started.
#[must_use]
pub fn start(name: &str, environment: &[(&str, &str)]) -> Child {
    command(name, environment).spawn().expect("the test program once more")
}

/// Returns the command of [`start`], for a child process in other circumstances.
///
/// # Panics
/// If the path of this program is unknown.
#[must_use]
pub fn command(name: &str, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("KUMI_TEST_CHILD", name)
        // Sanitizers, if any, must leave signals of faults to the program.
        .env("ASAN_OPTIONS", "detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_abort=0")
        .env("TSAN_OPTIONS", "handle_segv=0:handle_sigbus=0:handle_abort=0:report_bugs=0")
        .env_remove("RUST_BACKTRACE")
        .envs(environment.iter().map(|&(name, value)| with_lab(name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs this test program as a child process for the test `name`, and waits for its end.
///
/// # Panics
/// If the child hangs, with its output and a description of its state.
#[must_use]
pub fn again(name: &str, environment: &[(&str, &str)]) -> Ended {
    finish(name, start(name, environment))
}

/// Waits for the end of a child process that [`start`] created.
///
/// # Panics
/// If the child hangs, with its output and a description of its state; or if there is no test
/// `name`.
#[must_use]
pub fn finish(name: &str, child: Child) -> Ended {
    finish_within(IDLE_LOOKS, name, child)
}

fn finish_within(idle_looks: u32, name: &str, child: Child) -> Ended {
    let pid = child.id();
    let mut watch = Watch::new(pid);
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let output = child.wait_with_output().expect("the process can be waited for");
        let _ = sender.send(());
        output
    });
    let hangs = loop {
        if receiver.recv_timeout(LOOK_EVERY).is_ok() {
            break None;
        }
        if watch.look() >= idle_looks || watch.cpu() > CPU_BOUND {
            break Some(kumihimo_hang::report(pid));
        }
    };
    if hangs.is_some() {
        // A stopped process handles SIGABRT only after SIGCONT.
        for signal in [Signal::ABORT, Signal::CONT] {
            let _ = send_signal(pid, signal);
        }
    }
    let output = reader.join().expect("the reader does not panic");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ended =
        Ended { status: output.status, stdout: text(&output.stdout), stderr: text(&output.stderr) };
    if let Some(stood) = hangs {
        panic!("{name} hangs: {}\n{stood}", ended.told());
    }
    // libtest succeeds if no test has this name.
    assert!(!ended.stdout.contains("running 0 tests"), "there is no test {name}");
    ended
}

/// Runs `body` in a child process and asserts that it returns.
///
/// # Panics
/// If the child fails or hangs.
pub fn alone(name: &str, body: impl FnOnce()) {
    alone_with(name, &[], body);
}

/// As [`alone`], with environment variables for the child process.
///
/// # Panics
/// If the child fails or hangs.
pub fn alone_with(name: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    if is_child(name) {
        return body();
    }
    let ended = again(name, environment);
    // Repeat the child's skips on standard error, where `xtask` counts them.
    for line in ended.stderr.lines().filter(|line| line.starts_with("[skip]")) {
        let _ = writeln!(std::io::stderr(), "\n{line}");
    }
    assert!(ended.status.success(), "{name}: {}", ended.told());
}

/// Returns whether the running runtime uses the 1:1 mode, in which microprocesses are kernel
/// threads (`KUMI_LAB=tls=kernel`, ThreadSanitizer, or another libc).
///
/// # Panics
/// If no runtime is running.
#[must_use]
pub fn one_to_one() -> bool {
    kumihimo::runtime::metrics().expect("a runtime runs").tls == "kernel"
}

/// As [`one_to_one`], without a running runtime. The first call starts one to find out.
///
/// # Panics
/// If a runtime is running, or none can be started.
#[must_use]
pub fn is_one_to_one() -> bool {
    found().one_to_one
}

struct Found {
    one_to_one: bool,
    preempts: bool,
    tells_returns: bool,
    reports_blocks: bool,
}

fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    let look = || {
        let now = kumihimo::runtime::metrics().expect("a runtime runs");
        let one_to_one = now.tls == "kernel";
        Found {
            one_to_one,
            preempts: one_to_one || now.preemption != "off",
            tells_returns: !one_to_one && now.events == "bpf",
            reports_blocks: !one_to_one && now.events != "off",
        }
    };
    FOUND.get_or_init(|| {
        kumihimo::runtime::Runtime::builder().vps(1).build().expect("a runtime").run(look)
    })
}

/// Returns whether microprocesses have virtual processors that can be handed over. If not, reports
/// `test` as skipped.
///
/// # Panics
/// As [`is_one_to_one`].
#[must_use]
pub fn has_vps(test: &str) -> bool {
    let has = !is_one_to_one();
    if !has {
        crate::skip(
            test,
            "microprocesses are kernel threads, without virtual processors to hand over",
        );
    }
    has
}

/// Returns whether a computing microprocess is preempted. If not, reports `test` as skipped.
///
/// # Panics
/// As [`is_one_to_one`].
#[must_use]
pub fn is_preempted(test: &str) -> bool {
    let is = found().preempts;
    if !is {
        crate::skip(
            test,
            "preemption is off (KUMI_EVENTS=off, KUMI_PREEMPT=off): an endless loop keeps its virtual processor",
        );
    }
    is
}

/// Returns whether the runtime is notified when a microprocess blocks in the kernel, for which a
/// spare kernel thread always waits. If not, reports `test` as skipped.
///
/// # Panics
/// As [`is_one_to_one`].
#[must_use]
pub fn keeps_a_spare(test: &str) -> bool {
    let keeps = found().reports_blocks;
    if !keeps {
        crate::skip(test, "no spare kernel thread waits with event source off");
    }
    keeps
}

/// Returns whether the runtime is notified at once when a microprocess returns from the kernel. If
/// not, reports `test` as skipped.
///
/// # Panics
/// As [`is_one_to_one`].
#[must_use]
pub fn tells_returns(test: &str) -> bool {
    let tells = may_tell_returns();
    if !tells {
        crate::skip(
            test,
            "only event source bpf reports returns: with others, a microprocess continues until it enters the runtime",
        );
    }
    tells
}

/// As [`tells_returns`], without a report.
///
/// # Panics
/// As [`is_one_to_one`].
#[must_use]
pub fn may_tell_returns() -> bool {
    found().tells_returns
}

/// Number of this process's kernel threads, except exiting ones: a joined thread stays in the
/// directory for a moment, marked PF_EXITING.
///
/// # Panics
/// If procfs is not mounted.
#[must_use]
pub fn kernel_threads() -> usize {
    let exiting = |stat: &str| {
        let flags = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(6));
        flags.and_then(|flags| flags.parse::<u64>().ok()).expect("proc_pid_stat(5)") & 4 != 0
    };
    let stat = |thread| std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    let all = kumihimo_bench_kit::kernel_threads(std::process::id()).expect("procfs");
    all.into_iter().filter(|&thread| stat(thread).is_ok_and(|stat| !exiting(&stat))).count()
}

/// Waits until all other kernel threads of this process sleep. New threads have then allocated all
/// that they need, and released temporary allocations.
///
/// # Panics
/// If procfs is not mounted, or if other threads compute for a minute.
pub fn others_sleep() {
    let own = std::fs::read_link("/proc/thread-self").expect("procfs");
    let own: i32 =
        own.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a kernel thread's id");
    let sleeps = |thread: i32| {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
        // A thread that has ended meanwhile counts as sleeping.
        stat.map_or(true, |stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S")))
    };
    let all = || kumihimo_bench_kit::kernel_threads(std::process::id()).expect("procfs");
    let begun = Instant::now();
    while !all().into_iter().filter(|&thread| thread != own).all(sleeps) {
        assert!(begun.elapsed() < Duration::from_secs(60), "other threads do not stop computing");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[inline(never)]
    fn waits_for_ever() {
        println!("here");
        loop {
            std::thread::park();
        }
    }

    /// The report lists kernel threads by name and state, their stacks if gdb is available, and the
    /// child's output; and the child is killed.
    #[test]
    fn hanging_program_is_reported_with_its_location() {
        const NAME: &str = "process::tests::hanging_program_is_reported_with_its_location";
        if is_child(NAME) {
            let waits = std::thread::Builder::new().name("hangs".into()).spawn(waits_for_ever);
            return waits.expect("a kernel thread").join().expect("it does not end");
        }
        let mut child = start(NAME, &[]);
        // The child hangs from here on.
        let (mut said, stdout) = (Vec::new(), child.stdout.as_mut().expect("a pipe"));
        while !said.ends_with(b"here\n") {
            let mut byte = [0];
            stdout.read_exact(&mut byte).expect("the line `here`");
            said.extend(byte);
        }
        let finished = std::panic::catch_unwind(|| finish_within(2, NAME, child));
        let report = finished.expect_err("it hangs");
        let report = report.downcast_ref::<String>().expect("a report");
        assert!(report.contains(NAME) && report.contains("SIGABRT"), "{report}");
        let its =
            report.lines().find(|line| line.contains(", hangs, ")).expect("its kernel thread");
        assert!(its.split(", ").count() == 6 && !its.contains("os error"), "{report}");
        let has_gdb = Command::new("gdb").arg("--version").stdout(Stdio::null()).status().is_ok();
        if !has_gdb || report.contains("ptrace: Operation not permitted") {
            return crate::skip(NAME, "no gdb, or it may not look");
        }
        assert!(report.contains("waits_for_ever"), "{report}");
    }
}
