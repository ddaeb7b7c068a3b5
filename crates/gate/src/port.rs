//! A served gate: what has come and waits, and the microprocesses that handle it.
//!
//! Requests wait by priority. A receiver takes the highest; a microprocess that has handled one
//! takes the next without a switch, if there is one. As long as something waits and a server is
//! free, exactly one is *on its way*, and calls the next one when it has arrived: a burst of
//! requests that are handled in a moment is handled by one of them, and one that blocks in its
//! handler holds no other up.
//!
//! A server runs at the priority of what it handles (P0, section 4). If none is free, the one that
//! handles the lowest inherits the highest that waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, Weak};

use kumihimo_policy::Priority;
use kumihimo_runtime::park::{self, Wait, Waiter};
use kumihimo_runtime::thread::Thread;
use kumihimo_runtime::{Locked, lock, thread};

use crate::entered::Shown;
use crate::hosted::Hosted;
use crate::lane::{CellNo, LEVELS, RequestHeader};
use crate::link::Peer;
use crate::options::Options;
use crate::porter;
use crate::wire::Kind;
use crate::{Error, ErrorKind, looks};
use kumihimo_arbiter::row::Caller;
use std::sync::Arc;

/// A request that is to be handled.
pub(crate) struct Request {
    pub(crate) link: Arc<Hosted>,
    pub(crate) cell: CellNo,
    pub(crate) serial: u32,
    pub(crate) header: RequestHeader,
}

/// Requests by priority, first come first served among equals.
struct Levels {
    some: u64,
    of: [VecDeque<Request>; LEVELS as usize],
}

impl Default for Levels {
    fn default() -> Levels {
        Levels { some: 0, of: std::array::from_fn(|_| VecDeque::new()) }
    }
}

impl Levels {
    fn push(&mut self, request: Request) {
        let level = request.header.priority & (LEVELS - 1);
        self.some |= 1 << level;
        self.of[usize::from(level)].push_back(request);
    }

    fn highest(&self) -> Option<u8> {
        63_u8.checked_sub(self.some.leading_zeros() as u8)
    }

    fn pop(&mut self) -> Option<Request> {
        let level = self.highest()?;
        let requests = &mut self.of[usize::from(level)];
        let first = requests.pop_front();
        if requests.is_empty() {
            self.some &= !(1 << level);
        }
        first
    }

    fn len(&self) -> usize {
        self.of.iter().map(VecDeque::len).sum()
    }

    /// Those that are not to be kept, taken out.
    fn remove(&mut self, is_gone: impl Fn(&Request) -> bool) -> Vec<Request> {
        let mut gone = Vec::new();
        for (level, requests) in self.of.iter_mut().enumerate() {
            let (out, kept) = requests.drain(..).partition::<VecDeque<_>, _>(&is_gone);
            gone.extend(out);
            *requests = kept;
            if requests.is_empty() {
                self.some &= !(1 << level);
            }
        }
        gone
    }
}

/// A microprocess that serves.
struct Server {
    who: Waiter,
    thread: Thread,
    /// The priority that it was given.
    level: u8,
    /// That was while it slept, or was about to.
    unsettled: bool,
    state: Doing,
}

enum Doing {
    /// It has nothing to handle, and sleeps or is about to.
    Waits,
    /// It was called, for a request of this priority.
    Comes(u8),
    /// It handles this one.
    Handles(Handled),
    /// It does something of its own.
    Away,
}

/// Which request somebody handles.
struct Handled {
    link: Arc<Hosted>,
    cell: CellNo,
    serial: u32,
    stream: bool,
    /// No caller waits for the answer any more, and the handler was not cancelled.
    unwanted: bool,
}

impl Handled {
    fn is_it(&self, link: &Arc<Hosted>, cell: CellNo, serial: u32) -> bool {
        // A stream asks again and again in its cell, each time with a higher serial. What was asked
        // before it was another's there.
        let since = serial.wrapping_sub(self.serial);
        let is_its = if self.stream { since < u32::MAX / 2 } else { since == 0 };
        Arc::ptr_eq(&self.link, link) && self.cell == cell && is_its
    }
}

#[derive(Default)]
struct State {
    incoming: Levels,
    servers: Vec<Option<Server>>,
    /// Those that wait; the last one has waited for the shortest.
    waiting: Vec<usize>,
    /// The waiter for the gate's end.
    keeper: Option<Waiter>,
    closed: bool,
}

/// What a server is to do next.
pub(crate) enum Next {
    /// Handle this.
    Handle(Request),
    /// End: the gate is closed.
    Closed,
    /// End: more wait than are needed.
    Surplus,
}

/// So many servers that have nothing to do are kept.
const KEPT: usize = 64;

