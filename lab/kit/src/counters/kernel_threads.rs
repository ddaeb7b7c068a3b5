//! Lists all kernel threads of a process.

use std::fs;
use std::io;

/// Maximum number of attempts. Each fails only if the process creates or ends a kernel thread
/// during the listing.
const LISTINGS: usize = 10_000;

/// IDs of all kernel threads of process `pid`, which existed at the same moment.
///
/// A plain listing of /proc/PID/task is incomplete if the current kernel thread ends during the
/// listing (`next_tid` in the kernel's fs/proc/base.c: a thread that has left the list has no
/// successor). A listing is considered complete if its length equals the kernel's own count before
/// and after it.
///
/// # Errors
/// If there is no such process or no procfs, or kernel threads come and go faster than they can be
/// listed.
pub fn kernel_threads(pid: u32) -> io::Result<Vec<i32>> {
    let mut before = count_kernel_threads(pid)?;
    for _ in 0..LISTINGS {
        let mut listed = Vec::with_capacity(before);
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            listed.extend(thread?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
        }
        let after = count_kernel_threads(pid)?;
        if before == listed.len() && listed.len() == after {
            return Ok(listed);
        }
        before = after;
    }
    let message = format!(
        "kernel threads of process {pid} come and go faster than /proc/{pid}/task can be listed"
    );
    Err(io::Error::new(io::ErrorKind::WouldBlock, message))
}

/// The number of kernel threads of process `pid`, by proc_pid_status(5).
///
/// # Errors
/// If there is no such process or no procfs.
pub fn count_kernel_threads(pid: u32) -> io::Result<usize> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path)?;
    let count = status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse().ok());
    count.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{path} contains no number of threads"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc;
    use std::thread;

    /// For comparison: 60 of 100,000 plain listings miss the permanent thread.
    #[test]
    fn ended_threads_do_not_hide_running_ones() {
        for round in 0..3_000u32 {
            let both = Barrier::new(2);
            let (over, until) = mpsc::channel::<()>();
            thread::scope(|scope| {
                scope.spawn(|| {
                    both.wait();
                    (0..round % 500).for_each(|n| _ = std::hint::black_box(n));
                });
                let (tell, told) = mpsc::channel();
                scope.spawn(move || {
                    tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                    _ = until.recv();
                });
                let stays = told.recv().unwrap();
                both.wait();
                for _ in 0..5 {
                    assert!(
                        kernel_threads(std::process::id()).unwrap().contains(&stays),
                        "round {round}"
                    );
                }
                drop(over);
            });
        }
    }

    #[test]
    fn missing_process_is_an_error() {
        assert_eq!(kernel_threads(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
