//! The record of a kernel thread of the runtime, which GS points to, and the masks that keep its VP
//! from being taken over.
//!
//! VP and instance are untyped addresses here; `scheduler/carrier.rs` casts them to their types.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::Ordering;

use kumihimo_arch::cpu::{self, Context};
use kumihimo_arch::signal_mask;
use kumihimo_events::{self as events, Slot, barrier, trap};

use crate::kernel_thread::applied::Applied;
use crate::kernel_thread::kernel_slice::KernelSlice;
use crate::kernel_thread::known::Known;
use crate::microprocess::record::Mp;
use crate::process::clock::cpu_time;

/// Relation of the calling code to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Standing {
    /// A kernel thread that does not belong to the runtime, or the child of a fork.
    Foreign = 0,
    /// A microprocess on a VP, or the carrier's own context.
    OnVp = 1,
    /// A microprocess inside `blocking`: bound to this kernel thread, without a VP.
    Bound = 2,
    /// A microprocess that keeps this kernel thread and has no VP: see [`crate::upcall::sticky`].
    Sticky = 3,
}

thread_local! {
    /// Stored in the TLS block of every microprocess and of every carrying kernel thread. GS may be
    /// read only if this is not `Foreign`: on foreign threads GS is 0, and the load would fault.
    /// "GS" is the base of the kernel thread's record on every architecture: see
    /// `cpu::set_gs_base`.
    static STANDING: Cell<Standing> = const { Cell::new(Standing::Foreign) };
}

#[inline]
pub(crate) fn standing() -> Standing {
    cpu::read_local(&STANDING)
}

pub(crate) fn set_standing(s: Standing) {
    STANDING.set(s);
}

/// A kernel thread of the runtime. GS points here.
#[repr(C, align(64))]
pub(crate) struct KernelThread {
    /// Address of this record: word 0, read as `gs:[0]`.
    pub(crate) this: Cell<*const KernelThread>,
    /// The VP that the thread carries (`scheduler::vp::Vp`), read as `gs:[8]`. Null in the pool,
    /// and after its microprocess has lost its VP and detected that.
    pub(crate) vp: Cell<*const ()>,
    /// The record of the kernel's half, which its signal handler uses, too.
    events: *const events::KernelThread,
    /// The microprocess that runs on the thread, on a VP or bound; null on the thread's own stack.
    /// Read as `gs:[24]` by a single instruction, because the reader may be moved to another kernel
    /// thread between two instructions.
    pub(crate) current: Cell<*const Mp>,
    /// While this is not 0, no call is injected here, so values that the caller has read through GS
    /// stay valid. It encloses the mask of the slot. It is changed by a single instruction, because
    /// the caller may be moved to another kernel thread before and after it.
    guard: Cell<u32>,
    /// Whether a signal handler of the runtime runs here, in which nothing may switch.
    in_handler: Cell<bool>,
    /// Whether the running microprocess, masked, is in std's start routine (`lifecycle/body.rs`).
    pub(crate) is_starting: Cell<bool>,
    /// The value of `slot` while the VP is attached.
    pub(crate) token: Cell<u64>,
    /// The thread's CPU time at the last booking.
    booked: Cell<u64>,
    pub(crate) slot: *const Slot,
    /// FS base of the thread's own TLS block.
    pub(crate) fs: usize,
    /// The core that the thread is bound to: see `affinity.rs`.
    pub(crate) keeps_to: Cell<Option<u32>>,
    /// Time slice, which determines how soon the kernel runs the thread when it is woken.
    pub(crate) kernel_slice: KernelSlice,
    /// Address of the thread's instance; `scheduler/carrier.rs` casts it to its type.
    pub(crate) instance: *const (),
    /// The thread's own context, on its own stack. Only idling and waiting for a VP run there.
    pub(crate) idle: UnsafeCell<Context>,
    /// The context of a microprocess that left this thread while it had an entry in a run queue,
    /// until it is published.
    pub(crate) left: Cell<Context>,
    pub(crate) applied: Applied,
    pub(crate) known: Known,
}

/// Flag of a microprocess ID in the shared page: the microprocess is about to run, but does not run
/// yet. No ID has this bit.
pub(crate) const ANNOUNCED: u64 = 1 << 63;

const _: () = assert!(
    std::mem::offset_of!(KernelThread, this) == 0
        && std::mem::offset_of!(KernelThread, vp) == 8
        && std::mem::offset_of!(KernelThread, events) == trap::GS_THREAD
        && std::mem::offset_of!(KernelThread, current) == 24
);

