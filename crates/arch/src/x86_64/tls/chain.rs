//! The chain of all blocks, and when it hangs in the C library's list of threads.
//!
//! A library with initial-exec variables that is loaded late is written into every block on the C
//! library's list. To be on it for good would cost every set*id a system call a block and every
//! fork a walk. So our blocks form a chain of their own that looks as if it hung between two
//! donors, neighbours on that list; two stores put it there, around dlopen, and two take it off.
//! Nobody else ever writes those two words: the C library inserts at the list's head and unlinks
//! elements, and donors are never unlinked.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::donor::Donor;
use super::glibc::{Layout, set_word, word};
use super::template::{CURRENT, Template};
use crate::lock::Lock;

struct Chain {
    lock: Lock,
    /// The upper and the lower anchor (FS bases); null: the chain hangs nowhere (after fork, until
    /// there are new donors).
    before: AtomicPtr<u8>,
    after: AtomicPtr<u8>,
    first: AtomicPtr<u8>,
    last: AtomicPtr<u8>,
    /// How many dlopen or dlclose are under way.
    depth: AtomicUsize,
    /// The first block when the last of them began or ended.
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

// All fields but the lock are written under it only, hence Relaxed; the words of the list itself
// are the exception.
fn get(p: &AtomicPtr<u8>) -> *mut u8 {
    p.load(Ordering::Relaxed)
}

fn node(layout: &Layout, fs: *mut u8) -> *mut u8 {
    if fs.is_null() { fs } else { fs.wrapping_offset(layout.list) }
}

/// Writes `next` of a block's list node so that a walker that sees it sees the block.
unsafe fn set_next(layout: &Layout, fs: *mut u8, next: *mut u8) {
    // SAFETY: the caller owns the word. Release pairs with the data dependency of walkers.
    unsafe { (*fs.offset(layout.list).cast::<AtomicPtr<u8>>()).store(next, Ordering::Release) }
}

unsafe fn set_prev(layout: &Layout, fs: *mut u8, prev: *mut u8) {
    // SAFETY: the caller owns the word.
    unsafe { set_word(fs, layout.list + 8, prev as u64) }
}

/// Makes the first two donors the anchors, the second one the upper, if they are neighbours on the
/// C library's list.
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

unsafe fn hang(layout: &Layout) {
    let (b, a, first) = (get(&CHAIN.before), get(&CHAIN.after), get(&CHAIN.first));
    if !first.is_null() && !b.is_null() {
        // SAFETY: the anchors' inner words are ours; lock held.
        unsafe {
            set_prev(layout, a, node(layout, get(&CHAIN.last)));
            set_next(layout, b, node(layout, first));
        }
    }
}

/// Adds a block that was written from `from`, and brings it up to date if a dlopen ended meanwhile.
///
/// # Safety
/// The block is complete, not yet in the chain, and never freed.
pub(super) unsafe fn add(layout: &Layout, fs: *mut u8, from: &Template) {
    CHAIN.lock.lock();
    // SAFETY: lock held; all blocks of the chain are alive.
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

/// A dlopen or dlclose begins: the C library shall see all blocks.
pub(super) fn enter(layout: &Layout) {
    CHAIN.lock.with(|| {
        if CHAIN.depth.fetch_add(1, Ordering::Relaxed) == 0 {
            CHAIN.mark.store(get(&CHAIN.first), Ordering::Relaxed);
            // SAFETY: lock held.
            unsafe { hang(layout) };
        }
    });
}

/// It has ended. `renewed`: the template for what is loaded now, if that is known. `entered`:
/// [`enter`] was called before.
///
/// Blocks made meanwhile may or may not have been on the list when ld.so walked it. The anchors
/// tell: it writes the upper one before the chain and the lower one after it. If it has written
/// neither, it will find the new blocks; if both, the renewed template has what they lack; in
/// between the two differ, and no template can be made.
///
/// `always`: the chain hangs in the list for good. Then ld.so has written into all blocks, the
/// builder of one brings it up to date, and those of the chain may have begun to use what a patch
/// would overwrite.
pub(super) fn leave(
    layout: &Layout,
    renewed: Option<&'static Template>,
    entered: bool,
    always: bool,
) {
    CHAIN.lock.with(|| {
        // SAFETY: lock held; blocks are never freed; templates are leaked.
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
            // Saturating: the child of a fork in the middle of a dlopen starts from 0.
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

/// Before fork: nobody is inside.
pub(super) fn lock() {
    CHAIN.lock.lock();
}

pub(super) fn unlock() {
    CHAIN.lock.unlock();
}

/// In the child of a fork, before `unlock`. The C library has emptied its list and unlinked the
/// caller's block from its neighbours: ours, if the caller was a microprocess. Donors are no longer
/// listed there.
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
    // SAFETY: only this thread lives; the words lie in blocks of ours.
    unsafe {
        // The unlinking wrote the anchors' inner words if the caller was at an end of the chain.
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
