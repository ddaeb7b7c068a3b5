//! CPU profiler: copies the registers and the stack of kernel threads at random points of their own
//! CPU time.
//!
//! Each followed kernel thread has one of these. Both count the time in the kernel, too; a thread
//! that uses no CPU time costs nothing:
//!
//! - a task-clock perf event (`sigtrap`), as preemption has ([`crate::preempt::doorbell`]), where
//!   the kernel allows one that counts the time in the kernel (kernel.perf_event_paranoid=1, or
//!   CAP_PERFMON);
//! - otherwise a timer of its CPU clock (timer_create(2)), which needs no permission. The kernel
//!   checks these timers at its tick only, so a sample may follow a period of the program that is
//!   that of the tick.
//!
//! Both signals are sent when the thread returns to user mode, so that no system call ends early
//! (for timers: `CONFIG_POSIX_CPU_TIMERS_TASK_WORK`, Linux 5.9; before that, SA_RESTART restarts
//! most calls, signal(7)).
//!
//! The handler copies the stack, reads the CPU clock and sets the next interval, which varies at
//! random, so that it does not follow a period of the program. The weight of a sample is the CPU
//! time since the thread's previous one: the sum is exact. The profiling thread unwinds the copies.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::cell::UnsafeCell;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kumihimo_arch::descriptor::Descriptor;
use kumihimo_arch::kernel_attributes::{cpu_clock_of, cpu_time, cpu_time_of, tick};
use kumihimo_arch::{call, interrupted};
use kumihimo_backtrace::From;

use crate::preempt::doorbell;
use crate::preempt::thread_sampler::StackSample;
use crate::random;

/// The `si_value` of the timers' signals.
pub(crate) const PROFILE: u64 = 0x4b55_4d49_5052_4f46;
/// The upper half of the `si_perf_data` of the clocks' traps. The lower half is an index of
/// [`Run::clocks`].
const CLOCK_MARK: u64 = 0x4b55_4d50 << 32;
/// Number of threads that can have a clock; further ones have timers.
const CLOCKS: usize = 1024;
/// In [`Run::clocks`]: no clock.
const NONE: i32 = -1;
/// The offset in siginfo_t of `si_tid`, the number of the timer (asm-generic/siginfo.h, 64 bits).
const TIMER_AT: usize = 16;
/// The maximum number of bytes of the stack that are copied, from the innermost frame outwards.
const MOST: usize = 64 << 10;
/// The same where the end of the stack is unknown.
const UNKNOWN: usize = 16 << 10;
/// The maximum number of bytes of a name.
pub const NAME: usize = 47;
/// Number of intervals of CPU time without a sample after which a timer is started again: its
/// signal was discarded.
const SILENT: u64 = 8;
/// Longest wait for handlers that still write when the profiler ends.
const HANDLERS_END: Duration = Duration::from_secs(1);

const FREE: u32 = 0;
const WRITING: u32 = 1;
const WRITTEN: u32 = 2;

/// The running profiler's memory; null: none runs.
static RUN: AtomicPtr<Run> = AtomicPtr::new(std::ptr::null_mut());
/// Number of handlers that may use [`RUN`]'s memory.
static HANDLERS: AtomicUsize = AtomicUsize::new(0);

/// What a handler writes. All zeroes are a valid value.
struct RawSample {
    tid: u32,
    name_length: usize,
    name: [u8; NAME],
    cpu_time: u64,
    stack_pointer: usize,
    frame_pointer: usize,
    program_counter: usize,
    length: usize,
    bytes: [u8; MOST],
}

/// Room for one sample. A handler owns it from FREE to WRITTEN, the profiler from there to FREE.
struct Place {
    state: AtomicU32,
    sample: UnsafeCell<RawSample>,
}

// SAFETY: `state` hands the sample over, as described there.
unsafe impl Sync for Place {}

/// The memory that handlers use.
struct Run {
    places: Box<[Place]>,
    /// Mean of the interval, in nanoseconds.
    interval: u64,
    /// Mean time between the end of a timer's interval and the tick that finds it over.
    delay: u64,
    /// The descriptors of the clocks, or [`NONE`], or the [`paused`] numbers of stopped ones.
    clocks: [AtomicI32; CLOCKS],
    /// The IDs of the threads that have the clocks.
    owners: [AtomicU32; CLOCKS],
    /// Number of samples for which there was no place.
    lost: AtomicU64,
}

/// What interrupted the thread.
#[derive(Clone, Copy)]
pub(crate) enum Cause {
    /// The signal of a timer, with its number.
    Timer(i32),
    /// The trap of a clock, with its index.
    Clock(usize),
}

