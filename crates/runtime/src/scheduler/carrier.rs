//! Exclusive access to the VP that the current kernel thread carries.

use std::marker::PhantomData;

use kumihimo_arch::cpu;

use crate::kernel_thread::gs_record::{KernelThread, Standing, current_mp, standing};
use crate::microprocess::record::Mp;
use crate::scheduler::instance::Instance;
use crate::scheduler::vp::Vp;
use crate::trace_hooks;

/// Proof of exclusive access to the VP of the calling kernel thread. While a `Carrier` exists, the
/// slot of the kernel thread is masked and the VP cannot be taken over.
///
/// A `Carrier` is not `Send`, and every operation that switches consumes it. After a switch the
/// caller may run on another kernel thread with another VP, and gets a new `Carrier`.
pub(crate) struct Carrier {
    vp: *const Vp,
    _not_send: PhantomData<*const ()>,
}

impl Carrier {
    /// Masks the slot and returns the `Carrier` of the calling kernel thread, if the caller runs on
    /// a VP. Returns `None` as well if the VP was taken over while the caller was in the kernel.
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

    /// Creates the `Carrier` of a kernel thread that is masked already and has none: after a
    /// switch, or on the kernel thread's own stack.
    ///
    /// # Safety
    /// The caller's standing is not `Foreign`, its kernel thread's slot is masked once, and no
    /// other `Carrier` represents that mask.
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

    /// Returns the VP. The borrow ends where a switch consumes the carrier.
    #[inline(always)]
    pub(crate) fn vp(&self) -> &Vp {
        debug_assert!(self.has_vp());
        // SAFETY: a carrier exists only while its kernel thread carries a VP, except where the
        // caller checks `has_vp` first. VPs outlive their carriers.
        unsafe { &*self.vp }
    }

    /// Whether the carrier has a VP. False on the own stack of a kernel thread that lost its VP
    /// inside `blocking`.
    #[inline(always)]
    pub(crate) fn has_vp(&self) -> bool {
        !self.vp.is_null()
    }

    /// Whether a microprocess runs here, rather than the carrier's own stack.
    #[inline(always)]
    pub(crate) fn is_running(&self) -> bool {
        !self.kernel_thread().current.get().is_null()
    }

    /// Returns the microprocess that runs here, or `None` on the carrier's own stack.
    #[inline(always)]
    pub(crate) fn running(&self) -> Option<&'static Mp> {
        // SAFETY: null or a record; records live for ever.
        unsafe { self.kernel_thread().current.get().as_ref() }
    }
}

/// Unmasks the slot: from here on the VP may be taken over.
impl Drop for Carrier {
    #[inline(always)]
    fn drop(&mut self) {
        self.kernel_thread().unmask();
    }
}

impl Carrier {
    /// Unmasks the slot without delivering pending events. Returns whether any are pending.
    #[must_use]
    pub(crate) fn release(self) -> bool {
        let waits = self.kernel_thread().unmask_quietly();
        std::mem::forget(self);
        waits
    }

    /// Creates the `Carrier` of a kernel thread that has just entered ([`KernelThread::enter`]).
    ///
    /// # Safety
    /// `kt` is the caller's kernel thread, entered once, with its VP, and no other `Carrier`
    /// represents that mask.
    pub(crate) unsafe fn of(kt: &KernelThread) -> Carrier {
        Carrier { vp: kt.vp(), _not_send: PhantomData }
    }
}

/// Returns the microprocess whose stack slot ends at `slot_end`, if this kernel thread runs on it.
/// Async-signal-safe.
pub(crate) fn running_on(slot_end: usize) -> Option<&'static Mp> {
    let running = current_mp().into_iter();
    // In the middle of a switch, `current` already names the next microprocess while the stack
    // still belongs to the previous one.
    let leaving =
        Carrier::current().filter(Carrier::has_vp).and_then(|carrier| carrier.vp().leaving());
    running.chain(leaving).find(|mp| mp.slot_end() as usize == slot_end)
}

impl KernelThread {
    /// Returns the VP that this kernel thread carries, or null.
    pub(crate) fn vp(&self) -> *const Vp {
        self.vp.get().cast()
    }

    /// Returns the runtime instance that this kernel thread belongs to.
    pub(crate) fn instance(&self) -> &Instance {
        // SAFETY: the kernel threads of an instance hold a reference count of it: see
        // `kumihimo_events::kernel`.
        unsafe { &*self.instance.cast::<Instance>() }
    }

    /// Attaches `vp` to this kernel thread, which is the caller's. Masked.
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
