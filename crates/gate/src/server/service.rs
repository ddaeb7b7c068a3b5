//! A served gate: its queued requests, and the workers that handle them.
//!
//! A worker is a microprocess. It takes the queued request of the highest priority, and takes the
//! next one without a switch when it has handled that. As long as requests are queued and a worker
//! is idle, exactly one worker is woken for them, and wakes the next one when it has taken its
//! request. So a burst of brief requests is handled by one worker, and a handler that blocks delays
//! no other request.
//!
//! A worker runs at the priority of its request (P0, section 4). If none is idle, the worker of the
//! lowest priority inherits the highest priority in the queue.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use kumihimo_arbiter::row::Caller;
use kumihimo_policy::Priority;
use kumihimo_runtime::park::{self, Wait, Waiter};
use kumihimo_runtime::{Locked, lock, thread};

use crate::error::{Error, ErrorKind};
use crate::lane::CellNo;
use crate::link::link_poller::Published;
use crate::link::{fork, link_index};
use crate::metrics;
use crate::options::Options;
use crate::quota::Quotas;
use crate::resource_entry::Inspect;
use crate::server::handler_share::{HandlerShare, HasShare, HeldRequests, Share};
use crate::server::request_queue::{Request, RequestQueue};
use crate::server::worker::{CurrentRequest, Worker, WorkerState, Workers};
use crate::wire::message::RequestKind;
use crate::wire::peer::Peer;

/// The queue and the workers of a service.
struct ServiceState<L> {
    incoming: RequestQueue<L>,
    /// Requests whose link or user has its share of the handlers.
    held: HeldRequests<L>,
    workers: Workers<L>,
    /// Woken when the gate closes.
    closed_waiter: Option<Waiter>,
    closed: bool,
}

impl<L> Default for ServiceState<L> {
    fn default() -> ServiceState<L> {
        ServiceState {
            incoming: RequestQueue::default(),
            held: HeldRequests::default(),
            workers: Workers::default(),
            closed_waiter: None,
            closed: false,
        }
    }
}

impl<L: HasShare> ServiceState<L> {
    /// Ends the share of a request that is no longer handled.
    fn finish(&mut self, link: &Arc<L>) {
        link.share().finish();
        self.release(link);
    }

    /// Returns held requests to the queue for which there is room now.
    fn release(&mut self, link: &Arc<L>) {
        self.held.release(link, &mut self.incoming);
    }
}

/// The next step of a worker.
pub(crate) enum Work<L> {
    /// Handle this.
    Handle(Request<L>),
    /// End: the gate is closed.
    Closed,
    /// End: more wait than are needed.
    Surplus,
}

/// Idle workers that a pool keeps.
const IDLE_KEPT: usize = 64;

/// The link to a client, as its service uses it.
pub(crate) trait ServedClient: HasShare + Send + Sync + 'static {
    /// The process at its other end.
    fn peer(&self) -> Peer;
    /// Ends the link.
    fn close(&self, why: &Error);
}

/// A served gate, whose links to clients are of type `L`.
pub(crate) struct Service<L> {
    pub(crate) name: Box<str>,
    /// The gate's number in call chains, unique on the machine while the gate lives.
    pub(crate) word: u32,
    /// Most workers.
    limit: usize,
    /// One worker serves the gate: a call to the gate from its own handler would never end.
    pub(crate) single: bool,
    /// The priority of all handlers, where they do not inherit that of their callers.
    fixed_priority: Option<Priority>,
    /// Bytes of the largest request that is taken, and reply that is sent.
    pub(crate) most: usize,
    state: Mutex<ServiceState<L>>,
    /// Recent handlers were brief, so that their replies can be announced together.
    handlers_are_brief: AtomicBool,
    /// Requests taken by workers so far. Written under the lock of `state`.
    pub(crate) handled: AtomicU64,
    links: Mutex<LinkList<L>>,
    pub(crate) quotas: Quotas,
    /// Links that were cut, and why the last one was.
    cuts: AtomicU64,
    last_cut: Mutex<Option<String>>,
    /// Makes the gate findable while it exists.
    pub(crate) published: Mutex<Option<Published>>,
}

