//! Doorbell: interrupts a kernel thread in user mode to deliver *Preempted* and *Changed*.
//!
//! [`Kernel::raise`](crate::Kernel::raise) sets a bit in the carrier's slot. That suffices for a
//! carrier that enters the user scheduler soon. For any other, `raise` also rings the carrier's
//! *doorbell*, by one of these means:
//!
//! - **clock**: a task-clock perf event (`sigtrap`), armed for one overflow by
//!   `PERF_EVENT_IOC_REFRESH` (perf_event_open(2)). It overflows after ten microseconds of the
//!   kernel thread's own CPU time. The trap is delivered only in user mode, after a system call
//!   instead of during it, so no call ends early (measured: 0 of 2,756).
//! - **signal**: `rt_tgsigqueueinfo(2)`, where the kernel refuses perf events. The signal
//!   interrupts system calls. SA_RESTART restarts most of them, but epoll_wait, nanosleep and
//!   others end with EINTR (signal(7)), and a write that has transferred some bytes returns a short
//!   count.
//! - **off**: only the bit, which is checked at switch points. Always used with the event source
//!   `off`. Without events, a microprocess that is preempted while it holds a lock would hold up
//!   its virtual processor for ever. No event would report that the next microprocess waits for
//!   that lock.
//!
//! The signal handler calls the user scheduler
//! ([`UserScheduler::interrupted`](crate::sched::UserScheduler::interrupted)), which may inject a
//! call into the interrupted code. If no call can be injected at this instruction, the handler
//! rearms the clock a few times. After that, the timekeeper
//! ([`UserScheduler::tick`](crate::sched::UserScheduler::tick)) rings again.
//!
//! A kernel thread gets its clock when it is preempted for the first time. Most threads never are,
//! and each clock costs a descriptor.

use std::fmt;
use std::io;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kumihimo_arch::descriptor::{Descriptor, close_anonymous};

use crate::handoff::slot::Slot;
use crate::linux::debugger::is_debugged;
use crate::linux::perf_event::{self, Software};
use crate::preempt::signal_handler::{self, Handlers};
use crate::report::stderr_signal_safe::print_signal_safe;
use crate::report::unavailable::Unavailable;
use crate::source::Kind;

/// The `si_perf_data` of our preemption traps, and the `si_value` of our preemption signals.
pub const DOORBELL: u64 = 0x4b55_4d49_4245_4c4c;
/// The shortest period that the kernel accepts for a clock, in nanoseconds (kernel/events/core.c,
/// `perf_swevent_start_hrtimer`).
const PERIOD: u64 = 10_000;
/// The period of a clock that excludes the kernel, in nanoseconds. The timer of such a clock
/// expires again and again until it finds the thread in user mode. On a virtual machine an
/// interrupt may take 10 us. With a period as short as that, a thread that runs in the kernel makes
/// no progress for seconds.
const PERIOD_IN_USER_MODE: u64 = 50_000;
/// In `Doorbells::clocks`: the thread has no clock yet.
const NONE: i32 = -1;

/// The means of interrupting a kernel thread.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{Preemption, Runtime, metrics};
///
/// // Only switch points are places where a microprocess gives way.
/// let runtime = Runtime::builder().preemption(Preemption::Off).build()?;
/// assert_eq!(runtime.run(|| metrics().unwrap().preemption), "off");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// A perf event of the task clock.
    Clock,
    /// The signal of this number.
    Signal(i32),
    /// None.
    Off,
}

/// The default preemption signal, SIGURG. Its default action is to be ignored, and few programs use
/// it. Go's runtime uses it for the same reasons (runtime/signal_unix.go).
pub const DEFAULT_SIGNAL: i32 = kumihimo_config::DEFAULT_PREEMPT_SIGNAL;

impl Means {
    /// Parses `clock`, `off`, `signal`, or `signal=N` with the number of a signal.
    ///
    /// # Errors
    /// The text and the allowed values, if `text` is none of these.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Preemption;
    ///
    /// assert_eq!(Preemption::from_name("signal=12"), Ok(Preemption::Signal(12)));
    /// assert!(Preemption::from_name("signal=9").is_err(), "SIGKILL cannot be caught");
    /// ```
    pub fn from_name(text: &str) -> Result<Means, String> {
        let asked = kumihimo_config::Preempt::parse(text).map(Means::from);
        asked.ok_or_else(|| format!("{text:?}: expected {}", kumihimo_config::Preempt::ALLOWED))
    }
}

