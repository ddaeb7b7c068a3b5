//! The server's side of a link.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use kumihimo_arbiter::row::Caller;
use kumihimo_runtime::park::{self, Wait, Waiter};
use kumihimo_runtime::{cancel, lock};

use crate::error::{Error, ErrorKind};
use crate::lane::{CellNo, Incoming, LEVELS, REGIONS, ReplyHeader, ServerEnd};
use crate::link::endpoint::{Endpoint, HasEndpoint};
use crate::link::fork;
use crate::link::link_index::IndexedLink;
use crate::link::notifier::Notifier;
use crate::link::socket::Link;
use crate::quota::{self, LinkAccount};
use crate::region::sealed::Region;
use crate::resource_entry::Inspect;
use crate::server::handler_share::{HandlerShare, HasShare};
use crate::server::request_queue;
use crate::server::service::{self, ServedClient};
use crate::wire::message::{RequestKind, Status};
use crate::wire::peer::Peer;

/// Ownership of the cell of a stream. The handler sends one item each time the client has asked for
/// it.
enum StreamTurn {
    /// The client has asked for an item, and the handler owns the cell.
    Asked,
    /// The client wants no more items; the handler owns the cell and answers in it.
    Stop,
    /// The client owns the cell, or an item is on its way there.
    Away,
    /// As `Away`, and the handler waits.
    Waits(Waiter),
}

/// The service of a gate.
pub(crate) type Service = service::Service<ServerLink>;
/// A request of one of its clients.
pub(crate) type Request = request_queue::Request<ServerLink>;

/// The link to one client of a gate.
pub(crate) struct ServerLink {
    me: Weak<ServerLink>,
    pub(crate) service: Arc<Service>,
    lane: ServerEnd,
    notifier: Notifier,
    pub(crate) peer: Peer,
    /// The caller on another machine for which the client calls.
    pub(crate) origin: Option<Box<str>>,
    pub(crate) endpoint: Endpoint,
    gone: AtomicBool,
    /// The streams that are handled, by cell. A request for the next item of another stream is
    /// answered at once, by the polling thread.
    streams: Mutex<HashMap<CellNo, StreamTurn>>,
    /// Names of the regions that this side passes.
    next_region: AtomicU32,
    /// Highest priority of its requests.
    highest: u8,
    share: HandlerShare,
}

impl ServerLink {
    pub(crate) fn new(
        service: Arc<Service>,
        lane: ServerEnd,
        notifier: Notifier,
        peer: Peer,
        origin: Option<&str>,
        account: LinkAccount,
    ) -> Arc<ServerLink> {
        let own = quota::is_own(peer.uid);
        let highest = if own { LEVELS - 1 } else { service.quotas.others_priority };
        let share = service.handler_share(peer.uid);
        Arc::new_cyclic(|me| ServerLink {
            me: me.clone(),
            service,
            lane,
            notifier,
            peer,
            // Only a process of the own user can be the border.
            origin: origin.filter(|_| own).map(Box::from),
            endpoint: Endpoint::charging(account),
            gone: AtomicBool::new(false),
            streams: Mutex::default(),
            next_region: AtomicU32::new(1),
            highest,
            share,
        })
    }

    /// The handshake is over.
    pub(crate) fn begin(self: &Arc<ServerLink>, link: Link, bit: u32) {
        self.endpoint.begin(self, link, bit, self.notifier.keeps_to_cores());
        if !self.service.add_link(self) {
            self.close(&self.service.closed_error());
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Bytes of payload that fit into a cell.
    pub(crate) fn inline(&self) -> usize {
        self.lane.geometry().inline() as usize
    }

    /// The payload of a request, which may lie in a region: `regions[0]` then.
    pub(crate) fn read_payload(&self, request: &Request, to: &mut Vec<u8>) -> Result<(), Error> {
        self.lane.read_request(request.cell, to)
    }

    /// A region that a request names. A client that has not passed it is cut.
    pub(crate) fn region(&self, number: u32) -> Result<Region, Error> {
        self.endpoint.region(u64::from(number), false).inspect_err(|why| {
            if why.kind() == ErrorKind::Malformed {
                self.cut(why);
            }
        })
    }

    /// Ends the link of a client that violates the protocol.
    fn cut(&self, why: &Error) {
        if !self.is_gone() {
            self.service.record_cut(self.peer, why);
            self.close(why);
        }
    }

    /// Answers a request. The payload fits into the cell: larger ones go by a region.
    pub(crate) fn reply(
        &self,
        cell: CellNo,
        header: &ReplyHeader,
        payload: &[u8],
    ) -> Result<(), Error> {
        if self.is_gone() {
            return Err(gone(&self.service.name));
        }
        if fork::in_forked_child() {
            return Err(fork::forked_child_error());
        }
        self.lane.push_reply(cell, header, payload)?;
        self.notifier.notify(&self.endpoint.link);
        Ok(())
    }

    /// Answers a request with an error. A failure means that the link has ended.
    pub(crate) fn reply_error(&self, cell: CellNo, error: &Error) {
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
    pub(crate) fn pass_regions(&self, regions: &[Region]) -> Result<[u32; REGIONS], Error> {
        let mut numbers = [0; REGIONS];
        let Some(link) = self.endpoint.link.get() else { return Err(gone(&self.service.name)) };
        for (number, region) in numbers.iter_mut().zip(regions) {
            *number = self.next_region.fetch_add(1, Ordering::Relaxed).max(1);
            let (link, fd, len) = (link, region.as_fd(), region.len() as u64);
            let id = u64::from(*number);
            kumihimo_runtime::thread::blocking(|| link.pass_region(id, fd, len))?;
        }
        Ok(numbers)
    }

    /// Begins the stream in `cell`: the request itself asks for the first item.
    ///
    /// # Errors
    /// `Malformed`: the one before in this cell is not over, and the client has not waited for its
    /// end. The link is cut.
    pub(crate) fn begin_stream(&self, cell: CellNo) -> Result<(), Error> {
        if lock(&self.streams).insert(cell, StreamTurn::Asked).is_none() {
            return Ok(());
        }
        let why = Error::new(
            ErrorKind::Malformed,
            format!(
                "the client of gate {:?} began a stream in the cell of one that is not over",
                self.service.name
            ),
        );
        self.cut(&why);
        Err(why)
    }

    /// Waits until the client asks for the next item of the stream in `cell`. False: it wants no
    /// more. Blocks the microprocess.
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
                    Some(StreamTurn::Asked) => return true,
                    Some(StreamTurn::Stop) | None => return false,
                    Some(turn) => *turn = StreamTurn::Waits(park::current()),
                }
            }
            park::park(Wait::Gate(0), None);
        }
    }

    /// Sends an item of the stream in `cell`, whose turn it is.
    pub(crate) fn send_item(
        &self,
        cell: CellNo,
        header: &ReplyHeader,
        payload: &[u8],
    ) -> Result<(), Error> {
        // Before the reply: the client may ask for the next one at once.
        if let Some(turn) = lock(&self.streams).get_mut(&cell) {
            *turn = StreamTurn::Away;
        }
        self.reply(cell, header, payload)
    }

    /// Ends the stream in `cell`. Returns whether the handler owns the cell and has to answer in
    /// it.
    #[must_use]
    pub(crate) fn end_stream(&self, cell: CellNo) -> bool {
        matches!(lock(&self.streams).remove(&cell), Some(StreamTurn::Asked | StreamTurn::Stop))
    }

    /// Records that the client has given the cell of a stream back. False: no such stream is
    /// handled.
    fn give_turn(&self, cell: CellNo, now: StreamTurn) -> bool {
        let before = match lock(&self.streams).get_mut(&cell) {
            Some(turn) => std::mem::replace(turn, now),
            None => return false,
        };
        if let StreamTurn::Waits(who) = before {
            who.wake();
        }
        true
    }
}

