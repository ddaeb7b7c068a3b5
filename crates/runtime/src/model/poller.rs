//! The kernel's half of a VP's epoll set, as far as a sleep needs it: it wakes for a call, or for a
//! descriptor that became ready.

use std::io;
use std::time::Duration;

use ::loom::sync::atomic::{AtomicBool, Ordering};
use ::loom::sync::{Arc, Condvar, Mutex};

pub(crate) const CALL: u64 = 0;

#[derive(Debug)]
struct Set {
    is_ready: Mutex<bool>,
    changed: Condvar,
}

impl Set {
    fn wake(&self) {
        *self.is_ready.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

pub(crate) struct Poller {
    set: Arc<Set>,
    has_descriptors: AtomicBool,
}

impl Poller {
    pub(crate) fn new(has_descriptors: bool) -> Poller {
        let set = Set { is_ready: Mutex::new(false), changed: Condvar::new() };
        Poller { set: Arc::new(set), has_descriptors: AtomicBool::new(has_descriptors) }
    }

    pub(crate) fn as_fd(&self) -> &Poller {
        self
    }

    pub(crate) fn is_used(&self) -> bool {
        self.has_descriptors.load(Ordering::Relaxed)
    }

    /// A sticky microprocess registers the first descriptor.
    pub(crate) fn register(&self) {
        self.has_descriptors.store(true, Ordering::Relaxed);
    }

    /// A descriptor in the set becomes ready.
    pub(crate) fn become_ready(&self) {
        self.set.wake();
    }

    /// As the real one. A sleep with a limit is over at once, as after its time.
    pub(crate) fn sleep(&self, at_most: Option<Duration>) {
        let mut is_ready = self.set.is_ready.lock().unwrap();
        while !*is_ready && at_most.is_none() {
            is_ready = self.set.changed.wait(is_ready).unwrap();
        }
        *is_ready = false;
    }
}

#[derive(Debug)]
pub(crate) struct EpollWaker(Arc<Set>);

impl EpollWaker {
    pub(crate) fn new(poller: &Poller, _token: u64) -> io::Result<EpollWaker> {
        Ok(EpollWaker(poller.set.clone()))
    }

    pub(crate) fn wake(&self) {
        self.0.wake();
    }
}

/// Stands for the request of a kernel thread, which no VP of the models needs.
#[derive(Debug)]
pub(crate) struct Unparker;

impl Unparker {
    pub(crate) fn is_parked(&self) -> bool {
        false
    }

    pub(crate) fn unpark(&self) {}
}
