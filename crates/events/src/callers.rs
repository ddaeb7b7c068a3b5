//! Where a kernel thread is in its program: it is asked, and copies its registers and stack in a
//! signal handler.
//!
//! Suspects of the watchdog ([`crate::watchdog`]) are asked by a signal, wherever they are: a
//! system call that it interrupts goes on (SA_RESTART), but for those that never do (signal(7):
//! epoll_wait, nanosleep), which end with EINTR. Threads that run on a core when all are dumped are
//! asked by the bell that preempts them ([`crate::preempt`]), which has the reach and the faults of
//! that. The handler makes a system call and takes no lock; the asking thread unwinds the copy and
//! finds names.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kumihimo_arch::interrupted;
use kumihimo_backtrace::{From, Symbols, Trace, Walker};
use rustix::thread::Timespec;

use crate::kernel::Kernel;
use crate::preempt::Means;
use crate::watch;

/// Marks our signals: the upper half of the value; the lower one is the number of the question.
const MARK: u64 = 0x4b55_4d4c << 32;
/// Bytes of its stack that are kept, from the innermost ones on.
const MOST: usize = 64 << 10;
/// A suspect that gets no core for so long is asked in vain.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// The same, of one that is asked by its bell, and may never come back from the kernel to hear it.
const PATIENCE_WITH_A_BELL: Duration = Duration::from_millis(200);
/// In `QUESTION`, beside its number: the handler writes; has written.
const WRITING: u64 = 1 << 40;
const WRITTEN: u64 = 1 << 41;

/// The one that is open; 0: none.
static QUESTION: AtomicU64 = AtomicU64::new(0);
/// The kernel thread that is asked by its bell, which tells no number; 0: none is.
static BY_BELL: AtomicI32 = AtomicI32::new(0);

/// Written by the handler while the question is WRITING, and read by the asking thread once it is
/// WRITTEN.
struct Answer(UnsafeCell<(Option<From>, usize, [u8; MOST])>);
// SAFETY: handed over by QUESTION, which at most one handler turns to WRITING, and the asking
// thread waits for WRITTEN, under the lock.
unsafe impl Sync for Answer {}
/// Registers, bytes of the stack, and these.
static ANSWER: Answer = Answer(UnsafeCell::new((None, 0, [0; MOST])));

/// A kernel thread's stack, as it was.
#[derive(Debug)]
pub struct Stack {
    from: From,
    copy: Vec<u8>,
}

/// Whether a signal with this value asks.
pub(crate) fn is_asked(value: u64) -> bool {
    value >> 32 == MARK >> 32
}

/// In the handler of a bell of kernel thread `tid`.
///
/// # Safety
/// `context` is what the kernel gave it.
pub(crate) unsafe fn answer_the_bell(tid: i32, context: *const libc::ucontext_t) {
    if BY_BELL.load(Ordering::Acquire) == tid {
        let number = QUESTION.load(Ordering::Acquire);
        if number != 0 && number & (WRITING | WRITTEN) == 0 {
            // SAFETY: the caller's promise.
            unsafe { answer(MARK | number, context) };
        }
    }
}

/// In the handler.
///
/// # Safety
/// `context` is what the kernel gave the handler of a signal with this value.
pub(crate) unsafe fn answer(value: u64, context: *const libc::ucontext_t) {
    let number = value & !MARK;
    // Late: nobody listens any more.
    if QUESTION
        .compare_exchange(number, number | WRITING, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        return;
    }
    // SAFETY: the caller's promise.
    let at = unsafe { interrupted::position(context) };
    let stack_pointer = at.stack_pointer;
    // SAFETY: this handler has turned the question to WRITING.
    let (from, length, bytes) = unsafe { &mut *ANSWER.0.get() };
    *from = Some(From::Interrupted {
        stack_pointer,
        frame_pointer: at.frame_pointer,
        pc: at.program_counter,
    });
    *length = kumihimo_backtrace::copy(stack_pointer, bytes);
    QUESTION.store(number | WRITTEN, Ordering::Release);
}

