//! Microprocesses: user-level threads that cooperate with the kernel (P0). A wait for a message, a
//! lock or time parks the microprocess. A wait in the kernel, for the disk or for a page, is
//! reported by an event, and the virtual processor runs other microprocesses.

use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use kumihimo::fs::File;
use kumihimo::runtime::Runtime;
use kumihimo::sync::Arc;
use kumihimo::thread;
use kumihimo_store::{Disk, FileDisk};

use crate::environment::Environment;
use crate::intake::{Intake, Mounted};

/// Builds the runtime with the defaults of the machine and the environment variables.
pub(super) fn runtime() -> io::Result<Runtime> {
    Runtime::builder().build()
}

/// Environment of microprocesses.
pub(super) struct Microprocesses;

impl Environment for Microprocesses {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
    }

    fn intakes(&self, mounts: &[Mounted], _: usize) -> io::Result<Vec<Arc<Intake>>> {
        Ok(vec![Arc::new(Intake::by_turns(mounts.to_vec())?)])
    }

    /// High, because a parked microprocess costs only its stack.
    fn most(&self) -> usize {
        10_000
    }

    fn disk(&self, disk: FileDisk) -> Box<dyn Disk> {
        let size = disk.size();
        Box::new(MicroDisk { file: File::from(disk.into_file()), size })
    }

    fn pause(&self) -> fn(Duration) {
        thread::sleep
    }
}

/// Disk access through Kumihimo's calls, which work with any event source.
struct MicroDisk {
    file: File,
    size: u64,
}

impl Disk for MicroDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.file.write_all_at(from, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