pub(crate) struct Port {
    pub(crate) name: Box<str>,
    /// What a chain of calls names it by: no other gate of the machine has it at the same time.
    pub(crate) word: u32,
    /// Servers at most.
    limit: usize,
    /// A server that calls itself would wait for itself.
    pub(crate) alone: bool,
    /// That of the microprocess that began to serve, where handlers do not run at the priorities of
    /// their callers.
    own_level: Option<Priority>,
    /// Bytes of the largest request that is taken, and reply that is sent.
    pub(crate) most: usize,
    state: Mutex<State>,
    /// Handlers have been brief lately, so that what they have answered can be told all at once.
    brief: AtomicBool,
    /// Requests handled so far.
    pub(crate) handled: AtomicU64,
    links: Mutex<Links>,
    /// Callers find it as long as this is there.
    pub(crate) entry: Mutex<Option<porter::Serving>>,
}

#[derive(Default)]
struct Links {
    of: Vec<Weak<Hosted>>,
    closed: bool,
}

/// Of one gate.
const LINKS: usize = 4096;
/// Of one gate and one user other than the server's own: other users are to find room too.
const LINKS_OF_OTHERS: usize = 256;
/// Of all gates of this process.
static ALL_LINKS: AtomicUsize = AtomicUsize::new(0);

impl Port {
    pub(crate) fn new(name: &str, word: u32, alone: bool, options: &Options) -> Port {
        let limit = if alone { 1 } else { options.handlers };
        Port {
            name: name.into(),
            word,
            limit: limit.max(1),
            alone,
            own_level: (!options.inherit).then(|| thread::current().priority()),
            most: options.most,
            state: Mutex::default(),
            brief: AtomicBool::new(false),
            handled: AtomicU64::new(0),
            links: Mutex::default(),
            entry: Mutex::new(None),
        }
    }

    /// The priority of a server that has nothing to handle yet. It gets another one with what it
    /// handles, and that, whatever it is, is not to wait for it.
    pub(crate) fn first_level(&self) -> Priority {
        self.own_level.unwrap_or(Priority::HIGHEST)
    }

    /// The caller, a microprocess or a kernel thread of its own, serves from now on.
    pub(crate) fn join(&self) -> usize {
        let thread = thread::current();
        let server = Server {
            who: park::current(),
            level: thread.priority().get(),
            unsettled: false,
            thread,
            state: Doing::Away,
        };
        let mut state = lock(&self.state);
        match state.servers.iter().position(Option::is_none) {
            Some(at) => {
                state.servers[at] = Some(server);
                at
            }
            None => {
                state.servers.push(Some(server));
                state.servers.len() - 1
            }
        }
    }

    /// It serves no longer.
    pub(crate) fn leave(&self, me: usize) {
        let mut state = lock(&self.state);
        state.waiting.retain(|at| *at != me);
        let server = state.servers[me].take();
        // What it was on its way to, or would have taken next, is another's now.
        self.call_one(&mut state);
        drop(state);
        drop(server);
    }

    /// What came on a link, put where it waits. Under the lock of the port, so that no thread that
    /// goes to sleep misses it.
    pub(crate) fn take_in(&self, fill: impl FnOnce(&mut dyn FnMut(Request))) {
        let mut state = lock(&self.state);
        let incoming = &mut state.incoming;
        fill(&mut |request| incoming.push(request));
        self.call_one(&mut state);
    }

    /// Sees to it that somebody comes for what waits.
    fn call_one(&self, state: &mut State) {
        let Some(highest) = state.incoming.highest() else { return };
        let comes = state.servers.iter().flatten().filter_map(|server| match server.state {
            Doing::Comes(level) => Some(level),
            _ => None,
        });
        if comes.max() >= Some(highest) {
            return;
        }
        if let Some(at) = state.waiting.pop() {
            let server = state.servers[at].as_mut().expect("a waiting one serves");
            server.state = Doing::Comes(highest);
            if self.own_level.is_none() && server.level != highest {
                server.level = highest;
                server.unsettled = true;
                server.who.set_priority_asleep(Priority::new(highest).unwrap_or_default());
            }
            server.who.wake();
            return;
        }
        if state.servers.iter().flatten().count() < self.limit {
            // One more is on its way: the thread that took the last request saw that none was free.
            return;
        }
        let lowest = state
            .servers
            .iter_mut()
            .flatten()
            .filter(|server| !matches!(server.state, Doing::Away));
        if let Some(server) =
            lowest.min_by_key(|server| server.level).filter(|server| server.level < highest)
        {
            self.give_level(server, highest);
        }
    }

    fn give_level(&self, server: &mut Server, level: u8) {
        if self.own_level.is_none() && (server.level != level || server.unsettled) {
            server.level = level;
            server.unsettled = false;
            server.who.set_priority(Priority::new(level).unwrap_or_default());
        }
    }