/// Converts the value of `KUMI_PREEMPT`.
impl From<kumihimo_config::Preempt> for Means {
    fn from(asked: kumihimo_config::Preempt) -> Means {
        match asked {
            kumihimo_config::Preempt::Clock => Means::Clock,
            kumihimo_config::Preempt::Signal(number) => Means::Signal(number),
            kumihimo_config::Preempt::Off => Means::Off,
        }
    }
}

impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Means::Clock => f.write_str("clock"),
            Means::Signal(number) => write!(f, "signal={number}"),
            Means::Off => f.write_str("off"),
        }
    }
}

/// Opens a clock on the calling kernel thread and closes it again.
///
/// # Errors
/// The reason why the kernel refuses a clock, and the setting that would allow it.
pub fn probe() -> Result<(), Unavailable> {
    clock(0, ClockScope::UserMode).map(drop).map_err(|e| {
        Unavailable::new(
            format!("perf_event_open of a task clock with sigtrap: {e}"),
            "Linux 5.13 or later and sysctl kernel.perf_event_paranoid=2 (or CAP_PERFMON); until then preemption uses a signal, which may \
             interrupt system calls",
        )
    })
}

/// Chooses the means of preemption of a runtime with event source `source`; `wanted` is the
/// requested one. Also returns the reason if the means is `off`.
///
/// # Errors
/// `Unsupported` if a clock was requested and [`probe`] fails.
pub fn choose(wanted: Option<Means>, source: Kind) -> io::Result<(Means, Option<&'static str>)> {
    Ok(match wanted {
        _ if source == Kind::Off => {
            (Means::Off, Some("the event source is off, which disables preemption"))
        }
        Some(Means::Clock) => {
            probe().map_err(|refused| {
                io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!("preemption by clock (KUMI_PREEMPT): {refused}"),
                )
            })?;
            (Means::Clock, None)
        }
        Some(Means::Off) => (Means::Off, Some("KUMI_PREEMPT=off")),
        Some(means) => (means, None),
        // A debugger would stop at each trap and at each signal.
        None if is_debugged() => (Means::Off, Some("a debugger is attached")),
        None if probe().is_ok() => (Means::Clock, None),
        None => (Means::Signal(DEFAULT_SIGNAL), None),
    })
}

/// The CPU time that a clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClockScope {
    /// Time in user mode and in the kernel. Unprivileged processes may use it only if
    /// kernel.perf_event_paranoid is below 2.
    Everywhere,
    /// Time in user mode.
    UserMode,
}

impl ClockScope {
    const fn period(self) -> u64 {
        match self {
            ClockScope::Everywhere => PERIOD,
            ClockScope::UserMode => PERIOD_IN_USER_MODE,
        }
    }
}

/// The doorbells of the pool's kernel threads.
#[derive(Debug)]
pub(crate) struct Doorbells {
    means: Means,
    handlers: Handlers,
    scope: ClockScope,
    /// By slot: the descriptor of its clock, or [`NONE`].
    clocks: Box<[AtomicI32]>,
    /// By slot: whether interruptions are disabled, because the thread is in execve(2), whose new
    /// program has no handler.
    disabled: Box<[AtomicBool]>,
    /// By slot: held while its doorbell is rung or closed. Meanwhile the kernel thread exists and
    /// owns the descriptor.
    ring_locks: Box<[Mutex<()>]>,
    pub(crate) rung: AtomicU64,
    pub(crate) failed: AtomicU64,
    reported: AtomicBool,
}

