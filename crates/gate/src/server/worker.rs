//! A worker of a service, and the request that it handles.

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
