//! The client's side of a link: calls under way, and callers that wait for a free cell.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use kumihimo_arbiter::row;
use kumihimo_runtime::park::{self, Wait, Waiter};
use kumihimo_runtime::{cancel, lock, remote_wake, thread};

use crate::call_chain;
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

/// No call is under way.
const IDLE: u32 = 0;
/// The taker of the cell waits for the reply.
const WAITING: u32 = 1;
/// The reply has come.
const REPLIED: u32 = 2;
/// No caller waits for the reply. The thread that pops it gives the cell back.
const ABANDONED: u32 = 3;
/// The link has ended, and no reply comes.
const GONE: u32 = 4;
/// As ABANDONED, and the server was asked to end a stream.
const STOPPING: u32 = 5;

/// The client's record of a call under way, one for each cell.
struct ReplySlot {
    state: AtomicU32,
    /// The waiter, and the header of its reply. The taker of the cell owns both before WAITING; the
    /// thread that ends WAITING owns them until it has done so; then the taker again.
    contents: UnsafeCell<(Option<Waiter>, ReplyHeader)>,
    /// Whether the call names regions. Owned by the taker of the cell, then by the thread that
    /// gives the cell back.
    names_regions: AtomicBool,
}

// SAFETY: `state` says which thread has `contents`; each change of it that hands `contents` over is
// a release, and read with acquire.
unsafe impl Sync for ReplySlot {}

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
    client: &'a ClientLink,
    pub(crate) cell: CellNo,
}

impl CellGuard<'_> {
    /// The cell without its guard: another owner gives it back.
    pub(crate) fn into_cell(self) -> CellNo {
        std::mem::ManuallyDrop::new(self).cell
    }
}

impl Drop for CellGuard<'_> {
    fn drop(&mut self) {
        self.client.give_back(self.cell);
    }
}

pub(crate) struct ClientLink {
    /// The gate's name, and whose it is: address space and process.
    pub(crate) gate: Box<str>,
    pub(crate) space: u16,
    /// Bytes of the largest reply that is taken.
    largest_reply: usize,
    caller: ClientEnd,
    slots: Box<[ReplySlot]>,
    notifier: Notifier,
    pub(crate) endpoint: Endpoint,
    /// Why it is gone.
    gone: OnceLock<Error>,
    is_gone: AtomicBool,
    region_table: Mutex<RegionTable>,
    /// Those that wait for a free cell, and how many they are.
    queue: Mutex<VecDeque<Waiter>>,
    queued: AtomicUsize,
    /// One at a time takes replies in, and no notified thread goes away without.
    taking: Mutex<()>,
}

impl ClientLink {
    pub(crate) fn new(
        gate: &str,
        space: u16,
        largest_reply: usize,
        caller: ClientEnd,
        notifier: Notifier,
    ) -> Arc<ClientLink> {
        let slot = || ReplySlot {
            state: AtomicU32::new(IDLE),
            contents: UnsafeCell::new((None, ReplyHeader::default())),
            names_regions: AtomicBool::new(false),
        };
        let slots = (0..caller.geometry().cells()).map(|_| slot()).collect();
        Arc::new(ClientLink {
            gate: gate.into(),
            space,
            largest_reply,
            caller,
            slots,
            notifier,
            endpoint: Endpoint::default(),
            gone: OnceLock::new(),
            is_gone: AtomicBool::new(false),
            region_table: Mutex::default(),
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            taking: Mutex::new(()),
        })
    }

    pub(crate) fn begin(self: &Arc<ClientLink>, link: Link, bit: u32) {
        self.endpoint.begin(self, link, bit, self.notifier.keeps_to_cores());
    }

