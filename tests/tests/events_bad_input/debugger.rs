//! A debugger is attached, from the start or later: every signal stops the process and is the
//! debugger's to pass on.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;

use kumihimo::runtime::{Events, metrics};
use kumihimo::thread;
use kumihimo_tests::process::{alone, has_vps, is_child, start};
use kumihimo_tests::skip;

use crate::blocked::{block, nanosleep};
use crate::under::{ALL, end_at_a_panic, may, with_vps};

fn ptrace(request: libc::c_uint, tid: i32, data: usize) -> i64 {
    // SAFETY: none of the requests used here reads or writes our memory.
    unsafe { libc::ptrace(request, tid, 0usize, data) }
}

/// Attaches to all kernel threads of a process, those to come too.
fn seize(pid: u32) {
    let mut seized = HashSet::new();
    loop {
        let before = seized.len();
        for tid in kumihimo_bench_kit::kernel_threads(pid).expect("it lives") {
            // One that a seized one started is seized already (EPERM); one that has ended is not
            // there (ESRCH).
            if seized.insert(tid) {
                ptrace(libc::PTRACE_SEIZE, tid, libc::PTRACE_O_TRACECLONE as usize);
            }
        }
        if seized.len() == before {
            return;
        }
    }
}

/// Lets it run and passes its signals on, until it has ended: how, and how many SIGTRAPs came by.
fn follow(pid: u32) -> (i32, u64) {
    let mut traps = 0;
    loop {
        let mut status = 0;
        // SAFETY: a live integer.
        let tid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
        assert!(tid > 0, "{}", std::io::Error::last_os_error());
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            if tid == pid as i32 {
                return (status, traps);
            }
            continue;
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        // Of the tracer's own making: clone, and the stop of one that was started.
        let pass = if event == 0 { signal } else { 0 };
        traps += u64::from(pass == libc::SIGTRAP);
        // It may have been killed meanwhile, with all others (exit_group).
        ptrace(libc::PTRACE_CONT, tid, pass as usize);
    }
}

/// A line from the child's standard output that begins so, past what the test harness writes there.
fn await_line(from: &mut impl BufRead, begins: &str) {
    loop {
        let mut line = String::new();
        assert_ne!(
            from.read_line(&mut line).expect("a line"),
            0,
            "it ended before it said {begins}"
        );
        if line.contains(begins) {
            return;
        }
    }
}

/// The process that is traced: says `here`, and waits to be told to go on.
fn wait_for_the_tracer(here: &str) {
    println!("{here}");
    std::io::stdout().flush().expect("a pipe");
    assert_eq!(std::io::stdin().read(&mut [0]).expect("a pipe"), 1);
}

fn blocks() {
    let blocked = block(10);
    let naps: Vec<_> = (0..10)
        .map(|_| {
            thread::spawn(|| (0..20).for_each(|_| assert_eq!(nanosleep(100_000), 0, "no EINTR")))
        })
        .collect();
    for nap in naps {
        nap.join().expect("no panic");
    }
    blocked.release();
}

/// The test `name` consists of a tracer in a process of its own, whose only child is the traced
/// one.
fn traced(name: &str, traced: impl Fn(Events), traps: impl Fn(Events, u64)) {
    if is_child(name) && std::env::var("KUMI_TRACED").is_ok() {
        end_at_a_panic();
        return traced(
            Events::from_name(&std::env::var("KUMI_EVENTS").expect("set")).expect("a source"),
        );
    }
    alone(name, || {
        if !has_vps(name) {
            return;
        }
        for source in ALL {
            if !may(name, source) {
                continue;
            }
            let mut child: Child =
                start(name, &[("KUMI_EVENTS", source.name()), ("KUMI_TRACED", "1")]);
            let pid = child.id();
            let mut says = BufReader::new(child.stdout.take().expect("a pipe"));
            await_line(&mut says, "attach now");
            let mut refused = 0;
            std::thread::scope(|scope| {
                seize(pid);
                let status =
                    std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
                if status.contains("TracerPid:\t0\n") {
                    refused = 1;
                }
                child.stdin.as_mut().expect("a pipe").write_all(b"1").expect("it listens");
                // Its pipes would fill.
                let out = scope.spawn(move || std::io::read_to_string(says).expect("text"));
                let mut errors = child.stderr.take().expect("a pipe");
                let err = scope.spawn(move || {
                    let mut text = String::new();
                    errors.read_to_string(&mut text).expect("text");
                    text
                });
                let (status, seen) = follow(pid);
                // Reaped by that: an error.
                let _ = child.wait();
                let (out, err) = (out.join().expect("no panic"), err.join().expect("no panic"));
                assert!(
                    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                    "{source}: {status:#x}\n{out}\n{err}"
                );
                if !err.contains("[skip]") && refused == 0 {
                    traps(source, seen);
                }
            });
            if refused != 0 {
                skip(name, "ptrace is refused");
            }
        }
    });
}

#[test]
fn attached_from_the_start() {
    traced(
        "debugger::attached_from_the_start",
        |source| {
            wait_for_the_tracer("attach now");
            with_vps(2, || {
                assert_eq!(metrics().expect("it runs").events, source.name());
                blocks();
                assert_eq!(metrics().expect("it runs").unblocked, 0);
            });
        },
        |source, traps| assert_eq!(traps, 0, "no signal of {source}'s stops anything"),
    );
}

#[test]
fn attached_in_the_middle() {
    traced(
        "debugger::attached_in_the_middle",
        |_| {
            with_vps(2, || {
                blocks();
                let blocked = block(10);
                // Held up by nobody: the tracer attaches while they are blocked and these go on.
                thread::blocking(|| wait_for_the_tracer("attach now"));
                blocks();
                blocked.release();
                blocks();
            });
        },
        // All of them passed on. Of the other sources those that preempt, if any was preempted.
        |source, traps| assert!(traps > 0 || source != Events::Bpf, "{traps}"),
    );
}
