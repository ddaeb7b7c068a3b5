//! End of a microprocess on its block, and recycling of the block.

use std::sync::atomic::{AtomicU32, Ordering};

use super::glibc::{Layout, set_word};
use super::inner::Inner;
use super::template::{DIRTY_DTV, DIRTY_STATE, Template, current, head};
use crate::cpu::fs_base;
use crate::kind::Kind;

/// The value of `LC_GLOBAL_LOCALE` in <locale.h>.
const LC_GLOBAL_LOCALE: libc::locale_t = usize::MAX as libc::locale_t;

unsafe extern "C" {
    fn uselocale(locale: libc::locale_t) -> libc::locale_t;
    fn pthread_setcancelstate(state: i32, old: *mut i32) -> i32;
    fn pthread_setcanceltype(kind: i32, old: *mut i32) -> i32;
}

/// Does what the C library does after a thread's start routine has returned.
///
/// # Safety
/// The caller runs on the block of a microprocess that is about to end.
pub(super) unsafe fn exit_current(inner: &Inner, kind: Kind) {
    let layout = &inner.layout;
    let fs = fs_base() as *mut u8;
    // SAFETY: everything below touches only the caller's own block.
    unsafe {
        (inner.calls.call_tls_dtors)();
        if inner.keys.any_used(fs) {
            inner.keys.destroy(layout, fs);
            // A key's destructor may have used a thread-local variable for the first time.
            (inner.calls.call_tls_dtors)();
        }
        release_robust(layout, fs);
        let head = head(fs, layout.below);
        let template = &*(*head).template;
        let mut dirty = 0;
        if kind == Kind::Clone {
            if template.watched.differ(fs) {
                forget_libc_state();
                dirty |= DIRTY_STATE;
            }
        } else {
            forget_libc_state();
            pthread_setcancelstate(0, std::ptr::null_mut());
            pthread_setcanceltype(0, std::ptr::null_mut());
        }
        if template.dtv_used(layout, fs) {
            dirty |= DIRTY_DTV;
        }
        (*head).dirty = dirty;
    }
}

/// Makes libc free the memory that it holds for this thread and that a rewrite would leak.
unsafe fn forget_libc_state() {
    // SAFETY: the calls concern only the calling thread. The first dlerror returns the error, the
    // second one frees it.
    unsafe {
        libc::dlerror();
        libc::dlerror();
        uselocale(LC_GLOBAL_LOCALE);
    }
}

/// Marks the robust mutexes that the microprocess still holds as "owner died". The kernel does this
/// for kernel threads, but no kernel thread has registered this list; see get_robust_list(2).
unsafe fn release_robust(layout: &Layout, fs: *mut u8) {
    // SAFETY: the list head lies in the block. pthread_mutex_lock linked the entries, which are
    // mapped unless the program is faulty, as with kernel threads.
    unsafe {
        let head = fs.offset(layout.robust).cast::<[usize; 3]>();
        let [mut at, futex, pending] = head.read();
        if at == head as usize && pending == 0 {
            return;
        }
        // A mutex that other processes may share has the ID of the kernel thread, which a
        // microprocess that locks one keeps (`kumi run`).
        let own = fs.offset(layout.tid).cast::<u32>().read();
        let owners = [own, crate::kernel::gettid().cast_unsigned()];
        // The kernel's limit against circular lists: ROBUST_LIST_LIMIT in
        // include/uapi/linux/futex.h.
        for _ in 0..2048 {
            if at == head as usize || at & !1 == 0 {
                break;
            }
            let entry = at & !1;
            // Read the link before releasing the mutex, because its new owner relinks it.
            let next = (entry as *const usize).read();
            owner_died(entry.wrapping_add(futex), owners);
            at = next;
        }
        if pending & !1 != 0 {
            owner_died((pending & !1).wrapping_add(futex), owners);
        }
        // Empties the list: both links point to the head. The second link is kept just below the
        // head.
        head.write([head as usize, futex, 0]);
        set_word(fs, layout.robust - 8, head as u64);
    }
}

unsafe fn owner_died(word_at: usize, owners: [u32; 2]) {
    const WAITERS: u32 = 0x8000_0000;
    const OWNER_DIED: u32 = 0x4000_0000;
    const TID: u32 = 0x3fff_ffff;
    // SAFETY: the lock word of a robust mutex.
    let lock = unsafe { &*(word_at as *const AtomicU32) };
    let mut now = lock.load(Ordering::Relaxed);
    while owners.contains(&(now & TID)) {
        // Release: the next owner sees what the dead owner wrote.
        match lock.compare_exchange(
            now,
            (now & WAITERS) | OWNER_DIED,
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            Ok(_) if now & WAITERS != 0 => {
                // SAFETY: wakes a waiter on that word; the word may be shared with other processes.
                unsafe { crate::call!(libc::SYS_futex, word_at, libc::FUTEX_WAKE, 1) };
                return;
            }
            Ok(_) => return,
            Err(other) => now = other,
        }
    }
}

/// See [`super::Tls::recycle`].
///
/// # Safety
/// No thread runs on `fs`, and `exit_current` has run on it.
pub(super) unsafe fn recycle(inner: &Inner, fs: *mut u8) {
    let layout = &inner.layout;
    let head = head(fs, layout.below);
    let template: &'static Template = current();
    // SAFETY: the caller has exclusive access to the block.
    unsafe {
        if (*head).dirty != 0 || !std::ptr::eq((*head).template, template) {
            thorough(layout, fs, template);
        }
        template.restore_modules(fs);
        fs.offset(layout.errno).cast::<i32>().write(0);
        fs.offset(layout.h_errno).cast::<i32>().write(0);
    }
}

/// Does the work that the fast path of [`recycle`] skips [200-500 ns].
#[cold]
unsafe fn thorough(layout: &Layout, fs: *mut u8, template: &'static Template) {
    let head = head(fs, layout.below);
    // SAFETY: as for `recycle`.
    unsafe {
        if template.complete
            && ((*head).dirty & DIRTY_STATE != 0 || !std::ptr::eq((*head).template, template))
        {
            template.rewrite(fs, (*head).lo, (*head).size);
        }
        if (*head).dirty & DIRTY_DTV != 0 {
            template.reset_dtv(layout, fs);
        }
        (*head).dirty = 0;
        (*head).template = template;
    }
}
