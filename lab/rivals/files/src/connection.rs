//! A mount with a descriptor for each reader.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::ioctl::{Setter, ioctl, opcode};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::answer;
use super::tree::Tree;

/// FUSE_DEV_IOC_CLONE of linux/fuse.h: attaches this descriptor to the connection of the given one.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// A mounted file system, unmounted when dropped.
pub struct Connection {
    device: Arc<File>,
    at: PathBuf,
}

fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/fuse")
}

impl Connection {
    pub fn mount(at: &Path) -> Result<Connection, String> {
        let device = open().map_err(|e| format!("refused: /dev/fuse: {e}"))?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,max_read=1048576",
            device.as_raw_fd()
        );
        let options = CString::new(options).expect("no 0 in it");
        mount("rival-files", at, "fuse.rival-files", MountFlags::NODEV | MountFlags::NOSUID, options.as_c_str())
            .map_err(|e| format!("refused: mounting {}: {e}", at.display()))?;
        Ok(Connection { device: Arc::new(device), at: at.to_owned() })
    }

    /// Replies to the kernel's INIT request, which sets the connection up.
    pub fn begin(&self, tree: &Tree) -> io::Result<()> {
        let mut buffer = answer::buffer();
        answer::next(&self.device, tree, &mut buffer).map(|_| ())
    }

    pub fn device(&self) -> Arc<File> {
        self.device.clone()
    }

    /// A descriptor with its own queue of requests being processed, so that its readers share no
    /// lock with the others' replies.
    pub fn another(&self) -> Result<Arc<File>, String> {
        let file = open().map_err(|e| e.to_string())?;
        let of = self.device.as_raw_fd() as u32;
        // SAFETY: FUSE_DEV_IOC_CLONE reads a u32 through its pointer and writes nothing; both
        // descriptors are open.
        unsafe { ioctl(file.as_fd(), Setter::<CLONE, u32>::new(of)) }.map_err(|e| format!("clone: {e}"))?;
        Ok(Arc::new(file))
    }

    /// A function that unmounts the file system, which ends all readers.
    pub fn ending(&self) -> impl FnOnce() + Send + 'static {
        let at = self.at.clone();
        move || _ = unmount(&at, UnmountFlags::DETACH)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // EINVAL: already unmounted.
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}
