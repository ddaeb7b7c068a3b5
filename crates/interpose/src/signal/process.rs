//! Signals for the process that no thread of the program takes in the kernel, and timers that
//! signal one thread.
//!
//! The kernel passes a signal for the process to a thread that has it open. Of the microprocesses
//! it knows those that run. If the first thread blocks a signal, and only microprocesses that wait
//! have it open, nobody would hear it. So a kernel thread of this library listens to such signals,
//! and sends each to a thread that has it open. It also receives what a kernel thread of the
//! runtime could not handle where it was interrupted, and the signals of timers that the program
//! has set up for a microprocess (`SIGEV_THREAD_ID` of timer_create(2)).

use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use kumihimo_arch::{signal_mask, system_call, tls};

use crate::real::libc;
use crate::signal::aside::{ASIDE, LISTENER, LOOK_AGAIN, look_again};
use crate::signal::kick::{is_kick, kick, queue_to_process};
use crate::signal::queue::Info;
use crate::signal::set::bit;
use crate::signal::thread::Signals;
use crate::signal::{mask, section, send};
use crate::thread::record::{self, own_signals};

/// The signals that microprocesses have had open.
static OPENED: AtomicU64 = AtomicU64::new(0);
/// The signals that the first thread blocks.
static BLOCKED: AtomicU64 = AtomicU64::new(0);
/// The signals for which a thread has waited, or a descriptor was made: the kernel passes them.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// The signals of timers for microprocesses.
static TIMED: AtomicU64 = AtomicU64::new(0);
/// Timers for microprocesses: the kernel's ID, and the number of the thread.
static TIMERS: Mutex<Vec<(c_int, u32)>> = Mutex::new(Vec::new());

/// Signals for the process that no thread has open.
static HELD: Mutex<Vec<(c_int, Held)>> = Mutex::new(Vec::new());
/// Which these are.
static HELD_BITS: AtomicU64 = AtomicU64::new(0);
/// The block of the first thread, if it has started the runtime.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// What the kernel has told about a signal.
struct Held(Info);

// SAFETY: the addresses in it are values.
unsafe impl Send for Held {}

/// No thread has this number.
const NOBODY: u32 = 0;

/// What the listener waits for.
fn wanted() -> u64 {
    let unheard = OPENED.load(Ordering::SeqCst) & BLOCKED.load(Ordering::SeqCst);
    unheard & !LEFT.load(Ordering::SeqCst) | TIMED.load(Ordering::SeqCst)
}

/// Changes what is wanted, and tells the listener if it has changed.
fn change(f: impl FnOnce()) {
    let before = wanted();
    f();
    if wanted() != before {
        look_again();
    }
}

/// Notes that a microprocess has these signals open.
#[inline]
pub(super) fn note_open(open: u64) {
    if open & !OPENED.load(Ordering::Relaxed) != 0 {
        change(|| {
            OPENED.fetch_or(open, Ordering::SeqCst);
        });
    }
}

/// Notes the mask of the calling kernel thread, if that is the first one.
pub(super) fn note_mask_of_kernel_thread(mask: u64) {
    // SAFETY: take nothing.
    if unsafe { libc::gettid() == libc::getpid() } {
        change(|| BLOCKED.store(mask, Ordering::SeqCst));
    }
}

/// Notes that the first thread has left (pthread_exit(3)): it hears nothing any more.
pub(crate) fn first_thread_has_left() {
    change(|| BLOCKED.store(u64::MAX, Ordering::SeqCst));
}

/// Leaves these signals to the kernel: somebody waits for them there.
pub(super) fn leave(set: u64) {
    if set & !LEFT.load(Ordering::Relaxed) != 0 {
        change(|| {
            LEFT.fetch_or(set, Ordering::SeqCst);
        });
    }
}

/// Starts the kernel thread that listens.
pub(crate) fn listen() {
    // SAFETY: take nothing.
    if unsafe { libc::gettid() == libc::getpid() } {
        FIRST.store(kumihimo_arch::cpu::fs_base(), Ordering::SeqCst);
    }
    note_mask_of_kernel_thread(mask::of_caller());
    let builder = std::thread::Builder::new().name("kumi-signals".into()).stack_size(64 << 10);
    // Without the thread, signals reach the threads that run.
    let started = signal_mask::spawn_blocked(builder, || {
        let mask = u64::MAX;
        let at = (&raw const mask).expose_provenance();
        // SAFETY: one live word. The C library's signal, too.
        unsafe {
            system_call(libc::SYS_rt_sigprocmask, [libc::SIG_BLOCK as usize, at, 0, 8, 0, 0]);
            LISTENER.store(libc::gettid().cast_unsigned(), Ordering::SeqCst);
        }
        // The thread is of this library: it handles nothing itself.
        let _section = section::Section::enter();
        loop {
            listen_once();
        }
    });
    // A timer needs its ID.
    while started.is_ok() && LISTENER.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
}

