//! The record of a kernel thread of the runtime, to which GS points, and the masks that keep its
//! virtual processor in place.
//!
//! The virtual processor and the instance are addresses here; `scheduler/carrier.rs` gives them
//! their types.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::Ordering;

use kumihimo_arch::cpu::{self, Context};
use kumihimo_events::{self as events, Slot, barrier, trap};

use crate::kernel_thread::kernel_slice::KernelSlice;
use crate::microprocess::record::Mp;
use crate::process::clock::cpu_time;

/// What the calling code is to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Standing {
    /// A kernel thread that the runtime knows nothing of, or its fork.
    Foreign = 0,
    /// A microprocess on a virtual processor (or the carrier's own context).
    OnVp = 1,
    /// A microprocess inside `blocking`: bound to this kernel thread, no VP under it.
    Bound = 2,
    /// A microprocess that keeps this kernel thread and has no VP: see [`crate::upcall::sticky`].
    Sticky = 3,
}

thread_local! {
    /// In the TLS block of every microprocess and of every carrying kernel thread. GS may be read
    /// only when it is not `Foreign`: on foreign threads GS is 0 and the load would fault.
    static STANDING: Cell<Standing> = const { Cell::new(Standing::Foreign) };
}

#[inline]
pub(crate) fn standing() -> Standing {
    STANDING.get()
}

pub(crate) fn set_standing(s: Standing) {
    STANDING.set(s);
}

/// A kernel thread of the runtime. GS points here.
#[repr(C, align(64))]
pub(crate) struct KernelThread {
    /// Word 0, read as `gs:[0]`.
    pub(crate) this: Cell<*const KernelThread>,
    /// The VP that it carries (`scheduler::vp::Vp`), read as `gs:[8]`; null while it waits in the
    /// pool, and while its microprocess has lost its VP and knows it.
    pub(crate) vp: Cell<*const ()>,
    /// What the kernel's half has of it: for its signal handler too.
    events: *const events::KernelThread,
    /// The microprocess that runs on it, with a VP under it or bound; null on its own stack. Read
    /// as `gs:[24]`: by one instruction, between which and the next the reader may come to another
    /// kernel thread.
    pub(crate) current: Cell<*const Mp>,
    /// While it is not 0 nothing is injected here: what the caller has read through GS stays right.
    /// Counts with the slot's mask, begins before it and ends after it, and is changed by one
    /// instruction, since before and after it the caller may come to another kernel thread.
    guard: Cell<u32>,
    /// A signal handler of the runtime runs here: nothing may switch.
    in_handler: Cell<bool>,
    /// The value of `slot` while the VP is here.
    pub(crate) token: Cell<u64>,
    /// Its CPU time when that was booked last.
    booked: Cell<u64>,
    pub(crate) slot: *const Slot,
    /// Its own TLS block.
    pub(crate) fs: usize,
    /// The core that it keeps to: see `affinity.rs`.
    pub(crate) keeps_to: Cell<Option<u32>>,
    /// How soon the kernel runs it when it is woken.
    pub(crate) kernel_slice: KernelSlice,
    /// Its instance, an address here: `scheduler/carrier.rs` gives it the type.
    pub(crate) instance: *const (),
    /// Its own context, on the kernel thread's own stack: only idling and waiting for a VP run
    /// there.
    pub(crate) idle: UnsafeCell<Context>,
    /// The context of a microprocess that left this thread while it had an entry in a run queue,
    /// until it is published.
    pub(crate) left: Cell<Context>,
}

/// In the shared page: whose id this is does not run yet. No id has it.
pub(crate) const ANNOUNCED: u64 = 1 << 63;

const _: () = assert!(
    std::mem::offset_of!(KernelThread, this) == 0
        && std::mem::offset_of!(KernelThread, vp) == 8
        && std::mem::offset_of!(KernelThread, events) == trap::GS_THREAD
        && std::mem::offset_of!(KernelThread, current) == 24
);

