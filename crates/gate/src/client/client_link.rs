//! The client's side of a link: calls under way, and callers that wait for a free cell.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use kumihimo_arbiter::row;
use kumihimo_runtime::park;
use kumihimo_runtime::{cancel, lock, remote_wake, thread};

use crate::call_chain;
use crate::client::calls::{Calls, WaitFailure};
use crate::error::{Error, ErrorKind};
use crate::lane::{CHAIN, CellNo, ClientEnd, REGIONS, ReplyHeader, RequestHeader};
use crate::link::endpoint::{Endpoint, HasEndpoint};
use crate::link::fork;
use crate::link::link_index::IndexedLink;
use crate::link::notifier::Notifier;
use crate::link::socket::Link;
use crate::region::region_table::RegionTable;
use crate::region::sealed::Region;
use crate::resource_entry::Inspect;
use crate::wire::message::{IN_REGION, RequestKind, Status};

/// A request before it is written into a cell.
pub(crate) struct OutgoingRequest<'a> {
    pub(crate) kind: RequestKind,
    pub(crate) payload: &'a [u8],
    pub(crate) regions: &'a [Region],
    pub(crate) deadline: Option<Instant>,
    pub(crate) priority: Option<u8>,
}

/// Owns a taken cell, and gives it back when it is dropped, also while the caller unwinds.
pub(crate) struct CellGuard<'a> {
    link: &'a ClientLink,
    cell: CellNo,
}

impl CellGuard<'_> {
    /// Pushes the request that was written into the cell. The cell is the server's from then on.
    pub(crate) fn push(self, kind: RequestKind) -> Result<CellNo, Error> {
        self.link.push(self.cell, kind)?;
        Ok(self.into_cell())
    }

    /// The cell without its guard: another owner gives it back.
    pub(crate) fn into_cell(self) -> CellNo {
        std::mem::ManuallyDrop::new(self).cell
    }
}

impl Drop for CellGuard<'_> {
    fn drop(&mut self) {
        self.link.give_back(self.cell);
    }
}

pub(crate) struct ClientLink {
    /// The gate's name, and the address space that serves it.
    pub(crate) gate: Box<str>,
    pub(crate) space: u16,
    /// Bytes of the largest reply that is taken.
    largest_reply: usize,
    calls: Calls,
    notifier: Notifier,
    pub(crate) endpoint: Endpoint,
    /// Why it is gone.
    gone: OnceLock<Error>,
    /// A call has failed with that reason.
    end_was_reported: AtomicBool,
    region_table: Mutex<RegionTable>,
}

impl ClientLink {
    pub(crate) fn new(
        gate: &str,
        space: u16,
        largest_reply: usize,
        lane: ClientEnd,
        notifier: Notifier,
    ) -> Arc<ClientLink> {
        Arc::new(ClientLink {
            gate: gate.into(),
            space,
            largest_reply,
            calls: Calls::new(lane),
            notifier,
            endpoint: Endpoint::default(),
            gone: OnceLock::new(),
            end_was_reported: AtomicBool::new(false),
            region_table: Mutex::default(),
        })
    }

    pub(crate) fn begin(self: &Arc<ClientLink>, link: Link, bit: u32) {
        self.endpoint.begin(self, link, bit, self.notifier.keeps_to_cores());
    }

    /// Ends the link: the gate was closed by its client.
    pub(crate) fn close(&self) {
        self.endpoint.close(&Error::new(ErrorKind::Gone, "the client has closed the gate"));
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.calls.is_gone()
    }

    /// The reason for which the link was cut, if no call has failed with it.
    pub(crate) fn unreported_cut(&self) -> Option<Error> {
        let was_cut = self.gone.get().is_some_and(|why| was_cut(why.kind()));
        let is_first = was_cut && !self.end_was_reported.load(Ordering::Relaxed);
        is_first.then(|| self.closed_error())
    }

    pub(crate) fn inline(&self) -> usize {
        self.calls.lane.geometry().inline() as usize
    }

