//! Notifications from other address spaces. The VPs look for them themselves, at each step and
//! before they sleep, so that no thread stands between a caller and the server.
//!
//! A sender posts a bit in the row of this address space ([`kumihimo_arbiter::row::Head`]), and
//! rings. The VP that looks next takes all bits and passes them, masked, to the installed
//! [`RemoteWakeHandler`], which wakes microprocesses and does nothing else.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use kumihimo_arbiter::row::Caller;
use kumihimo_events::sched::Event;
use kumihimo_queue::Taker;

use crate::process::board;
use crate::scheduler::carrier::{Carrier, KernelThread};
use crate::scheduler::instance::{self, Instance};
use crate::scheduler::vp::Vp;

/// The handler of notifications from other address spaces.
pub trait RemoteWakeHandler: Sync {
    /// Takes in what the bits say. On a virtual processor that is masked, perhaps on several at
    /// once: it may wake microprocesses and take spin locks of its own, and must neither wait nor
    /// allocate without bound.
    fn take_in(&self, posts: u64);

    /// Rings for all that was put before others and not told yet, see [`defer_flush`]. Anywhere: on
    /// a virtual processor that is masked, on the kernel thread that keeps the time.
    fn flush(&self, caller: Caller);

    /// For how many nanoseconds it pays to spin, if at all, because a thread that is awake on
    /// another core than this is likely to notify this address space at once. Called by a VP that
    /// would otherwise sleep.
    fn expects(&self, core: u32) -> Option<u64>;
}

/// Something was put before others, and nobody was told.
static UNFLUSHED: AtomicBool = AtomicBool::new(false);
/// At what level, the highest: a hint.
static UNFLUSHED_LEVEL: AtomicU8 = AtomicU8::new(0);

/// Whether the caller may leave it to the VP to ring, once for everything that was put before other
/// address spaces in this moment. The VP rings when it has nothing to run, which is at once where
/// nothing else is runnable, and else within some 50 us; after a tick of the timekeeper where a
/// microprocess computes for longer than expected. False: the caller rings itself.
#[must_use]
pub fn defer_flush() -> bool {
    let Some(carrier) = Carrier::current() else { return false };
    let vp = carrier.vp();
    if carrier.is_running() && (vp.queue().is_empty() || vp.switches_fast()) {
        if UNFLUSHED_LEVEL.load(Ordering::Relaxed) < vp.level.get() {
            UNFLUSHED_LEVEL.store(vp.level.get(), Ordering::Relaxed);
        }
        UNFLUSHED.store(true, Ordering::Release);
        return true;
    }
    false
}

/// Whether there are links, over which something may come.
pub(crate) fn is_used() -> bool {
    KEPT.load(Ordering::Relaxed) != 0
}

/// The core that the caller runs on, for the moment.
#[must_use]
pub fn core() -> Option<u32> {
    // SAFETY: no pointers.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

static HANDLER: OnceLock<&'static dyn RemoteWakeHandler> = OnceLock::new();

/// From now on `handler` is told of what comes. False: another one is there, for good.
pub fn install(handler: &'static dyn RemoteWakeHandler) -> bool {
    HANDLER.set(handler).is_ok()
}

/// Something was put where `bit` says, from inside this address space: posts it, and sees to it
/// that a virtual processor looks. Never blocks.
pub fn notify(bit: u32) {
    board::row().head.post(bit);
    instance::visit(|instance| instance.map(Instance::wake_one_idle));
}

/// CLOCK_MONOTONIC, nanoseconds: the one clock that all address spaces of the machine have in
/// common.
#[must_use]
pub fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for a timespec; the clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Rings where that was left for later. Async-signal-safe as far as the handler is.
#[inline]
pub(crate) fn flush(caller: Caller) {
    // A swap, and the links are read after it: a later note finds the flag false, and sets it
    // again.
    if UNFLUSHED.load(Ordering::Relaxed)
        && UNFLUSHED.swap(false, Ordering::AcqRel)
        && let Some(handler) = HANDLER.get()
    {
        UNFLUSHED_LEVEL.store(0, Ordering::Relaxed);
        handler.flush(caller);
    }
}

/// Whether something was put before others by somebody above `level`, and nobody was told.
pub(crate) fn is_unflushed_above(level: u8) -> bool {
    UNFLUSHED_LEVEL.load(Ordering::Relaxed) > level
}

impl Instance {
    /// One that sleeps is woken, unless another one is up and looks; if all run, the one that runs
    /// the lowest is to look.
    fn wake_one_idle(&self) {
        if self.vps.iter().any(|vp| vp.idle.cell.is_looking()) {
            return;
        }
        if self.vps.iter().any(|vp| vp.idle.cell.is_sleeping()) {
            return self.wake_idle(Taker::Any);
        }
        let runs = |vp: &Vp| {
            self.kernel
                .carrier(vp.index as u32)
                .map_or(i32::MAX, |slot| slot.priority.load(Ordering::Relaxed))
        };
        if let Some(lowest) = self.vps.iter().min_by_key(|vp| runs(vp)) {
            self.kernel.raise(lowest.index as u32, Event::Preempted);
        }
    }
}

/// How many want the virtual processors to stay on cores of their own.
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// Some kernel thread may keep to a core still, and those that it begins with it.
static EVER_KEPT: AtomicBool = AtomicBool::new(false);

/// From the next time that they have nothing to do, virtual processors stay on the core where they
/// are at home, until the guard is dropped: a wake-up then comes from the core that is about to be
/// free, and wakes no other. For gates and the board; the kernel's scheduler would take whichever
/// core sleeps.
#[must_use]
#[derive(Debug)]
pub struct KeepToCores(());

impl KeepToCores {
    /// Adds one user of the setting.
    pub fn new() -> KeepToCores {
        EVER_KEPT.store(true, Ordering::Relaxed);
        KEPT.fetch_add(1, Ordering::Relaxed);
        KeepToCores(())
    }
}

impl Default for KeepToCores {
    fn default() -> KeepToCores {
        KeepToCores::new()
    }
}

impl Drop for KeepToCores {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The cores of the process, as of its first runtime.
pub(crate) fn cores() -> &'static [u32] {
    static CORES: OnceLock<Vec<u32>> = OnceLock::new();
    CORES.get_or_init(|| {
        // SAFETY: all zero is an empty set; sched_getaffinity(2) fills it.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
            set
        };
        // SAFETY: within the set's size.
        (0..libc::CPU_SETSIZE as u32)
            .filter(|core| unsafe { libc::CPU_ISSET(*core as usize, &set) })
            .collect()
    })
}

