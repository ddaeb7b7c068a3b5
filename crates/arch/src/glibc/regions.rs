//! Code into which no call is injected: the C library, the dynamic linker, the vDSO and allocators.
//!
//! Code there may hold locks (an arena's lock, the list of loaded objects) that the user scheduler
//! itself needs to select the next microprocess.
//!
//! The architecture may close code of its own: [`cpu::is_indivisible`].

use std::ops::Range;
use std::sync::OnceLock;

use crate::cpu;

/// Prefixes of the closed objects' file names.
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

/// Finds the closed regions, once per process; all closed objects are loaded at program start. May
/// block on the dynamic linker's lock.
pub fn prepare() {
    REGIONS.get_or_init(find);
}

/// Returns whether `pc` is in a closed region. Async-signal-safe. Returns true for every address
/// before [`prepare`].
#[must_use]
pub fn is_closed(pc: usize) -> bool {
    cpu::is_indivisible(pc)
        || REGIONS.get().is_none_or(|all| all.iter().any(|one| one.contains(&pc)))
}

fn find() -> Vec<Range<usize>> {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _: usize,
        out: *mut libc::c_void,
    ) -> i32 {
        // SAFETY: dl_iterate_phdr(3) passes a live description and the pointer that `find` gave it.
        let (info, out) = unsafe { (&*info, &mut *out.cast::<Vec<Range<usize>>>()) };
        let name = if info.dlpi_name.is_null() {
            c""
        } else {
            // SAFETY: the name is not null, hence a terminated string.
            unsafe { std::ffi::CStr::from_ptr(info.dlpi_name) }
        };
        let name = name.to_string_lossy();
        let file = name.rsplit('/').next().unwrap_or_default();
        if CLOSED.iter().any(|begin| file.starts_with(begin)) {
            // SAFETY: `dlpi_phdr` points to `dlpi_phnum` headers.
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
    // SAFETY: `each` casts the pointer back to its own type.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut all).cast()) };
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn c_library_is_closed_and_this_crate_is_not() {
        super::prepare();
        // Look the symbols up in the library itself: a sanitizer defines functions of the same
        // names in the program. time(2) belongs to the vDSO, if there is one.
        // SAFETY: the library is loaded already; the names are C strings.
        let library =
            unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        assert!(!library.is_null());
        for name in [c"malloc", c"time"] {
            // SAFETY: the handle is live and the name is a C string.
            let function = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(super::is_closed(function.addr()), "{name:?} at {function:?}");
        }
        assert!(!super::is_closed(super::find as *const () as usize));
    }
}
