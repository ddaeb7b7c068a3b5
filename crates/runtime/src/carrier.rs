//! The kernel thread under a virtual processor, and the right to touch that VP.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kumihimo_arch::x86_64::{self, Context};
use kumihimo_events::Slot;
use kumihimo_events::watch::Watched;

use crate::record::Mp;
use crate::vp::Vp;

/// Who the code that asks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Standing {
    /// A kernel thread that the runtime knows nothing of, or its fork.
    Foreign = 0,
    /// A microprocess on a virtual processor (or the carrier's own context).
    OnVp = 1,
    /// A microprocess inside `blocking`: bound to this kernel thread, no VP under it.
    Bound = 2,
}

thread_local! {
    /// In the TLS block of every microprocess and of every carrying kernel thread. GS may be read only when it is not `Foreign`:
    /// on foreign threads GS is 0 and the load would fault.
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
    this: Cell<*const KernelThread>,
    /// Its first word, read as `gs:[8]`, is the VP that it carries; 0 while it waits in the pool or lost its VP inside `blocking`.
    pub(crate) slot: Slot,
    pub(crate) watched: Option<Watched>,
    /// Inside `blocking`. A spare that was called for that and comes late leaves the VP where it is.
    pub(crate) away: AtomicBool,
    /// The microprocess that runs on it, with a VP under it or bound; null on its own stack.
    pub(crate) current: Cell<*const Mp>,
    /// Its own TLS block.
    pub(crate) fs: usize,
    /// Its own context, on the kernel thread's own stack: only idling and waiting for a VP run there.
    pub(crate) idle: UnsafeCell<Context>,
}

// SAFETY: cells are touched by the kernel thread itself only (or by the holder of its VP after a hand-off, ordered by the slot);
// `slot` is atomic.
unsafe impl Sync for KernelThread {}
// SAFETY: as above; the record is made on the thread that it describes and freed after that thread has ended.
unsafe impl Send for KernelThread {}

impl KernelThread {
    /// Makes the calling kernel thread one of the runtime's until [`detach`](KernelThread::detach).
    ///
    /// Counted, since a spare that was called late may still look at the slot of a kernel thread that has ended.
    pub(crate) fn attach() -> Arc<KernelThread> {
        let kt = Arc::new(KernelThread {
            this: Cell::new(std::ptr::null()),
            slot: Slot::new(),
            watched: Watched::this_thread().ok(),
            away: AtomicBool::new(false),
            current: Cell::new(std::ptr::null()),
            fs: x86_64::fs_base(),
            idle: UnsafeCell::new(Context::NULL),
        });
        kt.this.set(Arc::as_ptr(&kt));
        // SAFETY: the record is alive until `detach`, which resets GS before it lets go.
        unsafe { x86_64::set_gs_base(Arc::as_ptr(&kt) as usize) };
        STANDING.set(Standing::OnVp);
        kt
    }

    /// The caller's.
    ///
    /// # Safety
    /// The caller's standing is not `Foreign`. The reference is for use on this kernel thread: it ends where a switch may come.
    #[inline(always)]
    pub(crate) unsafe fn here<'a>() -> &'a KernelThread {
        // SAFETY: the caller's promise: GS is set, to a record that lives as long as its kernel thread.
        unsafe { &*x86_64::gs_word::<0>().cast::<KernelThread>() }
    }

    /// The end of [`attach`](KernelThread::attach), on the same kernel thread.
    pub(crate) fn detach(self: Arc<KernelThread>) {
        STANDING.set(Standing::Foreign);
        // SAFETY: 0 is what GS was before; `Foreign` keeps everyone from reading it.
        unsafe { x86_64::set_gs_base(0) };
    }
}

/// FS base of the carrying kernel thread, for code that runs in a signal handler on a microprocess's block (set*id).
pub(crate) fn carrier_fs() -> Option<usize> {
    (standing() != Standing::Foreign).then(|| {
        // SAFETY: not foreign, so GS points to the live record of this kernel thread.
        unsafe { KernelThread::here() }.fs
    })
}