impl KernelThread {
    /// Makes the calling kernel thread a thread of the runtime while `live` runs.
    ///
    /// # Safety
    /// `instance` is the address of a `scheduler::instance::Instance` that outlives the call.
    pub(crate) unsafe fn with(
        instance: *const (),
        thread: &events::KernelThread,
        live: impl FnOnce(),
    ) {
        let kt = KernelThread {
            this: Cell::new(std::ptr::null()),
            vp: Cell::new(std::ptr::null()),
            events: thread,
            current: Cell::new(std::ptr::null()),
            // Masked, like its slot.
            guard: Cell::new(1),
            in_handler: Cell::new(false),
            is_starting: Cell::new(false),
            token: Cell::new(0),
            booked: Cell::new(0),
            slot: thread.slot(),
            fs: cpu::fs_base(),
            keeps_to: Cell::new(None),
            kernel_slice: KernelSlice::default(),
            instance,
            idle: UnsafeCell::new(Context::NULL),
            left: Cell::new(Context::NULL),
            applied: Applied::new(),
            known: Known::default(),
        };
        kt.this.set(&raw const kt);
        // SAFETY: the record is alive until GS is reset below. A panic cannot leave `live`, because
        // it aborts.
        unsafe { cpu::set_gs_base((&raw const kt).addr()) };
        STANDING.set(Standing::OnVp);
        // After the two lines above, so that a renewal of the mask finds this record.
        kt.apply_attributes(None);
        kt.known.begin();
        live();
        // The thread ends, and from here on no renewal of its mask finds this record.
        signal_mask::set(signal_mask::ALL);
        STANDING.set(Standing::Foreign);
        // SAFETY: 0 is the previous value of GS; while the standing is `Foreign`, no code reads GS.
        unsafe { cpu::set_gs_base(0) };
    }

    #[inline(always)]
    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: the shared page stays mapped as long as the kernel thread lives.
        unsafe { &*self.slot }
    }

    /// Returns the kernel thread's ID.
    pub(crate) fn tid(&self) -> u32 {
        self.slot().tid.load(Ordering::Relaxed)
    }

    /// Returns the record of the kernel's half.
    pub(crate) fn events(&self) -> &events::KernelThread {
        // SAFETY: it outlives this record: see `with`.
        unsafe { &*self.events }
    }

    /// Returns the CPU time that the calling kernel thread has used since the last call, with or
    /// without a VP. A system call.
    pub(crate) fn take_cpu_time(&self) -> u64 {
        let now = cpu_time();
        now.saturating_sub(self.booked.replace(now))
    }

    /// Publishes in the shared page that `mp` runs here (paper P0, 3.3.1).
    #[inline(always)]
    pub(crate) fn show(&self, mp: &Mp) {
        let slot = self.slot();
        slot.microprocess.store(mp.id(), Ordering::Relaxed);
        slot.priority.store(i32::from(mp.level.get()), Ordering::Relaxed);
    }

    /// As [`show`](KernelThread::show), for a microprocess that runs here next unless it turns out
    /// to be suspended. It does not count as running yet.
    #[inline(always)]
    pub(crate) fn announce(&self, mp: &Mp) {
        self.slot().microprocess.store(mp.id() | ANNOUNCED, Ordering::Relaxed);
        // Orders the store before the load of the state word. The other half is in `suspend.rs`.
        barrier::light();
    }

    /// Clears the running microprocess from the shared page, so that the last one does not appear
    /// to be running.
    pub(crate) fn clear_shown(&self) {
        self.slot().microprocess.store(0, Ordering::Relaxed);
    }

    /// Keeps the caller on its kernel thread: no call is injected until
    /// [`unmask`](KernelThread::unmask). Returns that kernel thread.
    ///
    /// # Safety
    /// The caller's standing is not `Foreign`.
    #[inline(always)]
    pub(crate) unsafe fn begin_guard<'a>() -> &'a KernelThread {
        // SAFETY: the caller's promise: GS is set. Only this kernel thread writes its counter.
        unsafe {
            cpu::gs_inc32::<{ std::mem::offset_of!(KernelThread, guard) }>();
            KernelThread::here()
        }
    }

    /// Whether no call may be injected. Called in a signal handler on this kernel thread.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guard.get() != 0
    }

    /// Whether the caller, which has begun a guard, is in another one as well.
    pub(crate) fn is_guarded_twice(&self) -> bool {
        self.guard.get() > 1
    }

    /// Whether a signal handler of the runtime runs here.
    pub(crate) fn is_in_handler(&self) -> bool {
        self.in_handler.get()
    }

    /// Runs `f` in a signal handler, with switches forbidden.
    pub(crate) fn in_handler(&self, f: impl FnOnce()) {
        self.in_handler.set(true);
        f();
        self.in_handler.set(false);
    }

    /// Masks the slot after [`begin_guard`](KernelThread::begin_guard). Returns true if the VP is
    /// still here; otherwise detaches it.
    #[inline(always)]
    pub(crate) fn enter(&self) -> bool {
        self.slot().enter(self.token.get()) || self.lost()
    }

    /// Masks the slot after [`begin_guard`](KernelThread::begin_guard), with or without a VP.
    #[inline(always)]
    pub(crate) fn mask(&self) {
        self.slot().mask();
    }

    #[cold]
    fn lost(&self) -> bool {
        self.events().note_lost();
        self.detach_vp();
        false
    }

    /// Ends [`enter`](KernelThread::enter) or [`mask`](KernelThread::mask) and delivers pending
    /// events. The caller may be switched away from.
    #[inline(always)]
    pub(crate) fn unmask(&self) {
        if self.unmask_quietly() {
            KernelThread::deliver();
        }
    }

    /// As [`unmask`](KernelThread::unmask), but returns whether events are pending instead of
    /// delivering them. `self` must not be used afterwards.
    #[inline(always)]
    #[must_use]
    pub(crate) fn unmask_quietly(&self) -> bool {
        let waits = self.slot().exit();
        // SAFETY: `self` is the caller's kernel thread, so GS is set.
        unsafe { self.end_guard() };
        waits
    }

    /// Reverts [`begin_guard`](KernelThread::begin_guard).
    ///
    /// # Safety
    /// `self` is the caller's kernel thread.
    #[inline(always)]
    pub(crate) unsafe fn end_guard(&self) {
        // SAFETY: the caller's promise; the counter belongs to this kernel thread.
        unsafe { cpu::gs_dec32::<{ std::mem::offset_of!(KernelThread, guard) }>() };
    }

    /// Detaches the VP from this kernel thread.
    pub(crate) fn detach_vp(&self) {
        self.token.set(0);
        self.vp.set(std::ptr::null());
    }

    /// Returns the caller's kernel thread.
    ///
    /// # Safety
    /// The caller's standing is not `Foreign`. The reference is valid on this kernel thread only,
    /// so its use must end before any possible switch.
    #[inline(always)]
    pub(crate) unsafe fn here<'a>() -> &'a KernelThread {
        // SAFETY: the caller's promise: GS points to a record that lives as long as its kernel
        // thread.
        unsafe { &*cpu::gs_word::<0>().cast::<KernelThread>() }
    }
}