impl ServedClient for ServerLink {
    fn peer(&self) -> Peer {
        self.peer
    }

    fn close(&self, why: &Error) {
        self.endpoint.close(why);
    }
}

impl HasShare for ServerLink {
    fn share(&self) -> &HandlerShare {
        &self.share
    }
}

impl IndexedLink for ServerLink {
    fn poll(&self) {
        let Some(me) = self.me.upgrade() else { return };
        let mut cancelled = Vec::new();
        let mut refused = Vec::new();
        let mut over = Vec::new();
        let mut failure = None;
        self.service.enqueue(|put| {
            let popped = self.lane.pop_requests(usize::MAX, |incoming| match incoming {
                Incoming::Request(request)
                    if request.header.kind == RequestKind::Next as u8
                        || request.header.kind == RequestKind::Stop as u8 =>
                {
                    let turn = if request.header.kind == RequestKind::Next as u8 {
                        StreamTurn::Asked
                    } else {
                        StreamTurn::Stop
                    };
                    if !self.give_turn(request.cell, turn) {
                        over.push(request.cell);
                    }
                }
                Incoming::Request(request) => {
                    let chain = request.header.chain.words();
                    if self.service.single && chain.contains(&self.service.word) {
                        refused.push(request.cell);
                    } else {
                        let (cell, serial, mut header) =
                            (request.cell, request.serial, request.header);
                        header.priority = header.priority.min(self.highest);
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
                self.service.name
            );
            self.reply_error(cell, &Error::new(ErrorKind::Deadlock, text));
        }
        for cell in over {
            self.reply_error(
                cell,
                &Error::new(ErrorKind::Cancelled, "the stream is over: its handler was cancelled"),
            );
        }
        for (cell, serial) in cancelled {
            if let Some(request) = self.service.cancel(&me, cell, serial) {
                self.reply_error(
                    request.cell,
                    &Error::new(ErrorKind::Cancelled, "cancelled before it was handled"),
                );
            }
        }
        if let Some(why) = failure {
            self.cut(&why);
        }
    }

    fn flush(&self, caller: Caller) {
        self.notifier.flush(caller, &self.endpoint.link);
    }

    fn expects(&self, core: u32) -> Option<u64> {
        self.notifier.expects(core)
    }
}

impl HasEndpoint for ServerLink {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn violated(&self, why: &Error) {
        self.service.record_cut(self.peer, why);
    }

    fn end_with(&self, why: Error) {
        self.gone.store(true, Ordering::Release);
        self.endpoint.regions.end(&why);
        self.endpoint.end();
        if let Some(me) = self.me.upgrade() {
            self.service.remove_link(&me);
        }
        let waiting = std::mem::take(&mut *lock(&self.streams));
        for turn in waiting.into_values() {
            if let StreamTurn::Waits(who) = turn {
                who.wake();
            }
        }
    }
}

impl Inspect for ServerLink {
    fn state(&self) -> String {
        format!(
            "serves gate {} to {}: {} under way",
            self.service.name,
            self.peer,
            self.lane.in_use()
        )
    }

    fn cancel(&self) {
        self.close(&Error::new(ErrorKind::Gone, "the link was cancelled from outside"));
    }
}

fn gone(gate: &str) -> Error {
    Error::new(
        ErrorKind::Gone,
        format!("the client of gate {gate:?} has ended: nobody waits for this reply"),
    )
}
