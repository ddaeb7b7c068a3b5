//! Operations that the models of this crate, of the runtime and of gates replace: atomics, fences
//! and futexes.
//!
//! Code under a model imports them only from here: the real ones, or loom's under `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use ::loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Futex operations: futex(2).
#[cfg(not(loom))]
pub(crate) mod futex {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    /// Waits while `word` equals `expected`, for at most `at_most`. May return early.
    pub(crate) fn wait(word: &AtomicU32, expected: u32, at_most: Option<Duration>, private: bool) {
        let wait = at_most.map(|d| libc::timespec {
            tv_sec: d.as_secs() as i64,
            tv_nsec: i64::from(d.subsec_nanos()),
        });
        let wait = wait.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let operation = libc::FUTEX_WAIT | flag(private);
        // SAFETY: a live word, and a live timespec or null. Errors are ignored, because callers
        // allow for an early return.
        unsafe {
            kumihimo_arch::call!(libc::SYS_futex, word.as_ptr(), operation, expected, wait, 0, 0)
        };
    }

    /// Wakes one thread that waits on `word`.
    pub(crate) fn wake(word: &AtomicU32, private: bool) {
        let operation = libc::FUTEX_WAKE | flag(private);
        // SAFETY: a live word.
        unsafe { kumihimo_arch::call!(libc::SYS_futex, word.as_ptr(), operation, 1, 0, 0, 0) };
    }

    fn flag(private: bool) -> i32 {
        if private { libc::FUTEX_PRIVATE_FLAG } else { 0 }
    }
}

/// The kernel's half of a futex in the models: a list of sleepers under a lock.
#[cfg(loom)]
pub(crate) mod futex {
    use std::time::Duration;

    use ::loom::sync::{Arc, Condvar, Mutex};

    use super::{AtomicU32, Ordering};

    /// A sleeper on a word: its own condition, and whether it was woken.
    struct Sleeper {
        word: usize,
        is_woken: bool,
        woken: Arc<Condvar>,
    }

    ::loom::lazy_static! {
        static ref SLEEPERS: Mutex<Vec<Sleeper>> = Mutex::new(Vec::new());
    }

    /// As the real call. A sleep with a limit is over at once, as after its time.
    pub(crate) fn wait(word: &AtomicU32, expected: u32, at_most: Option<Duration>, _: bool) {
        let mut sleepers = SLEEPERS.lock().unwrap();
        if word.load(Ordering::Relaxed) != expected || at_most.is_some() {
            return;
        }
        let woken = Arc::new(Condvar::new());
        let word = std::ptr::from_ref(word).addr();
        sleepers.push(Sleeper { word, is_woken: false, woken: woken.clone() });
        let is_me = |sleeper: &Sleeper| Arc::ptr_eq(&sleeper.woken, &woken);
        loop {
            sleepers = woken.wait(sleepers).unwrap();
            let at = sleepers.iter().position(is_me).expect("only the sleeper leaves the list");
            if sleepers[at].is_woken {
                sleepers.remove(at);
                return;
            }
        }
    }

    pub(crate) fn wake(word: &AtomicU32, _: bool) {
        let word = std::ptr::from_ref(word).addr();
        let mut sleepers = SLEEPERS.lock().unwrap();
        let sleeper = sleepers.iter_mut().find(|one| one.word == word && !one.is_woken);
        if let Some(sleeper) = sleeper {
            sleeper.is_woken = true;
            sleeper.woken.notify_one();
        }
    }
}
