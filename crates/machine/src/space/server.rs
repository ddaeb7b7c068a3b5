//! The loop of the control kernel thread, which never blocks on a client.
//!
//! A client without permission receives an error, and its connection is closed. No other client can
//! exhaust the thread or the memory. Each connection has one request answered in turn, and a client
//! that does not read its answer stalls only its own connection. The connection that is idle for
//! the longest time makes room for a new one.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::connection::{Connection, ExactSession, Incoming};
use super::core_listener::{CoreListener, PassedDescriptor};
use super::shared::{Limits, Shared};
use super::streams::{Stream, Streams};
use crate::directory::CoreNotifier;
use crate::handler::{ControlHandler, Metric, Refused};
use crate::protocol::{self, ActionResult, Greeting, PROTOCOL, Request, Text, put_end, put_error};
use crate::socket::disposal;
use crate::socket::peer_socket::PeerSocket;
use crate::top::TopQuery;

/// Number of poll entries before those of the connections: stop, listener and core listener.
const OTHERS: usize = 3;
/// Number of connections accepted between two rounds of answers.
const ACCEPT_BATCH: usize = 16;
/// Amount of unsent output above which no further list is started. At most this amount and one list
/// are in memory.
const MAX_UNSENT: usize = 64 << 20;
/// Minimum time that an accepted connection has for its first request.
const GRACE: Duration = Duration::from_millis(50);
/// Age at which a connection that makes requests all the time makes room for others.
const LONG_LIVED: Duration = Duration::from_secs(1);
/// Time until the next attempt to accept, if no descriptor is available.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Server {
    shared: Arc<Shared>,
    listener: PeerSocket,
    /// None if no descriptor was available; this address space then receives no notifications.
    core_listener: Option<CoreListener>,
    answer: Weak<dyn ControlHandler>,
    limits: Limits,
    connections: Vec<Connection>,
    /// No connection is accepted before this time.
    closed_until: Option<Instant>,
    /// Answers that take long.
    streams: Streams,
}

/// Result of a request.
enum RequestOutcome {
    Answered,
    /// The connection moves to a kernel thread of its own.
    Streamed(Stream),
}

impl Server {
    pub(crate) fn new(
        shared: Arc<Shared>,
        listener: PeerSocket,
        answer: Weak<dyn ControlHandler>,
        limits: Limits,
    ) -> Server {
        let limits = Limits { connections: limits.connections.clamp(1, 64), ..limits };
        let core_listener = CoreListener::open(&shared.number).ok();
        if let Ok(core_notifier) = CoreNotifier::open(&shared.number.directory) {
            let _ = shared.number.core_notifier.set(core_notifier);
        }
        Server {
            shared,
            listener,
            core_listener,
            answer,
            limits,
            connections: Vec::new(),
            closed_until: None,
            streams: Streams::default(),
        }
    }

    /// Serves requests until the thread is told to stop.
    pub(crate) fn run(mut self) {
        let mut ready = Vec::new();
        self.listen();
        while self.wait(&mut ready) {
            let now = Instant::now();
            let lets_in = !ready[1].is_empty();
            if !ready[2].is_empty() {
                self.receive_notification();
            }
            // In reverse order, because a removed connection is replaced by the last one, which had
            // its turn.
            for (place, ready) in ready[OTHERS..].iter().enumerate().rev() {
                let connection = &mut self.connections[place];
                if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
                    && connection.unsent() == 0
                {
                    connection.receive();
                }
                if !ready.is_empty() || connection.has_line() {
                    self.turn(place, now);
                }
            }
            self.connections.retain(|one| {
                !one.is_over() && now.saturating_duration_since(one.since) < self.limits.patience
            });
            if lets_in {
                self.accept_clients(now);
            }
        }
        self.streams.join();
    }

    /// Waits for an event. Sets the events of stop, listener, core listener and each connection in
    /// `ready`. Returns false when the thread must stop.
    fn wait(&mut self, ready: &mut Vec<PollFlags>) -> bool {
        let now = Instant::now();
        self.closed_until = self.closed_until.filter(|until| *until > now);
        let mut deadline = self.closed_until;
        let mut fds = vec![
            PollFd::new(&self.shared.stop, PollFlags::IN),
            PollFd::new(
                &self.listener,
                if deadline.is_some() { PollFlags::empty() } else { PollFlags::IN },
            ),
            // Without a core listener, the entry polls another descriptor for no events.
            self.core_listener
                .as_ref()
                .map_or(PollFd::new(&self.listener, PollFlags::empty()), |core_listener| {
                    PollFd::new(core_listener, PollFlags::IN)
                }),
        ];
        for connection in &self.connections {
            fds.push(PollFd::from_borrowed_fd(connection.as_fd(), connection.waits_for()));
            let at_once = connection.unsent() == 0 && connection.has_line();
            let its = if at_once { now } else { connection.since + self.limits.patience };
            deadline = Some(deadline.map_or(its, |deadline| deadline.min(its)));
        }
        let left = deadline
            .and_then(|deadline| Timespec::try_from(deadline.saturating_duration_since(now)).ok());
        let polled = poll(&mut fds, left.as_ref());
        ready.clear();
        ready.extend(
            fds.iter().map(|fd| if polled.is_ok() { fd.revents() } else { PollFlags::empty() }),
        );
        if polled.is_err_and(|e| e != Errno::INTR) {
            // Memory is short, or the limit on descriptors was lowered below the number of entries;
            // poll(2).
            self.connections.clear();
            ready.truncate(OTHERS);
            std::thread::sleep(PAUSE);
        }
        ready[0].is_empty()
    }