    /// The next request for server `me`, which may wait for one. Ends what it handled before.
    /// `pool`: it is one of many, and may be told to end. The second value: no other server is
    /// free, and one more may be.
    pub(crate) fn receive(&self, me: usize, pool: bool) -> (Next, bool) {
        let mut state = self.state(me, Doing::Away);
        loop {
            // A fork's child has copies of what waits here for its parent.
            if state.closed || porter::is_child() {
                return (Next::Closed, false);
            }
            if kumihimo_runtime::cancel::would_unwind() {
                // Perhaps since its last request was answered: the next one is not to suffer for
                // it. From here on nobody cancels it on account of one.
                drop(state);
                kumihimo_runtime::cancel::point();
                state = lock(&self.state);
            }
            if let Some(request) = state.incoming.pop() {
                let (link, cell, serial) = (request.link.clone(), request.cell, request.serial);
                let level = request.header.priority;
                let stream = request.header.kind == Kind::Stream as u8;
                let state = &mut *state;
                let server = state.servers[me].as_mut().expect("it serves");
                server.state =
                    Doing::Handles(Handled { link, cell, serial, stream, unwanted: false });
                self.give_level(server, level);
                self.call_one(state);
                let living = state.servers.iter().flatten().count();
                return (Next::Handle(request), state.waiting.is_empty() && living < self.limit);
            }
            if pool && state.waiting.len() >= KEPT {
                return (Next::Surplus, false);
            }
            if !state.waiting.contains(&me) {
                state.waiting.push(me);
                state.servers[me].as_mut().expect("it serves").state = Doing::Waits;
            }
            drop(state);
            park::park(Wait::Gate(0), None);
            kumihimo_runtime::cancel::point();
            state = lock(&self.state);
            let server = state.servers[me].as_mut().expect("it serves");
            if matches!(server.state, Doing::Comes(_)) {
                server.state = Doing::Away;
            }
        }
    }

