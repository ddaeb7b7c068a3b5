//! The server's side, as users see it: a pool of microprocesses, or a loop of one's own.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kumihimo_runtime::{cancel, intake, membership, park, runtime, thread};
use serde::{Serialize, de::DeserializeOwned};

use crate::call_chain;
use crate::error::{Error, ErrorKind};
use crate::handshake::record::{Hello, LaneSize};
use crate::lane::{Chain, Geometry, ReplyHeader, ServerEnd};
use crate::link::link_poller::{self, Admission, Admitted, LinkPoller};
use crate::link::notifier::Notifier;
use crate::link::{link_index, wake_address};
use crate::options::Options;
use crate::region::sealed::Region;
use crate::resource_entry::{self, ResourceEntry};
use crate::server::server_link::ServerLink;
use crate::server::service::{Request, Service, Work};
use crate::wire::codec::{Codec, Typed};
use crate::wire::message::{IN_REGION, RequestKind, Status};
use crate::wire::peer::Peer;
use crate::wire::type_hash;

/// A gate that is served. Dropping it closes the gate: nobody finds it any more, and callers are
/// told that it is gone.
#[derive(Debug)]
pub struct Serving {
    service: Arc<Service>,
    resource_entry: Option<ResourceEntry>,
}

impl Serving {
    /// The gate's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.service.name
    }

    /// Requests handled so far.
    #[must_use]
    pub fn handled(&self) -> u64 {
        self.service.handled.load(Ordering::Relaxed)
    }

    /// Serves until the process ends.
    pub fn forever(self) {
        std::mem::forget(self);
    }

    /// Serves until the gate is ended from outside (by its id: `kumi cancel`,
    /// [`Neighbour::act`](kumihimo_machine::Neighbour::act)), and says so: `Gone`. Blocks the
    /// microprocess; a cancellation point.
    #[must_use]
    pub fn wait(self) -> Error {
        while !self.service.notify_when_closed(&park::current()) {
            park::park(park::Wait::Gate(0), None);
            cancel::point();
        }
        Error::new(
            ErrorKind::Gone,
            format!("gate {:?} was ended from outside, by its id", self.service.name),
        )
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if link_poller::in_forked_child() {
            return std::mem::forget(self.resource_entry.take());
        }
        self.service.unpublish();
        self.service.close();
    }
}

/// The caller, and how it called.
pub struct Context<'a> {
    request: &'a Request,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("peer", &self.request.link.peer).finish_non_exhaustive()
    }
}

impl Context<'_> {
    /// The calling process's user, as the kernel says.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.request.link.peer.uid
    }

    /// The calling process; `None` where it is in a pid namespace that this one cannot see into.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.request.link.peer.pid
    }

    /// The caller's priority, 0 to 63.
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.request.header.priority
    }

    /// Until when the caller waits.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        (self.request.header.deadline != 0).then(|| of_clock(self.request.header.deadline))
    }

    /// Whether the caller has gone away or wants no reply any more. A handler of a pool is
    /// cancelled then, too; a loop of one's own is not, and is told of the request that it received
    /// last.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let Request { link, cell, .. } = self.request;
        link.is_gone()
            || cancel::requested()
            || link.service.single && link.service.is_abandoned(link, *cell)
    }

    /// The regions that came with the request, in order. Blocks the microprocess until they are
    /// there.
    ///
    /// # Errors
    /// `Malformed`: what was passed can still be changed, or is not of the size said. `Gone`: the
    /// caller has ended.
    pub fn regions(&self) -> Result<Vec<Region>, Error> {
        let skipped = usize::from(self.request.header.flags & IN_REGION != 0);
        let numbers =
            self.request.header.regions[skipped..].iter().take_while(|number| **number != 0);
        numbers
            .map(|number| self.request.link.endpoint.regions.get(u64::from(*number), false))
            .collect()
    }
}

fn of_clock(deadline: u64) -> Instant {
    Instant::now() + Duration::from_nanos(deadline.saturating_sub(intake::monotonic()))
}

/// What a handler gives back: the payload is in the buffer that it was handed.
pub(crate) type Outcome = Result<Vec<Region>, Error>;
/// A handler, without its types.
pub(crate) type Handler = dyn Fn(&[u8], &Job<'_>, &mut Vec<u8>) -> Outcome + Send + Sync;

/// A request in a handler's hands.
pub(crate) struct Job<'a> {
    pub(crate) request: &'a Request,
    pub(crate) context: Context<'a>,
}

/// Opens a gate.
pub(crate) fn open(
    name: &str,
    options: &Options,
    types: Option<u64>,
    single: bool,
) -> Result<Serving, Error> {
    opened(name, options, types, single).map_err(|e| e.of_gate(name))
}

