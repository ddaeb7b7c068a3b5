//! Events and spans for the crate `tracing`, with the cargo feature `tracing`. Without the feature
//! all functions here are no-ops.
//!
//! A subscriber is arbitrary code: it may wait on this runtime's locks, spawn, or panic. So it is
//! called only where a microprocess could do the same: in `spawn`, at the begin and end of a
//! microprocess, and *after* a wait. (Before a wait, a wait of the subscriber would consume the
//! permit that ends the wait to come.) It is never called inside [`NoEvents`](crate::NoEvents), on
//! a carrier's own stack, in a signal handler, or within itself.
//!
//! A subscriber must not wait for a lock or channel of this runtime that it also uses when the
//! program calls it. Such a wait would call the subscriber again in the middle of that use.
//! Subscribers should use std's locks and hold them for moments, or disable the target `kumihimo`
//! at level `trace`. Lean microprocesses emit nothing: the per-thread state of a subscriber would
//! be that of their kernel thread.

#[cfg(not(feature = "tracing"))]
mod off {
    use crate::microprocess::record::{Mp, Ref};
    use crate::microprocess::wait_reason::Wait;

    pub(crate) struct WaitSpan;

    impl WaitSpan {
        #[inline(always)]
        pub(crate) fn begin(_: Wait) -> WaitSpan {
            WaitSpan
        }
    }

    #[inline(always)]
    pub(crate) fn spawned(_: Ref, _: Option<&str>) {}

    #[inline(always)]
    pub(crate) fn life<T>(_: &'static Mp, f: impl FnOnce() -> T) -> T {
        f()
    }
}

#[cfg(not(feature = "tracing"))]
pub(crate) use off::*;

#[cfg(feature = "tracing")]
pub(crate) use on::*;

#[cfg(feature = "tracing")]
mod on {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Instant;

    use kumihimo_resource::id::Printed;
    use tracing::level_filters::LevelFilter;
    use tracing::{Span, debug, debug_span, trace};

    use crate::kernel_thread::gs_record::{self, KernelThread, Standing};
    use crate::microprocess::record::{Mp, Ref};
    use crate::microprocess::wait_reason::Wait;
    use crate::wait::cancel;

    thread_local! {
        /// Whether the thread is inside a call of the subscriber.
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }

    /// Calls the subscriber, if that is allowed here and the level is enabled. Catches its panics
    /// and defers cancellation, because the callers can handle neither.
    fn tell<R>(level: LevelFilter, f: impl FnOnce() -> R) -> Option<R> {
        // One load; the macros themselves query the subscriber.
        if LevelFilter::current() < level || !may_tell() || INSIDE.replace(true) {
            return None;
        }
        let told = cancel::masked(|| catch_unwind(AssertUnwindSafe(f)));
        INSIDE.set(false);
        told.ok()
    }

    fn may_tell() -> bool {
        if std::thread::panicking() {
            return false;
        }
        if gs_record::standing() == Standing::Foreign {
            return true;
        }
        // SAFETY: not foreign: GS is set.
        let masked = unsafe { KernelThread::here() }.slot().depth() != 0;
        !masked && gs_record::current_mp().is_some_and(|mp| mp.fs.get() != 0)
    }

    /// A wait, emitted when it ends: [`Wait`] as text, and nanoseconds.
    pub(crate) struct WaitSpan(Option<(Wait, Instant)>);

    impl WaitSpan {
        #[inline]
        pub(crate) fn begin(why: Wait) -> WaitSpan {
            WaitSpan((LevelFilter::current() >= LevelFilter::TRACE).then(|| (why, Instant::now())))
        }
    }

    impl Drop for WaitSpan {
        #[inline]
        fn drop(&mut self) {
            if let Some((why, since)) = self.0 {
                let ns = since.elapsed().as_nanos() as u64;
                tell(LevelFilter::TRACE, || trace!(target: "kumihimo", wait = %why, ns, "waited"));
            }
        }
    }

    /// Emits an event for a spawn. Called by the spawning thread.
    pub(crate) fn spawned(who: Ref, name: Option<&str>) {
        tell(
            LevelFilter::DEBUG,
            || debug!(target: "kumihimo", id = %Printed(who.id()), name, "spawned"),
        );
    }

    /// Runs the calling microprocess's closure in a span of its own, which has no parent.
    pub(crate) fn life<T>(mp: &'static Mp, f: impl FnOnce() -> T) -> T {
        struct Ends;
        impl Drop for Ends {
            fn drop(&mut self) {
                let panicked = std::thread::panicking();
                if !panicked {
                    tell(LevelFilter::DEBUG, || debug!(target: "kumihimo", "ended"));
                }
            }
        }
        let span = tell(LevelFilter::DEBUG, || {
            // SAFETY: the running microprocess's own name.
            let name = unsafe { &*mp.name.get() }.as_deref();
            debug_span!(target: "kumihimo", parent: None, "microprocess", id = %Printed(mp.id()), name)
        });
        let span = span.unwrap_or_else(Span::none);
        let _inside = span.enter();
        let _ends = Ends;
        f()
    }
}
