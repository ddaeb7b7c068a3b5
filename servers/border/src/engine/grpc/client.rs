//! Connections to other borders.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::Incoming as IncomingBody;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kumihimo::gate::{self, ErrorKind};
use kumihimo_machine::border::Epoch;
use kumihimo_machine::handler::Refused;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::{Code, client};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::messages::{CallReply, CallRequest, ControlPart, Greeting, SpacesReply, SpacesRequest};
use super::status::{ChannelError, chain, failure};
use super::{
    CALL, CONNECT_TIMEOUT, CONNECTION_WINDOW, CONTROL, HELLO, KEEP_ALIVE, KEEP_ALIVE_TIMEOUT,
    LONGEST_MESSAGE, LONGEST_REPLY, SPACES, STREAM,
};
use crate::engine::{
    BYTES_AHEAD, Boxed, Call, Failure, Hello, ITEMS_AHEAD, Incoming, Item, Items, Link, Opening,
    PARTS_AHEAD, Reply,
};
use crate::tls::Tls;
use crate::tls::identity::Identity;

/// What shares a connection. HTTP/2 has no usable priorities, so calls of high levels do not wait
/// behind those of low ones on the same connection, and lists behind neither.
#[derive(Clone, Copy)]
enum Class {
    /// Everything but calls and streams.
    Control,
    /// Calls and streams up to the default level.
    Low,
    /// Calls and streams above the default level.
    High,
}

/// Number of classes.
const CLASSES: usize = 3;
/// The default level of microprocesses.
const DEFAULT_LEVEL: u8 = 32;

impl Class {
    fn of(call: &Call) -> Class {
        if call.level > DEFAULT_LEVEL { Class::High } else { Class::Low }
    }
}

/// A connection for each class. All of them end with the first one.
pub(super) struct GrpcLink {
    channels: [Channel; CLASSES],
    identity: Identity,
    /// Why a connection has ended, once it has.
    end: watch::Receiver<Option<String>>,
}

/// What tonic's client sends its requests through.
#[derive(Clone)]
struct Channel(SendRequest<Body>);

impl Service<Request<Body>> for Channel {
    type Response = Response<IncomingBody>;
    type Error = ChannelError;
    type Future = Boxed<Result<Response<IncomingBody>, ChannelError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        self.0.poll_ready(cx).map_err(ChannelError::not_sent)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let sent = self.0.try_send_request(request);
        Box::pin(async move {
            sent.await.map_err(|mut error| {
                // hyper gives a request back of which no byte was written.
                let is_sent = error.take_message().is_none();
                ChannelError { is_sent, error: error.into_error() }
            })
        })
    }
}

/// Connects. The error is the reason.
pub(super) async fn connect(
    tls: &Tls,
    address: SocketAddr,
    name: Option<String>,
) -> Result<GrpcLink, String> {
    let (ends, end) = watch::channel(None);
    let (control, low, high) = tokio::try_join!(
        connection(tls, address, name.clone(), ends.clone()),
        connection(tls, address, name.clone(), ends.clone()),
        connection(tls, address, name, ends),
    )?;
    let identity = control.1;
    if [&low.1, &high.1].iter().any(|other| other.location() != identity.location()) {
        return Err(format!("{address}: two borders with different keys listen there"));
    }
    Ok(GrpcLink { channels: [control.0, low.0, high.0], identity, end })
}

