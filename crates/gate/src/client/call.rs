//! The client of a gate: the steps of a call.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kumihimo_machine::Machine;
use kumihimo_runtime::{cancel, lock, thread};

use crate::client::client_link::{ClientLink, OutgoingRequest};
use crate::client::connect::connect;
use crate::client::destination::{Destination, Remote};
use crate::error::{Error, ErrorKind};
use crate::link::fork;
use crate::options::Options;
use crate::region::sealed::Region;
use crate::wire::message::RequestKind;
use crate::wire::remote_call::{BORDER, BORDER_STREAMS, RemoteKind};

/// The client of a gate. All clones of a [`Gate`](crate::Gate) share one. It connects anew after
/// the server was replaced.
pub(crate) struct Client {
    pub(crate) name: Box<str>,
    options: Options,
    /// The gate to which the link leads: that of the border, if the server is on another machine.
    linked: Box<str>,
    /// The server, if it is on another machine.
    remote: Option<Remote>,
    /// The hash of the types for the link's server; none for bytes.
    types: Option<u64>,
    link: Mutex<Arc<ClientLink>>,
    /// The link to the border for streams, once there was one.
    streams: Mutex<Option<Arc<ClientLink>>>,
    /// Held while one thread connects.
    connecting: Mutex<()>,
}

impl Client {
    /// Connects to a gate.
    ///
    /// # Errors
    /// See [`Gate::connect`](crate::Gate::connect).
    pub(crate) fn connect(
        name: &str,
        options: &Options,
        types: Option<u64>,
    ) -> Result<Arc<Client>, Error> {
        let own = || Ok(options.directory.as_deref().map_or_else(Machine::mine, Machine::at)?);
        let (linked, remote, types) = match Destination::parse(name, types, own)? {
            Destination::Here(gate) => (gate, None, types),
            Destination::Remote(remote) => (BORDER.into(), Some(remote), None),
        };
        let link = connect(&linked, options, types);
        let link =
            link.map_err(|e| if remote.is_some() { without_border(e).of_gate(name) } else { e })?;
        let client = Client {
            name: name.into(),
            options: options.clone(),
            linked,
            remote,
            types,
            link: Mutex::new(link),
            streams: Mutex::new(None),
            connecting: Mutex::new(()),
        };
        if let Some(remote) = &client.remote {
            let probe = remote.encode(RemoteKind::Probe, &[]);
            let probed = client.exchange(&probe, &[], None, &mut Vec::new());
            probed.map_err(|e| e.without_gate(BORDER).of_gate(name))?;
        }
        Ok(Arc::new(client))
    }

    /// Calls: writes the request into a cell of the lane, pushes it, waits, and reads the reply.
    /// `reply` has the reply's payload afterwards; its regions are returned. Blocks the
    /// microprocess; a cancellation point: cancellation reaches the handler.
    ///
    /// # Errors
    /// See [`Gate::call`](crate::Gate::call).
    pub(crate) fn call(
        &self,
        payload: &[u8],
        regions: &[Region],
        within: Option<Duration>,
        reply: &mut Vec<u8>,
    ) -> Result<Vec<Region>, Error> {
        let Some(remote) = &self.remote else {
            return self.exchange(payload, regions, within, reply);
        };
        if !regions.is_empty() {
            let text = "regions share memory, which two machines do not have: send bytes";
            return Err(Error::new(ErrorKind::Invalid, text).of_gate(&self.name));
        }
        let wrapped = remote.encode(RemoteKind::Call, payload);
        let outcome = self.exchange(&wrapped, &[], within, reply);
        outcome.map_err(|e| e.without_gate(BORDER).of_gate(&self.name))
    }

    /// Calls the server of the link.
    fn exchange(
        &self,
        payload: &[u8],
        regions: &[Region],
        within: Option<Duration>,
        reply: &mut Vec<u8>,
    ) -> Result<Vec<Region>, Error> {
        let request = self.request(RequestKind::Call, payload, regions, within)?;
        let link = self.link()?;
        let cell = link.write_request(&request)?.push(request.kind)?;
        link.wait(cell, request.deadline)?;
        let guard = link.guard(cell);
        let header = link.take_reply(cell, reply)?;
        drop(guard);
        let header = link.check_status(header, reply)?;
        link.reply_regions(&header)
    }

