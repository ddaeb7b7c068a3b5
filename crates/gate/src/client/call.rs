//! The client of a gate: the steps of a call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kumihimo_runtime::{cancel, lock, thread};

use crate::client::client_link::{ClientLink, OutgoingRequest};
use crate::client::connect::connect;
use crate::error::{Error, ErrorKind};
use crate::link::fork;
use crate::options::Options;
use crate::region::sealed::Region;
use crate::wire::message::RequestKind;

/// The client of a gate. All clones of a [`Gate`](crate::Gate) share one. It connects anew after
/// the server was replaced.
pub(crate) struct Client {
    pub(crate) name: Box<str>,
    options: Options,
    /// The hash of the types; none for bytes.
    types: Option<u64>,
    link: Mutex<Arc<ClientLink>>,
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
        let link = Mutex::new(connect(name, options, types)?);
        Ok(Arc::new(Client {
            name: name.into(),
            options: options.clone(),
            types,
            link,
            connecting: Mutex::new(()),
        }))
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
            let new = connect(&self.name, &self.options, self.types)?;
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

impl Drop for Client {
    fn drop(&mut self) {
        if !fork::in_forked_child() {
            lock(&self.link).close();
        }
    }
}
