//! Gate with types, as its users see it. `raw_gate` has the one with bytes.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};

use crate::client::call::Client;
use crate::client::stream::Stream;
use crate::error::Error;
use crate::options::Options;
use crate::region::sealed::Region;
use crate::server::request::{Context, Job};
use crate::server::server_loop::Server;
use crate::server::serving::{self, Serving};
use crate::server::sink::Sink;
use crate::server::worker_pool::WorkerPool;
use crate::wire::codec::{Codec, Typed};
use crate::wire::type_hash;

/// The client of a gate: requests of type `Q`, replies of type `R`, both any serde type. Cheap to
/// clone and to share; all clones have one lane, and calls of any number of microprocesses are
/// under way at once.
///
/// *At most once*: a request is handled once or not at all. When the server ends during a call, the
/// caller gets an error of kind `Gone` and cannot know which; the next call connects to the server
/// that the gate has then.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::gate::Gate;
///
/// // In one process:
/// let _serving = Gate::serve("adder", |(a, b): (u32, u32)| a + b)?;
///
/// // In another process:
/// let adder = Gate::<(u32, u32), u32>::connect("adder")?;
/// assert_eq!(adder.call(&(2, 3))?, 5);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
pub struct Gate<Q, R> {
    client: Arc<Client>,
    _types: PhantomData<fn(Q) -> R>,
}

impl<Q, R> Clone for Gate<Q, R> {
    fn clone(&self) -> Self {
        Gate { client: self.client.clone(), _types: PhantomData }
    }
}

impl<Q, R> std::fmt::Debug for Gate<Q, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("name", &self.client.name).finish_non_exhaustive()
    }
}

