//! Destructors of pthread keys at the end of a microprocess.
//!
//! The C library does not export its own routine, so this module runs the destructors from the C
//! library's data. glibc describes the place of a block's key tables to debuggers. To find the
//! table of destructors, the module creates two keys with a destructor of its own, and searches
//! libc's variables for that address.

use std::ffi::c_void;

use super::layout::{Calls, KEY_TABLES, KEYS_A_TABLE, Layout};

/// `struct pthread_key_struct` of glibc's internaltypes.h.
#[repr(C)]
struct KeyInfo {
    /// Odd while the key is in use. Changes with every reuse.
    sequence: usize,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
}

#[repr(C)]
struct KeyData {
    sequence: usize,
    data: *mut c_void,
}

pub(in super::super) struct Keys {
    table: *const KeyInfo,
    /// Offset of the flag that is set once any key was set; found by the probe.
    pub used: isize,
}

// SAFETY: the table is a static of libc, read in the same way as the C library's own threads do.
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
    // SAFETY: dl_iterate_phdr passes a valid info and the pointer that `find` gave it.
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
    pub(in super::super) fn find(calls: &Calls) -> Result<Keys, String> {
        let mut ranges = Ranges { of: calls.call_tls_dtors as usize, found: Vec::new() };
        let mut keys: [libc::pthread_key_t; 2] = [0; 2];
        // SAFETY: the callback has the right type, and the keys belong to this function.
        let made = unsafe {
            libc::dl_iterate_phdr(Some(visit), (&raw mut ranges).cast());
            libc::pthread_key_create(&mut keys[0], Some(unmistakable)) == 0
                && libc::pthread_key_create(&mut keys[1], Some(unmistakable)) == 0
        };
        if !made {
            return Err("fewer than two pthread keys are left".into());
        }
        let wanted = unmistakable as *const () as usize;
        let mut hits = Vec::new();
        for (start, end) in ranges.found {
            for at in (start.next_multiple_of(8)..end & !7).step_by(8) {
                // SAFETY: a word of libc's writable segments. Volatile, because other threads may
                // be writing to it.
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
        // SAFETY: if the table was found, it has entries for both keys; the keys belong to this
        // function.
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

    /// Returns whether the running microprocess, whose block is `fs`, ever set a key.
    ///
    /// # Safety
    /// `fs` is the caller's block.
    pub(in super::super) unsafe fn any_used(&self, fs: *const u8) -> bool {
        // SAFETY: the flag lies in the block.
        unsafe { fs.offset(self.used).read() != 0 }
    }

    /// Runs the destructors as pthread_exit does: up to four rounds, clearing each key's value
    /// first. Leaves the tables as in a new block.
    ///
    /// # Safety
    /// The caller must run on the block `fs`.
    #[cold]
    pub(in super::super) unsafe fn destroy(&self, layout: &Layout, fs: *mut u8) {
        // SAFETY: the tables belong to the caller. Other threads may create and delete keys
        // meanwhile, as for any thread.
        unsafe {
            let tables = fs.offset(layout.specific).cast::<*mut KeyData>();
            for _ in 0..4 {
                fs.offset(self.used).write_volatile(0);
                for t in 0..KEY_TABLES {
                    // Read in each iteration, because a destructor may set keys.
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
            // Values that destructors set again after the fourth round are dropped, as POSIX
            // allows.
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
