//! The container has the restrictions that the other tests rely on, and the runtime adapts to them.

use std::fs;
use std::io::ErrorKind;

use kumihimo::runtime::{Runtime, metrics};
use kumihimo::thread;
use kumihimo_events::cores::Cores;
use kumihimo_tests::container::{Container, DEFAULT, PERIOD, THREADS, is_inside};
use kumihimo_tests::process::one_to_one;

use crate::{ALL, in_each};

/// Errno of a call with these arguments; 0 if it succeeds.
fn errno_of(call: libc::c_long, arguments: [u64; 2]) -> i32 {
    let [a, b] = arguments;
    // SAFETY: the calls below take null pointers, which the kernel checks.
    match unsafe { libc::syscall(call, a, b, 0u64, 0u64, 0u64) } {
        -1 => std::io::Error::last_os_error().raw_os_error().expect("an errno"),
        _ => 0,
    }
}

#[test]
fn system_calls_are_refused_as_in_docker() {
    in_each("restrictions::system_calls_are_refused_as_in_docker", || {
        for call in [
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_io_uring_setup,
            libc::SYS_keyctl,
            libc::SYS_mount,
            libc::SYS_ptrace,
            libc::SYS_userfaultfd,
        ] {
            assert_eq!(errno_of(call, [0, 0]), libc::EPERM, "{call}");
        }
        assert_eq!(errno_of(libc::SYS_clone3, [0, 0]), libc::ENOSYS);
        let user = libc::CLONE_NEWUSER as u64;
        assert_eq!(errno_of(libc::SYS_unshare, [user, 0]), libc::EPERM);
        assert_eq!(errno_of(libc::SYS_clone, [user, 0]), libc::EPERM);
        assert_eq!(errno_of(libc::SYS_personality, [0xffff_ffff, 0]), 0);
        assert_eq!(errno_of(libc::SYS_personality, [1, 0]), libc::EPERM);
        assert_eq!(errno_of(libc::SYS_socket, [libc::AF_VSOCK as u64, 1]), libc::EPERM);
        // Calls that the runtime uses are not refused.
        assert_eq!(errno_of(libc::SYS_membarrier, [0, 0]), 0);
        std::thread::spawn(|| ()).join().expect("a kernel thread");
    });
}

#[test]
fn root_is_read_only_and_capabilities_are_dockers() {
    const NAME: &str = "restrictions::root_is_read_only_and_capabilities_are_dockers";
    for container in ALL {
        let shared_memory = if container.has_shared_memory { "shm" } else { "none" };
        let user = container.user.to_string();
        let variables = [("KUMI_TEST_SHM", shared_memory), ("KUMI_TEST_USER", &user)];
        container.run_with(NAME, &variables, assert_restricted, |_, _| {});
    }
}

fn assert_restricted() {
    let variable = |name| std::env::var(name).expect("the parent sets it");
    for place in ["/", "/etc", "/sys/fs/cgroup", "/dev"] {
        let file = format!("{place}/kumihimo-test-{}", std::process::id());
        let error = fs::write(&file, "x").expect_err("read-only");
        let kinds = [ErrorKind::ReadOnlyFilesystem, ErrorKind::PermissionDenied];
        assert!(kinds.contains(&error.kind()), "{file}: {error}");
    }
    let has = std::path::Path::new("/dev/shm").exists();
    assert_eq!(has, variable("KUMI_TEST_SHM") == "shm");
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let user = variable("KUMI_TEST_USER");
    let set = if user == "0" { "00000000a80425fb" } else { "0000000000000000" };
    assert!(status.contains(&format!("CapEff:\t{set}\n")), "{status}");
    assert!(status.contains("CapBnd:\t00000000a80425fb\n"), "{status}");
    assert!(status.contains(&format!("Uid:\t{user}\t{user}\t{user}\t{user}\n")), "{status}");
}

/// The number of VPs follows the quota, and the number of kernel threads follows `pids.max`.
#[test]
fn default_settings_follow_the_limits() {
    const NAME: &str = "restrictions::default_settings_follow_the_limits";
    let cores = Cores::of_process().affinity;
    for quota in [50_000u64, 100_000, 150_000, 100_000_000] {
        let wanted = (quota.div_ceil(PERIOD) as usize).min(cores).to_string();
        let container = Container { quota, ..DEFAULT };
        let variables = [("KUMI_TEST_VPS", &*wanted)];
        if !is_inside() && std::env::var_os("KUMI_VPS").is_some() {
            return kumihimo_tests::skip(NAME, "KUMI_VPS decides");
        }
        container.run_with(NAME, &variables, assert_default_settings, |_, _| {});
    }
}

fn assert_default_settings() {
    let vps = std::env::var("KUMI_TEST_VPS").expect("the parent sets it");
    Runtime::builder().build().expect("a runtime").run(|| {
        let now = metrics().expect("it runs");
        assert_eq!(now.open_vps.to_string(), vps, "{:?}", Cores::of_process());
        assert_eq!(thread::spawn(|| 7).join().expect("no panic"), 7);
        if !one_to_one() {
            assert!((now.kernel_thread_limit as u64) < THREADS, "{now:?}");
            assert!(now.kernel_thread_limit_by.contains("pids.max of "), "{now:?}");
        }
    });
}
