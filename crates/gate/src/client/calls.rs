//! The calls of one link: cells, replies, callers that wait for either, and the end of the link.
//!
//! This is all of a client's link that several threads change, beside the regions. Sockets, regions
//! and the texts of errors are in [`ClientLink`](crate::client::client_link::ClientLink). Models:
//! `crates/gate/src/model/tests/loom.rs`.

use std::time::Instant;

use crate::client::cell_queue::CellQueue;
use crate::client::reply_slot::{ReplySlot, WaitEnd};
use crate::error::Error;
use crate::lane::{CellNo, ClientEnd, ReplyHeader, RequestHeader};
use crate::loom::{
    AtomicBool, Mutex, Ordering, Wait, Waiter, cancel, current, fence, has_passed, lock, park,
};

/// Why a wait has ended without its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFailure {
    /// The link has ended.
    Gone,
    /// The caller was cancelled, or its deadline has passed.
    Left,
}

pub(crate) struct Calls {
    pub(crate) lane: ClientEnd,
    slots: Box<[ReplySlot]>,
    is_gone: AtomicBool,
    queue: CellQueue,
    /// Held while a thread takes replies in. A thread that was notified waits for it.
    taking: Mutex<()>,
}

impl Calls {
    pub(crate) fn new(lane: ClientEnd) -> Calls {
        let slots = (0..lane.geometry().cells()).map(|_| ReplySlot::new()).collect();
        Calls {
            lane,
            slots,
            is_gone: AtomicBool::new(false),
            queue: CellQueue::new(),
            taking: Mutex::new(()),
        }
    }

