//! Probe: calls C library functions on a clone to find which words of a block they use.

use std::ffi::{c_char, c_int, c_void};

use super::glibc::{Calls, KEY_TABLES, KEYS_A_TABLE, Layout, word};
use crate::cpu::{fs_base, set_fs_base};
use crate::signal_mask;

unsafe extern "C" {
    fn strsignal(signal: c_int) -> *mut c_char;
    fn __res_state() -> *mut u8;
}

/// An address in this module, by which __cxa_thread_atexit_impl identifies the destructor's module.
static MODULE: u8 = 0;

/// sizeof(struct __res_state), public in <resolv.h> and therefore part of the ABI.
const RESOLVER: isize = 568;

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// The words that [`use_libc`] and [`use_key`] changed.
pub(super) struct Found {
    /// Words of libc that own memory or cache a value: a rewrite keeps them.
    pub keep: Vec<isize>,
    /// Offset of the byte that is set once pthread keys were used.
    pub keys_used: isize,
}

/// Calls every function that makes libc allocate something for a thread and keep it.
#[inline(never)]
fn use_libc((calls, resolver): (&Calls, &mut usize)) {
    // SAFETY: ordinary calls of the C library; every allocated block is freed.
    unsafe {
        let mut blocks = [std::ptr::null_mut::<c_void>(); 20];
        for (i, b) in blocks.iter_mut().enumerate() {
            *b = libc::malloc(24 + i * 40);
        }
        for b in std::hint::black_box(blocks) {
            libc::free(b);
        }
        std::hint::black_box(libc::strerror(987_654));
        std::hint::black_box(strsignal(300));
        let mut bytes = [0u8; 8];
        libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0);
        *resolver = __res_state() as usize;
        (calls.cxa_thread_atexit)(
            nothing,
            std::ptr::null_mut(),
            (&raw const MODULE).cast_mut().cast(),
        );
        (calls.call_tls_dtors)();
        *libc::__errno_location() = 0;
    }
}

#[inline(never)]
fn use_key(key: libc::pthread_key_t) {
    // SAFETY: the caller created the key.
    unsafe {
        libc::pthread_setspecific(key, (&raw const MODULE).cast());
        libc::pthread_setspecific(key, std::ptr::null());
    }
}

/// Runs `f` on this stack with `fs` as the thread's block and with signals blocked.
///
/// # Safety
/// `fs` is a complete block on which no thread runs; `f` does not unwind.
unsafe fn on_block<A>(fs: *mut u8, f: fn(A), argument: A) {
    // SAFETY: the block is complete. Between the two switches only `f`, which is not inlined, uses
    // thread-local state.
    signal_mask::while_blocked(|| unsafe {
        let mine = fs_base();
        set_fs_base(fs as usize);
        f(argument);
        set_fs_base(mine);
    });
}

fn snapshot(layout: &Layout, fs: *mut u8) -> Vec<u64> {
    // SAFETY: all words lie in the block.
    layout.words().map(|o| unsafe { word(fs, o) }).collect()
}

/// Probes the clone at `fs`. `outside(offset)` returns whether the word belongs to a module other
/// than libc.
///
/// # Safety
/// `fs` is a complete block on which no thread runs. It must never be freed, because it contains
/// malloc's cache afterwards.
pub(super) unsafe fn probe(
    calls: &Calls,
    layout: &Layout,
    fs: *mut u8,
    outside: impl Fn(isize) -> bool,
) -> Result<Found, String> {
    let offsets: Vec<isize> = layout.words().collect();
    let differing = |a: &[u64], b: &[u64]| {
        offsets
            .iter()
            .zip(a.iter().zip(b))
            .filter(|(_, (x, y))| x != y)
            .map(|(o, _)| *o)
            .collect::<Vec<_>>()
    };
    // The first table of keys lies in the block itself.
    // SAFETY: the word lies in the block.
    let first = (unsafe { word(fs, layout.specific) } as usize).wrapping_sub(fs as usize) as isize;
    let tables = layout.specific..layout.specific + 8 * KEY_TABLES as isize;
    let inline = first..first + 16 * KEYS_A_TABLE as isize;
    if first < layout.thread.start || inline.end > layout.thread.end {
        return Err("the table of pthread keys is not in the thread block".into());
    }
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: an out pointer and no destructor.
    if unsafe { libc::pthread_key_create(&mut key, None) } != 0 {
        return Err("no pthread key is left".into());
    }
    let use_the_key = || {
        let before = snapshot(layout, fs);
        // SAFETY: guaranteed by the caller; the key belongs to this function.
        unsafe { on_block(fs, use_key, key) };
        (before, snapshot(layout, fs))
    };
    // The key is used before the allocator: jemalloc, for example, sets a key of its own at a
    // thread's first allocation, after which another key changes nothing. Only for a key beyond the
    // first table does the C library itself allocate; the allocator's words must settle first in
    // that case.
    let needs_no_memory = (key as usize) < KEYS_A_TABLE;
    let early = needs_no_memory.then(use_the_key);
    let unused = snapshot(layout, fs);
    let mut resolver = 0;
    // SAFETY: guaranteed by the caller; the functions do not unwind.
    unsafe { on_block(fs, use_libc, (calls, &mut resolver)) };
    let used = snapshot(layout, fs);
    let is_a_keys = |o: &isize| tables.contains(o) || inline.contains(o);
    let mut keep: Vec<isize> = differing(&unused, &used)
        .into_iter()
        .filter(|o| !layout.special(*o) && !outside(*o) && !is_a_keys(o))
        .collect();
    if keep.len() > 48 {
        return Err(format!("libc changed {} words of a block in the probe", keep.len()));
    }
    // The resolver's state owns memory and descriptors, and is a cache like the others.
    let resolver = resolver.wrapping_sub(fs as usize) as isize;
    if resolver < layout.thread.start || resolver + RESOLVER > layout.thread.end {
        return Err("the resolver's state is not in the thread block".into());
    }
    keep.extend((resolver & !7..resolver + RESOLVER).step_by(8));

    let (before, after) = early.unwrap_or_else(use_the_key);
    // SAFETY: the key belongs to this function.
    unsafe { libc::pthread_key_delete(key) };
    // An allocation by the C library may have changed its own words meanwhile.
    let changed: Vec<isize> = differing(&before, &after)
        .into_iter()
        .filter(|o| !is_a_keys(o) && (needs_no_memory || !keep.contains(o)) && !outside(*o))
        .collect();
    let [o] = changed[..] else {
        return Err(format!("setting a pthread key changed {} words", changed.len()));
    };
    let at = offsets.iter().position(|x| *x == o).unwrap_or(0);
    let bits = before[at] ^ after[at];
    let byte = bits.trailing_zeros() / 8;
    if bits != 1 << (byte * 8) {
        return Err("the flag for used pthread keys has an unexpected layout".into());
    }
    Ok(Found { keep, keys_used: o + byte as isize })
}
