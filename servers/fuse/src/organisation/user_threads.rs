//! User-level threads without kernel support: MTFS in P1.
//!
//! They are microprocesses on one virtual processor, with events off and without hand-off, so that
//! only the cooperation with the kernel is missing. A thread that waits for a message lets other
//! threads run; a thread that waits for the disk blocks all of them.

use std::io;
use std::time::Duration;

use kumihimo::runtime::{Events, Runtime};
use kumihimo::sync::Arc;
use kumihimo::thread;
use kumihimo_store::{Disk, FileDisk};

use crate::environment::Environment;
use crate::intake::{Intake, Mounted};

/// Builds the runtime, with one virtual processor for all threads.
pub(super) fn runtime() -> io::Result<Runtime> {
    Runtime::builder().vps(1).events(Events::Off).build()
}

/// Environment of user-level threads.
pub(super) struct UserThreads;

impl Environment for UserThreads {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
    }

    /// As in the paper: each thread can execute all of the server's code, and takes the next
    /// message of any sender.
    fn serves_all(&self) -> bool {
        true
    }

    fn intakes(&self, mounts: &[Mounted], _: usize) -> io::Result<Vec<Arc<Intake>>> {
        Ok(vec![Arc::new(Intake::by_turns(mounts.to_vec())?)])
    }

    fn most(&self) -> usize {
        // A thread rarely holds a request while another thread runs, except when it waits for a
        // lock.
        64
    }

    /// Uses plain system calls, which block the only kernel thread.
    fn disk(&self, disk: FileDisk) -> Box<dyn Disk> {
        Box::new(disk)
    }

    fn pause(&self) -> fn(Duration) {
        std::thread::sleep
    }
}
