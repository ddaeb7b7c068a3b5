//! The C library's own definitions of the replaced functions.
//!
//! `__wrap_NAME` jumps to the next definition of `NAME` after the one that calls this crate. This
//! crate calls it by its own declarations ([`libc`]).
//!
//! In the preloaded library, so does all other code: the build script of `crates/run` passes
//! `--wrap=NAME` to the linker for each replaced name (ld(1)), by which every reference to `NAME`
//! becomes one to `__wrap_NAME`.

pub(crate) mod libc;

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

include!("../names.rs");

macro_rules! define {
    ($($name:ident)*) => {
        $(
            mod $name {
                use std::sync::atomic::AtomicUsize;

                /// Address of the next definition; 0 before its first use.
                pub(super) static NEXT: AtomicUsize = AtomicUsize::new(0);

                // All registers that carry arguments are kept, AL included, which counts the
                // vector registers of a variadic call (System V ABI 3.2.3). No function of the list
                // has arguments in vector registers.
                std::arch::global_asm!(
                    concat!(".pushsection .text.__wrap_", stringify!($name), ", \"ax\", @progbits"),
                    concat!(".globl __wrap_", stringify!($name)),
                    concat!(".hidden __wrap_", stringify!($name)),
                    concat!(".type __wrap_", stringify!($name), ", @function"),
                    concat!("__wrap_", stringify!($name), ":"),
                    "mov r11, [rip + {next}]",
                    "test r11, r11",
                    "je 2f",
                    "jmp r11",
                    "2: push rax",
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "lea rdi, [rip + 3f]",
                    "lea rsi, [rip + {next}]",
                    "call {find}",
                    "mov r11, rax",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "pop rax",
                    "jmp r11",
                    concat!("3: .asciz \"", stringify!($name), "\""),
                    concat!(".size __wrap_", stringify!($name), ", . - __wrap_", stringify!($name)),
                    ".popsection",
                    next = sym NEXT,
                    find = sym super::find,
                );
            }
        )*

        /// Each name, terminated by NUL, and where its address is.
        static ALL: &[(&str, &AtomicUsize)] =
            &[$((concat!(stringify!($name), "\0"), &$name::NEXT)),*];
    };
}

names!(define);

/// Finds all of them before the program begins. dlsym(3) clears the error that dlerror(3) has for
/// the calling thread, so a later search would take away the program's.
pub(crate) fn find_all() {
    for (name, to) in ALL {
        // SAFETY: a string, terminated by NUL.
        unsafe { find(name.as_ptr().cast(), to) };
    }
    // Those that this version of the C library does not have.
    // SAFETY: takes nothing.
    unsafe { libc::dlerror() };
}

/// A name whose next definition is not the C library's, and the file that has it.
pub(crate) fn of_other_library() -> Option<(&'static str, String)> {
    ALL.iter().find_map(|(name, at)| {
        let at = at.load(Ordering::Relaxed);
        // SAFETY: all zeroes are a valid value.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: the address is not used as one; a live structure.
        let known = unsafe { libc::dladdr(std::ptr::with_exposed_provenance(at), &raw mut found) };
        if known == 0 || found.dli_fname.is_null() || at == absent as *const () as usize {
            return None;
        }
        // SAFETY: a string of the dynamic linker.
        let file = unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy().into_owned();
        let base = file.rsplit('/').next().unwrap_or(&file);
        // Before version 2.34, the C library had several files.
        let own = ["libc.", "libc-", "libpthread", "librt"];
        let is_own = own.iter().any(|own| base.starts_with(own));
        (!is_own).then(|| (name.trim_end_matches('\0'), file))
    })
}

/// Finds the next definition of `name` and stores its address.
///
/// # Safety
/// `name` is a string, terminated by NUL.
unsafe extern "C" fn find(name: *const c_char, to: &AtomicUsize) -> usize {
    // SAFETY: the caller's promise.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) }.expose_provenance();
    let found = if found == 0 { absent as *const () as usize } else { found };
    // Relaxed: all threads find the same address.
    to.store(found, Ordering::Relaxed);
    found
}

/// Stands for a function that this version of the C library does not have. A program that runs with
/// it cannot call the function by its name.
extern "C" fn absent() -> c_int {
    libc::ENOSYS
}

macro_rules! export {
    ($($name:ident)*) => {
        /// Defines each name as a jump to the function of this crate.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! __names {
            () => {
                $(
                    #[unsafe(no_mangle)]
                    #[unsafe(naked)]
                    extern "C" fn $name() {
                        ::std::arch::naked_asm!(concat!("jmp kumi_interpose_", stringify!($name)))
                    }
                )*
            };
        }
    };
}

names!(export);
