//! Reports a stack overflow in one line instead of a bare SIGSEGV.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::stack::{self, Located, RECORD};
use crate::{interrupted, kernel_attributes, tls};

mod kernel_thread;
pub use kernel_thread::{KernelThreadWatch, watch_this_kernel_thread};

/// The action that was installed for a signal before this module's handler.
struct Previous {
    action: OnceLock<libc::sigaction>,
    /// SA_RESETHAND is set and the handler has already run once.
    spent: AtomicBool,
}

/// `si_code` of an access to a page that the file does not have; sigaction(2).
const BUS_ADRERR: c_int = 2;

static SEGV: Previous = Previous { action: OnceLock::new(), spent: AtomicBool::new(false) };
static BUS: Previous = Previous { action: OnceLock::new(), spent: AtomicBool::new(false) };
static DESCRIBE: AtomicUsize = AtomicUsize::new(0);
static RECOVER: AtomicUsize = AtomicUsize::new(0);
static GIVES_WAY: AtomicBool = AtomicBool::new(false);

/// Installs the process's handler for SIGSEGV and SIGBUS. Further calls only replace `describe`.
///
/// A fault in the guard of a microprocess's stack, caused by code running on that stack, is
/// reported on standard error as
/// `kumihimo: microprocess NAME overflowed its stack of N KiB; set Builder::stack_size ...`, which
/// also says whether it panicked. The process then aborts. After [`give_way_to_previous_handler`]
/// the previously installed handler has such a fault as well. Every other fault is passed to the
/// previously installed handler (Rust's, a sanitizer's, the program's) with the flags and mask of
/// that handler, or takes the default action. A handler that the program installs later replaces
/// this one.
///
/// `describe(slot_end, out)` writes the microprocess's name and id into `out` and returns the
/// number of bytes written. It runs in the signal handler.
///
/// # Safety
/// `describe` is async-signal-safe: it takes no lock and does not allocate. Each kernel thread that
/// runs microprocesses holds an [`AltStack`].
pub unsafe fn install_process_handler(describe: fn(slot_end: usize, out: &mut [u8]) -> usize) {
    DESCRIBE.store(describe as *const () as usize, Ordering::Release);
    tls::get().bytes(); // the first call allocates, so it must not come from the handler
    for (signal, previous) in [(libc::SIGSEGV, &SEGV), (libc::SIGBUS, &BUS)] {
        previous.action.get_or_init(|| {
            // SAFETY: reads the old action and installs a handler of the right type.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                crate::kernel::sigaction(signal, std::ptr::null(), &mut old);
                let mut new: libc::sigaction = std::mem::zeroed();
                new.sa_sigaction = on_fault as *const () as usize;
                // The old handler runs inside this one, so its mask and flags apply here too. A
                // repair runs with all signals blocked: a handler of the runtime must not switch
                // away from this one.
                new.sa_mask = old.sa_mask;
                if signal == libc::SIGBUS {
                    libc::sigfillset(&raw mut new.sa_mask);
                }
                new.sa_flags = libc::SA_SIGINFO
                    | libc::SA_ONSTACK
                    | (old.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART));
                crate::kernel::sigaction(signal, &new, std::ptr::null_mut());
                old
            }
        });
    }
}

/// Lets a handler with `SA_ONSTACK` that was installed before this one handle overflows of
/// microprocesses, instead of a report. For programs that know nothing of microprocesses: such a
/// handler may unwind the stack (siglongjmp), or report the overflow itself.
pub fn give_way_to_previous_handler() {
    GIVES_WAY.store(true, Ordering::Relaxed);
}

/// Whether the previous handler is to handle an overflow.
fn gives_way(signal: c_int) -> bool {
    GIVES_WAY.load(Ordering::Relaxed)
        && previous(signal).action.get().is_some_and(|old| {
            old.sa_sigaction > libc::SIG_IGN && old.sa_flags & libc::SA_ONSTACK != 0
        })
}

fn previous(signal: c_int) -> &'static Previous {
    if signal == libc::SIGBUS { &BUS } else { &SEGV }
}

