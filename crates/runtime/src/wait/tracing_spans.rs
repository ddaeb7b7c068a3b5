//! What the crate `tracing` is told, with the cargo feature `tracing`; without it everything here
//! is nothing.
//!
//! A subscriber is anybody's code: it may wait on our locks, spawn, panic. So it is called only
//! where a microprocess might do all of this itself: in `spawn`, at the ends of a microprocess's
//! life, and *after* a wait (before it, a wait of the subscriber's would take the permit that ends
//! the one to come). Never inside [`NoEvents`](crate::NoEvents), never on a carrier's own stack,
//! never in a signal handler, and never within itself. What it may not do is wait for a lock or
//! channel of ours that it also uses when the program calls it: it would be told of that wait in
//! the middle of it. (std's locks, held for moments, are right for subscribers; or leave the target
//! `kumihimo` out at level `trace`.) Of lean microprocesses nothing is told: what a subscriber
//! keeps per thread would be their kernel thread's.

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
        /// A subscriber is being called.
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }

    /// Calls a subscriber, if it may be called here and wants this level. Its panics end here, and
    /// no cancellation unwinds through it: the callers are no place for either.
    fn tell<R>(level: LevelFilter, f: impl FnOnce() -> R) -> Option<R> {
        // One load; the subscriber itself is asked by the macros.
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

    /// A wait, told when it is over: [`Wait`] as text, and nanoseconds.
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

    /// By the one that spawned.
    pub(crate) fn spawned(who: Ref, name: Option<&str>) {
        tell(
            LevelFilter::DEBUG,
            || debug!(target: "kumihimo", id = %Printed(who.id()), name, "spawned"),
        );
    }

    /// The life of the calling microprocess: a span of its own, below no other.
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