fn keep_to(cores: &[u32]) -> bool {
    // SAFETY: all zero is an empty set, and the cores are within its size; of the calling kernel
    // thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cores.iter().for_each(|core| libc::CPU_SET(*core as usize, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0
    }
}

/// Lets the calling kernel thread, which begins, run on all cores of the process: it may have
/// inherited the affinity of a thread that keeps to one core.
pub fn begin_on_all_cores() {
    if EVER_KEPT.load(Ordering::Relaxed) {
        keep_to(cores());
    }
}

/// Called by the kernel thread that was notified from core `from`: if it was woken there it leaves
/// that core, and is elsewhere the next time. Else it would preempt the notifier, which has just
/// taken the core, and after it the kernel might choose any thread.
pub(crate) fn keep_off(from: u32) {
    if core() == Some(from) && cores().len() > 1 {
        let others: Vec<u32> = cores().iter().copied().filter(|core| *core != from).collect();
        keep_to(&others);
    }
}

impl KernelThread {
    fn keep_to(&self, core: Option<u32>) {
        if self.keeps_to.get() != core
            && keep_to(core.as_ref().map_or(cores(), std::slice::from_ref))
        {
            self.keeps_to.set(core);
        }
    }

    /// It carries no VP for a while, which goes on on that core, or is a fork's child: the calling
    /// kernel thread, and what it begins, may run elsewhere, and is as any other to the kernel's
    /// scheduler. Async-signal-safe.
    pub(crate) fn keep_to_no_core(&self) {
        self.keep_to(None);
        self.kernel_slice.give_back();
    }
}

impl Vp {
    /// Where it is at home, while somebody wants that; else everywhere.
    pub(crate) fn home_core(&self) -> Option<u32> {
        let cores = cores();
        (KEPT.load(Ordering::Relaxed) != 0 && cores.len() > 1)
            .then(|| cores[self.index % cores.len()])
    }

    /// Its carrier, masked.
    pub(crate) fn keep_to_core(&self) {
        // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
        unsafe { KernelThread::here() }.keep_to(self.home_core());
    }

    /// Nothing is runnable here: rings for what is due, and says whether an answer is worth
    /// spinning for.
    pub(crate) fn expects_posts(&self) -> Option<u64> {
        self.keep_to_core();
        let handler = HANDLER.get()?;
        let core = self.home_core().or_else(core)?;
        self.idle.cell.note_core(core);
        flush(Caller::Waits(core));
        handler.expects(core)
    }

    /// Has what others posted looked after, if there is something. One load else.
    #[inline(always)]
    pub(crate) fn take_posts(&self) {
        if self.row.head.has_posts() {
            self.take_in();
        }
    }

    #[cold]
    fn take_in(&self) {
        let posts = self.row.head.take_posts();
        if let Some(handler) = HANDLER.get().filter(|_| posts != 0) {
            handler.take_in(posts);
        }
    }
}

#[cfg(test)]
mod tests;
