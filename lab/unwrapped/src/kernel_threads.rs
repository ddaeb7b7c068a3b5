//! The contender `std`: a kernel thread for each body.

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use rustix::process::setpriority_process;

use crate::threads::{Body, Count, Counter, Join, Threads};

/// Nice value of a thread with precedence. If this is refused, all threads compete alike.
const NICE: i32 = -10;

/// Threads of std.
#[derive(Clone, Copy, Debug)]
pub struct KernelThreads;

impl Threads for KernelThreads {
    fn spawn(&self, body: Body) -> Join {
        let thread = thread::Builder::new().spawn(body).expect("limit of threads");
        Box::new(move || thread.join().expect("no panic"))
    }

    fn spawn_above(&self, body: Body) -> Join {
        self.spawn(Box::new(move || {
            // On Linux, each thread has its own nice value: setpriority(2).
            let _ = setpriority_process(None, NICE);
            body();
        }))
    }

    fn yield_now(&self) {
        thread::yield_now();
    }

    fn sleep_until(&self, deadline: Instant) {
        thread::sleep(deadline.saturating_duration_since(Instant::now()));
    }

    fn counter(&self) -> Counter {
        let number = Mutex::new(0);
        Box::new(move || {
            let mut number = number.lock().expect("not poisoned");
            *number += 1;
            *number
        })
    }

    fn has_pool(&self) -> bool {
        true
    }

    fn counts(&self) -> Vec<Count> {
        Vec::new()
    }

    fn source(&self) -> Option<&'static str> {
        None
    }
}
