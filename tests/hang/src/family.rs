//! A process and its descendants, and the CPU use of their threads, read from procfs.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::Duration;

/// Time that a kernel thread has used since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Time on a core.
    pub(crate) ran: Duration,
    /// Time in the kernel's run queue.
    pub(crate) queued: Duration,
    /// True if the thread is on a core or in a run queue now.
    pub(crate) runnable: bool,
}

/// The process `root`, its descendants, and every process of the group or session that `root`
/// leads.
pub(crate) fn members(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut found = HashSet::from([root]);
    for process in numbers("/proc") {
        // proc_pid_stat(5): state, parent, process group, session.
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let fields = after_name(&stat);
        let field = |n: usize| fields.get(n).and_then(|text| text.parse().ok());
        if let (Some(parent), Some(group), Some(session)) = (field(1), field(2), field(3)) {
            children.entry(parent).or_default().push(process);
            if group == root || session == root {
                found.insert(process);
            }
        }
    }
    let mut open: Vec<u32> = found.iter().copied().collect();
    while let Some(process) = open.pop() {
        for &child in children.get(&process).map_or(&[][..], Vec::as_slice) {
            if found.insert(child) {
                open.push(child);
            }
        }
    }
    let mut members: Vec<u32> = found.into_iter().collect();
    members.sort_unstable();
    members
}

/// Usage of each kernel thread of the family that has not ended, by thread ID.
pub(crate) fn usage(root: u32) -> HashMap<u32, Usage> {
    let mut all = HashMap::new();
    for process in members(root) {
        for thread in numbers(&format!("/proc/{process}/task")) {
            let read = |name| {
                fs::read_to_string(format!("/proc/{process}/task/{thread}/{name}"))
                    .unwrap_or_default()
            };
            let stat = read("stat");
            let Some(&state) = after_name(&stat).first() else { continue };
            // Ended, and not yet waited for.
            if matches!(state, "Z" | "X") {
                continue;
            }
            // The kernel's documentation, sched-stats.rst: time on a core, time in the run queue,
            // time slices.
            let times = read("schedstat");
            let mut times = times.split_whitespace().map(|text| text.parse().unwrap_or(0));
            let mut time = || Duration::from_nanos(times.next().unwrap_or(0));
            let usage = Usage { ran: time(), queued: time(), runnable: state == "R" };
            all.insert(thread, usage);
        }
    }
    all
}

/// The fields of a `stat` file after the name. The name may contain spaces and parentheses.
pub(crate) fn after_name(stat: &str) -> Vec<&str> {
    stat.rsplit(") ").next().unwrap_or_default().split_whitespace().collect()
}

/// The entries of a directory whose names are numbers.
fn numbers(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