impl Cause {
    /// Returns the timer whose signal arrived.
    ///
    /// # Safety
    /// `info` is that of a signal of a timer.
    pub(crate) unsafe fn timer(info: *const libc::siginfo_t) -> Cause {
        // SAFETY: the caller guarantees it.
        Cause::Timer(unsafe { info.byte_add(TIMER_AT).cast::<i32>().read() })
    }

    /// Returns the clock whose trap carries `data`, if it is one of a profiler.
    pub(crate) fn clock(data: u64) -> Option<Cause> {
        (data >> 32 == CLOCK_MARK >> 32).then_some(Cause::Clock(data as u32 as usize))
    }
}

/// The microprocess whose stack a sample copies.
///
/// It may have ended when the sample is read, so its name is copied, too.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    /// Where its stack ends.
    pub stack_end: usize,
    /// The first bytes of its name, `name_length` of them.
    pub name: [u8; NAME],
    /// Length of the name in bytes; 0 if it has none.
    pub name_length: usize,
}

/// Records a sample of the calling thread and begins its next interval. Called in the handler;
/// `running` returns the microprocess that the thread runs, if this stack pointer is in its stack.
///
/// # Safety
/// `context` is that which the kernel passed to the handler.
pub(crate) unsafe fn record(
    cause: Cause,
    context: *const libc::ucontext_t,
    running: impl FnOnce(usize) -> Option<Running>,
) {
    // SeqCst on both sides: either the end of the profiler observes this handler, or the handler
    // observes the end.
    HANDLERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: null, or memory that is freed only after the handler has left.
    if let Some(run) = unsafe { RUN.load(Ordering::SeqCst).as_ref() } {
        // SAFETY: the caller guarantees the context.
        let at = unsafe { interrupted::position(context) };
        let used = cpu_time();
        run.record(at, used, running(at.stack_pointer));
        let _ = run.begin_interval(cause, used);
    }
    HANDLERS.fetch_sub(1, Ordering::SeqCst);
}

/// Stops the clock of the calling kernel thread `tid`, or starts it again. A trap that was due has
/// been delivered when this returns. execve(2) needs this, since the new program has no handler;
/// the signal of a timer is ignored by default.
pub(crate) fn pause(tid: u32, is: bool) {
    HANDLERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: as in `record`.
    if let Some(run) = unsafe { RUN.load(Ordering::SeqCst).as_ref() } {
        for (index, clock) in run.clocks.iter().enumerate() {
            if run.owners[index].load(Ordering::SeqCst) != tid {
                continue;
            }
            let fd = clock.load(Ordering::SeqCst);
            // First the number, so that the handler does not arm the clock again.
            if is && fd >= 0 {
                clock.store(paused(fd), Ordering::SeqCst);
                doorbell::disarm(fd);
            } else if !is && fd < NONE {
                clock.store(paused(fd), Ordering::SeqCst);
                let _ = run.begin_interval(Cause::Clock(index), cpu_time());
            }
        }
    }
    HANDLERS.fetch_sub(1, Ordering::SeqCst);
}

/// Converts the descriptor of a clock to the number of a stopped one, and back.
const fn paused(fd: i32) -> i32 {
    NONE - 1 - fd
}