/// Sets the function that the handler calls first for an access to a page of a file that is gone
/// (SIGBUS, BUS_ADRERR), with the address. If it returns true, the access is repeated.
///
/// # Safety
/// `recover` is async-signal-safe, and returns true only if the access has become possible.
pub unsafe fn set_bus_recovery(recover: fn(address: usize) -> bool) {
    RECOVER.store(recover as *const () as usize, Ordering::Release);
}

fn recovers(address: usize) -> bool {
    let recover = RECOVER.load(Ordering::Acquire);
    // SAFETY: the word holds a function of this type.
    recover != 0 && unsafe { std::mem::transmute::<usize, fn(usize) -> bool>(recover) }(address)
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo and ucontext.
    unsafe {
        let errno = *libc::__errno_location();
        if signal == libc::SIGBUS
            && (*info).si_code == BUS_ADRERR
            && recovers((*info).si_addr() as usize)
        {
            *libc::__errno_location() = errno;
            return;
        }
        if signal == libc::SIGBUS {
            open_mask(context.cast());
        }
        // si_code <= 0: a process sent the signal, so there is no fault address; sigaction(2).
        if (*info).si_code > 0 {
            let at = (*info).si_addr() as usize;
            let sp = interrupted::position(context.cast()).stack_pointer;
            if let Some(found) = stack::locate(at)
                && found.guard.contains(&at)
                && on_that_stack(sp, &found)
                && !gives_way(signal)
            {
                report(&found);
                end(signal);
            }
            if let Some(watched) = kernel_thread::find(at, sp) {
                report_kernel_thread(watched);
                end(signal);
            }
        }
        chain(signal, info, context);
        *libc::__errno_location() = errno;
    }
}

/// Sets the mask with which the previously installed handler for SIGBUS would have begun.
unsafe fn open_mask(context: *const libc::ucontext_t) {
    let Some(old) = BUS.action.get() else { return };
    // SAFETY: the kernel passes a valid ucontext, whose mask is one word, as is the first part of
    // the handler's set. A mask is no memory.
    unsafe {
        let word = |set: *const libc::sigset_t| set.cast::<u64>().read_unaligned();
        let own = if old.sa_flags & libc::SA_NODEFER == 0 { 1 << (libc::SIGBUS - 1) } else { 0 };
        let mask: u64 = word(&raw const (*context).uc_sigmask) | word(&raw const old.sa_mask) | own;
        crate::call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0, 8);
    }
}

/// Aborts in the handler of `signal`.
unsafe fn end(signal: c_int) -> ! {
    // SAFETY: restores the default action, for a fault in the abort.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        crate::kernel::sigaction(signal, &default, std::ptr::null_mut());
        libc::abort()
    }
}

/// Returns whether the stack pointer lies in the slot, or below it by at most 1 MiB (a very large
/// frame). Otherwise the fault is a stray access from another stack that hit this guard.
fn on_that_stack(sp: usize, found: &Located) -> bool {
    sp < found.slot_end && sp + (1 << 20) > found.guard.start
}

/// Passes the signal to the previously installed handler, or performs its default action.
unsafe fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = previous(signal);
    let Some(old) = previous.action.get() else { return };
    // SAFETY: the flags give the old handler's type; default actions touch no memory.
    unsafe {
        let once = old.sa_flags & libc::SA_RESETHAND != 0;
        let spent = once && previous.spent.swap(true, Ordering::AcqRel);
        match old.sa_sigaction {
            handler if handler > libc::SIG_IGN && !spent => {
                if old.sa_flags & libc::SA_SIGINFO != 0 {
                    std::mem::transmute::<
                        usize,
                        extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void),
                    >(handler)(signal, info, context);
                } else {
                    std::mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal);
                }
            }
            // The kernel does not ignore a fault either, but it ignores a signal that was sent.
            libc::SIG_IGN if (*info).si_code <= 0 => {}
            _ => {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                crate::kernel::sigaction(signal, &default, std::ptr::null_mut());
                // The faulting instruction runs again on return. A sent signal must be sent again;
                // it stays blocked until this handler returns.
                if (*info).si_code <= 0 {
                    crate::call!(
                        libc::SYS_tgkill,
                        libc::getpid(),
                        crate::call!(libc::SYS_gettid),
                        signal,
                    );
                }
            }
        }
    }
}

