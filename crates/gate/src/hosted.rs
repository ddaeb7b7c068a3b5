//! The server's end of a link.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use kumihimo_arbiter::row::Caller;
use kumihimo_runtime::park::{self, Wait, Waiter};
use kumihimo_runtime::{cancel, lock};

use crate::bell::Bell;
use crate::entered::Shown;
use crate::lane::{CellNo, Host, Incoming, REGIONS, ReplyHeader};
use crate::link::{Link, Peer};
use crate::looks::Looked;
use crate::port::{Port, Request};
use crate::porter;
use crate::side::{Side, Sided};
use crate::wire::{Kind, Status};
use crate::{Error, ErrorKind, Region};

/// Of a stream that is handled: whose its cell is. Its items go out one at a time, each when the
/// client has asked for it.
enum Turn {
    /// The client has asked, and the cell is the handler's to answer in.
    Asked,
    /// It wants no more; the cell is the handler's to say so.
    Stop,
    /// The client has it, or an item is on its way there.
    Away,
    /// As `Away`, and the handler waits.
    Waits(Waiter),
}

/// One client of a gate.
pub(crate) struct Hosted {
    me: Weak<Hosted>,
    pub(crate) port: Arc<Port>,
    host: Host,
    bell: Bell,
    pub(crate) peer: Peer,
    pub(crate) side: Side,
    gone: AtomicBool,
    /// The streams that are handled, by cell. A request to one that is not there is answered at
    /// once, by the thread that looks.
    streams: Mutex<HashMap<CellNo, Turn>>,
    /// Names of the regions that this side passes.
    next_region: AtomicU32,
}

impl Hosted {
    pub(crate) fn new(port: Arc<Port>, host: Host, bell: Bell, peer: Peer) -> Arc<Hosted> {
        Arc::new_cyclic(|me| Hosted {
            me: me.clone(),
            port,
            host,
            bell,
            peer,
            side: Side::default(),
            gone: AtomicBool::new(false),
            streams: Mutex::default(),
            next_region: AtomicU32::new(1),
        })
    }