/// Opens one connection, whose end is sent to `ends`.
async fn connection(
    tls: &Tls,
    address: SocketAddr,
    name: Option<String>,
    ends: watch::Sender<Option<String>>,
) -> Result<(Channel, Identity), String> {
    let late = || format!("no connection to {address} within {CONNECT_TIMEOUT:?}");
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address))
        .await
        .map_err(|_| late())?
        .map_err(|e| format!("{address}: {e}"))?;
    // A request is one small segment, which must not wait for the answer to another one.
    stream.set_nodelay(true).map_err(|e| format!("{address}: {e}"))?;
    let connector = TlsConnector::from(tls.client(name)?);
    let server = rustls::pki_types::ServerName::IpAddress(address.ip().into());
    let stream = timeout(CONNECT_TIMEOUT, connector.connect(server, stream))
        .await
        .map_err(|_| late())?
        .map_err(|e| format!("{address}: {}", chain(&e)))?;
    let certificates = stream.get_ref().1.peer_certificates();
    let identity =
        Identity::of(certificates.and_then(<[_]>::first)).map_err(|e| format!("{address}: {e}"))?;
    let handshake = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        // What a stream may send before the program takes its items.
        .initial_stream_window_size(BYTES_AHEAD)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(TokioIo::new(stream));
    let (sender, connection) = timeout(CONNECT_TIMEOUT, handshake)
        .await
        .map_err(|_| late())?
        .map_err(|e| format!("{address}: {}", chain(&e)))?;
    tokio::spawn(async move {
        let why = match connection.await {
            Ok(()) => "the other border closed the connection".to_owned(),
            Err(e) => chain(&e),
        };
        // The first reason stays.
        ends.send_if_modified(|end| {
            let is_first = end.is_none();
            if is_first {
                *end = Some(why);
            }
            is_first
        });
    });
    Ok((Channel(sender), identity))
}

impl GrpcLink {
    fn channel(&self, class: Class) -> Channel {
        self.channels[class as usize].clone()
    }

    /// Returns a client whose connection takes requests.
    async fn client(channel: Channel) -> Result<client::Grpc<Channel>, Failure> {
        let origin = Uri::from_static("https://border.kumihimo");
        let mut client =
            client::Grpc::with_origin(channel, origin).max_decoding_message_size(LONGEST_MESSAGE);
        client.ready().await.map_err(|e| Failure::Unreachable(chain(&e)))?;
        Ok(client)
    }
}

impl Link for GrpcLink {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn hello(&self, own: Hello) -> Boxed<Result<Hello, Failure>> {
        let channel = self.channel(Class::Control);
        Box::pin(async move {
            let mut client = GrpcLink::client(channel).await?;
            let codec = ProstCodec::<Greeting, Greeting>::default();
            let request = tonic::Request::new(own.into());
            let asked = client.unary(request, PathAndQuery::from_static(HELLO), codec);
            let late = || Failure::Unreachable("the other border does not answer".to_owned());
            let answer = timeout(CONNECT_TIMEOUT, asked).await.map_err(|_| late())?;
            answer.map(|answer| answer.into_inner().into()).map_err(|status| failure(&status))
        })
    }

    fn spaces(&self, epoch: Epoch) -> Boxed<Result<Vec<u16>, Failure>> {
        let channel = self.channel(Class::Control);
        Box::pin(async move {
            let mut client = GrpcLink::client(channel).await?;
            let codec = ProstCodec::<SpacesRequest, SpacesReply>::default();
            let request = tonic::Request::new(SpacesRequest { epoch: epoch.0 });
            let answer = client.unary(request, PathAndQuery::from_static(SPACES), codec).await;
            let numbers = answer.map_err(|status| failure(&status))?.into_inner().numbers;
            let checked: Result<Vec<u16>, _> = numbers.into_iter().map(u16::try_from).collect();
            let wrong = "the other border lists a number that no address space has";
            checked.map_err(|_| Refused::Failed(wrong.to_owned()).into())
        })
    }