    /// Sends a request without a reply. Blocks the microprocess while all cells are in use.
    ///
    /// # Errors
    /// See [`Gate::send`](crate::Gate::send).
    pub(crate) fn send(&self, payload: &[u8]) -> Result<(), Error> {
        let wrapped = self.remote.as_ref().map(|remote| remote.encode(RemoteKind::Send, payload));
        let payload = wrapped.as_deref().unwrap_or(payload);
        let request = self.request(RequestKind::Send, payload, &[], None)?;
        self.link()?.write_request(&request)?.push(request.kind)?;
        Ok(())
    }

    /// The request, if this client may make it: its deadline is that of the enclosing scope, or
    /// `within` if that ends earlier.
    ///
    /// # Errors
    /// `TooLarge`; `Io`: this is a fork's child.
    pub(crate) fn request<'a>(
        &self,
        kind: RequestKind,
        payload: &'a [u8],
        regions: &'a [Region],
        within: Option<Duration>,
    ) -> Result<OutgoingRequest<'a>, Error> {
        if payload.len() > self.options.most {
            let (len, most) = (payload.len(), self.options.most);
            let text = format!(
                "gate {:?}: a request of {len} bytes, and {most} are the most: Options::largest",
                self.name
            );
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        if fork::in_forked_child() {
            return Err(fork::forked_child_error());
        }
        // A time beyond the clock's range is no deadline.
        let deadline = cancel::earlier(
            within.and_then(|time| Instant::now().checked_add(time)),
            cancel::deadline(),
        );
        Ok(OutgoingRequest { kind, payload, regions, deadline, priority: self.options.priority })
    }

    /// Returns the link for streams, and the request for a stream as its server takes it.
    ///
    /// # Errors
    /// See [`Gate::connect`](crate::Gate::connect).
    pub(crate) fn stream_link<'a>(
        &self,
        payload: &'a [u8],
    ) -> Result<(Arc<ClientLink>, Cow<'a, [u8]>), Error> {
        let Some(remote) = &self.remote else { return Ok((self.link()?, payload.into())) };
        let wrapped = remote.encode(RemoteKind::Stream, payload).into();
        if let Some(link) = lock(&self.streams).clone().filter(|link| !link.is_gone()) {
            return Ok((link, wrapped));
        }
        let link = thread::blocking(|| connect(BORDER_STREAMS, &self.options, None))
            .map_err(|e| without_border(e).of_gate(&self.name))?;
        let before = lock(&self.streams).replace(link.clone());
        drop(before);
        Ok((link, wrapped))
    }

    /// The link to the server that the gate has now.
    ///
    /// # Errors
    /// See [`Gate::connect`](crate::Gate::connect).
    pub(crate) fn link(&self) -> Result<Arc<ClientLink>, Error> {
        let link = lock(&self.link).clone();
        if link.is_gone() { self.reconnect() } else { Ok(link) }
    }

    #[cold]
    fn reconnect(&self) -> Result<Arc<ClientLink>, Error> {
        // Kernel threads wait for each other here; a microprocess would keep its virtual processor
        // from others.
        thread::blocking(|| {
            let _one = self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
            let link = lock(&self.link).clone();
            if !link.is_gone() {
                return Ok(link);
            }
            // A caller that connects again without knowing why would exceed the quota again.
            if let Some(why) = link.unreported_cut() {
                return Err(why);
            }
            let new = connect(&self.linked, &self.options, self.types).map_err(|e| {
                match self.remote {
                    Some(_) => without_border(e).of_gate(&self.name),
                    None => e,
                }
            })?;
            let old = std::mem::replace(&mut *lock(&self.link), new.clone());
            drop(old);
            Ok(new)
        })
    }

    /// How many calls are under way.
    pub(crate) fn under_way(&self) -> usize {
        lock(&self.link).under_way()
    }
}

/// Returns the error of a link to the border: without a border, no machine is reachable.
fn without_border(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::new(
            ErrorKind::Unreachable,
            "no border runs here: start `kumi border` to reach other machines",
        ),
        _ => error,
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !fork::in_forked_child() {
            lock(&self.link).close();
            if let Some(link) = lock(&self.streams).take() {
                link.close();
            }
        }
    }
}
