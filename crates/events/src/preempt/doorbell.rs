//! *Preempted* and *Changed* where the running microprocess does not look: the kernel thread is
//! interrupted in user mode.
//!
//! [`Kernel::raise`](crate::Kernel::raise) sets a bit in the carrier's slot, which is enough for
//! one that enters the user scheduler soon, and rings its *doorbell*:
//!
//! - **clock**: a task-clock perf event (`sigtrap`), armed for one overflow by
//!   `PERF_EVENT_IOC_REFRESH`. Ten microseconds of the kernel thread's own time later it overflows,
//!   and the trap comes in user mode only: after a system call, not within, so no call ends early
//!   (measured: 0 of 2,756).
//! - **signal**: `rt_tgsigqueueinfo(2)`, where perf refuses. It interrupts system calls:
//!   SA_RESTART lets most go on, but not epoll_wait, nanosleep and the like (EINTR), nor a write
//!   that has moved some bytes (short).
//! - **off**: the bit alone, seen at switch points. With event source `off` always: one that is
//!   preempted holding a lock would hold up its virtual processor for ever, since nobody is told
//!   that the next one waits for the lock.
//!
//! The handler asks the user scheduler
//! ([`UserScheduler::interrupted`](crate::sched::UserScheduler::interrupted)), which may inject a
//! call into what was interrupted. Not everywhere: then the clock is armed again, a few times, and
//! later by the timekeeper ([`UserScheduler::tick`](crate::sched::UserScheduler::tick)).
//!
//! A kernel thread gets its clock when it is preempted for the first time: most never are, and each
//! costs a descriptor.

use std::fmt;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::handoff::slot::Slot;
use crate::linux::debugger::is_debugged;
use crate::linux::perf_event::{self, Software};
use crate::preempt::signal_handler::{self, Handlers};
use crate::report::stderr_signal_safe::print_signal_safe;
use crate::report::unavailable::Unavailable;
use crate::source::Kind;

/// `si_perf_data` of our preemption traps, `si_value` of our preemption signals.
pub const DOORBELL: u64 = 0x4b55_4d49_4245_4c4c;
/// The least that the kernel takes for a clock of its own timer (kernel/events/core.c,
/// `perf_swevent_start_hrtimer`), nanoseconds.
const PERIOD: u64 = 10_000;
/// The same of a clock that excludes the kernel. Its timer goes on until it finds user mode, every
/// ten microseconds; where an interruption costs as much (it does on virtual machines) a kernel
/// thread that is on its way through the kernel then gets nowhere, for seconds.
const PERIOD_IN_USER_MODE: u64 = 50_000;
/// No clock yet.
const NONE: i32 = -1;

/// How a kernel thread is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// A perf event of the task clock.
    Clock,
    /// A signal, of this number.
    Signal(i32),
    /// Not at all.
    Off,
}

/// The preemption signal where nobody says otherwise: ignored by default, and hardly used (Go took
/// it for the same reasons).
pub const DEFAULT_SIGNAL: i32 = kumihimo_config::DEFAULT_PREEMPT_SIGNAL;

impl Means {
    /// `clock`, `off`, `signal`, or `signal=N` with the number of a signal.
    ///
    /// # Errors
    /// What is wanted instead.
    pub fn from_name(text: &str) -> Result<Means, String> {
        let asked = kumihimo_config::Preempt::parse(text).map(Means::from);
        asked.ok_or_else(|| format!("{text:?}: expected {}", kumihimo_config::Preempt::ALLOWED))
    }
}

/// As `KUMI_PREEMPT` asks.
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

/// Tries a clock on the calling kernel thread.
///
/// # Errors
/// Why there is none, and what would allow it.
pub fn probe() -> Result<(), Unavailable> {
    clock(0, ClockScope::UserMode).map(drop).map_err(|e| {
        Unavailable::new(
            format!("perf_event_open of a task clock with sigtrap: {e}"),
            "Linux 5.13 or later and sysctl kernel.perf_event_paranoid=2 (or CAP_PERFMON); until then a signal preempts, which may \
             interrupt system calls",
        )
    })
}

