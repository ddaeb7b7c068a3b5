//! set*id in a process with microprocesses.
//!
//! setuid(2) and the related system calls change one kernel thread. The C library applies them to
//! the whole process by sending signal 33 to every thread on its list; nptl(7). Its handler clears
//! a mark in the block that FS points to, and the caller waits until the marks of all threads are
//! cleared. If FS pointed to a microprocess's block, the caller would wait forever. The handler of
//! this module therefore sets FS to the kernel thread's own block, calls the C library's handler,
//! and restores FS.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cpu::{fs_base, set_fs_base};
use crate::queued_signal;

const SIGSETXID: libc::c_long = 33;

/// The kernel's struct sigaction. The C library's sigaction(2) rejects its internal signals.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Function that returns the FS base of the kernel thread that carries the running microprocess; 0
/// until [`set_carrier_fs`] has registered one.
static CARRIER: AtomicUsize = AtomicUsize::new(0);
static ORIGINAL: AtomicUsize = AtomicUsize::new(0);
/// Number of set*id calls that the C library has applied to other threads, counted once a thread.
static ROUNDS: AtomicUsize = AtomicUsize::new(0);

/// Returns a number that grows with each set*id call that the C library applies to a thread.
#[must_use]
pub fn rounds() -> usize {
    ROUNDS.load(Ordering::SeqCst)
}

/// Registers the function that finds the FS base of the kernel thread that carries the running
/// microprocess. It returns `None` if the caller is not a microprocess, so that FS is already
/// correct.
///
/// `find` runs in a signal handler, with any block as FS. It must take no lock, allocate no memory,
/// and use only thread-local variables that are plain words.
pub fn set_carrier_fs(find: fn() -> Option<usize>) {
    // Release pairs with the Acquire in the handler.
    CARRIER.store(find as *const () as usize, Ordering::Release);
}

/// Upper half of the value of a request to renew the mask, which tells it from the C library's.
const RENEW: usize = 0x6b75_6d69;

/// Function that gets the round and the signal mask of the interrupted code, and returns another
/// one, if it must change; 0 until [`set_renewed_mask`] has registered one.
static RENEWED_MASK: AtomicUsize = AtomicUsize::new(0);

/// Registers the function that gets the round and the signal mask of the code that [`renew_mask`]
/// interrupts, and returns the new mask, or `None` if it stays. The conditions of
/// [`set_carrier_fs`] apply to it.
pub fn set_renewed_mask(find: fn(u32, u64) -> Option<u64>) {
    RENEWED_MASK.store(find as *const () as usize, Ordering::Release);
}

/// Has kernel thread `tid` of this process set its signal mask anew, also while it sleeps. `round`
/// is passed to the registered function.
///
/// The C library's signal 33 serves for this, because no thread can block it.
///
/// # Errors
/// `ESRCH` if the thread has ended; other errors of rt_tgsigqueueinfo(2); if the handler cannot be
/// installed.
pub fn renew_mask(tid: u32, round: u32) -> std::io::Result<()> {
    // Nothing has done so where no microprocess has a block of its own.
    wrap().map_err(std::io::Error::other)?;
    let value = RENEW << 32 | round as usize;
    queued_signal::send(tid, &queued_signal::info(SIGSETXID as c_int, libc::SI_QUEUE, value))
}

/// Handles a request of [`renew_mask`]. Returns whether it was one.
///
/// # Safety
/// Called in a signal handler with the arguments that the kernel passed to it.
unsafe fn is_renewal(info: *const libc::siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: a queued signal has a value.
    let (code, value) = unsafe { ((*info).si_code, (*info).si_value().sival_ptr.addr()) };
    let is_one = code == libc::SI_QUEUE && value >> 32 == RENEW;
    let find = RENEWED_MASK.load(Ordering::Acquire);
    if is_one && find != 0 {
        // SAFETY: the word holds a function of this type.
        let find = unsafe { std::mem::transmute::<usize, fn(u32, u64) -> Option<u64>>(find) };
        // SAFETY: the kernel's context; the first word of a set is the kernel's. The end of the
        // handler makes it the thread's mask (sigreturn(2)).
        unsafe {
            let set = (&raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<u64>();
            if let Some(mask) = find(value as u32, set.read()) {
                set.write(mask);
            }
        }
    }
    is_one
}

unsafe extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's arguments.
    if unsafe { is_renewal(info, context) } {
        return;
    }
    let original = ORIGINAL.load(Ordering::Acquire);
    let find = CARRIER.load(Ordering::Acquire);
    // SAFETY: both words hold functions of these types, or `find` is 0. FS is set to a live
    // thread's own block and back. In between, only the C library's handler uses thread-local
    // state.
    unsafe {
        let original = std::mem::transmute::<
            usize,
            unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void),
        >(original);
        let own = if find == 0 {
            None
        } else {
            std::mem::transmute::<usize, fn() -> Option<usize>>(find)()
        };
        let running = fs_base();
        ROUNDS.fetch_add(1, Ordering::SeqCst);
        match own {
            Some(fs) if fs != running => {
                set_fs_base(fs);
                original(signal, info, context);
                set_fs_base(running);
            }
            _ => original(signal, info, context),
        }
    }
}

/// Installs this module's handler in front of the C library's, which exists once a thread was
/// created.
pub(crate) fn wrap() -> Result<(), String> {
    let mut action = KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 };
    // SAFETY: a bare system call with the kernel's own struct, in both directions.
    unsafe {
        if crate::call!(libc::SYS_rt_sigaction, SIGSETXID, 0, &mut action, 8) != 0
            || action.handler < 2
        {
            return Err("the C library has no handler for signal 33".into());
        }
        if action.handler == on_signal as *const () as usize {
            return Ok(());
        }
        ORIGINAL.store(action.handler, Ordering::Release);
        action.handler = on_signal as *const () as usize;
        // A microprocess's stack may be small; the runtime's kernel threads have an alternate one.
        action.flags |= libc::SA_ONSTACK as u64;
        if crate::call!(libc::SYS_rt_sigaction, SIGSETXID, &action, 0, 8) != 0 {
            return Err("the handler of signal 33 cannot be replaced".into());
        }
    }
    Ok(())
}