impl Doorbells {
    /// Creates the doorbells of slots 1 to `slots`, beside an event source of `kind`. Uses the
    /// means `wanted`, or the best available one, and installs the handler for it.
    pub(crate) fn open(
        wanted: Option<Means>,
        kind: Kind,
        slots: u32,
        handlers: Handlers,
    ) -> io::Result<Doorbells> {
        let (means, _) = choose(wanted, kind)?;
        match means {
            Means::Clock => signal_handler::install(libc::SIGTRAP, handlers.trap)?,
            Means::Signal(signal) => signal_handler::install(signal, handlers.signal)?,
            Means::Off => {}
        }
        let clocks = if means == Means::Clock { slots as usize + 1 } else { 0 };
        let is_allowed = means == Means::Clock && clock(0, ClockScope::Everywhere).is_ok();
        Ok(Doorbells {
            means,
            handlers,
            scope: if is_allowed { ClockScope::Everywhere } else { ClockScope::UserMode },
            clocks: (0..clocks).map(|_| AtomicI32::new(NONE)).collect(),
            disabled: (0..=slots).map(|_| AtomicBool::new(false)).collect(),
            ring_locks: (0..=slots).map(|_| Mutex::default()).collect(),
            rung: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            reported: AtomicBool::new(false),
        })
    }

    pub(crate) fn means(&self) -> Means {
        self.means
    }

