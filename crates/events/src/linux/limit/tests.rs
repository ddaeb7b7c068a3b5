use super::*;

const MOUNTS: &str = "\
    24 20 0:22 / /proc rw - proc proc rw\n\
    33 30 0:29 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
    34 30 0:30 /ours /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";

#[test]
fn groups_are_found_up_to_the_mount_point_in_both_hierarchies() {
    let paths =
        |own| groups(MOUNTS, own).into_iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
    let pids = "/sys/fs/cgroup/pids";
    assert_eq!(
        paths("8:pids:/a/b\n"),
        [format!("{pids}/a/b"), format!("{pids}/a"), pids.to_owned()]
    );
    assert_eq!(paths("3:cpu,pids:/\n"), [pids]);
    let unified = "/sys/fs/cgroup/unified";
    assert_eq!(paths("4:cpu:/x\n0::/ours/c\n"), [format!("{unified}/c"), unified.to_owned()]);
    assert!(paths("4:cpu:/x\nno line\n").is_empty());
    assert!(groups("", "0::/x\n").is_empty(), "nothing is mounted");
}

#[test]
fn default_limit_is_positive_and_names_its_source() {
    let limit = Limit::of_machine();
    assert!((1..=MOST as usize).contains(&limit.threads), "{limit}");
    assert_eq!(limit.threads == MOST as usize, limit.source == LimitSource::Nothing, "{limit}");
}

#[test]
fn display_names_the_source() {
    let of =
        Limit { threads: 3, source: LimitSource::Group { path: "/g".into(), most: 9, has: 6 } };
    assert_eq!(of.to_string(), "3 kernel threads (pids.max of /g: 9, of which 6 are in use)");
    assert_eq!(Limit::asked(7, "a test").to_string(), "7 kernel threads (a test)");
}
