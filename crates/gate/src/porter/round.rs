//! The porter's rounds: what its kernel thread does with what it waits for.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kumihimo_machine::descriptors::Kept;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::{
    Admitted, BELL, EVERYBODY, End, Entry, FIRST, LISTENER, Porter, Running, State, guarded,
};
use kumihimo_runtime::board;

use crate::hello::{Hello, Welcome, refusal};
use crate::link::{Link, Peer, Said, parse};
use crate::packet::{Packet, receive, send};
use crate::{Error, ErrorKind};

/// A caller says what it wants within this.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many callers may be about to say it; for one more, the one that takes longest is cut ...
const MOST_CALLERS: usize = 256;
/// ... unless it has had less than this.
const GRACE: Duration = Duration::from_millis(50);
/// Let in at one turn.
const LET_IN: usize = 16;
/// Heard of one link at one turn.
const HEARD: usize = 64;
/// Where no descriptor is left, it is tried again after this.
const PAUSE: Duration = Duration::from_millis(100);
const EVENTS: usize = 64;
/// So often it is seen whether all sockets are still there.
const CHECK: Duration = Duration::from_secs(2);

/// A client that has connected and said nothing yet.
struct Caller {
    socket: Kept,
    peer: Peer,
    begun: Instant,
}

pub(super) struct Rounds {
    porter: Arc<Porter>,
    running: Arc<Running>,
    /// By number, and so by the time at which they came.
    callers: BTreeMap<u64, Caller>,
    /// Nobody is let in before.
    closed_until: Option<Instant>,
    /// When the sockets are looked at next.
    check: Instant,
    /// When all virtual processors that sleep are to look around again.
    stirs_at: Instant,
}

impl Rounds {
    pub(super) fn new(porter: Arc<Porter>, running: Arc<Running>) -> Rounds {
        let now = Instant::now();
        let (check, stirs_at) = (now + CHECK, now + board::RESCAN_INTERVAL);
        Rounds { porter, running, callers: BTreeMap::new(), closed_until: None, check, stirs_at }
    }

