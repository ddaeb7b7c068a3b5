//! A virtual processor without work: look, spin, sleep; and how it is woken.
//!
//! Runs on the kernel thread's own stack. The protocol against lost wake-ups, modelled in loom below: the sleeper says
//! SLEEPING, then looks once more at everything that others may have filled; the waker fills, then looks whether the VP says
//! SLEEPING. Both look after a full fence, so one of them sees the other.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// It runs microprocesses or looks for some: no wake-up is needed.
const AWAKE: u32 = 0;
/// It waits in the kernel, or is about to.
const SLEEPING: u32 = 1;
/// Somebody has called it; it is on its way up.
const CALLED: u32 = 2;

/// The word that a VP and its wakers agree on.
#[derive(Debug)]
pub(crate) struct IdleWord(AtomicU32);

impl IdleWord {
    pub(crate) fn new() -> IdleWord {
        IdleWord(AtomicU32::new(AWAKE))
    }

    /// The VP is about to sleep; it must look at everything once more after this.
    pub(crate) fn lie_down(&self) {
        self.0.store(SLEEPING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The VP is up again. True if somebody called it.
    pub(crate) fn get_up(&self) -> bool {
        self.0.swap(AWAKE, Ordering::Acquire) == CALLED
    }

    /// After something was put where the VP looks: whether the caller has to wake its kernel thread.
    #[must_use]
    pub(crate) fn call(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) == SLEEPING
            && self.0.compare_exchange(SLEEPING, CALLED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// A hint: it may be otherwise by now.
    #[inline]
    pub(crate) fn is_sleeping(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SLEEPING
    }
}

#[cfg(not(loom))]
pub(crate) use vp_side::Idle;

#[cfg(not(loom))]
mod vp_side {
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::IdleWord;
    use crate::carrier::{Carrier, KernelThread};
    use crate::record::Mp;
    use crate::vp::{Vp, bump};

    /// How long an idle VP spins before it sleeps. About what a sleep and a wake-up cost on the same core: longer spinning can
    /// lose at most twice the optimum (Karlin et al. 1990).
    const SPIN: Duration = Duration::from_micros(15);
    /// An idle VP beside busy ones looks in again after this long, then twice as long, ...
    const FIRST_NAP: Duration = Duration::from_micros(200);
    /// ... up to this: the bound on how long a lone runnable microprocess behind a computing one waits for an idle VP.
    const LONGEST_NAP: Duration = Duration::from_millis(10);

    /// A VP that was up for less, in nanoseconds, was woken for less than it costs to wake it, ...
    const WORTH_WAKING: u64 = 50_000;
    /// ... and is not woken for a little work for this long.
    const REST: u64 = 1_000_000;

    /// Shared half of a VP's idling.
    #[derive(Debug)]
    pub(crate) struct Idle {
        pub(crate) word: IdleWord,
        /// When it pays again to wake the VP for a little work, on the instance's clock.
        rested: AtomicU64,
        /// eventfd in the VP's epoll set.
        call: OwnedFd,
    }

    impl Idle {
        pub(crate) fn new() -> io::Result<Idle> {
            // SAFETY: no pointers.
            let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if fd < 0 {
                let e = io::Error::last_os_error();
                let text = format!("eventfd of a virtual processor: {e}; raise the descriptor limit (ulimit -n)");
                return Err(io::Error::new(e.kind(), text));
            }
            // SAFETY: a fresh descriptor that nobody else owns.
            Ok(Idle { word: IdleWord::new(), rested: AtomicU64::new(0), call: unsafe { OwnedFd::from_raw_fd(fd) } })
        }

        pub(crate) fn raw(&self) -> i32 {
            self.call.as_raw_fd()
        }

        /// Whether it pays to wake the VP, which sleeps, for a little work: not if it had so little lately that it soon slept again.
        pub(crate) fn is_rested(&self, now: impl FnOnce() -> u64) -> bool {
            let rested = self.rested.load(Ordering::Relaxed);
            rested == 0 || now() >= rested
        }

        /// Sees to it that the VP looks at what was put before it.
        #[inline]
        pub(crate) fn wake(&self) {
            if self.word.call() {
                self.write();
            }
        }

        #[cold]
        fn write(&self) {
            let one = 1u64;
            // SAFETY: 8 live bytes. The only failure, EAGAIN at 2^64-1, means that it is readable anyway.
            unsafe { libc::write(self.call.as_raw_fd(), (&raw const one).cast(), 8) };
        }

        pub(crate) fn drain(&self) {
            let mut n = 0u64;
            // SAFETY: 8 live bytes; EAGAIN is fine.
            unsafe { libc::read(self.call.as_raw_fd(), (&raw mut n).cast(), 8) };
        }
    }

    impl Carrier {
        /// On the kernel thread's own stack: runs microprocesses whenever there are any. Returns, masked, when the runtime stops or this
        /// kernel thread no longer carries a VP.
        pub(crate) fn run(mut self) {
            let mut nap = FIRST_NAP;
            while self.has_vp() {
                let vp = self.vp();
                let next = vp.promised.take().or_else(|| {
                    vp.look_around();
                    vp.run_batch_if_due();
                    vp.pick_or_pull()
                });
                let next = match next {
                    Some(next) => {
                        nap = FIRST_NAP;
                        Some(next)
                    }
                    None if vp.instance().stopped() => break,
                    None => {
                        self.kernel_thread().shows_nobody();
                        vp.idle(&mut nap)
                    }
                };
                if let Some(next) = next {
                    if next.waits_elsewhere() {
                        vp.shows(next);
                    }
                    match self.go_on_with(next) {
                        Some(carrier) => self = carrier,
                        None => return,
                    }
                }
            }
            std::mem::forget(self);
        }
    }

    impl Vp {
        /// Waits until there is something to do. May return nothing, for no reason.
        #[cold]
        fn idle(&self, nap: &mut Duration) -> Option<&'static Mp> {
            let instance = self.instance();
            let since = instance.now();
            self.runs_nothing();
            crate::tracing::idles(self, true);
            instance.idle_vps.fetch_add(1, Ordering::SeqCst);
            let found = self.spin(since).or_else(|| {
                let ran = since.saturating_sub(self.up_since.get());
                let rested = if ran < WORTH_WAKING { since + REST } else { 0 };
                self.idle.rested.store(rested, Ordering::Relaxed);
                self.sleep(nap);
                None
            });
            instance.idle_vps.fetch_sub(1, Ordering::SeqCst);
            instance.kernel.keep_time();
            let idle = &self.counters.idle_ns;
            idle.store(idle.load(Ordering::Relaxed) + (instance.now() - since), Ordering::Relaxed);
            crate::tracing::idles(self, false);
            found
        }

        fn spin(&self, since: u64) -> Option<&'static Mp> {
            let instance = self.instance();
            // Alone there is nobody to wait for but the kernel, which tells by the descriptor; and a VP with descriptors of its own hears
            // from the kernel sooner than from its neighbours.
            if instance.vps.len() == 1 || instance.quiet() || self.poller.is_used() {
                return None;
            }
            let until = since + SPIN.as_nanos() as u64;
            loop {
                for _ in 0..16 {
                    std::hint::spin_loop();
                }
                self.look_around();
                if let Some(next) = self.pick_or_pull() {
                    return Some(next);
                }
                if instance.now() >= until {
                    return None;
                }
            }
        }

        fn sleep(&self, nap: &mut Duration) {
            let instance = self.instance();
            self.pool.top_up(instance.default_kind);
            let ebb = self.ebb();
            self.idle.word.lie_down();
            let now = instance.now();
            let mut wait = self.timers().rouse_at(now).map(|at| Duration::from_nanos(at.saturating_sub(now)));
            let nothing_to_do = !self.queue().has_visible_work()
                && self.queue().is_empty()
                && !self.requests.pending()
                && !instance.stopped()
                && wait != Some(Duration::ZERO);
            if nothing_to_do {
                bump(&self.counters.sleeps);
                if !instance.all_idle() {
                    wait = Some(wait.map_or(*nap, |w| w.min(*nap)));
                    *nap = (*nap * 2).min(LONGEST_NAP);
                } else {
                    wait = [wait, ebb, crate::deadlock::next_look(self)].into_iter().flatten().min();
                }
                // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
                let thread = unsafe { KernelThread::here() }.events();
                thread.rest(true);
                self.poller.sleep(wait);
                thread.rest(false);
            }
            if self.idle.word.get_up() {
                self.idle.drain();
            }
            let now = instance.now();
            self.up_since.set(now);
            self.fire_timers(now);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;

    /// One waker, one sleeper: the work is seen before the sleep, or the sleeper is called.
    #[test]
    fn no_lost_wake_up() {
        loom::model(|| {
            let word = Arc::new(IdleWord::new());
            let work = Arc::new(AtomicBool::new(false));
            let waker = {
                let (word, work) = (word.clone(), work.clone());
                loom::thread::spawn(move || {
                    work.store(true, Ordering::Relaxed);
                    word.call()
                })
            };
            word.lie_down();
            let saw = work.load(Ordering::Relaxed);
            let called = waker.join().unwrap();
            assert!(saw || called, "asleep with work and nobody called");
            assert_eq!(word.get_up(), called);
        });
    }

    /// Two wakers: at most one of them makes the system call.
    #[test]
    fn one_call_is_enough() {
        loom::model(|| {
            let word = Arc::new(IdleWord::new());
            let wakers: Vec<_> = (0..2)
                .map(|_| {
                    let word = word.clone();
                    loom::thread::spawn(move || word.call())
                })
                .collect();
            word.lie_down();
            let calls = wakers.into_iter().map(|w| u32::from(w.join().unwrap())).sum::<u32>();
            assert!(calls <= 1);
            assert_eq!(word.get_up(), calls == 1);
        });
    }
}
