//! Knowledge about glibc: the layout of a thread's block, and private entry points.
//!
//! All of it comes from symbols that glibc exports for its own parts and for debuggers
//! (`GLIBC_PRIVATE`), or from calls on the running thread. No offset is hard-coded. A C library
//! without these symbols is not used.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;

use crate::cpu::fs_base;
use crate::machine::thread_block;

pub(in super::super) type PthreadCreate = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;

/// glibc's entry points that are not in the public headers.
#[derive(Clone, Copy)]
pub(in super::super) struct Calls {
    /// Runs and empties the current block's list of C++ and Rust thread-local destructors.
    pub call_tls_dtors: unsafe extern "C" fn(),
    pub cxa_thread_atexit:
        unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, *mut c_void) -> c_int,
    /// Points the current block's character tables at the global locale.
    pub ctype_init: unsafe extern "C" fn(),
    /// Gives the block at this address a dtv and the initial images of all loaded modules.
    pub allocate_tls: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    pub deallocate_tls: unsafe extern "C" fn(*mut c_void, bool),
    /// The C library's own function, not a sanitizer's wrapper: donors must contain only what the C
    /// library puts into them.
    pub pthread_create: PthreadCreate,
}

/// Offsets are from the thread pointer. A block consists of `struct pthread` and the static TLS
/// area; the architecture decides which of them lies below the thread pointer (`thread_block.rs`).
#[derive(Clone, Debug)]
pub(in super::super) struct Layout {
    /// Bytes of a block from the thread pointer on.
    pub size: usize,
    /// Bytes of a block below the thread pointer, rounded up to a multiple of 64.
    pub below: usize,
    /// The static TLS area, including the surplus for libraries loaded late.
    pub statics: Range<isize>,
    /// `struct pthread`.
    pub thread: Range<isize>,
    pub align: usize,
    pub list: isize,
    pub tid: isize,
    pub dtv: isize,
    /// `int cancelhandling`, in which set*id sets its mark.
    pub cancel: isize,
    /// `specific[32]`: tables of pthread keys, with 32 keys each.
    pub specific: isize,
    pub robust: isize,
    pub rseq: Range<isize>,
    pub errno: isize,
    pub h_errno: isize,
    pub ctype: [isize; 3],
}

/// The number of key tables in a block, and of keys in a table.
pub(in super::super) const KEY_TABLES: usize = 32;
pub(in super::super) const KEYS_A_TABLE: usize = 32;

fn private(name: &CStr) -> Result<usize, String> {
    // SAFETY: both strings are NUL-terminated; dlvsym has no other precondition.
    let p = unsafe { libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), c"GLIBC_PRIVATE".as_ptr()) };
    if p.is_null() {
        Err(format!("the C library has no {}", name.to_string_lossy()))
    } else {
        Ok(p as usize)
    }
}

fn public(name: &CStr) -> Option<usize> {
    // SAFETY: as in `private`.
    let p = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!p.is_null()).then_some(p as usize)
}

/// Reads a debugger's field descriptor {bits of an element, number of elements, offset}, and
/// returns (bytes, offset).
fn field(name: &CStr) -> Result<(u32, isize), String> {
    // SAFETY: glibc's thread_db descriptors are three 32-bit words.
    let d = unsafe { *(private(name)? as *const [u32; 3]) };
    Ok((d[0] * d[1] / 8, d[2] as isize))
}

