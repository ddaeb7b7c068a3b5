use super::*;

const MOUNTS: &str = "\
    24 20 0:22 / /proc rw - proc proc rw\n\
    33 30 0:29 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
    34 30 0:30 /ours /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n\
    35 30 0:31 / /host rw - cgroup cgroup rw,cpu,cpuacct\n\
    36 30 0:31 /docker/1 /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";

fn paths(controller: &str, own: &str) -> Vec<String> {
    let groups = ControlGroups::from_text(MOUNTS, own);
    groups.directories(controller).into_iter().map(|p| p.display().to_string()).collect()
}

#[test]
fn groups_are_found_up_to_the_mount_point_in_both_versions() {
    let pids = "/sys/fs/cgroup/pids";
    assert_eq!(
        paths("pids", "8:pids:/a/b\n"),
        [format!("{pids}/a/b"), format!("{pids}/a"), pids.to_owned()]
    );
    assert_eq!(paths("pids", "3:cpuset,pids:/\n"), [pids]);
    let unified = "/sys/fs/cgroup/unified";
    assert_eq!(
        paths("pids", "4:cpu:/x\n0::/ours/c\n"),
        [format!("{unified}/c"), unified.to_owned()]
    );
    assert!(paths("pids", "4:cpu:/x\nno line\n").is_empty());
    let unmounted = ControlGroups::from_text("", "0::/x\n");
    assert!(unmounted.directories("pids").is_empty(), "nothing is mounted");
}

/// A container without a cgroup namespace sees the path on the host, and a mount of its own group.
#[test]
fn only_mounts_that_show_the_own_group_count() {
    assert_eq!(paths("cpu", "2:cpu,cpuacct:/other\n"), ["/host/other", "/host"]);
    assert_eq!(
        paths("cpu", "2:cpu,cpuacct:/docker/1/in\n"),
        [
            "/host/docker/1/in",
            "/host/docker/1",
            "/host/docker",
            "/host",
            "/sys/fs/cgroup/cpu,cpuacct/in",
            "/sys/fs/cgroup/cpu,cpuacct"
        ]
    );
    let host = "36 30 0:31 /docker/1 /cpu rw - cgroup cgroup rw,cpu\n";
    let groups = ControlGroups::from_text(host, "2:cpu:/\n");
    assert_eq!(groups.directories("cpu"), [Path::new("/cpu")], "no mount shows the own group");
}

#[test]
fn group_outside_of_the_namespace_is_left_out() {
    assert!(paths("cpu", "2:cpu,cpuacct:/../../other\n").is_empty());
}