fn listen_once() {
    loop {
        let aside = ASIDE.pending();
        if aside == 0 {
            break;
        }
        let signal = aside.trailing_zeros() as c_int + 1;
        if let Some(info) = ASIDE.take(signal) {
            pass_on(signal, &info);
        }
    }
    let set = wanted() | bit(LOOK_AGAIN);
    let mut info = std::mem::MaybeUninit::<Info>::zeroed();
    let (set_at, info_at) =
        ((&raw const set).expose_provenance(), info.as_mut_ptr().expose_provenance());
    // SAFETY: live structures.
    let signal =
        unsafe { system_call(libc::SYS_rt_sigtimedwait, [set_at, info_at, 0, 8, 0, 0]) } as c_int;
    // SAFETY: written by the call, or zeroes.
    let info = unsafe { info.assume_init() };
    if signal > 0 && signal != LOOK_AGAIN && !is_kick(&info) {
        match timer_thread(&info) {
            Some(number) => {
                if let Some(thread) = record::with_number(number) {
                    // SAFETY: a block of this library.
                    send::send(unsafe { &record::record(thread).signals }, signal, &info);
                }
            }
            None => pass_on(signal, &info),
        }
    }
}

/// Passes a signal for the process to a thread that has it open. If none has, it is held.
fn pass_on(signal: c_int, info: &Info) {
    // The kernel would take it back by rt_sigqueueinfo(2), but not with these data.
    hold(signal, info);
    let is_mains = BLOCKED.load(Ordering::SeqCst) & bit(signal) == 0;
    let first = FIRST.load(Ordering::SeqCst);
    if is_mains && first != 0 {
        if let Some(info) = take_held(bit(signal)) {
            // SAFETY: the block of the first thread, which lives as long as the process.
            let signals = unsafe { &record::record(first as libc::pthread_t).signals };
            signals.queue.add(signal, &info);
            // SAFETY: takes nothing.
            kick(unsafe { libc::getpid() }.cast_unsigned(), signal);
        }
    } else if let Some(signals) = with_open(signal)
        && let Some(info) = take_held(bit(signal))
    {
        send::send(signals, signal, &info);
    }
}

/// Holds a signal for the process until a thread opens it or waits for it.
fn hold(signal: c_int, info: &Info) {
    let mut held = kumihimo_runtime::lock(&HELD);
    if signal < libc::SIGRTMIN() && held.iter().any(|(own, _)| *own == signal) {
        return;
    }
    held.push((signal, Held(*info)));
    HELD_BITS.fetch_or(bit(signal), Ordering::SeqCst);
}

/// The signals of the process that are held.
pub(super) fn held() -> u64 {
    HELD_BITS.load(Ordering::SeqCst)
}

/// Takes a signal of `set` that is held, the lowest first. In a section without handlers.
pub(super) fn take_held(set: u64) -> Option<Info> {
    if held() & set == 0 {
        return None;
    }
    let mut held = kumihimo_runtime::lock(&HELD);
    let of_set = held.iter().enumerate().filter(|(_, (signal, _))| bit(*signal) & set != 0);
    let (at, _) = of_set.min_by_key(|(_, (signal, _))| *signal)?;
    let (signal, Held(info)) = held.remove(at);
    if held.iter().all(|(own, _)| *own != signal) {
        HELD_BITS.fetch_and(!bit(signal), Ordering::SeqCst);
    }
    Some(info)
}

/// Gives what is held back to the kernel, as signals that the process has queued.
fn give_back(set: u64) {
    while let Some(info) = take_held(set) {
        queue_to_process(&info);
    }
}

/// Takes over what is held and that the calling thread, with this mask, has open.
pub(super) fn adopt(own: &Signals, mask: u64) {
    if held() & !mask != 0 {
        section::within(|| {
            while let Some(info) = take_held(!mask) {
                own.queue.add(info.si_signo, &info);
            }
        });
    }
}