    /// The handshake is over.
    pub(crate) fn begin(self: &Arc<Hosted>, link: Link, bit: u32) {
        self.side.begin(self, link, bit, self.bell.keeps_to_cores());
        if !self.port.linked(self) {
            self.cut(&self.port.closed());
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The most that lies in a cell.
    pub(crate) fn inline(&self) -> usize {
        self.host.geometry().inline() as usize
    }

    /// The payload of a request, which may lie in a region: `regions[0]` then.
    pub(crate) fn payload(&self, request: &Request, to: &mut Vec<u8>) -> Result<(), Error> {
        self.host.read_request(request.cell, to)
    }

    /// Answers. What is too large for the cell is the caller's to pass otherwise.
    pub(crate) fn reply(
        &self,
        cell: CellNo,
        header: &ReplyHeader,
        payload: &[u8],
    ) -> Result<(), Error> {
        if self.is_gone() {
            return Err(gone(&self.port.name));
        }
        if porter::is_child() {
            return Err(porter::of_parent());
        }
        self.host.push_reply(cell, header, payload)?;
        self.bell.pushed(&self.side.link);
        Ok(())
    }

    /// Answers with an error. Nothing is left to be done if that fails: the link is gone.
    pub(crate) fn refuse(&self, cell: CellNo, error: &Error) {
        let header =
            ReplyHeader { status: Status::Failed(error.kind()).number(), ..ReplyHeader::default() };
        let text = error.to_string();
        let mut end = text.len().min(self.inline());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let _ = self.reply(cell, &header, &text.as_bytes()[..end]);
    }

    /// Passes regions with a reply; their numbers.
    pub(crate) fn pass(&self, regions: &[Region]) -> Result<[u32; REGIONS], Error> {
        let mut numbers = [0; REGIONS];
        let Some(link) = self.side.link.get() else { return Err(gone(&self.port.name)) };
        for (number, region) in numbers.iter_mut().zip(regions) {
            *number = self.next_region.fetch_add(1, Ordering::Relaxed).max(1);
            let (link, fd, len) = (link, region.as_fd(), region.len() as u64);
            let id = u64::from(*number);
            kumihimo_runtime::thread::blocking(|| link.pass_region(id, fd, len))?;
        }
        Ok(numbers)
    }

    /// The stream in `cell` begins: the request itself asks for the first item.
    ///
    /// # Errors
    /// `Malformed`: the one before in this cell is not over, and the client has not waited for its
    /// end. The link is cut.
    pub(crate) fn stream_begins(&self, cell: CellNo) -> Result<(), Error> {
        if lock(&self.streams).insert(cell, Turn::Asked).is_none() {
            return Ok(());
        }
        let why = Error::new(
            ErrorKind::Malformed,
            format!(
                "the client of gate {:?} began a stream in the cell of one that is not over",
                self.port.name
            ),
        );
        self.cut(&why);
        Err(why)
    }

    /// Until the client asks for the next item of the stream in `cell`. False: it wants no more.
    /// Blocks the microprocess.
    pub(crate) fn await_turn(&self, cell: CellNo) -> bool {
        loop {
            {
                let mut streams = lock(&self.streams);
                // Under the lock, which the end of the link takes after it is gone: it finds the
                // waiter.
                if self.is_gone() || cancel::requested() {
                    return false;
                }
                match streams.get_mut(&cell) {
                    Some(Turn::Asked) => return true,
                    Some(Turn::Stop) | None => return false,
                    Some(turn) => *turn = Turn::Waits(park::current()),
                }
            }
            park::park(Wait::Gate(0), None);
        }
    }

    /// Sends an item of the stream in `cell`, whose turn it is.
    pub(crate) fn item(
        &self,
        cell: CellNo,
        header: &ReplyHeader,
        payload: &[u8],
    ) -> Result<(), Error> {
        // Before the reply: the client may ask for the next one at once.
        if let Some(turn) = lock(&self.streams).get_mut(&cell) {
            *turn = Turn::Away;
        }
        self.reply(cell, header, payload)
    }

    /// The stream in `cell` is over. Whether the cell is the handler's, which has to answer in it
    /// then.
    #[must_use]
    pub(crate) fn stream_ends(&self, cell: CellNo) -> bool {
        matches!(lock(&self.streams).remove(&cell), Some(Turn::Asked | Turn::Stop))
    }

    /// The client has given the cell of a stream back. False: no such stream is handled.
    fn asked(&self, cell: CellNo, now: Turn) -> bool {
        let before = match lock(&self.streams).get_mut(&cell) {
            Some(turn) => std::mem::replace(turn, now),
            None => return false,
        };
        if let Turn::Waits(who) = before {
            who.wake();
        }
        true
    }

    /// Ends the link.
    pub(crate) fn cut(&self, why: &Error) {
        self.side.cut(why);
    }
}

impl Looked for Hosted {
    fn look(&self) {
        let Some(me) = self.me.upgrade() else { return };
        let mut cancelled = Vec::new();
        let mut refused = Vec::new();
        let mut over = Vec::new();
        let mut failure = None;
        self.port.take_in(|put| {
            let popped = self.host.pop_requests(usize::MAX, |incoming| match incoming {
                Incoming::Request(request)
                    if request.header.kind == Kind::Next as u8
                        || request.header.kind == Kind::Stop as u8 =>
                {
                    let turn = if request.header.kind == Kind::Next as u8 {
                        Turn::Asked
                    } else {
                        Turn::Stop
                    };
                    if !self.asked(request.cell, turn) {
                        over.push(request.cell);
                    }
                }
                Incoming::Request(request) => {
                    let chain = request.header.chain.words();
                    if self.port.alone && chain.contains(&self.port.word) {
                        refused.push(request.cell);
                    } else {
                        let (cell, serial, header) = (request.cell, request.serial, request.header);
                        put(Request { link: me.clone(), cell, serial, header });
                    }
                }
                Incoming::Cancel { cell, serial } => cancelled.push((cell, serial)),
            });
            failure = popped.err();
        });
        for cell in refused {
            let text = format!(
                "gate {:?} was called by its own server, which would wait for itself: serve it with several handlers",
                self.port.name
            );
            self.refuse(cell, &Error::new(ErrorKind::Deadlock, text));
        }
        for cell in over {
            self.refuse(
                cell,
                &Error::new(ErrorKind::Cancelled, "the stream is over: its handler was cancelled"),
            );
        }
        for (cell, serial) in cancelled {
            if let Some(request) = self.port.cancel(&me, cell, serial) {
                self.refuse(
                    request.cell,
                    &Error::new(ErrorKind::Cancelled, "cancelled before it was handled"),
                );
            }
        }
        if let Some(why) = failure {
            self.cut(&why);
        }
    }

    fn tell(&self, caller: Caller) {
        self.bell.tell(caller, &self.side.link);
    }

    fn expects(&self, core: u32) -> Option<u64> {
        self.bell.expects(core)
    }
}

impl Sided for Hosted {
    fn side(&self) -> &Side {
        &self.side
    }

    fn gone(&self, why: Error) {
        self.gone.store(true, Ordering::Release);
        self.side.regions.end(&why);
        self.side.end();
        if let Some(me) = self.me.upgrade() {
            self.port.forget(&me);
        }
        let waiting = std::mem::take(&mut *lock(&self.streams));
        for turn in waiting.into_values() {
            if let Turn::Waits(who) = turn {
                who.wake();
            }
        }
    }
}

impl Shown for Hosted {
    fn state(&self) -> String {
        format!("serves gate {} to {}: {} under way", self.port.name, self.peer, self.host.in_use())
    }

    fn cancel(&self) {
        self.cut(&Error::new(ErrorKind::Gone, "the link was cancelled from outside"));
    }
}

fn gone(gate: &str) -> Error {
    Error::new(
        ErrorKind::Gone,
        format!("the client of gate {gate:?} has ended: nobody waits for this reply"),
    )
}