    fn listen(&self) {
        if let (Some(_), Some(answer)) = (&self.core_listener, self.answer.upgrade()) {
            answer.on_listening(self.shared.location());
        }
    }

    fn receive_notification(&mut self) {
        let Some(listener) = &self.core_listener else { return };
        match listener.take_notification() {
            Ok(Some(core)) => {
                if let Some(answer) = self.answer.upgrade() {
                    answer.on_notification(core);
                }
            }
            Ok(None) => {}
            // It goes on without notifications, as where no descriptor was available.
            Err(PassedDescriptor) => self.core_listener = None,
        }
    }

    /// Serves one request of one connection.
    fn turn(&mut self, place: usize, now: Instant) {
        let unsent: usize = self.connections.iter().map(Connection::unsent).sum();
        let open = self.connections.len();
        let connection = &mut self.connections[place];
        let had = connection.unsent() > 0;
        connection.flush();
        if connection.unsent() > 0 {
            return;
        }
        if had {
            connection.since = now;
        }
        if connection.closing {
            return;
        }
        let line = match connection.request() {
            Incoming::None => return,
            Incoming::Line(line) => line,
            wrong => {
                let text = match wrong {
                    Incoming::Descriptor => "a request that passes a descriptor".to_owned(),
                    _ => format!("a request of more than {} bytes", protocol::LONGEST_REQUEST),
                };
                connection.append(|output| put_error(output, &Refused::Invalid(text)));
                connection.closing = true;
                connection.flush();
                return;
            }
        };
        connection.since = now;
        if !self.shared.admits(connection.uid) {
            let refused = denied(&self.shared, connection.uid);
            connection.append(|output| put_error(output, &refused));
            connection.closing = true;
            connection.flush();
            return;
        }
        let answered = Request::parse(&line).and_then(|ask| {
            let Some(answer) = self.answer.upgrade() else {
                return Err(Refused::Failed(format!(
                    "address space {} is ending",
                    self.shared.location()
                )));
            };
            if unsent > MAX_UNSENT
                && matches!(
                    ask,
                    Request::Microprocesses | Request::Resources { .. } | Request::Trace
                )
            {
                return Err(Refused::Busy("too many lists are being read; try again later".into()));
            }
            if let Some(stream) = Stream::of(&ask) {
                return self.streams.check(&stream).map(|()| RequestOutcome::Streamed(stream));
            }
            // The handler runs on this thread. If it panics, the thread continues.
            let answers = || self::answer(&*answer, &ask, connection, &self.shared, open);
            catch_unwind(AssertUnwindSafe(answers))
                .unwrap_or_else(|_| {
                    Err(Refused::Failed("the handler of the address space panicked".into()))
                })
                .map(|count| {
                    if let Request::Top { query } = &ask {
                        keep_exact(connection, query, &self.answer);
                    }
                    connection.append(|output| put_end(output, count));
                    RequestOutcome::Answered
                })
        });
        match answered {
            Ok(RequestOutcome::Answered) => {}
            Ok(RequestOutcome::Streamed(stream)) => {
                let connection = self.connections.swap_remove(place);
                let (answer, shared) = (self.answer.clone(), self.shared.clone());
                self.streams.begin(stream, connection, answer, shared, self.limits.patience);
                return;
            }
            Err(refused) => connection.append(|output| put_error(output, &refused)),
        }
        connection.flush();
        // The client's time starts after the answer, which may itself have taken long.
        connection.since = Instant::now();
    }

    /// Returns the connection that has been idle for the longest time.
    fn connection_to_evict(&self, now: Instant) -> Option<usize> {
        let all = || self.connections.iter().enumerate();
        let idle = all().filter(|(_, one)| {
            one.unsent() == 0 && now.saturating_duration_since(one.since) >= GRACE
        });
        let long = all().filter(|(_, one)| now.saturating_duration_since(one.begun) >= LONG_LIVED);
        let goes =
            idle.min_by_key(|(_, one)| one.since).or_else(|| long.min_by_key(|(_, one)| one.begun));
        goes.map(|(place, _)| place)
    }