/// Waits until no handler uses what it has read before. Returns false if a thread that gets no core
/// is in its handler.
fn handlers_leave() -> bool {
    let since = Instant::now();
    while HANDLERS.load(Ordering::SeqCst) != 0 {
        if since.elapsed() > HANDLERS_END {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

impl Run {
    fn new(places: usize, interval: u64) -> Run {
        let layout = Layout::array::<Place>(places).expect("some megabytes");
        // SAFETY: the layout is not empty. All zeroes are valid places, and the slice has the
        // layout of its box. Untouched pages cost no memory.
        let places = unsafe {
            let memory = alloc_zeroed(layout).cast::<Place>();
            if memory.is_null() {
                handle_alloc_error(layout);
            }
            Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, places))
        };
        Run {
            places,
            interval,
            delay: tick() / 2,
            clocks: [const { AtomicI32::new(NONE) }; CLOCKS],
            owners: [const { AtomicU32::new(0) }; CLOCKS],
            lost: AtomicU64::new(0),
        }
    }

    /// Begins an interval; `used` is the CPU time of its thread. Async-signal-safe.
    fn begin_interval(&self, cause: Cause, used: u64) -> io::Result<()> {
        let next = random::interval(used, self.interval);
        match cause {
            // Zero would stop the timer.
            Cause::Timer(id) => set_timer(id, next.saturating_sub(self.delay).max(1)),
            Cause::Clock(index) => match self.clocks.get(index).map(|fd| fd.load(Ordering::SeqCst))
            {
                None | Some(..=NONE) => Ok(()),
                Some(fd) => doorbell::set_period(fd, next).and_then(|()| doorbell::arm(fd)),
            },
        }
    }

    /// Async-signal-safe.
    fn record(&self, at: interrupted::Position, cpu_time: u64, running: Option<Running>) {
        let claim = |place: &&Place| {
            let state = &place.state;
            state.compare_exchange(FREE, WRITING, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let Some(place) = self.places.iter().find(claim) else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        // SAFETY: this handler has changed the state to WRITING.
        let sample = unsafe { &mut *place.sample.get() };
        // SAFETY: takes no argument.
        sample.tid = unsafe { call!(libc::SYS_gettid) } as u32;
        sample.name_length = 0;
        if let Some(running) = &running {
            sample.name = running.name;
            sample.name_length = running.name_length.min(NAME);
        }
        sample.cpu_time = cpu_time;
        sample.stack_pointer = at.stack_pointer;
        sample.frame_pointer = at.frame_pointer;
        sample.program_counter = at.program_counter;
        // Not beyond the stack: the kernel would map untouched pages of the next one.
        let rest = running.and_then(|one| one.stack_end.checked_sub(at.stack_pointer));
        let bytes = &mut sample.bytes[..rest.unwrap_or(UNKNOWN).min(MOST)];
        sample.length = kumihimo_backtrace::copy(at.stack_pointer, bytes);
        place.state.store(WRITTEN, Ordering::Release);
    }
}

/// Starts a timer, for one signal after `nanoseconds`. Async-signal-safe.
fn set_timer(timer: i32, nanoseconds: u64) -> io::Result<()> {
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let time = libc::itimerspec {
        it_interval: zero,
        it_value: libc::timespec {
            tv_sec: (nanoseconds / 1_000_000_000).cast_signed(),
            tv_nsec: (nanoseconds % 1_000_000_000).cast_signed(),
        },
    };
    // SAFETY: a live itimerspec; the kernel checks the number.
    let done = unsafe { call!(libc::SYS_timer_settime, timer, 0, &raw const time, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A kernel thread that is followed.
struct Followed {
    tid: u32,
    /// CPU time of the thread up to which samples have been counted.
    counted: u64,
    is_there: bool,
    means: Means,
}

/// What interrupts a followed thread.
enum Means {
    Timer(Timer),
    /// Its index and its descriptor.
    Clock(usize, Descriptor),
}

impl Means {
    fn cause(&self) -> Cause {
        match self {
            Means::Timer(timer) => Cause::Timer(timer.0),
            Means::Clock(index, _) => Cause::Clock(*index),
        }
    }
}

/// A timer of one kernel thread's CPU clock. Deleted when it is dropped.
struct Timer(i32);

impl Timer {
    fn create(tid: u32, signal: i32) -> io::Result<Timer> {
        // SAFETY: all zeros is a valid sigevent.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_value.sival_ptr = std::ptr::without_provenance_mut(PROFILE as usize);
        event.sigev_notify_thread_id = tid.cast_signed();
        let mut id = 0i32;
        // SAFETY: a live sigevent, and a place for the number.
        let done = unsafe {
            call!(libc::SYS_timer_create, cpu_clock_of(tid), &raw const event, &raw mut id)
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(Timer(id)) }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the number of this timer, which nothing else deletes.
        unsafe { call!(libc::SYS_timer_delete, self.0) };
    }
}

/// A sample of a running kernel thread.
#[derive(Debug)]
pub struct CpuSample {
    /// The copy of its stack.
    pub stack: StackSample,
    /// The name of the microprocess whose stack it is, truncated to [`NAME`] bytes; empty if it has
    /// no name, or if it is the stack of a kernel thread.
    pub name: String,
    /// CPU time of the thread since its previous sample, in nanoseconds.
    pub cpu_time: u64,
}

/// A running profiler. A process has at most one.
pub struct CpuProfiler {
    signal: i32,
    /// Whether the kernel allows clocks.
    has_clocks: bool,
    followed: Vec<Followed>,
}

impl CpuProfiler {
    /// Starts a profiler without threads, for whose signals handlers are installed. `None` if
    /// another one runs.
    pub(crate) fn start(
        signal: i32,
        has_clocks: bool,
        interval: Duration,
        places: usize,
    ) -> Option<CpuProfiler> {
        let interval = (interval.as_nanos() as u64).max(1);
        let run = Box::into_raw(Box::new(Run::new(places.max(1), interval)));
        let none = std::ptr::null_mut();
        if RUN.compare_exchange(none, run, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            // SAFETY: made above, and published nowhere.
            drop(unsafe { Box::from_raw(run) });
            return None;
        }
        Some(CpuProfiler { signal, has_clocks, followed: Vec::new() })
    }

    fn run(&self) -> &Run {
        // SAFETY: stored by `start`, and freed by `drop` only.
        unsafe { &*RUN.load(Ordering::Acquire) }
    }

    /// Follows exactly these kernel threads from now on.
    ///
    /// # Errors
    /// The kernel's refusal of a timer for a thread that lives.
    pub fn follow(&mut self, threads: impl Iterator<Item = u32>) -> io::Result<()> {
        self.followed.iter_mut().for_each(|one| one.is_there = false);
        for tid in threads {
            if let Some(at) = self.followed.iter().position(|one| one.tid == tid) {
                let one = &mut self.followed[at];
                one.is_there = true;
                let (used, cause) = (cpu_time_of(tid).unwrap_or(0), one.means.cause());
                if used.saturating_sub(one.counted) > self.run().interval * SILENT {
                    let _ = self.run().begin_interval(cause, used);
                }
                continue;
            }
            let counted = cpu_time_of(tid).unwrap_or(0);
            match self.means_for(tid) {
                Ok(means) => {
                    self.run().begin_interval(means.cause(), counted)?;
                    self.followed.push(Followed { tid, counted, is_there: true, means });
                }
                // The thread has ended.
                Err(_) if cpu_time_of(tid).is_none() => {}
                Err(e) => return Err(e),
            }
        }
        let (there, gone) = self.followed.drain(..).partition(|one| one.is_there);
        self.followed = there;
        self.forget(gone);
        Ok(())
    }

    fn means_for(&self, tid: u32) -> io::Result<Means> {
        let clocks = &self.run().clocks;
        let is_free = |fd: &AtomicI32| fd.load(Ordering::Relaxed) == NONE;
        if let (true, Some(index)) = (self.has_clocks, clocks.iter().position(is_free)) {
            // On failure (no descriptor is left, for example), a timer will do.
            if let Ok(fd) = doorbell::full_clock(tid.cast_signed(), CLOCK_MARK | index as u64) {
                self.run().owners[index].store(tid, Ordering::SeqCst);
                clocks[index].store(fd.as_raw_fd(), Ordering::SeqCst);
                return Ok(Means::Clock(index, fd));
            }
        }
        Timer::create(tid, self.signal).map(Means::Timer)
    }

    /// Deletes timers and clocks.
    fn forget(&self, gone: Vec<Followed>) {
        let mut has_clocks = false;
        for one in &gone {
            if let Means::Clock(index, _) = &one.means {
                self.run().owners[*index].store(0, Ordering::SeqCst);
                self.run().clocks[*index].store(NONE, Ordering::SeqCst);
                has_clocks = true;
            }
        }
        // Otherwise a handler would use a descriptor that may be another file by then.
        if has_clocks && !handlers_leave() {
            std::mem::forget(gone);
            return;
        }
        for one in &gone {
            if let Means::Clock(_, fd) = &one.means {
                // The event outlives this descriptor in a child of fork(2).
                doorbell::disarm(fd.as_raw_fd());
            }
        }
    }

    /// Takes the samples since the last call.
    pub fn take(&mut self) -> Vec<CpuSample> {
        let mut raw = Vec::new();
        for place in self.run().places.iter() {
            if place.state.load(Ordering::Acquire) != WRITTEN {
                continue;
            }
            // SAFETY: WRITTEN: the sample belongs to the profiler.
            let sample = unsafe { &*place.sample.get() };
            let from = From::Interrupted {
                stack_pointer: sample.stack_pointer,
                frame_pointer: sample.frame_pointer,
                pc: sample.program_counter,
            };
            let stack = StackSample::new(from, &sample.bytes[..sample.length]);
            let name = String::from_utf8_lossy(&sample.name[..sample.name_length]).into_owned();
            raw.push((sample.cpu_time, sample.tid, name, stack));
            place.state.store(FREE, Ordering::Release);
        }
        // Each thread's samples in their order.
        raw.sort_by_key(|(cpu_time, ..)| *cpu_time);
        let weigh = |(cpu_time, tid, name, stack)| {
            // A thread that has left the pool is not followed any more.
            let thread = self.followed.iter_mut().find(|one| one.tid == tid)?;
            let before = std::mem::replace(&mut thread.counted, cpu_time);
            let cpu_time = cpu_time.saturating_sub(before);
            Some(CpuSample { stack, name, cpu_time })
        };
        raw.into_iter().filter_map(weigh).collect()
    }

    /// Returns the number of samples for which there was no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.run().lost.load(Ordering::Relaxed)
    }
}

impl Drop for CpuProfiler {
    fn drop(&mut self) {
        let followed = std::mem::take(&mut self.followed);
        self.forget(followed);
        let run = RUN.swap(std::ptr::null_mut(), Ordering::SeqCst);
        if handlers_leave() {
            // SAFETY: made by `start`; no handler uses it, and later ones find null.
            drop(unsafe { Box::from_raw(run) });
        }
    }
}

#[cfg(test)]
mod tests;
