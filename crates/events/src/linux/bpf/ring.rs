//! The reader's side of a BPF ring buffer.
//!
//! Source: Documentation/bpf/ringbuf.rst. Page 0 holds the reader's position, page 1 the writer's,
//! then the data, mapped twice in a row so that a record never wraps. Only page 0 is writable here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use kumihimo_arch::cpu::page_size;
use kumihimo_arch::descriptor::Descriptor;

use super::sys::{self, Mapping};

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER: u64 = 8;
const RECORD: u32 = 8;

#[derive(Debug)]
pub(super) struct Ring {
    fd: Descriptor,
    reader: Mapping,
    // The writer's page and the data.
    writer: Mapping,
    mask: u64,
    // Where the next record is. Page 0 has it too, but there anybody may have written over it.
    next: AtomicU64,
    draining: AtomicBool,
}

impl Ring {
    /// Empties the buffer. Nobody else may be reading it.
    pub(super) fn new(fd: Descriptor) -> io::Result<Ring> {
        let info = sys::map_info(fd.as_fd())?;
        let size = info.entries as usize;
        if info.kind != sys::MAP_RINGBUF || !size.is_power_of_two() || size < page_size() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a ring buffer"));
        }
        let reader = Mapping::new(fd.as_fd(), 0, page_size(), true)?;
        let writer = Mapping::new(fd.as_fd(), page_size(), page_size() + 2 * size, false)?;
        let ring = Ring {
            fd,
            reader,
            writer,
            mask: size as u64 - 1,
            next: AtomicU64::new(0),
            draining: AtomicBool::new(false),
        };
        let end = ring.written().load(Ordering::Acquire);
        ring.next.store(end, Ordering::Relaxed);
        ring.read().store(end, Ordering::Release);
        Ok(ring)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn read(&self) -> &AtomicU64 {
        // SAFETY: the first word of a mapping that lives as long as `self`; page aligned, accessed
        // as an atomic only.
        unsafe { &*self.reader.start().cast::<AtomicU64>() }
    }

    fn written(&self) -> &AtomicU64 {
        // SAFETY: as above; it is only ever loaded, the mapping is read-only.
        unsafe { &*self.writer.start().cast::<AtomicU64>() }
    }

    /// The record at `next` and where the following one is; None: it is not written yet.
    fn record(&self, next: u64) -> Option<(Option<(u32, u32)>, u64)> {
        if next == self.written().load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the offset is below the data's size and a multiple of 8 (records are), and the
        // data is mapped twice in a row behind the writer's page: the header and 8 bytes lie
        // inside. Words that the kernel writes: atomics only.
        let words = unsafe {
            &*self
                .writer
                .start()
                .add(page_size() + (next & self.mask) as usize)
                .cast::<[AtomicU32; 4]>()
        };
        // Acquire: pairs with the kernel's exchange of the header when it submits.
        let length = words[0].load(Ordering::Acquire);
        if length & BUSY != 0 {
            return None;
        }
        let told = length & DISCARDED == 0 && length == RECORD;
        let told =
            told.then(|| (words[2].load(Ordering::Relaxed), words[3].load(Ordering::Relaxed)));
        let length = u64::from(length & !DISCARDED);
        Some((told, next + (length + HEADER).next_multiple_of(8)))
    }

    /// Takes every record out. Returns at once if another thread (or an outer call) is at it: that
    /// one sees them.
    pub(super) fn drain(&self, mut told: impl FnMut(u32, u32)) {
        // An unwinding `told` must not leave the buffer locked.
        struct Unlock<'a>(&'a AtomicBool);
        impl Drop for Unlock<'_> {
            fn drop(&mut self) {
                self.0.swap(false, Ordering::AcqRel);
            }
        }
        loop {
            // Both ends exchange, so that one refused here happens before the holder's unlock, and
            // with it the record that woke the refused one: the look below sees that record.
            if self.draining.swap(true, Ordering::AcqRel) {
                return;
            }
            let unlock = Unlock(&self.draining);
            let mut next = self.next.load(Ordering::Relaxed);
            while let Some((record, following)) = self.record(next) {
                next = following;
                self.next.store(next, Ordering::Relaxed);
                // Release: the words were read before the kernel may write over them.
                self.read().store(next, Ordering::Release);
                if let Some((slot, vp)) = record {
                    told(slot, vp);
                }
            }
            drop(unlock);
            if self.record(next).is_none() {
                return;
            }
        }
    }
}