impl Calls {
    pub(in super::super) fn find() -> Result<Calls, String> {
        let atexit = public(c"__cxa_thread_atexit_impl")
            .ok_or("the C library has no __cxa_thread_atexit_impl")?;
        let allocate_tls = private(c"_dl_allocate_tls")?;
        // SAFETY: dlopen with RTLD_NOLOAD only looks up a loaded library; dlsym as in `private`.
        let create = unsafe {
            let libc_so = super::next_symbol::next_dlopen(
                c"libc.so.6".as_ptr(),
                libc::RTLD_LAZY | libc::RTLD_NOLOAD,
            );
            if libc_so.is_null() {
                return Err("the C library is not glibc's libc.so.6".into());
            }
            libc::dlsym(libc_so, c"pthread_create".as_ptr())
        };
        if create.is_null() {
            return Err("libc.so.6 has no pthread_create".into());
        }
        // SAFETY: the signatures are glibc's, unchanged since 2.3 (2.18 for the destructor
        // functions).
        unsafe {
            Ok(Calls {
                call_tls_dtors: std::mem::transmute::<usize, unsafe extern "C" fn()>(private(
                    c"__call_tls_dtors",
                )?),
                cxa_thread_atexit: std::mem::transmute::<
                    usize,
                    unsafe extern "C" fn(
                        unsafe extern "C" fn(*mut c_void),
                        *mut c_void,
                        *mut c_void,
                    ) -> c_int,
                >(atexit),
                ctype_init: std::mem::transmute::<usize, unsafe extern "C" fn()>(private(
                    c"__ctype_init",
                )?),
                allocate_tls: std::mem::transmute::<
                    usize,
                    unsafe extern "C" fn(*mut c_void) -> *mut c_void,
                >(allocate_tls),
                deallocate_tls: std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void, bool)>(
                    private(c"_dl_deallocate_tls")?,
                ),
                pthread_create: std::mem::transmute::<*mut c_void, PthreadCreate>(create),
            })
        }
    }
}

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    fn __h_errno_location() -> *mut c_int;
    fn __ctype_b_loc() -> *mut c_char;
    fn __ctype_tolower_loc() -> *mut c_char;
    fn __ctype_toupper_loc() -> *mut c_char;
}

impl Layout {
    pub(in super::super) fn find() -> Result<Layout, String> {
        // SAFETY: the signature is glibc's: two out pointers.
        let static_info = unsafe {
            std::mem::transmute::<usize, unsafe extern "C" fn(*mut usize, *mut usize)>(private(
                c"_dl_get_tls_static_info",
            )?)
        };
        let (mut total, mut align) = (0usize, 0usize);
        // SAFETY: both pointers are valid for writes.
        unsafe { static_info(&mut total, &mut align) };
        // SAFETY: the symbol is a 32-bit size, exported for debuggers.
        let size = unsafe { *(private(c"_thread_db_sizeof_pthread")? as *const u32) } as usize;
        let unexpected = "the C library's thread block has an unexpected layout";
        let parts = thread_block::parts(total, size).ok_or(unexpected)?;
        let thread_block::Parts { statics, thread } = parts.clone();
        let list = thread.start + field(c"_thread_db_pthread_list")?.1;
        let tid = thread.start + field(c"_thread_db_pthread_tid")?.1;
        let dtv = field(c"_thread_db_pthread_dtvp")?.1;
        let dtv = thread_block::dtv(&parts, dtv).ok_or(unexpected)?;
        let cancel = thread.start + field(c"_thread_db_pthread_cancelhandling")?.1;
        let (tables, specific) = field(c"_thread_db_pthread_specific")?;
        let specific = thread.start + specific;

        let fs = fs_base() as isize;
        let mut robust: *mut c_void = std::ptr::null_mut();
        let mut len = 0usize;
        // SAFETY: reads this thread's own robust list head; both pointers are valid for writes.
        let asked = unsafe { crate::call!(libc::SYS_get_robust_list, 0, &mut robust, &mut len) };
        let robust = if asked == 0 { Some(robust as isize - fs) } else { find_robust(&thread) };
        let robust = robust.ok_or("the list of robust mutexes was not found")?;

        let inside =
            |offset: isize, bytes: isize| offset >= thread.start && offset + bytes <= thread.end;
        let sane = size.is_multiple_of(16)
            && (16..=4096).contains(&align)
            && align.is_power_of_two()
            && tables as usize == 8 * KEY_TABLES
            && inside(list, 16)
            && inside(tid, 4)
            && (inside(dtv, 8) || statics.contains(&dtv))
            && inside(cancel, 4)
            && inside(specific, 8 * KEY_TABLES as isize)
            && (asked != 0 || len == 24);
        if !sane {
            return Err(unexpected.into());
        }
        // The main thread's robust head must lie in its block too. If it were elsewhere in other
        // threads, `robust_list_is_known` would fail.
        if !inside(robust, 24) {
            return Err("the robust list head is not in the thread block".into());
        }
        let rseq = match (public(c"__rseq_offset"), public(c"__rseq_size")) {
            (Some(offset), Some(bytes)) => {
                // SAFETY: ptrdiff_t and unsigned int, exported since glibc 2.35.
                let (offset, bytes) =
                    unsafe { (*(offset as *const isize), *(bytes as *const u32)) };
                // The kernel's minimum size is 32 bytes, 32-aligned (struct rseq).
                offset..offset + (bytes.max(32) as isize + 31) / 32 * 32
            }
            _ => 0..0,
        };
        // SAFETY: the functions return addresses of this thread's variables.
        let (errno, h_errno, ctype) = unsafe {
            (
                __errno_location() as isize - fs,
                __h_errno_location() as isize - fs,
                [
                    __ctype_b_loc() as isize - fs,
                    __ctype_tolower_loc() as isize - fs,
                    __ctype_toupper_loc() as isize - fs,
                ],
            )
        };
        let below = statics.start.min(thread.start).unsigned_abs().next_multiple_of(64);
        let above = statics.end.max(thread.end).cast_unsigned();
        let in_tls = |o: isize| statics.contains(&o);
        if !(in_tls(errno) && in_tls(h_errno) && ctype.into_iter().all(in_tls)) {
            return Err("the C library's variables are not in static TLS".into());
        }
        Ok(Layout {
            size: above,
            below,
            statics,
            thread,
            align: align.max(64),
            list,
            tid,
            dtv,
            cancel,
            specific,
            robust,
            rseq,
            errno,
            h_errno,
            ctype,
        })
    }