/// Returns the FS base of the carrying kernel thread, for code in a signal handler that runs on a
/// microprocess's block (set*id).
pub(crate) fn carrier_fs() -> Option<usize> {
    (standing() != Standing::Foreign).then(|| {
        // SAFETY: not foreign, so GS points to the live record of this kernel thread.
        unsafe { KernelThread::here() }.fs
    })
}

/// Returns the calling microprocess, on a VP or bound.
#[inline]
pub(crate) fn current_mp() -> Option<&'static Mp> {
    if standing() == Standing::Foreign {
        return None;
    }
    // SAFETY: not foreign, so GS is set.
    unsafe { running_here() }
}

/// Returns the microprocess that runs on this kernel thread, or `None` on the thread's own stack.
///
/// # Safety
/// The caller's standing is not `Foreign`.
#[inline(always)]
pub(crate) unsafe fn running_here() -> Option<&'static Mp> {
    // SAFETY: the caller's promise; null or a record, which lives for ever.
    unsafe {
        (cpu::gs_load64::<{ std::mem::offset_of!(KernelThread, current) }>() as *const Mp).as_ref()
    }
}

/// Whether code that runs here may switch: no section without events, no signal handler of the
/// runtime, and not std's start routine.
///
/// # Safety
/// The caller's standing is not `Foreign`.
#[inline(always)]
pub(crate) unsafe fn may_switch_here() -> bool {
    const GUARD: usize = std::mem::offset_of!(KernelThread, guard);
    const _: () = assert!(
        GUARD.is_multiple_of(8)
            && std::mem::offset_of!(KernelThread, in_handler) == GUARD + 4
            && std::mem::offset_of!(KernelThread, is_starting) == GUARD + 5
    );
    // One instruction for the three fields: between two, the caller may be moved to another kernel
    // thread, and the record of this one may end. The last two bytes are padding.
    // SAFETY: the caller's promise.
    let fields = unsafe { cpu::gs_load64::<GUARD>() } & 0xffff_ffff_ffff;
    // SAFETY: the caller's promise.
    fields == 0 && unsafe { running_here() }.is_some()
}

/// Whether code that runs here is in a section without events, or in a signal handler of the
/// runtime.
///
/// # Safety
/// The caller's standing is not `Foreign`.
#[inline(always)]
pub(crate) unsafe fn is_masked_here() -> bool {
    const GUARD: usize = std::mem::offset_of!(KernelThread, guard);
    // SAFETY: the caller's promise. One instruction, as in `may_switch_here`.
    unsafe { cpu::gs_load64::<GUARD>() & 0xff_ffff_ffff != 0 }
}

/// Returns the offset of `STANDING` from the FS base, which is the same in every TLS block.
pub(crate) fn standing_offset() -> isize {
    STANDING.with(|here| std::ptr::from_ref(here).addr().wrapping_sub(cpu::fs_base()).cast_signed())
}
