//! A page fault of arbitrary duration.

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{MapFlags, ProtFlags, UserfaultfdFlags, mmap_anonymous, munmap, userfaultfd};

const BYTES: usize = 4096;

/// A missing page of memory. A reader is blocked in a page fault in the kernel until the
/// [`Provider`] is dropped.
#[derive(Debug)]
pub struct AwaitedPage(NonNull<c_void>);

/// Provides the page, filled with zeros, when dropped. Uses userfaultfd(2).
#[derive(Debug)]
pub struct Provider {
    _faults: OwnedFd,
}

// SAFETY: ordinary memory that does not belong to a kernel thread.
unsafe impl Send for AwaitedPage {}
// SAFETY: only read, and filled by the kernel before it becomes visible.
unsafe impl Sync for AwaitedPage {}

/// `struct uffdio_api` of linux/userfaultfd.h.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    bytes: u64,
    mode: u64,
    ioctls: u64,
}

const API: Opcode = opcode::read_write::<Api>(0xAA, 0x3F);
const REGISTER: Opcode = opcode::read_write::<Register>(0xAA, 0x00);
const VERSION: u64 = 0xAA;
const MISSING: u64 = 1;
/// Handles only faults from user mode, which the kernel allows without privileges (Linux 5.11;
/// before that it depends on `vm.unprivileged_userfaultfd`).
const USER_MODE_ONLY: u32 = 1;

impl AwaitedPage {
    /// Creates a missing page.
    ///
    /// # Errors
    /// As userfaultfd(2): EPERM if it is not permitted, ENOSYS if the kernel does not support it.
    pub fn new() -> io::Result<(AwaitedPage, Provider)> {
        let flags = UserfaultfdFlags::CLOEXEC;
        let only = UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
        // SAFETY: the descriptor leaves this module only inside a `Provider`, which closes it.
        let faults = match unsafe { userfaultfd(flags | only) } {
            // SAFETY: as above.
            Err(Errno::INVAL) => unsafe { userfaultfd(flags) }?,
            other => other?,
        };
        let mut api = Api { api: VERSION, features: 0, ioctls: 0 };
        // SAFETY: the opcode and its structure.
        unsafe { ioctl(&faults, Updater::<API, Api>::new(&mut api)) }?;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe { mmap_anonymous(null_mut(), BYTES, ProtFlags::READ, MapFlags::PRIVATE) }?;
        let page = AwaitedPage(NonNull::new(at).ok_or(io::ErrorKind::AddrNotAvailable)?);
        let mut register =
            Register { start: at as u64, bytes: BYTES as u64, mode: MISSING, ioctls: 0 };
        // SAFETY: as above; concerns this mapping only.
        unsafe { ioctl(&faults, Updater::<REGISTER, Register>::new(&mut register)) }?;
        Ok((page, Provider { _faults: faults }))
    }

    /// Reads the page's first byte, which is 0. Blocks the kernel thread in a page fault while the
    /// [`Provider`] exists. (A process forked meanwhile keeps the descriptor open until it executes
    /// another program.)
    #[must_use]
    pub fn read(&self) -> u8 {
        // SAFETY: mapped as long as `self` lives. Volatile, because the access itself matters.
        unsafe { self.0.as_ptr().cast::<u8>().read_volatile() }
    }
}

impl Drop for AwaitedPage {
    fn drop(&mut self) {
        // SAFETY: an own mapping, and no pointer into it is left. It cannot fail, because it is
        // page-aligned and a whole mapping.
        let _ = unsafe { munmap(self.0.as_ptr(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    #[test]
    fn page_cannot_be_read_before_it_is_provided() {
        let (page, provider) = match AwaitedPage::new() {
            Ok(both) => both,
            Err(e) => {
                // Written past libtest's capture: xtask counts these lines.
                let line = format!(
                    "\n[skip] page_cannot_be_read_before_it_is_provided: userfaultfd: {e}\n"
                );
                return io::stderr().write_all(line.as_bytes()).expect("standard error is open");
            }
        };
        let provided = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                provided.store(true, SeqCst);
                drop(provider);
            });
            assert_eq!(page.read(), 0);
            assert!(provided.load(SeqCst));
        });
    }
}
