//! The loop of the link poller's kernel thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kumihimo_machine::socket::descriptors::Kept;
use kumihimo_machine::socket::disposal;
use kumihimo_machine::socket::peer_socket::PeerSocket;
use kumihimo_runtime::board;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::state::{
    Admitted, FIRST, LISTENER, LinkHandler, LinkPoller, PollThread, PolledLink, WAKEUP, catch_panic,
};
use crate::error::{Error, ErrorKind};
use crate::handshake::record::{Hello, Welcome};
use crate::handshake::server::{self, PendingClient, PendingClients};
use crate::link::socket::{Link, LinkRecord, parse};
use crate::wire::packet::{Packet, receive};
use crate::wire::peer::Peer;

/// Clients accepted in one turn.
const ACCEPT_BATCH: usize = 16;
/// Records received from one link in one turn.
const RECORD_BATCH: usize = 64;
/// Pause before the next accept where no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);
const EVENTS: usize = 64;
/// Interval of the check that all sockets are still open.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The loop, with the clients whose handshake is under way.
pub(super) struct PollLoop {
    poller: Arc<LinkPoller>,
    running: Arc<PollThread>,
    pending: PendingClients,
    /// No client is accepted before this time.
    paused_until: Option<Instant>,
    /// Time of the next check of the sockets.
    check_at: Instant,
    /// Time at which all sleeping VPs are told to look around again.
    stir_at: Instant,
}

impl PollLoop {
    pub(super) fn new(poller: Arc<LinkPoller>, running: Arc<PollThread>) -> PollLoop {
        let now = Instant::now();
        let (check_at, stir_at) = (now + CHECK_INTERVAL, now + board::RESCAN_INTERVAL);
        PollLoop {
            poller,
            running,
            pending: PendingClients::default(),
            paused_until: None,
            check_at,
            stir_at,
        }
    }