    fn closed_error(&self) -> Error {
        let why = self.gone.get().map_or_else(|| "it has ended".to_owned(), ToString::to_string);
        let kind = self.gone.get().map_or(ErrorKind::Gone, Error::kind);
        let kind = if was_cut(kind) { kind } else { ErrorKind::Gone };
        self.end_was_reported.store(true, Ordering::Relaxed);
        Error::new(
            kind,
            format!(
                "gate {:?}: {why}; what was under way may or may not have been carried out: call again if that does no harm",
                self.gate
            ),
        )
    }

    /// Takes a cell. Blocks the microprocess while all are in use.
    #[inline]
    fn take_cell(&self, deadline: Option<Instant>) -> Result<CellNo, Error> {
        self.calls.take_cell(self.space, deadline).map_err(|failure| match failure {
            WaitFailure::Gone => self.closed_error(),
            WaitFailure::Left => {
                cancel::point();
                let text = format!(
                    "gate {:?}: all {} calls of this client were under way until the deadline",
                    self.gate,
                    self.calls.most()
                );
                Error::new(ErrorKind::TimedOut, text)
            }
        })
    }

    /// The guard of a cell that the caller has.
    pub(crate) fn guard(&self, cell: CellNo) -> CellGuard<'_> {
        CellGuard { link: self, cell }
    }

    pub(crate) fn give_back(&self, cell: CellNo) {
        self.calls.give_back(cell, || lock(&self.region_table).release(cell));
    }

    /// The numbers under which the server has these regions. Passes those that it does not have.
    fn pass_regions(&self, cell: CellNo, regions: &[Region]) -> Result<[u32; REGIONS], Error> {
        let mut numbers = [0; REGIONS];
        if regions.len() > REGIONS {
            let text = format!(
                "gate {:?}: {} regions with one request, and {REGIONS} are possible",
                self.gate,
                regions.len()
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        for (number, region) in numbers.iter_mut().zip(regions) {
            *number = self.pass_region(cell, region)?;
        }
        Ok(numbers)
    }

    fn pass_region(&self, cell: CellNo, region: &Region) -> Result<u32, Error> {
        self.calls.set_names_regions(cell);
        let (number, oldest) = {
            let mut region_table = lock(&self.region_table);
            if let Some(number) = region_table.find(cell, region) {
                return Ok(number);
            }
            region_table.make_room()
        };
        let link = self.endpoint.link.get().ok_or_else(|| self.closed_error())?;
        thread::blocking(|| {
            if let Some(old) = oldest {
                let _ = link.forget_region(u64::from(old));
            }
            link.pass_region(u64::from(number), region.as_fd(), region.len() as u64)
        })?;
        lock(&self.region_table).keep(cell, region, number);
        Ok(number)
    }

    /// Takes a cell and writes the request into it. Blocks the microprocess while all cells are in
    /// use.
    pub(crate) fn write_request(
        &self,
        request: &OutgoingRequest<'_>,
    ) -> Result<CellGuard<'_>, Error> {
        if self.is_gone() {
            return Err(self.closed_error());
        }
        if call_chain::current().words().len() == CHAIN {
            let text = format!(
                "gate {:?} would be called through {CHAIN} others that wait for it: the calls go round in a circle",
                self.gate
            );
            return Err(Error::new(ErrorKind::Deadlock, text));
        }
        let guard = self.take_cell(request.deadline).map(|cell| self.guard(cell))?;
        let cell = guard.cell;
        let mut regions = self.pass_regions(cell, request.regions)?;
        let (mut flags, mut payload) = (0, request.payload);
        if payload.len() > self.inline() {
            if request.regions.len() == REGIONS {
                let text = format!(
                    "gate {:?}: {} bytes beside {REGIONS} regions, and {} fit",
                    self.gate,
                    payload.len(),
                    self.inline()
                );
                return Err(Error::new(ErrorKind::TooLarge, text));
            }
            let whole = Region::copy_of(payload)?;
            regions.rotate_right(1);
            regions[0] = self.pass_region(cell, &whole)?;
            (flags, payload) = (IN_REGION, &[]);
        }
        if fork::in_forked_child() {
            return Err(fork::forked_child_error());
        }
        let header = RequestHeader {
            kind: request.kind as u8,
            flags,
            priority: request.priority.unwrap_or_else(|| park::current().priority()).min(63),
            deadline: request.deadline.map_or(0, to_monotonic),
            tag: 0,
            regions,
            chain: call_chain::current(),
        };
        self.calls.lane.write(cell, &header, payload)?;
        Ok(guard)
    }

    fn notify(&self) {
        self.notifier.notify(&self.endpoint.link);
    }

    /// Pushes the request that was written into a cell, and notifies the server.
    fn push(&self, cell: CellNo, kind: RequestKind) -> Result<(), Error> {
        let waiter = (kind != RequestKind::Send).then(park::current);
        self.calls.push(cell, waiter, || self.notify())
    }

    /// Asks for the next item of a stream, in its cell, which this side has.
    pub(crate) fn request_next(&self, cell: CellNo) -> Result<(), Error> {
        if fork::in_forked_child() {
            return Err(fork::forked_child_error());
        }
        let header = RequestHeader {
            kind: RequestKind::Next as u8,
            priority: park::current().priority().min(63),
            chain: call_chain::current(),
            ..RequestHeader::default()
        };
        self.calls.lane.write(cell, &header, &[])?;
        self.push(cell, RequestKind::Next)
    }

    /// Ends a stream whose cell this side has: the thread that takes the answer in gives the cell
    /// back. Without that its handler would wait for ever, and send what it has left to the next
    /// stream in this cell.
    pub(crate) fn stop_stream(&self, cell: CellNo) {
        if fork::in_forked_child() {
            return;
        }
        let header = RequestHeader { kind: RequestKind::Stop as u8, ..RequestHeader::default() };
        if self.calls.push_stop(cell, &header, || self.notify()).is_err() {
            self.give_back(cell);
        }
    }

    /// Discards a reply without a waiter.
    fn discard_reply(&self, cell: CellNo, header: ReplyHeader) {
        if Status::of(header.status) == Some(Status::Item) {
            self.stop_stream(cell)
        } else {
            self.give_back(cell)
        }
    }

    /// Abandons the call of a cell. The cell is no longer the caller's.
    pub(crate) fn abandon(&self, cell: CellNo) {
        if fork::in_forked_child() {
            return;
        }
        if let Some(header) = self.calls.abandon(cell, || self.notify()) {
            self.discard_reply(cell, header);
        }
    }

    /// Waits until the reply has come. After an error the cell is no longer the caller's.
    #[inline]
    pub(crate) fn wait(&self, cell: CellNo, deadline: Option<Instant>) -> Result<(), Error> {
        match self.calls.wait(cell, self.space, deadline) {
            Ok(()) => Ok(()),
            Err(WaitFailure::Gone) => Err(self.closed_error()),
            Err(WaitFailure::Left) => {
                self.abandon(cell);
                cancel::point();
                let text = format!(
                    "gate {:?}: no reply until the deadline; the request may still be carried out",
                    self.gate
                );
                Err(Error::new(ErrorKind::TimedOut, text))
            }
        }
    }

    /// Checks the size of a reply.
    pub(crate) fn check_reply_size(&self, len: usize) -> Result<(), Error> {
        if len <= self.largest_reply {
            return Ok(());
        }
        let text = format!(
            "gate {:?}: a reply of {len} bytes, and {} are the most: Options::largest",
            self.gate, self.largest_reply
        );
        Err(Error::new(ErrorKind::TooLarge, text))
    }

    /// Reads the reply in a cell, which is the caller's again.
    pub(crate) fn take_reply(
        &self,
        cell: CellNo,
        reply: &mut Vec<u8>,
    ) -> Result<ReplyHeader, Error> {
        // SAFETY: the cell is the caller's, and `wait` has seen the reply.
        let header = unsafe { self.calls.header(cell) };
        self.calls.lane.read_reply(cell, reply)?;
        if Status::of(header.status) == Some(Status::InRegion) {
            let whole = self.region(header.regions[0])?;
            self.check_reply_size(whole.len())?;
            reply.clear();
            reply.extend_from_slice(&whole);
        }
        Ok(header)
    }

    /// Turns a reply's status into a result.
    pub(crate) fn check_status(
        &self,
        header: ReplyHeader,
        reply: &[u8],
    ) -> Result<ReplyHeader, Error> {
        match Status::of(header.status) {
            Some(Status::Failed(kind)) => {
                let text = String::from_utf8_lossy(reply);
                Err(Error::new(kind, format!("gate {:?}: {text}", self.gate)))
            }
            Some(_) => Ok(header),
            None => {
                let why = Error::new(
                    ErrorKind::Malformed,
                    format!(
                        "gate {:?}: a reply of no kind that there is ({})",
                        self.gate, header.status
                    ),
                );
                self.endpoint.close(&why);
                Err(why)
            }
        }
    }

    /// A region that a reply names. A server that has not passed it loses the link.
    pub(crate) fn region(&self, number: u32) -> Result<Region, Error> {
        self.endpoint.region(u64::from(number), true).inspect_err(|why| {
            if why.kind() == ErrorKind::Malformed {
                self.endpoint.close(why);
            }
        })
    }

    /// The regions that came with a reply: none with most replies.
    #[inline]
    pub(crate) fn reply_regions(&self, header: &ReplyHeader) -> Result<Vec<Region>, Error> {
        let skipped = usize::from(Status::of(header.status) == Some(Status::InRegion));
        let numbers = &header.regions[skipped..];
        if numbers.first().is_none_or(|first| *first == 0) {
            return Ok(Vec::new());
        }
        let numbers = numbers.iter().take_while(|number| **number != 0);
        numbers.map(|number| self.region(*number)).collect()
    }

    /// How many calls are under way.
    pub(crate) fn under_way(&self) -> usize {
        // None of a link that is gone, though its cells stay lent.
        if self.is_gone() { 0 } else { self.calls.lane.in_use() }
    }
}

