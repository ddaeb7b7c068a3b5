//! The programs at the tracepoint are loaded once for all processes.
//!
//! Each test uses its own name for the programs, so that it shares nothing with other tests and
//! other processes of the machine. The child processes run this test program.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use kumihimo_events::bpf::Bpf;
use kumihimo_events::bpf::tracepoint::{Options, Origin, Report};

use crate::common::*;

const CHILD: &str = "KUMI_TEST_SHARED";

fn options(name: &str) -> Options {
    Options { name: Some(name.to_owned()), ..Options::default() }
}

/// Returns a name of at most 15 bytes.
fn name(test: &str) -> String {
    format!("kt{test}{}", std::process::id())
}

fn open(options: &Options) -> (Bpf, Report) {
    handle_traps();
    let bpf = Bpf::load_switch_with(8, options).expect("loaded");
    let report = bpf.tracepoint().expect("information").expect("at the tracepoint");
    (bpf, report)
}

/// Returns the reason why the tests of this file cannot run on this machine, if they cannot.
fn cannot_share() -> Option<String> {
    handle_traps();
    let bpf = match Bpf::load_switch_with(1, &options(&name("try"))) {
        Err(refused) => return Some(refused.to_string()),
        Ok(bpf) => bpf,
    };
    match bpf.tracepoint().expect("information").expect("at the tracepoint").origin {
        Origin::Alone(why) => Some(why),
        Origin::Found | Origin::Loaded => None,
    }
}

/// Precedes each reply of the child: libtest prints to the same output.
const MARK: &str = "child: ";

/// Runs the child process: executes the commands in the lines of its input.
fn child(name: &str) {
    let mut lines = std::io::stdin().lines();
    let mut next = || lines.next().and_then(Result::ok);
    let pause = match next().as_deref() {
        Some("open") => Duration::ZERO,
        Some("open slowly") => Duration::from_secs(1),
        _ => return,
    };
    let (bpf, report) = open(&Options { pause, ..options(name) });
    let origin = if report.origin == Origin::Found { "found" } else { "loaded" };
    println!("{MARK}{} {origin} {}", report.program, report.processes);
    while next().as_deref() == Some("sleep") {
        sleeps_are_told(&bpf, 200, || sleep_until_lent(Slot::of(&bpf, 3), 1_000), || ());
        println!("{MARK}told");
    }
}

/// A child process.
struct Process {
    child: std::process::Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn begin(test: &str, name: &str, before: &[&str]) -> Process {
        let program = std::env::current_exe().expect("a program");
        let mut command = match before.split_first() {
            None => Command::new(&program),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(&program);
                command
            }
        };
        let mut child = command
            .args([test, "--exact", "--nocapture"])
            .env(CHILD, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("begun");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Process { child, input, output }
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.input.as_mut().expect("open"), "{what}").expect("told");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).expect("read"), 0, "it has ended");
            if let Some((_, answer)) = line.trim_end().split_once(MARK) {
                return answer.to_owned();
            }
        }
    }

    /// Returns the ID of the child's program, the program's origin, and the number of processes
    /// that use the program.
    fn opened(&mut self) -> (u32, String, usize) {
        let answer = self.answer();
        let words: Vec<&str> = answer.split(' ').collect();
        let number = |n: usize| words[n].parse::<u32>().expect("a number");
        (number(0), words[1].to_owned(), number(2) as usize)
    }

    fn sleeps_are_told(&mut self) {
        self.tell("sleep");
        assert_eq!(self.answer(), "told");
    }

    fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited for");
    }

    fn end(mut self) {
        drop(self.input.take());
        let mut rest = String::new();
        while self.output.read_line(&mut rest).expect("read") > 0 {}
        assert!(self.child.wait().expect("waited for").success(), "{rest}");
    }
}

