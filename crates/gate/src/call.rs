//! The client's end of a link: calls under way, and those that wait for a cell.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use kumihimo_arbiter::row;
use kumihimo_runtime::park::{self, Wait, Waiter};
use kumihimo_runtime::{cancel, lock, remote_wake, thread};

use crate::bell::Bell;
use crate::entered::Shown;
use crate::lane::{CHAIN, Caller, CellNo, REGIONS, ReplyHeader, RequestHeader};
use crate::link::Link;
use crate::looks::Looked;
use crate::passed::Passed;
use crate::porter;
use crate::side::{Side, Sided};
use crate::wire::{ELSEWHERE, Kind, Status};
use crate::{Error, ErrorKind, Region, chain};

/// Nobody waits.
const IDLE: u32 = 0;
/// Its taker waits for the reply.
const WAITS: u32 = 1;
/// The reply is there.
const THERE: u32 = 2;
/// No caller waits any more, or ever did: the thread that takes the reply in gives the cell back.
const LEFT: u32 = 3;
/// The link is gone, and no reply comes.
const GONE: u32 = 4;
/// As LEFT, and the other side was asked to end a stream.
const STOPS: u32 = 5;

/// What this side keeps of a call under way, by cell.
struct Slot {
    state: AtomicU32,
    /// The waiter, and what came. The thread that makes `state` what it is has them: the taker of
    /// the cell before WAITS, the thread that ends that until it has done so, then the taker again.
    held: UnsafeCell<(Option<Waiter>, ReplyHeader)>,
    /// What is under way names regions. Its taker's, then the thread's that gives the cell back.
    names: AtomicBool,
}

// SAFETY: `state` says which thread has `held`; each change of it that hands `held` over is a
// release, and read with acquire.
unsafe impl Sync for Slot {}

/// A request, as callers make it.
pub(crate) struct Ask<'a> {
    pub(crate) kind: Kind,
    pub(crate) payload: &'a [u8],
    pub(crate) regions: &'a [Region],
    pub(crate) deadline: Option<Instant>,
    pub(crate) priority: Option<u8>,
}

/// A cell of the caller's. Given back when it is dropped, also while the caller unwinds.
pub(crate) struct Taken<'a> {
    client: &'a Client,
    pub(crate) cell: CellNo,
}

impl Taken<'_> {
    /// It is somebody else's to give back.
    pub(crate) fn keep(self) -> CellNo {
        std::mem::ManuallyDrop::new(self).cell
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.client.give_back(self.cell);
    }
}

pub(crate) struct Client {
    /// The gate's name, and whose it is: address space and process.
    pub(crate) gate: Box<str>,
    pub(crate) space: u16,
    /// Bytes of the largest reply that is taken.
    most: usize,
    caller: Caller,
    slots: Box<[Slot]>,
    bell: Bell,
    pub(crate) side: Side,
    /// Why it is gone.
    gone: OnceLock<Error>,
    is_gone: AtomicBool,
    passed: Mutex<Passed>,
    /// Those that wait for a free cell, and how many they are.
    queue: Mutex<VecDeque<Waiter>>,
    queued: AtomicUsize,
    /// One at a time takes replies in, and no notified thread goes away without.
    taking: Mutex<()>,
}

impl Client {
    pub(crate) fn new(
        gate: &str,
        space: u16,
        most: usize,
        caller: Caller,
        bell: Bell,
    ) -> Arc<Client> {
        let slot = || Slot {
            state: AtomicU32::new(IDLE),
            held: UnsafeCell::new((None, ReplyHeader::default())),
            names: AtomicBool::new(false),
        };
        let slots = (0..caller.geometry().cells()).map(|_| slot()).collect();
        Arc::new(Client {
            gate: gate.into(),
            space,
            most,
            caller,
            slots,
            bell,
            side: Side::default(),
            gone: OnceLock::new(),
            is_gone: AtomicBool::new(false),
            passed: Mutex::default(),
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            taking: Mutex::new(()),
        })
    }

    pub(crate) fn begin(self: &Arc<Client>, link: Link, bit: u32) {
        self.side.begin(self, link, bit, self.bell.keeps_to_cores());
    }

