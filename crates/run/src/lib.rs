//! The library that `kumi run` preloads into a program, beside `crates/preload`, which has the
//! names of the replaced functions.
//!
//! It is `crates/interpose` with what only a preloaded library needs: a [`heap`] of its own, a
//! version, and a beginning before the program's `main`. Its `build.rs` has the linker direct all
//! calls of the replaced functions in the library, those of std included, to the C library's.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(loom)))]

mod heap;

/// Runs before `main`, in each program that has the libraries.
extern "C" fn before_main() {
    kumihimo_interpose::begin_preloaded(kumihimo_interpose::Heap {
        hold: heap::hold,
        release: heap::release,
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

/// The version of this library, which `kumi run` compares with its own. Padded with zeros.
#[unsafe(no_mangle)]
pub static KUMIHIMO_INTERPOSE_VERSION: [u8; 32] = padded(env!("CARGO_PKG_VERSION").as_bytes());

const fn padded(text: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    let mut i = 0;
    while i < text.len() {
        out[i] = text[i];
        i += 1;
    }
    out
}