fn opened(
    name: &str,
    options: &Options,
    types: Option<u64>,
    single: bool,
) -> Result<Serving, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Error::unless_supported()?;
    let geometry = Geometry::fitting(options.in_flight, options.inline)?;
    runtime::ensure()
        .map_err(|e| Error::new(ErrorKind::Io, format!("gate {name:?}: no runtime: {e}")))?;
    let number = membership::holder().map_err(|why| {
        Error::new(
            ErrorKind::Io,
            format!("gate {name:?}: this process has no place on the machine where it could be found: {why}"),
        )
    })?;
    let space = u32::from(number.location().space());
    let word = space << 20 | NEXT.fetch_add(1, Ordering::Relaxed) & 0xf_ffff;
    let service = Arc::new(Service::new(name, word, single, options));
    let admission = Arc::new(GateAdmission { service: service.clone(), geometry, types });
    let published = LinkPoller::of_process().publish(&number, name, &options.allowed, admission)?;
    *kumihimo_runtime::lock(&service.published) = Some(published);
    let resource_entry = Some(resource_entry::gate(name, service.clone()));
    Ok(Serving { service, resource_entry })
}

/// Lets callers in.
struct GateAdmission {
    service: Arc<Service>,
    geometry: Geometry,
    types: Option<u64>,
}

impl Admission for GateAdmission {
    fn admits(&self, peer: Peer, hello: &Hello) -> Result<Admitted, Error> {
        self.service.check_room(peer)?;
        if hello.types.is_some() != self.types.is_some() {
            let (has, wants) =
                if self.types.is_some() { ("typed", "bytes") } else { ("bytes", "typed") };
            let text = format!(
                "gate {:?} takes {has} requests, and the caller makes {wants} ones: call it as it is served",
                self.service.name
            );
            return Err(Error::new(ErrorKind::Version, text));
        }
        if let (Some(own), Some(theirs)) = (self.types, hello.types)
            && !type_hash::agree(own, theirs)
        {
            let text = format!(
                "gate {:?} serves other types than the caller calls it with: name them, as in Gate::<(u32, u32), u32>::connect (a literal is an i32)",
                self.service.name
            );
            return Err(Error::new(ErrorKind::Version, text));
        }
        let (host, lane) = ServerEnd::create("kumihimo-lane", self.geometry)?;
        let bit = link_index::next_bit();
        let notifier = Notifier::new(wake_address::peer(hello.wake_address), bit, hello.placement);
        let server_link = ServerLink::new(self.service.clone(), host, notifier, peer);
        let size = LaneSize { cells: self.geometry.cells(), inline: self.geometry.inline() };
        Ok(Admitted {
            size,
            wake_address: wake_address::own(bit),
            lane,
            opened: Box::new(move |link| {
                server_link.begin(link, bit);
                server_link
            }),
        })
    }
}

/// Microprocesses that handle requests, each one at a time.
pub(crate) struct WorkerPool {
    service: Arc<Service>,
    handler: Box<Handler>,
    streams: bool,
}

impl WorkerPool {
    pub(crate) fn start(
        serving: &Serving,
        handler: Box<Handler>,
        streams: bool,
    ) -> Result<(), Error> {
        WorkerPool::grow(&Arc::new(WorkerPool {
            service: serving.service.clone(),
            handler,
            streams,
        }))
    }

    fn grow(pool: &Arc<WorkerPool>) -> Result<(), Error> {
        let its = pool.clone();
        let name = format!("gate {}", pool.service.name);
        let builder = thread::Builder::new().name(name).priority(pool.service.initial_priority());
        builder.spawn(move || its.work()).map(drop).map_err(|e| {
            Error::new(
                ErrorKind::Exhausted,
                format!("gate {:?}: no microprocess for its requests: {e}", pool.service.name),
            )
        })
    }