/// The stack of a kernel thread, to which `send` sends its signal with the value given. Blocks for
/// `patience` at most; four times that if it is at it.
///
/// # Errors
/// Why not.
pub(crate) fn ask(
    patience: Duration,
    send: impl Fn(u64) -> std::io::Result<()>,
) -> Result<Stack, String> {
    static ONE: Mutex<u64> = Mutex::new(0);
    let mut number = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if QUESTION.load(Ordering::Acquire) != 0 {
        return Err("another kernel thread did not come back from that question".into());
    }
    *number = (*number + 1) % (WRITING >> 8).min(u64::from(u32::MAX));
    let asked = *number + 1;
    QUESTION.store(asked, Ordering::Release);
    if let Err(e) = send(MARK | asked) {
        QUESTION.store(0, Ordering::Relaxed);
        return Err(e.to_string());
    }
    let since = Instant::now();
    loop {
        let state = QUESTION.load(Ordering::Acquire);
        if state == asked | WRITTEN {
            // SAFETY: WRITTEN, and the lock is held: nobody writes until the next question.
            let (from, length, bytes) = unsafe { &*ANSWER.0.get() };
            let stack = from.map(|from| Stack { from, copy: bytes[..*length].to_vec() });
            QUESTION.store(0, Ordering::Release);
            return stack.ok_or_else(|| "it answered nothing".into());
        }
        if since.elapsed() > patience {
            // A writing handler needs a core; else the question is taken back. A handler that never
            // ends blocks all further questions.
            let taken_back =
                QUESTION.compare_exchange(asked, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if taken_back || since.elapsed() > patience * 4 {
                return Err("it did not come to answer (no core, or it blocks the signal)".into());
            }
        }
        let again = Instant::now() + Duration::from_millis(2);
        while let Some(left) =
            again.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            // Not std's, which never ends where signals come faster than the kernel's timer slack
            // (nanosleep(2)).
            let _ = Timespec::try_from(left).map(|left| rustix::thread::nanosleep(&left));
        }
        // Again: one that finds another of the same number on its way is dropped (signal(7),
        // standard signals). Those too many find nothing asked.
        let _ = send(MARK | asked);
    }
}

impl Kernel {
    /// The stack of the kernel thread `tid` of the pool, which runs in user mode: it is interrupted
    /// for it, by the means of preemption. Blocks the calling kernel thread, for 200 ms at most.
    /// None: it sleeps, has left the pool, got no core, or nothing interrupts here.
    #[must_use]
    pub fn interrupt_for_its_stack(&self, tid: i32) -> Option<Stack> {
        static ONE: Mutex<()> = Mutex::new(());
        let (index, slot) = self.index_of(tid)?;
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = || slot.tid.load(Ordering::Relaxed) as i32 == tid && !watch::is_asleep(tid);
        let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let stack = match self.bells.means() {
            Means::Off => None,
            Means::Signal(_) => {
                let send = |value| {
                    if is_there() { self.bells.send_to(slot, tid, value) } else { Err(gone()) }
                };
                ask(PATIENCE_WITH_A_BELL, send).ok()
            }
            Means::Clock => {
                BY_BELL.store(tid, Ordering::Release);
                let ring = |_| is_there().then(|| self.bells.ring(index, slot)).ok_or_else(gone);
                ask(PATIENCE_WITH_A_BELL, ring).ok()
            }
        };
        BY_BELL.store(0, Ordering::Relaxed);
        stack
    }
}

impl Stack {
    /// The stack pointer: whose stack it is.
    #[must_use]
    pub fn pointer(&self) -> usize {
        self.from.stack_pointer()
    }

    /// Its backtrace.
    #[must_use]
    pub fn trace(&self, walker: &mut Walker) -> Trace {
        let mut trace = walker.walk_copy(self.from, &self.copy);
        if let (true, From::Interrupted { pc, .. }) = (trace.frames.is_empty(), self.from) {
            // The tables do not lead on: at least that.
            trace.frames.push(pc as u64);
        }
        trace
    }

    /// Numbered lines, innermost first. Takes the dynamic linker's lock, and reads the debug
    /// information of the files concerned.
    pub(crate) fn render(&self) -> String {
        let mut walker = Walker::of_all_loaded();
        let trace = self.trace(&mut walker);
        let mut text = String::new();
        Symbols::new(walker.modules).render_all(&trace.frames, &mut text);
        text
    }
}
