//! A control group for the child processes of a test, made by root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Mount points of version 2, and the folder of the mount points of version 1.
const VERSION_2: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const VERSION_1: &str = "/sys/fs/cgroup";
/// Environment variable with the directories of the group that a child process joins.
const VARIABLE: &str = "KUMI_TEST_GROUP";
/// Start of the names of the groups of all tests. The process ID follows.
const PREFIX: &str = "kumihimo-test-";
/// Number of attempts to remove a group, 5 ms apart: the kernel removes killed processes late.
const ATTEMPTS: u32 = 2000;

/// A control group. When dropped, it kills the processes inside, all of which are the test's own,
/// and removes the group.
pub struct ControlGroup {
    /// The directories: one in version 2, or one for each controller in version 1.
    directories: Vec<PathBuf>,
}

impl ControlGroup {
    /// Creates a group with `controllers`, inside the hierarchies' root.
    ///
    /// # Errors
    /// The reason, if no hierarchy with these controllers is mounted and writable.
    pub fn new(controllers: &[&str]) -> Result<ControlGroup, String> {
        ControlGroup::inside(Path::new(""), controllers)
    }

    /// Creates a group inside this one.
    ///
    /// # Errors
    /// As [`new`](ControlGroup::new).
    pub fn nested(&self, controllers: &[&str]) -> Result<ControlGroup, String> {
        let name = self.directories[0].file_name().expect("a named directory");
        ControlGroup::inside(Path::new(name), controllers)
    }

    fn inside(parent: &Path, controllers: &[&str]) -> Result<ControlGroup, String> {
        remove_abandoned(parent);
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        let mut group = ControlGroup { directories: Vec::new() };
        let mut create = |directory: PathBuf| {
            fs::create_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
            group.directories.push(directory);
            Ok::<_, String>(())
        };
        // `cgroup.controllers` exists in version 2 only.
        let version_2 = VERSION_2.map(Path::new).into_iter().find(|root| {
            let found = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            controllers.iter().all(|one| found.split_whitespace().any(|has| has == *one))
        });
        if let Some(root) = version_2 {
            let all: Vec<_> = controllers.iter().map(|one| format!("+{one}")).collect();
            let above = root.join(parent);
            fs::write(above.join("cgroup.subtree_control"), all.join(" "))
                .map_err(|e| format!("controllers of {}: {e}", above.display()))?;
            create(root.join(name))?;
        } else {
            for controller in controllers {
                let root = Path::new(VERSION_1).join(controller);
                if !root.join("tasks").exists() {
                    return Err(format!("no control groups with the controller {controller}"));
                }
                create(root.join(&name))?;
            }
        }
        Ok(group)
    }

    /// Limits the CPU time of the group to `quota` microseconds in each `period`.
    ///
    /// # Panics
    /// As [`set`](ControlGroup::set).
    pub fn limit_cpu(&self, quota: u64, period: u64) {
        if self.file("cpu.max").is_some() {
            return self.set("cpu.max", &format!("{quota} {period}"));
        }
        // A period beyond the quota of the moment may be refused.
        self.set("cpu.cfs_quota_us", "-1");
        self.set("cpu.cfs_period_us", &period.to_string());
        self.set("cpu.cfs_quota_us", &quota.to_string());
    }

    /// Limits the number of kernel threads in the group.
    ///
    /// # Panics
    /// As [`set`](ControlGroup::set).
    pub fn limit_threads(&self, most: u64) {
        self.set("pids.max", &most.to_string());
    }

    /// Limits the memory of the group, in bytes.
    ///
    /// # Panics
    /// As [`set`](ControlGroup::set).
    pub fn limit_memory(&self, bytes: u64) {
        let name = ["memory.max", "memory.limit_in_bytes"];
        let name = name.into_iter().find(|name| self.file(name).is_some());
        self.set(name.expect("the controller memory"), &bytes.to_string());
    }

    /// Writes to a file of the group.
    ///
    /// # Panics
    /// If the group has no such file, or the kernel refuses the text.
    pub fn set(&self, name: &str, text: &str) {
        let file = self.file(name).unwrap_or_else(|| panic!("no controller has {name}"));
        fs::write(&file, text).unwrap_or_else(|e| panic!("{text} to {}: {e}", file.display()));
    }

    /// Returns the contents of a file of the group.
    ///
    /// # Panics
    /// If the group has no such file, or it cannot be read.
    #[must_use]
    pub fn get(&self, name: &str) -> String {
        let file = self.file(name).unwrap_or_else(|| panic!("no controller has {name}"));
        fs::read_to_string(file).expect("a readable file")
    }

    /// Returns the directory that has the file `name`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn directory_of(&self, name: &str) -> PathBuf {
        let file = self.file(name).unwrap_or_else(|| panic!("no controller has {name}"));
        file.parent().expect("a file in a directory").to_owned()
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        self.directories.iter().map(|one| one.join(name)).find(|file| file.exists())
    }

    /// Returns the directories: one in version 2, one for each controller in version 1.
    #[must_use]
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Returns the environment variable by which a child process finds the group:
    /// see [`join_group`].
    #[must_use]
    pub fn variable(&self) -> (&'static str, String) {
        let all: Vec<_> = self.directories.iter().map(|one| one.display().to_string()).collect();
        (VARIABLE, all.join(":"))
    }

    /// Returns the processes in the group.
    fn processes(&self) -> Vec<i32> {
        let read = |directory: &PathBuf| fs::read_to_string(directory.join("cgroup.procs"));
        let texts: Vec<_> = self.directories.iter().filter_map(|one| read(one).ok()).collect();
        texts.iter().flat_map(|text| text.lines()).filter_map(|pid| pid.parse().ok()).collect()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for _ in 0..ATTEMPTS {
            for pid in self.processes().into_iter().filter_map(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
            self.directories.retain(|one| {
                fs::remove_dir(one).is_err_and(|e| e.kind() != io::ErrorKind::NotFound)
            });
            if self.directories.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Removes the groups of test processes that were killed before they could do so. A group in which
/// a process lives is kept by the kernel.
fn remove_abandoned(parent: &Path) {
    let roots = fs::read_dir(VERSION_1).into_iter().flatten().flatten().map(|one| one.path());
    for root in roots.chain([PathBuf::from(VERSION_1)]) {
        for group in fs::read_dir(root.join(parent)).into_iter().flatten().flatten() {
            let name = group.file_name();
            let process =
                name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
            if process.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _ = fs::remove_dir(group.path());
            }
        }
    }
}

/// Moves this process into the group of the test, if its parent has named one with
/// [`ControlGroup::variable`]. For a child process, before it drops privileges. Returns the
/// directories of the group, separated by colons.
///
/// # Panics
/// If the kernel refuses.
pub fn join_group() -> Option<String> {
    let directories = std::env::var(VARIABLE).ok()?;
    for directory in directories.split(':') {
        fs::write(Path::new(directory).join("cgroup.procs"), "0").expect("root joins the group");
    }
    Some(directories)
}