/// The means of preemption that a runtime with event source `source` uses, where `wanted` was asked
/// for, and why there is none if it is `off`.
///
/// # Errors
/// `Unsupported`: a clock was asked for, and [`probe`] refuses it.
pub fn choose(wanted: Option<Means>, source: Kind) -> io::Result<(Means, Option<&'static str>)> {
    Ok(match wanted {
        _ if source == Kind::Off => {
            (Means::Off, Some("the event source is off, and preemption with it"))
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
        // A debugger stops at each trap, and at each signal.
        None if is_debugged() => (Means::Off, Some("a debugger is attached")),
        None if probe().is_ok() => (Means::Clock, None),
        None => (Means::Signal(DEFAULT_SIGNAL), None),
    })
}

/// The CPU time that a clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClockScope {
    /// At once, wherever its kernel thread is. Refused to the unprivileged where
    /// kernel.perf_event_paranoid is 2 or more.
    Everywhere,
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

/// The doorbells of a kernel's kernel threads.
#[derive(Debug)]
pub(crate) struct Doorbells {
    means: Means,
    handlers: Handlers,
    scope: ClockScope,
    /// By slot: the descriptor of its clock.
    clocks: Box<[AtomicI32]>,
    /// By slot: whether interruptions are disabled, because the thread is in execve(2), whose new
    /// program has no handler.
    disabled: Box<[AtomicBool]>,
    /// Held while a doorbell is rung or closed: the kernel thread is alive meanwhile and owns the
    /// descriptor.
    ring_lock: Mutex<()>,
    pub(crate) rung: AtomicU64,
    pub(crate) failed: AtomicU64,
    reported: AtomicBool,
}

impl Doorbells {
    /// For slots 1 to `slots`, beside an event source of `kind`; `wanted`, or the best there is.
    /// Installs one of `handlers`.
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
            ring_lock: Mutex::default(),
            rung: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            reported: AtomicBool::new(false),
        })
    }

    pub(crate) fn means(&self) -> Means {
        self.means
    }

    /// Interrupts the kernel thread of slot `index` soon, if it runs in user mode. Takes a lock:
    /// masked, or in a handler that has interrupted no holder of it.
    pub(crate) fn ring(&self, index: u32, slot: &Slot) {
        if self.means == Means::Off {
            return;
        }
        let _alive = self.ring_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let tid = slot.tid.load(Ordering::Relaxed) as i32;
        if tid == 0 {
            return;
        }
        let done = match self.means {
            // The application would get it.
            _ if !self.has_handler() || self.is_disabled(index) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            Means::Clock => self.clock_of(index, tid).and_then(arm),
            Means::Signal(signal) => send(signal, tid, DOORBELL),
            Means::Off => Ok(()),
        };
        // Without (no descriptor left, say) it is preempted at its next switch point.
        let count = if done.is_ok() { &self.rung } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends kernel thread `tid`, if `slot` is still its own, the signal that preempts where
    /// signals do, with another `value`. For [`crate::thread_sampler`].
    pub(crate) fn send_to(&self, slot: &Slot, tid: i32, value: u64) -> io::Result<()> {
        let signal = if let Means::Signal(signal) = self.means { signal } else { DEFAULT_SIGNAL };
        signal_handler::install(signal, self.handlers.signal)?;
        let _alive = self.ring_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.tid.load(Ordering::Relaxed) as i32 != tid || !signal_handler::is_installed(signal) {
            return Err(io::ErrorKind::NotFound.into());
        }
        send(signal, tid, value)
    }

    /// Whether our handler is in place.
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
                "kumihimo: the signal that preempts ({means}{sigtrap}) was given another handler after the runtime started: microprocesses give way at \
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
        // Release: the handler on that kernel thread uses it.
        place.store(fd, Ordering::Release);
        Ok(fd)
    }

    /// Rings once `nanoseconds` of the thread's own CPU time have passed. Called by the kernel
    /// thread of slot `index` itself. Takes a lock, as [`ring`](Doorbells::ring) does.
    pub(crate) fn ring_after(&self, index: u32, slot: &Slot, nanoseconds: u64) {
        if self.means != Means::Clock || !self.has_handler() || self.is_disabled(index) {
            return;
        }
        let _alive = self.ring_lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a clock the timekeeper rings.
        let _ = self.clock_of(index, slot.tid.load(Ordering::Relaxed) as i32).and_then(|fd| {
            set_period(fd, nanoseconds)?;
            arm(fd)
        });
    }

    /// Rings once more after `nanoseconds`. Returns false if there is no clock. Called by the
    /// kernel thread of slot `index` itself. Async-signal-safe.
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
    /// itself. A doorbell that rang before is delivered when this returns. Takes a lock, as
    /// [`ring`](Doorbells::ring) does.
    pub(crate) fn set_disabled(&self, index: u32, is: bool) {
        let _ringing = self.ring_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.disabled[index as usize].store(is, Ordering::Relaxed);
        let fd = self.clocks.get(index as usize).map_or(NONE, |fd| fd.load(Ordering::Relaxed));
        if is && fd != NONE {
            disarm(fd);
        }
    }

    /// By the kernel thread of slot `index`, which will be without a VP for long: it has no clock
    /// any more. While somebody rings it keeps it: false. Async-signal-safe.
    pub(crate) fn close(&self, index: u32) -> bool {
        if self.clocks.get(index as usize).is_none_or(|fd| fd.load(Ordering::Relaxed) == NONE) {
            return true;
        }
        let Ok(_alive) = self.ring_lock.try_lock() else { return false };
        self.close_clock(index);
        true
    }

    fn close_clock(&self, index: u32) {
        let fd =
            self.clocks.get(index as usize).map_or(NONE, |fd| fd.swap(NONE, Ordering::Relaxed));
        if fd != NONE {
            // Closed it may live on: a child of fork(2) has it, until it runs another program.
            disarm(fd);
            // SAFETY: ours, and unused: a ringing thread holds the lock, and the handler runs on
            // this kernel thread.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }

    /// Retires the doorbell of the kernel thread of slot `index`, which calls this at its end: no
    /// other thread rings it any more, or takes its thread ID for that of a carrier.
    pub(crate) fn retire(&self, index: u32, slot: &Slot) {
        let _alive = self.ring_lock.lock().unwrap_or_else(PoisonError::into_inner);
        slot.tid.store(0, Ordering::Relaxed);
        self.close_clock(index);
    }
}

impl Drop for Doorbells {
    fn drop(&mut self) {
        for fd in &self.clocks {
            let fd = fd.load(Ordering::Relaxed);
            if fd != NONE {
                // Left open: its kernel thread never came back to end it, and with a trap that
                // waits for that the last close(2) would, too (`perf_pending_task_sync`).
                disarm(fd);
            }
        }
    }
}

/// A clock of kernel thread `tid` (0: the caller), not armed.
fn clock(tid: i32, scope: ClockScope) -> io::Result<OwnedFd> {
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
            sig_data: DOORBELL,
            ..Software::default()
        },
        tid,
    )
}

