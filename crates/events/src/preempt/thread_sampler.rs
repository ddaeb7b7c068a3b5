//! Thread sampler: copies the registers and the stack of a running kernel thread in a signal
//! handler.
//!
//! The watchdog ([`crate::watchdog`]) sends a signal to a suspect thread, in user mode or in the
//! kernel. A system call that the signal interrupts is restarted (SA_RESTART), except those that
//! never are, such as epoll_wait and nanosleep, which end with EINTR (signal(7)). A dump of all
//! threads rings the preemption doorbell ([`crate::preempt`]) instead, which reaches only threads
//! in user mode.
//!
//! The handler makes one system call and takes no lock. The requesting thread unwinds the copy and
//! resolves the symbols.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kumihimo_arch::interrupted;
use kumihimo_backtrace::{From, Symbols, Trace, Walker};
use rustix::thread::Timespec;

/// The upper half of the value of our signals. The lower half is the number of the request.
const REQUEST_MARK: u64 = 0x4b55_4d4c << 32;
/// The maximum number of bytes of the stack that are copied, from the innermost frame outwards.
const MOST: usize = 64 << 10;
/// The time after which a request to a thread that gets no core fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of a request by doorbell: the thread may never return from the kernel.
const DOORBELL_TIMEOUT: Duration = Duration::from_millis(200);
/// In `REQUEST`, beside its number: a handler is writing the sample.
const WRITING: u64 = 1 << 40;
/// In `REQUEST`, beside its number: the handler has written the sample.
const WRITTEN: u64 = 1 << 41;

/// The number of the open request; 0: none.
static REQUEST: AtomicU64 = AtomicU64::new(0);
/// The thread ID of the kernel thread that a doorbell samples, since a doorbell carries no number;
/// 0: none.
static DOORBELL_TARGET: AtomicI32 = AtomicI32::new(0);

/// Written by the handler while the request is WRITING, and read by the requesting thread once it
/// is WRITTEN.
struct SampleBuffer(UnsafeCell<(MaybeUninit<From>, usize, [u8; MOST])>);
// SAFETY: REQUEST hands the buffer over. At most one handler changes it to WRITING. The requesting
// thread holds the lock and waits for WRITTEN.
unsafe impl Sync for SampleBuffer {}
/// The registers, the number of bytes of the stack, and the bytes.
///
/// Consists of zeroes, so that its 64 KiB take no room in the file of each program.
static SAMPLE: SampleBuffer = SampleBuffer(UnsafeCell::new((MaybeUninit::zeroed(), 0, [0; MOST])));

/// A copy of a kernel thread's stack.
#[derive(Debug)]
pub struct StackSample {
    from: From,
    copy: Vec<u8>,
}

/// Returns whether a signal with this value is a sample request.
pub(crate) fn is_request(value: u64) -> bool {
    value >> 32 == REQUEST_MARK >> 32
}

/// Records the sample if the doorbell of kernel thread `tid` was rung for one. Called in the
/// handler.
///
/// # Safety
/// `context` is the context that the kernel passed to the running handler.
pub(crate) unsafe fn record_on_doorbell(tid: i32, context: *const libc::ucontext_t) {
    if DOORBELL_TARGET.load(Ordering::Acquire) == tid {
        let number = REQUEST.load(Ordering::Acquire);
        if number != 0 && number & (WRITING | WRITTEN) == 0 {
            // SAFETY: the caller guarantees the context.
            unsafe { record(REQUEST_MARK | number, context) };
        }
    }
}

/// Records the registers and the stack. Called in the handler.
///
/// # Safety
/// `context` is the context that the kernel passed to the handler of a signal with this value.
pub(crate) unsafe fn record(value: u64, context: *const libc::ucontext_t) {
    let number = value & !REQUEST_MARK;
    // Fails if the request was withdrawn before this signal was delivered.
    if REQUEST
        .compare_exchange(number, number | WRITING, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        return;
    }
    // SAFETY: the caller guarantees the context.
    let at = unsafe { interrupted::position(context) };
    let stack_pointer = at.stack_pointer;
    // SAFETY: this handler has changed the request to WRITING.
    let (from, length, bytes) = unsafe { &mut *SAMPLE.0.get() };
    from.write(From::Interrupted {
        stack_pointer,
        frame_pointer: at.frame_pointer,
        pc: at.program_counter,
    });
    *length = kumihimo_backtrace::copy(stack_pointer, bytes);
    REQUEST.store(number | WRITTEN, Ordering::Release);
}

