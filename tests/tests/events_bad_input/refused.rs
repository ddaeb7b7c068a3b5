//! Unavailable event sources: the best available one is chosen, and an explicitly requested one
//! makes `build` fail.

use std::ffi::CString;

use kumihimo::runtime::{Events, Runtime, metrics};
use kumihimo::thread;
use kumihimo_tests::process::{again, alone, is_child, one_to_one};
use kumihimo_tests::refusal::refuse;
use kumihimo_tests::skip;
use kumihimo_tests::user::become_user;

use crate::blocked::block;
use crate::under::{end_at_a_panic, may};

/// Starts a test in a child process, without the `KUMI_EVENTS` of a whole suite's run.
fn begin() {
    // SAFETY: the settings are not read yet, and no other thread reads the environment.
    unsafe { std::env::remove_var("KUMI_EVENTS") };
    end_at_a_panic();
}

/// Runs a runtime with the default source and returns the source.
fn chosen() -> &'static str {
    let mut chosen = "";
    Runtime::builder().vps(1).build().expect("a runtime").run(|| {
        chosen = metrics().expect("it runs").events;
        if chosen != "off" && !one_to_one() {
            block(5).release();
        }
        assert_eq!(thread::blocking(|| 7), 7);
    });
    chosen
}

/// Asserts that `source` is refused with an error that contains these words.
fn is_refused(source: Events, words: &[&str]) {
    let error = Runtime::builder().vps(1).events(source).build().expect_err("refused");
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    let said = error.to_string();
    assert!(said.contains(source.name()) && words.iter().all(|word| said.contains(word)), "{said}");
    // The failed attempt must leave nothing behind.
    Runtime::builder()
        .vps(1)
        .events(Events::Off)
        .build()
        .expect("a runtime")
        .run(|| assert_eq!(thread::blocking(|| 7), 7));
}

/// Refuses each system call in turn, and then all of them. Checks the chosen source.
fn refused_one_after_the_other(name: &str, errno: i32) {
    alone(name, || {
        begin();
        let perf = may(name, Events::Perf);
        refuse(&[(libc::SYS_bpf, errno)]).expect("seccomp");
        is_refused(Events::Bpf, &["bpf"]);
        if perf {
            assert_eq!(chosen(), "perf");
        }
        refuse(&[(libc::SYS_perf_event_open, errno)]).expect("seccomp");
        is_refused(Events::Bpf, &["bpf"]);
        is_refused(Events::Perf, &["perf_event_open"]);
        assert_eq!(chosen(), "watch");
    });
}

#[test]
fn bpf_and_perf_refused_with_eperm() {
    refused_one_after_the_other("refused::bpf_and_perf_refused_with_eperm", libc::EPERM);
}

#[test]
fn bpf_and_perf_refused_with_enosys() {
    refused_one_after_the_other("refused::bpf_and_perf_refused_with_enosys", libc::ENOSYS);
}

fn all_refused(name: &str, errno: i32) {
    alone(name, || {
        begin();
        let calls = [libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_membarrier];
        refuse(&calls.map(|call| (call, errno))).expect("seccomp");
        is_refused(Events::Bpf, &["bpf"]);
        is_refused(Events::Perf, &["perf_event_open"]);
        // Without membarrier(2), the barrier visits each CPU in turn.
        assert_eq!(chosen(), "watch");
    });
}

#[test]
fn everything_refused_with_eperm_selects_watch() {
    all_refused("refused::everything_refused_with_eperm_selects_watch", libc::EPERM);
}

#[test]
fn everything_refused_with_enosys_selects_watch() {
    all_refused("refused::everything_refused_with_enosys_selects_watch", libc::ENOSYS);
}

/// Creates a private mount namespace. Returns `None` if this is not permitted.
fn own_mounts() -> Option<()> {
    // SAFETY: only terminated strings are passed.
    unsafe {
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let none = std::ptr::null();
        (libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, private, none.cast()) == 0)
            .then_some(())
    }
}

