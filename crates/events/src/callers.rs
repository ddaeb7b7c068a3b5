//! Where a kernel thread is in its program: it is asked by a signal, and writes the return addresses down itself, in the handler.
//!
//! For suspects of the watchdog only ([`crate::watchdog`]). The handler unwinds by the program's own tables, without allocating (with glibc 2.35 and later
//! without a lock either, `_dl_find_object(3)`); names are looked up afterwards, by who asked.
//!
//! A system call that the signal interrupts goes on (SA_RESTART), but for those that never do (signal(7): epoll_wait, nanosleep): EINTR.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Marks our signals: the upper half of the value; the lower one is the number of the question.
const MARK: u64 = 0x4b55_4d4c << 32;
/// Addresses that are kept.
const MOST: usize = 48;
/// A kernel thread that gets no core for so long is asked in vain.
const PATIENCE: Duration = Duration::from_secs(2);
/// In `QUESTION`, beside its number: the handler writes; has written.
const WRITING: u64 = 1 << 40;
const WRITTEN: u64 = 1 << 41;

/// The one that is open; 0: none.
static QUESTION: AtomicU64 = AtomicU64::new(0);
static FRAMES: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Where the kernel thread was interrupted.
static PC: AtomicUsize = AtomicUsize::new(0);

/// Whether a signal with this value asks.
pub(crate) fn is_asked(value: u64) -> bool {
    value >> 32 == MARK >> 32
}

/// In the handler.
///
/// # Safety
/// `context` is what the kernel gave the handler of a signal with this value.
pub(crate) unsafe fn answer(value: u64, context: *const libc::ucontext_t) {
    let number = value & !MARK;
    // Late: nobody listens any more.
    if QUESTION.compare_exchange(number, number | WRITING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: the caller's promise.
    let pc = unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] } as usize;
    PC.store(pc, Ordering::Relaxed);
    COUNT.store(0, Ordering::Relaxed);
    // The handler's own come first.
    let mut ours = true;
    // SAFETY: unsynchronised among those that symbolise, which this does not; one handler at a time is WRITING.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let ip = frame.ip().addr();
            ours &= ip != pc;
            if ours {
                return true;
            }
            let n = COUNT.load(Ordering::Relaxed);
            if n < MOST {
                FRAMES[n].store(ip, Ordering::Relaxed);
                COUNT.store(n + 1, Ordering::Relaxed);
            }
            n + 1 < MOST
        });
    }
    QUESTION.store(number | WRITTEN, Ordering::Release);
}

/// The return addresses of a kernel thread, to which `send` sends its signal with the value given; innermost first. Blocks for 2 s at most; 8 if it is at it.
///
/// # Errors
/// Why not.
pub(crate) fn ask(send: impl Fn(u64) -> std::io::Result<()>) -> Result<Vec<usize>, String> {
    static ONE: Mutex<u64> = Mutex::new(0);
    let mut number = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if QUESTION.load(Ordering::Acquire) != 0 {
        return Err("another kernel thread did not come back from that question".into());
    }
    // What the unwinder sets up at its first use is not to be set up in a handler.
    backtrace::trace(|_| true);
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
            let n = COUNT.load(Ordering::Relaxed).min(MOST);
            let frames: Vec<_> = FRAMES[..n].iter().map(|ip| ip.load(Ordering::Relaxed)).collect();
            let alone = vec![PC.load(Ordering::Relaxed)];
            QUESTION.store(0, Ordering::Release);
            // The tables may not lead there: at least that.
            return Ok(if frames.is_empty() { alone } else { frames });
        }
        if since.elapsed() > PATIENCE {
            // Who is writing needs a core; else the question is taken back. One that never ends is asked nothing any more, nor is anybody.
            let taken_back = QUESTION.compare_exchange(asked, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if taken_back || since.elapsed() > PATIENCE * 4 {
                return Err("it did not come to answer (no core, or it blocks the signal)".into());
            }
        }
        std::thread::sleep(Duration::from_millis(2));
        // Again: one that finds another of the same number on its way is dropped (signal(7), standard signals). Those too many find nothing asked.
        let _ = send(MARK | asked);
    }
}

/// One line a function.
pub(crate) fn names(frames: &[usize]) -> String {
    let mut text = String::new();
    for (i, ip) in frames.iter().enumerate() {
        // Return addresses point behind the call; `resolve` takes that into account, and the innermost one is none.
        let at = std::ptr::without_provenance_mut(if i == 0 { ip + 1 } else { *ip });
        let mut known = false;
        backtrace::resolve(at, |symbol| {
            if let Some(name) = symbol.name() {
                known = true;
                let _ = write!(text, "    {i:>2}: {name:#}");
                if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
                    let _ = write!(text, " ({}:{line})", file.display());
                }
                text.push('\n');
            }
        });
        if !known {
            let _ = writeln!(text, "    {i:>2}: {ip:#x}");
        }
    }
    text
}
