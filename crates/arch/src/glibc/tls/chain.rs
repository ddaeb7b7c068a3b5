//! Chain of all blocks: a doubly linked list that joins the C library's list of threads during
//! dlopen.
//!
//! ld.so writes the initial-exec variables of a library that is loaded late into every block on the
//! C library's list. If the blocks stayed on that list, every set*id would make a system call per
//! block, and every fork would walk all blocks.
//!
//! The blocks therefore form a separate chain, whose ends point to two donors that are neighbours
//! on the C library's list. Two stores to the donors link the chain in before a dlopen, and two
//! stores unlink it afterwards. No other code writes those two words: the C library inserts at the
//! list's head and unlinks elements, and donors are never unlinked.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::donor::Donor;
use super::glibc::{Layout, set_word, word};
use super::template::{CURRENT, Template};
use crate::lock::Lock;

struct Chain {
    lock: Lock,
    /// The upper and the lower anchor, as FS bases. Null while there are no anchors: after fork,
    /// until new donors exist.
    before: AtomicPtr<u8>,
    after: AtomicPtr<u8>,
    first: AtomicPtr<u8>,
    last: AtomicPtr<u8>,
    /// Number of dlopen and dlclose calls in progress.
    depth: AtomicUsize,
    /// The first block at the begin or end of the latest call.
    mark: AtomicPtr<u8>,
}

static CHAIN: Chain = Chain {
    lock: Lock::new(),
    before: null(),
    after: null(),
    first: null(),
    last: null(),
    depth: AtomicUsize::new(0),
    mark: null(),
};

const fn null() -> AtomicPtr<u8> {
    AtomicPtr::new(std::ptr::null_mut())
}

// All fields except the lock are written only under it, hence Relaxed. The words of the list itself
// are the exception.
fn get(p: &AtomicPtr<u8>) -> *mut u8 {
    p.load(Ordering::Relaxed)
}

fn node(layout: &Layout, fs: *mut u8) -> *mut u8 {
    if fs.is_null() { fs } else { fs.wrapping_offset(layout.list) }
}

/// Sets a block's next pointer so that a walker that reads it also sees the contents of `next`.
unsafe fn set_next(layout: &Layout, fs: *mut u8, next: *mut u8) {
    // SAFETY: the caller owns the word. Release pairs with the data dependency of walkers.
    unsafe { (*fs.offset(layout.list).cast::<AtomicPtr<u8>>()).store(next, Ordering::Release) }
}

unsafe fn set_prev(layout: &Layout, fs: *mut u8, prev: *mut u8) {
    // SAFETY: the caller owns the word.
    unsafe { set_word(fs, layout.list + 8, prev as u64) }
}

/// Makes the first two donors the anchors, with the second one as the upper, if they are adjacent
/// on the C library's list. Returns whether they are.
pub(super) fn anchor(layout: &Layout, donors: &[Donor; 3]) -> bool {
    let [after, before, _] = donors.map(|d| d.fs);
    // SAFETY: donors are never freed.
    let adjacent = unsafe {
        word(before, layout.list) == node(layout, after) as u64
            && word(after, layout.list + 8) == node(layout, before) as u64
    };
    if !adjacent {
        return false;
    }
    CHAIN.lock.with(|| {
        CHAIN.before.store(before, Ordering::Relaxed);
        CHAIN.after.store(after, Ordering::Relaxed);
        // SAFETY: blocks of the chain are never freed; the lock is held.
        unsafe {
            if !get(&CHAIN.first).is_null() {
                set_prev(layout, get(&CHAIN.first), node(layout, before));
                set_next(layout, get(&CHAIN.last), node(layout, after));
            }
            if CHAIN.depth.load(Ordering::Relaxed) > 0 {
                hang(layout);
            }
        }
    });
    true
}

/// Links the chain into the C library's list.
unsafe fn hang(layout: &Layout) {
    let (b, a, first) = (get(&CHAIN.before), get(&CHAIN.after), get(&CHAIN.first));
    if !first.is_null() && !b.is_null() {
        // SAFETY: only this module writes the anchors' inner words; the lock is held.
        unsafe {
            set_prev(layout, a, node(layout, get(&CHAIN.last)));
            set_next(layout, b, node(layout, first));
        }
    }
}

/// Adds a block that was written from `from`, and updates it if a dlopen ended meanwhile.
///
/// # Safety
/// The block is complete, not yet in the chain, and never freed.
pub(super) unsafe fn add(layout: &Layout, fs: *mut u8, from: &Template) {
    CHAIN.lock.lock();
    // SAFETY: the lock is held, and all blocks of the chain are alive.
    unsafe {
        let first = get(&CHAIN.first);
        let (b, a) = (get(&CHAIN.before), get(&CHAIN.after));
        set_prev(layout, fs, node(layout, b));
        if first.is_null() {
            set_next(layout, fs, node(layout, a));
            CHAIN.last.store(fs, Ordering::Relaxed);
        } else {
            set_next(layout, fs, node(layout, first));
            set_prev(layout, first, node(layout, fs));
        }
        CHAIN.first.store(fs, Ordering::Relaxed);
        if CHAIN.depth.load(Ordering::Relaxed) > 0 {
            hang(layout);
        }
        // Templates are published under this lock.
        let now = &*CURRENT.load(Ordering::Relaxed);
        if !std::ptr::eq(now, from) {
            now.patch(from, fs);
        }
    }
    CHAIN.lock.unlock();
}