    fn state(&self, me: usize, doing: Doing) -> Locked<'_, State> {
        let mut state = lock(&self.state);
        let before =
            state.servers[me].as_mut().map(|server| std::mem::replace(&mut server.state, doing));
        if let Some(Doing::Handles(handled)) = before {
            // Perhaps the last of a link that is gone, which is not to end under the lock.
            drop(state);
            drop(handled);
            state = lock(&self.state);
        }
        state
    }

    /// No caller waits for the answer to this request any more: the pool's microprocess that
    /// handles it is cancelled, a loop of one's own can see it; a waiting one is given back, to be
    /// answered.
    pub(crate) fn cancel(&self, link: &Arc<Hosted>, cell: CellNo, serial: u32) -> Option<Request> {
        let mut state = lock(&self.state);
        for server in state.servers.iter_mut().flatten() {
            if let Doing::Handles(handled) = &mut server.state
                && handled.is_it(link, cell, serial)
            {
                handled.unwanted = true;
                if !self.alone {
                    // Under the lock: it cannot have gone on to another request.
                    server.thread.cancel();
                }
                return None;
            }
        }
        let is_it = |request: &Request| {
            Arc::ptr_eq(&request.link, link) && request.cell == cell && request.serial == serial
        };
        state.incoming.remove(is_it).pop()
    }

    /// Whether nobody waits any more for the answer to the request that is handled in this cell.
    pub(crate) fn is_unwanted(&self, link: &Hosted, cell: CellNo) -> bool {
        lock(&self.state).servers.iter().flatten().any(|server| match &server.state {
            Doing::Handles(handled) => {
                handled.unwanted && std::ptr::eq(&*handled.link, link) && handled.cell == cell
            }
            _ => false,
        })
    }

    /// Whether another client may come.
    ///
    /// # Errors
    /// `Exhausted`, `Gone`.
    pub(crate) fn has_room(&self, peer: Peer) -> Result<(), Error> {
        let links = lock(&self.links);
        if links.closed {
            return Err(self.closed());
        }
        let full = |what: &str| {
            Err(Error::new(ErrorKind::Exhausted, format!("gate {:?}: {what}", self.name)))
        };
        if links.of.len() >= LINKS {
            return full(&format!("{LINKS} clients are connected, which is the most"));
        }
        let others = || {
            links
                .of
                .iter()
                .filter_map(Weak::upgrade)
                .filter(|link| link.peer.uid == peer.uid)
                .count()
        };
        if peer.uid != rustix::process::geteuid().as_raw() && others() >= LINKS_OF_OTHERS {
            return full(&format!(
                "{LINKS_OF_OTHERS} clients of user {} are connected, which is the most",
                peer.uid
            ));
        }
        // Each takes a descriptor, and the application needs some too.
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        if descriptors.is_some_and(|most| ALL_LINKS.load(Ordering::Relaxed) as u64 >= most / 2) {
            return full(
                "clients of this process have half of its descriptors: raise the limit (ulimit -n)",
            );
        }
        Ok(())
    }

    /// A client has come. False: the gate is closed.
    pub(crate) fn linked(&self, link: &Arc<Hosted>) -> bool {
        let mut links = lock(&self.links);
        links.of.push(Arc::downgrade(link));
        ALL_LINKS.fetch_add(1, Ordering::Relaxed);
        !links.closed
    }

    /// A link is gone: what waits for it is dropped, what is being handled for it cancelled.
    pub(crate) fn forget(&self, link: &Arc<Hosted>) {
        let gone = {
            let mut state = lock(&self.state);
            for server in state.servers.iter().flatten() {
                if matches!(&server.state, Doing::Handles(of) if Arc::ptr_eq(&of.link, link))
                    && !self.alone
                {
                    server.thread.cancel();
                }
            }
            state.incoming.remove(|request| Arc::ptr_eq(&request.link, link))
        };
        drop(gone);
        let mut links = lock(&self.links);
        if let Some(at) =
            links.of.iter().position(|one| std::ptr::eq(one.as_ptr(), Arc::as_ptr(link)))
        {
            links.of.swap_remove(at);
            ALL_LINKS.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether so many bytes are sent or taken here.
    ///
    /// # Errors
    /// `TooLarge`.
    pub(crate) fn takes(&self, what: &str, len: usize) -> Result<(), Error> {
        if len <= self.most {
            return Ok(());
        }
        let text = format!(
            "{what} of {len} bytes, and {} are the most that the server takes: Options::largest",
            self.most
        );
        Err(Error::new(ErrorKind::TooLarge, text))
    }

    /// What callers of a closed gate are told.
    pub(crate) fn closed(&self) -> Error {
        Error::new(ErrorKind::Gone, format!("gate {:?} was closed by its server", self.name))
    }

    /// Nobody finds it any more. Blocks the kernel thread: it removes a name.
    pub(crate) fn hide(&self) {
        let entry = lock(&self.entry).take();
        drop(entry);
    }

    /// No more requests: servers end when they next receive, clients are told that it is gone.
    pub(crate) fn close(&self) {
        let (waiting, gone) = {
            let mut state = lock(&self.state);
            state.closed = true;
            let servers = state.servers.iter().flatten().map(|server| server.who.clone());
            let waiting: Vec<Waiter> = servers.chain(state.keeper.clone()).collect();
            (waiting, state.incoming.remove(|_| true))
        };
        waiting.iter().for_each(Waiter::wake);
        drop(gone);
        let links: Vec<_> = {
            let mut links = lock(&self.links);
            links.closed = true;
            links.of.iter().filter_map(Weak::upgrade).collect()
        };
        links.iter().for_each(|link| link.cut(&self.closed()));
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// Whether it is closed; if not, `keeper` is woken when it is.
    pub(crate) fn is_closed_or_tells(&self, keeper: &Waiter) -> bool {
        let mut state = lock(&self.state);
        if state.keeper.is_none() {
            state.keeper = Some(keeper.clone());
        }
        state.closed
    }

    /// A handler is about to begin. What was answered is told first, unless handlers are so brief
    /// that it can wait for this one.
    pub(crate) fn begins(&self) -> bool {
        let n = self.handled.fetch_add(1, Ordering::Relaxed);
        if !self.brief.load(Ordering::Relaxed) {
            looks::tell(
                kumihimo_runtime::remote_wake::core().map_or(Caller::Anywhere, Caller::GoesOn),
            );
        }
        n.is_multiple_of(SAMPLED)
    }

    /// A handler that was timed took so long.
    pub(crate) fn took(&self, ns: u64) {
        self.brief.store(ns < BRIEF, Ordering::Relaxed);
    }
}

/// Every so many handlers one is timed.
const SAMPLED: u64 = 16;
/// Nanoseconds.
const BRIEF: u64 = 5_000;

impl Shown for Port {
    fn state(&self) -> String {
        // Where somebody has the lock, there is nothing to be said of what it guards.
        let links =
            self.links.try_lock().map_or("some".to_owned(), |links| links.of.len().to_string());
        let wait = self
            .state
            .try_lock()
            .map_or("some".to_owned(), |state| state.incoming.len().to_string());
        format!("{links} links, {} handled, {wait} wait", self.handled.load(Ordering::Relaxed))
    }

    fn cancel(&self) {
        self.close();
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("name", &self.name).finish_non_exhaustive()
    }
}
