//! The client's side of a lane.

use super::cell::{
    CellNo, ReplyHeader, RequestHeader, RingEntry, malformed, too_large, wrong_state,
};
use super::free_list::FreeList;
use super::geometry::Geometry;
use super::memory::LaneMemory;
use super::ring::{Consumer, Producer};
use crate::error::Error;
use crate::loom::{AtomicU32, Ordering, store_release};

/// It is free.
const FREE: u32 = 0;
/// Its taker has it.
const TAKEN: u32 = 1;
/// The server has it.
const LENT: u32 = 2;
/// The server has it, and was sent a cancel.
const CANCELLED: u32 = 3;
/// Its taker has it, with a reply.
const ANSWERED: u32 = 4;

/// The client's private record of a cell, out of the server's reach.
struct ClientCell {
    state: AtomicU32,
    /// Of the request that was written last.
    serial: AtomicU32,
    /// Bytes of the reply that was popped last.
    len: AtomicU32,
}

/// The client's side of a lane. A cell goes its way: [take](ClientEnd::take_cell),
/// [write](ClientEnd::write), [push](ClientEnd::push_request), perhaps
/// [cancel](ClientEnd::push_cancel); [pop](ClientEnd::pop_replies), [read](ClientEnd::read_reply),
/// [give back](ClientEnd::give_back). The taker of a cell does all of this but the pop, which any
/// thread does for all; it may leave the rest to the thread that pops the reply, if it has pushed
/// all that it wants to.
pub struct ClientEnd {
    lane: LaneMemory,
    own: Box<[ClientCell]>,
    free: FreeList,
    requests: Producer,
    replies: Consumer,
}

/// A reply that has come.
#[derive(Clone, Copy, Debug)]
pub struct IncomingReply {
    /// Its cell.
    pub cell: CellNo,
    /// Bytes of payload, not above what the lane takes.
    pub len: u32,
    /// Its header.
    pub header: ReplyHeader,
}

impl ClientEnd {
    pub(super) fn new(lane: LaneMemory) -> ClientEnd {
        let cells = lane.geometry().cells();
        let word = || AtomicU32::new(0);
        let own = (0..cells)
            .map(|_| ClientCell { state: AtomicU32::new(FREE), serial: word(), len: word() })
            .collect();
        ClientEnd {
            lane,
            own,
            free: FreeList::new(cells),
            requests: Producer::new(),
            replies: Consumer::new(),
        }
    }

    /// How large the lane is.
    pub fn geometry(&self) -> Geometry {
        self.lane.geometry()
    }

    /// A free cell, the one that was given back last; `None`: all are in use. Lock-free.
    #[inline]
    pub fn take_cell(&self) -> Option<CellNo> {
        let cell = self.free.take()?;
        self.own[cell as usize].state.store(TAKEN, Ordering::Relaxed);
        Some(CellNo(cell as u16))
    }

    /// Writes a request into a cell that was taken.
    ///
    /// # Errors
    /// `TooLarge`: more bytes than the lane takes. `Invalid`: the cell is lent or free.
    #[inline]
    pub fn write(&self, cell: CellNo, header: &RequestHeader, payload: &[u8]) -> Result<(), Error> {
        let inline = self.geometry().inline();
        if payload.len() > inline as usize {
            return Err(too_large(payload.len(), inline));
        }
        let own = self.own(cell, &[TAKEN, ANSWERED])?;
        let serial = own.serial.load(Ordering::Relaxed).wrapping_add(1);
        own.serial.store(serial, Ordering::Relaxed);
        self.lane.write_payload(cell.0.into(), payload);
        self.lane.head(cell.0.into()).write_request(serial, payload.len() as u32, header);
        Ok(())
    }

    /// Lends a cell that was written to the server. Wait-free. Wake the server after this.
    ///
    /// # Errors
    /// `Invalid`: the cell is lent or free.
    #[inline]
    pub fn push_request(&self, cell: CellNo) -> Result<(), Error> {
        let own = self.own(cell, &[TAKEN, ANSWERED])?;
        // Before the push: the reply may come at once. Relaxed: the popping thread has acquired
        // what the server acquired from the push.
        own.state.store(LENT, Ordering::Relaxed);
        let serial = own.serial.load(Ordering::Relaxed);
        self.requests.push(self.lane.requests(), RingEntry::new(cell.0.into(), serial).0);
        Ok(())
    }

