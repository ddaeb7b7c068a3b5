//! The workers of a service, and the requests that they handle.

use std::mem::replace;
use std::sync::Arc;

use kumihimo_runtime::park::Waiter;
use kumihimo_runtime::thread::Thread;

use crate::lane::CellNo;

/// A microprocess that handles requests of the gate.
pub(super) struct Worker<L> {
    pub(super) waiter: Waiter,
    pub(super) thread: Thread,
    /// The priority that it has.
    pub(super) level: u8,
    /// The priority was set while it slept, or was about to.
    pub(super) priority_set_asleep: bool,
    pub(super) state: WorkerState<L>,
}

/// The state of a worker.
pub(super) enum WorkerState<L> {
    /// It has no request, and sleeps or is about to.
    Idle,
    /// It was woken for a request of this priority.
    Called(u8),
    /// It handles this request.
    Handling(CurrentRequest<L>),
    /// It is between two requests, or a loop that has answered its request.
    Away,
}

/// The request that a worker handles.
pub(super) struct CurrentRequest<L> {
    pub(super) link: Arc<L>,
    pub(super) cell: CellNo,
    pub(super) serial: u32,
    pub(super) stream: bool,
    /// No caller waits for the answer any more, and the handler was not cancelled.
    pub(super) abandoned: bool,
}

impl<L> CurrentRequest<L> {
    pub(super) fn is_it(&self, link: &Arc<L>, cell: CellNo, serial: u32) -> bool {
        // A stream asks again and again in its cell, each time with a higher serial. What was asked
        // before it was another's there.
        let since = serial.wrapping_sub(self.serial);
        let is_its = if self.stream { since < u32::MAX / 2 } else { since == 0 };
        Arc::ptr_eq(&self.link, link) && self.cell == cell && is_its
    }
}

/// The workers of a service, by number. Its methods keep `idle` and `called` equal to the workers'
/// states, so that no request costs a look at all workers.
pub(super) struct Workers<L> {
    all: Vec<Option<Worker<L>>>,
    /// The number of workers: `all` also has places of workers that have left.
    len: usize,
    /// Workers that are [`Idle`](WorkerState::Idle); the last one has been idle for the shortest
    /// time.
    idle: Vec<usize>,
    /// Workers that are [`Called`](WorkerState::Called): one at most times.
    called: Vec<usize>,
}

impl<L> Default for Workers<L> {
    fn default() -> Workers<L> {
        Workers { all: Vec::new(), len: 0, idle: Vec::new(), called: Vec::new() }
    }
}

impl<L> Workers<L> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of idle workers.
    pub(super) fn idle(&self) -> usize {
        self.idle.len()
    }

    /// The highest priority for which a worker was called that has not yet come.
    pub(super) fn highest_called(&self) -> Option<u8> {
        let level = |at: &usize| match self.all[*at].as_ref()?.state {
            WorkerState::Called(level) => Some(level),
            _ => None,
        };
        self.called.iter().filter_map(level).max()
    }

    /// Adds a worker that is neither idle nor called. Returns its number.
    pub(super) fn add(&mut self, worker: Worker<L>) -> usize {
        self.len += 1;
        match self.all.iter().position(Option::is_none) {
            Some(at) => {
                self.all[at] = Some(worker);
                at
            }
            None => {
                self.all.push(Some(worker));
                self.all.len() - 1
            }
        }
    }

    /// Removes a worker.
    pub(super) fn remove(&mut self, me: usize) -> Option<Worker<L>> {
        self.unlist(me);
        let worker = self.all[me].take();
        self.len -= usize::from(worker.is_some());
        worker
    }

    /// # Panics
    /// If the worker has left.
    pub(super) fn get_mut(&mut self, me: usize) -> &mut Worker<L> {
        self.all[me].as_mut().expect("it serves")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Worker<L>> {
        self.all.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Worker<L>> {
        self.all.iter_mut().flatten()
    }

    /// Sets the state of a worker, which puts it into no list. Returns the one before.
    pub(super) fn set_busy(&mut self, me: usize, state: WorkerState<L>) -> WorkerState<L> {
        self.unlist(me);
        replace(&mut self.get_mut(me).state, state)
    }

    /// Makes a worker idle, unless it is.
    pub(super) fn set_idle(&mut self, me: usize) {
        if !matches!(self.get_mut(me).state, WorkerState::Idle) {
            self.set_busy(me, WorkerState::Idle);
            self.idle.push(me);
        }
    }

    /// Calls the worker that has been idle for the shortest time, for a request of priority
    /// `level`.
    pub(super) fn call_idle(&mut self, level: u8) -> Option<&mut Worker<L>> {
        let at = self.idle.pop()?;
        self.called.push(at);
        let worker = self.get_mut(at);
        worker.state = WorkerState::Called(level);
        Some(worker)
    }

    /// Removes a worker from the lists that its present state has put it into.
    fn unlist(&mut self, me: usize) {
        let list = match self.all[me].as_ref().map(|worker| &worker.state) {
            Some(WorkerState::Idle) => &mut self.idle,
            Some(WorkerState::Called(_)) => &mut self.called,
            _ => return,
        };
        list.retain(|at| *at != me);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use kumihimo_runtime::{park, thread};

    use super::*;

    fn workers(count: usize) -> Workers<()> {
        let mut workers = Workers::default();
        for number in 0..count {
            let worker = Worker {
                waiter: park::current(),
                thread: thread::current(),
                level: 1,
                priority_set_asleep: false,
                state: WorkerState::Away,
            };
            assert_eq!(workers.add(worker), number);
        }
        workers
    }

    #[test]
    fn worker_idle_for_the_shortest_time_is_called() {
        let mut workers = workers(3);
        workers.set_idle(0);
        workers.set_idle(2);
        workers.set_idle(2);
        assert_eq!((workers.len(), workers.idle(), workers.highest_called()), (3, 2, None));
        assert!(workers.call_idle(5).is_some());
        assert!(matches!(workers.get_mut(2).state, WorkerState::Called(5)));
        assert!(workers.call_idle(9).is_some());
        assert_eq!((workers.idle(), workers.highest_called()), (0, Some(9)));
        assert!(workers.call_idle(9).is_none());
        assert!(matches!(workers.set_busy(0, WorkerState::Away), WorkerState::Called(9)));
        assert_eq!(workers.highest_called(), Some(5));
    }

    /// A worker may wake without a call, and takes a request for which another one was called.
    #[test]
    fn worker_that_takes_a_request_uncalled_is_not_called_for_the_next() {
        let mut workers = workers(1);
        workers.set_idle(0);
        assert!(matches!(workers.set_busy(0, WorkerState::Away), WorkerState::Idle));
        assert!(workers.call_idle(5).is_none());
    }

    #[test]
    fn worker_that_leaves_is_neither_idle_nor_called() {
        let mut workers = workers(2);
        workers.set_idle(0);
        workers.set_idle(1);
        assert!(workers.call_idle(5).is_some());
        assert!(workers.remove(1).is_some());
        assert!(workers.remove(0).is_some());
        assert!(workers.remove(0).is_none());
        assert_eq!((workers.len(), workers.idle(), workers.highest_called()), (0, 0, None));
    }
}
