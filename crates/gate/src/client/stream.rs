//! Streams: replies one after the other, each when the caller asks for it. So memory is bounded by
//! one item, and a slow caller slows its server down.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use kumihimo_runtime::cancel;
use serde::{Serialize, de::DeserializeOwned};

use crate::client::call::Client;
use crate::client::client_link::ClientLink;
use crate::error::{Error, ErrorKind};
use crate::lane::CellNo;
use crate::wire::codec::{Codec, Typed};
use crate::wire::message::{RequestKind, Status};

/// The items of a stream, as they come. Dropping it ends the stream on the server. `next` blocks
/// the microprocess until the next item has come.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::gate::{Gate, Options, Stream};
///
/// let _serving = Gate::serve_stream("powers", &Options::new(), |base: u64, sink| {
///     (0..).try_for_each(|n| sink.send(&base.pow(n)))
/// })?;
///
/// let gate = Gate::<u64, u64>::connect("powers")?;
/// let mut powers: Stream<u64> = gate.stream(&2)?;
/// assert_eq!(powers.next().unwrap()?, 1);
/// assert_eq!(powers.next().unwrap()?, 2);
/// // The server computes no further items.
/// drop(powers);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
pub struct Stream<R> {
    link: Arc<ClientLink>,
    /// The cell, until the stream has ended.
    cell: Option<CellNo>,
    /// The next item was requested, and not yet taken.
    requested: bool,
    _item: PhantomData<fn() -> R>,
}

impl<R> std::fmt::Debug for Stream<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl<R> Stream<R> {
    pub(crate) fn begin(client: &Client, payload: &[u8]) -> Result<Stream<R>, Error> {
        let (link, payload) = client.stream_link(payload)?;
        let request = client.request(RequestKind::Stream, &payload, &[], None)?;
        let cell = link.write_request(&request)?.push(request.kind)?;
        Ok(Stream { link, cell: Some(cell), requested: true, _item: PhantomData })
    }
}

impl<R> Stream<R> {
    /// Takes the next item, as its bytes.
    fn take(&mut self, cell: CellNo) -> Result<Option<Vec<u8>>, Error> {
        // Checked here, since a wait may never block where items come fast.
        cancel::point();
        let deadline = cancel::deadline();
        if deadline.is_some_and(|at| Instant::now() >= at) {
            let text = format!(
                "gate {:?}: the deadline came between two items of the stream",
                self.link.gate
            );
            return Err(Error::new(ErrorKind::TimedOut, text));
        }
        if !self.requested {
            self.link.request_next(cell)?;
        }
        // Until the reply is there the cell is not ours to give back.
        self.cell = None;
        self.link.wait(cell, deadline)?;
        self.requested = false;
        let mut bytes = Vec::new();
        let guard = self.link.guard(cell);
        let header = self.link.take_reply(cell, &mut bytes)?;
        let header = self.link.check_status(header, &bytes)?;
        if Status::of(header.status) != Some(Status::Item) {
            return Ok(None);
        }
        self.cell = Some(guard.into_cell());
        if header.regions[0] != 0 {
            let whole = self.link.region(header.regions[0])?;
            self.link.check_reply_size(whole.len())?;
            return Ok(Some(whole.to_vec()));
        }
        Ok(Some(bytes))
    }

    /// Waits for the next item, as [`next`](Iterator::next) does, and returns its bytes. For the
    /// border.
    #[doc(hidden)]
    pub fn next_bytes(&mut self) -> Option<Result<Vec<u8>, Error>> {
        let cell = self.cell?;
        let taken = self.take(cell);
        if taken.is_err() {
            self.leave();
        }
        taken.transpose()
    }
}

impl<R: Serialize + DeserializeOwned> Iterator for Stream<R> {
    type Item = Result<R, Error>;

    /// Waits for the next item. Blocks the microprocess; a cancellation point. After an error or
    /// the end there is no more.
    fn next(&mut self) -> Option<Result<R, Error>> {
        let item = self.next_bytes()?.and_then(|bytes| Typed::<R>::decode(&bytes));
        if item.is_err() {
            self.leave();
        }
        Some(item)
    }
}

impl<R> Stream<R> {
    /// Ends the stream.
    fn leave(&mut self) {
        let Some(cell) = self.cell.take() else { return };
        if self.requested { self.link.abandon(cell) } else { self.link.stop_stream(cell) }
    }
}

impl<R> Drop for Stream<R> {
    fn drop(&mut self) {
        self.leave();
    }
}
