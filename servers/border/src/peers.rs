//! The other machines: a connection to each, kept open, and what is known of it.
//!
//! A task of each peer connects, waits for the end of the connection, and connects again. Requests
//! use the present connection. Without one they fail at once, so that a machine that is gone delays
//! nobody.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kumihimo_machine::border::{Epoch, MachineRow, MachineState};
use kumihimo_machine::handler::Refused;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::config::{Discover, Peer as Configured};
use crate::engine::{Engine, Failure, Hello, Link, VERSION};
use crate::locked;
use crate::tls::identity::{Identity, Location};

/// Time before the next attempt to connect: the first, and the longest.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Time for the first attempt, after which a peer counts as unreachable.
const FIRST_ATTEMPT: Duration = Duration::from_secs(4);
/// Time between two looks at a name for DNS.
const LOOK_UP: Duration = Duration::from_secs(10);
/// Most machines that one name for DNS leads to.
const MOST_FOUND: usize = 1024;

/// A time, by the clock of the wall to be shown, and by one that is not set.
#[derive(Clone, Copy)]
struct Since {
    wall: SystemTime,
    exact: Instant,
}

impl Since {
    fn now() -> Since {
        Since { wall: SystemTime::now(), exact: Instant::now() }
    }

    fn seconds(self) -> u64 {
        self.wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
    }
}

/// The state of the connection to a peer.
#[derive(Clone)]
enum State {
    /// The first attempt is in progress.
    Starting,
    Reachable(Reachable),
    Unreachable {
        why: String,
        since: Since,
    },
}

/// A peer that is connected.
#[derive(Clone)]
pub struct Reachable {
    /// The connection.
    pub link: Arc<dyn Link>,
    /// What the peer states.
    pub hello: Hello,
    since: Since,
    /// Number of calls to it that are in progress.
    busy: Arc<AtomicUsize>,
}

/// A call in progress, until the value is dropped.
pub struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Reachable {
    /// Counts a call.
    #[must_use]
    pub fn begin_call(&self) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(&self.busy))
    }
}

struct Peer {
    name: String,
    place: String,
    /// In the static list; otherwise found by a name for DNS.
    is_listed: bool,
    state: watch::Sender<State>,
    /// What was last known.
    known: Mutex<Option<(Hello, Location)>>,
}

/// All peers of this machine.
pub struct Peers {
    own: MachineRow,
    identity: Identity,
    engine: Arc<dyn Engine>,
    table: Mutex<BTreeMap<String, Arc<Peer>>>,
    begun: Instant,
}

impl Peers {
    /// Describes this machine, which has no peers yet.
    #[must_use]
    pub fn new(
        name: &str,
        listens: Option<SocketAddr>,
        epoch: Epoch,
        identity: Identity,
        engine: Arc<dyn Engine>,
    ) -> Arc<Peers> {
        let since = Since::now();
        let own = MachineRow {
            name: name.to_owned(),
            state: MachineState::Own,
            place: listens.map(|address| address.to_string()),
            location: Some(identity.location().to_string()),
            epoch: Some(epoch),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            since: since.seconds(),
            seconds: 0,
            why: None,
        };
        Arc::new(Peers { own, identity, engine, table: Mutex::default(), begun: since.exact })
    }

    /// Returns the name of this machine.
    #[must_use]
    pub fn own(&self) -> &str {
        &self.own.name
    }

    /// Returns what this border states to others.
    #[must_use]
    pub fn hello(&self) -> Hello {
        Hello {
            protocol: VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: self.own.epoch.unwrap_or(Epoch(0)),
        }
    }

    /// Describes all machines, this one first.
    pub async fn rows(&self) -> Vec<MachineRow> {
        let seconds = self.begun.elapsed().as_secs();
        let mut rows = vec![MachineRow { seconds, ..self.own.clone() }];
        let peers: Vec<Arc<Peer>> = locked(&self.table).values().cloned().collect();
        for peer in peers {
            let state = peer.settled().await;
            rows.push(peer.row(&state));
        }
        rows
    }

    /// Returns the connection to a machine whose epoch is `epoch`.
    ///
    /// # Errors
    /// Returns [`Failure::Unreachable`] with the time since which it is, and [`Failure::Refused`]
    /// if the name is unknown or the epoch has ended.
    pub async fn reach(&self, name: &str, epoch: Epoch) -> Result<Reachable, Failure> {
        let reachable = self.reach_name(name).await?;
        if reachable.hello.epoch == epoch {
            return Ok(reachable);
        }
        Err(Refused::Stale(format!(
            "epoch {epoch} of machine {name} has ended: it is now {}",
            reachable.hello.epoch
        ))
        .into())
    }