/// The links of the gate's clients.
struct LinkList<L> {
    of: Vec<Weak<L>>,
    /// Shares of the users with links.
    users: HashMap<u32, Weak<Share>>,
    closed: bool,
}

impl<L> Default for LinkList<L> {
    fn default() -> LinkList<L> {
        LinkList { of: Vec::new(), users: HashMap::new(), closed: false }
    }
}

/// Limit for one gate.
const MAX_LINKS: usize = 4096;
/// Limit for one gate and one user other than the server's own, so that other users find room too.
const MAX_LINKS_OF_OTHERS: usize = 256;

impl<L: ServedClient> Service<L> {
    pub(crate) fn new(name: &str, word: u32, single: bool, options: &Options) -> Service<L> {
        let limit = if single { 1 } else { options.handlers };
        Service {
            name: name.into(),
            word,
            limit: limit.max(1),
            single,
            fixed_priority: (!options.inherit).then(|| thread::current().priority()),
            most: options.most,
            state: Mutex::default(),
            handlers_are_brief: AtomicBool::new(false),
            handled: AtomicU64::new(0),
            links: Mutex::default(),
            quotas: options.quotas,
            cuts: AtomicU64::new(0),
            last_cut: Mutex::new(None),
            published: Mutex::new(None),
        }
    }

    /// The priority of a worker that has no request yet. It is replaced by that of its request,
    /// which must not wait for the worker to be scheduled.
    pub(crate) fn initial_priority(&self) -> Priority {
        self.fixed_priority.unwrap_or(Priority::HIGHEST)
    }

    /// Adds the caller, a microprocess or a kernel thread, as a worker. Returns its index.
    pub(crate) fn join(&self) -> usize {
        let thread = thread::current();
        let worker = Worker {
            waiter: park::current(),
            level: thread.priority().get(),
            priority_set_asleep: false,
            thread,
            state: WorkerState::Away,
        };
        lock(&self.state).workers.add(worker)
    }

    /// Removes a worker.
    pub(crate) fn leave(&self, me: usize) {
        let mut state = lock(&self.state);
        let worker = state.workers.remove(me);
        if let Some(Worker { state: WorkerState::Handling(handled), .. }) = &worker {
            state.finish(&handled.link);
        }
        // What it was on its way to, or would have taken next, is another's now.
        self.wake_worker(&mut state);
        drop(state);
        drop(worker);
    }

    /// Queues what has come on a link. `fill` runs under the lock of the service, so that no worker
    /// that goes to sleep misses a request.
    pub(crate) fn enqueue(&self, fill: impl FnOnce(&mut dyn FnMut(Request<L>))) {
        let mut state = lock(&self.state);
        let incoming = &mut state.incoming;
        fill(&mut |request| incoming.push(request));
        self.wake_worker(&mut state);
    }

    /// Wakes an idle worker for the highest queued request. Where none is idle, the worker of the
    /// lowest priority inherits that of the request.
    fn wake_worker(&self, state: &mut ServiceState<L>) {
        let Some(highest) = state.incoming.highest() else { return };
        if state.workers.highest_called() >= Some(highest) {
            return;
        }
        if let Some(worker) = state.workers.call_idle(highest) {
            if self.fixed_priority.is_none() && worker.level != highest {
                worker.level = highest;
                worker.priority_set_asleep = true;
                worker.waiter.set_priority_asleep(Priority::new(highest).unwrap_or_default());
            }
            worker.waiter.wake();
            return;
        }
        if state.workers.len() < self.limit {
            // One more is on its way: the thread that took the last request saw that none was free.
            return;
        }
        let lowest =
            state.workers.iter_mut().filter(|worker| !matches!(worker.state, WorkerState::Away));
        if let Some(worker) =
            lowest.min_by_key(|worker| worker.level).filter(|worker| worker.level < highest)
        {
            self.set_worker_priority(worker, highest);
        }
    }