/// Samples the kernel thread to which `send` sends a signal with the given value. Blocks for
/// `timeout` at most, or four times that while the handler writes.
///
/// # Errors
/// The reason why there is no sample.
pub(crate) fn sample(
    timeout: Duration,
    send: impl Fn(u64) -> std::io::Result<()>,
) -> Result<StackSample, String> {
    static ONE: Mutex<u64> = Mutex::new(0);
    let mut number = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if REQUEST.load(Ordering::Acquire) != 0 {
        return Err("an earlier sample request has not completed".into());
    }
    *number = (*number + 1) % (WRITING >> 8).min(u64::from(u32::MAX));
    let request = *number + 1;
    REQUEST.store(request, Ordering::Release);
    if let Err(e) = send(REQUEST_MARK | request) {
        REQUEST.store(0, Ordering::Relaxed);
        return Err(e.to_string());
    }
    let since = Instant::now();
    loop {
        let state = REQUEST.load(Ordering::Acquire);
        if state == request | WRITTEN {
            // SAFETY: WRITTEN, and the lock is held: no handler writes until the next request.
            let (from, length, bytes) = unsafe { &*SAMPLE.0.get() };
            // SAFETY: a handler writes all of the sample before WRITTEN.
            let from = unsafe { from.assume_init() };
            let stack = StackSample { from, copy: bytes[..*length].to_vec() };
            REQUEST.store(0, Ordering::Release);
            return Ok(stack);
        }
        if since.elapsed() > timeout {
            // A handler that is writing needs a core; otherwise the request is withdrawn. A handler
            // that never ends blocks all further requests.
            let is_withdrawn =
                REQUEST.compare_exchange(request, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if is_withdrawn || since.elapsed() > timeout * 4 {
                return Err("no sample: the thread has no core, or blocks the signal".into());
            }
        }
        let again = Instant::now() + Duration::from_millis(2);
        while let Some(left) =
            again.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            // Not `std::thread::sleep`: it restarts after each signal, and never ends if signals
            // arrive faster than the kernel's timer slack (nanosleep(2)).
            let _ = Timespec::try_from(left).map(|left| rustix::thread::nanosleep(&left));
        }
        // Send again: the kernel discards a standard signal if one of the same number is already
        // pending (signal(7)). Surplus signals find no open request.
        let _ = send(REQUEST_MARK | request);
    }
}

/// As [`sample`], for a thread that runs in user mode, with a short timeout and one request at a
/// time. `target` is the thread ID if `send` rings the thread's doorbell.
pub(crate) fn sample_running(
    target: Option<i32>,
    send: impl Fn(u64) -> std::io::Result<()>,
) -> Option<StackSample> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(tid) = target {
        DOORBELL_TARGET.store(tid, Ordering::Release);
    }
    let stack = sample(DOORBELL_TIMEOUT, send).ok();
    DOORBELL_TARGET.store(0, Ordering::Relaxed);
    stack
}

impl StackSample {
    pub(crate) fn new(from: From, copy: &[u8]) -> StackSample {
        StackSample { from, copy: copy.to_vec() }
    }

    /// Returns the stack pointer, which identifies the stack.
    #[must_use]
    pub fn pointer(&self) -> usize {
        self.from.stack_pointer()
    }

    /// Unwinds the copy and returns the backtrace.
    #[must_use]
    pub fn trace(&self, walker: &mut Walker) -> Trace {
        let mut trace = walker.walk_copy(self.from, &self.copy);
        if let (true, From::Interrupted { pc, .. }) = (trace.frames.is_empty(), self.from) {
            // The unwind tables do not cover this address: report at least the address.
            trace.frames.push(pc as u64);
        }
        trace
    }

    /// Renders numbered lines, innermost frame first. Takes the dynamic linker's lock, and reads
    /// the debug information of the files involved.
    pub(crate) fn render(&self) -> String {
        let mut walker = Walker::of_all_loaded();
        let trace = self.trace(&mut walker);
        let mut text = String::new();
        Symbols::new(walker.modules).render_all(&trace.frames, &mut text);
        text
    }
}
