//! The organisations of a server. Each has its own file, which contains everything specific to it.
//!
//! An [`Organisation`] runs the server's body on its kind of thread, chooses the disk access, and
//! serves mounts. `sequential.rs` serves all mounts in one loop; the other organisations use the
//! threads of [`threads`](crate::threads) in an [`Environment`]. This is the top module of the
//! crate.

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

/// Division of a system server into threads and processes (P1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Organisation {
    /// One loop that handles one request at a time, as in MINIX.
    Sequential,
    /// User-level threads without kernel support: MTFS in P1.
    UserThreads,
    /// File server and clock as two sequential processes: MPFS in P1.
    Processes,
    /// Kernel threads.
    KernelThreads,
    /// User-level threads that cooperate with the kernel, as in P0.
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
    /// Returns whether the clock is a separate process.
    #[must_use]
    pub fn has_clock_apart(self) -> bool {
        self == Organisation::Processes
    }

    /// Runs `body`, the whole server, in the runtime that this organisation needs, or directly.
    /// Blocks the kernel thread until `body` returns.
    ///
    /// # Errors
    /// Fails if the runtime cannot be built.
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

    /// Returns the lock of an organisation that handles one request at a time. Requests that do not
    /// arrive through a mount, such as gate calls, must hold it.
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

    /// Returns the store's disk, with the access that suits this organisation's threads and an
    /// additional `delay` for each block.
    #[must_use]
    pub fn disk(self, disk: FileDisk, delay: Duration) -> Box<dyn Disk> {
        let (disk, pause): (Box<dyn Disk>, fn(Duration)) = match self.environment() {
            None => (Box::new(disk), std::thread::sleep),
            Some(environment) => (environment.disk(disk), environment.pause()),
        };
        if delay.is_zero() { disk } else { Box::new(Delayed::new(disk, delay, pause)) }
    }

    /// Serves until all mounts have ended. Blocks the caller: the microprocess, or the kernel
    /// thread if the caller is not a microprocess. Must be called inside [`Organisation::run`].
    ///
    /// # Errors
    /// Fails if a thread cannot be started or a channel cannot be opened.
    pub fn serve(self, threads: Threads, mounts: Vec<Mounted>, chore: Chore) -> io::Result<()> {
        match self.environment() {
            None => sequential::serve(mounts, &chore),
            Some(environment) => serve_in(&environment, threads, mounts, chore),
        }
    }
}

/// Serves mounts with threads of the kind that `environment` provides.
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