    /// Runs until no gate and no link is left.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            self.wait(&mut events);
            for event in events.drain(..) {
                // Handlers are dropped here too, and may panic: the other gates and links go on.
                let _ = catch_panic(|| match event.data.u64() {
                    WAKEUP => drop(rustix::io::read(&self.running.wakeup, &mut [0; 8])),
                    LISTENER => self.accept(),
                    number if self.pending.contains(number) => self.receive_hello(number),
                    number => self.receive_link(number, false),
                });
            }
            let looked_at = std::mem::take(&mut self.poller.lock().looked_at);
            for number in looked_at {
                let _ = catch_panic(|| self.receive_link(number, true));
            }
            self.expire_pending();
            self.check_sockets();
            if self.poller.stop_if_unused() {
                return;
            }
        }
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) {
        let now = Instant::now();
        // The board can have been overwritten, and a call lost by that: VPs set no timer of their
        // own against it.
        if now >= self.stir_at {
            self.stir_at = now + board::RESCAN_INTERVAL;
            board::rescan();
        }
        let deadline = self
            .pending
            .deadline()
            .into_iter()
            .chain(self.paused_until)
            .chain([self.stir_at, self.check_at.max(now)])
            .min();
        // Rounded up, so that it is past when we wake.
        let left = deadline
            .map(|deadline| deadline.saturating_duration_since(now) + Duration::from_millis(1));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match epoll::wait(
            &self.running.epoll,
            rustix::buffer::spare_capacity(events),
            left.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            // No memory.
            Err(_) => std::thread::sleep(PAUSE),
        }
        if self.paused_until.is_some_and(|until| until <= Instant::now()) {
            self.paused_until = None;
            self.listen(epoll::EventFlags::IN);
        }
    }

    fn listen(&self, to: epoll::EventFlags) {
        if let Some(gates) = &self.poller.lock().gates {
            let _ = epoll::modify(
                &self.running.epoll,
                &**gates,
                epoll::EventData::new_u64(LISTENER),
                to,
            );
        }
    }

    /// Stops accepting clients until then.
    fn pause_until(&mut self, until: Instant) {
        self.paused_until = Some(until);
        self.listen(epoll::EventFlags::empty());
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPT_BATCH {
            let now = Instant::now();
            match self.pending.make_room(now) {
                Ok(None) => {}
                Ok(Some((evicted, why))) => self.refuse(&evicted.socket, evicted.peer, why),
                Err(until) => return self.pause_until(until),
            }
            // The lock is held so that no other thread has the listener when its last gate goes.
            let accepted = {
                let state = self.poller.lock();
                let Some(gates) = &state.gates else { return };
                accept_with(&**gates, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
                    .map(|socket| Kept::new(socket, &self.poller.descriptors))
            };
            let socket = match accepted {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => return self.pause_until(now + PAUSE),
            };
            // Refused if the kernel does not report its process.
            let Ok(peer) = Peer::of(&socket) else { continue };
            let socket = PeerSocket::new(socket, peer.uid);
            if disposal::is_full(peer.uid) {
                let text = format!(
                    "descriptors that user {} has passed cannot be closed yet: end the processes behind them",
                    peer.uid
                );
                self.refuse(&socket, peer, Error::new(ErrorKind::Exhausted, text));
                continue;
            }
            let state = self.poller.lock();
            let admits =
                state.served.values().any(|served| state.admits(&served.allowed, peer.uid));
            let why = (!admits).then(|| state.denied(None, peer.uid));
            drop(state);
            if let Some(why) = why {
                self.refuse(&socket, peer, why);
                continue;
            }
            let number = self.poller.next_number();
            if epoll::add(
                &self.running.epoll,
                &socket,
                epoll::EventData::new_u64(number),
                epoll::EventFlags::IN,
            )
            .is_ok()
            {
                self.pending.insert(number, socket, peer, now);
            }
        }
    }

    fn refuse(&self, socket: &PeerSocket, peer: Peer, why: Error) {
        server::refuse(socket, &why);
        self.poller.refused.fetch_add(1, Ordering::Relaxed);
        self.poller.lock().last_refused = Some((peer, why));
    }

    fn expire_pending(&mut self) {
        let now = Instant::now();
        while let Some((expired, why)) = self.pending.pop_expired(now) {
            self.refuse(&expired.socket, expired.peer, why);
        }
    }

    /// Receives a client's hello, and admits or refuses it.
    fn receive_hello(&mut self, number: u64) {
        let Some((client, hello)) = self.pending.receive_hello(number) else { return };
        let PendingClient { socket, peer, .. } = client;
        match hello.and_then(|hello| self.admit(peer, &hello)) {
            Ok(admitted) => self.begin(number, socket, peer, admitted),
            Err(why) => self.refuse(&socket, peer, why),
        }
    }

    fn admit(&self, peer: Peer, hello: &Hello) -> Result<Admitted, Error> {
        let admission = {
            let state = self.poller.lock();
            match state.served.get(&hello.name) {
                Some(served) if state.admits(&served.allowed, peer.uid) => served.admission.clone(),
                Some(_) => return Err(state.denied(Some(&hello.name), peer.uid)),
                None => {
                    let text =
                        format!("gate {:?} is not served any more: connect again", hello.name);
                    return Err(Error::new(ErrorKind::NotFound, text));
                }
            }
        };
        catch_panic(|| admission.admits(peer, hello))?
    }

    fn begin(&self, number: u64, mut socket: PeerSocket, peer: Peer, admitted: Admitted) {
        let Admitted { size, wake_address, lane, opened } = admitted;
        let welcome = Welcome { link: number, size, wake_address };
        if server::admit(&mut socket, &welcome, lane).is_err() {
            return;
        }
        let connection = self.poller.new_connection(number, peer, socket);
        let link = Link { connection: connection.clone() };
        match catch_panic(|| opened(link)) {
            // The socket is in the epoll set under this number already.
            Ok(end) => {
                drop(self.poller.lock().links.insert(number, PolledLink { connection, end }))
            }
            Err(why) => connection.close(&why),
        }
    }

    /// Receives what has come on a link, or its end. `all`: up to what had come when this was asked
    /// for, which is then reported.
    fn receive_link(&self, number: u64, all: bool) {
        if number < FIRST {
            return;
        }
        let Some(PolledLink { connection, end }) = self.poller.lock().links.get(&number).cloned()
        else {
            return;
        };
        let LinkEnd { why, violated } = match receive_records(&connection.socket, &*end, all) {
            Ok(Received::Some) if all => return self.poller.look_at(number),
            Ok(_) => return,
            Err(end) => end,
        };
        // Once: the thread that removes it notifies.
        if self.poller.lock().links.remove(&number).is_none() {
            return;
        }
        let _ = epoll::delete(&self.running.epoll, &*connection.socket);
        let here = connection.closed.load(Ordering::Relaxed);
        let why =
            if here { Error::new(ErrorKind::Gone, "this side has closed the link") } else { why };
        if violated && !here {
            let _ = catch_panic(|| end.violated(&why));
        }
        connection.close(&why);
        let _ = catch_panic(|| end.closed(why));
    }

    /// Ends links whose sockets were closed by other code of this process: epoll(7) reports nothing
    /// more of them.
    fn check_sockets(&mut self) {
        let now = Instant::now();
        if now < self.check_at {
            return;
        }
        self.check_at = now + CHECK_INTERVAL;
        let lost: Vec<PolledLink> = {
            let links = &mut self.poller.lock().links;
            links
                .extract_if(|_, entry| !entry.connection.owns_descriptor())
                .map(|(_, entry)| entry)
                .collect()
        };
        for PolledLink { connection, end } in lost {
            // The number may be that of another descriptor by now: nothing is sent there.
            connection.closed.store(true, Ordering::Relaxed);
            let text =
                "somebody in this process has closed the socket of the link, which is not theirs";
            let _ = catch_panic(|| end.closed(Error::new(ErrorKind::Gone, text)));
        }
    }
}

