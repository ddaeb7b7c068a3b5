//! Gate of bytes, without a type and a codec.

use std::sync::Arc;
use std::time::Duration;

use crate::client::call::Client;
use crate::client::stream::Stream;
use crate::error::Error;
use crate::options::Options;
use crate::region::sealed::Region;
use crate::server::request::{Context, Job};
use crate::server::serving::{self, Serving};
use crate::server::sink::Sink;
use crate::server::worker_pool::WorkerPool;

/// The client of a gate that takes and returns bytes, as they are: for other codecs and languages.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::gate::{Options, RawGate};
///
/// let _serving = RawGate::serve("reverse", &Options::new(), |request, _context, reply| {
///     reply.extend(request.iter().rev());
///     Ok(Vec::new())
/// })?;
///
/// let reverse = RawGate::connect("reverse")?;
/// let mut reply = Vec::new();
/// reverse.call(b"stressed", &mut reply)?;
/// assert_eq!(reply, b"desserts");
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
#[derive(Clone)]
pub struct RawGate {
    client: Arc<Client>,
}

impl std::fmt::Debug for RawGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawGate").field("name", &self.client.name).finish_non_exhaustive()
    }
}

impl RawGate {
    /// As [`Gate::connect`](crate::Gate::connect). Blocks the microprocess until the server has
    /// answered.
    ///
    /// # Errors
    /// As there; `Version`: the server serves types.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{ErrorKind, Gate, RawGate};
    ///
    /// let _serving = Gate::serve("square", |n: u32| n * n)?;
    /// let error = RawGate::connect("square").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Version, "the gate takes typed requests");
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn connect(name: &str) -> Result<RawGate, Error> {
        RawGate::connect_with(name, &Options::new())
    }

