//! Streams: replies one after the other, each when the caller asks for it. So memory is bounded by
//! one item, and a slow caller slows its server down.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use kumihimo_runtime::cancel;
use serde::{Serialize, de::DeserializeOwned};

use crate::client_link::ClientLink;
use crate::codec::{Codec, Typed};
use crate::gate::Client;
use crate::lane::{CellNo, ReplyHeader};
use crate::message::{RequestKind, Status};
use crate::serve::Job;
use crate::{Error, ErrorKind, Region};

/// Where a handler sends the items of a stream.
pub struct Sink<'a, R> {
    job: &'a Job<'a>,
    _item: PhantomData<fn(R)>,
}

impl<R> std::fmt::Debug for Sink<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

impl<'a, R: Serialize + DeserializeOwned> Sink<'a, R> {
    pub(crate) fn new(job: &'a Job<'a>) -> Sink<'a, R> {
        Sink { job, _item: PhantomData }
    }

    /// Sends an item as soon as the caller wants it. Blocks the microprocess until then.
    ///
    /// # Errors
    /// `Cancelled`: the caller wants no more, or has ended. `Invalid`, `TooLarge`: it cannot be
    /// sent.
    pub fn send(&self, item: &R) -> Result<(), Error> {
        let request = self.job.request;
        let mut bytes = Vec::with_capacity(64);
        Typed::<R>::encode(item, &mut bytes)?;
        request.link.service.check_size("an item", bytes.len())?;
        let (mut regions, mut payload) = (Default::default(), &bytes[..]);
        if payload.len() > request.link.inline() {
            regions = request.link.pass_regions(&[Region::copy_of(payload)?])?;
            payload = &[];
        }
        self.await_turn()?;
        // An item that lies elsewhere is told by its region.
        let header =
            ReplyHeader { status: Status::Item.number(), regions, ..ReplyHeader::default() };
        request.link.send_item(request.cell, &header, payload)
    }

    /// The cell is here again: what ends the stream can be said.
    pub(crate) fn end(&self) -> Result<(), Error> {
        self.await_turn()
    }

    fn await_turn(&self) -> Result<(), Error> {
        let request = self.job.request;
        if request.link.await_turn(request.cell) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Cancelled, "the caller wants no more of the stream"))
    }
}

/// The items of a stream, as they come. Dropping it tells the server that no more are wanted.
pub struct Stream<R> {
    client: Arc<ClientLink>,
    /// Until the stream is over.
    cell: Option<CellNo>,
    /// Asked for, and not yet taken.
    requested: bool,
    _item: PhantomData<fn() -> R>,
}

impl<R> std::fmt::Debug for Stream<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl<R> Stream<R> {
    pub(crate) fn begin(inner: &Client, requested: &[u8]) -> Result<Stream<R>, Error> {
        let request = inner.request(RequestKind::Stream, requested, &[], None)?;
        let client = inner.client()?;
        let cell = client.submit(&request)?;
        Ok(Stream { client, cell: Some(cell), requested: true, _item: PhantomData })
    }
}

impl<R: Serialize + DeserializeOwned> Stream<R> {
    fn take(&mut self, cell: CellNo) -> Result<Option<R>, Error> {
        // Here, since items may come so fast that no wait for one ends otherwise.
        cancel::point();
        let deadline = cancel::deadline();
        if deadline.is_some_and(|at| Instant::now() >= at) {
            let text = format!(
                "gate {:?}: the deadline came between two items of the stream",
                self.client.gate
            );
            return Err(Error::new(ErrorKind::TimedOut, text));
        }
        if !self.requested {
            self.client.request_next(cell)?;
        }
        // Until the reply is there the cell is not ours to give back.
        self.cell = None;
        self.client.wait(cell, deadline)?;
        self.requested = false;
        let mut bytes = Vec::new();
        let guard = self.client.guard(cell);
        let header = self.client.take_reply(cell, &mut bytes)?;
        let header = self.client.check_status(header, &bytes)?;
        if Status::of(header.status) != Some(Status::Item) {
            return Ok(None);
        }
        self.cell = Some(guard.into_cell());
        if header.regions[0] != 0 {
            let whole = self.client.endpoint.regions.get(u64::from(header.regions[0]), true)?;
            self.client.check_reply_size(whole.len())?;
            return Typed::<R>::decode(&whole).map(Some);
        }
        Typed::<R>::decode(&bytes).map(Some)
    }
}

impl<R: Serialize + DeserializeOwned> Iterator for Stream<R> {
    type Item = Result<R, Error>;

    /// Waits for the next item. Blocks the microprocess; a cancellation point. After an error or
    /// the end there is no more.
    fn next(&mut self) -> Option<Result<R, Error>> {
        let cell = self.cell?;
        let taken = self.take(cell);
        if taken.is_err() {
            self.leave();
        }
        taken.transpose()
    }
}

impl<R> Stream<R> {
    /// No more items are wanted.
    fn leave(&mut self) {
        let Some(cell) = self.cell.take() else { return };
        if self.requested { self.client.abandon(cell) } else { self.client.stop_stream(cell) }
    }
}

impl<R> Drop for Stream<R> {
    fn drop(&mut self) {
        self.leave();
    }
}