    /// Nobody calls through it any more.
    pub(crate) fn close(&self) {
        self.side.cut(&Error::new(ErrorKind::Gone, "the client has closed the gate"));
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    pub(crate) fn inline(&self) -> usize {
        self.caller.geometry().inline() as usize
    }

    fn why_gone(&self) -> Error {
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
                self.call_queued();
            }
            if self.is_gone() {
                return Err(self.why_gone());
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
    pub(crate) fn taken(&self, cell: CellNo) -> Taken<'_> {
        Taken { client: self, cell }
    }

    pub(crate) fn give_back(&self, cell: CellNo) {
        let slot = &self.slots[cell.index()];
        if slot.names.swap(false, Ordering::Relaxed) {
            lock(&self.passed).release(cell);
        }
        slot.state.store(IDLE, Ordering::Relaxed);
        let _ = self.caller.give_back(cell);
        fence(Ordering::SeqCst);
        if self.queued.load(Ordering::Relaxed) != 0 {
            self.call_queued();
        }
    }

    #[cold]
    fn call_queued(&self) {
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
    fn pass(&self, cell: CellNo, regions: &[Region]) -> Result<[u32; REGIONS], Error> {
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
            *number = self.pass_one(cell, region)?;
        }
        Ok(numbers)
    }

    fn pass_one(&self, cell: CellNo, region: &Region) -> Result<u32, Error> {
        self.slots[cell.index()].names.store(true, Ordering::Relaxed);
        let (number, oldest) = {
            let mut passed = lock(&self.passed);
            if let Some(number) = passed.find(cell, region) {
                return Ok(number);
            }
            passed.make_room()
        };
        let link = self.side.link.get().ok_or_else(|| self.why_gone())?;
        thread::blocking(|| {
            if let Some(old) = oldest {
                let _ = link.forget_region(u64::from(old));
            }
            link.pass_region(u64::from(number), region.as_fd(), region.len() as u64)
        })?;
        lock(&self.passed).keep(cell, region, number);
        Ok(number)
    }

    /// Makes a call and waits for the reply; `reply` has its payload afterwards. Blocks the
    /// microprocess. A cancellation point: the other side is told.
    pub(crate) fn call(&self, ask: &Ask<'_>, reply: &mut Vec<u8>) -> Result<ReplyHeader, Error> {
        let cell = self.ask(ask)?;
        self.wait(cell, ask.deadline)?;
        let taken = self.taken(cell);
        let header = self.take_reply(cell, reply)?;
        drop(taken);
        self.check(header, reply)
    }

    /// As [`call`](Client::call) that nobody waits for. Blocks the microprocess while all cells are
    /// in use.
    pub(crate) fn send(&self, ask: &Ask<'_>) -> Result<(), Error> {
        self.ask(ask).map(drop)
    }

    /// Takes a cell and puts the request before the other side.
    pub(crate) fn ask(&self, ask: &Ask<'_>) -> Result<CellNo, Error> {
        if self.is_gone() {
            return Err(self.why_gone());
        }
        if chain::current().words().len() == CHAIN {
            let text = format!(
                "gate {:?} would be called through {CHAIN} others that wait for it: the calls go round in a circle",
                self.gate
            );
            return Err(Error::new(ErrorKind::Deadlock, text));
        }
        let taken = self.take_cell(ask.deadline).map(|cell| self.taken(cell))?;
        let cell = taken.cell;
        let mut regions = self.pass(cell, ask.regions)?;
        let (mut flags, mut payload) = (0, ask.payload);
        if payload.len() > self.inline() {
            if ask.regions.len() == REGIONS {
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
            regions[0] = self.pass_one(cell, &whole)?;
            (flags, payload) = (ELSEWHERE, &[]);
        }
        self.push(cell, ask, flags, regions, payload)?;
        Ok(taken.keep())
    }

    fn push(
        &self,
        cell: CellNo,
        ask: &Ask<'_>,
        flags: u8,
        regions: [u32; REGIONS],
        payload: &[u8],
    ) -> Result<(), Error> {
        if porter::is_child() {
            return Err(porter::of_parent());
        }
        let chain = chain::current();
        let header = RequestHeader {
            kind: ask.kind as u8,
            flags,
            priority: ask.priority.unwrap_or_else(|| park::current().priority()).min(63),
            deadline: ask.deadline.map_or(0, on_clock),
            tag: 0,
            regions,
            chain,
        };
        self.caller.write(cell, &header, payload)?;
        let slot = &self.slots[cell.index()];
        if ask.kind == Kind::Send {
            slot.state.store(LEFT, Ordering::Relaxed);
        } else {
            // SAFETY: the cell is ours, and nobody waits in it: `held` is the taker's.
            unsafe { (*slot.held.get()).0 = Some(park::current()) };
            // Release: the thread that ends the wait finds the waiter.
            slot.state.store(WAITS, Ordering::Release);
        }
        self.caller.push_request(cell)?;
        self.bell.pushed(&self.side.link);
        // The end of the link looks at all cells that are lent: at this one too, or it is seen
        // here.
        fence(Ordering::SeqCst);
        if self.is_gone() {
            self.fail(cell);
        }
        Ok(())
    }

    /// Asks for the next item of a stream, in its cell, which this side has.
    pub(crate) fn ask_next(&self, cell: CellNo) -> Result<(), Error> {
        let ask =
            Ask { kind: Kind::Next, payload: &[], regions: &[], deadline: None, priority: None };
        self.push(cell, &ask, 0, [0; REGIONS], &[])
    }

    /// Ends a stream whose cell this side has: the thread that takes the answer in gives the cell
    /// back. Without that its handler would wait for ever, and send what it has left to the next
    /// stream in this cell.
    pub(crate) fn stop(&self, cell: CellNo) {
        if porter::is_child() {
            return;
        }
        let header = RequestHeader { kind: Kind::Stop as u8, ..RequestHeader::default() };
        // Before the push: the answer may come at once.
        self.slots[cell.index()].state.store(STOPS, Ordering::Relaxed);
        let pushed =
            self.caller.write(cell, &header, &[]).and_then(|()| self.caller.push_request(cell));
        if pushed.is_err() {
            return self.give_back(cell);
        }
        self.bell.pushed(&self.side.link);
    }

    /// Nobody wants what came in a cell that is this side's again.
    fn put_away(&self, cell: CellNo, header: ReplyHeader) {
        if Status::of(header.status) == Some(Status::Item) {
            self.stop(cell)
        } else {
            self.give_back(cell)
        }
    }

    /// Nobody waits any more for what was asked in a cell, which is not the caller's any more.
    pub(crate) fn abandon(&self, cell: CellNo) {
        if porter::is_child() {
            return;
        }
        let slot = &self.slots[cell.index()];
        // Before it is left: from then on the thread that takes the reply in gives the cell back,
        // and a cancel must not come to its next request.
        if slot.state.load(Ordering::Acquire) == WAITS && self.caller.push_cancel(cell) {
            self.bell.pushed(&self.side.link);
        }
        // GONE: lent for ever, which is as long as the link's memory.
        if slot.state.compare_exchange(WAITS, LEFT, Ordering::AcqRel, Ordering::Acquire)
            == Err(THERE)
        {
            // SAFETY: THERE: `held` is the taker's again, which is the leaving thread.
            let header = unsafe { (*slot.held.get()).1 };
            self.put_away(cell, header);
        }
    }

    /// Until the reply is there. On an error the cell is no longer the caller's.
    pub(crate) fn wait(&self, cell: CellNo, deadline: Option<Instant>) -> Result<(), Error> {
        let slot = &self.slots[cell.index()];
        loop {
            match slot.state.load(Ordering::Acquire) {
                THERE => return Ok(()),
                // Lent for ever: the lane ends with the link.
                GONE => return Err(self.why_gone()),
                _ => {}
            }
            park::park(Wait::Gate(self.space), deadline);
            if slot.state.load(Ordering::Acquire) != WAITS {
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
    pub(crate) fn takes(&self, len: usize) -> Result<(), Error> {
        if len <= self.most {
            return Ok(());
        }
        let text = format!(
            "gate {:?}: a reply of {len} bytes, and {} are the most: Options::largest",
            self.gate, self.most
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
        debug_assert_eq!(slot.state.load(Ordering::Relaxed), THERE);
        // SAFETY: THERE, seen with acquire by `wait`: `held` is the taker's again.
        let header = unsafe { (*slot.held.get()).1 };
        self.caller.read_reply(cell, reply)?;
        if Status::of(header.status) == Some(Status::Elsewhere) {
            let whole = self.side.regions.get(u64::from(header.regions[0]), true)?;
            self.takes(whole.len())?;
            reply.clear();
            reply.extend_from_slice(&whole);
        }
        Ok(header)
    }

    /// What went wrong on the other side.
    pub(crate) fn check(&self, header: ReplyHeader, reply: &[u8]) -> Result<ReplyHeader, Error> {
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
                self.side.cut(&why);
                Err(why)
            }
        }
    }

    /// No reply will come in this cell.
    fn fail(&self, cell: CellNo) {
        let _one = lock(&self.taking);
        let slot = &self.slots[cell.index()];
        if slot.state.compare_exchange(WAITS, GONE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            // SAFETY: we have ended WAITS, and `taking` keeps out other threads that take replies
            // in; the taker does not look at `held` any more.
            let who = unsafe { (*slot.held.get()).0.clone() };
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
fn on_clock(deadline: Instant) -> u64 {
    let left = deadline.saturating_duration_since(Instant::now());
    remote_wake::monotonic()
        .saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
        .max(1)
}

impl Looked for Client {
    fn look(&self) {
        let mut left = Vec::new();
        let popped = {
            let _one = lock(&self.taking);
            self.caller.pop_replies(usize::MAX, |reply| {
                let slot = &self.slots[reply.cell.index()];
                if slot.state.load(Ordering::Acquire) == WAITS {
                    // SAFETY: this side's record of a cell whose reply is being taken in: only we
                    // end WAITS with a reply, and a leaving caller does not look at `held`. A
                    // waiting one takes nothing before THERE.
                    let who = unsafe {
                        let held = slot.held.get();
                        (*held).1 = reply.header;
                        (*held).0.clone()
                    };
                    if slot
                        .state
                        .compare_exchange(WAITS, THERE, Ordering::AcqRel, Ordering::Acquire)
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
                    LEFT => left.push((reply.cell, reply.header)),
                    // Whatever it says: a server that answers this with an item is not asked again.
                    STOPS => left.push((reply.cell, ReplyHeader::default())),
                    _ => {}
                }
            })
        };
        left.into_iter().for_each(|(cell, header)| self.put_away(cell, header));
        if let Err(why) = popped {
            self.side.cut(&why);
        }
    }

    fn tell(&self, caller: row::Caller) {
        self.bell.tell(caller, &self.side.link);
    }

    fn expects(&self, core: u32) -> Option<u64> {
        self.bell.expects(core)
    }
}

impl Shown for Client {
    fn state(&self) -> String {
        let whose =
            self.side.link.get().map_or("nobody yet".to_owned(), |link| link.peer().to_string());
        format!("calls gate {} of {whose}: {} under way", self.gate, self.under_way())
    }

    fn cancel(&self) {
        self.side.cut(&Error::new(ErrorKind::Gone, "the link was cancelled from outside"));
    }
}

impl Sided for Client {
    fn side(&self) -> &Side {
        &self.side
    }

    fn gone(&self, why: Error) {
        // What was answered before the end is taken in.
        self.look();
        self.side.regions.end(&why);
        let _ = self.gone.set(why);
        self.is_gone.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let lent: Vec<CellNo> = self.caller.lent().collect();
        lent.into_iter().for_each(|cell| self.fail(cell));
        self.side.end();
        let queued: Vec<Waiter> = {
            let mut queue = lock(&self.queue);
            self.queued.store(0, Ordering::SeqCst);
            queue.drain(..).collect()
        };
        queued.iter().for_each(Waiter::wake);
    }
}