    /// Nobody calls through it any more.
    pub(crate) fn close(&self) {
        self.endpoint.close(&Error::new(ErrorKind::Gone, "the client has closed the gate"));
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    pub(crate) fn inline(&self) -> usize {
        self.caller.geometry().inline() as usize
    }

    fn closed_error(&self) -> Error {
        let why = self.gone.get().map_or_else(|| "it has ended".to_owned(), ToString::to_string);
        let kind = self.gone.get().map_or(ErrorKind::Gone, Error::kind);
        let kind = if kind == ErrorKind::Malformed { kind } else { ErrorKind::Gone };
        Error::new(
            kind,
            format!(
                "gate {:?}: {why}; what was under way may or may not have been carried out: call again if that does no harm",
                self.gate
            ),
        )
    }

    /// A cell of one's own. Blocks the microprocess while all are in use.
    fn take_cell(&self, deadline: Option<Instant>) -> Result<CellNo, Error> {
        if let Some(cell) = self.caller.take_cell() {
            return Ok(cell);
        }
        let me = park::current();
        loop {
            {
                let mut queue = lock(&self.queue);
                self.queued.fetch_add(1, Ordering::SeqCst);
                queue.push_back(me.clone());
            }
            // A thread that gives one back looks for queued callers after that.
            fence(Ordering::SeqCst);
            let found = self.caller.take_cell();
            let over = || deadline.is_some_and(|at| Instant::now() >= at);
            if found.is_none() && !self.is_gone() {
                park::park(Wait::Gate(self.space), deadline);
            }
            let found = found.or_else(|| self.caller.take_cell());
            let was_called = {
                let mut queue = lock(&self.queue);
                let at = queue.iter().position(|one| *one == me);
                if let Some(at) = at {
                    queue.remove(at);
                    self.queued.fetch_sub(1, Ordering::SeqCst);
                }
                at.is_none()
            };
            if let Some(cell) = found {
                return Ok(cell);
            }
            let ends = self.is_gone() || cancel::would_unwind() || over();
            if ends && was_called {
                // Its call was for a cell that somebody else can have.
                self.wake_queued();
            }
            if self.is_gone() {
                return Err(self.closed_error());
            }
            cancel::point();
            if over() {
                let text = format!(
                    "gate {:?}: all {} calls of this client were under way until the deadline",
                    self.gate,
                    self.slots.len()
                );
                return Err(Error::new(ErrorKind::TimedOut, text));
            }
        }
    }

    /// A cell of the caller's, for as long as it has that.
    pub(crate) fn guard(&self, cell: CellNo) -> CellGuard<'_> {
        CellGuard { client: self, cell }
    }

    pub(crate) fn give_back(&self, cell: CellNo) {
        let slot = &self.slots[cell.index()];
        if slot.names_regions.swap(false, Ordering::Relaxed) {
            lock(&self.region_table).release(cell);
        }
        slot.state.store(IDLE, Ordering::Relaxed);
        let _ = self.caller.give_back(cell);
        fence(Ordering::SeqCst);
        if self.queued.load(Ordering::Relaxed) != 0 {
            self.wake_queued();
        }
    }

    #[cold]
    fn wake_queued(&self) {
        let first = {
            let mut queue = lock(&self.queue);
            let first = queue.pop_front();
            if first.is_some() {
                self.queued.fetch_sub(1, Ordering::SeqCst);
            }
            first
        };
        if let Some(who) = first {
            who.wake();
        }
    }

    /// The numbers by which the other side knows these regions; passes those that it does not have.
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
        self.slots[cell.index()].names_regions.store(true, Ordering::Relaxed);
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

