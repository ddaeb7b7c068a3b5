//! Where a process stands that does not end.

use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};

/// Each kernel thread of `process` with what it does, and its stack if there is a gdb; those of its microprocesses, too.
pub(crate) fn report(process: u32) -> String {
    // First: gdb stops them all.
    let mut report = kernel_threads(process);
    report.push_str(&stacks(process));
    report
}

/// By the kernel's account: proc_pid_stat(5), proc_pid_wchan(5), proc_pid_syscall(5).
fn kernel_threads(process: u32) -> String {
    let tasks = match fs::read_dir(format!("/proc/{process}/task")) {
        Ok(tasks) => tasks,
        Err(e) => return format!("no kernel threads of process {process}: {e}\n"),
    };
    let mut text = String::from("kernel thread, name, state, user and system time in ticks, waits in, system call\n");
    for task in tasks.flatten() {
        let read = |name| match fs::read_to_string(task.path().join(name)) {
            Ok(text) => text.trim().to_owned(),
            Err(e) => format!("({e})"),
        };
        let stat = read("stat");
        let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let field = |n| *fields.get(n).unwrap_or(&"?");
        let (tid, name, wchan, call) = (task.file_name(), read("comm"), read("wchan"), read("syscall"));
        let _ = writeln!(text, "{}, {name}, {}, {} {}, {wchan}, {call}", tid.display(), field(0), field(11), field(12));
    }
    text
}

/// What gdb says, which should not hang as well.
fn stacks(process: u32) -> String {
    let script = crate::root().join("crates/runtime/gdb/kumihimo.py");
    let mut gdb = Command::new("timeout");
    gdb.args(["-k", "5", "100", "gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off"]);
    gdb.args(["-p", &process.to_string(), "-ex", "thread apply all bt 40"]);
    gdb.args(["-ex", &format!("source {}", script.display()), "-ex", "kumi backtrace all"]);
    match gdb.stdin(Stdio::null()).output() {
        Ok(said) => String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned(),
        Err(e) => format!("no gdb: {e}\n"),
    }
}