    fn control(
        &self,
        opening: Opening,
        input: mpsc::Receiver<Bytes>,
    ) -> Boxed<Result<Incoming, Failure>> {
        let channel = self.channel(Class::Control);
        Box::pin(async move {
            let mut client = GrpcLink::client(channel).await?;
            let codec = ProstCodec::<ControlPart, ControlPart>::default();
            let first = tokio_stream::once(ControlPart::from(opening));
            let rest = ReceiverStream::new(input)
                .map(|bytes| ControlPart { bytes, ..ControlPart::default() });
            let request = tonic::Request::new(first.chain(rest));
            let path = PathAndQuery::from_static(CONTROL);
            let answer = client.streaming(request, path, codec).await;
            let mut parts = answer.map_err(|status| failure(&status))?.into_inner();
            let (to, incoming) = mpsc::channel(PARTS_AHEAD);
            tokio::spawn(async move {
                loop {
                    let part = tokio::select! {
                        part = parts.message() => part,
                        // The client has gone: dropping the stream resets it.
                        () = to.closed() => return,
                    };
                    let part = match part {
                        Ok(Some(part)) => Ok(part.bytes),
                        Ok(None) => return,
                        Err(status) => Err(failure(&status)),
                    };
                    let is_end = part.is_err();
                    if to.send(part).await.is_err() || is_end {
                        return;
                    }
                }
            });
            Ok(incoming)
        })
    }

    fn call(&self, call: Call) -> Boxed<Result<Reply, Failure>> {
        let channel = self.channel(Class::of(&call));
        Box::pin(async move {
            let mut client =
                GrpcLink::client(channel).await?.max_decoding_message_size(LONGEST_REPLY);
            let codec = ProstCodec::<CallRequest, CallReply>::default();
            let request = tonic::Request::new(call.into());
            let answer = client.unary(request, PathAndQuery::from_static(CALL), codec).await;
            match answer {
                Ok(answer) => Ok(answer.into_inner().into()),
                // A side takes no message of this size.
                Err(status) if status.code() == Code::OutOfRange => {
                    Ok(Err(gate::Error::new(ErrorKind::TooLarge, status.message())))
                }
                Err(status) => Err(failure(&status)),
            }
        })
    }

    fn stream(&self, call: Call) -> Boxed<Result<Items, Failure>> {
        let channel = self.channel(Class::of(&call));
        Box::pin(async move {
            let mut client =
                GrpcLink::client(channel).await?.max_decoding_message_size(LONGEST_REPLY);
            let codec = ProstCodec::<CallRequest, CallReply>::default();
            let request = tonic::Request::new(call.into());
            let path = PathAndQuery::from_static(STREAM);
            let answer = client.server_streaming(request, path, codec).await;
            let mut replies = answer.map_err(|status| failure(&status))?.into_inner();
            let (to, items) = mpsc::channel(ITEMS_AHEAD);
            let room = Arc::new(Semaphore::new(BYTES_AHEAD as usize));
            tokio::spawn(async move {
                loop {
                    let reply = tokio::select! {
                        reply = replies.message() => reply,
                        // Nobody takes the items any more: dropping the stream resets it.
                        () = to.closed() => return,
                    };
                    let reply: Reply = match reply {
                        Ok(Some(reply)) => reply.into(),
                        Ok(None) => return,
                        Err(status) => Err(gate::Error::new(
                            ErrorKind::Gone,
                            format!("the stream ended before its last item: {}", chain(&status)),
                        )),
                    };
                    let is_end = reply.is_err();
                    let length = reply.as_ref().map_or(0, |bytes| bytes.len());
                    // An item that is larger than all of the room takes all of it.
                    let share = u32::try_from(length).unwrap_or(BYTES_AHEAD).min(BYTES_AHEAD);
                    let held = tokio::select! {
                        held = Arc::clone(&room).acquire_many_owned(share) => held.ok(),
                        () = to.closed() => return,
                    };
                    if to.send(Item { reply, _held: held }).await.is_err() || is_end {
                        return;
                    }
                }
            });
            Ok(items)
        })
    }

    fn ended(&self) -> Boxed<String> {
        let mut end = self.end.clone();
        Box::pin(async move {
            let end = end.wait_for(Option::is_some).await;
            let why = end.ok().and_then(|why| why.clone());
            why.unwrap_or_else(|| "the connection ended".to_owned())
        })
    }
}
