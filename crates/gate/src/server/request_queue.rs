//! Requests of a gate that wait for a worker.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::lane::{CellNo, LEVELS, RequestHeader};

/// A request from a client, whose link is an `L`.
pub(crate) struct Request<L> {
    pub(crate) link: Arc<L>,
    pub(crate) cell: CellNo,
    pub(crate) serial: u32,
    pub(crate) header: RequestHeader,
}

/// Requests by priority, first come first served among equals.
pub(crate) struct RequestQueue<L> {
    /// A bit for each priority with requests.
    nonempty: u64,
    levels: [VecDeque<Request<L>>; LEVELS as usize],
}

impl<L> Default for RequestQueue<L> {
    fn default() -> RequestQueue<L> {
        RequestQueue { nonempty: 0, levels: std::array::from_fn(|_| VecDeque::new()) }
    }
}

impl<L> RequestQueue<L> {
    pub(crate) fn push(&mut self, request: Request<L>) {
        let level = request.header.priority & (LEVELS - 1);
        self.nonempty |= 1 << level;
        self.levels[usize::from(level)].push_back(request);
    }

    /// The highest priority with a request.
    pub(crate) fn highest(&self) -> Option<u8> {
        63_u8.checked_sub(self.nonempty.leading_zeros() as u8)
    }

    pub(crate) fn pop(&mut self) -> Option<Request<L>> {
        let level = self.highest()?;
        let requests = &mut self.levels[usize::from(level)];
        let first = requests.pop_front();
        if requests.is_empty() {
            self.nonempty &= !(1 << level);
        }
        first
    }

    pub(crate) fn len(&self) -> usize {
        self.levels.iter().map(VecDeque::len).sum()
    }

    /// Removes the requests for which `is_gone` holds, and returns them.
    pub(crate) fn remove(&mut self, is_gone: impl Fn(&Request<L>) -> bool) -> Vec<Request<L>> {
        let mut gone = Vec::new();
        for (level, requests) in self.levels.iter_mut().enumerate() {
            let (out, kept) = requests.drain(..).partition::<VecDeque<_>, _>(&is_gone);
            gone.extend(out);
            *requests = kept;
            if requests.is_empty() {
                self.nonempty &= !(1 << level);
            }
        }
        gone
    }
}
