//! A container as Docker makes it by default, for the child process of a test.
//!
//! The restrictions are made between fork and exec, by root: control groups with limits, a mount
//! namespace with a read-only root, Docker's seccomp profile and its set of capabilities. They end
//! with the processes inside.

pub mod control_group;
mod seccomp;

use std::ffi::CString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;

use crate::process::{Ended, command, finish};
use control_group::ControlGroup;

/// Environment variable by which a child process knows that it is inside.
const VARIABLE: &str = "KUMI_TEST_CONTAINER";
/// Docker's default capabilities (moby, daemon/pkg/oci/caps/defaults.go), by number: see
/// capabilities(7) and linux/capability.h.
const CAPABILITIES: [u32; 14] = [
    0,  // CHOWN
    1,  // DAC_OVERRIDE
    3,  // FOWNER
    4,  // FSETID
    5,  // KILL
    6,  // SETGID
    7,  // SETUID
    8,  // SETPCAP
    10, // NET_BIND_SERVICE
    13, // NET_RAW
    18, // SYS_CHROOT
    27, // MKNOD
    29, // AUDIT_WRITE
    31, // SETFCAP
];
/// Number of the last capability (CHECKPOINT_RESTORE, Linux 5.9). The kernel refuses larger ones.
const LAST_CAPABILITY: u32 = 40;
/// Restrictions on a child process.
#[derive(Clone, Copy, Debug)]
pub struct Container {
    /// User inside; 0 for root, with Docker's capabilities.
    pub user: u32,
    /// Whether there is a `/dev/shm`.
    pub has_shared_memory: bool,
    /// Its size, as tmpfs(5) takes it.
    pub shared_memory: &'static str,
    /// Whether there is a writable `/tmp`.
    pub has_tmp: bool,
    /// CPU time in microseconds, in each 100 ms.
    pub quota: u64,
}

/// The default container: one and a half core, a `/dev/shm` of Docker's size and a `/tmp`, for
/// root.
pub const DEFAULT: Container = Container {
    user: 0,
    has_shared_memory: true,
    shared_memory: "64m",
    has_tmp: true,
    quota: 150_000,
};

/// A user without privileges.
pub const USER: u32 = 54_321;
/// Period of the quota, in microseconds.
pub const PERIOD: u64 = 100_000;
/// Most kernel threads inside.
pub const THREADS: u64 = 200;
/// Most memory inside, in bytes.
pub const MEMORY: u64 = 512 << 20;

impl Container {
    /// Runs the test `name` in a child process inside. In that process, runs `body`.
    ///
    /// # Panics
    /// If the child fails or hangs, or `check` does.
    pub fn run(&self, name: &str, body: impl FnOnce(), check: impl FnOnce(&Ended)) {
        self.run_with(name, &[], body, |ended, _| check(ended));
    }

    /// As [`run`](Container::run), with environment variables for the child. `check` gets the
    /// control group, too.
    ///
    /// # Panics
    /// As [`run`](Container::run).
    pub fn run_with(
        &self,
        name: &str,
        environment: &[(&str, &str)],
        body: impl FnOnce(),
        check: impl FnOnce(&Ended, &ControlGroup),
    ) {
        if is_inside() {
            return body();
        }
        let group = match self.group() {
            Ok(group) => group,
            Err(why) => return crate::skip(name, &why),
        };
        let mut command = command(name, &[]);
        self.restrict(&mut command, &group);
        command.envs(environment.iter().copied());
        let ended = finish(name, command.spawn().expect("a process inside the container"));
        // Repeat the child's skips on standard error, where `xtask` counts them.
        for line in ended.stderr.lines().filter(|line| line.starts_with("[skip]")) {
            let _ = writeln!(io::stderr(), "\n{line}");
        }
        assert!(ended.status.success(), "{name}, {self:?}: {}", ended.told());
        check(&ended, &group);
    }

    /// Creates the control group of a container.
    ///
    /// # Errors
    /// The reason, if this process cannot make containers.
    pub fn group(&self) -> Result<ControlGroup, String> {
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } != 0 {
            return Err("only root can make a container".to_owned());
        }
        let group = ControlGroup::new(&["cpu", "memory", "pids"])?;
        group.limit_cpu(self.quota, PERIOD);
        group.limit_threads(THREADS);
        group.limit_memory(MEMORY);
        Ok(group)
    }

    /// Restricts the process that `command` starts, and its children.
    ///
    /// # Panics
    /// If /proc cannot be read.
    pub fn restrict(&self, command: &mut std::process::Command, group: &ControlGroup) {
        for variable in ["KUMI_DIR", "XDG_RUNTIME_DIR", "TMPDIR"] {
            command.env_remove(variable);
        }
        // A row of the matrix of fallbacks may request what a container refuses, which is an error
        // of the runtime's start.
        for (variable, refused) in
            [("KUMI_EVENTS", &["bpf", "perf"][..]), ("KUMI_PREEMPT", &["clock"])]
        {
            if std::env::var(variable).is_ok_and(|value| refused.contains(&&*value)) {
                command.env_remove(variable);
            }
        }
        command.env(VARIABLE, "inside");
        let directories = group.directories().to_vec();
        let plan = MountPlan::new(self, &directories);
        let filter = seccomp::default_profile();
        let user = self.user;
        // SAFETY: the closure makes system calls, and allocates: glibc's malloc works after fork.
        unsafe {
            command.pre_exec(move || {
                for directory in &directories {
                    std::fs::write(directory.join("cgroup.procs"), "0")?;
                }
                plan.apply()?;
                seccomp::install(&filter)?;
                drop_privileges(user)
            });
        }
    }
}

