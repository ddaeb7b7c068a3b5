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
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::gate::{Gate, Options, Sink};
///
/// fn count(up_to: u32, sink: &Sink<'_, u32>) -> Result<(), kumihimo::gate::Error> {
///     (1..=up_to).try_for_each(|n| sink.send(&n))
/// }
///
/// let _serving = Gate::serve_stream("count", &Options::new(), count)?;
/// let count = Gate::<u32, u32>::connect("count")?;
/// assert_eq!(count.stream(&3)?.collect::<Result<Vec<_>, _>>()?, [1, 2, 3]);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{ErrorKind, Gate, Options};
    /// use std::sync::mpsc;
    ///
    /// let (sender, ends) = mpsc::channel();
    /// let _serving = Gate::serve_stream("tick", &Options::new(), move |(): (), sink| loop {
    ///     if let Err(error) = sink.send(&1_u32) {
    ///         sender.send(error.kind()).unwrap();
    ///         return Err(error);
    ///     }
    /// })?;
    ///
    /// let tick = Gate::<(), u32>::connect("tick")?;
    /// let mut ticks = tick.stream(&())?;
    /// assert_eq!(ticks.next().unwrap()?, 1);
    /// drop(ticks);
    /// assert_eq!(ends.recv().unwrap(), ErrorKind::Cancelled);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn send(&self, item: &R) -> Result<(), Error> {
        let mut bytes = Vec::with_capacity(64);
        Typed::<R>::encode(item, &mut bytes)?;
        self.send_bytes(&bytes)
    }

    /// Sends the bytes of an item, as [`send`](Sink::send) does. For the border.
    ///
    /// # Errors
    /// See [`send`](Sink::send).
    #[doc(hidden)]
    pub fn send_bytes(&self, bytes: &[u8]) -> Result<(), Error> {
        let request = self.job.request;
        request.link.service.check_size("an item", bytes.len())?;
        let (mut regions, mut payload) = (Default::default(), bytes);
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
