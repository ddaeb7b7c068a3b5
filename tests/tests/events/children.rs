//! Child processes that take a while until they execute another program.

use std::ffi::c_int;
use std::io::{PipeReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::case::case;
use crate::fuse::{PROGRAM, Slow};

unsafe extern "C" {
    safe fn c_vfork(gate: c_int) -> c_int;
}

/// Waits for a child and returns its status.
fn wait_for(child: c_int) -> c_int {
    let mut status = 0;
    // SAFETY: a live integer; our own child.
    let got = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(got, child, "{}", std::io::Error::last_os_error());
    assert!(libc::WIFEXITED(status), "{status:#x}");
    libc::WEXITSTATUS(status)
}

#[test]
fn vfork_with_a_slow_child_stalls_no_one() {
    case("children::vfork_with_a_slow_child_stalls_no_one", |case| {
        if cfg!(kumihimo_asan) {
            return case.skip(
                "AddressSanitizer's vfork aborts on a thread with foreign thread-local storage",
            );
        }
        let (gate, mut open) = std::io::pipe().expect("a pipe");
        let got = case.blocked(
            move || {
                let child = c_vfork(gate.as_raw_fd());
                assert!(child > 0, "{}", std::io::Error::from_raw_os_error(-child));
                wait_for(child)
            },
            move || open.write_all(b"1").expect("room"),
        );
        assert_eq!(got, 7);
    });
}

/// Waits for a byte. Async-signal-safe.
fn pass(gate: &PipeReader) -> std::io::Result<()> {
    let mut byte = 0u8;
    // SAFETY: one live byte.
    match unsafe { libc::read(gate.as_raw_fd(), (&raw mut byte).cast(), 1) } {
        1 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[test]
fn command_waiting_between_fork_and_exec_stalls_no_one() {
    case("children::command_waiting_between_fork_and_exec_stalls_no_one", |case| {
        let (gate, mut open) = std::io::pipe().expect("a pipe");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exit 7"]);
        // SAFETY: reads into its own stack.
        unsafe { command.pre_exec(move || pass(&gate)) };
        let got =
            case.blocked(move || command.status(), move || open.write_all(b"1").expect("room"));
        assert_eq!(got.expect("no EINTR").code(), Some(7));
    });
}

#[test]
fn command_with_a_slow_executable_stalls_no_one() {
    const NAME: &str = "children::command_with_a_slow_executable_stalls_no_one";
    case(NAME, |case| {
        let mut slow = match Slow::mount(NAME) {
            Ok(slow) => slow,
            Err(why) => return case.skip(&why),
        };
        // By posix_spawn(3), which blocks the parent like vfork(2).
        let got = case.blocked(|| Command::new(PROGRAM).status(), slow.release());
        assert_eq!(got.expect("no EINTR").code(), Some(7));
    });
}