/// Simulates a machine whose kernel.perf_event_paranoid is `level`, for perf_event_open and /proc
/// in this process.
fn paranoid(name: &str, level: &str) {
    alone(name, || {
        begin();
        if own_mounts().is_none() {
            return skip(name, "cannot create a mount namespace (needs root)");
        }
        let file = std::env::temp_dir().join(format!("kumihimo-paranoid-{}", std::process::id()));
        std::fs::write(&file, format!("{level}\n")).expect("a file");
        let from = CString::new(file.to_str().expect("a text")).expect("no NUL");
        let setting = c"/proc/sys/kernel/perf_event_paranoid";
        let none = std::ptr::null();
        // SAFETY: terminated texts.
        let done = unsafe {
            libc::mount(from.as_ptr(), setting.as_ptr(), none, libc::MS_BIND, none.cast())
        };
        let error = std::io::Error::last_os_error();
        std::fs::remove_file(&file).expect("it is there");
        if done != 0 {
            return skip(name, &format!("mount --bind on {setting:?}: {error}"));
        }
        assert!(become_user(65534));
        refuse(&[(libc::SYS_perf_event_open, libc::EACCES)]).expect("seccomp");
        is_refused(
            Events::Perf,
            &[&format!("perf_event_paranoid is {level}"), "perf_event_paranoid=2", "CAP_PERFMON"],
        );
        is_refused(Events::Bpf, &["CAP_BPF"]);
        assert_eq!(chosen(), "watch");
    });
}

#[test]
fn perf_event_paranoid_3_refuses_perf() {
    paranoid("refused::perf_event_paranoid_3_refuses_perf", "3");
}

#[test]
fn perf_event_paranoid_4_refuses_perf() {
    paranoid("refused::perf_event_paranoid_4_refuses_perf", "4");
}

#[test]
fn missing_capability_refuses_bpf() {
    const NAME: &str = "refused::missing_capability_refuses_bpf";
    alone(NAME, || {
        begin();
        if !become_user(65534) {
            return skip(NAME, "not root");
        }
        // A seat may be installed on this machine for all users.
        let best = kumihimo_events::source::probe()
            .into_iter()
            .find(|(_, refused)| refused.is_none())
            .expect("off")
            .0;
        assert_ne!(best, Events::Off);
        if best != Events::Bpf {
            is_refused(Events::Bpf, &["CAP_BPF", "kumi events install"]);
        }
        assert_eq!(chosen(), best.name());
    });
}

/// Without /proc, blocked threads cannot be detected.
#[test]
fn missing_proc_refuses_perf_and_watch() {
    const NAME: &str = "refused::missing_proc_refuses_perf_and_watch";
    alone(NAME, || {
        begin();
        let bpf = may(NAME, Events::Bpf);
        if own_mounts().is_none() {
            return skip(NAME, "cannot create a mount namespace (needs root)");
        }
        let none = std::ptr::null();
        // SAFETY: terminated texts.
        let done =
            unsafe { libc::mount(c"none".as_ptr(), c"/proc".as_ptr(), c"tmpfs".as_ptr(), 0, none) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        is_refused(Events::Perf, &["/proc", "mount -t proc"]);
        is_refused(Events::Watch, &["/proc", "mount -t proc"]);
        refuse(&[(libc::SYS_bpf, libc::EPERM)]).expect("seccomp");
        if bpf {
            is_refused(Events::Bpf, &["bpf"]);
        }
        assert_eq!(chosen(), "off");
    });
}

/// Linux 5.10 has no bpf_cookie. Linux 5.15 and 6.1 refuse the link without the right to load
/// programs.
#[test]
fn kernels_without_the_bpf_link_use_perf() {
    const NAME: &str = "refused::kernels_without_the_bpf_link_use_perf";
    alone(NAME, || {
        begin();
        if !may(NAME, Events::Perf) {
            return;
        }
        let newer = [
            libc::SYS_bpf,
            libc::SYS_epoll_pwait2,
            libc::SYS_io_uring_setup,
            libc::SYS_futex_waitv,
        ];
        refuse(&newer.map(|call| (call, libc::EINVAL))).expect("seccomp");
        is_refused(Events::Bpf, &["bpf"]);
        assert_eq!(chosen(), "perf");
    });
}

/// Asserts that `build` fails with this error under these settings, whatever the program sets.
fn build_fails(name: &str, setting: (&str, &str), expected: &str) {
    if is_child(name) {
        for builder in [Runtime::builder(), Runtime::builder().events(Events::Watch)] {
            let error = builder.vps(1).build().expect_err("no such value");
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
            assert_eq!(error.to_string(), expected);
        }
        return;
    }
    let ended = again(name, &[setting]);
    assert!(ended.status.success(), "{}", ended.told());
}

#[test]
fn unknown_event_source_is_refused() {
    build_fails(
        "refused::unknown_event_source_is_refused",
        ("KUMI_EVENTS", "ptrace"),
        "KUMI_EVENTS=ptrace: expected bpf, perf, watch or off",
    );
}

/// The error also occurs if another source would be used, so that no measurement runs with an
/// unintended setting.
#[test]
fn unknown_bpf_mode_is_refused() {
    build_fails(
        "refused::unknown_bpf_mode_is_refused",
        ("KUMI_LAB", "bpf=tracepoint"),
        "KUMI_LAB=bpf=tracepoint: expected thread or switch for bpf",
    );
}