/// Waits until the kernel has freed the programs, which it does in the background, after an RCU
/// grace period.
fn wait_until_gone(report: &Report) {
    const MEMBARRIER_CMD_GLOBAL: libc::c_long = 1;
    // Counted in grace periods and not in time: both a busy machine and its kernel are slow.
    let mut grace_periods = 0;
    while report.remains().expect("root may ask") {
        grace_periods += 1;
        assert!(grace_periods < 1000, "left over: {report:?}");
        // One grace period (kernel/sched/membarrier.c: `synchronize_rcu`).
        // SAFETY: takes no pointers.
        unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn processes_share_one_program_and_go_on_when_its_loader_is_killed() {
    const NAME: &str = "shared::processes_share_one_program_and_go_on_when_its_loader_is_killed";
    if let Ok(name) = std::env::var(CHILD) {
        return child(&name);
    }
    if let Some(why) = cannot_share() {
        return skip(NAME, &why);
    }
    let name = name("kill");
    let begin = || {
        let mut process = Process::begin(NAME, &name, &[]);
        process.tell("open");
        process
    };
    let mut first = begin();
    let (program, origin, processes) = first.opened();
    assert_eq!((origin.as_str(), processes), ("loaded", 1));
    let mut second = begin();
    assert_eq!(second.opened(), (program, "found".to_owned(), 2));
    let (bpf, report) = open(&options(&name));
    assert_eq!((report.program, &report.origin, report.processes), (program, &Origin::Found, 3));
    drop(bpf);

    // Both processes use the same slots at the same time: neither receives the other's reports.
    first.tell("sleep");
    second.sleeps_are_told();
    assert_eq!(first.answer(), "told");

    first.kill();
    second.sleeps_are_told();
    let mut third = begin();
    assert_eq!(third.opened(), (program, "found".to_owned(), 2), "the killed one is not counted");
    third.sleeps_are_told();
    assert!(report.remains().expect("root may ask"));
    second.end();
    third.sleeps_are_told();
    third.kill();
    wait_until_gone(&report);
}

#[test]
fn first_processes_that_begin_at_once_agree_on_one_program() {
    const NAME: &str = "shared::first_processes_that_begin_at_once_agree_on_one_program";
    if let Ok(name) = std::env::var(CHILD) {
        return child(&name);
    }
    if let Some(why) = cannot_share() {
        return skip(NAME, &why);
    }
    let name = name("once");
    for (round, how) in ["open", "open slowly", "open", "open slowly"].into_iter().enumerate() {
        let mut all: Vec<_> = (0..8).map(|_| Process::begin(NAME, &name, &[])).collect();
        all.iter_mut().for_each(|process| process.tell(how));
        let programs: Vec<_> = all.iter_mut().map(|process| process.opened().0).collect();
        assert!(programs.iter().all(|id| *id == programs[0]), "round {round}: {programs:?}");
        let (bpf, report) = open(&options(&name));
        assert_eq!((report.program, report.processes), (programs[0], 9), "round {round}");
        drop(bpf);
        all.into_iter().for_each(Process::end);
        wait_until_gone(&report);
    }
}

#[test]
fn program_of_the_same_name_and_another_tag_is_not_used() {
    const NAME: &str = "shared::program_of_the_same_name_and_another_tag_is_not_used";
    if let Some(why) = cannot_share() {
        return skip(NAME, &why);
    }
    let name = name("tag");
    let foreign = Options { traps: false, ..options(&name) };
    let (other, others) = open(&foreign);
    let (own, report) = open(&options(&name));
    if others.traps == report.traps {
        return skip(NAME, "both are the program without task work");
    }
    assert_eq!(report.origin, Origin::Loaded);
    assert_ne!(report.program, others.program);
    assert_eq!(open(&options(&name)).1.program, report.program);
    assert_eq!(open(&foreign).1.program, others.program);
    sleeps_are_told(&own, 100, || sleep_until_lent(Slot::of(&own, 3), 1_000), || ());
    sleeps_are_told(&other, 100, || sleep_until_lent(Slot::of(&other, 3), 1_000), || ());
    drop((own, other));
    wait_until_gone(&report);
    wait_until_gone(&others);
}

#[test]
fn program_of_another_name_is_not_used() {
    const NAME: &str = "shared::program_of_another_name_is_not_used";
    if let Some(why) = cannot_share() {
        return skip(NAME, &why);
    }
    let ((_one, one), (_two, two)) = (open(&options(&name("a"))), open(&options(&name("b"))));
    assert_eq!((one.origin, two.origin), (Origin::Loaded, Origin::Loaded));
    assert_ne!(one.program, two.program);
}

/// Drops CAP_SYS_ADMIN of the calling kernel thread for good. Other threads keep it.
fn give_up_cap_sys_admin() {
    const CAP_SYS_ADMIN: u32 = 21;
    // _LINUX_CAPABILITY_VERSION_3, this thread; then effective, permitted, inheritable, twice.
    let (mut header, mut sets) = ([0x2008_0522u32, 0], [0u32; 6]);
    // SAFETY: version 3 reads and writes two sets of three words.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()), 0);
        sets[0] &= !(1 << CAP_SYS_ADMIN);
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()), 0);
    }
}

#[test]
fn process_that_may_not_find_the_program_loads_its_own_and_reports_why() {
    const NAME: &str =
        "shared::process_that_may_not_find_the_program_loads_its_own_and_reports_why";
    if let Some(why) = cannot_share() {
        return skip(NAME, &why);
    }
    let name = name("cap");
    let (_bpf, report) = open(&options(&name));
    let options = options(&name);
    let thread = std::thread::spawn(move || {
        give_up_cap_sys_admin();
        let (own, report) = open(&options);
        sleeps_are_told(&own, 100, || sleep_until_lent(Slot::of(&own, 3), 1_000), || ());
        report
    });
    let own = thread.join().expect("loaded");
    assert_ne!(own.program, report.program);
    let text = own.to_string();
    assert!(text.contains("for this process alone") && text.contains("CAP_SYS_ADMIN"), "{text}");
}

#[test]
fn process_of_another_pid_namespace_shares_the_program() {
    const NAME: &str = "shared::process_of_another_pid_namespace_shares_the_program";
    if let Ok(name) = std::env::var(CHILD) {
        return child(&name);
    }
    if let Some(why) = cannot_share() {
        return skip(NAME, &why);
    }
    let can = Command::new("unshare").args(["--pid", "--fork", "true"]).status();
    if !can.is_ok_and(|done| done.success()) {
        return skip(NAME, "`unshare --pid --fork` fails");
    }
    let name = name("pid");
    let (bpf, report) = open(&options(&name));
    let namespace = ["unshare", "--pid", "--fork", "--kill-child"];
    let mut processes: Vec<_> = (0..2).map(|_| Process::begin(NAME, &name, &namespace)).collect();
    for (n, process) in processes.iter_mut().enumerate() {
        process.tell("open");
        assert_eq!(process.opened(), (report.program, "found".to_owned(), n + 2));
    }
    // The threads of these processes have equal IDs in their namespaces, and equal slots.
    processes.iter_mut().for_each(|process| process.tell("sleep"));
    sleeps_are_told(&bpf, 200, || sleep_until_lent(Slot::of(&bpf, 3), 1_000), || ());
    processes.iter_mut().for_each(|process| assert_eq!(process.answer(), "told"));
    drop(bpf);
    processes.into_iter().for_each(Process::end);
    wait_until_gone(&report);
}
