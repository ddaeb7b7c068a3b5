//! Which loaded modules have variables in the static TLS area, where, and with what initial values.

use std::ffi::c_void;

use super::glibc::{Calls, Layout, word};

/// One module's variables in the static TLS area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Region {
    /// Offset from the thread pointer; negative.
    pub offset: isize,
    pub len: usize,
    /// Belongs to libc or ld.so, whose state outlives a microprocess (malloc's caches).
    pub libc: bool,
}

/// The static TLS area of a thread that would start now.
pub(super) struct Scan {
    /// Sorted by offset.
    pub regions: Vec<Region>,
    /// `below` bytes, as words.
    pub image: Vec<u64>,
    /// Entry by module id, from 0 (the generation): the value relative to the thread pointer where
    /// it points into static TLS.
    pub dtv: Vec<Slot>,
}

/// An entry of a fresh dtv.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Slot {
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
    // SAFETY: dl_iterate_phdr passes a valid info and the pointer it was given.
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
    // SAFETY: dl_iterate_phdr passes a valid info and the pointer it was given.
    unsafe { *counts.cast::<u64>() = (*info).dlpi_adds.wrapping_add((*info).dlpi_subs) };
    1
}

/// How many libraries have been loaded and unloaded so far [30 ns].
pub(super) fn loads() -> u64 {
    let mut counts = 0u64;
    // SAFETY: the callback matches and the pointer outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(read_counts), (&raw mut counts).cast()) };
    counts
}

/// Lets the C library prepare a thread block in scratch memory and reads the result. Allocates;
/// takes ld.so's locks.
pub(super) fn scan(calls: &Calls, layout: &Layout) -> Result<Scan, String> {
    let bytes = layout.below + layout.size + 2 * layout.align;
    let mut memory = vec![0u128; bytes.div_ceil(16)];
    let base = memory.as_mut_ptr() as usize;
    let fs = (base + layout.below).next_multiple_of(layout.align) as *mut u8;
    // SAFETY: the scratch block is writable over [fs - below, fs + size); nobody runs on it. ld.so
    // takes its own locks.
    unsafe {
        if (calls.allocate_tls)(fs.cast()).is_null() {
            return Err("no memory for a dtv".into());
        }
    }
    let mut walk = Walk { seen: Vec::new(), calls };
    // SAFETY: the callback matches and the pointer outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut walk).cast()) };
    // SAFETY: allocate_tls left a dtv there, and static images below.
    let (dtv, image) = unsafe {
        let dtv = read_dtv(word(fs, layout.dtv) as *const [u64; 2], fs, layout);
        let image = (0..layout.below / 8)
            .map(|i| word(fs, i as isize * 8 - layout.below as isize))
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

/// Reads a dtv that no thread has used yet. `[-1]` holds its length, `[0]` the generation, then an
/// entry a module.
///
/// # Safety
/// `dtv` must be the dtv of the block `fs`.
pub(super) unsafe fn read_dtv(
    dtv: *const [u64; 2],
    fs: *const u8,
    layout: &Layout,
) -> Result<Vec<Slot>, String> {
    // SAFETY: granted by the caller.
    let len = unsafe { (*dtv.sub(1))[0] } as usize;
    if !(1..1 << 20).contains(&len) {
        return Err(format!("dtv of unknown form (length {len})"));
    }
    let low = fs as u64 - layout.below as u64;
    let mut slots = Vec::new();
    let mut last = 0;
    for i in 0..=len {
        // SAFETY: entries 0..=len exist.
        let [value, to_free] = unsafe { *dtv.add(i) };
        if i > 0 && to_free != 0 {
            return Err(format!("dtv entry {i} of a fresh block owns memory"));
        }
        let slot = if i > 0 && (low..fs as u64).contains(&value) {
            Slot::Static(value.wrapping_sub(fs as u64) as i64 as isize)
        } else if i == 0 || value == 0 || value == u64::MAX {
            Slot::Plain(value)
        } else {
            return Err(format!("dtv entry {i} of a fresh block points outside it"));
        };
        if slot != Slot::Plain(0) {
            last = i;
        }
        slots.push(slot);
    }
    slots.truncate(last + 1);
    Ok(slots)
}

/// The parts of static TLS that a new microprocess must find as a new thread would: everything but
/// libc's and ld.so's. Neighbours are joined, so that few copies do.
pub(super) fn restored(regions: &[Region]) -> Vec<(isize, usize)> {
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
