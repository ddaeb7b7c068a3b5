//! Changes of the kernel thread by system calls of the program's own, which debug builds notice at
//! the next switch.

use std::os::unix::process::ExitStatusExt;

use kumihimo::runtime::Runtime;
use kumihimo::thread;
use kumihimo_tests::process::{again, has_vps, is_child, keeps_a_spare};
use kumihimo_tests::skip;

use crate::bound::{check, drop_a_capability, hash_of, kernel_thread, session_keyring_id};
use crate::{in_runtime, pass_the_kernel_thread_on, status};

/// A system call that neither the C library nor the runtime sees.
fn raw(number: libc::c_long, arguments: [usize; 5]) -> bool {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the callers pass integers, and pointers to live values.
    unsafe { kumihimo_arch::system_call(number, [a, b, c, d, e, 0]) >= 0 }
}

/// The folder of the calling kernel thread, which is the process's until it is unshared.
fn folder() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let path = format!("/proc/self/task/{}/cwd", kernel_thread());
    std::fs::metadata(path).expect("a folder").ino()
}

/// The memory policy; get_mempolicy(2).
fn memory_policy() -> i32 {
    let mut mode = -1;
    raw(libc::SYS_get_mempolicy, [(&raw mut mode).expose_provenance(), 0, 0, 0, 0]);
    mode
}

fn execution_domain() -> isize {
    // SAFETY: integers only; reads the value.
    unsafe { kumihimo_arch::system_call(libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]) }
}

/// Whether this build notices such changes.
fn notices(name: &str) -> bool {
    if !cfg!(debug_assertions) {
        skip(name, "a build without debug assertions does not compare kernel threads");
    }
    cfg!(debug_assertions)
}

/// As [`notices`], and whether a kernel thread always waits that can run the other microprocesses.
fn binds(name: &str) -> bool {
    notices(name) && (is_child(name) || keeps_a_spare(name))
}

/// A test per attribute: its name, the change, and what shows it.
macro_rules! raw_changes {
    ($($name:ident: $change:expr, $seen:expr;)*) => {
        $(
            #[test]
            fn $name() {
                const NAME: &str = concat!("raw_changes::", stringify!($name));
                if binds(NAME) {
                    check(NAME, $change, $seen);
                }
            }
        )*
    };
}

raw_changes! {
    file_system_user: || raw(libc::SYS_setfsuid, [12345, 0, 0, 0, 0]), || hash_of("Uid");
    file_system_group: || raw(libc::SYS_setfsgid, [12345, 0, 0, 0, 0]), || hash_of("Gid");
    user_of_one_thread: || raw(libc::SYS_setresuid, [usize::MAX, 12345, usize::MAX, 0, 0]),
        || hash_of("Uid");
    capabilities: || drop_a_capability(|header, data| {
        raw(libc::SYS_capset, [header.addr(), data.addr(), 0, 0, 0])
    }), || hash_of("CapEff");
    no_new_privileges: || raw(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0]),
        || hash_of("NoNewPrivs");
    filter: || {
        let allow = libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ALLOW,
        };
        let program = libc::sock_fprog { len: 1, filter: std::ptr::from_ref(&allow).cast_mut() };
        raw(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0])
            && raw(libc::SYS_seccomp, [1, 0, (&raw const program).expose_provenance(), 0, 0])
    }, || hash_of("Seccomp");
    file_system_context: || {
        raw(libc::SYS_unshare, [libc::CLONE_FS as usize, 0, 0, 0, 0])
            && raw(libc::SYS_chdir, [c"/proc".as_ptr().expose_provenance(), 0, 0, 0, 0])
    }, folder;
    // MPOL_LOCAL.
    memory_policy_of_one_thread: || raw(libc::SYS_set_mempolicy, [4, 0, 0, 0, 0]), memory_policy;
    // ADDR_NO_RANDOMIZE.
    address_randomisation: || raw(libc::SYS_personality, [0x0004_0000, 0, 0, 0, 0]),
        execution_domain;
    // KEYCTL_JOIN_SESSION_KEYRING.
    session_keyring: || raw(libc::SYS_keyctl, [1, 0, 0, 0, 0]), session_keyring_id;
}