/// The right to touch the VP under the caller: as long as one exists, the kernel thread's slot is masked and the VP stays.
///
/// Not `Send`, and consumed by everything that switches: after a switch the caller may run on another kernel thread with
/// another VP, and gets a fresh one.
pub(crate) struct Carrier {
    vp: *const Vp,
    _not_send: PhantomData<*const ()>,
}

const _: () = assert!(std::mem::offset_of!(KernelThread, this) == 0 && std::mem::offset_of!(KernelThread, slot) == 8);

impl Carrier {
    /// The caller's, if it runs on a VP. None as well if the VP was taken over while the caller was away in the kernel.
    #[inline]
    pub(crate) fn current() -> Option<Carrier> {
        if standing() != Standing::OnVp {
            return None;
        }
        // SAFETY: on a VP, so GS is set.
        let slot = unsafe { &KernelThread::here().slot };
        let vp = slot.enter();
        if vp == 0 {
            slot.exit();
            return None;
        }
        Some(Carrier { vp: std::ptr::with_exposed_provenance(vp), _not_send: PhantomData })
    }

    /// As [`current`](Carrier::current); a caller whose VP was taken over waits for its turn on one first. May switch.
    #[inline]
    pub(crate) fn regain() -> Option<Carrier> {
        Carrier::current().or_else(|| (standing() == Standing::OnVp).then(crate::handoff::come_back))
    }

    /// The right of one that is masked already and has no `Carrier` yet: after a switch, or on its own stack.
    ///
    /// # Safety
    /// The caller's standing is not `Foreign`, its kernel thread's slot is masked once, and no other `Carrier` stands for that.
    #[inline(always)]
    pub(crate) unsafe fn here() -> Carrier {
        // SAFETY: the caller's promise.
        Carrier { vp: unsafe { x86_64::gs_word::<8>() }.cast(), _not_send: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn kernel_thread(&self) -> &KernelThread {
        // SAFETY: a carrier is not `Send`, so GS is that of its kernel thread.
        unsafe { KernelThread::here() }
    }

    /// The VP. The borrow ends where a switch consumes the carrier.
    #[inline(always)]
    pub(crate) fn vp(&self) -> &Vp {
        debug_assert!(self.has_vp());
        // SAFETY: a carrier exists only while its kernel thread carries a VP (else `has_vp` is asked first); VPs outlive their carriers.
        unsafe { &*self.vp }
    }

    /// False on the own stack of a kernel thread that lost its VP inside `blocking`.
    #[inline(always)]
    pub(crate) fn has_vp(&self) -> bool {
        !self.vp.is_null()
    }

    /// Whether a microprocess runs here, and not the carrier's own stack.
    #[inline(always)]
    pub(crate) fn is_running(&self) -> bool {
        !self.kernel_thread().current.get().is_null()
    }

    /// The microprocess that runs here; none on the carrier's own stack.
    #[inline(always)]
    pub(crate) fn running(&self) -> Option<&'static Mp> {
        // SAFETY: null or a record, which lives for ever.
        unsafe { self.kernel_thread().current.get().as_ref() }
    }
}

/// The VP may be taken over from here.
impl Drop for Carrier {
    #[inline(always)]
    fn drop(&mut self) {
        self.kernel_thread().slot.exit();
    }
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
    unsafe { KernelThread::here().current.get().as_ref() }
}

/// The microprocess on whose slot this kernel thread runs, if it is one that ends at `slot_end`. Async-signal-safe.
pub(crate) fn running_on(slot_end: usize) -> Option<&'static Mp> {
    let running = current_mp().into_iter();
    // In the middle of a switch the next one is noted already, on the stack of the one that leaves.
    let leaving = Carrier::current().filter(Carrier::has_vp).and_then(|carrier| carrier.vp().leaving());
    running.chain(leaving).find(|mp| mp.slot_end() as usize == slot_end)
}

/// Where `STANDING` lies, counted from the FS base: the same in every block.
pub(crate) fn standing_offset() -> isize {
    STANDING.with(|here| std::ptr::from_ref(here).addr().wrapping_sub(x86_64::fs_base()).cast_signed())
}