/// A line of text, composed without allocation.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    fn text(&mut self, s: &str) {
        let n = s.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
    }

    fn number(&mut self, mut n: usize) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        self.text(std::str::from_utf8(&digits[at..]).unwrap_or("?"));
    }

    /// Writes the line to standard error.
    fn write(&self) {
        let mut rest = &self.bytes[..self.len];
        while !rest.is_empty() {
            // SAFETY: writes from a valid buffer; write(2) is async-signal-safe.
            let n = unsafe { crate::kernel::write(2, rest.as_ptr().cast(), rest.len()) };
            if n <= 0 {
                break;
            }
            rest = &rest[n as usize..];
        }
    }
}

fn report(found: &Located) {
    let mut line = Line { bytes: [0; 512], len: 0 };
    line.text("kumihimo: microprocess ");
    let describe = DESCRIBE.load(Ordering::Acquire);
    if describe != 0 {
        // SAFETY: the word holds a function of this type.
        let describe =
            unsafe { std::mem::transmute::<usize, fn(usize, &mut [u8]) -> usize>(describe) };
        let start = line.len;
        line.len += describe(found.slot_end, &mut line.bytes[start..start + 256]).min(256);
    }
    let stack = found.slot_end - RECORD - found.guard.end;
    line.text(" overflowed its stack of ");
    line.number(stack.saturating_sub(tls::get().bytes()) / 1024);
    line.text(" KiB");
    // Reads an atomic and a thread-local that needs no initialisation.
    if std::thread::panicking() {
        line.text(" while it panicked: a backtrace takes up to 24 KiB, with RUST_BACKTRACE=0 none");
    }
    line.text("; set Builder::stack_size (bytes) to more for it, or make its frames smaller\n");
    line.write();
}

fn report_kernel_thread(watched: &kernel_thread::Entry) {
    let mut line = Line { bytes: [0; 512], len: 0 };
    let (name, len) = watched.name();
    line.text("kumihimo: kernel thread '");
    line.text(std::str::from_utf8(&name[..len]).unwrap_or("?"));
    line.text("' overflowed its stack of ");
    line.number(watched.bytes() / 1024);
    line.text(" KiB; make its frames smaller\n");
    line.write();
}

/// A kernel thread's alternate signal stack, with a guard below it. Dropping it restores the
/// previous one.
///
/// It is not `Send`: it belongs to the kernel thread that created it.
#[derive(Debug)]
pub struct AltStack {
    memory: *mut c_void,
    bytes: usize,
    before: libc::stack_t,
}

/// Gives the calling kernel thread an alternate signal stack with room for the largest signal frame
/// of this processor and another 32 KiB.
///
/// # Errors
/// Returns an error if memory is short or the caller is running on an alternate stack.
pub fn alt_stack_for_this_thread() -> io::Result<AltStack> {
    let guard = stack::page_size();
    let bytes = (stack::minimum() + (32 << 10)).next_multiple_of(guard) + guard;
    // SAFETY: the mapping is new, and its lowest page becomes a guard.
    unsafe {
        let memory = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
            -1,
            0,
        );
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let usable = libc::stack_t {
            ss_sp: memory.wrapping_byte_add(guard),
            ss_flags: 0,
            ss_size: bytes - guard,
        };
        let guarded = match libc::mprotect(memory, guard, libc::PROT_NONE) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        guarded
            .and_then(|()| kernel_attributes::swap_signal_stack(Some(&usable)))
            .inspect_err(|_| {
                libc::munmap(memory, bytes);
            })
            .map(|before| AltStack { memory, bytes, before })
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        // SAFETY: the type is not Send, so this is the kernel thread that installed the stack. If
        // the thread is running on the stack, sigaltstack fails with EPERM and the memory stays
        // mapped.
        unsafe {
            let now = kernel_attributes::swap_signal_stack(None);
            let ours =
                now.is_ok_and(|now| now.ss_sp == self.memory.wrapping_byte_add(stack::page_size()));
            let disable = libc::SS_DISABLE;
            self.before.ss_flags &= disable;
            if !ours || kernel_attributes::swap_signal_stack(Some(&self.before)).is_ok() {
                libc::munmap(self.memory, self.bytes);
            }
        }
    }
}