    /// The most calls that can be under way.
    pub(crate) fn most(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Takes a cell. Blocks the microprocess while all are in use.
    #[inline]
    pub(crate) fn take_cell(
        &self,
        space: u16,
        deadline: Option<Instant>,
    ) -> Result<CellNo, WaitFailure> {
        match self.lane.take_cell() {
            Some(cell) => Ok(cell),
            None => self.wait_for_cell(space, deadline),
        }
    }

    fn wait_for_cell(&self, space: u16, deadline: Option<Instant>) -> Result<CellNo, WaitFailure> {
        let me = current();
        loop {
            self.queue.push(&me);
            // A thread that gives a cell back checks for queued callers after that.
            fence(Ordering::SeqCst);
            let found = self.lane.take_cell();
            // A cancellation leaves one permit, which an earlier wait of this call may have taken.
            if found.is_none() && !self.is_gone() && !cancel::would_unwind() {
                park(Wait::Gate(space), deadline);
            }
            let found = found.or_else(|| self.lane.take_cell());
            let was_woken = !self.queue.remove(&me);
            if let Some(cell) = found {
                return Ok(cell);
            }
            // Asked once: a caller that leaves for a reason that it finds only later would keep the
            // cell that it was woken for from the next caller.
            let failure = if self.is_gone() {
                WaitFailure::Gone
            } else if cancel::would_unwind() || has_passed(deadline) {
                WaitFailure::Left
            } else {
                continue;
            };
            if was_woken {
                self.queue.wake_first();
            }
            return Err(failure);
        }
    }

    /// The call in this cell names regions from now on.
    pub(super) fn set_names_regions(&self, cell: CellNo) {
        self.slots[cell.index()].set_names_regions();
    }

    /// Gives a cell back that the caller has. Calls `release_regions` first if its call has named
    /// regions.
    #[inline]
    pub(crate) fn give_back(&self, cell: CellNo, release_regions: impl FnOnce()) {
        if self.slots[cell.index()].reset() {
            release_regions();
        }
        let _ = self.lane.give_back(cell);
        fence(Ordering::SeqCst);
        if !self.queue.is_empty() {
            self.queue.wake_first();
        }
    }

    /// Pushes the request that was written into a cell, and notifies the server. `waiter` waits for
    /// the reply; none: no caller does.
    #[inline]
    pub(crate) fn push(
        &self,
        cell: CellNo,
        waiter: Option<Waiter>,
        notify: impl FnOnce(),
    ) -> Result<(), Error> {
        let slot = &self.slots[cell.index()];
        match waiter {
            // SAFETY: the cell is the caller's, and its request is still to be pushed.
            Some(waiter) => unsafe { slot.begin_wait(waiter) },
            None => slot.begin_without_waiter(),
        }
        self.lane.push_request(cell)?;
        notify();
        // Either the end of the link, which fails all cells that are lent, finds this one, or the
        // end is seen here.
        fence(Ordering::SeqCst);
        if self.is_gone() {
            self.fail_wait(cell);
        }
        Ok(())
    }

    /// Asks the server to end the stream in a cell that this side has. After an error the cell is
    /// the caller's to give back.
    pub(super) fn push_stop(
        &self,
        cell: CellNo,
        header: &RequestHeader,
        notify: impl FnOnce(),
    ) -> Result<(), Error> {
        // Before the push: the answer may come at once.
        self.slots[cell.index()].begin_stop();
        self.lane.write(cell, header, &[])?;
        self.lane.push_request(cell)?;
        notify();
        Ok(())
    }

    /// Waits until the reply has come. After [`WaitFailure::Left`] the caller
    /// [abandons](Calls::abandon) the call.
    #[inline]
    pub(crate) fn wait(
        &self,
        cell: CellNo,
        space: u16,
        deadline: Option<Instant>,
    ) -> Result<(), WaitFailure> {
        let slot = &self.slots[cell.index()];
        loop {
            match slot.wait_end() {
                Some(WaitEnd::Replied) => return Ok(()),
                // Lent for ever: the lane ends with the link.
                Some(WaitEnd::Gone) => return Err(WaitFailure::Gone),
                None => {}
            }
            // Before the park: a cancellation leaves one permit, which the wait for the cell may
            // have taken together with that of the cell.
            if slot.is_waiting() && (cancel::would_unwind() || has_passed(deadline)) {
                return Err(WaitFailure::Left);
            }
            park(Wait::Gate(space), deadline);
        }
    }

    /// Abandons the call of a cell, which is no longer the caller's. Returns the header of a reply
    /// that has come meanwhile: the cell is then the caller's to give back.
    pub(crate) fn abandon(&self, cell: CellNo, notify: impl FnOnce()) -> Option<ReplyHeader> {
        let slot = &self.slots[cell.index()];
        // Before `abandon`: from then on the thread that takes the reply in gives the cell back,
        // and a cancel must not reach its next request.
        if slot.is_waiting() && self.lane.push_cancel(cell) {
            notify();
        }
        slot.abandon()
    }

    /// The header of the reply in a cell.
    ///
    /// # Safety
    /// The caller has the cell, and [`wait`](Calls::wait) has returned `Ok`.
    #[inline]
    pub(super) unsafe fn header(&self, cell: CellNo) -> ReplyHeader {
        // SAFETY: the caller's promise.
        unsafe { self.slots[cell.index()].header() }
    }

    /// Takes in the replies that have come, and wakes their waiters. Passes those without a waiter
    /// to `discard`, which has their cells.
    ///
    /// # Errors
    /// As [`ClientEnd::pop_replies`].
    pub(crate) fn take_replies(&self, discard: impl Fn(CellNo, ReplyHeader)) -> Result<(), Error> {
        let mut left = Vec::new();
        let popped = {
            let _one = lock(&self.taking);
            self.lane.pop_replies(usize::MAX, |reply| {
                let slot = &self.slots[reply.cell.index()];
                // SAFETY: popped just now; `taking` keeps out all others.
                if let Some(header) = unsafe { slot.deliver(reply.header) } {
                    left.push((reply.cell, header));
                }
            })
        };
        left.into_iter().for_each(|(cell, header)| discard(cell, header));
        popped.map(drop)
    }

    /// Ends the wait in a cell: no reply will come.
    fn fail_wait(&self, cell: CellNo) {
        let _one = lock(&self.taking);
        // SAFETY: `taking` keeps out all others.
        unsafe { self.slots[cell.index()].fail() };
    }

    /// Ends all waits: the link has ended.
    pub(crate) fn end(&self) {
        self.is_gone.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let lent: Vec<CellNo> = self.lane.lent().collect();
        lent.into_iter().for_each(|cell| self.fail_wait(cell));
        self.queue.wake_all();
    }
}
