//! The kernel thread under a virtual processor, and the right to touch that VP.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::sync::Arc;

use kumihimo_arch::x86_64::{self, Context};
use kumihimo_events::Slot;

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
    /// Word 1, read as `gs:[8]`. The VP it carries; null while it waits in the pool or lost its VP inside `blocking`.
    pub(crate) vp: Cell<*const Vp>,
    /// Its own TLS block.
    pub(crate) fs: usize,
    /// Its own context, on the kernel thread's own stack: only idling and waiting for a VP run there.
    pub(crate) idle: UnsafeCell<Context>,
    /// The microprocess that is bound to it inside `blocking`, or that left it there after losing the VP.
    pub(crate) bound: Cell<*const Mp>,
    pub(crate) slot: Slot,
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
            vp: Cell::new(std::ptr::null()),
            fs: x86_64::fs_base(),
            idle: UnsafeCell::new(Context::NULL),
            bound: Cell::new(std::ptr::null()),
            slot: Slot::new(),
        });
        kt.this.set(Arc::as_ptr(&kt));
        // SAFETY: the record is alive until `detach`, which resets GS before it lets go.
        unsafe { x86_64::set_gs_base(Arc::as_ptr(&kt) as usize) };
        STANDING.set(Standing::OnVp);
        kt
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
        unsafe { (*x86_64::gs_word::<0>().cast::<KernelThread>()).fs }
    })
}

/// The right to touch the VP under the caller.
///
/// Not `Send`, and consumed by everything that switches: after a switch the caller may run on another kernel thread with
/// another VP, and gets a fresh one.
pub(crate) struct Carrier {
    vp: *const Vp,
    _not_send: PhantomData<*const ()>,
}

const _: () = assert!(std::mem::offset_of!(KernelThread, this) == 0 && std::mem::offset_of!(KernelThread, vp) == 8);

impl Carrier {
    /// The caller's, if it runs on a VP.
    #[inline]
    pub(crate) fn current() -> Option<Carrier> {
        (standing() == Standing::OnVp).then(|| {
            // SAFETY: on a VP, so GS is set.
            unsafe { Carrier::here() }
        })
    }

    /// The caller's, who knows that GS is set.
    ///
    /// # Safety
    /// The caller's standing is not `Foreign`.
    #[inline(always)]
    pub(crate) unsafe fn here() -> Carrier {
        // SAFETY: the caller's promise.
        Carrier { vp: unsafe { x86_64::gs_word::<8>() }.cast(), _not_send: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn kernel_thread(&self) -> &KernelThread {
        // SAFETY: a carrier is not `Send`, so GS is that of its kernel thread, whose record lives as long as it does.
        unsafe { &*x86_64::gs_word::<0>().cast::<KernelThread>() }
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
        !self.vp().current.get().is_null()
    }

    /// The microprocess that runs here; none on the carrier's own stack.
    #[inline(always)]
    pub(crate) fn running(&self) -> Option<&'static Mp> {
        // SAFETY: null or a record, which lives for ever.
        unsafe { self.vp().current.get().as_ref() }
    }
}

/// The microprocess that the caller is, on a VP or bound.
#[inline]
pub(crate) fn current_mp() -> Option<&'static Mp> {
    let mp = match standing() {
        Standing::Foreign => return None,
        Standing::OnVp => {
            // SAFETY: GS is set. A spare that waits has no VP.
            let carrier = unsafe { Carrier::here() };
            return if carrier.has_vp() { carrier.running() } else { None };
        }
        // SAFETY: GS is set.
        Standing::Bound => unsafe { Carrier::here() }.kernel_thread().bound.get(),
    };
    // SAFETY: null or a record, which lives for ever.
    unsafe { mp.as_ref() }
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
