//! Simulates a restricted machine: selected system calls fail from now on, like under a container's
//! seccomp filter or on an older kernel.

use std::io;

/// Audit architecture of this processor's system calls. Excludes 32-bit system calls (int 0x80) and
/// x32, whose numbers differ.
const AUDIT_ARCH: u32 = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };

// Offsets in struct seccomp_data, see seccomp(2).
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

/// Makes each listed system call fail with the errno beside it, in all kernel threads of this
/// process and in its future children.
///
/// The effect is permanent: for a test in its own child process ([`alone`](crate::process::alone)).
/// A further call adds to the list; for a call that is listed twice, the later entry applies.
/// execve(2) no longer grants privileges from here on (PR_SET_NO_NEW_PRIVS).
///
/// ```no_run
/// # use kumihimo_tests::refusal::refuse;
/// let calls = [(libc::SYS_bpf, libc::EPERM), (libc::SYS_io_uring_setup, libc::ENOSYS)];
/// refuse(&calls).expect("seccomp");
/// ```
///
/// # Errors
/// As prctl(2) or seccomp(2): the kernel has no seccomp filters, or another filter forbids it
/// (EINVAL); a kernel thread has its own filter (EBUSY).
///
/// # Panics
/// If an entry is not a valid system call and errno, or the list has more than 100 entries.
pub fn refuse(list: &[(libc::c_long, i32)]) -> io::Result<()> {
    assert!(list.len() <= 100, "a jump in a filter is limited to 255 steps");
    let step = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let skip_unless_equal = |k, steps| libc::sock_filter {
        jf: steps,
        ..step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k)
    };
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let answer = |with| step(libc::BPF_RET | libc::BPF_K, with);
    let mut program =
        vec![load(ARCH), skip_unless_equal(AUDIT_ARCH, 2 * list.len() as u8 + 1), load(NUMBER)];
    for (call, errno) in list {
        let call = u32::try_from(*call).ok().filter(|call| *call < 1 << 30).expect("a system call");
        assert!((1..4096).contains(errno), "{errno} is not an errno");
        program
            .extend([skip_unless_equal(call, 1), answer(libc::SECCOMP_RET_ERRNO | *errno as u32)]);
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: integers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1u64, 0u64, 0u64, 0u64) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as many steps as it says, which outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    match done {
        0 => Ok(()),
        // With TSYNC, a positive result is the ID of a thread that could not be synchronised.
        tid if tid > 0 => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::alone;
    use std::process::Command;
    use std::sync::mpsc;

    /// Errno of a call with zeros as arguments; 0 if it succeeds.
    fn errno_of(call: libc::c_long) -> i32 {
        // SAFETY: of the calls below none takes a pointer that is not null-checked by the kernel.
        match unsafe { libc::syscall(call, 0i64, 0i64, 0i64, 0i64, 0i64) } {
            -1 => io::Error::last_os_error().raw_os_error().expect("an errno"),
            _ => 0,
        }
    }

    #[test]
    fn only_listed_calls_fail_with_their_errno() {
        alone("refusal::tests::only_listed_calls_fail_with_their_errno", || {
            let calls = [
                libc::SYS_bpf,
                libc::SYS_perf_event_open,
                libc::SYS_userfaultfd,
                libc::SYS_membarrier,
                libc::SYS_io_uring_setup,
                libc::SYS_getppid,
            ];
            let list: Vec<_> =
                calls.into_iter().zip([libc::EPERM, libc::ENOSYS].into_iter().cycle()).collect();
            let neighbours: Vec<_> = calls.map(|call| [call - 1, call + 1]).concat();
            // With zeros as arguments, the call neither waits nor has an effect.
            let harmless = |call: &&libc::c_long| {
                [
                    libc::SYS_getsid,
                    libc::SYS_io_uring_enter,
                    libc::SYS_memfd_create,
                    libc::SYS_mlock2,
                ]
                .contains(*call)
            };
            let before: Vec<_> =
                neighbours.iter().filter(harmless).map(|call| errno_of(*call)).collect();
            assert!(!before.is_empty());
            refuse(&list).expect("seccomp");
            for (call, errno) in list {
                assert_eq!(errno_of(call), errno, "{call}");
            }
            let after: Vec<_> =
                neighbours.iter().filter(harmless).map(|call| errno_of(*call)).collect();
            assert_eq!(after, before);
        });
    }

    #[test]
    fn later_entry_for_a_call_wins() {
        alone("refusal::tests::later_entry_for_a_call_wins", || {
            refuse(&[(libc::SYS_getppid, libc::EPERM)]).expect("seccomp");
            refuse(&[]).expect("an empty list refuses nothing");
            assert_eq!(errno_of(libc::SYS_getppid), libc::EPERM);
            refuse(&[(libc::SYS_getppid, libc::ENOSYS), (libc::SYS_getsid, libc::EPERM)])
                .expect("seccomp");
            assert_eq!(errno_of(libc::SYS_getppid), libc::ENOSYS);
            assert_eq!(errno_of(libc::SYS_getsid), libc::EPERM);
        });
    }

    #[test]
    fn running_threads_and_later_programs_are_refused_too() {
        alone("refusal::tests::running_threads_and_later_programs_are_refused_too", || {
            let (ask, asked) = mpsc::channel();
            let thread = std::thread::spawn(move || {
                asked.recv().expect("asked");
                errno_of(libc::SYS_getppid)
            });
            refuse(&[
                (libc::SYS_getppid, libc::ENOSYS),
                #[cfg(target_arch = "x86_64")]
                (libc::SYS_mkdir, libc::EPERM),
                (libc::SYS_mkdirat, libc::EPERM),
            ])
            .expect("seccomp");
            ask.send(()).expect("a listening socket");
            assert_eq!(thread.join().expect("no panic"), libc::ENOSYS);
            let place =
                std::env::temp_dir().join(format!("kumihimo-refusal-{}", std::process::id()));
            let made =
                Command::new("mkdir").arg(&place).env("LC_ALL", "C").output().expect("mkdir(1)");
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            assert!(!made.status.success() && said.contains("Operation not permitted"), "{said}");
            assert!(!place.exists());
        });
    }

    #[test]
    fn unknown_system_call_panics() {
        // The check precedes the filter, so this process is not affected.
        for wrong in [
            (-1, libc::EPERM),
            (1 << 30, libc::EPERM),
            (libc::SYS_getppid, 0),
            (libc::SYS_getppid, 5000),
        ] {
            assert!(std::panic::catch_unwind(|| refuse(&[wrong])).is_err(), "{wrong:?}");
        }
    }
}
