//! The sink of a stream: a handler sends items, each when its caller asks for it.

use std::marker::PhantomData;

use serde::{Serialize, de::DeserializeOwned};

use crate::error::{Error, ErrorKind};
use crate::lane::ReplyHeader;
use crate::region::sealed::Region;
use crate::server::request::Job;
use crate::wire::codec::{Codec, Typed};
use crate::wire::message::Status;

/// The sink of a stream: a handler sends its items here.
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

    /// Sends an item when the caller has asked for it. Blocks the microprocess until then.
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
        // The header's region holds an item that is too large for the cell.
        let header =
            ReplyHeader { status: Status::Item.number(), regions, ..ReplyHeader::default() };
        request.link.send_item(request.cell, &header, payload)
    }

    /// Waits until the handler has the cell, in which the end of the stream is sent.
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