    fn accept_clients(&mut self, now: Instant) {
        for _ in 0..ACCEPT_BATCH {
            let full = self.connections.len() >= self.limits.connections;
            let goes = self.connection_to_evict(now).filter(|_| full);
            if full && goes.is_none() {
                // A new client waits instead. Otherwise it would be accepted and then closed before
                // it can make a request.
                self.closed_until = Some(now + GRACE / 5);
                return;
            }
            let socket =
                match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                    Ok(socket) => self.shared.keep(socket),
                    Err(Errno::INTR | Errno::CONNABORTED) => continue,
                    Err(Errno::AGAIN) => return,
                    Err(_) => {
                        self.closed_until = Some(now + PAUSE);
                        return;
                    }
                };
            // The client is refused if the kernel does not report its process.
            let Ok(peer) = getsockopt(&socket, PeerCredentials) else { continue };
            let uid = peer.uid();
            let mut connection = Connection::new(PeerSocket::new(socket, uid), now);
            let busy = disposal::is_full(uid);
            if busy || !self.shared.admits(uid) {
                let refused = if busy {
                    Refused::Busy(format!(
                        "descriptors that user {uid} has passed cannot be closed yet; end the processes behind them"
                    ))
                } else {
                    denied(&self.shared, uid)
                };
                connection.append(|output| put_error(output, &refused));
                connection.flush();
                continue;
            }
            if let Some(place) = goes {
                self.connections.swap_remove(place);
            }
            let space = self.shared.location();
            connection.put(&Greeting {
                protocol: PROTOCOL,
                version: env!("CARGO_PKG_VERSION").into(),
                space,
            });
            connection.flush();
            self.connections.push(connection);
        }
    }
}

fn denied(shared: &Shared, uid: u32) -> Refused {
    Refused::Denied(format!(
        "address space {} belongs to user {} and does not admit user {uid}",
        shared.location(),
        shared.owner()
    ))
}

/// Ties the exact accounting that an answered query has turned on to its connection, and ends that
/// of an earlier session of the connection.
fn keep_exact(connection: &mut Connection, query: &TopQuery, answer: &Weak<dyn ControlHandler>) {
    let Some(is_on) = query.exact else { return };
    let is_same = connection.exact.as_ref().is_some_and(|kept| kept.number == query.session);
    if !(is_on && is_same) {
        let session = || ExactSession { number: query.session, answer: answer.clone() };
        connection.exact = is_on.then(session);
    }
}

/// Writes the items of an answer, and returns their number.
fn answer(
    answer: &dyn ControlHandler,
    ask: &Request,
    to: &mut Connection,
    shared: &Shared,
    open: usize,
) -> Result<u64, Refused> {
    let mut count = 0;
    match ask {
        Request::Space => to.put(&answer.space()),
        Request::Microprocesses => {
            answer.microprocesses(&mut |one| {
                count += 1;
                to.put(&one);
            });
            return Ok(count);
        }
        Request::Microprocess { id } => to.put(&answer.microprocess(*id)?),
        Request::Resources { kind } => {
            answer.resources(protocol::kind(kind.as_deref())?, &mut |one| {
                count += 1;
                to.put(&one);
            });
            return Ok(count);
        }
        Request::Act { id, action } => to.put(&ActionResult { done: answer.act(*id, *action)? }),
        Request::Backtrace { id } => to.put(&Text { text: answer.backtrace(*id)? }),
        Request::Top { query } => {
            answer.top(query, &mut |item| {
                count += 1;
                to.put(&item);
            })?;
            return Ok(count);
        }
        Request::Locks { limit } => {
            answer.locks(*limit, &mut |item| {
                count += 1;
                to.put(&item);
            })?;
            return Ok(count);
        }
        Request::Metrics => {
            let refused = Metric {
                name: "kumihimo_control_refused_total".into(),
                help: "Refused attempts of other users to read or control this address space."
                    .into(),
                counter: true,
                samples: vec![(Vec::new(), shared.refused.load(Ordering::Relaxed) as f64)],
            };
            let open = Metric {
                name: "kumihimo_control_connections".into(),
                help: "Connections that read or control this address space.".into(),
                counter: false,
                samples: vec![(Vec::new(), open as f64)],
            };
            for mut metric in answer.metrics().into_iter().chain([refused, open]) {
                // JSON has no representation of other values.
                metric.samples.retain(|(_, value)| value.is_finite());
                count += 1;
                to.put(&metric);
            }
            return Ok(count);
        }
        Request::Trace | Request::Profile { .. } => {
            return Err(Refused::Invalid("this answer has a thread of its own".into()));
        }
    }
    Ok(1)
}
