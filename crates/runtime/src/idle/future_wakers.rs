//! Wakers of futures that wait for a descriptor.
//!
//! The waker of a `block_on` only sets a flag and wakes its thread, so the reporting VP calls it.
//! Any other waker is code of the program: it may wait for a lock whose holder needs that very VP.
//! Such wakers go to the service ([`service`]), which calls them in a microprocess.

use std::task::Waker;

use crate::idle::interest::Interest;

/// How a waker is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakerKind {
    /// The waker of a `block_on`: by whatever thread reports the edge.
    BlockOn,
    /// Code of the program: by the service.
    Foreign,
}

/// A future that waits for one direction of a descriptor.
pub(crate) struct FutureWaker {
    pub(crate) interest: Interest,
    /// Unique number of the future's place.
    pub(crate) place: u64,
    pub(crate) waker: Waker,
    pub(crate) kind: WakerKind,
}

impl FutureWaker {
    fn deliver(self) {
        match self.kind {
            WakerKind::BlockOn => self.waker.wake(),
            WakerKind::Foreign => service::push(self.waker),
        }
    }
}

/// The futures that wait for one descriptor: one waker per place and direction.
#[derive(Default)]
pub(crate) struct FutureWakers(Vec<FutureWaker>);

impl FutureWakers {
    /// Enters a waker, in place of the former one of that place. Returns the former one, which the
    /// caller drops after it has released the locks.
    pub(crate) fn enter(&mut self, new: FutureWaker) -> Option<Waker> {
        let former = self.remove(new.interest, new.place);
        if new.kind == WakerKind::Foreign {
            service::expect();
        }
        self.0.push(new);
        former
    }

    /// Removes the waker of a place. The caller drops it after it has released the locks.
    pub(crate) fn remove(&mut self, interest: Interest, place: u64) -> Option<Waker> {
        let at = self.0.iter().position(|w| w.place == place && w.interest == interest)?;
        let removed = self.0.swap_remove(at);
        if removed.kind == WakerKind::Foreign {
            service::cease_to_expect();
        }
        Some(removed.waker)
    }

    /// Removes all wakers. The caller drops them after it has released the locks.
    #[cfg(not(loom))]
    pub(crate) fn take_all(&mut self) -> Vec<FutureWaker> {
        let foreign = self.0.iter().filter(|waker| waker.kind == WakerKind::Foreign);
        foreign.for_each(|_| service::cease_to_expect());
        std::mem::take(&mut self.0)
    }

    /// Delivers and removes the wakers of the directions that became ready.
    pub(crate) fn report(&mut self, read: bool, write: bool) {
        let mut at = 0;
        while let Some(waker) = self.0.get(at) {
            if if waker.interest == Interest::Read { read } else { write } {
                self.0.swap_remove(at).deliver();
            } else {
                at += 1;
            }
        }
    }
}

/// Wakers that are code of the program, on their way to the microprocess that calls them.
#[cfg(not(loom))]
pub mod service {
    use std::sync::Mutex;
    use std::task::Waker;

    use crate::kernel_thread::no_events::lock;
    use crate::microprocess::waiter::Waiter;

    struct Queue {
        /// Wakers to be called. Has room for all `awaited` ones: nothing is allocated by the VP
        /// that reports an edge.
        ready: Vec<Waker>,
        /// Number of entered wakers whose descriptors are not ready.
        awaited: usize,
        /// The thread that calls `ready`.
        server: Option<Waiter>,
    }

    static QUEUE: Mutex<Queue> = Mutex::new(Queue { ready: Vec::new(), awaited: 0, server: None });

    pub(super) fn expect() {
        let mut queue = lock(&QUEUE);
        queue.awaited += 1;
        let awaited = queue.awaited;
        queue.ready.reserve(awaited);
    }

    pub(super) fn cease_to_expect() {
        lock(&QUEUE).awaited -= 1;
    }

    pub(super) fn push(waker: Waker) {
        let mut queue = lock(&QUEUE);
        queue.awaited -= 1;
        queue.ready.push(waker);
        if let Some(server) = &queue.server {
            server.wake();
        }
    }

    /// Makes `server` the thread that is woken for ready wakers.
    pub fn set_server(server: Option<Waiter>) {
        lock(&QUEUE).server = server;
    }

    /// Removes the wakers that are ready. The caller calls them without holding a lock.
    pub fn take_ready() -> Vec<Waker> {
        let mut queue = lock(&QUEUE);
        if queue.ready.is_empty() {
            return Vec::new();
        }
        let awaited = queue.awaited;
        std::mem::replace(&mut queue.ready, Vec::with_capacity(awaited))
    }

    /// Returns whether a waker is ready, or may become ready.
    pub fn is_needed() -> bool {
        let queue = lock(&QUEUE);
        queue.awaited != 0 || !queue.ready.is_empty()
    }
}

/// The models have wakers of `block_on` only.
#[cfg(loom)]
mod service {
    pub(super) fn expect() {
        unreachable!()
    }

    pub(super) fn cease_to_expect() {
        unreachable!()
    }

    pub(super) fn push(_: std::task::Waker) {
        unreachable!()
    }
}