/// For one overflow.
fn arm(fd: i32) -> io::Result<()> {
    const PERF_EVENT_IOC_REFRESH: libc::Ioctl = 0x2402;
    // SAFETY: this request takes an integer.
    if unsafe { libc::ioctl(fd, PERF_EVENT_IOC_REFRESH, 1) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Not to ring any more. What has rung already is told when the system call returns.
fn disarm(fd: i32) {
    const PERF_EVENT_IOC_DISABLE: libc::Ioctl = 0x2401;
    // SAFETY: this request takes an integer.
    unsafe { libc::ioctl(fd, PERF_EVENT_IOC_DISABLE, 0) };
}

fn set_period(fd: i32, nanoseconds: u64) -> io::Result<()> {
    const PERF_EVENT_IOC_PERIOD: libc::Ioctl = 0x4008_2404;
    // SAFETY: this request reads 8 live bytes.
    if unsafe { libc::ioctl(fd, PERF_EVENT_IOC_PERIOD, &raw const nanoseconds) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// To a kernel thread of this process, marked as ours.
fn send(signal: i32, tid: i32, value: u64) -> io::Result<()> {
    // siginfo_t as rt_sigqueueinfo(2) wants it: si_signo, si_errno, si_code, si_pid, si_uid,
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
    // SAFETY: these take nothing and cannot fail.
    let (pid, uid) = unsafe { (libc::getpid(), libc::getuid()) };
    let info =
        Info { signal, errno: 0, code: libc::SI_QUEUE, pad: 0, pid, uid, value, rest: [0; 12] };
    // SAFETY: a live siginfo_t of the size that the kernel reads.
    let done =
        unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, signal, &raw const info) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