    fn set_worker_priority(&self, worker: &mut Worker<L>, level: u8) {
        if self.fixed_priority.is_none() && (worker.level != level || worker.priority_set_asleep) {
            worker.level = level;
            worker.priority_set_asleep = false;
            worker.waiter.set_priority(Priority::new(level).unwrap_or_default());
        }
    }

    /// The next request for worker `me`; blocks the microprocess until there is one. Ends the
    /// request that it handled before. `pool`: the worker may be told to end as surplus. The second
    /// value is true where no other worker is free and the limit allows one more.
    pub(crate) fn receive(&self, me: usize, pool: bool) -> (Work<L>, bool) {
        let mut state = self.state(me, WorkerState::Away);
        loop {
            // A fork's child has copies of what waits here for its parent.
            if state.closed || fork::in_forked_child() {
                return (Work::Closed, false);
            }
            if kumihimo_runtime::cancel::would_unwind() {
                // It may have been cancelled after its last request was answered, which must not
                // affect the next one. From here on no request cancels it.
                drop(state);
                kumihimo_runtime::cancel::point();
                state = lock(&self.state);
            }
            let ServiceState { incoming, held, .. } = &mut *state;
            let next = loop {
                let Some(request) = incoming.pop() else { break None };
                if let Some(request) = held.begin(request, incoming) {
                    break Some(request);
                }
            };
            if let Some(request) = next {
                let (link, cell, serial) = (request.link.clone(), request.cell, request.serial);
                let level = request.header.priority;
                let stream = request.header.kind == RequestKind::Stream as u8;
                let state = &mut *state;
                // No atomic addition: the lock is held.
                self.handled.store(self.handled.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                let current = CurrentRequest { link, cell, serial, stream, abandoned: false };
                state.workers.set_busy(me, WorkerState::Handling(current));
                self.set_worker_priority(state.workers.get_mut(me), level);
                self.wake_worker(state);
                let more = state.workers.idle() == 0 && state.workers.len() < self.limit;
                return (Work::Handle(request), more);
            }
            if pool && state.workers.idle() >= IDLE_KEPT {
                return (Work::Surplus, false);
            }
            state.workers.set_idle(me);
            drop(state);
            park::park(Wait::Gate(0), None);
            kumihimo_runtime::cancel::point();
            state = lock(&self.state);
            if matches!(state.workers.get_mut(me).state, WorkerState::Called(_)) {
                state.workers.set_busy(me, WorkerState::Away);
            }
        }
    }

    fn state(&self, me: usize, doing: WorkerState<L>) -> Locked<'_, ServiceState<L>> {
        let mut state = lock(&self.state);
        if let WorkerState::Handling(handled) = state.workers.set_busy(me, doing) {
            state.finish(&handled.link);
            // Perhaps the last of a link that is gone, which is not to end under the lock.
            drop(state);
            drop(handled);
            state = lock(&self.state);
        }
        state
    }

    /// Cancels a request that its caller has abandoned. A pool's worker that handles it is
    /// cancelled; a loop sees it by `is_abandoned`; a queued request is returned, to be answered.
    pub(crate) fn cancel(&self, link: &Arc<L>, cell: CellNo, serial: u32) -> Option<Request<L>> {
        let mut state = lock(&self.state);
        for worker in state.workers.iter_mut() {
            if let WorkerState::Handling(handled) = &mut worker.state
                && handled.is_it(link, cell, serial)
            {
                handled.abandoned = true;
                if !self.single {
                    // Under the lock: it cannot have gone on to another request.
                    worker.thread.cancel();
                }
                return None;
            }
        }
        let is_it = |request: &Request<L>| {
            Arc::ptr_eq(&request.link, link) && request.cell == cell && request.serial == serial
        };
        let mut gone = state.incoming.remove(is_it);
        gone.extend(state.held.remove(is_it));
        if !gone.is_empty() {
            state.release(link);
            self.wake_worker(&mut state);
        }
        gone.pop()
    }

