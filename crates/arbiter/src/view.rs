//! Read-only view of the board, for `kumi board` and `kumi top`.
//!
//! The view maps nothing and reads the file by system calls, so a truncation of the file cannot end
//! the observer.

use std::alloc::Layout;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::board;
use crate::board::Error;
use crate::board::corruption;
use crate::board::layout::{BoardLayout, SIZE};
use crate::board::locks::Locks;
use crate::board::overrides::Reason;
use crate::board::overrides::{self, Offender};
use crate::clock::monotonic;
use crate::rules::feedback::Rule;
use crate::rules::share::Share;
use crate::slot::{CORES, ROWS};

/// Board that is open for reading.
#[derive(Debug)]
pub struct View {
    locks: Locks,
    path: PathBuf,
    inode: u64,
}

/// Core with a holder or with waiters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreView {
    /// Number of the core.
    pub core: usize,
    /// Its holder.
    pub holder: Option<RankedVp>,
    /// Its waiters, highest first.
    pub waiting: Vec<RankedVp>,
}

/// VP and the level at which it ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankedVp {
    /// Row of its address space.
    pub row: u16,
    /// Number of the VP within the row.
    pub vp: u8,
    /// Level; `None` if it ranks below all levels because its share is used up.
    pub level: Option<u8>,
}

/// Living address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceView {
    /// Number of its row.
    pub row: u16,
    /// Pid of its process: from the kernel, or as the process wrote it if the kernel reports none.
    pub pid: u32,
    /// Its name, without control characters.
    pub name: String,
    /// Number of its VPs.
    pub vps: usize,
    /// Time of joining, CLOCK_MONOTONIC.
    pub started: Duration,
    /// CPU time that its VPs used.
    pub used: Duration,
    /// CPU time that it may use.
    pub share: Option<Share>,
    /// Number of levels by which it ranks lower through feedback.
    pub sunk: u8,
    /// How often a VP of the address space was overridden.
    pub overridden: u32,
    /// Reason of the last override.
    pub reason: Option<Reason>,
}

impl View {
    /// Opens the board at `path` for reading; creates none. A member of this board must not use a
    /// view: closing the view releases the record lock by which the kernel reports the member's
    /// pid.
    ///
    /// # Errors
    /// As [`Board::open`](crate::board::Board::open); [`Error::Io`] with `NotFound` if there is no
    /// board.
    pub fn open(path: &Path) -> Result<View, Error> {
        let fd = OwnedFd::from(board::opened(path, std::fs::File::options().read(true))?);
        // A corrupted file may have lost its magic number. It is still read, to identify the
        // writer.
        let is_whole = rustix::fs::fstat(&fd).is_ok_and(|stat| stat.st_size as usize == SIZE);
        let is_known = is_whole && corruption::is_corrupted(&fd);
        if !is_known && !board::is_board(path, &fd)? {
            return Err(Error::untrusted(path, "it is not finished"));
        }
        let inode = rustix::fs::fstat(&fd).map_err(|e| Error::io(path)(e.into()))?.st_ino;
        Ok(View { locks: Locks::new(fd), path: path.to_owned(), inode })
    }

    /// Copies the board. What the file lacks is zero, as on an empty board.
    fn layout(&self) -> Box<BoardLayout> {
        // SAFETY: the layout has a size. All zeroes are valid, and the box frees the memory by the
        // layout with which it was allocated.
        let mut copy = unsafe {
            let layout = Layout::new::<BoardLayout>();
            let at = std::alloc::alloc_zeroed(layout).cast::<BoardLayout>();
            if at.is_null() {
                std::alloc::handle_alloc_error(layout);
            }
            Box::from_raw(at)
        };
        let at = std::ptr::from_mut(&mut *copy).cast::<u8>();
        // SAFETY: the box's memory, of this length. It consists of atomic words, for which each
        // value is valid.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at, SIZE) };
        self.locks.with_file(|file| {
            let mut read = 0;
            while let Ok(count @ 1..) = rustix::io::pread(file, &mut bytes[read..], read as u64) {
                read += count;
            }
        });
        copy
    }