    fn work(self: &Arc<WorkerPool>) {
        struct LeaveOnDrop<'a>(&'a Arc<WorkerPool>, usize);
        impl Drop for LeaveOnDrop<'_> {
            fn drop(&mut self) {
                self.0.service.leave(self.1);
                // One that was cancelled in the middle of a request may have been the last.
                if std::thread::panicking() && !self.0.service.is_closed() {
                    let _ = WorkerPool::grow(self.0);
                }
            }
        }
        let worker = LeaveOnDrop(self, self.service.join());
        let (mut asked, mut answer) = (Vec::new(), Vec::new());
        loop {
            let (next, more) = self.service.receive(worker.1, true);
            let request = match next {
                Work::Handle(request) => request,
                Work::Surplus => return,
                // Perhaps by a thread that must not wait for that.
                Work::Closed => return thread::blocking(|| self.service.unpublish()),
            };
            if more {
                // Where it fails this one goes on alone; the next request tries again.
                let _ = WorkerPool::grow(self);
            }
            let since = self.service.begin_handler().then(intake::monotonic);
            self.handle(&request, &mut asked, &mut answer);
            if let Some(since) = since {
                self.service.record_duration(intake::monotonic().saturating_sub(since));
            }
            // Cancelled while it handled that: it is of no use for another.
            cancel::point();
        }
    }

    /// Streams are asked for where streams are served.
    fn check_kind(&self, request: &Request) -> Result<(), Error> {
        let asks = request.header.kind == RequestKind::Stream as u8;
        if asks == self.streams {
            return if asks { request.link.begin_stream(request.cell) } else { Ok(()) };
        }
        let (has, how) = if self.streams {
            ("streams", "Gate::stream")
        } else {
            ("single replies", "Gate::call")
        };
        Err(Error::new(
            ErrorKind::Invalid,
            format!("gate {:?} serves {has}: use {how}", self.service.name),
        ))
    }

    fn handle(&self, request: &Request, asked: &mut Vec<u8>, answer: &mut Vec<u8>) {
        let Request { link, cell, header, .. } = request;
        answer.clear();
        let outcome = catch_panic(|| {
            self.check_kind(request)?;
            let whole = read_request(request, asked)?;
            if header.kind == RequestKind::Send as u8 {
                // It has been taken: more is not promised.
                link.reply(*cell, &ReplyHeader::default(), &[])?;
            }
            let job = Job { request, context: Context { request } };
            let payload = whole.as_deref().unwrap_or(asked);
            call_chain::within(&header.chain, self.service.word, || {
                within_deadline(header.deadline, || (self.handler)(payload, &job, answer))
            })
        });
        let mut answers = header.kind != RequestKind::Send as u8;
        if self.streams && header.kind == RequestKind::Stream as u8 {
            if outcome.is_err() {
                // The cell is the caller's until it asks again.
                let _ = link.await_turn(*cell);
            }
            answers = link.end_stream(*cell);
        }
        if answers {
            send_reply(request, outcome, answer);
        }
    }
}

/// Copies a request out of its lane; a large one is a region.
fn read_request(request: &Request, asked: &mut Vec<u8>) -> Result<Option<Region>, Error> {
    let Request { link, header, .. } = request;
    if header.deadline != 0 && header.deadline <= intake::monotonic() {
        return Err(Error::new(
            ErrorKind::TimedOut,
            "the deadline had passed before the request was handled",
        ));
    }
    link.read_payload(request, asked)?;
    link.service.check_size("a request", asked.len())?;
    if header.flags & IN_REGION == 0 {
        return Ok(None);
    }
    let whole = link.endpoint.regions.get(u64::from(header.regions[0]), false)?;
    link.service.check_size("a request", whole.len())?;
    Ok(Some(whole))
}

/// Sends the reply, or what went wrong.
fn send_reply(request: &Request, outcome: Outcome, answer: &[u8]) {
    let Request { link, cell, header, .. } = request;
    let status = if header.kind == RequestKind::Stream as u8 { Status::End } else { Status::Done };
    let in_time = header.deadline == 0 || intake::monotonic() < header.deadline;
    let sent = outcome.and_then(|regions| {
        // What the handler waited for may have ended at the deadline, whatever it makes of that.
        if !in_time {
            return Err(Error::new(ErrorKind::TimedOut, "the handler ended after the deadline"));
        }
        link.service.check_size("a reply", answer.len())?;
        if answer.len() <= link.inline() {
            let regions =
                if regions.is_empty() { Default::default() } else { link.pass_regions(&regions)? };
            return link.reply(
                *cell,
                &ReplyHeader { status: status.number(), regions, ..ReplyHeader::default() },
                answer,
            );
        }
        let whole: Vec<Region> = std::iter::once(Region::copy_of(answer)?).chain(regions).collect();
        let regions = link.pass_regions(&whole)?;
        link.reply(
            *cell,
            &ReplyHeader { status: Status::InRegion.number(), regions, ..ReplyHeader::default() },
            &[],
        )
    });
    if let Err(error) = sent {
        link.reply_error(*cell, &error);
    }
}

fn within_deadline<R>(deadline: u64, f: impl FnOnce() -> R) -> R {
    if deadline == 0 { f() } else { thread::scope_until(of_clock(deadline), |_| f()) }
}