    /// Whether the request that is handled in this cell was abandoned by its caller.
    pub(crate) fn is_abandoned(&self, link: &L, cell: CellNo) -> bool {
        lock(&self.state).workers.iter().any(|worker| match &worker.state {
            WorkerState::Handling(handled) => {
                handled.abandoned && std::ptr::eq(&*handled.link, link) && handled.cell == cell
            }
            _ => false,
        })
    }

    /// Checks the limits on clients before another one is admitted.
    ///
    /// # Errors
    /// `Exhausted`, `Gone`.
    pub(crate) fn check_room(&self, peer: Peer) -> Result<(), Error> {
        let links = lock(&self.links);
        if links.closed {
            return Err(self.closed_error());
        }
        let full = |what: &str| {
            Err(Error::new(ErrorKind::Exhausted, format!("gate {:?}: {what}", self.name)))
        };
        if links.of.len() >= MAX_LINKS {
            return full(&format!("{MAX_LINKS} clients are connected, which is the most"));
        }
        let others = || {
            links
                .of
                .iter()
                .filter_map(Weak::upgrade)
                .filter(|link| link.peer().uid == peer.uid)
                .count()
        };
        if peer.uid != rustix::process::geteuid().as_raw() && others() >= MAX_LINKS_OF_OTHERS {
            return full(&format!(
                "{MAX_LINKS_OF_OTHERS} clients of user {} are connected, which is the most",
                peer.uid
            ));
        }
        Ok(())
    }

    /// The shares of the handlers that a new link of user `uid` has.
    pub(crate) fn handler_share(&self, uid: u32) -> HandlerShare {
        // One worker handles requests one after the other.
        let (link, of_user) = if self.single {
            (usize::MAX, usize::MAX)
        } else {
            self.quotas.handlers(uid, self.limit)
        };
        let mut links = lock(&self.links);
        let known = links.users.get(&uid).and_then(Weak::upgrade);
        let user = known.unwrap_or_else(|| {
            links.users.retain(|_, share| share.strong_count() > 0);
            let user = Arc::new(Share::new(of_user));
            links.users.insert(uid, Arc::downgrade(&user));
            user
        });
        HandlerShare { link: Share::new(link), user, uid }
    }

    /// Records why the link of a client is cut.
    pub(crate) fn record_cut(&self, peer: Peer, why: &Error) {
        metrics::count_cut(why.kind());
        self.cuts.fetch_add(1, Ordering::Relaxed);
        *lock(&self.last_cut) = Some(format!("{peer}: {why}"));
    }

    /// Adds a client's link. False: the gate is closed.
    pub(crate) fn add_link(&self, link: &Arc<L>) -> bool {
        let mut links = lock(&self.links);
        links.of.push(Arc::downgrade(link));
        !links.closed
    }

    /// Removes a link: drops its queued requests and cancels its handlers.
    pub(crate) fn remove_link(&self, link: &Arc<L>) {
        let gone = {
            let mut state = lock(&self.state);
            for worker in state.workers.iter() {
                if matches!(&worker.state, WorkerState::Handling(of) if Arc::ptr_eq(&of.link, link))
                    && !self.single
                {
                    worker.thread.cancel();
                }
            }
            let is_its = |request: &Request<L>| Arc::ptr_eq(&request.link, link);
            let mut gone = state.incoming.remove(is_its);
            gone.extend(state.held.remove(is_its));
            state.release(link);
            self.wake_worker(&mut state);
            gone
        };
        drop(gone);
        let mut links = lock(&self.links);
        if let Some(at) =
            links.of.iter().position(|one| std::ptr::eq(one.as_ptr(), Arc::as_ptr(link)))
        {
            links.of.swap_remove(at);
        }
    }

