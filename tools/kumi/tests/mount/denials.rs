//! What the host denies, a mount by root denies as well.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use kumihimo_conformance::{Mounted, Options, Organisation, Scratch};
use kumihimo_tests::skip;
use rustix::fs::{XattrFlags, setxattr};

use crate::ground::{can_mount, kumi};

/// A user without rights of its own.
const NOBODY: u32 = 65534;
/// Tags of entries, as in setxattr(2), and the id of those without one.
const NONE: u32 = u32::MAX;

fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// All may do everything, but not `NOBODY`.
fn without_nobody() -> Vec<u8> {
    list(&[(1, 7, NONE), (2, 0, NOBODY), (4, 7, NONE), (16, 7, NONE), (32, 7, NONE)])
}

fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().expect("it starts")
}

/// Runs a command of the shell as another user. Returns whether it succeeded.
fn can(user: u32, command: &str, path: &Path) -> bool {
    use std::os::unix::process::CommandExt;
    Command::new("sh")
        .args(["-c", command, "sh"])
        .arg(path)
        .uid(user)
        .gid(user)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("sh")
        .success()
}

const READ: &str = "cat \"$1\"";
const WRITE: &str = "echo more >>\"$1\"";
const LIST: &str = "ls \"$1\"";
const CREATE: &str = "echo new >\"$1/new\"";

/// A tmpfs of its own, with options.
struct Tmpfs {
    scratch: Scratch,
}

impl Tmpfs {
    fn new(test: &str, options: &str) -> Option<Tmpfs> {
        let scratch = Scratch::new("denials");
        // Other users than root reach the mounts below.
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
        let at = scratch.directory("host");
        let text = at.to_str().expect("UTF-8");
        let made = run("mount", &["-t", "tmpfs", "-o", options, "none", text]);
        if !made.status.success() {
            skip(test, "no tmpfs here");
            return None;
        }
        std::fs::set_permissions(&at, PermissionsExt::from_mode(0o755)).expect("chmod");
        Some(Tmpfs { scratch })
    }

    fn path(&self) -> std::path::PathBuf {
        self.scratch.path().join("host")
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        run("umount", &["-l".as_ref(), self.path().as_os_str()]);
    }
}

fn serve(store: &Path) -> Mounted {
    Mounted::start(kumi(), &Options::new(Organisation::Microprocesses), store)
}

#[test]
fn user_denied_by_a_list_of_the_host_is_denied_by_the_mount() {
    let name = "denials::user_denied_by_a_list_of_the_host_is_denied_by_the_mount";
    if !can_mount(name) {
        return;
    }
    let Some(host) = Tmpfs::new(name, "size=1m") else { return };
    let at = host.path();
    std::fs::write(at.join("f"), "secret").expect("a file");
    std::fs::create_dir(at.join("d")).expect("a directory");
    std::fs::write(at.join("d/f"), "secret").expect("a file");
    for name in ["f", "d"] {
        if setxattr(
            at.join(name),
            "system.posix_acl_access",
            &without_nobody(),
            XattrFlags::empty(),
        )
        .is_err()
        {
            return skip(name, "tmpfs has no access control lists here");
        }
    }
    std::fs::set_permissions(at.join("d/f"), PermissionsExt::from_mode(0o666)).expect("chmod");
    let mounted = serve(&at);
    let tries =
        [("f", READ), ("f", WRITE), ("d/f", READ), ("d/f", WRITE), ("d", LIST), ("d", CREATE)];
    for (path, how) in tries {
        assert!(!can(NOBODY, how, &at.join(path)), "the host denies {how} {path}");
        assert!(!can(NOBODY, how, &mounted.path().join(path)), "the mount allows {how} {path}");
        assert!(can(NOBODY - 1, how, &mounted.path().join(path)), "the mount denies {how} {path}");
    }
    mounted.unmount();
}

#[test]
fn default_list_of_the_host_restricts_files_made_through_the_mount() {
    let name = "denials::default_list_of_the_host_restricts_files_made_through_the_mount";
    if !can_mount(name) {
        return;
    }
    let Some(host) = Tmpfs::new(name, "size=1m") else { return };
    let at = host.path();
    let private = list(&[(1, 7, NONE), (4, 0, NONE), (32, 0, NONE)]);
    for (directory, value) in [("private", private), ("named", without_nobody())] {
        std::fs::create_dir(at.join(directory)).expect("a directory");
        let named = at.join(directory);
        if setxattr(&named, "system.posix_acl_default", &value, XattrFlags::empty()).is_err() {
            return skip(name, "tmpfs has no access control lists here");
        }
    }
    let mounted = serve(&at);
    for directory in ["private", "named"] {
        let file = mounted.path().join(directory).join("f");
        std::fs::write(&file, "secret").expect("a file");
        assert!(!can(NOBODY, READ, &file), "the mount allows {directory}");
        assert!(!can(NOBODY, READ, &at.join(directory).join("f")), "the host allows {directory}");
    }
    mounted.unmount();
}

#[test]
fn mount_keeps_the_restrictions_of_the_hosts_mount() {
    let name = "denials::mount_keeps_the_restrictions_of_the_hosts_mount";
    if !can_mount(name) {
        return;
    }
    let Some(host) = Tmpfs::new(name, "size=1m,noexec") else { return };
    let program = host.path().join("program");
    std::fs::write(&program, "#!/bin/sh\nexit 0\n").expect("a program");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("chmod");
    let mounted = serve(&host.path());
    assert!(!can(0, "\"$1\"", &program), "the host executes it");
    assert!(!can(0, "\"$1\"", &mounted.path().join("program")), "the mount executes it");
    mounted.unmount();
}

/// The kernel ignores quotas for CAP_SYS_RESOURCE only: capabilities(7), quotactl(2).
#[test]
fn no_thread_of_the_server_may_ignore_quotas() {
    let name = "denials::no_thread_of_the_server_may_ignore_quotas";
    if !can_mount(name) {
        return;
    }
    let Some(host) = Tmpfs::new(name, "size=1m") else { return };
    for organisation in [Organisation::Microprocesses, Organisation::KernelThreads] {
        let mounted = Mounted::start(kumi(), &Options::new(organisation), &host.path());
        std::fs::write(mounted.path().join("f"), "text").expect("a file");
        let tasks = format!("/proc/{}/task", mounted.pid());
        let mut threads = 0;
        for task in std::fs::read_dir(tasks).expect("procfs") {
            let status = task.expect("a thread").path().join("status");
            let Ok(status) = std::fs::read_to_string(status) else { continue };
            for field in ["CapEff:", "CapPrm:"] {
                let mask = status.lines().find_map(|line| line.strip_prefix(field)).expect(field);
                let mask = u64::from_str_radix(mask.trim(), 16).expect("a mask");
                assert_eq!(mask >> 24 & 1, 0, "{organisation}: {field} {mask:x}");
            }
            threads += 1;
        }
        assert!(threads > 0);
        mounted.unmount();
    }
}

#[test]
fn directory_with_other_permissions_is_refused() {
    let name = "denials::directory_with_other_permissions_is_refused";
    if !can_mount(name) {
        return;
    }
    for (store, kind) in [("/proc", "0x9fa0"), ("/sys", "0x62656572")] {
        let options = Options::new(Organisation::Microprocesses);
        let (status, said) =
            Mounted::try_start(kumi(), &options, Path::new(store)).expect_err("it is refused");
        assert_eq!(status.code(), Some(1), "{said}");
        let expected = format!("{store}: its file system (type {kind}) has permissions beyond");
        assert!(said.contains(&expected), "{said}");
    }
}