    fn lock(&self, index: u32) -> MutexGuard<'_, ()> {
        self.ring_locks[index as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Interrupts the kernel thread of slot `index` soon, if it runs in user mode. Takes a lock:
    /// the caller is masked, or is a handler that has not interrupted a holder of this lock.
    pub(crate) fn ring(&self, index: u32, slot: &Slot) {
        if self.means == Means::Off {
            return;
        }
        let _alive = self.lock(index);
        let tid = slot.tid.load(Ordering::Relaxed) as i32;
        if tid == 0 {
            return;
        }
        let done = match self.means {
            // Without our handler, the application would receive the signal.
            _ if !self.has_handler() || self.is_disabled(index) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            Means::Clock => self.clock_of(index, tid).and_then(arm),
            Means::Signal(signal) => send(signal, tid, DOORBELL),
            Means::Off => Ok(()),
        };
        // On failure (no descriptor is left, for example), the thread is preempted at its next
        // switch point.
        let count = if done.is_ok() { &self.rung } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends the preemption signal with `value` to kernel thread `tid`, if `slot`, number `index`,
    /// still belongs to that thread. If the means is no signal, sends the default one. For
    /// [`crate::thread_sampler`].
    pub(crate) fn send_to(&self, index: u32, slot: &Slot, tid: i32, value: u64) -> io::Result<()> {
        let signal = if let Means::Signal(signal) = self.means { signal } else { DEFAULT_SIGNAL };
        signal_handler::install(signal, self.handlers.signal)?;
        let _alive = self.lock(index);
        if slot.tid.load(Ordering::Relaxed) as i32 != tid || !signal_handler::is_installed(signal) {
            return Err(io::ErrorKind::NotFound.into());
        }
        send(signal, tid, value)
    }

    /// Installs the handlers for a profile. Returns the signal of CPU timers, and whether the
    /// kernel allows clocks that count the time in the kernel, too.
    ///
    /// # Errors
    /// `Unsupported` if the program has replaced the handler; otherwise those of sigaction(2).
    pub(crate) fn prepare_profile(&self) -> io::Result<(i32, bool)> {
        let signal = if let Means::Signal(signal) = self.means { signal } else { DEFAULT_SIGNAL };
        // A debugger would stop at each trap.
        let has_clocks = !is_debugged()
            && full_clock(0, DOORBELL).is_ok()
            && signal_handler::install(libc::SIGTRAP, self.handlers.trap).is_ok()
            && signal_handler::is_installed(libc::SIGTRAP);
        signal_handler::install(signal, self.handlers.signal)?;
        if has_clocks || signal_handler::is_installed(signal) {
            return Ok((signal, has_clocks));
        }
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "the program has replaced the runtime's handler of signal {signal}, which takes samples: choose another signal (KUMI_PREEMPT=signal=N)"
            ),
        ))
    }

    /// Returns whether our handler is installed, and reports once that it was replaced.
    fn has_handler(&self) -> bool {
        let ours = match self.means {
            Means::Clock => signal_handler::is_installed(libc::SIGTRAP),
            Means::Signal(signal) => signal_handler::is_installed(signal),
            Means::Off => true,
        };
        if !ours && !self.reported.swap(true, Ordering::Relaxed) {
            let (means, sigtrap) =
                (self.means, if self.means == Means::Clock { ", SIGTRAP" } else { "" });
            print_signal_safe(format_args!(
                "kumihimo: the preemption signal ({means}{sigtrap}) was given another handler after the runtime started: microprocesses give way at \
                 switch points only; install such a handler before, and it gets its own signals, or choose another (KUMI_PREEMPT=signal=N)\n"
            ));
        }
        ours
    }

    fn clock_of(&self, index: u32, tid: i32) -> io::Result<i32> {
        let place = &self.clocks[index as usize];
        let fd = place.load(Ordering::Relaxed);
        if fd != NONE {
            return Ok(fd);
        }
        let fd = clock(tid, self.scope)?.into_raw_fd();
        // Release: the handler on that kernel thread reads it.
        place.store(fd, Ordering::Release);
        Ok(fd)
    }

    /// Rings the doorbell after `nanoseconds` of the thread's own CPU time. Called by the kernel
    /// thread of slot `index` itself. Takes a lock, as [`ring`](Doorbells::ring) does.
    pub(crate) fn ring_after(&self, index: u32, slot: &Slot, nanoseconds: u64) {
        if self.means != Means::Clock || !self.has_handler() || self.is_disabled(index) {
            return;
        }
        let _alive = self.lock(index);
        // On failure, only the timekeeper rings.
        let _ = self.clock_of(index, slot.tid.load(Ordering::Relaxed) as i32).and_then(|fd| {
            set_period(fd, nanoseconds)?;
            arm(fd)
        });
    }

    /// Rearms the clock to ring after `nanoseconds`. Returns false if there is no clock. Called by
    /// the kernel thread of slot `index` itself. Async-signal-safe.
    pub(crate) fn rearm_after(&self, index: u32, nanoseconds: u64) -> bool {
        let fd = self.clocks.get(index as usize).map_or(NONE, |fd| fd.load(Ordering::Acquire));
        fd != NONE
            && !self.is_disabled(index)
            && set_period(fd, nanoseconds).and_then(|()| arm(fd)).is_ok()
    }

    /// Restores the usual period after [`rearm_after`](Doorbells::rearm_after). Called by the
    /// kernel thread of slot `index` itself. Async-signal-safe.
    pub(crate) fn restore_period(&self, index: u32) {
        let fd = self.clocks.get(index as usize).map_or(NONE, |fd| fd.load(Ordering::Acquire));
        if fd != NONE {
            let _ = set_period(fd, self.scope.period());
        }
    }

    fn is_disabled(&self, index: u32) -> bool {
        self.disabled[index as usize].load(Ordering::Relaxed)
    }

    /// Disables or enables interruptions of the kernel thread of slot `index`, which calls this
    /// itself. An earlier ring has been delivered when this returns. Takes a lock, as
    /// [`ring`](Doorbells::ring) does.
    pub(crate) fn set_disabled(&self, index: u32, is: bool) {
        let _ringing = self.lock(index);
        self.disabled[index as usize].store(is, Ordering::Relaxed);
        let fd = self.clocks.get(index as usize).map_or(NONE, |fd| fd.load(Ordering::Relaxed));
        if is && fd != NONE {
            disarm(fd);
        }
    }

    /// Closes the clock of the kernel thread of slot `index`, which will have no VP for long.
    /// Returns false and keeps the clock while another thread rings this doorbell. Called by that
    /// kernel thread. Async-signal-safe.
    pub(crate) fn close(&self, index: u32) -> bool {
        if self.clocks.get(index as usize).is_none_or(|fd| fd.load(Ordering::Relaxed) == NONE) {
            return true;
        }
        let Ok(_alive) = self.ring_locks[index as usize].try_lock() else { return false };
        self.close_clock(index);
        true
    }

    fn close_clock(&self, index: u32) {
        let fd =
            self.clocks.get(index as usize).map_or(NONE, |fd| fd.swap(NONE, Ordering::Relaxed));
        if fd != NONE {
            // Disarm first: the event outlives this descriptor in a child of fork(2) that has
            // inherited it, until the child's execve(2).
            disarm(fd);
            // SAFETY: the descriptor belongs to this slot and is unused: a ringing thread holds the
            // lock, and the handler runs on this kernel thread.
            unsafe { close_anonymous(fd) };
        }
    }

    /// Retires the doorbell of the kernel thread of slot `index`, which calls this at its end.
    /// Afterwards no other thread rings it, or mistakes its thread ID for that of a carrier.
    pub(crate) fn retire(&self, index: u32, slot: &Slot) {
        let _alive = self.lock(index);
        slot.tid.store(0, Ordering::Relaxed);
        self.close_clock(index);
    }
}