/// The signals of a living microprocess that has `signal` open.
fn with_open<'a>(signal: c_int) -> Option<&'a Signals> {
    tls::numbered_blocks().find_map(|block| {
        // SAFETY: blocks are never freed.
        let record = unsafe { record::created(block as libc::pthread_t) }?;
        let signals = &record.signals;
        let is_meant = signals.is_alive() && signals.is_open(signal);
        is_meant.then_some(signals)
    })
}

/// The number of the thread that a timer's signal is for.
fn timer_thread(info: &Info) -> Option<u32> {
    if info.si_code != libc::SI_TIMER {
        return None;
    }
    // SAFETY: a timer's signal has its ID where others have the process; sigaction(2).
    let timer = unsafe { info.si_pid() };
    let timers = kumihimo_runtime::lock(&TIMERS);
    timers.iter().find(|(own, _)| *own == timer).map(|(_, number)| *number)
}

/// `sigev_notify_thread_id` of sigevent(3).
fn thread_of(event: &libc::sigevent) -> Option<u32> {
    (event.sigev_notify == libc::SIGEV_THREAD_ID)
        .then(|| event.sigev_notify_thread_id.cast_unsigned())
}

/// Replaces timer_create(2), for timers that signal a microprocess.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_timer_create(
    clock: libc::clockid_t,
    event: *mut libc::sigevent,
    to: *mut libc::timer_t,
) -> c_int {
    let listener = LISTENER.load(Ordering::SeqCst);
    // SAFETY: the caller's promise.
    let number = unsafe { event.as_ref() }.and_then(thread_of);
    let number = number.filter(|number| record::with_number(*number).is_some());
    let Some(number) = number.filter(|_| listener != 0) else {
        // SAFETY: as above.
        let done = unsafe { libc::timer_create(clock, event, to) };
        if done == 0 && listener != 0 {
            // SAFETY: written by the call.
            let timer = unsafe { *to }.addr() as c_int;
            section::within(|| kumihimo_runtime::lock(&TIMERS).retain(|(own, _)| *own != timer));
        }
        return done;
    };
    section::within(|| {
        // SAFETY: as above.
        let mut own = unsafe { *event };
        own.sigev_notify_thread_id = listener.cast_signed();
        // SAFETY: as above.
        let done = unsafe { libc::timer_create(clock, &raw mut own, to) };
        if done == 0 {
            // SAFETY: written by the call. The C library passes the kernel's ID.
            let timer = unsafe { *to }.addr() as c_int;
            let mut timers = kumihimo_runtime::lock(&TIMERS);
            timers.retain(|(own, _)| *own != timer);
            timers.push((timer, number));
            drop(timers);
            change(|| {
                TIMED.fetch_or(bit(own.sigev_signo), Ordering::SeqCst);
            });
        }
        done
    })
}

/// Replaces timer_delete(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_timer_delete(timer: libc::timer_t) -> c_int {
    section::within(|| {
        let mut timers = kumihimo_runtime::lock(&TIMERS);
        // A signal that it has sent before may be on its way: for nobody.
        if let Some((_, number)) = timers.iter_mut().find(|(own, _)| *own == timer.addr() as c_int)
        {
            *number = NOBODY;
        }
    });
    // SAFETY: the caller's promise.
    unsafe { libc::timer_delete(timer) }
}

/// Leaves these signals to the kernel, also those that are held: a descriptor reads them.
pub(crate) fn leave_to_descriptor(set: *const libc::sigset_t) {
    if !set.is_null() {
        // SAFETY: the caller's promise: a readable set.
        let set = unsafe { mask::word(set) };
        leave(set);
        section::within(|| give_back(set));
    }
}

/// The mask that a thread inherits from the caller, its creator.
pub(crate) fn mask_for_child() -> u64 {
    mask::of_caller()
}

/// Begins as a microprocess, the caller. Signals may have been sent to it already.
pub(crate) fn begin_thread() {
    let own = own_signals();
    let mask = mask::of_caller();
    own.mask.store(mask, Ordering::SeqCst);
    own.note_waiter();
    // SeqCst, as the look after it: a sender stores the signal and then asks for the waiter.
    own.is_alive.store(true, Ordering::SeqCst);
    note_open(!mask);
    adopt(own, mask);
    section::look(own);
}

/// Ends the calling thread's signals: what is pending goes with it.
pub(crate) fn end_thread() {
    let own = own_signals();
    own.is_alive.store(false, Ordering::SeqCst);
    own.depth.set(own.depth.get() + 1);
    own.queue.clear();
}

/// The child of a fork begins without signals that wait; fork(2).
pub(crate) fn forget() {
    own_signals().queue.clear();
}
