//! The engine between two borders: what the border needs of it, and its implementation.
//!
//! [`Engine`] connects, [`Link`] is a connection, and [`Service`] is what a border serves to
//! others. `grpc` implements them by gRPC over HTTP/2 and TLS 1.3; nothing else in this crate
//! depends on it.

mod grpc;

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kumihimo::gate;
use kumihimo_gate::remote_call::RemoteKind;
use kumihimo_machine::border::Epoch;
use kumihimo_machine::handler::Refused;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::Stream;

use crate::tls::identity::Identity;
pub use grpc::Grpc;

/// Version of the service between borders. It changes whenever an older peer would misinterpret a
/// message.
pub const VERSION: u32 = 1;
/// Number of parts that wait between an exchange and its connection. It bounds what a slow reader
/// holds.
pub const PARTS_AHEAD: usize = 4;
/// Most items of a stream, and most of their bytes, that are read ahead of the program that takes
/// them.
pub const ITEMS_AHEAD: usize = 64;
/// See [`ITEMS_AHEAD`].
pub const BYTES_AHEAD: u32 = 256 << 10;

/// A future of a trait's method.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Why a request to another machine failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Certainly nothing was sent.
    Unreachable(String),
    /// The request was sent, and the connection ended before its answer.
    Gone(String),
    /// The other border refused it.
    Refused(Refused),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unreachable(text) | Failure::Gone(text) => f.write_str(text),
            Failure::Refused(refused) => fmt::Display::fmt(refused, f),
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        Failure::Refused(refused)
    }
}

/// What a border states about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`VERSION`] of the border.
    pub protocol: u32,
    /// Version of Kumihimo.
    pub version: String,
    /// Epoch of its run-time directory.
    pub epoch: Epoch,
}

/// The first part of an exchange with a control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Epoch that the client means.
    pub epoch: Epoch,
    /// Number of the address space.
    pub space: u16,
}

/// A call of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Distinguishes the call from all others of its machine.
    pub id: u128,
    /// What is wanted.
    pub kind: RemoteKind,
    /// Name of the gate.
    pub gate: String,
    /// Hash of its types; `None` for a gate of bytes.
    pub types: Option<u64>,
    /// Level of the caller.
    pub level: u8,
    /// Time until the caller's deadline.
    pub left: Option<Duration>,
    /// The request.
    pub bytes: Bytes,
}

/// Room for a call. It is waited for before the request is read, so that calls that wait hold no
/// more memory than the window of their connection.
pub struct Room {
    /// When the call arrived.
    pub arrived: Instant,
    /// One of the calls that an identity may make at a time; `None` if it may make none.
    pub place: Option<OwnedSemaphorePermit>,
}

/// The outcome of a call that the other border has answered.
pub type Reply = Result<Bytes, gate::Error>;

/// Items of a stream that were served. An error is the last one. Dropping it cancels the stream.
pub type ServedItems = Pin<Box<dyn Stream<Item = Reply> + Send>>;

/// Items of a stream that come in. An error is the last one. Dropping it cancels the stream.
pub type Items = mpsc::Receiver<Item>;

/// An item, which counts as held until it is dropped.
pub struct Item {
    /// The item.
    pub reply: Reply,
    /// Its part of what is read ahead.
    pub _held: Option<OwnedSemaphorePermit>,
}

/// Parts that come in. Dropping it ends the exchange.
pub type Incoming = mpsc::Receiver<Result<Bytes, Failure>>;

/// Connects to other borders, and serves them.
pub trait Engine: Send + Sync {
    /// Connects to a border whose certificate must have the name, if one is given.
    fn connect(
        &self,
        address: SocketAddr,
        name: Option<String>,
    ) -> Boxed<Result<Arc<dyn Link>, Failure>>;

    /// Serves the borders that connect to `listener`, until the future is dropped.
    fn serve(&self, listener: TcpListener, service: Arc<dyn Service>) -> Boxed<()>;
}

/// A connection to another border.
pub trait Link: Send + Sync {
    /// Returns what the certificate of the other border states.
    fn identity(&self) -> &Identity;

    /// Exchanges what both state about themselves.
    fn hello(&self, own: Hello) -> Boxed<Result<Hello, Failure>>;

    /// Lists the address spaces.
    fn spaces(&self, epoch: Epoch) -> Boxed<Result<Vec<u16>, Failure>>;

    /// Connects to a control socket: `input` goes there, and what comes from there is received.
    fn control(
        &self,
        opening: Opening,
        input: mpsc::Receiver<Bytes>,
    ) -> Boxed<Result<Incoming, Failure>>;

    /// Calls a gate. When the future is dropped, the call is cancelled there.
    fn call(&self, call: Call) -> Boxed<Result<Reply, Failure>>;

    /// Begins a stream of replies.
    fn stream(&self, call: Call) -> Boxed<Result<Items, Failure>>;

    /// Completes when the connection has ended, with the reason.
    fn ended(&self) -> Boxed<String>;
}

/// What a border serves. `from` is what the certificate of the other border states.
pub trait Service: Send + Sync {
    /// Answers [`Link::hello`].
    fn hello(&self, from: Arc<Identity>, other: Hello) -> Boxed<Result<Hello, Refused>>;

    /// Answers [`Link::spaces`].
    fn spaces(&self, from: Arc<Identity>, epoch: Epoch) -> Boxed<Result<Vec<u16>, Refused>>;

    /// Answers [`Link::control`].
    fn control(
        &self,
        from: Arc<Identity>,
        opening: Opening,
        input: Incoming,
    ) -> Boxed<Result<mpsc::Receiver<Bytes>, Refused>>;

    /// Waits for room for a call or a stream.
    fn room(&self, from: Arc<Identity>) -> Boxed<Room>;

    /// Answers [`Link::call`]. When the future is dropped, the call is cancelled.
    fn call(&self, from: Arc<Identity>, call: Call, room: Room) -> Boxed<Reply>;

    /// Answers [`Link::stream`].
    fn stream(
        &self,
        from: Arc<Identity>,
        call: Call,
        room: Room,
    ) -> Boxed<Result<ServedItems, gate::Error>>;

    /// Returns the size of the largest request that `from` may send.
    fn largest(&self, from: &Identity) -> usize;
}