    /// Until there is no gate and no link.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            self.wait(&mut events);
            for event in events.drain(..) {
                // What the upper half leaves behind is dropped here too, and may panic: the other
                // gates and links go on.
                let _ = guarded(|| match event.data.u64() {
                    BELL => drop(rustix::io::read(&self.running.bell, &mut [0; 8])),
                    LISTENER => self.let_in(),
                    number if self.callers.contains_key(&number) => self.greet(number),
                    number => self.hear(number),
                });
            }
            self.cut_the_late();
            self.check();
            if self.porter.ends() {
                return;
            }
        }
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) {
        let now = Instant::now();
        let late = self.callers.first_key_value().map(|(_, first)| first.begun + PATIENCE);
        // What lies on the board can have been overwritten, and a call lost by that: no virtual
        // processor sets a timer of its own against it.
        if now >= self.stirs_at {
            self.stirs_at = now + board::RESCAN_INTERVAL;
            board::rescan();
        }
        let deadline = late
            .into_iter()
            .chain(self.closed_until)
            .chain([self.stirs_at, self.check.max(now)])
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
        if self.closed_until.is_some_and(|until| until <= Instant::now()) {
            self.closed_until = None;
            self.listen(epoll::EventFlags::IN);
        }
    }

    fn listen(&self, to: epoll::EventFlags) {
        if let Some(gates) = &self.porter.lock().gates {
            let _ = epoll::modify(
                &self.running.epoll,
                &**gates,
                epoll::EventData::new_u64(LISTENER),
                to,
            );
        }
    }

    /// New clients wait until then.
    fn close_until(&mut self, until: Instant) {
        self.closed_until = Some(until);
        self.listen(epoll::EventFlags::empty());
    }

    fn let_in(&mut self) {
        for _ in 0..LET_IN {
            let now = Instant::now();
            if self.callers.len() >= MOST_CALLERS
                && let Some(first) = self.callers.first_entry()
            {
                let until = first.get().begun + GRACE;
                if until > now {
                    return self.close_until(until);
                }
                let Caller { socket, peer, .. } = first.remove();
                let text = "too many are about to connect: try again";
                self.refuse(&socket, peer, Error::new(ErrorKind::Exhausted, text));
            }
            // The lock is held so that nobody has the listener when its last gate goes.
            let accepted = {
                let state = self.porter.lock();
                let Some(gates) = &state.gates else { return };
                accept_with(&**gates, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
                    .map(|socket| Kept::new(socket, &self.porter.descriptors))
            };
            let socket = match accepted {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => return self.close_until(now + PAUSE),
            };
            // Refused, if the kernel does not say which process it is.
            let Ok(peer) = Peer::of(&socket) else { continue };
            let state = self.porter.lock();
            let admits = state.doors.values().any(|served| state.admits(&served.allowed, peer.uid));
            let why = (!admits).then(|| state.denied(None, peer.uid));
            drop(state);
            if let Some(why) = why {
                self.refuse(&socket, peer, why);
                continue;
            }
            let number = self.porter.number();
            if epoll::add(
                &self.running.epoll,
                &socket,
                epoll::EventData::new_u64(number),
                epoll::EventFlags::IN,
            )
            .is_ok()
            {
                self.callers.insert(number, Caller { socket, peer, begun: now });
            }
        }
    }

    fn refuse(&self, socket: &Kept, peer: Peer, why: Error) {
        let _ = send(socket, &refusal(&why), None, false);
        self.porter.refused.fetch_add(1, Ordering::Relaxed);
        self.porter.lock().last_refused = Some((peer, why));
    }

    fn cut_the_late(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.callers.first_entry() {
            if first.get().begun + PATIENCE > now {
                break;
            }
            let Caller { socket, peer, .. } = first.remove();
            let text = format!("a caller says what it wants within {} s", PATIENCE.as_secs());
            self.refuse(&socket, peer, Error::new(ErrorKind::TimedOut, text));
        }
    }

    /// A caller says what it wants, or is gone.
    fn greet(&mut self, number: u64) {
        let received = {
            let Some(caller) = self.callers.get(&number) else { return };
            receive(&caller.socket, false)
        };
        if matches!(received, Err(Errno::AGAIN | Errno::INTR)) {
            return;
        }
        // Whatever it is, it has said it.
        let Some(Caller { socket, peer, .. }) = self.callers.remove(&number) else { return };
        let wrong =
            |what: &str| Err(Error::new(ErrorKind::Malformed, format!("the caller sent {what}")));
        let hello = match received {
            Ok(Packet::Record(record)) if record.descriptor.is_none() => {
                Hello::decode(record.bytes())
            }
            Ok(Packet::Record(_) | Packet::NoRoom) => wrong("a descriptor with its first record"),
            Ok(Packet::Wrong(what)) => wrong(what),
            Ok(Packet::End) | Err(_) => return,
        };
        match hello.and_then(|hello| self.admit(peer, &hello)) {
            Ok(admitted) => self.begin(number, socket, peer, admitted),
            Err(why) => self.refuse(&socket, peer, why),
        }
    }

    fn admit(&self, peer: Peer, hello: &Hello) -> Result<Admitted, Error> {
        let door = {
            let state = self.porter.lock();
            match state.doors.get(&hello.name) {
                Some(served) if state.admits(&served.allowed, peer.uid) => served.door.clone(),
                Some(_) => return Err(state.denied(Some(&hello.name), peer.uid)),
                None => {
                    let text =
                        format!("gate {:?} is not served any more: connect again", hello.name);
                    return Err(Error::new(ErrorKind::NotFound, text));
                }
            }
        };
        guarded(|| door.admits(peer, hello))?
    }

    fn begin(&self, number: u64, socket: Kept, peer: Peer, admitted: Admitted) {
        let Admitted { size, seat, lane, opened } = admitted;
        let welcome = Welcome { link: number, size, seat };
        if send(&socket, &welcome.encode(), Some(lane.as_fd()), false).is_err() {
            // It is gone, or gets no descriptor: then it sees the end.
            return;
        }
        drop(lane);
        let line = self.porter.line(number, peer, socket);
        let link = Link { line: line.clone() };
        match guarded(|| opened(link)) {
            // It is waited for under the number that it has already.
            Ok(end) => drop(self.porter.lock().links.insert(number, Entry { line, end })),
            Err(why) => line.cut(&why),
        }
    }

    /// The other side of a link says something, or is gone.
    fn hear(&self, number: u64) {
        if number < FIRST {
            return;
        }
        let Some(Entry { line, end }) = self.porter.lock().links.get(&number).cloned() else {
            return;
        };
        if let Err(why) = heard(&line.socket, &*end) {
            // Once: the thread that removes it notifies.
            if self.porter.lock().links.remove(&number).is_none() {
                return;
            }
            let _ = epoll::delete(&self.running.epoll, &*line.socket);
            let here = line.closed.load(Ordering::Relaxed);
            let why = if here {
                Error::new(ErrorKind::Gone, "this side has closed the link")
            } else {
                why
            };
            line.cut(&why);
            let _ = guarded(|| end.gone(why));
        }
    }

    /// Ends links whose sockets were closed by somebody whose they are not: nothing would ever be
    /// heard of them.
    fn check(&mut self) {
        let now = Instant::now();
        if now < self.check {
            return;
        }
        self.check = now + CHECK;
        let lost: Vec<Entry> = {
            let links = &mut self.porter.lock().links;
            links.extract_if(|_, entry| !entry.line.is_whole()).map(|(_, entry)| entry).collect()
        };
        for Entry { line, end } in lost {
            // The number may be another descriptor's by now: nothing is sent there.
            line.closed.store(true, Ordering::Relaxed);
            let text =
                "somebody in this process has closed the socket of the link, which is not theirs";
            let _ = guarded(|| end.gone(Error::new(ErrorKind::Gone, text)));
        }
    }
}

