//! The control groups of the process: its own group in a hierarchy and the groups above it.
//!
//! Sources: cgroups(7), proc_pid_mountinfo(5), Documentation/admin-guide/cgroup-v2.rst.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// The hierarchies of control groups that are mounted, and the groups of a process in them.
pub(crate) struct ControlGroups {
    /// Contents of `mountinfo`.
    mounts: String,
    /// Contents of `cgroup`.
    own: String,
}

impl ControlGroups {
    /// Reads the groups of this process. A file that cannot be read leads to no group. Blocks the
    /// kernel thread while it reads two files of /proc.
    pub(crate) fn of_process() -> ControlGroups {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        ControlGroups { mounts: read("/proc/self/mountinfo"), own: read("/proc/self/cgroup") }
    }

    /// Creates them from the contents of the process's `mountinfo` and `cgroup` files.
    #[cfg(test)]
    pub(crate) fn from_text(mounts: &str, own: &str) -> ControlGroups {
        ControlGroups { mounts: mounts.to_owned(), own: own.to_owned() }
    }

    /// Returns the directories of the groups in which `controller` can limit the process: those of
    /// version 2, and those of the hierarchy of version 1 that has this controller. Each group
    /// comes before the groups above it. A limit of any of them applies. A directory may not exist,
    /// if another mount covers it.
    pub(crate) fn directories(&self, controller: &str) -> Vec<PathBuf> {
        let mut all = Vec::new();
        for line in self.own.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let unified = controllers.is_empty();
            if !unified && controllers.split(',').all(|one| one != controller) {
                continue;
            }
            let path = Path::new(path);
            let version_1 = (!unified).then_some(controller);
            let mounts: Vec<_> =
                self.mounts.lines().filter_map(|mount| mounted(mount, version_1)).collect();
            // A hierarchy may have several mount points, which show different parts of it.
            let has_own = mounts.iter().any(|(root, _)| path.starts_with(root));
            for (root, point) in mounts {
                if !has_own || path.starts_with(root) {
                    all.extend(up_to_mount_point(path, Path::new(root), Path::new(point)));
                }
            }
        }
        all
    }
}

/// Returns the directories of the group `path`, and of the groups above it, in a mount of `root` at
/// `point`. A container without a cgroup namespace may see neither in `path` nor in `root` what it
/// sees at `point`.
fn up_to_mount_point(path: &Path, root: &Path, point: &Path) -> Vec<PathBuf> {
    let inner = path.strip_prefix(root).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
    // The group lies above the root of the process's cgroup namespace.
    if inner.components().any(|one| one == Component::ParentDir) {
        return Vec::new();
    }
    // Drops a trailing slash.
    let bottom: PathBuf = point.join(inner).components().collect();
    bottom.ancestors().take_while(|one| one.starts_with(point)).map(Path::to_owned).collect()
}

/// Returns the number in a file of a group. `None` if there is no such file, or if it contains no
/// number: the file of an unlimited group contains `max` (version 2) or -1 (version 1).
pub(crate) fn number(group: &Path, name: &str) -> Option<u64> {
    fs::read_to_string(group.join(name)).ok()?.trim().parse().ok()
}

/// Returns the root and the mount point of a line of mountinfo, if it mounts the hierarchy of
/// version 1 with `controller`, or for `None` the hierarchy of version 2.
fn mounted<'a>(line: &'a str, controller: Option<&str>) -> Option<(&'a str, &'a str)> {
    let (front, back) = line.split_once(" - ")?;
    let mut back = back.split(' ');
    let (kind, options) = (back.next()?, back.nth(1)?);
    let is_it = match controller {
        None => kind == "cgroup2",
        Some(controller) => kind == "cgroup" && options.split(',').any(|one| one == controller),
    };
    let mut front = front.split(' ').skip(3);
    is_it.then_some((front.next()?, front.next()?))
}

#[cfg(test)]
mod tests;
