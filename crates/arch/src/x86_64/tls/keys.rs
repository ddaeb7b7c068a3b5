//! Destructors of pthread keys at the end of a microprocess.
//!
//! The C library keeps that routine to itself, so here is one of our own over its data: the block's
//! key tables, whose place debuggers are told, and the table of destructors, whose place we find by
//! making two keys with a destructor that nobody else can have and looking for it in libc's
//! variables.

use std::ffi::c_void;

use super::glibc::{Calls, KEY_TABLES, KEYS_A_TABLE, Layout};

/// As in glibc's internaltypes.h.
#[repr(C)]
struct KeyInfo {
    /// Odd: in use. Changes with every reuse.
    sequence: usize,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
}

#[repr(C)]
struct KeyData {
    sequence: usize,
    data: *mut c_void,
}

pub(super) struct Keys {
    table: *const KeyInfo,
    /// Offset of the flag that says that any key was ever set; the probe finds it.
    pub used: isize,
}

// SAFETY: the table is libc's static; readers read it as the C library's own threads do.
unsafe impl Send for Keys {}
// SAFETY: as above.
unsafe impl Sync for Keys {}

unsafe extern "C" fn unmistakable(_: *mut c_void) {}

struct Ranges {
    of: usize,
    found: Vec<(usize, usize)>,
}

unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    ranges: *mut c_void,
) -> i32 {
    // SAFETY: dl_iterate_phdr passes a valid info and the pointer it was given.
    unsafe {
        let ranges = &mut *ranges.cast::<Ranges>();
        let headers = std::slice::from_raw_parts((*info).dlpi_phdr, (*info).dlpi_phnum as usize);
        let loads = headers.iter().filter(|h| h.p_type == libc::PT_LOAD).map(|h| {
            let start = ((*info).dlpi_addr + h.p_vaddr) as usize;
            (start, start + h.p_memsz as usize, h.p_flags & libc::PF_W != 0)
        });
        if loads.clone().any(|(s, e, _)| (s..e).contains(&ranges.of)) {
            ranges.found.extend(loads.filter(|l| l.2).map(|(s, e, _)| (s, e)));
            return 1;
        }
    }
    0
}

impl Keys {
    /// Finds the table of destructors.
    pub(super) fn find(calls: &Calls) -> Result<Keys, String> {
        let mut ranges = Ranges { of: calls.call_tls_dtors as usize, found: Vec::new() };
        let mut keys: [libc::pthread_key_t; 2] = [0; 2];
        // SAFETY: the callback matches; the keys are ours.
        let made = unsafe {
            libc::dl_iterate_phdr(Some(visit), (&raw mut ranges).cast());
            libc::pthread_key_create(&mut keys[0], Some(unmistakable)) == 0
                && libc::pthread_key_create(&mut keys[1], Some(unmistakable)) == 0
        };
        if !made {
            return Err("no two pthread keys left".into());
        }
        let wanted = unmistakable as *const () as usize;
        let mut hits = Vec::new();
        for (start, end) in ranges.found {
            for at in (start.next_multiple_of(8)..end & !7).step_by(8) {
                // SAFETY: a word of libc's writable segments. Volatile: other threads may be
                // writing there.
                if unsafe { (at as *const usize).read_volatile() } == wanted {
                    hits.push(at);
                }
            }
        }
        let place = |key: libc::pthread_key_t| key as usize * size_of::<KeyInfo>() + 8;
        let table = match hits[..] {
            [x, y] if x.abs_diff(y) == place(keys[0]).abs_diff(place(keys[1])) => {
                x.min(y) - place(keys[0].min(keys[1]))
            }
            _ => 0,
        } as *const KeyInfo;
        // SAFETY: the table's entries for both keys exist, if it was found; the keys are ours to
        // delete.
        unsafe {
            let sound = !table.is_null()
                && keys.iter().all(|k| (*table.add(*k as usize)).sequence & 1 == 1);
            libc::pthread_key_delete(keys[0]);
            libc::pthread_key_delete(keys[1]);
            if sound {
                Ok(Keys { table, used: 0 })
            } else {
                Err("the table of pthread keys was not found".into())
            }
        }
    }

    /// Whether the running microprocess, whose block is `fs`, ever set a key.
    ///
    /// # Safety
    /// `fs` is the caller's block.
    pub(super) unsafe fn any_used(&self, fs: *const u8) -> bool {
        // SAFETY: the flag lies in the block.
        unsafe { fs.offset(self.used).read() != 0 }
    }

    /// Runs the destructors as pthread_exit would: up to four rounds, each key's value cleared
    /// first. Leaves the tables as in a fresh block.
    ///
    /// # Safety
    /// Must run on the block `fs`.
    #[cold]
    pub(super) unsafe fn destroy(&self, layout: &Layout, fs: *mut u8) {
        // SAFETY: the tables are the caller's own; keys may be made and deleted meanwhile, as for
        // any thread.
        unsafe {
            let tables = fs.offset(layout.specific).cast::<*mut KeyData>();
            for _ in 0..4 {
                fs.offset(self.used).write_volatile(0);
                for t in 0..KEY_TABLES {
                    // Read each time: a destructor may set keys.
                    if tables.add(t).read_volatile().is_null() {
                        continue;
                    }
                    for i in 0..KEYS_A_TABLE {
                        let entry = tables.add(t).read_volatile().add(i);
                        let data = (*entry).data;
                        if data.is_null() {
                            continue;
                        }
                        (*entry).data = std::ptr::null_mut();
                        let info = self.table.add(t * KEYS_A_TABLE + i).read_volatile();
                        if info.sequence == (*entry).sequence
                            && let Some(destructor) = info.destructor
                        {
                            destructor(data);
                        }
                    }
                }
                if fs.offset(self.used).read_volatile() == 0 {
                    break;
                }
            }
            // Values that a destructor set again and again are dropped, as POSIX allows.
            fs.offset(self.used).write_volatile(0);
            std::ptr::write_bytes(*tables, 0, KEYS_A_TABLE);
            for t in 1..KEY_TABLES {
                let table = *tables.add(t);
                if !table.is_null() {
                    *tables.add(t) = std::ptr::null_mut();
                    libc::free(table.cast());
                }
            }
        }
    }
}