/// Begins a dlopen or dlclose: makes all blocks visible to the C library.
pub(super) fn enter(layout: &Layout) {
    CHAIN.lock.with(|| {
        if CHAIN.depth.fetch_add(1, Ordering::Relaxed) == 0 {
            CHAIN.mark.store(get(&CHAIN.first), Ordering::Relaxed);
            // SAFETY: the lock is held.
            unsafe { hang(layout) };
        }
    });
}

/// Ends a dlopen or dlclose. `renewed`: the template for the modules loaded now, if it is known.
/// `entered`: [`enter`] was called before.
///
/// Blocks made during the call may or may not have been on the list when ld.so walked it. ld.so
/// writes the upper anchor before the chain and the lower anchor after it, which distinguishes
/// three cases:
///
/// - ld.so has written neither anchor: its walk will reach the new blocks.
/// - ld.so has written both: the renewed template contains what the new blocks lack.
/// - ld.so has written only one: the anchors differ, and no template can be derived.
///
/// `always`: the chain stays linked permanently. ld.so has then written into all blocks, and the
/// builder of a new block updates it. The blocks of the chain are not patched, because code may
/// already use the words that a patch would overwrite.
pub(super) fn leave(
    layout: &Layout,
    renewed: Option<&'static Template>,
    entered: bool,
    always: bool,
) {
    CHAIN.lock.with(|| {
        // SAFETY: the lock is held; blocks are never freed; templates are leaked.
        unsafe {
            let old = &*CURRENT.load(Ordering::Relaxed);
            if let Some(new) = renewed
                && !std::ptr::eq(new, old)
            {
                let mut fs = get(&CHAIN.first);
                while !always && !fs.is_null() && fs != get(&CHAIN.mark) {
                    new.patch(old, fs);
                    let next = word(fs, layout.list) as usize;
                    fs = if next == node(layout, get(&CHAIN.after)) as usize {
                        std::ptr::null_mut()
                    } else {
                        fs.with_addr(next).wrapping_offset(-layout.list)
                    };
                }
                CURRENT.store(std::ptr::from_ref(new).cast_mut(), Ordering::Release);
            }
            if renewed.is_some() {
                CHAIN.mark.store(get(&CHAIN.first), Ordering::Relaxed);
            }
            if !entered {
                return;
            }
            // Saturating, because the child of a fork during a dlopen starts from 0.
            let depth = CHAIN.depth.load(Ordering::Relaxed).saturating_sub(1);
            CHAIN.depth.store(depth, Ordering::Relaxed);
            if depth == 0 {
                let (b, a) = (get(&CHAIN.before), get(&CHAIN.after));
                if !b.is_null() {
                    set_next(layout, b, node(layout, a));
                    set_prev(layout, a, node(layout, b));
                }
            }
        }
    });
}

/// Acquires the chain's lock before a fork.
pub(super) fn lock() {
    CHAIN.lock.lock();
}

pub(super) fn unlock() {
    CHAIN.lock.unlock();
}

/// Repairs the chain in the child of a fork, before `unlock`. The C library has emptied its list,
/// which no longer contains the donors. It has also unlinked the caller's block from its
/// neighbours, which are blocks of the chain if the caller was a microprocess.
pub(super) fn after_fork(layout: &Layout, me: *mut u8) {
    let (b, a) = (get(&CHAIN.before), get(&CHAIN.after));
    if b.is_null() {
        return;
    }
    let unnode = |w: u64, none: *mut u8| {
        if w == node(layout, none) as u64 || w == 0 {
            std::ptr::null_mut()
        } else {
            (w as usize as *mut u8).wrapping_offset(-layout.list)
        }
    };
    // SAFETY: this is the only thread, and the words lie in blocks of this crate.
    unsafe {
        // If the caller was at an end of the chain, the unlinking wrote the anchors' inner words.
        if get(&CHAIN.first) == me {
            CHAIN.first.store(unnode(word(b, layout.list), a), Ordering::Relaxed);
        }
        if get(&CHAIN.last) == me {
            CHAIN.last.store(unnode(word(a, layout.list + 8), b), Ordering::Relaxed);
        }
    }
    CHAIN.depth.store(0, Ordering::Relaxed);
    CHAIN.before.store(std::ptr::null_mut(), Ordering::Relaxed);
    CHAIN.after.store(std::ptr::null_mut(), Ordering::Relaxed);
    CHAIN.mark.store(get(&CHAIN.first), Ordering::Relaxed);
}