/// Whether this process runs inside a container of a test.
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn text(path: &str) -> CString {
    CString::new(path).expect("a path without a zero byte")
}

/// The mounts of a container, in order.
struct MountPlan {
    steps: Vec<MountStep>,
}

enum MountStep {
    /// Source, target, type, flags, options of mount(2).
    Mount(CString, CString, CString, libc::c_ulong, CString),
    /// A mount point of the machine that becomes read-only, unless it is gone.
    ReadOnly(CString),
    Directory(CString),
    /// A device of major and minor number.
    Device(CString, u32, u32),
}

impl MountPlan {
    fn new(container: &Container, groups: &[std::path::PathBuf]) -> MountPlan {
        let mut plan = MountPlan { steps: Vec::new() };
        // The mounts below belong to this process's namespace alone.
        plan.mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, "");
        // Version 1 shows the container its own group only. In version 2 the path does.
        for group in groups.iter().filter(|group| !group.join("cgroup.controllers").exists()) {
            let group = group.to_str().expect("a path in UTF-8");
            let point = Path::new(group).parent().and_then(Path::to_str).expect("a mount point");
            plan.mount(group, point, "", libc::MS_BIND, "");
        }
        plan.devices(container);
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("procfs");
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let groups = groups.iter().filter_map(|group| group.parent()?.to_str());
        for point in points.chain(groups) {
            // A mount below one that is covered cannot be reached.
            if point.starts_with("/dev") || point == "/proc" {
                continue;
            }
            plan.read_only(point);
        }
        plan.mount("/proc/sys", "/proc/sys", "", libc::MS_BIND, "");
        plan.read_only("/proc/sys");
        if container.has_tmp {
            plan.mount("tmpfs", "/tmp", "tmpfs", libc::MS_NOSUID | libc::MS_NODEV, "mode=1777");
        }
        plan
    }

    fn mount(&mut self, source: &str, target: &str, kind: &str, flags: libc::c_ulong, data: &str) {
        let (source, target) = (text(source), text(target));
        self.steps.push(MountStep::Mount(source, target, text(kind), flags, text(data)));
    }

    fn read_only(&mut self, point: &str) {
        self.steps.push(MountStep::ReadOnly(text(point)));
    }

    /// Docker's `/dev`.
    fn devices(&mut self, container: &Container) {
        self.mount("tmpfs", "/dev", "tmpfs", libc::MS_NOSUID, "mode=755,size=64k");
        for (name, minor) in [("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)]
        {
            self.steps.push(MountStep::Device(text(&format!("/dev/{name}")), 1, minor));
        }
        self.steps.push(MountStep::Device(text("/dev/tty"), 5, 0));
        if container.has_shared_memory {
            self.steps.push(MountStep::Directory(text("/dev/shm")));
            let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            let options = format!("size={},mode=1777", container.shared_memory);
            self.mount("shm", "/dev/shm", "tmpfs", flags, &options);
        }
        self.read_only("/dev");
    }

    fn apply(&self) -> io::Result<()> {
        // SAFETY: integers.
        check(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWIPC) })?;
        for step in &self.steps {
            // SAFETY: strings that end with a zero byte, and integers.
            check(unsafe {
                match step {
                    MountStep::Mount(source, target, kind, flags, data) => libc::mount(
                        source.as_ptr(),
                        target.as_ptr(),
                        kind.as_ptr(),
                        *flags,
                        data.as_ptr().cast(),
                    ),
                    MountStep::ReadOnly(point) => make_read_only(point),
                    MountStep::Directory(path) => libc::mkdir(path.as_ptr(), 0o1777),
                    MountStep::Device(path, major, minor) => {
                        let number = libc::makedev(*major, *minor);
                        match libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o666, number) {
                            0 => libc::chmod(path.as_ptr(), 0o666),
                            failed => failed,
                        }
                    }
                }
            })?;
        }
        Ok(())
    }
}

/// Makes a mount read-only. Other tests mount, and remove their mounts with the folders, at the
/// same time: a mount that is gone is no error (mount(2), `ENOENT`, `EINVAL`).
fn make_read_only(point: &CString) -> libc::c_int {
    let none = c"none".as_ptr();
    let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;
    // SAFETY: strings that end with a zero byte, and integers.
    let done = unsafe { libc::mount(none, point.as_ptr(), c"".as_ptr(), flags, std::ptr::null()) };
    let is_gone =
        matches!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOENT | libc::EINVAL));
    if done != 0 && is_gone && point.as_c_str() != c"/" { 0 } else { done }
}

/// Header and data of capset(2), version 3 (linux/capability.h).
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Becomes `user` with Docker's capabilities, or without any if that is not root.
fn drop_privileges(user: u32) -> io::Result<()> {
    for capability in (0..=LAST_CAPABILITY).filter(|one| !CAPABILITIES.contains(one)) {
        // SAFETY: integers. An older kernel refuses capabilities that it does not have.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, u64::from(capability)) };
    }
    if user != 0 {
        // SAFETY: integers, and an empty list.
        unsafe {
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setresgid(user, user, user))?;
            return check(libc::setresuid(user, user, user));
        }
    }
    let set = CAPABILITIES.iter().fold(0, |set, one| set | 1u32 << one);
    let header = [CAPABILITY_VERSION, 0];
    // Effective, permitted and inheritable; then the same for the capabilities from 32 on.
    let data = [set, set, 0, 0, 0, 0];
    // SAFETY: a header and two sets of three words.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    check(done as libc::c_int)
}