    /// As [`Gate::connect_with`](crate::Gate::connect_with). Blocks the microprocess until the
    /// server has answered.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{ErrorKind, Options, RawGate};
    ///
    /// let _serving = RawGate::serve("sink", &Options::new(), |_, _, _| Ok(Vec::new()))?;
    /// let sink = RawGate::connect_with("sink", &Options::new().largest(4))?;
    /// assert!(sink.call(b"four", &mut Vec::new()).is_ok());
    /// let error = sink.call(b"more than four", &mut Vec::new()).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TooLarge);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn connect_with(name: &str, options: &Options) -> Result<RawGate, Error> {
        Ok(RawGate { client: Client::connect(name, options, None)? })
    }

    /// Serves a gate of bytes with streams. For the border.
    ///
    /// # Errors
    /// See [`Gate::serve`](crate::Gate::serve).
    #[doc(hidden)]
    pub fn serve_stream(
        name: &str,
        options: &Options,
        handler: impl Fn(&[u8], &Context<'_>, &Sink<'_, ()>) -> Result<(), Error>
        + Send
        + Sync
        + 'static,
    ) -> Result<Serving, Error> {
        let serving = serving::open(name, options, None, false)?;
        let handler = move |request: &[u8], job: &Job<'_>, _: &mut Vec<u8>| {
            let sink = Sink::new(job);
            handler(request, &job.context, &sink)?;
            sink.end()?;
            Ok(Vec::new())
        };
        WorkerPool::start(&serving, Box::new(handler), true)?;
        Ok(serving)
    }

    /// Begins a stream, whose items are taken as bytes. For the border.
    ///
    /// # Errors
    /// See [`Gate::stream`](crate::Gate::stream).
    #[doc(hidden)]
    pub fn stream(&self, request: &[u8]) -> Result<Stream<()>, Error> {
        Stream::begin(&self.client, request)
    }

    /// Connects to a gate with types, whose hash was made elsewhere. For the border.
    ///
    /// # Errors
    /// See [`Gate::connect`](crate::Gate::connect).
    #[doc(hidden)]
    pub fn connect_as(name: &str, options: &Options, types: Option<u64>) -> Result<RawGate, Error> {
        Ok(RawGate { client: Client::connect(name, options, types)? })
    }

    /// As [`Gate::call`](crate::Gate::call); `reply` has the reply and nothing else afterwards.
    /// Blocks the microprocess until the reply has come.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Options, RawGate};
    ///
    /// let _serving = RawGate::serve("upper", &Options::new(), |request, _, reply| {
    ///     reply.extend(request.to_ascii_uppercase());
    ///     Ok(Vec::new())
    /// })?;
    /// let mut reply = b"former contents".to_vec();
    /// RawGate::connect("upper")?.call(b"loud", &mut reply)?;
    /// assert_eq!(reply, b"LOUD");
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn call(&self, request: &[u8], reply: &mut Vec<u8>) -> Result<(), Error> {
        self.client.call(request, &[], None, reply).map(drop)
    }

    /// As [`Gate::call_within`](crate::Gate::call_within). Blocks the microprocess for that time at
    /// most.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{ErrorKind, Options, RawGate};
    /// use kumihimo::thread;
    /// use std::time::Duration;
    ///
    /// let _serving = RawGate::serve("slow", &Options::new(), |_, _, _| {
    ///     thread::sleep(Duration::from_secs(3600));
    ///     Ok(Vec::new())
    /// })?;
    /// let slow = RawGate::connect("slow")?;
    /// let error = slow.call_within(b"", &mut Vec::new(), Duration::from_millis(5)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn call_within(
        &self,
        request: &[u8],
        reply: &mut Vec<u8>,
        time: Duration,
    ) -> Result<(), Error> {
        self.client.call(request, &[], Some(time), reply).map(drop)
    }

    /// As [`Gate::call_with`](crate::Gate::call_with). Blocks the microprocess until the reply has
    /// come.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Options, RawGate, Region};
    ///
    /// // Sends the regions of the request back.
    /// let _serving = RawGate::serve("back", &Options::new(), |_, context, _| context.regions())?;
    ///
    /// let region = Region::copy_of(b"by reference")?;
    /// let back = RawGate::connect("back")?.call_with(b"", &[region], &mut Vec::new())?;
    /// assert_eq!(&back[0][..], b"by reference");
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn call_with(
        &self,
        request: &[u8],
        regions: &[Region],
        reply: &mut Vec<u8>,
    ) -> Result<Vec<Region>, Error> {
        self.client.call(request, regions, None, reply)
    }

    /// As [`Gate::call_with_within`](crate::Gate::call_with_within). Blocks the microprocess for
    /// that time at most.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Options, RawGate, Region};
    /// use std::time::Duration;
    ///
    /// let _serving = RawGate::serve("back", &Options::new(), |_, context, _| context.regions())?;
    /// let region = Region::copy_of(b"by reference")?;
    /// let minute = Duration::from_secs(60);
    /// let back =
    ///     RawGate::connect("back")?.call_with_within(b"", &[region], &mut Vec::new(), minute)?;
    /// assert_eq!(back.len(), 1);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn call_with_within(
        &self,
        request: &[u8],
        regions: &[Region],
        reply: &mut Vec<u8>,
        time: Duration,
    ) -> Result<Vec<Region>, Error> {
        self.client.call(request, regions, Some(time), reply)
    }

    /// As [`Gate::send`](crate::Gate::send). Blocks the microprocess only while the lane has no
    /// free cell.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Options, RawGate};
    /// use std::sync::mpsc;
    ///
    /// let (sender, lines) = mpsc::channel();
    /// let _serving = RawGate::serve("log", &Options::new(), move |line, _, _| {
    ///     sender.send(line.to_vec()).unwrap();
    ///     Ok(Vec::new())
    /// })?;
    /// let log = RawGate::connect("log")?;
    /// log.send(b"started")?;
    /// assert_eq!(lines.recv().unwrap(), b"started");
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn send(&self, request: &[u8]) -> Result<(), Error> {
        self.client.send(request)
    }

    /// Calls of this client that are under way.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Options, RawGate};
    ///
    /// let _serving = RawGate::serve("sink", &Options::new(), |_, _, _| Ok(Vec::new()))?;
    /// let sink = RawGate::connect("sink")?;
    /// sink.call(b"request", &mut Vec::new())?;
    /// assert_eq!(sink.under_way(), 0);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.client.under_way()
    }

    /// As [`Gate::serve`](crate::Gate::serve): `handler` gets the request, and writes the reply
    /// into an empty buffer. Blocks the kernel thread as `Gate::serve` does.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Error, ErrorKind, Options, RawGate};
    ///
    /// let _serving = RawGate::serve("first", &Options::new(), |request, _context, reply| {
    ///     let first = request.first().ok_or_else(|| Error::new(ErrorKind::Invalid, "no bytes"))?;
    ///     reply.push(*first);
    ///     Ok(Vec::new())
    /// })?;
    ///
    /// let (first, mut reply) = (RawGate::connect("first")?, Vec::new());
    /// first.call(b"abc", &mut reply)?;
    /// assert_eq!(reply, b"a");
    /// assert_eq!(first.call(b"", &mut reply).unwrap_err().kind(), ErrorKind::Invalid);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn serve(
        name: &str,
        options: &Options,
        handler: impl Fn(&[u8], &Context<'_>, &mut Vec<u8>) -> Result<Vec<Region>, Error>
        + Send
        + Sync
        + 'static,
    ) -> Result<Serving, Error> {
        let serving = serving::open(name, options, None, false)?;
        let handler = move |request: &[u8], job: &Job<'_>, reply: &mut Vec<u8>| {
            handler(request, &job.context, reply)
        };
        WorkerPool::start(&serving, Box::new(handler), false)?;
        Ok(serving)
    }
}
