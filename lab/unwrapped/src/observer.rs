//! Observes the process from a separate kernel thread while a workload runs.

use std::process;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kumihimo_bench_kit::count_kernel_threads;

/// Interval between two counts of kernel threads.
const EVERY: Duration = Duration::from_millis(10);

/// Name of the observer, also of its kernel thread if it has one of its own.
const NAME: &str = "observer";

/// Counts the kernel threads of this process, and ends the process if the workload hangs: if all
/// VPs are blocked in the kernel, no microprocess could report it.
pub struct Observer {
    over: Sender<()>,
    thread: JoinHandle<usize>,
}

impl Observer {
    /// Starts the observer. The process ends with a message after `patience`.
    pub fn start(patience: Duration) -> Observer {
        let (over, told) = channel();
        let observer = thread::Builder::new().name(NAME.to_owned());
        let thread = observer.spawn(move || observe(&told, patience)).expect("limit of threads");
        Observer { over, thread }
    }

    /// Stops the observer. Returns the maximum number of kernel threads, without the observer.
    pub fn end(self) -> usize {
        drop(self.over);
        self.thread.join().expect("no panic")
    }
}

fn observe(told: &Receiver<()>, patience: Duration) -> usize {
    let end = Instant::now() + patience;
    let mut most = 0;
    // A thread of std has none of its own in a program whose C library is interposed.
    let own = std::fs::read_to_string("/proc/thread-self/comm").expect("proc(5)");
    let own = usize::from(own.trim_end() == NAME);
    loop {
        let now = count_kernel_threads(process::id()).expect("/proc/self/status");
        most = most.max(now.saturating_sub(own));
        if told.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            return most;
        }
        if Instant::now() >= end {
            eprintln!("unwrapped: not done after {} s", patience.as_secs_f64());
            process::exit(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maximum_of_simultaneous_threads_is_counted() {
        let observer = Observer::start(Duration::from_secs(600));
        let threads: Vec<_> = (0..20).map(|_| thread::spawn(|| thread::sleep(4 * EVERY))).collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert!(observer.end() >= 20);
    }
}