impl KernelThread {
    /// Makes the calling kernel thread one of the runtime's for the time of `live`.
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
            // As its slot: masked.
            guard: Cell::new(1),
            in_handler: Cell::new(false),
            token: Cell::new(0),
            booked: Cell::new(0),
            slot: thread.slot(),
            fs: cpu::fs_base(),
            keeps_to: Cell::new(None),
            kernel_slice: KernelSlice::default(),
            instance,
            idle: UnsafeCell::new(Context::NULL),
            left: Cell::new(Context::NULL),
        };
        kt.this.set(&raw const kt);
        // SAFETY: the record is alive until GS is reset below; a panic cannot leave `live`, which
        // aborts on one.
        unsafe { cpu::set_gs_base((&raw const kt).addr()) };
        STANDING.set(Standing::OnVp);
        live();
        STANDING.set(Standing::Foreign);
        // SAFETY: 0 is what GS was before; `Foreign` keeps everyone from reading it.
        unsafe { cpu::set_gs_base(0) };
    }

    #[inline(always)]
    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: the shared page stays mapped as long as the kernel thread lives.
        unsafe { &*self.slot }
    }

    /// Its kernel thread id.
    pub(crate) fn tid(&self) -> u32 {
        self.slot().tid.load(Ordering::Relaxed)
    }

    /// What the kernel's half has of it.
    pub(crate) fn events(&self) -> &events::KernelThread {
        // SAFETY: it outlives this record: see `with`.
        unsafe { &*self.events }
    }

    /// CPU time that it used since it was last asked for: from its beginning, with or without a VP.
    /// The caller's; a system call.
    pub(crate) fn take_cpu_time(&self) -> u64 {
        let now = cpu_time();
        now.saturating_sub(self.booked.replace(now))
    }

    /// The shared page says what runs here (P0, 3.3.1).
    #[inline(always)]
    pub(crate) fn show(&self, mp: &Mp) {
        let slot = self.slot();
        slot.microprocess.store(mp.id(), Ordering::Relaxed);
        slot.priority.store(i32::from(mp.level.get()), Ordering::Relaxed);
    }

    /// As [`show`](KernelThread::show), of one that runs here next unless it turns out to be
    /// suspended: nobody takes it for running yet.
    #[inline(always)]
    pub(crate) fn announce(&self, mp: &Mp) {
        self.slot().microprocess.store(mp.id() | ANNOUNCED, Ordering::Relaxed);
        // The store before the load of the word: see `suspend.rs`, which has the other half.
        barrier::light();
    }

    /// Clears the running microprocess from the shared page, so that the last one does not appear
    /// to be running.
    pub(crate) fn clear_shown(&self) {
        self.slot().microprocess.store(0, Ordering::Relaxed);
    }

    /// The caller's, which it stays on from here: nothing is injected until
    /// [`unmask`](KernelThread::unmask).
    ///
    /// # Safety
    /// The caller's standing is not `Foreign`.
    #[inline(always)]
    pub(crate) unsafe fn begin_guard<'a>() -> &'a KernelThread {
        // SAFETY: the caller's promise: GS is set. Only this kernel thread writes its count.
        unsafe {
            cpu::gs_inc32::<{ std::mem::offset_of!(KernelThread, guard) }>();
            KernelThread::here()
        }
    }

    /// Whether nothing may be injected. In a signal handler on this kernel thread.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guard.get() != 0
    }

    /// Whether a signal handler of the runtime runs here.
    pub(crate) fn is_in_handler(&self) -> bool {
        self.in_handler.get()
    }

    /// Runs `f`, in a signal handler: nothing in it may switch.
    pub(crate) fn in_handler(&self, f: impl FnOnce()) {
        self.in_handler.set(true);
        f();
        self.in_handler.set(false);
    }

    /// After [`begin_guard`](KernelThread::begin_guard): masks. True if the VP is (still) here;
    /// else it is forgotten.
    #[inline(always)]
    pub(crate) fn enter(&self) -> bool {
        self.slot().enter(self.token.get()) || self.lost()
    }

    /// After [`begin_guard`](KernelThread::begin_guard): masks, whether there is a VP or not.
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

    /// The end of [`enter`](KernelThread::enter) or [`mask`](KernelThread::mask): what waited is
    /// told now, and the caller may be switched away from.
    #[inline(always)]
    pub(crate) fn unmask(&self) {
        if self.unmask_quietly() {
            KernelThread::deliver();
        }
    }

    /// As [`unmask`](KernelThread::unmask), and says whether something waits to be told. `self` is
    /// not to be used after this.
    #[inline(always)]
    #[must_use]
    pub(crate) fn unmask_quietly(&self) -> bool {
        let waits = self.slot().exit();
        // SAFETY: `self` is the caller's, so GS is set.
        unsafe { self.end_guard() };
        waits
    }

    /// The reverse of [`begin_guard`](KernelThread::begin_guard).
    ///
    /// # Safety
    /// `self` is the caller's.
    #[inline(always)]
    pub(crate) unsafe fn end_guard(&self) {
        // SAFETY: the caller's promise; the count is this kernel thread's.
        unsafe { cpu::gs_dec32::<{ std::mem::offset_of!(KernelThread, guard) }>() };
    }

    /// There is no VP here any more.
    pub(crate) fn detach_vp(&self) {
        self.token.set(0);
        self.vp.set(std::ptr::null());
    }

    /// The caller's.
    ///
    /// # Safety
    /// The caller's standing is not `Foreign`. The reference is for use on this kernel thread: it
    /// ends where a switch may come.
    #[inline(always)]
    pub(crate) unsafe fn here<'a>() -> &'a KernelThread {
        // SAFETY: the caller's promise: GS is set, to a record that lives as long as its kernel
        // thread.
        unsafe { &*cpu::gs_word::<0>().cast::<KernelThread>() }
    }
}

/// FS base of the carrying kernel thread, for code that runs in a signal handler on a
/// microprocess's block (set*id).
pub(crate) fn carrier_fs() -> Option<usize> {
    (standing() != Standing::Foreign).then(|| {
        // SAFETY: not foreign, so GS points to the live record of this kernel thread.
        unsafe { KernelThread::here() }.fs
    })
}

/// The microprocess that the caller is, on a VP or bound.
#[inline]
pub(crate) fn current_mp() -> Option<&'static Mp> {
    if standing() == Standing::Foreign {
        return None;
    }
    // SAFETY: not foreign, so GS is set.
    unsafe { running_here() }
}

/// The microprocess that runs on this kernel thread; none on its own stack.
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

/// Where `STANDING` lies, counted from the FS base: the same in every block.
pub(crate) fn standing_offset() -> isize {
    STANDING.with(|here| std::ptr::from_ref(here).addr().wrapping_sub(cpu::fs_base()).cast_signed())
}
