//! Kernel threads: a wait for a message, the disk or a lock blocks the thread in the kernel, whose
//! scheduler runs the others.

use std::io;
use std::thread;
use std::time::Duration;

use kumihimo::sync::Arc;
use kumihimo_store::{Disk, FileDisk};

use crate::environment::Environment;
use crate::intake::{Intake, Mounted};

/// Environment of kernel threads.
pub(super) struct KernelThreads;

impl Environment for KernelThreads {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
    }

    /// Opens one channel per core, or per thread if there are fewer threads, so that receivers on
    /// different cores do not contend.
    fn intakes(&self, mounts: &[Mounted], threads: usize) -> io::Result<Vec<Arc<Intake>>> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut intakes = Vec::new();
        for mount in mounts {
            intakes.push(Arc::new(Intake::blocking(mount.clone())?));
            for _ in 1..cores.min(threads) {
                let another =
                    Mounted { device: Arc::new(mount.device.another()?), ..mount.clone() };
                intakes.push(Arc::new(Intake::blocking(another)?));
            }
        }
        Ok(intakes)
    }

    fn most(&self) -> usize {
        64
    }

    fn disk(&self, disk: FileDisk) -> Box<dyn Disk> {
        Box::new(disk)
    }

    fn pause(&self) -> fn(Duration) {
        thread::sleep
    }
}