    /// Iterates over the words of a block, as offsets from the thread pointer.
    pub(in super::super) fn words(&self) -> impl Iterator<Item = isize> + use<> {
        (self.statics.start.min(self.thread.start)..self.size as isize).step_by(8)
    }

    /// Returns whether the word at `o` follows a rule of its own and is never compared or copied.
    pub(in super::super) fn special(&self, o: isize) -> bool {
        o == self.dtv
            || o == self.list
            || o == self.list + 8
            || o == self.tid & !7
            || self.rseq.contains(&o)
    }
}

/// Finds the list of robust mutexes of the calling thread in its `struct pthread`, without
/// get_robust_list(2), which emulators lack.
///
/// In a thread that holds no such mutex, the list's first word and the word below it
/// (`robust_prev`) hold the list's own address. No other pair of words of the structure does.
fn find_robust(thread: &Range<isize>) -> Option<isize> {
    let fs = fs_base();
    let mut found = (thread.start + 8..thread.end - 16).step_by(8).filter(|o| {
        let at = fs.wrapping_add_signed(*o);
        // SAFETY: both words lie in the calling thread's own block.
        unsafe {
            let word = |at: usize| std::ptr::with_exposed_provenance::<usize>(at).read_volatile();
            word(at) == at && word(at - 8) == at
        }
    });
    found.next().filter(|_| found.next().is_none())
}

/// Reads the word at `offset` of the block `fs`.
///
/// # Safety
/// The word must lie in the block.
pub(in super::super) unsafe fn word(fs: *const u8, offset: isize) -> u64 {
    // SAFETY: guaranteed by the caller. Volatile, because the C library writes donors and listed
    // blocks at any time.
    unsafe { fs.offset(offset).cast::<u64>().read_volatile() }
}

/// Writes the word at `offset` of the block `fs`.
///
/// # Safety
/// The word must lie in the block.
pub(in super::super) unsafe fn set_word(fs: *mut u8, offset: isize, value: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe { fs.offset(offset).cast::<u64>().write(value) }
}
