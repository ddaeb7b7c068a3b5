//! Code into which no call is injected: the C library's, the dynamic linker's, the kernel's own
//! page of it (vdso), and allocators'.
//!
//! What they hold there (an arena's lock, the list of loaded objects) a user scheduler may itself
//! need while it decides what runs next.

use std::ops::Range;
use std::sync::OnceLock;

/// How file names of closed objects begin.
const CLOSED: [&str; 11] = [
    "libc.so",
    "libc-",
    "ld-linux",
    "ld-2",
    "ld.so",
    "libpthread",
    "linux-vdso",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libasan",
];

static REGIONS: OnceLock<Vec<Range<usize>>> = OnceLock::new();

/// Finds them, once a process: all are there from the start. Blocks for the dynamic linker's lock.
pub fn prepare() {
    REGIONS.get_or_init(find);
}

/// Whether `pc` is in one of them. Async-signal-safe. Before [`prepare`] true: nothing is known.
#[must_use]
pub fn is_closed(pc: usize) -> bool {
    REGIONS.get().is_none_or(|all| all.iter().any(|one| one.contains(&pc)))
}

fn find() -> Vec<Range<usize>> {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _: usize,
        out: *mut libc::c_void,
    ) -> i32 {
        // SAFETY: dl_iterate_phdr(3): a live description, and what `find` gave.
        let (info, out) = unsafe { (&*info, &mut *out.cast::<Vec<Range<usize>>>()) };
        let name = if info.dlpi_name.is_null() {
            c""
        } else {
            // SAFETY: a terminated name, since it is not null.
            unsafe { std::ffi::CStr::from_ptr(info.dlpi_name) }
        };
        let name = name.to_string_lossy();
        let file = name.rsplit('/').next().unwrap_or_default();
        if CLOSED.iter().any(|begin| file.starts_with(begin)) {
            // SAFETY: so many headers are there.
            let headers =
                unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
            for header in
                headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0)
            {
                let start = info.dlpi_addr as usize + header.p_vaddr as usize;
                out.push(start..start + header.p_memsz as usize);
            }
        }
        0
    }
    let mut all = Vec::new();
    // SAFETY: `each` takes what it is given as what it is.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut all).cast()) };
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_c_library_is_closed_and_this_is_not() {
        super::prepare();
        // From the library itself: a sanitizer has functions of the same names in the program.
        // time(2) is the vdso's, if there is one.
        // SAFETY: it is loaded already; C strings.
        let library =
            unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        assert!(!library.is_null());
        for name in [c"malloc", c"time"] {
            // SAFETY: a live handle, a C string.
            let function = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(super::is_closed(function.addr()), "{name:?} at {function:?}");
        }
        assert!(!super::is_closed(super::find as *const () as usize));
    }
}
