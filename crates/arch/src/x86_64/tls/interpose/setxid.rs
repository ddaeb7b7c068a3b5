//! set*id while microprocesses run.
//!
//! setuid(2) and its kin change one kernel thread; the C library makes them change the process by
//! sending signal 33 to every thread it knows. Its handler clears a mark in the block that FS
//! points to, and the caller waits until the marks of all threads are gone: for ever, if FS is a
//! microprocess's block. So our handler first puts FS back to the kernel thread's own block, runs
//! the C library's, and returns to the microprocess's.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cpu::{fs_base, set_fs_base};

const SIGSETXID: libc::c_long = 33;

/// The kernel's struct sigaction, which the C library does not let us pass for its own signals.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// The runtime's answer to "what is the FS base of the kernel thread I run on?"; 0: nobody has been
/// asked to say.
static CARRIER: AtomicUsize = AtomicUsize::new(0);
static ORIGINAL: AtomicUsize = AtomicUsize::new(0);

/// Tells how to find the FS base of the kernel thread that carries the running microprocess.
/// `None`: the caller is not a microprocess, and FS is right as it is.
///
/// `find` runs in a signal handler, with any block as FS: it must use no lock, memory allocation or
/// thread-local variable that is not a plain word.
pub fn set_carrier_fs(find: fn() -> Option<usize>) {
    // Release pairs with the Acquire in the handler.
    CARRIER.store(find as *const () as usize, Ordering::Release);
}

unsafe extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let original = ORIGINAL.load(Ordering::Acquire);
    let find = CARRIER.load(Ordering::Acquire);
    // SAFETY: both words hold functions of these types, or find is 0. FS is changed to a live
    // thread's own block and back; nothing between uses thread-local state but the C library's
    // handler.
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

/// Puts our handler before the C library's, which is in place once a thread was made.
pub(crate) fn wrap() -> Result<(), String> {
    let mut action = KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 };
    // SAFETY: the bare system call with the kernel's own struct, both ways.
    unsafe {
        if libc::syscall(libc::SYS_rt_sigaction, SIGSETXID, 0, &mut action, 8) != 0
            || action.handler < 2
        {
            return Err("the C library has no handler for signal 33".into());
        }
        if action.handler == on_signal as *const () as usize {
            return Ok(());
        }
        ORIGINAL.store(action.handler, Ordering::Release);
        action.handler = on_signal as *const () as usize;
        // A microprocess's stack may be small; kernel threads of the runtime have an alternate one.
        action.flags |= libc::SA_ONSTACK as u64;
        if libc::syscall(libc::SYS_rt_sigaction, SIGSETXID, &action, 0, 8) != 0 {
            return Err("the handler of signal 33 cannot be replaced".into());
        }
    }
    Ok(())
}
