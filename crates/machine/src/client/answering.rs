//! Whether an address space that has not answered in time works on its answer.
//!
//! On a busy machine, the kernel thread that answers may wait for a core for longer than the time
//! limit of the client. That is no reason to call the address space silent, so the client looks
//! whether the thread runs, or wants to.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::protocol::CONTROL_THREAD;

/// Looks at the kernel threads that answer for one process.
pub(crate) struct Answering {
    /// Their directories in procfs; empty if they are not visible.
    threads: Vec<PathBuf>,
    /// Time that they have run or waited for a core, in nanoseconds, at the last look.
    used: u64,
    looks: u32,
}

impl Answering {
    /// Time between two looks: a thread that the kernel owes a core gets it within this time.
    pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

    /// A thread that computes without end must not keep its client for ever.
    const MOST_LOOKS: u32 = 60;

    /// Takes the first look at the process `pid`.
    pub(crate) fn begin(pid: i32) -> Answering {
        Answering::of(pid, CONTROL_THREAD)
    }

    fn of(pid: i32, name: &str) -> Answering {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        let answers = |task: &PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|of| of.trim_end() == name)
        };
        let tasks = tasks.into_iter().flatten().flatten().map(|entry| entry.path());
        let threads: Vec<PathBuf> = tasks.filter(answers).collect();
        let used = threads.iter().map(|thread| used(thread)).sum();
        Answering { threads, used, looks: 0 }
    }

    /// Whether the threads have run since the last look, or want to.
    pub(crate) fn goes_on(&mut self) -> bool {
        let before = std::mem::replace(&mut self.used, self.threads.iter().map(|t| used(t)).sum());
        self.looks += 1;
        let is_active = self.used > before || self.threads.iter().any(|thread| is_runnable(thread));
        is_active && self.looks <= Self::MOST_LOOKS
    }
}

/// Time on a core and in the run queue, in nanoseconds: proc(5), `schedstat`. The latter is counted
/// when it ends.
fn used(thread: &Path) -> u64 {
    let text = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    text.split_whitespace().take(2).filter_map(|number| number.parse::<u64>().ok()).sum()
}

fn is_runnable(thread: &Path) -> bool {
    let text = fs::read_to_string(thread.join("stat")).unwrap_or_default();
    // The state follows the name, which may contain any characters: proc_pid_stat(5).
    text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('R'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn thread_that_runs_goes_on_and_one_that_sleeps_does_not() {
        let ((run, runs), (rest, rests)) = (mpsc::channel::<()>(), mpsc::channel());
        let body = move || {
            rest.send(()).expect("the test waits until it has its name");
            for () in runs {
                for n in 0..1_000_000 {
                    std::hint::black_box(n);
                }
                rest.send(()).expect("the test waits");
            }
        };
        let builder = std::thread::Builder::new().name("one-answers".into());
        let thread = builder.spawn(body).expect("a thread");
        rests.recv().expect("it has begun");
        let mut look = Answering::of(std::process::id() as i32, "one-answers");
        for _ in 0..3 {
            run.send(()).expect("it receives");
            rests.recv().expect("it answers");
            assert!(look.goes_on());
            // It may not have gone to sleep yet.
            while look.goes_on() {
                look.looks = 0;
                std::thread::yield_now();
            }
        }
        drop(run);
        thread.join().expect("no panic");
    }

    #[test]
    fn thread_without_end_does_not_go_on_for_ever() {
        let mut look = Answering::of(std::process::id() as i32, "one-answers");
        look.looks = Answering::MOST_LOOKS;
        assert!(!look.goes_on());
    }

    #[test]
    fn process_that_is_not_there_does_not_go_on() {
        assert!(!Answering::begin(0).goes_on());
        assert!(!Answering::begin(i32::MAX).goes_on());
    }
}
