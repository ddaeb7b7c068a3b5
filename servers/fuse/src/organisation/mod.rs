//! The organisations: one file each, which is all in which they differ.

mod kernel_threads;
mod microprocesses;
mod processes;
mod sequential;
mod user_threads;

use std::fmt;
use std::io;
use std::time::Duration;

use kumihimo::sync::{Arc, Condvar, Mutex, PoisonError};
use kumihimo_store::{Delayed, Disk, FileDisk};

pub use processes::{Apart, apart};

use crate::chore::{CHORE_EVERY, Chore};
use crate::environment::Environment;
use crate::intake::Mounted;
use crate::threads::{self, Threads};

/// How a system server is divided into threads and processes (P1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Organisation {
    /// One loop, which handles one request at a time: MINIX's.
    Sequential,
    /// User-level threads of which the kernel knows nothing: P1's MTFS.
    UserThreads,
    /// File server and clock in two processes, each sequential: P1's MPFS.
    Processes,
    /// A thread of the kernel each.
    KernelThreads,
    /// Threads by cooperation of user and kernel: P0's.
    Microprocesses,
}

impl fmt::Display for Organisation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Organisation::Sequential => "sequential",
            Organisation::UserThreads => "user-threads",
            Organisation::Processes => "processes",
            Organisation::KernelThreads => "kernel-threads",
            Organisation::Microprocesses => "microprocesses",
        })
    }
}

impl Organisation {
    /// Whether the clock is a process of its own.
    #[must_use]
    pub fn has_clock_apart(self) -> bool {
        self == Organisation::Processes
    }

    /// Runs `body`, which is to be all of the server, where this organisation's threads are: in the
    /// runtime that it needs, or as it is.
    ///
    /// # Errors
    /// That there can be no runtime.
    pub fn run<T: Send + 'static>(
        self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        match self {
            Organisation::Sequential | Organisation::Processes | Organisation::KernelThreads => {
                Ok(body())
            }
            Organisation::UserThreads => Ok(user_threads::runtime()?.run(body)),
            Organisation::Microprocesses => Ok(microprocesses::runtime()?.run(body)),
        }
    }

    /// Where one request is handled at a time: what those take that come another way than through a
    /// mount, as a gate's do.
    #[must_use]
    pub fn turn(self) -> Option<&'static Mutex<()>> {
        self.environment().is_none().then_some(&sequential::TURN)
    }

    fn environment(self) -> Option<Arc<dyn Environment>> {
        match self {
            Organisation::Sequential | Organisation::Processes => None,
            Organisation::UserThreads => Some(Arc::new(user_threads::UserThreads)),
            Organisation::KernelThreads => Some(Arc::new(kernel_threads::KernelThreads)),
            Organisation::Microprocesses => Some(Arc::new(microprocesses::Microprocesses)),
        }
    }

    /// The store's disk as this organisation's threads access it; each block of it takes `delay`
    /// longer, if there is one.
    #[must_use]
    pub fn disk(self, disk: FileDisk, delay: Duration) -> Box<dyn Disk> {
        let (disk, pause): (Box<dyn Disk>, fn(Duration)) = match self.environment() {
            None => (Box::new(disk), std::thread::sleep),
            Some(environment) => (environment.disk(disk), environment.pause()),
        };
        if delay.is_zero() { disk } else { Box::new(Delayed::new(disk, delay, pause)) }
    }

    /// Serves until all mounts have ended. Blocks the caller. To be called inside
    /// [`Organisation::run`].
    ///
    /// # Errors
    /// That a thread cannot begin, or no channel opened.
    pub fn serve(self, threads: Threads, mounts: Vec<Mounted>, chore: Chore) -> io::Result<()> {
        match self.environment() {
            None => sequential::serve(mounts, &chore),
            Some(environment) => serve_in(&environment, threads, mounts, chore),
        }
    }
}

/// Mounts served by threads, whichever kind they are of.
fn serve_in(
    environment: &Arc<dyn Environment>,
    threads: Threads,
    mounts: Vec<Mounted>,
    chore: Chore,
) -> io::Result<()> {
    let ended = Arc::new((Mutex::new(false), Condvar::new()));
    environment.spawn(
        "chore",
        Box::new({
            let ended = Arc::clone(&ended);
            move || {
                let (flag, told) = &*ended;
                let mut over = flag.lock().unwrap_or_else(PoisonError::into_inner);
                while !*over {
                    let (again, waited) = told
                        .wait_timeout(over, CHORE_EVERY)
                        .unwrap_or_else(PoisonError::into_inner);
                    over = again;
                    if waited.timed_out() {
                        drop(over);
                        chore();
                        over = flag.lock().unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        }),
    )?;
    let groups = if environment.serves_all() {
        vec![mounts]
    } else {
        mounts.into_iter().map(|one| vec![one]).collect()
    };
    let crews: Vec<_> = groups
        .into_iter()
        .map(|group| threads::begin(environment, threads, group))
        .collect::<io::Result<_>>()?;
    crews.into_iter().for_each(threads::Ended::wait);
    *ended.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    ended.1.notify_all();
    Ok(())
}