    /// Cancels a request: the server learns that its reply is not awaited, and replies all the
    /// same. `false`: the reply has come already, or the request was cancelled before.
    ///
    /// This must have returned before the cell is given back, also by another thread for a caller
    /// that left: a cancel that comes behind the cell's next request is taken for a breach of the
    /// protocol.
    pub fn push_cancel(&self, cell: CellNo) -> bool {
        let Some(own) = self.own.get(cell.index()) else { return false };
        let lent = own
            .state
            .compare_exchange(LENT, CANCELLED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if lent {
            // If the reply is popped just now, the server drops this: the request has been
            // answered.
            let serial = own.serial.load(Ordering::Relaxed);
            self.requests.push(self.lane.requests(), RingEntry::cancel(cell.0.into(), serial).0);
        }
        lent
    }

    /// Whether there are replies: two loads. The answer may be wrong while another thread pops,
    /// which checks again before it sleeps.
    #[inline]
    pub fn has_replies(&self) -> bool {
        self.replies.has_some(self.lane.replies())
    }

    /// Pops up to `most` replies. From `f` on, or earlier, each belongs to the taker of its cell
    /// again. Returns the number; 0 also if another thread pops. Never waits; `f` must not pop, nor
    /// switch.
    ///
    /// # Errors
    /// `Malformed`, with what was wrong. Those before it were passed on.
    #[inline]
    pub fn pop_replies(
        &self,
        most: usize,
        mut f: impl FnMut(IncomingReply),
    ) -> Result<usize, Error> {
        let geometry = self.geometry();
        self.replies.drain(self.lane.replies(), most, |entry| {
            let entry = RingEntry(entry);
            let cell = entry.cell();
            let Some(own) = self.own.get(cell as usize).filter(|_| !entry.cancels()) else {
                return Err(malformed(format_args!(
                    "entry {:#x} of the replies names no cell of {}",
                    entry.0,
                    geometry.cells()
                )));
            };
            let serial = own.serial.load(Ordering::Relaxed);
            if !matches!(own.state.load(Ordering::Relaxed), LENT | CANCELLED)
                || !entry.is_of(serial)
            {
                return Err(malformed(format_args!(
                    "a reply comes in cell {cell}, which waits for none of that serial"
                )));
            }
            let (len, header) = self.lane.head(cell).read_reply(cell, geometry.inline())?;
            own.len.store(len, Ordering::Relaxed);
            // After a cancel that was pushed meanwhile, which found the cell lent.
            store_release(&own.state, ANSWERED);
            f(IncomingReply { cell: CellNo(cell as u16), len, header });
            Ok(())
        })
    }

    /// Copies the payload of a reply that was popped into `to`, replacing what that holds.
    ///
    /// # Errors
    /// `Invalid`: there is no reply in this cell.
    #[inline]
    pub fn read_reply(&self, cell: CellNo, to: &mut Vec<u8>) -> Result<(), Error> {
        let own = self.own(cell, &[ANSWERED])?;
        self.lane.read_payload(cell.0.into(), own.len.load(Ordering::Relaxed) as usize, to);
        Ok(())
    }

    /// Frees a cell that is not lent. Lock-free.
    ///
    /// # Errors
    /// `Invalid`: it is lent or free.
    #[inline]
    pub fn give_back(&self, cell: CellNo) -> Result<(), Error> {
        let own = self.own(cell, &[TAKEN, ANSWERED])?;
        own.state.store(FREE, Ordering::Relaxed);
        self.free.give_back(cell.0.into());
        Ok(())
    }

    /// The cells that are lent: their takers wait in vain if the server has ended. Examines every
    /// cell.
    pub fn lent(&self) -> impl Iterator<Item = CellNo> + '_ {
        self.in_state(|state| matches!(state, LENT | CANCELLED))
    }

    /// How many cells are not free. Examines every cell.
    pub fn in_use(&self) -> usize {
        self.in_state(|state| state != FREE).count()
    }

    fn in_state(&self, is: impl Fn(u32) -> bool) -> impl Iterator<Item = CellNo> {
        self.own
            .iter()
            .zip(0..)
            .filter(move |(own, _)| is(own.state.load(Ordering::Acquire)))
            .map(|(_, no)| CellNo(no))
    }

    /// The record of a cell that is in one of these states.
    #[inline]
    fn own(&self, cell: CellNo, states: &[u32]) -> Result<&ClientCell, Error> {
        let own = self
            .own
            .get(cell.index())
            .filter(|own| states.contains(&own.state.load(Ordering::Acquire)));
        own.ok_or_else(|| wrong_state(cell))
    }
}