/// How far a link's socket was emptied.
enum Received {
    /// Up to a ring, or by a batch: there may be more.
    Some,
    /// All.
    All,
}

/// The end of a link.
struct LinkEnd {
    why: Error,
    /// The other side violates the protocol or exceeds a quota.
    violated: bool,
}

/// Receives pending records of a link, up to a batch that is fair to the other links. Unless `all`,
/// a ring ends the batch: mostly nothing follows it, and that need not be found out.
///
/// # Errors
/// The end of the link.
fn receive_records(
    socket: &PeerSocket,
    end: &dyn LinkHandler,
    all: bool,
) -> Result<Received, LinkEnd> {
    let mut rang = false;
    let violated = |why| LinkEnd { why, violated: true };
    let ended = |why| LinkEnd { why, violated: false };
    let malformed = |what: &str| {
        let text = format!("{what} came over the link, and it is cut");
        violated(Error::new(ErrorKind::Malformed, text))
    };
    let mut outcome = Ok(Received::Some);
    for _ in 0..RECORD_BATCH {
        let record = match receive(socket, false) {
            Ok(Packet::Record(record)) => record,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => {
                outcome = Ok(Received::All);
                break;
            }
            Ok(Packet::End) | Err(_) => {
                let text = "the other side of the link has ended";
                outcome = Err(ended(Error::new(ErrorKind::Gone, text)));
                break;
            }
            Ok(Packet::Wrong(what)) => {
                outcome = Err(malformed(what));
                break;
            }
            Ok(Packet::NoRoom) => {
                let text = "no descriptor is left for memory that the other side passes: raise the limit (ulimit -n)";
                outcome = Err(ended(Error::new(ErrorKind::Exhausted, text)));
                break;
            }
        };
        let told = match (parse(&record), record.descriptor) {
            (Some(LinkRecord::Ring), _) => {
                rang = true;
                if !all {
                    break;
                }
                Ok(())
            }
            (Some(LinkRecord::Region { id, length }), Some(fd)) => {
                match catch_panic(|| end.region_passed(id, fd, length)) {
                    Ok(kept) => kept.map_err(violated),
                    Err(panicked) => Err(ended(panicked)),
                }
            }
            (Some(LinkRecord::Forget { id }), _) => {
                catch_panic(|| end.region_forgotten(id)).map_err(ended)
            }
            (Some(LinkRecord::Bye(said)), _) => Err(ended(said)),
            _ => Err(malformed("a record that does not follow the protocol")),
        };
        if let Err(why) = told {
            outcome = Err(why);
            break;
        }
    }
    // Also before the end: a ring may announce replies.
    if rang {
        catch_panic(|| end.rung()).map_err(ended)?;
    }
    if all && matches!(outcome, Ok(Received::All)) {
        catch_panic(|| end.received_all()).map_err(ended)?;
    }
    outcome
}