impl Drop for Doorbells {
    fn drop(&mut self) {
        for fd in &self.clocks {
            let fd = fd.load(Ordering::Relaxed);
            if fd != NONE {
                // The descriptor stays open: its kernel thread has not ended and closed it. While a
                // trap is pending for that thread, the last close(2) would wait for the thread
                // (kernel/events/core.c, `perf_pending_task_sync`).
                disarm(fd);
            }
        }
    }
}

/// Opens a clock of kernel thread `tid` (0: the caller), unarmed.
fn clock(tid: i32, scope: ClockScope) -> io::Result<Descriptor> {
    clock_with(tid, scope, DOORBELL)
}

/// Opens a clock that counts the time in the kernel, too, and whose traps carry `data`. For
/// [`super::cpu_profiler`].
pub(super) fn full_clock(tid: i32, data: u64) -> io::Result<Descriptor> {
    clock_with(tid, ClockScope::Everywhere, data)
}

fn clock_with(tid: i32, scope: ClockScope, data: u64) -> io::Result<Descriptor> {
    let excluded = if scope == ClockScope::UserMode { perf_event::EXCLUDE_KERNEL } else { 0 };
    perf_event::open(
        Software {
            config: perf_event::TASK_CLOCK,
            period: scope.period(),
            flags: perf_event::DISABLED
                | excluded
                | perf_event::EXCLUDE_HV
                | perf_event::REMOVE_ON_EXEC
                | perf_event::SIGTRAP,
            sig_data: data,
            ..Software::default()
        },
        tid,
    )
}

/// Arms a clock for one overflow.
pub(super) fn arm(fd: i32) -> io::Result<()> {
    const PERF_EVENT_IOC_REFRESH: libc::Ioctl = 0x2402;
    // SAFETY: this request takes an integer.
    if unsafe { libc::ioctl(fd, PERF_EVENT_IOC_REFRESH, 1) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Disarms a clock. An overflow that has already occurred is reported when the system call returns.
pub(super) fn disarm(fd: i32) {
    const PERF_EVENT_IOC_DISABLE: libc::Ioctl = 0x2401;
    // SAFETY: this request takes an integer.
    unsafe { libc::ioctl(fd, PERF_EVENT_IOC_DISABLE, 0) };
}

pub(super) fn set_period(fd: i32, nanoseconds: u64) -> io::Result<()> {
    const PERF_EVENT_IOC_PERIOD: libc::Ioctl = 0x4008_2404;
    // SAFETY: this request reads 8 live bytes.
    if unsafe { libc::ioctl(fd, PERF_EVENT_IOC_PERIOD, &raw const nanoseconds) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sends `signal` with `value` to kernel thread `tid` of this process.
fn send(signal: i32, tid: i32, value: u64) -> io::Result<()> {
    // siginfo_t as rt_sigqueueinfo(2) expects it: si_signo, si_errno, si_code, si_pid, si_uid,
    // si_value.
    #[repr(C)]
    struct Info {
        signal: i32,
        errno: i32,
        code: i32,
        pad: i32,
        pid: i32,
        uid: u32,
        value: u64,
        rest: [u64; 12],
    }
    const { assert!(size_of::<Info>() == 128) };
    // SAFETY: these calls take no arguments and cannot fail.
    let (pid, uid) = unsafe { (libc::getpid(), libc::getuid()) };
    let info =
        Info { signal, errno: 0, code: libc::SI_QUEUE, pad: 0, pid, uid, value, rest: [0; 12] };
    // SAFETY: a live siginfo_t of the size that the kernel reads.
    let done = unsafe {
        kumihimo_arch::call!(libc::SYS_rt_tgsigqueueinfo, pid, tid, signal, &raw const info)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