impl<Q: Serialize + DeserializeOwned, R: Serialize + DeserializeOwned> Gate<Q, R> {
    /// Connects to the gate of this name. Blocks the microprocess until the server has answered.
    ///
    /// `build7/square` is a gate of machine `build7`, which the border of this machine reaches
    /// (`kumi border`). `*/square` is a gate of this machine if it is served here, and otherwise of
    /// any machine that serves it. A name without a machine is always of this one. Over machines
    /// there are no regions.
    ///
    /// # Errors
    /// `Unreachable`: the machine is not reachable, or no border runs.
    /// `NotFound`: the gate is not served. `NotPermitted`: not this user. `Version`: the server is
    /// of another version of Kumihimo, or serves bytes. `TimedOut`: the server is stopped, or does
    /// not answer. `Exhausted`: descriptors, memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{ErrorKind, Gate};
    ///
    /// let error = Gate::<u32, u32>::connect("square").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::NotFound);
    ///
    /// let _serving = Gate::serve("square", |n: u32| n * n)?;
    /// assert_eq!(Gate::<u32, u32>::connect("square")?.call(&7)?, 49);
    /// // The gate has other types.
    /// let error = Gate::<String, u32>::connect("square").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Version);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn connect(name: &str) -> Result<Gate<Q, R>, Error> {
        Gate::connect_with(name, &Options::new())
    }

    /// As [`connect`](Gate::connect), with options. Blocks the microprocess until the server has
    /// answered.
    ///
    /// # Errors
    /// As `connect`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    /// use std::time::Duration;
    ///
    /// let _serving = Gate::serve("square", |n: u32| n * n)?;
    /// let options = Options::new().patience(Duration::from_secs(1)).priority(50);
    /// let square = Gate::<u32, u32>::connect_with("square", &options)?;
    /// assert_eq!(square.call(&7)?, 49);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn connect_with(name: &str, options: &Options) -> Result<Gate<Q, R>, Error> {
        Ok(Gate {
            client: Client::connect(name, options, Some(type_hash::of::<Q, R>()))?,
            _types: PhantomData,
        })
    }

    /// Calls: the request is handled at the caller's priority, and the reply comes back. Blocks the
    /// microprocess; a cancellation point: cancellation reaches the handler. On a kernel thread
    /// that is no microprocess it blocks that. Ends at the deadline of an enclosing scope at the
    /// latest.
    ///
    /// # Errors
    /// `Gone`: the server ended; the request may or may not have been carried out. `TimedOut`;
    /// `Panicked`: the handler did; `Cancelled`: the server dropped the request; `Malformed`: the
    /// reply is not of type `R`; `TooLarge`; `Deadlock`: the call came back to a server that waits
    /// for it; what the handler failed with.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    /// use kumihimo::thread;
    ///
    /// let _serving = Gate::serve("upper", |text: String| text.to_uppercase())?;
    /// let upper = Gate::<String, String>::connect("upper")?;
    /// // Any number of microprocesses may call at once.
    /// thread::scope(|s| {
    ///     for (word, expected) in [("one", "ONE"), ("two", "TWO"), ("three", "THREE")] {
    ///         let upper = &upper;
    ///         s.spawn(move || assert_eq!(upper.call(&word.to_owned()).unwrap(), expected));
    ///     }
    /// });
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn call(&self, request: &Q) -> Result<R, Error> {
        let mut reply = Vec::new();
        self.client.call(&encoded(request)?, &[], None, &mut reply)?;
        Typed::<R>::decode(&reply)
    }

    /// As [`call`](Gate::call), with a time within which the reply has to come. Blocks the
    /// microprocess for that time at most.
    ///
    /// # Errors
    /// As `call`. After `TimedOut` the request may still be carried out.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{ErrorKind, Gate};
    /// use kumihimo::thread;
    /// use std::time::Duration;
    ///
    /// let _serving = Gate::serve("sleep", |ms: u64| thread::sleep(Duration::from_millis(ms)))?;
    /// let sleep = Gate::<u64, ()>::connect("sleep")?;
    /// sleep.call_within(&0, Duration::from_secs(60))?;
    /// let error = sleep.call_within(&3_600_000, Duration::from_millis(5)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn call_within(&self, request: &Q, time: Duration) -> Result<R, Error> {
        let mut reply = Vec::new();
        self.client.call(&encoded(request)?, &[], Some(time), &mut reply)?;
        Typed::<R>::decode(&reply)
    }

    /// As [`call`](Gate::call), with regions that go along by reference, four at most; and those
    /// that come back. A region that is passed again costs nothing. Blocks the microprocess until
    /// the reply has come.
    ///
    /// # Errors
    /// As `call`; `Invalid`: too many.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options, Region};
    ///
    /// let options = Options::new();
    /// let _serving = Gate::serve_regions("count", &options, |byte: u8, context| {
    ///     let regions = context.regions()?;
    ///     Ok((regions[0].iter().filter(|b| **b == byte).count(), vec![Region::copy_of(b"done")?]))
    /// })?;
    ///
    /// let text = Region::copy_of(b"banana")?;
    /// let (count, back) = Gate::<u8, usize>::connect("count")?.call_with(&b'a', &[text])?;
    /// assert_eq!(count, 3);
    /// assert_eq!(&back[0][..], b"done");
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn call_with(&self, request: &Q, regions: &[Region]) -> Result<(R, Vec<Region>), Error> {
        let mut reply = Vec::new();
        let back = self.client.call(&encoded(request)?, regions, None, &mut reply)?;
        Ok((Typed::<R>::decode(&reply)?, back))
    }

    /// As [`call_with`](Gate::call_with), with a time within which the reply has to come. Blocks
    /// the microprocess for that time at most.
    ///
    /// # Errors
    /// As `call_with`; `TimedOut`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options, Region};
    /// use std::time::Duration;
    ///
    /// let _serving = Gate::serve_with("length", &Options::new(), |(): (), context| {
    ///     Ok(context.regions()?[0].len())
    /// })?;
    ///
    /// let data = Region::new(1 << 20, |_zeros| {})?;
    /// let length = Gate::<(), usize>::connect("length")?;
    /// let (length, back) = length.call_with_within(&(), &[data], Duration::from_secs(60))?;
    /// assert_eq!((length, back.len()), (1 << 20, 0));
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn call_with_within(
        &self,
        request: &Q,
        regions: &[Region],
        time: Duration,
    ) -> Result<(R, Vec<Region>), Error> {
        let mut reply = Vec::new();
        let back = self.client.call(&encoded(request)?, regions, Some(time), &mut reply)?;
        Ok((Typed::<R>::decode(&reply)?, back))
    }

    /// Sends a request without a reply: it is handled at most once, and its errors are not
    /// reported. Blocks the microprocess only while the lane has no free cell.
    ///
    /// Dropping the last clone of this client discards requests that the server has not yet taken.
    ///
    /// # Errors
    /// `Gone`, `TooLarge`, `Invalid`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    /// use std::sync::mpsc;
    ///
    /// let (sender, lines) = mpsc::channel();
    /// let _serving = Gate::serve("log", move |line: String| sender.send(line).unwrap())?;
    /// let log = Gate::<String, ()>::connect("log")?;
    /// log.send(&"started".to_owned())?;
    /// assert_eq!(lines.recv().unwrap(), "started");
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn send(&self, request: &Q) -> Result<(), Error> {
        self.client.send(&encoded(request)?)
    }

    /// Requests a stream: the server's items come one by one, as they are taken. Blocks the
    /// microprocess only while the lane has no free cell.
    ///
    /// Dropping the last clone of this client ends the stream with `Gone`.
    ///
    /// # Errors
    /// As [`call`](Gate::call), for what goes wrong before the first item.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    ///
    /// let _serving = Gate::serve_stream("up", &Options::new(), |from: u32, sink| {
    ///     (from..).try_for_each(|n| sink.send(&n))
    /// })?;
    ///
    /// let up = Gate::<u32, u32>::connect("up")?;
    /// let three = up.stream(&7)?.take(3).collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(three, [7, 8, 9]);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn stream(&self, request: &Q) -> Result<Stream<R>, Error> {
        Stream::begin(&self.client, &encoded(request)?)
    }

    /// Serves: `handler` is called for each request, in a microprocess at the caller's priority.
    /// The microprocesses are kept and used again, as many as requests are handled at once. Ends
    /// when the returned value is dropped. Blocks the kernel thread while it publishes the name,
    /// usually for some tens of microseconds.
    ///
    /// A handler that panics fails its caller with `Panicked`, and no other. A handler whose caller
    /// has cancelled is cancelled.
    ///
    /// # Errors
    /// `InUse`: a process that lives serves a gate of this name. `Invalid`: the name. `Exhausted`;
    /// `Io`: no run-time directory.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{ErrorKind, Gate};
    ///
    /// let serving = Gate::serve("square", |n: u32| n * n)?;
    /// let square = Gate::<u32, u32>::connect("square")?;
    /// assert_eq!(square.call(&9)?, 81);
    ///
    /// drop(serving);
    /// let kind = square.call(&9).unwrap_err().kind();
    /// assert!(matches!(kind, ErrorKind::Gone | ErrorKind::NotFound));
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn serve(
        name: &str,
        handler: impl Fn(Q) -> R + Send + Sync + 'static,
    ) -> Result<Serving, Error> {
        Gate::serve_with(name, &Options::new(), move |request, _: &Context<'_>| {
            Ok(handler(request))
        })
    }

    /// As [`serve`](Gate::serve), with options. The handler gets the caller's [`Context`], and may
    /// fail. Blocks the kernel thread as `serve` does.
    ///
    /// # Errors
    /// As `serve`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Error, ErrorKind, Gate, Options};
    ///
    /// let _serving = Gate::serve_with("halve", &Options::new(), |n: u32, context| {
    ///     assert_eq!(context.pid(), Some(std::process::id()));
    ///     if n % 2 == 0 { Ok(n / 2) } else { Err(Error::new(ErrorKind::Invalid, "it is odd")) }
    /// })?;
    ///
    /// let halve = Gate::<u32, u32>::connect("halve")?;
    /// assert_eq!(halve.call(&8)?, 4);
    /// assert_eq!(halve.call(&7).unwrap_err().kind(), ErrorKind::Invalid);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn serve_with(
        name: &str,
        options: &Options,
        handler: impl Fn(Q, &Context<'_>) -> Result<R, Error> + Send + Sync + 'static,
    ) -> Result<Serving, Error> {
        Gate::<Q, R>::serve_regions(name, options, move |request, context| {
            handler(request, context).map(|reply| (reply, Vec::new()))
        })
    }

    /// As [`serve_with`](Gate::serve_with), with regions that go back by reference. Blocks the
    /// kernel thread as `serve` does.
    ///
    /// # Errors
    /// As `serve`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options, Region};
    ///
    /// let zeros = Region::new(1 << 20, |_zeros| {})?;
    /// let _serving = Gate::serve_regions("zeros", &Options::new(), move |(): (), _context| {
    ///     // Passed by reference: nothing is copied.
    ///     Ok((zeros.len(), vec![zeros.clone()]))
    /// })?;
    ///
    /// let (length, regions) = Gate::<(), usize>::connect("zeros")?.call_with(&(), &[])?;
    /// assert_eq!(regions[0].len(), length);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn serve_regions(
        name: &str,
        options: &Options,
        handler: impl Fn(Q, &Context<'_>) -> Result<(R, Vec<Region>), Error> + Send + Sync + 'static,
    ) -> Result<Serving, Error> {
        let serving = serving::open(name, options, Some(type_hash::of::<Q, R>()), false)?;
        let handler = move |request: &[u8], job: &Job<'_>, reply: &mut Vec<u8>| {
            let (value, regions) = handler(Typed::<Q>::decode(request)?, &job.context)?;
            Typed::<R>::encode(&value, reply)?;
            Ok(regions)
        };
        WorkerPool::start(&serving, Box::new(handler), false)?;
        Ok(serving)
    }

    /// Serves streams: `handler` sends items to a [`Sink`] as long as the caller wants more. Blocks
    /// the kernel thread as [`serve`](Gate::serve) does.
    ///
    /// # Errors
    /// As [`serve`](Gate::serve).
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    ///
    /// let _serving = Gate::serve_stream("words", &Options::new(), |text: String, sink| {
    ///     text.split(' ').try_for_each(|word| sink.send(&word.to_owned()))
    /// })?;
    ///
    /// let words = Gate::<String, String>::connect("words")?;
    /// let all = words.stream(&"a b c".to_owned())?.collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(all, ["a", "b", "c"]);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn serve_stream(
        name: &str,
        options: &Options,
        handler: impl Fn(Q, &Sink<'_, R>) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Result<Serving, Error> {
        let serving = serving::open(name, options, Some(type_hash::of::<Q, R>()), false)?;
        let handler = move |request: &[u8], job: &Job<'_>, _: &mut Vec<u8>| {
            let sink = Sink::new(job);
            handler(Typed::<Q>::decode(request)?, &sink)?;
            sink.end()?;
            Ok(Vec::new())
        };
        WorkerPool::start(&serving, Box::new(handler), true)?;
        Ok(serving)
    }

    /// Serves by a loop of the application: [`Server::receive`], [`Server::reply_and_receive`].
    /// Blocks the kernel thread as [`serve`](Gate::serve) does.
    ///
    /// # Errors
    /// As [`serve`](Gate::serve).
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    /// use kumihimo::thread;
    ///
    /// let mut server = Gate::<String, usize>::listen("length")?;
    /// let text = "four".to_owned();
    /// let client = thread::spawn(move || Gate::<String, usize>::connect("length")?.call(&text));
    ///
    /// let item = server.receive()?;
    /// let length = item.request.len();
    /// server.reply(item, &length)?;
    /// assert_eq!(client.join().unwrap()?, 4);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn listen(name: &str) -> Result<Server<Q, R>, Error> {
        Server::open(name, &Options::new())
    }

    /// As [`listen`](Gate::listen), with options. Blocks the kernel thread as
    /// [`serve`](Gate::serve) does.
    ///
    /// # Errors
    /// As `serve`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    /// use kumihimo::thread;
    ///
    /// let mut server = Gate::<u32, u32>::listen_with("double", &Options::new().in_flight(16))?;
    /// let client = thread::spawn(|| Gate::<u32, u32>::connect("double")?.call(&21));
    /// let item = server.receive()?;
    /// let double = item.request * 2;
    /// server.reply(item, &double)?;
    /// assert_eq!(client.join().unwrap()?, 42);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn listen_with(name: &str, options: &Options) -> Result<Server<Q, R>, Error> {
        Server::open(name, options)
    }

    /// Calls of this client that are under way.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    ///
    /// // The server has not yet taken the request.
    /// let _server = Gate::<u32, ()>::listen("log")?;
    /// let log = Gate::<u32, ()>::connect("log")?;
    /// assert_eq!(log.under_way(), 0);
    /// log.send(&1)?;
    /// assert_eq!(log.under_way(), 1);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.client.under_way()
    }
}

/// The bytes of a request.
#[inline]
fn encoded<Q: Serialize + DeserializeOwned>(request: &Q) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(64);
    Typed::<Q>::encode(request, &mut bytes)?;
    Ok(bytes)
}