    /// Makes a call and waits for the reply; `reply` has its payload afterwards. Blocks the
    /// microprocess. A cancellation point: the other side is told.
    pub(crate) fn call(
        &self,
        request: &OutgoingRequest<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<ReplyHeader, Error> {
        let cell = self.submit(request)?;
        self.wait(cell, request.deadline)?;
        let guard = self.guard(cell);
        let header = self.take_reply(cell, reply)?;
        drop(guard);
        self.check_status(header, reply)
    }

    /// As [`call`](ClientLink::call) that nobody waits for. Blocks the microprocess while all cells
    /// are in use.
    pub(crate) fn send(&self, request: &OutgoingRequest<'_>) -> Result<(), Error> {
        self.submit(request).map(drop)
    }

    /// Takes a cell and puts the request before the other side.
    pub(crate) fn submit(&self, request: &OutgoingRequest<'_>) -> Result<CellNo, Error> {
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
        self.push(cell, request, flags, regions, payload)?;
        Ok(guard.into_cell())
    }

    fn push(
        &self,
        cell: CellNo,
        request: &OutgoingRequest<'_>,
        flags: u8,
        regions: [u32; REGIONS],
        payload: &[u8],
    ) -> Result<(), Error> {
        if fork::in_forked_child() {
            return Err(fork::forked_child_error());
        }
        let chain = call_chain::current();
        let header = RequestHeader {
            kind: request.kind as u8,
            flags,
            priority: request.priority.unwrap_or_else(|| park::current().priority()).min(63),
            deadline: request.deadline.map_or(0, to_monotonic),
            tag: 0,
            regions,
            chain,
        };
        self.caller.write(cell, &header, payload)?;
        let slot = &self.slots[cell.index()];
        if request.kind == RequestKind::Send {
            slot.state.store(ABANDONED, Ordering::Relaxed);
        } else {
            // SAFETY: the cell is ours, and nobody waits in it: `contents` is the taker's.
            unsafe { (*slot.contents.get()).0 = Some(park::current()) };
            // Release: the thread that ends the wait finds the waiter.
            slot.state.store(WAITING, Ordering::Release);
        }
        self.caller.push_request(cell)?;
        self.notifier.notify(&self.endpoint.link);
        // The end of the link looks at all cells that are lent: at this one too, or it is seen
        // here.
        fence(Ordering::SeqCst);
        if self.is_gone() {
            self.fail_wait(cell);
        }
        Ok(())
    }

    /// Asks for the next item of a stream, in its cell, which this side has.
    pub(crate) fn request_next(&self, cell: CellNo) -> Result<(), Error> {
        let request = OutgoingRequest {
            kind: RequestKind::Next,
            payload: &[],
            regions: &[],
            deadline: None,
            priority: None,
        };
        self.push(cell, &request, 0, [0; REGIONS], &[])
    }

    /// Ends a stream whose cell this side has: the thread that takes the answer in gives the cell
    /// back. Without that its handler would wait for ever, and send what it has left to the next
    /// stream in this cell.
    pub(crate) fn stop_stream(&self, cell: CellNo) {
        if fork::in_forked_child() {
            return;
        }
        let header = RequestHeader { kind: RequestKind::Stop as u8, ..RequestHeader::default() };
        // Before the push: the answer may come at once.
        self.slots[cell.index()].state.store(STOPPING, Ordering::Relaxed);
        let pushed =
            self.caller.write(cell, &header, &[]).and_then(|()| self.caller.push_request(cell));
        if pushed.is_err() {
            return self.give_back(cell);
        }
        self.notifier.notify(&self.endpoint.link);
    }

    /// Nobody wants what came in a cell that is this side's again.
    fn discard_reply(&self, cell: CellNo, header: ReplyHeader) {
        if Status::of(header.status) == Some(Status::Item) {
            self.stop_stream(cell)
        } else {
            self.give_back(cell)
        }
    }

    /// Nobody waits any more for what was asked in a cell, which is not the caller's any more.
    pub(crate) fn abandon(&self, cell: CellNo) {
        if fork::in_forked_child() {
            return;
        }
        let slot = &self.slots[cell.index()];
        // Before it is left: from then on the thread that takes the reply in gives the cell back,
        // and a cancel must not come to its next request.
        if slot.state.load(Ordering::Acquire) == WAITING && self.caller.push_cancel(cell) {
            self.notifier.notify(&self.endpoint.link);
        }
        // GONE: lent for ever, which is as long as the link's memory.
        if slot.state.compare_exchange(WAITING, ABANDONED, Ordering::AcqRel, Ordering::Acquire)
            == Err(REPLIED)
        {
            // SAFETY: REPLIED: `contents` is the taker's again, which is the leaving thread.
            let header = unsafe { (*slot.contents.get()).1 };
            self.discard_reply(cell, header);
        }
    }

    /// Until the reply is there. On an error the cell is no longer the caller's.
    pub(crate) fn wait(&self, cell: CellNo, deadline: Option<Instant>) -> Result<(), Error> {
        let slot = &self.slots[cell.index()];
        loop {
            match slot.state.load(Ordering::Acquire) {
                REPLIED => return Ok(()),
                // Lent for ever: the lane ends with the link.
                GONE => return Err(self.closed_error()),
                _ => {}
            }
            park::park(Wait::Gate(self.space), deadline);
            if slot.state.load(Ordering::Acquire) != WAITING {
                continue;
            }
            let cancelled = cancel::would_unwind();
            let over = deadline.is_some_and(|at| Instant::now() >= at);
            if cancelled || over {
                self.abandon(cell);
                cancel::point();
                let text = format!(
                    "gate {:?}: no reply until the deadline; the request may still be carried out",
                    self.gate
                );
                return Err(Error::new(ErrorKind::TimedOut, text));
            }
        }
    }

    /// Whether a reply may have so many bytes.
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

    /// What came in a cell that is this side's again.
    pub(crate) fn take_reply(
        &self,
        cell: CellNo,
        reply: &mut Vec<u8>,
    ) -> Result<ReplyHeader, Error> {
        let slot = &self.slots[cell.index()];
        debug_assert_eq!(slot.state.load(Ordering::Relaxed), REPLIED);
        // SAFETY: REPLIED, seen with acquire by `wait`: `contents` is the taker's again.
        let header = unsafe { (*slot.contents.get()).1 };
        self.caller.read_reply(cell, reply)?;
        if Status::of(header.status) == Some(Status::InRegion) {
            let whole = self.endpoint.regions.get(u64::from(header.regions[0]), true)?;
            self.check_reply_size(whole.len())?;
            reply.clear();
            reply.extend_from_slice(&whole);
        }
        Ok(header)
    }

    /// What went wrong on the other side.
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

    /// No reply will come in this cell.
    fn fail_wait(&self, cell: CellNo) {
        let _one = lock(&self.taking);
        let slot = &self.slots[cell.index()];
        if slot.state.compare_exchange(WAITING, GONE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            // SAFETY: we have ended WAITING, and `taking` keeps out other threads that take replies
            // in; the taker does not look at `contents` any more.
            let who = unsafe { (*slot.contents.get()).0.clone() };
            if let Some(who) = who {
                who.wake();
            }
        }
    }

    /// How many calls are under way.
    pub(crate) fn under_way(&self) -> usize {
        // Of a link that is gone none is, though its cells stay lent.
        if self.is_gone() { 0 } else { self.caller.in_use() }
    }
}

/// A deadline as all address spaces tell the time; never 0.
fn to_monotonic(deadline: Instant) -> u64 {
    let left = deadline.saturating_duration_since(Instant::now());
    remote_wake::monotonic()
        .saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
        .max(1)
}

impl IndexedLink for ClientLink {
    fn poll(&self) {
        let mut left = Vec::new();
        let popped = {
            let _one = lock(&self.taking);
            self.caller.pop_replies(usize::MAX, |reply| {
                let slot = &self.slots[reply.cell.index()];
                if slot.state.load(Ordering::Acquire) == WAITING {
                    // SAFETY: this side's record of a cell whose reply is being taken in: only we
                    // end WAITING with a reply, and a leaving caller does not look at `contents`. A
                    // waiting one takes nothing before REPLIED.
                    let who = unsafe {
                        let contents = slot.contents.get();
                        (*contents).1 = reply.header;
                        (*contents).0.clone()
                    };
                    if slot
                        .state
                        .compare_exchange(WAITING, REPLIED, Ordering::AcqRel, Ordering::Acquire)
                        .is_ok()
                    {
                        if let Some(who) = who {
                            who.wake();
                        }
                        return;
                    }
                }
                // GONE: a reply behind the link's end. Its taker is still to see that, and the cell
                // is nobody's any more.
                match slot.state.load(Ordering::Acquire) {
                    ABANDONED => left.push((reply.cell, reply.header)),
                    // Whatever it says: a server that answers this with an item is not asked again.
                    STOPPING => left.push((reply.cell, ReplyHeader::default())),
                    _ => {}
                }
            })
        };
        left.into_iter().for_each(|(cell, header)| self.discard_reply(cell, header));
        if let Err(why) = popped {
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
        // What was answered before the end is taken in.
        self.poll();
        self.endpoint.regions.end(&why);
        let _ = self.gone.set(why);
        self.is_gone.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let lent: Vec<CellNo> = self.caller.lent().collect();
        lent.into_iter().for_each(|cell| self.fail_wait(cell));
        self.endpoint.end();
        let queued: Vec<Waiter> = {
            let mut queue = lock(&self.queue);
            self.queued.store(0, Ordering::SeqCst);
            queue.drain(..).collect()
        };
        queued.iter().for_each(Waiter::wake);
    }
}
