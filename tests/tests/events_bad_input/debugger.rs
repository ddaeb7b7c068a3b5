//! A debugger is attached, from the start or later. Every signal stops the process, and the
//! debugger passes it on.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;

use kumihimo::runtime::{Events, Runtime, metrics};
use kumihimo::thread;
use kumihimo_tests::process::{alone, has_vps, is_child, start};
use kumihimo_tests::skip;

use crate::blocked::{block, nanosleep};
use crate::under::{ALL, end_at_a_panic, may, with, with_vps};

/// What a tracer stops the process for, beside signals.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stops {
    /// Nothing else, as gdb does.
    Signals,
    /// Each begin and end of a system call, as strace(1) does.
    Calls,
}

fn ptrace(request: libc::c_uint, tid: i32, data: usize) -> i64 {
    // SAFETY: none of the requests used here accesses this process's memory.
    unsafe { libc::ptrace(request, tid, 0usize, data) }
}

/// Attaches to all kernel threads of a process, including future ones.
fn seize(pid: u32, stops: Stops) {
    let mut seized = HashSet::new();
    loop {
        let before = seized.len();
        for tid in kumihimo_bench_kit::kernel_threads(pid).expect("it lives") {
            // A thread started by a seized one is already seized (EPERM). A thread that has ended
            // does not exist (ESRCH).
            if seized.insert(tid) {
                let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACESYSGOOD;
                ptrace(libc::PTRACE_SEIZE, tid, options as usize);
                if stops == Stops::Calls {
                    // It continues with the request that stops it at calls.
                    ptrace(libc::PTRACE_INTERRUPT, tid, 0);
                }
            }
        }
        if seized.len() == before {
            return;
        }
    }
}

/// Continues the process and passes its signals on until it has ended. Returns its status and the
/// number of SIGTRAPs, or of stops at calls.
fn follow(pid: u32, stops: Stops) -> (i32, u64) {
    /// The signal of a stop at a call (PTRACE_O_TRACESYSGOOD).
    const CALL: i32 = libc::SIGTRAP | 0x80;
    let go_on = match stops {
        Stops::Signals => libc::PTRACE_CONT,
        Stops::Calls => libc::PTRACE_SYSCALL,
    };
    let mut seen = 0;
    loop {
        let mut status = 0;
        // SAFETY: a live integer.
        let tid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
        assert!(tid > 0, "{}", std::io::Error::last_os_error());
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            if tid == pid as i32 {
                return (status, seen);
            }
            continue;
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        // Stops caused by tracing itself: clone events, and the initial stop of a new thread.
        let pass = if event == 0 && signal != CALL { signal } else { 0 };
        seen += u64::from(match stops {
            Stops::Signals => pass == libc::SIGTRAP,
            Stops::Calls => signal == CALL,
        });
        // The thread may have been killed meanwhile with all others (exit_group).
        ptrace(go_on, tid, pass as usize);
    }
}

/// Reads the child's standard output up to a line with this beginning.
fn await_line(from: &mut impl BufRead, begins: &str) {
    loop {
        let mut line = String::new();
        assert_ne!(
            from.read_line(&mut line).expect("a line"),
            0,
            "the process ended before it printed {begins}"
        );
        if line.contains(begins) {
            return;
        }
    }
}

/// In the traced process: prints `here` and waits for the tracer.
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

/// Runs the test `name` in a tracer process whose only child is the traced process.
fn traced(name: &str, stops: Stops, traced: impl Fn(Events), check: impl Fn(Events, u64)) {
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
                seize(pid, stops);
                let status =
                    std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
                if status.contains("TracerPid:\t0\n") {
                    refused = 1;
                }
                child.stdin.as_mut().expect("a pipe").write_all(b"1").expect("a listening socket");
                // Drain the pipes, so that they do not fill.
                let out = scope.spawn(move || std::io::read_to_string(says).expect("text"));
                let mut errors = child.stderr.take().expect("a pipe");
                let err = scope.spawn(move || {
                    let mut text = String::new();
                    errors.read_to_string(&mut text).expect("text");
                    text
                });
                let (status, seen) = follow(pid, stops);
                // Already reaped by `follow`, so this fails.
                let _ = child.wait();
                let (out, err) = (out.join().expect("no panic"), err.join().expect("no panic"));
                assert!(
                    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                    "{source}: {status:#x}\n{out}\n{err}"
                );
                if !err.contains("[skip]") && refused == 0 {
                    check(source, seen);
                }
            });
            if refused != 0 {
                skip(name, "ptrace is refused");
            }
        }
    });
}

#[test]
fn debugger_attached_from_the_start_sees_no_traps() {
    traced(
        "debugger::debugger_attached_from_the_start_sees_no_traps",
        Stops::Signals,
        |source| {
            wait_for_the_tracer("attach now");
            with_vps(2, || {
                assert_eq!(metrics().expect("it runs").events, source.name());
                blocks();
                assert_eq!(metrics().expect("it runs").unblocked, 0);
            });
        },
        |source, traps| assert_eq!(traps, 0, "source {source} must not send signals"),
    );
}

#[test]
fn debugger_attached_later_passes_all_traps_on() {
    traced(
        "debugger::debugger_attached_later_passes_all_traps_on",
        Stops::Signals,
        |_| {
            with_vps(2, || {
                blocks();
                let blocked = block(10);
                // In `blocking`, so that the tracer attaches while some are blocked and others run.
                thread::blocking(|| wait_for_the_tracer("attach now"));
                blocks();
                blocked.release();
                blocks();
            });
        },
        // All traps were passed on. With the other sources, traps come from preemption, if there
        // was any.
        |source, traps| assert!(traps > 0 || source != Events::Bpf, "{traps}"),
    );
}

/// A tracer stops a kernel thread twice in each system call. A stop is no block: if each led to a
/// hand-off, the hand-offs' own calls would lead to further ones.
#[test]
fn tracer_of_system_calls_attached_later_causes_no_hand_offs() {
    const CALLS: u64 = 2_000;
    traced(
        "debugger::tracer_of_system_calls_attached_later_causes_no_hand_offs",
        Stops::Calls,
        |source| {
            // A microprocess that blocks often would keep its kernel thread, and hand over nothing.
            with(Runtime::builder().vps(2).sticky(false), || {
                blocks();
                thread::blocking(|| wait_for_the_tracer("attach now"));
                let before = metrics().expect("it runs").hand_offs;
                for _ in 0..CALLS {
                    // SAFETY: takes no arguments and has no effect.
                    unsafe { libc::syscall(libc::SYS_getppid) };
                }
                let stops = metrics().expect("it runs").hand_offs - before;
                assert!(stops < CALLS / 100, "{source}: {stops} hand-offs in {CALLS} calls");
                // Blocks are still noticed. Not by `blocks`: a trap that arrives while the tracer
                // stops the thread ends its nanosleep early.
                block(10).release();
            });
        },
        |source, calls| assert!(calls >= 2 * CALLS, "{source}: {calls} stops"),
    );
}