/// The kernel's mask of the calling kernel thread, with bit `n - 1` for signal `n`.
fn blocked() -> u64 {
    u64::from_str_radix(&status("SigBlk"), 16).expect("a mask")
}

#[test]
fn signal_mask_follows_its_microprocess() {
    const NAME: &str = "raw_changes::signal_mask_follows_its_microprocess";
    const WANTED: u64 = 1 << (libc::SIGUSR2 - 1);
    if !notices(NAME) {
        return;
    }
    in_runtime(NAME, || {
        let one = thread::spawn(|| {
            let mask = blocked() | WANTED;
            let at = (&raw const mask).expose_provenance();
            assert!(raw(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, at, 0, 8, 0]));
            for _ in 0..50 {
                pass_the_kernel_thread_on();
                assert_eq!(blocked() & WANTED, WANTED);
            }
        });
        let others: Vec<_> = (0..8)
            .map(|_| {
                thread::spawn(|| {
                    for _ in 0..50 {
                        assert_eq!(blocked() & WANTED, 0, "in another microprocess");
                        pass_the_kernel_thread_on();
                    }
                })
            })
            .collect();
        one.join().unwrap();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// What a child process writes to standard error while it runs `body` in a runtime.
fn said_by(name: &'static str, body: impl FnOnce() + Send) -> Option<String> {
    if is_child(name) {
        in_runtime(name, body);
        return None;
    }
    let ended = again(name, &[]);
    assert!(ended.status.success(), "{}", ended.told());
    if let Some(skipped) = ended.stderr.lines().find(|line| line.starts_with("[skip]")) {
        eprintln!("{skipped}");
        return None;
    }
    Some(ended.stderr)
}

#[test]
fn message_names_microprocess_and_attribute() {
    const NAME: &str = "raw_changes::message_names_microprocess_and_attribute";
    if !binds(NAME) {
        return;
    }
    let said = said_by(NAME, || {
        let careless = thread::Builder::new().name("careless".to_owned()).spawn(|| {
            assert!(raw(libc::SYS_setfsgid, [12345, 0, 0, 0, 0]));
            (0..3).for_each(|_| thread::yield_now());
        });
        careless.unwrap().join().unwrap();
    });
    if let Some(said) = said {
        let line = said.lines().find(|line| line.contains("(careless)")).expect(&said);
        assert!(line.contains("has changed the group of its kernel thread"), "{line}");
        assert_eq!(said.matches("has changed").count(), 1, "once: {said}");
    }
}

/// The C library applies setresgid(2) to all threads: that is no change of one kernel thread.
#[test]
fn change_of_the_whole_process_binds_nobody() {
    const NAME: &str = "raw_changes::change_of_the_whole_process_binds_nobody";
    let said = said_by(NAME, || {
        let others: Vec<_> = (0..4)
            .map(|_| thread::spawn(|| (0..200).for_each(|_| pass_the_kernel_thread_on())))
            .collect();
        for group in 12345..12395 {
            // SAFETY: integers only.
            assert_eq!(unsafe { libc::setresgid(u32::MAX, group, u32::MAX) }, 0);
            pass_the_kernel_thread_on();
        }
        others.into_iter().for_each(|other| other.join().unwrap());
    });
    if let Some(said) = said {
        assert!(!said.contains("has changed"), "{said}");
    }
}

/// Without a spare, no kernel thread lacks the change: it would be everybody's.
#[test]
fn change_without_a_spare_ends_the_process() {
    const NAME: &str = "raw_changes::change_without_a_spare_ends_the_process";
    if is_child(NAME) {
        // One kernel thread.
        return Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            assert!(raw(libc::SYS_setfsgid, [12345, 0, 0, 0, 0]));
            thread::yield_now();
        });
    }
    if !notices(NAME) || !has_vps(NAME) {
        return;
    }
    let ended = again(NAME, &[("KUMI_EVENTS", "off")]);
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{}", ended.told());
    let said = "has changed the group of its kernel thread by a system call of its own, and no \
                other thread is there to run the other microprocesses: aborting";
    assert!(ended.stderr.contains(said), "{}", ended.told());
}