impl State {
    fn admits(&self, allowed: &[u32], uid: u32) -> bool {
        uid == 0
            || self.gates.as_ref().is_some_and(|gates| gates.owner() == uid)
            || allowed.contains(&uid)
            || allowed.contains(&EVERYBODY)
    }

    fn denied(&self, name: Option<&str>, uid: u32) -> Error {
        let what = name.map_or("the gates".to_owned(), |name| format!("gate {name:?}"));
        let owner = self
            .gates
            .as_ref()
            .map_or(String::new(), |gates| format!(" of user {}", gates.owner()));
        Error::new(
            ErrorKind::NotPermitted,
            format!("{what}{owner} let user {uid} not in: its server has to allow it"),
        )
    }
}

/// All that has come, or as much as is fair to the other links.
///
/// # Errors
/// Why the link is over.
fn heard(socket: &Kept, end: &dyn End) -> Result<(), Error> {
    let mut rang = false;
    let over = || Error::new(ErrorKind::Gone, "the other side of the link has ended");
    let malformed = |what: &str| {
        Error::new(ErrorKind::Malformed, format!("{what} came over the link, and it is cut"))
    };
    let mut why = Ok(());
    for _ in 0..HEARD {
        let record = match receive(socket, false) {
            Ok(Packet::Record(record)) => record,
            Err(Errno::AGAIN | Errno::INTR) => break,
            Ok(Packet::End) | Err(_) => {
                why = Err(over());
                break;
            }
            Ok(Packet::Wrong(what)) => {
                why = Err(malformed(what));
                break;
            }
            Ok(Packet::NoRoom) => {
                let text = "no descriptor is left for memory that the other side passes: raise the limit (ulimit -n)";
                why = Err(Error::new(ErrorKind::Exhausted, text));
                break;
            }
        };
        let told = match (parse(&record), record.descriptor) {
            (Some(Said::Ring), _) => {
                rang = true;
                Ok(())
            }
            (Some(Said::Region { id, length }), Some(fd)) => guarded(|| end.region(id, fd, length)),
            (Some(Said::Forget { id }), _) => guarded(|| end.forgotten(id)),
            (Some(Said::Bye(said)), _) => Err(said),
            _ => Err(malformed("a record that does not follow the protocol")),
        };
        if told.is_err() {
            why = told;
            break;
        }
    }
    // Also before the end: replies may be there that the ring is about.
    if rang { guarded(|| end.rang()).and(why) } else { why }
}
