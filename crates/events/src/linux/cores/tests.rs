use super::*;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A temporary folder in which ordinary files imitate control groups. Removed when dropped.
struct FakeTree(PathBuf);

impl FakeTree {
    fn new() -> FakeTree {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, tree) = (std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(format!("kumihimo-cores-{process}-{tree}"));
        fs::create_dir(&path).expect("a temporary folder");
        FakeTree(path)
    }

    /// Writes files of the group `path`, which is created.
    fn group(&self, path: &str, files: &[(&str, &str)]) {
        let group = self.0.join(path);
        fs::create_dir_all(&group).expect("a folder");
        for (name, text) in files {
            fs::write(group.join(name), text).expect("a file");
        }
    }

    /// The smallest quota for a process that is in the group `own` of version 2.
    fn quota_of_version_2(&self, own: &str) -> Option<Quota> {
        self.quota("cgroup2 cgroup2 rw", &format!("0::/{own}\n"))
    }

    /// The smallest quota for a process that is in the group `own` of version 1.
    fn quota_of_version_1(&self, own: &str) -> Option<Quota> {
        self.quota("cgroup cgroup rw,cpu,cpuacct", &format!("0::/\n7:cpu,cpuacct:/{own}\n"))
    }

    fn quota(&self, mount: &str, own: &str) -> Option<Quota> {
        let mounts = format!("36 30 0:31 / {} rw,relatime - {mount}\n", self.0.display());
        smallest(&ControlGroups::from_text(&mounts, own).directories("cpu"))
    }
}

impl Drop for FakeTree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Number of VPs that follow from a quota on a machine of 64 cores.
fn count(quota: Option<Quota>) -> usize {
    Cores { affinity: 64, quota }.count()
}

#[test]
fn quota_of_version_2_is_rounded_up() {
    let tree = FakeTree::new();
    for (text, cores) in [
        ("150000 100000\n", 2),
        ("100000 100000\n", 1),
        ("100001 100000\n", 2),
        ("1000 100000\n", 1),
        ("400000 50000\n", 8),
        ("max 100000\n", 64),
        ("9900000 100000\n", 64),
        ("18446744073709551615 1\n", 64),
    ] {
        tree.group("pod", &[("cpu.max", text)]);
        assert_eq!(count(tree.quota_of_version_2("pod")), cores, "{text}");
    }
}

#[test]
fn quota_of_version_1_is_rounded_up() {
    let tree = FakeTree::new();
    for (quota, period, cores) in [
        ("150000\n", "100000\n", 2),
        ("50000\n", "100000\n", 1),
        ("-1\n", "100000\n", 64),
        ("20001\n", "10000\n", 3),
    ] {
        tree.group("pod", &[("cpu.cfs_quota_us", quota), ("cpu.cfs_period_us", period)]);
        assert_eq!(count(tree.quota_of_version_1("pod")), cores, "{quota}");
    }
}

/// The periods differ, so the smallest quota is not the one with the smallest number.
#[test]
fn smallest_quota_on_the_way_to_the_root_applies() {
    let tree = FakeTree::new();
    tree.group("", &[("cpu.max", "2000000 100000\n")]);
    tree.group("slice", &[("cpu.max", "90000 30000\n")]);
    tree.group("slice/pod", &[("cpu.max", "500000 100000\n")]);
    tree.group("slice/pod/inner", &[("cpu.max", "max 100000\n")]);
    let quota = tree.quota_of_version_2("slice/pod/inner").expect("a quota");
    assert_eq!((quota.group.as_path(), quota.cores()), (tree.0.join("slice").as_path(), 3));
    let quota = tree.quota_of_version_2("").expect("a quota");
    assert_eq!(quota.cores(), 20);
}

#[test]
fn unreadable_or_invalid_file_imposes_no_quota() {
    let tree = FakeTree::new();
    for text in ["", "x", "100000", "100000 0\n", "-5 100000\n", "1.5 100000\n"] {
        tree.group("pod", &[("cpu.max", text)]);
        assert_eq!(tree.quota_of_version_2("pod"), None, "{text:?}");
    }
    assert_eq!(tree.quota_of_version_2("absent"), None);
}

#[test]
fn display_names_the_origin() {
    let quota = Quota { group: "/g".into(), quota: 150_000, period: 100_000 };
    let of = |affinity, quota| Cores { affinity, quota }.to_string();
    assert_eq!(
        of(8, Some(quota.clone())),
        "2, from the CPU quota of /g (150000 us in each 100000 us, 1.50 cores); \
         the CPU affinity allows 8 cores"
    );
    assert_eq!(
        of(1, Some(quota)),
        "1, from the CPU affinity: 1 core; \
         the CPU quota of /g (150000 us in each 100000 us, 1.50 cores) allows them"
    );
    assert_eq!(of(2, None), "2, from the CPU affinity: 2 cores, no CPU quota");
}

#[test]
fn listed_cores_are_counted() {
    for (list, count) in [("0", Some(1)), ("0-3", Some(4)), ("0-1,4,6-7", Some(5))] {
        assert_eq!(count_listed(list), count, "{list}");
    }
    for list in ["", "x", "0-", "3-1", "0,,2"] {
        assert_eq!(count_listed(list), None, "{list}");
    }
    assert!(online() >= affinity().len());
}

#[test]
fn affinity_is_that_of_the_calling_thread() {
    let before = affinity();
    assert!(!before.is_empty() && before.is_sorted(), "{before:?}");
    let of_thread = std::thread::spawn(move || {
        let core = before[before.len() - 1];
        // SAFETY: a set of cores on the stack; `core` is below its size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(core as usize, &mut set);
            assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set), 0);
        }
        (affinity(), core)
    });
    let (after, core) = of_thread.join().expect("no panic");
    assert_eq!(after, [core]);
    assert_eq!(Cores { affinity: after.len(), quota: None }.count(), 1);
}
