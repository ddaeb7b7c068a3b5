//! Variables of the loaded modules in the static TLS area: their places and initial values.

use std::ffi::c_void;

use super::layout::{Calls, Layout, word};

/// One module's variables in the static TLS area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Region {
    /// Offset from the thread pointer.
    pub offset: isize,
    pub len: usize,
    /// The module is libc or ld.so, whose state outlives a microprocess (malloc's caches).
    pub libc: bool,
}

/// The static TLS area of a thread that starts now.
pub(in super::super) struct Scan {
    /// Sorted by offset.
    pub regions: Vec<Region>,
    /// The words of the area ([`Layout::statics`]); 0 for those with a rule of their own.
    pub image: Vec<u64>,
    /// Entries by module ID; entry 0 is the generation. Values that point into static TLS are
    /// stored relative to the thread pointer.
    pub dtv: Vec<Slot>,
}

/// An entry of the dtv of a new thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Slot {
    Plain(u64),
    Static(isize),
}

struct Seen {
    id: usize,
    len: usize,
    libc: bool,
}

struct Walk<'a> {
    seen: Vec<Seen>,
    calls: &'a Calls,
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, walk: *mut c_void) -> i32 {
    // SAFETY: dl_iterate_phdr passes a valid info and the pointer given by `scan`.
    unsafe {
        let walk = &mut *walk.cast::<Walk<'_>>();
        let info = &*info;
        let mut found = None;
        let mut libc = false;
        for i in 0..info.dlpi_phnum as usize {
            let ph = &*info.dlpi_phdr.add(i);
            if ph.p_type == libc::PT_TLS {
                found = Some(ph.p_memsz as usize);
            } else if ph.p_type == libc::PT_LOAD {
                let start = (info.dlpi_addr + ph.p_vaddr) as usize;
                let segment = start..start + ph.p_memsz as usize;
                libc |= segment.contains(&(walk.calls.call_tls_dtors as usize))
                    || segment.contains(&(walk.calls.allocate_tls as usize));
            }
        }
        if let Some(len) = found
            && info.dlpi_tls_modid != 0
        {
            walk.seen.push(Seen { id: info.dlpi_tls_modid, len, libc });
        }
    }
    0
}

unsafe extern "C" fn read_counts(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    counts: *mut c_void,
) -> i32 {
    // SAFETY: dl_iterate_phdr passes a valid info and the pointer given by `loads`.
    unsafe { *counts.cast::<u64>() = (*info).dlpi_adds.wrapping_add((*info).dlpi_subs) };
    1
}

/// Returns the number of libraries loaded and unloaded so far [30 ns].
pub(in super::super) fn loads() -> u64 {
    let mut counts = 0u64;
    // SAFETY: the callback has the right type, and the pointer outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(read_counts), (&raw mut counts).cast()) };
    counts
}

/// Makes the C library initialise a thread block in scratch memory, and reads the result. Allocates
/// and acquires ld.so's locks; may block on them.
pub(in super::super) fn scan(calls: &Calls, layout: &Layout) -> Result<Scan, String> {
    let bytes = layout.below + layout.size + 2 * layout.align;
    let mut memory = vec![0u128; bytes.div_ceil(16)];
    let base = memory.as_mut_ptr() as usize;
    let fs = (base + layout.below).next_multiple_of(layout.align) as *mut u8;
    // SAFETY: the scratch block is writable over [fs - below, fs + size), and no thread runs on it.
    // ld.so takes its own locks.
    unsafe {
        if (calls.allocate_tls)(fs.cast()).is_null() {
            return Err("out of memory for a dtv".into());
        }
    }
    let mut walk = Walk { seen: Vec::new(), calls };
    // SAFETY: the callback has the right type, and the pointer outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut walk).cast()) };
    // SAFETY: allocate_tls has written the dtv pointer and the static images.
    let (dtv, image) = unsafe {
        let dtv = read_dtv(word(fs, layout.dtv) as *const [u64; 2], fs, layout);
        let image = layout
            .statics
            .clone()
            .step_by(8)
            .map(|o| if layout.special(o) { 0 } else { word(fs, o) })
            .collect();
        (calls.deallocate_tls)(fs.cast(), false);
        (dtv?, image)
    };
    let mut regions = Vec::new();
    for m in &walk.seen {
        if let Some(Slot::Static(offset)) = dtv.get(m.id) {
            regions.push(Region { offset: *offset, len: m.len, libc: m.libc });
        }
    }
    regions.sort_by_key(|r| r.offset);
    Ok(Scan { regions, image, dtv })
}

/// Reads a dtv that no thread has used yet. Entry `[-1]` holds its length, `[0]` the generation;
/// then one entry per module follows.
///
/// # Safety
/// `dtv` must be the dtv of the block `fs`.
pub(in super::super) unsafe fn read_dtv(
    dtv: *const [u64; 2],
    fs: *const u8,
    layout: &Layout,
) -> Result<Vec<Slot>, String> {
    // SAFETY: guaranteed by the caller.
    let len = unsafe { (*dtv.sub(1))[0] } as usize;
    if !(1..1 << 20).contains(&len) {
        return Err(format!("the dtv has an unexpected length: {len}"));
    }
    let at = |offset: isize| (fs as u64).wrapping_add_signed(offset as i64);
    let statics = at(layout.statics.start)..at(layout.statics.end);
    let mut slots = Vec::new();
    let mut last = 0;
    for i in 0..=len {
        // SAFETY: entries 0..=len exist.
        let [value, to_free] = unsafe { *dtv.add(i) };
        if i > 0 && to_free != 0 {
            return Err(format!("dtv entry {i} of a new block owns memory"));
        }
        let slot = if i > 0 && statics.contains(&value) {
            Slot::Static(value.wrapping_sub(fs as u64) as i64 as isize)
        } else if i == 0 || value == 0 || value == u64::MAX {
            Slot::Plain(value)
        } else {
            return Err(format!("dtv entry {i} of a new block points outside it"));
        };
        if slot != Slot::Plain(0) {
            last = i;
        }
        slots.push(slot);
    }
    slots.truncate(last + 1);
    Ok(slots)
}

/// Returns the parts of static TLS that must have their initial values in a new microprocess: all
/// except those of libc and ld.so. Adjacent parts are merged, to reduce the number of copies.
pub(in super::super) fn restored(regions: &[Region]) -> Vec<(isize, usize)> {
    let mut out: Vec<(isize, usize)> = Vec::new();
    for r in regions {
        if r.libc || r.len == 0 {
            continue;
        }
        let clear_between = |from: isize, to: isize| {
            !regions.iter().any(|l| l.libc && l.offset < to && l.offset + (l.len as isize) > from)
        };
        if let Some((offset, len)) = out.last_mut() {
            let end = *offset + *len as isize;
            if r.offset >= end && r.offset - end <= 64 && clear_between(end, r.offset) {
                *len = (r.offset - *offset) as usize + r.len;
                continue;
            }
        }
        out.push((r.offset, r.len));
    }
    out
}