    /// Returns the connection to a machine, whatever its epoch.
    ///
    /// # Errors
    /// Returns the errors of [`reach`](Peers::reach), but not those of the epoch.
    pub async fn reach_name(&self, name: &str) -> Result<Reachable, Failure> {
        let peer = locked(&self.table).get(name).cloned();
        let peer = peer.ok_or_else(|| {
            Refused::Invalid(format!("the border of {} knows no machine {name:?}", self.own.name))
        })?;
        match peer.settled().await {
            State::Reachable(reachable) => Ok(reachable),
            state => Err(Failure::Unreachable(peer.row(&state).unreachable())),
        }
    }

    /// Returns the names of the machines that are not known to be unreachable.
    #[must_use]
    pub fn reachable(&self) -> Vec<String> {
        let table = locked(&self.table);
        let is_open = |peer: &Peer| !matches!(&*peer.state.borrow(), State::Unreachable { .. });
        table.values().filter(|peer| is_open(peer)).map(|peer| peer.name.clone()).collect()
    }

    /// Returns the number of calls to a machine that are in progress.
    #[must_use]
    pub fn busy(&self, name: &str) -> usize {
        let peer = locked(&self.table).get(name).cloned();
        peer.map_or(0, |peer| match &*peer.state.borrow() {
            State::Reachable(reachable) => reachable.busy.load(Ordering::Relaxed),
            _ => 0,
        })
    }

    /// Keeps a connection to a machine of the static list.
    pub fn keep(self: &Arc<Self>, configured: Configured) {
        let peer = Arc::new(Peer::new(configured.name.clone(), configured.place.clone(), true));
        locked(&self.table).insert(configured.name.clone(), Arc::clone(&peer));
        let peers = Arc::clone(self);
        tokio::spawn(async move {
            let mut pause = BACK_OFF.0;
            loop {
                let connected = peers.connect(&configured.place, &configured.identity).await;
                pause = peer.follow(connected, pause).await;
            }
        });
    }

    /// Connects to the first address of a place that answers.
    async fn connect(&self, place: &str, identity: &str) -> Result<Reachable, String> {
        let mut why = format!("{place} has no address");
        let addresses =
            tokio::net::lookup_host(place).await.map_err(|e| format!("{place}: {e}"))?;
        for address in addresses {
            match self.connect_to(address, Some(identity.to_owned())).await {
                Ok(reachable) => return Ok(reachable),
                Err(failed) => why = failed,
            }
        }
        Err(why)
    }

    async fn connect_to(
        &self,
        address: SocketAddr,
        identity: Option<String>,
    ) -> Result<Reachable, String> {
        let link = self.engine.connect(address, identity).await.map_err(|e| e.to_string())?;
        let hello = link.hello(self.hello()).await.map_err(|e| format!("{address}: {e}"))?;
        if hello.protocol != VERSION {
            return Err(format!(
                "{address}: its border (Kumihimo {}) uses version {} of the service, and this one (Kumihimo {}) version {VERSION}: use the same version",
                hello.version,
                hello.protocol,
                env!("CARGO_PKG_VERSION")
            ));
        }
        Ok(Reachable { link, hello, since: Since::now(), busy: Arc::default() })
    }

    /// Looks for machines behind a name for DNS, again and again.
    pub fn discover(self: &Arc<Self>, behind: Discover) {
        let peers = Arc::clone(self);
        tokio::spawn(async move {
            let mut followed: BTreeMap<SocketAddr, tokio::task::JoinHandle<()>> = BTreeMap::new();
            loop {
                let found = match tokio::net::lookup_host(&behind.place).await {
                    Ok(found) => found.take(MOST_FOUND).collect::<Vec<_>>(),
                    Err(e) => {
                        complain(&format!("{}: {e}", behind.place));
                        followed.keys().copied().collect()
                    }
                };
                followed.retain(|address, task| {
                    let stays = found.contains(address);
                    if !stays {
                        task.abort();
                        peers.forget(&address.to_string());
                    }
                    stays
                });
                for address in found {
                    followed.entry(address).or_insert_with(|| {
                        let (peers, identity) = (Arc::clone(&peers), behind.identity.clone());
                        tokio::spawn(async move { peers.follow_found(address, identity).await })
                    });
                }
                sleep(LOOK_UP).await;
            }
        });
    }