    /// Checks the size of a request or reply.
    ///
    /// # Errors
    /// `TooLarge`.
    pub(crate) fn check_size(&self, what: &str, len: usize) -> Result<(), Error> {
        if len <= self.most {
            return Ok(());
        }
        let text = format!(
            "{what} of {len} bytes, and {} are the most that the server takes: Options::largest",
            self.most
        );
        Err(Error::new(ErrorKind::TooLarge, text))
    }

    /// The error for callers of a closed gate.
    pub(crate) fn closed_error(&self) -> Error {
        Error::new(ErrorKind::Gone, format!("gate {:?} was closed by its server", self.name))
    }

    /// Removes the gate's name. Blocks the kernel thread.
    pub(crate) fn unpublish(&self) {
        let published = lock(&self.published).take();
        drop(published);
    }

    /// Takes no more requests: workers end when they next receive, and clients get `Gone`.
    pub(crate) fn close(&self) {
        let (waiting, gone) = {
            let mut state = lock(&self.state);
            state.closed = true;
            let workers = state.workers.iter().map(|worker| worker.waiter.clone());
            let waiting: Vec<Waiter> = workers.chain(state.closed_waiter.clone()).collect();
            let mut gone = state.incoming.remove(|_| true);
            gone.extend(state.held.remove(|_| true));
            (waiting, gone)
        };
        waiting.iter().for_each(Waiter::wake);
        drop(gone);
        let links: Vec<_> = {
            let mut links = lock(&self.links);
            links.closed = true;
            links.of.iter().filter_map(Weak::upgrade).collect()
        };
        links.iter().for_each(|link| link.close(&self.closed_error()));
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// Returns whether the service is closed. If it is not, `closed_waiter` is woken when it
    /// closes.
    pub(crate) fn notify_when_closed(&self, closed_waiter: &Waiter) -> bool {
        let mut state = lock(&self.state);
        if state.closed_waiter.is_none() {
            state.closed_waiter = Some(closed_waiter.clone());
        }
        state.closed
    }

    /// Announces pending replies before a handler begins, unless recent handlers were brief.
    /// Returns whether this handler is to be timed.
    pub(crate) fn begin_handler(&self) -> bool {
        if !self.handlers_are_brief.load(Ordering::Relaxed) {
            link_index::flush(
                kumihimo_runtime::remote_wake::core().map_or(Caller::Anywhere, Caller::Continues),
            );
        }
        self.handled.load(Ordering::Relaxed).is_multiple_of(SAMPLED)
    }

    /// Records how long a timed handler took.
    pub(crate) fn record_duration(&self, ns: u64) {
        self.handlers_are_brief.store(ns < BRIEF, Ordering::Relaxed);
    }
}

/// One handler of so many is timed.
const SAMPLED: u64 = 16;
/// A handler that takes less is brief, in nanoseconds.
const BRIEF: u64 = 5_000;

impl<L: ServedClient> Inspect for Service<L> {
    fn state(&self) -> String {
        // A lock that another thread holds is not waited for.
        let links =
            self.links.try_lock().map_or("some".to_owned(), |links| links.of.len().to_string());
        let wait = self.state.try_lock().map_or("some".to_owned(), |state| {
            (state.incoming.len() + state.held.len()).to_string()
        });
        let mut text =
            format!("{links} links, {} handled, {wait} wait", self.handled.load(Ordering::Relaxed));
        let cuts = self.cuts.load(Ordering::Relaxed);
        if cuts > 0
            && let Ok(last) = self.last_cut.try_lock()
            && let Some(last) = &*last
        {
            text += &format!(", {cuts} cut, the last of {last}");
        }
        text
    }

    fn cancel(&self) {
        self.close();
    }
}

impl<L> std::fmt::Debug for Service<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("name", &self.name).finish_non_exhaustive()
    }
}