    /// Returns the cores with a holder or with waiters, in order. Not a snapshot: concurrent
    /// changes may appear in one core and be missing in another.
    #[must_use]
    pub fn cores(&self) -> Vec<CoreView> {
        let layout = self.layout();
        let spaces = self.locks.held();
        let mut cores: Vec<CoreView> = (0..CORES)
            .map(|core| {
                let holder = layout.slots[core].load().held().map(|(place, mark)| RankedVp {
                    row: place.row,
                    vp: place.vp,
                    level: mark.level(),
                });
                CoreView { core, holder, waiting: Vec::new() }
            })
            .collect();
        for &row in &spaces {
            let record = &layout.records[usize::from(row)];
            for (vp, cell) in (0..record.vps()).zip(&record.cells) {
                let core = (cell.waits() >> 8).checked_sub(1).map(|core| core as usize);
                let Some(core) = core.filter(|&core| core < CORES) else { continue };
                let mark = cell
                    .waits_for(core as u16)
                    .filter(|_| cores[core].holder.is_none_or(|h| (h.row, h.vp) != (row, vp)));
                cores[core].waiting.extend(mark.map(|mark| RankedVp {
                    row,
                    vp,
                    level: mark.level(),
                }));
            }
        }
        cores.retain(|core| core.holder.is_some() || !core.waiting.is_empty());
        cores
            .iter_mut()
            .for_each(|core| core.waiting.sort_by_key(|stand| std::cmp::Reverse(stand.level)));
        cores
    }

    /// Returns the living address spaces, by row.
    #[must_use]
    pub fn spaces(&self) -> Vec<SpaceView> {
        let layout = self.layout();
        let rows = self.locks.held().into_iter().filter(|&row| usize::from(row) < ROWS);
        rows.map(|row| {
            let record = &layout.records[usize::from(row)];
            let vps = record.vps();
            let used = record
                .cells
                .iter()
                .take(vps.into())
                .fold(0u64, |sum, cell| sum.saturating_add(cell.used()));
            SpaceView {
                row,
                pid: self.locks.pid(row).unwrap_or_else(|| record.pid.load(Ordering::Relaxed)),
                name: record.name.get(),
                vps: vps.into(),
                started: Duration::from_nanos(record.started.load(Ordering::Relaxed)),
                used: Duration::from_nanos(used),
                share: Share::unpacked(record.share.load(Ordering::Relaxed)),
                sunk: record.sunk.load(Ordering::Relaxed).min(63) as u8,
                overridden: record.overridden.load(Ordering::Relaxed),
                reason: Reason::decoded(record.reason.load(Ordering::Relaxed)),
            }
        })
        .collect()
    }

    /// Returns the feedback rule of the board.
    #[must_use]
    pub fn feedback(&self) -> Option<Rule> {
        Rule::unpacked(self.layout().header.feedback.load(Ordering::Relaxed))
    }

    /// Returns the address spaces that violated the protocol, latest first. Living processes that
    /// write to the reserved part of the board come first, then recently overridden processes,
    /// which may have ended. If the reserved part was written, /proc is searched, which takes some
    /// milliseconds.
    #[must_use]
    pub fn offenders(&self) -> Vec<Offender> {
        let mut all = Vec::new();
        if self.locks.with_file(|file| corruption::is_corrupted(file)) == Some(true) {
            let writers = corruption::find_writers(&self.path, self.inode).into_iter();
            all.extend(writers.map(|(pid, name)| Offender {
                pid,
                name,
                reason: Reason::Corrupted,
                times: 1,
                ago: Duration::ZERO,
            }));
        }
        all.extend(overrides::all(&self.layout().overrides, monotonic()));
        all
    }

    /// Returns how many holders were overridden since the board was created, and the pid of the
    /// last.
    #[must_use]
    pub fn overridden(&self) -> (u32, u32) {
        let word = self.layout().header.overridden.load(Ordering::Relaxed);
        ((word >> 32) as u32, word as u32)
    }
}
