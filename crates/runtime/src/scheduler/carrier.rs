//! The kernel thread under a virtual processor, and the right to touch that VP.

use std::marker::PhantomData;

use kumihimo_arch::cpu;

use crate::kernel_thread::gs_record::{KernelThread, Standing, current_mp, standing};
use crate::microprocess::record::Mp;
use crate::scheduler::instance::Instance;
use crate::scheduler::vp::Vp;
use crate::trace_hooks;

/// The right to touch the VP under the caller: as long as one exists, the kernel thread's slot is
/// masked and the VP stays.
///
/// Not `Send`, and consumed by everything that switches: after a switch the caller may run on
/// another kernel thread with another VP, and gets a fresh one.
pub(crate) struct Carrier {
    vp: *const Vp,
    _not_send: PhantomData<*const ()>,
}

impl Carrier {
    /// The caller's, if it runs on a VP. None as well if the VP was taken over while the caller was
    /// away in the kernel.
    #[inline]
    pub(crate) fn current() -> Option<Carrier> {
        if standing() != Standing::OnVp {
            return None;
        }
        // SAFETY: on a VP, so GS is set.
        let kt = unsafe { KernelThread::begin_guard() };
        if kt.enter() {
            return Some(Carrier { vp: kt.vp(), _not_send: PhantomData });
        }
        kt.unmask();
        None
    }

    /// The right of one that is masked already and has no `Carrier` yet: after a switch, or on its
    /// own stack.
    ///
    /// # Safety
    /// The caller's standing is not `Foreign`, its kernel thread's slot is masked once, and no
    /// other `Carrier` stands for that.
    #[inline(always)]
    pub(crate) unsafe fn here() -> Carrier {
        // SAFETY: the caller's promise.
        Carrier { vp: unsafe { cpu::gs_word::<8>() }.cast(), _not_send: PhantomData }
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
        // SAFETY: a carrier exists only while its kernel thread carries a VP (else `has_vp` is
        // asked first); VPs outlive their carriers.
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
        self.kernel_thread().unmask();
    }
}

impl Carrier {
    /// The end of it without telling what waits: true if something does.
    #[must_use]
    pub(crate) fn release(self) -> bool {
        let waits = self.kernel_thread().unmask_quietly();
        std::mem::forget(self);
        waits
    }

    /// Of one that has just masked ([`KernelThread::enter`]).
    ///
    /// # Safety
    /// `kt` is the caller's, entered once, with its VP, and no other `Carrier` stands for that.
    pub(crate) unsafe fn of(kt: &KernelThread) -> Carrier {
        Carrier { vp: kt.vp(), _not_send: PhantomData }
    }
}

/// The microprocess on whose slot this kernel thread runs, if it is one that ends at `slot_end`.
/// Async-signal-safe.
pub(crate) fn running_on(slot_end: usize) -> Option<&'static Mp> {
    let running = current_mp().into_iter();
    // In the middle of a switch the next one is noted already, on the stack of the one that leaves.
    let leaving =
        Carrier::current().filter(Carrier::has_vp).and_then(|carrier| carrier.vp().leaving());
    running.chain(leaving).find(|mp| mp.slot_end() as usize == slot_end)
}

impl KernelThread {
    /// The VP that it carries; null: none.
    pub(crate) fn vp(&self) -> *const Vp {
        self.vp.get().cast()
    }

    /// The runtime that it belongs to.
    pub(crate) fn instance(&self) -> &Instance {
        // SAFETY: its kernel threads hold a count of it: see `kumihimo_events::kernel`.
        unsafe { &*self.instance.cast::<Instance>() }
    }

    /// The VP has come to this kernel thread, the caller's. Masked.
    pub(crate) fn attach_vp(&self, vp: *const Vp) {
        self.token.set(self.events().token());
        self.vp.set(vp.cast());
        // SAFETY: VPs outlive their carriers.
        let trace = unsafe { &(*vp).trace };
        let is_bound = !self.current.get().is_null();
        trace_hooks::carried(trace, self.tid(), is_bound);
        // SAFETY: as above.
        unsafe { &*vp }.note_thread();
        self.time_short_turns();
    }
}