/// A panic is the caller's to hear of, and ends nothing here.
fn catch_panic(f: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        if payload.is::<cancel::Cancelled>() {
            return Err(Error::new(ErrorKind::Cancelled, "the handler was cancelled"));
        }
        let said = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let said = said
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "something".into());
        Err(Error::new(ErrorKind::Panicked, format!("the handler panicked: {said}")))
    })
}

/// A server that is a loop of one microprocess: see [`Gate::listen`](crate::Gate::listen).
#[derive(Debug)]
pub struct Server<Q, R> {
    serving: Serving,
    /// The member that has joined, and as which.
    me: Option<(u64, usize)>,
    _types: PhantomData<fn(Q) -> R>,
}

/// A request that a [`Server`] has received and not yet answered. Dropping it tells the caller that
/// it was dropped.
#[derive(Debug)]
pub struct Item<Q> {
    /// What is asked.
    pub request: Q,
    received: Option<ReceivedRequest>,
}

struct ReceivedRequest {
    request: Request,
    before: Chain,
}

impl std::fmt::Debug for ReceivedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceivedRequest").finish_non_exhaustive()
    }
}

impl<Q> Item<Q> {
    /// The caller, and how it called.
    ///
    /// # Panics
    /// Never: an item that is there has not been answered.
    #[must_use]
    pub fn context(&self) -> Context<'_> {
        let received = self.received.as_ref().expect("not answered yet");
        Context { request: &received.request }
    }
}

impl<Q> Drop for Item<Q> {
    fn drop(&mut self) {
        if let Some(received) = self.received.take() {
            call_chain::leave(received.before);
            received.request.link.reply_error(
                received.request.cell,
                &Error::new(ErrorKind::Cancelled, "the server dropped the request"),
            );
        }
    }
}

impl<Q: Serialize + DeserializeOwned, R: Serialize + DeserializeOwned> Server<Q, R> {
    pub(crate) fn open(name: &str, options: &Options) -> Result<Server<Q, R>, Error> {
        Ok(Server {
            serving: open(name, options, Some(type_hash::of::<Q, R>()), true)?,
            me: None,
            _types: PhantomData,
        })
    }

    /// The gate's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.serving.name()
    }

    /// Waits for the next request, the one of the highest priority. The caller runs at that
    /// priority until it receives again. Blocks the microprocess; a cancellation point.
    ///
    /// # Errors
    /// `Gone`: the gate was closed. A request that is not of type `Q` is refused here and not
    /// returned.
    pub fn receive(&mut self) -> Result<Item<Q>, Error> {
        let service = &self.serving.service;
        let current = park::current().id();
        let me = match self.me {
            Some((who, me)) if who == current => me,
            before => {
                if let Some((_, me)) = before {
                    service.leave(me);
                }
                let me = service.join();
                self.me = Some((current, me));
                me
            }
        };
        let mut asked = Vec::new();
        loop {
            let Work::Handle(request) = service.receive(me, false).0 else {
                thread::blocking(|| service.unpublish());
                return Err(service.closed_error());
            };
            service.begin_handler();
            let taken = read_request(&request, &mut asked)
                .and_then(|whole| Typed::<Q>::decode(whole.as_deref().unwrap_or(&asked)));
            match taken {
                Ok(value) => {
                    let before = call_chain::enter(&request.header.chain, service.word);
                    return Ok(Item {
                        request: value,
                        received: Some(ReceivedRequest { request, before }),
                    });
                }
                Err(error) => request.link.reply_error(request.cell, &error),
            }
        }
    }

    /// Answers a request. Does not block, but for a reply too large for the lane.
    ///
    /// # Errors
    /// `Gone`: the caller has ended. `Invalid`, `TooLarge`: the reply cannot be sent; the caller is
    /// told.
    pub fn reply(&mut self, mut item: Item<Q>, reply: &R) -> Result<(), Error> {
        let Some(ReceivedRequest { request, before }) = item.received.take() else { return Ok(()) };
        call_chain::leave(before);
        let mut answer = Vec::with_capacity(64);
        let encoded = Typed::<R>::encode(reply, &mut answer);
        let failed = encoded.clone();
        send_reply(&request, encoded.map(|()| Vec::new()), &answer);
        failed
    }

    /// Answers a request and waits for the next one, in one call (P0, section 4): the caller's core
    /// goes over to the waiter for the reply.
    ///
    /// # Errors
    /// As [`receive`](Server::receive). That the caller of the first has ended is no error.
    pub fn reply_and_receive(&mut self, item: Item<Q>, reply: &R) -> Result<Item<Q>, Error> {
        let _ = self.reply(item, reply);
        self.receive()
    }
}

impl<Q, R> Drop for Server<Q, R> {
    fn drop(&mut self) {
        if let Some((_, me)) = self.me.take() {
            self.serving.service.leave(me);
        }
    }
}
