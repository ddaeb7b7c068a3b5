//! User-level threads of which the kernel knows nothing: P1's MTFS. They are our microprocesses on
//! one virtual processor, with events off and without hand-off, so that only the cooperation is
//! missing: a wait for a message lets the others go on, and a wait for the disk stops them all.

use std::io;
use std::time::Duration;

use kumihimo::runtime::{Events, Runtime};
use kumihimo::sync::Arc;
use kumihimo::thread;
use kumihimo_store::{Disk, FileDisk};

use crate::environment::Environment;
use crate::intake::{Intake, Mounted};

/// One virtual processor for all of them.
pub(super) fn runtime() -> io::Result<Runtime> {
    Runtime::builder().vps(1).events(Events::Off).build()
}

/// The environment.
pub(super) struct UserThreads;

impl Environment for UserThreads {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
    }

    /// As the paper's: each thread runs all of the server's code, and takes the next message from
    /// any sender.
    fn serves_all(&self) -> bool {
        true
    }

    fn intakes(&self, mounts: &[Mounted], _: usize) -> io::Result<Vec<Arc<Intake>>> {
        Ok(vec![Arc::new(Intake::by_turns(mounts.to_vec())?)])
    }

    fn most(&self) -> usize {
        // None is ever occupied while another one runs, but by a lock.
        64
    }

    /// By plain system calls: the kernel thread that makes them is the only one.
    fn disk(&self, disk: FileDisk) -> Box<dyn Disk> {
        Box::new(disk)
    }

    fn pause(&self) -> fn(Duration) {
        std::thread::sleep
    }
}
