//! State of the kernel thread that holds a core, from proc(5).

use std::fs;

/// State of a kernel thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadStatus {
    /// The thread has ended.
    Gone,
    /// The thread is stopped by SIGSTOP or a debugger.
    Stopped,
    /// The thread sleeps in the kernel. Holds its CPU time in nanoseconds.
    Asleep(u64),
    /// The thread runs or is runnable. Holds its CPU time in nanoseconds.
    Running(u64),
    /// The state cannot be determined: another pid namespace, or /proc not mounted or not readable.
    Unknown,
}

/// Reads the state of a kernel thread. Takes about 20 us.
pub(crate) fn read(pid: u32, thread: u32) -> ThreadStatus {
    let at = format!("/proc/{pid}/task/{thread}");
    let Ok(stat) = fs::read_to_string(format!("{at}/stat")) else {
        return if fs::exists("/proc/self/stat").unwrap_or(false) && !fs::exists(&at).unwrap_or(true)
        {
            ThreadStatus::Gone
        } else {
            ThreadStatus::Unknown
        };
    };
    // The thread's name stands in parentheses and may contain any characters (proc_pid_stat(5)).
    let Some((_, fields)) = stat.rsplit_once(") ") else { return ThreadStatus::Unknown };
    // CPU time in nanoseconds from schedstat if the kernel provides it, otherwise the sum of utime
    // and stime in ticks of 10 ms.
    let used = || {
        let fine = fs::read_to_string(format!("{at}/schedstat")).ok();
        let fine = fine.and_then(|text| text.split(' ').next().and_then(|used| used.parse().ok()));
        let ticks = || {
            fields
                .split(' ')
                .skip(11)
                .take(2)
                .filter_map(|ticks| ticks.parse::<u64>().ok())
                .sum::<u64>()
        };
        fine.unwrap_or_else(|| ticks() * 10_000_000)
    };
    match fields.as_bytes().first() {
        Some(b'R') => ThreadStatus::Running(used()),
        Some(b'T' | b't') => ThreadStatus::Stopped,
        Some(b'Z' | b'X' | b'x') => ThreadStatus::Gone,
        Some(_) => ThreadStatus::Asleep(used()),
        None => ThreadStatus::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_states_are_distinguished() {
        let me = std::process::id();
        // SAFETY: no arguments.
        let thread = unsafe { libc::gettid() } as u32;
        assert!(matches!(read(me, thread), ThreadStatus::Running(_)));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("a child");
        let begun = std::time::Instant::now();
        while !matches!(read(child.id(), child.id()), ThreadStatus::Asleep(_)) {
            assert!(begun.elapsed().as_secs() < 30, "the child does not sleep");
            std::thread::yield_now();
        }
        child.kill().expect("it lives");
        child.wait().expect("it ends");
        assert_eq!(read(child.id(), child.id()), ThreadStatus::Gone);
    }
}