    /// Keeps a connection to a machine whose name its certificate states.
    async fn follow_found(self: Arc<Self>, address: SocketAddr, identity: Option<String>) {
        let place = address.to_string();
        let (mut pause, mut complained) = (BACK_OFF.0, String::new());
        loop {
            let connected = self.connect_to(address, identity.clone()).await;
            let name = connected.as_ref().ok().map(|reachable| {
                let found = reachable.link.identity();
                let is_own = found.location() == self.identity.location();
                (is_own, found.machine().map(str::to_owned))
            });
            let why = match (&connected, name) {
                // The name for DNS leads to this machine as well.
                (_, Some((true, _))) => return,
                // Or to one to which a connection is kept anyway.
                (_, Some((false, Some(name)))) if self.is_listed(&name) => return,
                (_, Some((false, Some(name)))) => match self.found(&name, &place) {
                    Some(peer) => {
                        complained.clear();
                        pause = peer.follow(connected, pause).await;
                        continue;
                    }
                    None => format!("{place}: another machine is named {name} already"),
                },
                (Ok(_), _) => format!("{place}: its certificate has no name of a machine"),
                (Err(why), _) => {
                    // A machine that was found before is unreachable from now on.
                    if let Some(peer) = self.at(&place) {
                        let why = why.clone();
                        pause = peer.follow(Err(why), pause).await;
                        continue;
                    }
                    why.clone()
                }
            };
            if complained != why {
                complain(&why);
                complained = why;
            }
            sleep(BACK_OFF.1).await;
        }
    }

    /// Returns the entry of a machine that was found at a place, unless another place has the name.
    fn found(&self, name: &str, place: &str) -> Option<Arc<Peer>> {
        if name == self.own.name {
            return None;
        }
        let mut table = locked(&self.table);
        let peer = table
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(Peer::new(name.to_owned(), place.to_owned(), false)));
        (peer.place == place).then(|| Arc::clone(peer))
    }

    fn is_listed(&self, name: &str) -> bool {
        locked(&self.table).get(name).is_some_and(|peer| peer.is_listed)
    }

    /// Returns the machine that was found at a place.
    fn at(&self, place: &str) -> Option<Arc<Peer>> {
        locked(&self.table).values().find(|peer| peer.was_found_at(place)).cloned()
    }

    /// Removes the machine at a place to which the name for DNS no longer leads.
    fn forget(&self, place: &str) {
        locked(&self.table).retain(|_, peer| !peer.was_found_at(place));
    }
}

impl Peer {
    fn was_found_at(&self, place: &str) -> bool {
        !self.is_listed && self.place == place
    }

    fn new(name: String, place: String, is_listed: bool) -> Peer {
        let state = watch::channel(State::Starting).0;
        Peer { name, place, is_listed, state, known: Mutex::default() }
    }

    /// Publishes the outcome of an attempt, and waits for the time of the next one. Returns the
    /// pause after that.
    async fn follow(&self, connected: Result<Reachable, String>, pause: Duration) -> Duration {
        let why = match connected {
            Ok(reachable) => {
                let link = Arc::clone(&reachable.link);
                let location = link.identity().location();
                *locked(&self.known) = Some((reachable.hello.clone(), location));
                self.state.send_replace(State::Reachable(reachable));
                let why = link.ended().await;
                self.state.send_replace(State::Unreachable { why, since: Since::now() });
                return BACK_OFF.0;
            }
            Err(why) => why,
        };
        self.state.send_modify(|state| match state {
            // The machine is unreachable since the first failure, for the last reason.
            State::Unreachable { why: old, .. } => *old = why,
            other => *other = State::Unreachable { why, since: Since::now() },
        });
        sleep(pause).await;
        (pause * 2).min(BACK_OFF.1)
    }

    /// Returns the state, once the first attempt has ended.
    async fn settled(&self) -> State {
        let mut state = self.state.subscribe();
        let first = state.wait_for(|state| !matches!(state, State::Starting));
        if let Ok(Ok(state)) = timeout(FIRST_ATTEMPT, first).await {
            return state.clone();
        }
        let why = format!("no connection within {FIRST_ATTEMPT:?}");
        State::Unreachable { why, since: Since::now() }
    }

    fn row(&self, state: &State) -> MachineRow {
        let known = locked(&self.known).clone();
        let (state, since, why) = match state {
            State::Reachable(reachable) => (MachineState::Reachable, reachable.since, None),
            State::Unreachable { why, since } => {
                (MachineState::Unreachable, *since, Some(why.clone()))
            }
            State::Starting => (MachineState::Unreachable, Since::now(), None),
        };
        MachineRow {
            name: self.name.clone(),
            state,
            place: Some(self.place.clone()),
            location: known.as_ref().map(|(_, location)| location.to_string()),
            epoch: known.as_ref().map(|(hello, _)| hello.epoch),
            version: known.map(|(hello, _)| hello.version),
            since: since.seconds(),
            seconds: since.exact.elapsed().as_secs(),
            why,
        }
    }
}

/// Prints a line to standard error.
fn complain(what: &str) {
    // A line of a peer must not steer the terminal.
    let plain: String = what.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    eprintln!("kumi: border: {plain}");
}

#[cfg(test)]
mod tests;
