//! State of a process: its kernel threads as procfs shows them, and its stacks as gdb shows them.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::family;

/// Describes each kernel thread of `process`. Adds the stacks of its kernel threads and
/// microprocesses if gdb is installed and may attach.
///
/// Blocks the kernel thread while gdb runs, at most 105 s. `process` is stopped meanwhile and
/// continues afterwards.
#[must_use]
pub fn report(process: u32) -> String {
    // procfs is read first, because gdb stops all threads.
    let mut report = kernel_threads(process);
    report.push_str(&stacks(process));
    report
}

/// Reads proc_pid_stat(5), proc_pid_wchan(5) and proc_pid_syscall(5).
fn kernel_threads(process: u32) -> String {
    let tasks = match fs::read_dir(format!("/proc/{process}/task")) {
        Ok(tasks) => tasks,
        Err(e) => return format!("no kernel threads of process {process}: {e}\n"),
    };
    let mut text = String::from(
        "kernel thread, name, state, user and system time in ticks, waits in, system call\n",
    );
    for task in tasks.flatten() {
        let read = |name| match fs::read_to_string(task.path().join(name)) {
            Ok(text) => text.trim().to_owned(),
            Err(e) => format!("({e})"),
        };
        let stat = read("stat");
        let fields = family::after_name(&stat);
        let field = |n| *fields.get(n).unwrap_or(&"?");
        let (tid, name) = (task.file_name(), read("comm"));
        let (wchan, call) = (read("wchan"), read("syscall"));
        let _ = writeln!(
            text,
            "{}, {name}, {}, {} {}, {wchan}, {call}",
            tid.display(),
            field(0),
            field(11),
            field(12)
        );
    }
    text
}

/// Runs gdb with a limit of 100 s, because gdb may hang as well.
fn stacks(process: u32) -> String {
    let script = root().join("crates/runtime/gdb/kumihimo.py");
    let mut gdb = Command::new("timeout");
    gdb.args(["-k", "5", "100", "gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off"]);
    gdb.args(["-p", &process.to_string(), "-ex", "thread apply all bt 40"]);
    gdb.args(["-ex", &format!("source {}", script.display()), "-ex", "kumi backtrace all"]);
    match gdb.stdin(Stdio::null()).output() {
        Ok(output) => {
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        }
        Err(e) => format!("no gdb: {e}\n"),
    }
}

/// The root of the source tree.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the crate lies two folders below the root").to_path_buf()
}