/// Whether a link that ends with an error of this kind was cut: one side has violated the protocol
/// or exceeded a quota.
fn was_cut(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Malformed | ErrorKind::Exhausted)
}

/// A deadline on CLOCK_MONOTONIC, which all address spaces share; never 0.
fn to_monotonic(deadline: Instant) -> u64 {
    let left = deadline.saturating_duration_since(Instant::now());
    remote_wake::monotonic()
        .saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
        .max(1)
}

impl IndexedLink for ClientLink {
    fn poll(&self) {
        let taken = self.calls.take_replies(|cell, header| self.discard_reply(cell, header));
        if let Err(why) = taken {
            self.endpoint.close(&why);
        }
    }

    fn flush(&self, caller: row::Caller) {
        self.notifier.flush(caller, &self.endpoint.link);
    }

    fn expects(&self, core: u32) -> Option<u64> {
        self.notifier.expects(core)
    }
}

impl Inspect for ClientLink {
    fn state(&self) -> String {
        let whose = self
            .endpoint
            .link
            .get()
            .map_or("nobody yet".to_owned(), |link| link.peer().to_string());
        format!("calls gate {} of {whose}: {} under way", self.gate, self.under_way())
    }

    fn cancel(&self) {
        self.endpoint.close(&Error::new(ErrorKind::Gone, "the link was cancelled from outside"));
    }
}

impl HasEndpoint for ClientLink {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn end_with(&self, why: Error) {
        // Replies from before the end are taken in.
        self.poll();
        self.endpoint.regions.end(&why);
        let _ = self.gone.set(why);
        self.calls.end();
        self.endpoint.end();
    }
}
