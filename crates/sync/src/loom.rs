//! Atomics, parking and cancellation for this crate. Under `cfg(loom)` they come from loom, with a
//! parker of a few lines, so that the models run the code that ships.
//!
//! No other module imports atomics or the runtime's park and wake.

/// Emits a `const fn`, or a plain `fn` under loom, whose atomics have no const constructor.
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block) => {
        #[cfg(not(loom))]
        $(#[$meta])* $vis const fn $name($($arg: $ty),*) -> $ret $body
        #[cfg(loom)]
        $(#[$meta])* $vis fn $name($($arg: $ty),*) -> $ret $body
    };
}
pub(crate) use const_fn;

#[cfg(not(loom))]
mod real {
    pub(crate) use kumihimo_runtime::NoEvents;
    pub(crate) use kumihimo_runtime::cancel;
    pub(crate) use kumihimo_runtime::park::{Wait, Waiter, current};
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use std::thread::yield_now;

    use std::cell::Cell;
    use std::time::Instant;

    /// Returns the mark by which a lock word identifies the caller as owner: not 0, below 2^63, and
    /// unique among living threads.
    #[inline]
    pub(crate) fn me() -> u64 {
        // A lean microprocess shares thread-locals with its kernel thread, so only a foreign thread
        // may use the `MARK` of `foreign`.
        if kumihimo_runtime::park::waits_as_microprocess() { Waiter::mark() } else { foreign() }
    }

    #[inline]
    fn foreign() -> u64 {
        thread_local! {
            static MARK: Cell<u64> = const { Cell::new(0) };
        }
        let known = MARK.get();
        if known != 0 {
            return known;
        }
        let mark = current().foreign_mark();
        MARK.set(mark);
        mark
    }

    /// Returns the living microprocess whose mark this is. `None` for foreign kernel threads, whose
    /// priority the runtime does not change.
    pub(crate) fn find(mark: u64) -> Option<Waiter> {
        Waiter::of_mark(mark)
    }

    /// Cancellation point before a wait. Calls the runtime's `cancel::point` only to unwind,
    /// because that is also a switch point, which the wait itself is already.
    #[inline]
    pub(crate) fn point() {
        if cancel::would_unwind() {
            cancel::point();
        }
    }

    /// Whether the owner of a lock can run while the caller spins. False with a single VP, except
    /// inside `blocking`, and on a single core.
    #[inline]
    pub(crate) fn parallel() -> bool {
        kumihimo_runtime::park::vps() != Some(1) && cores() > 1
    }

    #[inline]
    fn cores() -> u32 {
        use std::sync::atomic::Ordering::Relaxed;
        static CORES: AtomicU32 = AtomicU32::new(0);
        match CORES.load(Relaxed) {
            0 => {
                let n =
                    std::thread::available_parallelism().map_or(1, |n| n.get().min(1 << 16) as u32);
                CORES.store(n, Relaxed);
                n
            }
            n => n,
        }
    }

    /// Blocks the caller; may return spuriously. No internal lock may be held.
    #[inline]
    pub(crate) fn park(why: Wait, deadline: Option<Instant>) {
        crate::wait::lockrank::assert_none_held();
        kumihimo_runtime::park::park(why, deadline);
    }

    /// Empty stand-in for the `Turn` of the loom models.
    #[derive(Debug)]
    pub(crate) struct Turn;
    pub(crate) type TurnGuard<'a> = std::marker::PhantomData<&'a Turn>;

    impl Turn {
        pub(crate) const fn new() -> Turn {
            Turn
        }

        #[inline(always)]
        pub(crate) fn wait(&self) -> TurnGuard<'_> {
            std::marker::PhantomData
        }
    }

    #[cfg(test)]
    #[test]
    fn single_vp_does_not_spin() {
        let on = |vps| {
            kumihimo_runtime::runtime::Runtime::builder().vps(vps).build().expect("a runtime").run(
                || {
                    // On the fallback back end, which runs kernel threads instead of
                    // microprocesses, there is no VP.
                    let lone = vps == 1 && kumihimo_runtime::park::on_vp();
                    assert_eq!(parallel(), cores() > 1 && !lone);
                },
            );
        };
        assert_eq!(parallel(), cores() > 1);
        on(1);
        on(2);
    }
}
#[cfg(not(loom))]
pub(crate) use real::*;

#[cfg(loom)]
mod model {
    pub(crate) use ::loom::hint::spin_loop;
    pub(crate) use ::loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use ::loom::thread::yield_now;

    use ::loom::sync::{Arc, Condvar, Mutex};
    use std::time::Instant;

    /// Stand-in for `NoEvents`: the models have no events.
    pub(crate) struct NoEvents;

    impl NoEvents {
        pub(crate) fn new() -> NoEvents {
            NoEvents
        }
    }

    #[derive(Clone, Copy, Debug)]
    #[allow(dead_code)]
    pub(crate) enum Wait {
        Mutex(usize),
        RwLock(usize),
        Condvar(usize),
        Barrier(usize),
        Once(usize),
        Semaphore(usize),
        Channel(usize),
        Select,
        Message(usize),
    }

    #[derive(Debug)]
    struct Parker {
        permit: Mutex<bool>,
        woken: Condvar,
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Waiter(Arc<Parker>);

    ::loom::thread_local! {
        static ME: Waiter = Waiter(Arc::new(Parker {
            permit: Mutex::new(false),
            woken: Condvar::new(),
        }));
    }

    // loom numbers its threads, so the marks are small and the same in every run of a model.
    pub(crate) fn me() -> u64 {
        let text = format!("{:?}", ::loom::thread::current().id());
        let number: String = text.chars().filter(char::is_ascii_digit).collect();
        number.parse::<u64>().expect("loom prints a number") + 1
    }

    pub(crate) fn current() -> Waiter {
        ME.with(Clone::clone)
    }

    pub(crate) fn parallel() -> bool {
        false
    }

    /// Treats a deadline as passed at once, so that a model explores the race between time-out and
    /// wake-up.
    pub(crate) fn park(_why: Wait, deadline: Option<Instant>) {
        ME.with(|w| {
            let mut permit = w.0.permit.lock().unwrap();
            while !*permit && deadline.is_none() {
                permit = w.0.woken.wait(permit).unwrap();
            }
            *permit = false;
        });
    }

    impl Waiter {
        pub(crate) fn wake(&self) {
            *self.0.permit.lock().unwrap() = true;
            self.0.woken.notify_one();
        }
        pub(crate) fn wake_sync(&self) {
            self.wake();
        }
        pub(crate) fn priority(&self) -> u8 {
            32
        }
    }

    pub(crate) fn point() {}

    /// Serialises the lockers of a spin lock: loom would otherwise explore every number of spins.
    #[derive(Debug)]
    pub(crate) struct Turn(Mutex<()>);
    pub(crate) type TurnGuard<'a> = ::loom::sync::MutexGuard<'a, ()>;

    impl Turn {
        pub(crate) fn new() -> Turn {
            Turn(Mutex::new(()))
        }

        pub(crate) fn wait(&self) -> TurnGuard<'_> {
            self.0.lock().unwrap()
        }
    }

    pub(crate) mod cancel {
        pub(crate) fn requested() -> bool {
            false
        }
    }
}
#[cfg(loom)]
pub(crate) use model::*;
