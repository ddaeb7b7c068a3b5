//! The server's side of a lane.

use super::cell::{
    CellNo, ReplyHeader, RequestHeader, RingEntry, malformed, too_large, wrong_state,
};
use super::geometry::Geometry;
use super::memory::LaneMemory;
use super::ring::{Consumer, Producer};
use crate::error::Error;
use crate::loom::{AtomicU32, Ordering};

/// The client has it.
const AWAY: u32 = 0;
/// It holds a request that is not yet answered.
const HERE: u32 = 1;

/// The server's private record of a cell, out of the client's reach.
struct ServerCell {
    state: AtomicU32,
    /// Of the request that came last.
    serial: AtomicU32,
    /// Bytes of it.
    len: AtomicU32,
    /// 1: it was not cancelled. A client cancels the last request of a cell, once; so entries that
    /// nothing is to be done for cannot go on for ever.
    not_cancelled: AtomicU32,
}

/// The server's side of a lane. Requests are [popped](ServerEnd::pop_requests) by any thread; the
/// one that handles a request [reads](ServerEnd::read_request) it and
/// [replies](ServerEnd::push_reply), once.
pub struct ServerEnd {
    lane: LaneMemory,
    own: Box<[ServerCell]>,
    requests: Consumer,
    replies: Producer,
}

/// An entry from the client.
#[derive(Clone, Copy, Debug)]
pub enum Incoming {
    /// A request, to be answered.
    Request(IncomingRequest),
    /// The reply to this request is not awaited any more. The request is still to be answered, with
    /// anything.
    Cancel {
        /// Its cell.
        cell: CellNo,
        /// Its serial: a later look sees by it whether the cell holds another request by now.
        serial: u32,
    },
}

/// A request that has come.
#[derive(Clone, Copy, Debug)]
pub struct IncomingRequest {
    /// Its cell.
    pub cell: CellNo,
    /// Which of this cell's, as the client counts.
    pub serial: u32,
    /// Bytes of payload, not above what the lane takes.
    pub len: u32,
    /// Its header.
    pub header: RequestHeader,
}

impl ServerEnd {
    pub(super) fn new(lane: LaneMemory) -> ServerEnd {
        let word = || AtomicU32::new(0);
        let own = |_| ServerCell {
            state: AtomicU32::new(AWAY),
            serial: word(),
            len: word(),
            not_cancelled: word(),
        };
        let own = (0..lane.geometry().cells()).map(own).collect();
        ServerEnd { lane, own, requests: Consumer::new(), replies: Producer::new() }
    }

    /// How large the lane is.
    pub fn geometry(&self) -> Geometry {
        self.lane.geometry()
    }

    /// Whether there are entries: two loads. The answer may be wrong while another thread pops,
    /// which checks again before it sleeps.
    #[inline]
    pub fn has_requests(&self) -> bool {
        self.requests.has_some(self.lane.requests())
    }

    /// Pops up to `most` entries, requests and cancels. Returns the number; 0 also if another
    /// thread pops. Cancels that came too late count, but are not passed on. Never waits; `f` must
    /// not pop, nor switch.
    ///
    /// # Errors
    /// `Malformed`, with what was wrong. Those before it were passed on.
    #[inline]
    pub fn pop_requests(&self, most: usize, mut f: impl FnMut(Incoming)) -> Result<usize, Error> {
        let geometry = self.geometry();
        self.requests.drain(self.lane.requests(), most, |entry| {
            let entry = RingEntry(entry);
            let cell = entry.cell();
            let Some(own) = self.own.get(cell as usize) else {
                return Err(malformed(format_args!(
                    "entry {:#x} of the requests names no cell of {}",
                    entry.0,
                    geometry.cells()
                )));
            };
            let here = own.state.load(Ordering::Relaxed) == HERE;
            let no = CellNo(cell as u16);
            if entry.cancels() {
                let serial = own.serial.load(Ordering::Relaxed);
                if own.not_cancelled.load(Ordering::Relaxed) == 0 || !entry.is_of(serial) {
                    return Err(malformed(format_args!(
                        "cell {cell} has no request that the cancel in it can be of"
                    )));
                }
                own.not_cancelled.store(0, Ordering::Relaxed);
                // Else it has been answered meanwhile.
                if here {
                    f(Incoming::Cancel { cell: no, serial });
                }
                return Ok(());
            }
            if here {
                return Err(malformed(format_args!(
                    "a request comes in cell {cell}, whose last one has no reply yet"
                )));
            }
            let (serial, len, header) =
                self.lane.head(cell).read_request(cell, geometry.inline())?;
            if !entry.is_of(serial) {
                return Err(malformed(format_args!(
                    "the request in cell {cell} has serial {serial}, its entry another"
                )));
            }
            own.serial.store(serial, Ordering::Relaxed);
            own.len.store(len, Ordering::Relaxed);
            own.not_cancelled.store(1, Ordering::Relaxed);
            own.state.store(HERE, Ordering::Release);
            f(Incoming::Request(IncomingRequest { cell: no, serial, len, header }));
            Ok(())
        })
    }

    /// Copies the payload of a request that has no reply yet into `to`, replacing what that holds.
    /// The client may change it until it is copied: copy it once.
    ///
    /// # Errors
    /// `Invalid`: there is no request in this cell.
    #[inline]
    pub fn read_request(&self, cell: CellNo, to: &mut Vec<u8>) -> Result<(), Error> {
        let own = self.own(cell)?;
        self.lane.read_payload(cell.0.into(), own.len.load(Ordering::Relaxed) as usize, to);
        Ok(())
    }

    /// Answers the request in a cell and gives the cell back. Wait-free. Wake the client after
    /// this.
    ///
    /// # Errors
    /// `TooLarge`: more bytes than the lane takes; the request is still to be answered. `Invalid`:
    /// there is no request in this cell.
    #[inline]
    pub fn push_reply(
        &self,
        cell: CellNo,
        header: &ReplyHeader,
        payload: &[u8],
    ) -> Result<(), Error> {
        let inline = self.geometry().inline();
        if payload.len() > inline as usize {
            return Err(too_large(payload.len(), inline));
        }
        let own = self.own(cell)?;
        let serial = own.serial.load(Ordering::Relaxed);
        self.lane.write_payload(cell.0.into(), payload);
        self.lane.head(cell.0.into()).write_reply(payload.len() as u32, header);
        // Before the push: the next request may come at once. Relaxed: the popping thread has
        // acquired what the client acquired from the push.
        own.state.store(AWAY, Ordering::Relaxed);
        self.replies.push(self.lane.replies(), RingEntry::new(cell.0.into(), serial).0);
        Ok(())
    }

    /// The serial of the request in a cell that has no reply yet.
    #[inline]
    pub fn unanswered(&self, cell: CellNo) -> Option<u32> {
        self.own(cell).ok().map(|own| own.serial.load(Ordering::Relaxed))
    }

    /// How many requests have no reply yet. Examines every cell.
    pub fn in_use(&self) -> usize {
        self.own.iter().filter(|own| own.state.load(Ordering::Acquire) == HERE).count()
    }

    /// The record of a cell that holds a request.
    #[inline]
    fn own(&self, cell: CellNo) -> Result<&ServerCell, Error> {
        let own =
            self.own.get(cell.index()).filter(|own| own.state.load(Ordering::Acquire) == HERE);
        own.ok_or_else(|| wrong_state(cell))
    }
}
