//! A page fault that lasts as long as one likes.

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{MapFlags, ProtFlags, UserfaultfdFlags, mmap_anonymous, munmap, userfaultfd};

const BYTES: usize = 4096;

/// A page of memory that is not there: a reader sleeps in a page fault, in the kernel, until its
/// [`Provider`] is dropped.
#[derive(Debug)]
pub struct AwaitedPage(NonNull<c_void>);

/// Dropped, it provides the page: one of zeroes. By userfaultfd(2).
#[derive(Debug)]
pub struct Provider {
    _faults: OwnedFd,
}

// SAFETY: memory like any other; nothing in it belongs to a kernel thread.
unsafe impl Send for AwaitedPage {}
// SAFETY: read only, and filled by the kernel before anybody sees it.
unsafe impl Sync for AwaitedPage {}

/// linux/userfaultfd.h
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
/// Only faults from user mode: what the kernel grants to everybody (Linux 5.11; before that it
/// depends on `vm.unprivileged_userfaultfd`).
const USER_MODE_ONLY: u32 = 1;

impl AwaitedPage {
    /// A fresh one.
    ///
    /// # Errors
    /// What userfaultfd(2) says: EPERM where it is not allowed, ENOSYS where the kernel has none.
    pub fn new() -> io::Result<(AwaitedPage, Provider)> {
        let flags = UserfaultfdFlags::CLOEXEC;
        let only = UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
        // SAFETY: the descriptor leaves this module inside a `Provider` only, which closes it.
        let faults = match unsafe { userfaultfd(flags | only) } {
            // SAFETY: as above.
            Err(Errno::INVAL) => unsafe { userfaultfd(flags) }?,
            other => other?,
        };
        let mut api = Api { api: VERSION, features: 0, ioctls: 0 };
        // SAFETY: the opcode, and the structure that goes with it.
        unsafe { ioctl(&faults, Updater::<API, Api>::new(&mut api)) }?;
        // SAFETY: a fresh mapping, at an address of the kernel's choice.
        let at = unsafe { mmap_anonymous(null_mut(), BYTES, ProtFlags::READ, MapFlags::PRIVATE) }?;
        let page = AwaitedPage(NonNull::new(at).ok_or(io::ErrorKind::AddrNotAvailable)?);
        let mut register =
            Register { start: at as u64, bytes: BYTES as u64, mode: MISSING, ioctls: 0 };
        // SAFETY: as above; it concerns our own mapping.
        unsafe { ioctl(&faults, Updater::<REGISTER, Register>::new(&mut register)) }?;
        Ok((page, Provider { _faults: faults }))
    }

    /// The page's first byte: 0. Blocks the kernel thread, in a page fault, while the [`Provider`]
    /// lives. (A process forked meanwhile keeps the descriptor until it executes another program.)
    #[must_use]
    pub fn read(&self) -> u8 {
        // SAFETY: mapped as long as `self` lives. Volatile: it is the access that counts.
        unsafe { self.0.as_ptr().cast::<u8>().read_volatile() }
    }
}

impl Drop for AwaitedPage {
    fn drop(&mut self) {
        // SAFETY: our mapping, and nobody has a pointer into it. It cannot fail: page-aligned, and
        // not a part of a larger one of ours.
        let _ = unsafe { munmap(self.0.as_ptr(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    #[test]
    fn nobody_reads_it_before_it_is_provided() {
        let (page, provider) = match AwaitedPage::new() {
            Ok(both) => both,
            Err(e) => {
                // Past libtest's capture: the scripts count these lines.
                let line =
                    format!("\n[skip] nobody_reads_it_before_it_is_provided: userfaultfd: {e}\n");
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
