//! Knowledge about glibc: the layout of a thread's block, and private entry points.
//!
//! All of it comes from symbols that glibc exports for its own parts and for debuggers
//! (`GLIBC_PRIVATE`), or from calls on the running thread. No offset is hard-coded. A C library
//! without these symbols is not used.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;

use crate::cpu::fs_base;

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

/// Offsets are from the thread pointer (FS base), which is also the address of `struct pthread`.
#[derive(Clone, Debug)]
pub(in super::super) struct Layout {
    /// sizeof(struct pthread), above the thread pointer.
    pub size: usize,
    /// Bytes of static TLS below the thread pointer, including the surplus for libraries loaded
    /// late.
    pub below: usize,
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
        let list = field(c"_thread_db_pthread_list")?.1;
        let tid = field(c"_thread_db_pthread_tid")?.1;
        let dtv = field(c"_thread_db_pthread_dtvp")?.1;
        let cancel = field(c"_thread_db_pthread_cancelhandling")?.1;
        let (tables, specific) = field(c"_thread_db_pthread_specific")?;

        let fs = fs_base() as isize;
        let mut robust: *mut c_void = std::ptr::null_mut();
        let mut len = 0usize;
        // SAFETY: reads this thread's own robust list head; both pointers are valid for writes.
        let asked = unsafe { crate::call!(libc::SYS_get_robust_list, 0, &mut robust, &mut len) };
        let robust = robust as isize - fs;

        let inside = |offset: isize, bytes: isize| offset >= 0 && offset + bytes <= size as isize;
        let sane = total > size
            && size.is_multiple_of(16)
            && (16..=4096).contains(&align)
            && align.is_power_of_two()
            && tables as usize == 8 * KEY_TABLES
            && inside(list, 16)
            && inside(tid, 4)
            && inside(dtv, 8)
            && inside(cancel, 4)
            && inside(specific, 8 * KEY_TABLES as isize)
            && asked == 0
            && len == 24;
        if !sane {
            return Err("the C library's thread block has an unexpected layout".into());
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
        let below = (total - size).next_multiple_of(64);
        let in_tls = |o: isize| o < 0 && o >= -(below as isize);
        if !(in_tls(errno) && in_tls(h_errno) && ctype.into_iter().all(in_tls)) {
            return Err("the C library's variables are not in static TLS".into());
        }
        Ok(Layout {
            size,
            below,
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
        (-(self.below as isize)..self.size as isize).step_by(8)
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
