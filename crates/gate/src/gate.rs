//! A gate, as its users see it: [`Gate`] with types, [`RawGate`] with bytes.

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
    /// # Errors
    /// `NotFound`: the gate is not served. `NotPermitted`: not this user. `Version`: the server is
    /// of another version of Kumihimo, or serves bytes. `TimedOut`: the server is stopped, or does
    /// not answer. `Exhausted`: descriptors, memory.
    pub fn connect(name: &str) -> Result<Gate<Q, R>, Error> {
        Gate::connect_with(name, &Options::new())
    }

    /// As [`connect`](Gate::connect), with options. Blocks the microprocess until the server has
    /// answered.
    ///
    /// # Errors
    /// As `connect`.
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
    /// # Errors
    /// `Gone`, `TooLarge`, `Invalid`.
    pub fn send(&self, request: &Q) -> Result<(), Error> {
        self.client.send(&encoded(request)?)
    }

    /// Requests a stream: the server's items come one by one, as they are taken. Blocks the
    /// microprocess only while the lane has no free cell.
    ///
    /// # Errors
    /// As [`call`](Gate::call), for what goes wrong before the first item.
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
    pub fn listen(name: &str) -> Result<Server<Q, R>, Error> {
        Server::open(name, &Options::new())
    }

    /// As [`listen`](Gate::listen), with options. Blocks the kernel thread as
    /// [`serve`](Gate::serve) does.
    ///
    /// # Errors
    /// As `serve`.
    pub fn listen_with(name: &str, options: &Options) -> Result<Server<Q, R>, Error> {
        Server::open(name, options)
    }

    /// Calls of this client that are under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.client.under_way()
    }
}

/// The client of a gate that takes and returns bytes, as they are: for other codecs and languages.
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
    /// As [`Gate::connect`]. Blocks the microprocess until the server has answered.
    ///
    /// # Errors
    /// As there; `Version`: the server serves types.
    pub fn connect(name: &str) -> Result<RawGate, Error> {
        RawGate::connect_with(name, &Options::new())
    }

    /// As [`Gate::connect_with`]. Blocks the microprocess until the server has answered.
    ///
    /// # Errors
    /// As there.
    pub fn connect_with(name: &str, options: &Options) -> Result<RawGate, Error> {
        Ok(RawGate { client: Client::connect(name, options, None)? })
    }

    /// As [`Gate::call`]; `reply` has the reply and nothing else afterwards. Blocks the
    /// microprocess until the reply has come.
    ///
    /// # Errors
    /// As there.
    pub fn call(&self, request: &[u8], reply: &mut Vec<u8>) -> Result<(), Error> {
        self.client.call(request, &[], None, reply).map(drop)
    }

    /// As [`Gate::call_within`]. Blocks the microprocess for that time at most.
    ///
    /// # Errors
    /// As there.
    pub fn call_within(
        &self,
        request: &[u8],
        reply: &mut Vec<u8>,
        time: Duration,
    ) -> Result<(), Error> {
        self.client.call(request, &[], Some(time), reply).map(drop)
    }

    /// As [`Gate::call_with`]. Blocks the microprocess until the reply has come.
    ///
    /// # Errors
    /// As there.
    pub fn call_with(
        &self,
        request: &[u8],
        regions: &[Region],
        reply: &mut Vec<u8>,
    ) -> Result<Vec<Region>, Error> {
        self.client.call(request, regions, None, reply)
    }

    /// As [`Gate::call_with_within`]. Blocks the microprocess for that time at most.
    ///
    /// # Errors
    /// As there.
    pub fn call_with_within(
        &self,
        request: &[u8],
        regions: &[Region],
        reply: &mut Vec<u8>,
        time: Duration,
    ) -> Result<Vec<Region>, Error> {
        self.client.call(request, regions, Some(time), reply)
    }

    /// As [`Gate::send`]. Blocks the microprocess only while the lane has no free cell.
    ///
    /// # Errors
    /// As there.
    pub fn send(&self, request: &[u8]) -> Result<(), Error> {
        self.client.send(request)
    }

    /// Calls of this client that are under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.client.under_way()
    }

    /// As [`Gate::serve`]: `handler` gets the request, and writes the reply into an empty buffer.
    /// Blocks the kernel thread as `Gate::serve` does.
    ///
    /// # Errors
    /// As there.
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

/// The bytes of a request.
#[inline]
fn encoded<Q: Serialize + DeserializeOwned>(request: &Q) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(64);
    Typed::<Q>::encode(request, &mut bytes)?;
    Ok(bytes)
}
