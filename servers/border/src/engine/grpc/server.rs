//! Serves other borders.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming as IncomingBody;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kumihimo_machine::border::Epoch;
use kumihimo_machine::handler::Refused;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::server::{self, ServerStreamingService, StreamingService, UnaryService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use super::messages::{CallReply, CallRequest, ControlPart, Greeting, SpacesReply, SpacesRequest};
use super::status::{failure, status};
use super::{
    CALL, CONNECT_TIMEOUT, CONTROL, HELLO, KEEP_ALIVE, KEEP_ALIVE_TIMEOUT, LONGEST_MESSAGE,
    LONGEST_REPLY, SPACES, STREAM,
};
use crate::engine::{Boxed, PARTS_AHEAD, Reply, Room, Service};
use crate::locked;
use crate::tls::identity::{Identity, Location};

/// Largest number of connections, with those whose handshake is in progress.
const MOST_CONNECTIONS: usize = 1024;
/// Largest number of connections of one machine, which needs three: none takes the room of all.
const MOST_OF_ONE: usize = 16;
/// Largest number of requests of one connection at a time.
const MOST_STREAMS: u32 = 1024;
/// Largest size of the headers of a request.
const LONGEST_HEADERS: u32 = 16 << 10;
/// Time after an error of accept, such as a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until the future is dropped, which ends all connections.
pub(super) async fn serve(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    service: Arc<dyn Service>,
) {
    let acceptor = TlsAcceptor::from(config);
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let open = Arc::new(Open::default());
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = stream else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (acceptor, service, open) = (acceptor.clone(), Arc::clone(&service), Arc::clone(&open));
        connections.spawn(async move {
            connection(stream, acceptor, service, open).await;
            drop(place);
        });
    }
}

/// The open connections of each machine.
#[derive(Default)]
struct Open(Mutex<HashMap<Location, usize>>);

/// An open connection, until the value is dropped.
struct Entered(Arc<Open>, Location);

impl Open {
    /// Counts a connection; `None` if its machine has as many as one may have.
    fn enter(self: Arc<Self>, of: Location) -> Option<Entered> {
        let mut open = locked(&self.0);
        let count = open.entry(of).or_default();
        if *count == MOST_OF_ONE {
            return None;
        }
        *count += 1;
        drop(open);
        Some(Entered(self, of))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut open = locked(&self.0.0);
        if let Some(count) = open.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.1);
            }
        }
    }
}

/// Serves one connection. A peer without a valid certificate learns the reason from TLS.
async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    service: Arc<dyn Service>,
    open: Arc<Open>,
) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = timeout(CONNECT_TIMEOUT, acceptor.accept(stream)).await else { return };
    let certificates = stream.get_ref().1.peer_certificates();
    let Ok(identity) = Identity::of(certificates.and_then(<[_]>::first)) else { return };
    let Some(_entered) = open.enter(identity.location()) else { return };
    let identity = Arc::new(identity);
    let answer = service_fn(move |request| {
        let (service, from) = (Arc::clone(&service), Arc::clone(&identity));
        async move { Ok::<_, Infallible>(route(request, service, from).await) }
    });
    let _ = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(LONGEST_HEADERS)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}

async fn route(
    request: Request<IncomingBody>,
    service: Arc<dyn Service>,
    from: Arc<Identity>,
) -> Response<Body> {
    match request.uri().path() {
        HELLO => {
            let codec = ProstCodec::<Greeting, Greeting>::default();
            let mut grpc = server::Grpc::new(codec).max_decoding_message_size(LONGEST_MESSAGE);
            grpc.unary(HelloService(service, from), request).await
        }
        SPACES => {
            let codec = ProstCodec::<SpacesReply, SpacesRequest>::default();
            let mut grpc = server::Grpc::new(codec).max_decoding_message_size(LONGEST_MESSAGE);
            grpc.unary(SpacesService(service, from), request).await
        }
        CALL => {
            let largest = service.largest(&from) + LONGEST_MESSAGE;
            let codec = ProstCodec::<CallReply, CallRequest>::default();
            let mut grpc = server::Grpc::new(codec)
                .max_decoding_message_size(largest)
                .max_encoding_message_size(LONGEST_REPLY);
            let room = service.room(Arc::clone(&from)).await;
            grpc.unary(CallService(service, from, Some(room)), request).await
        }
        STREAM => {
            let largest = service.largest(&from) + LONGEST_MESSAGE;
            let codec = ProstCodec::<CallReply, CallRequest>::default();
            let mut grpc = server::Grpc::new(codec)
                .max_decoding_message_size(largest)
                .max_encoding_message_size(LONGEST_REPLY);
            let room = service.room(Arc::clone(&from)).await;
            grpc.server_streaming(StreamService(service, from, Some(room)), request).await
        }
        CONTROL => {
            let codec = ProstCodec::<ControlPart, ControlPart>::default();
            let mut grpc = server::Grpc::new(codec).max_decoding_message_size(LONGEST_MESSAGE);
            grpc.streaming(ControlService(service, from), request).await
        }
        path => Status::unimplemented(format!("there is no {path}")).into_http(),
    }
}

struct HelloService(Arc<dyn Service>, Arc<Identity>);

impl UnaryService<Greeting> for HelloService {
    type Response = Greeting;
    type Future = Boxed<Result<tonic::Response<Greeting>, Status>>;

    fn call(&mut self, request: tonic::Request<Greeting>) -> Self::Future {
        let answer = self.0.hello(Arc::clone(&self.1), request.into_inner().into());
        Box::pin(
            async move { answer.await.map(|own| tonic::Response::new(own.into())).map_err(status) },
        )
    }
}

struct SpacesService(Arc<dyn Service>, Arc<Identity>);

impl UnaryService<SpacesRequest> for SpacesService {
    type Response = SpacesReply;
    type Future = Boxed<Result<tonic::Response<SpacesReply>, Status>>;

    fn call(&mut self, request: tonic::Request<SpacesRequest>) -> Self::Future {
        let answer = self.0.spaces(Arc::clone(&self.1), Epoch(request.into_inner().epoch));
        Box::pin(async move {
            let numbers = answer.await.map_err(status)?.into_iter().map(u32::from).collect();
            Ok(tonic::Response::new(SpacesReply { numbers }))
        })
    }
}

/// Serves one call, which takes the room.
struct CallService(Arc<dyn Service>, Arc<Identity>, Option<Room>);

impl UnaryService<CallRequest> for CallService {
    type Response = CallReply;
    type Future = Boxed<Result<tonic::Response<CallReply>, Status>>;

    fn call(&mut self, request: tonic::Request<CallRequest>) -> Self::Future {
        let (service, from, room) = (Arc::clone(&self.0), Arc::clone(&self.1), self.2.take());
        Box::pin(async move {
            let invalid = || status(Refused::Invalid("a call with a wrong number".to_owned()));
            let call = request.into_inner().call().ok_or_else(invalid)?;
            let room = room.ok_or_else(|| Status::internal("a second call of one request"))?;
            Ok(tonic::Response::new(service.call(from, call, room).await.into()))
        })
    }
}

/// Serves one stream, which takes the room.
struct StreamService(Arc<dyn Service>, Arc<Identity>, Option<Room>);

type Replies = Pin<Box<dyn Stream<Item = Result<CallReply, Status>> + Send>>;

impl ServerStreamingService<CallRequest> for StreamService {
    type Response = CallReply;
    type ResponseStream = Replies;
    type Future = Boxed<Result<tonic::Response<Replies>, Status>>;

    fn call(&mut self, request: tonic::Request<CallRequest>) -> Self::Future {
        let (service, from, room) = (Arc::clone(&self.0), Arc::clone(&self.1), self.2.take());
        Box::pin(async move {
            let invalid = || status(Refused::Invalid("a call with a wrong number".to_owned()));
            let call = request.into_inner().call().ok_or_else(invalid)?;
            let room = room.ok_or_else(|| Status::internal("a second call of one request"))?;
            let replies: Replies = match service.stream(from, call, room).await {
                Ok(items) => Box::pin(items.map(|reply| Ok(reply.into()))),
                Err(error) => Box::pin(tokio_stream::once(Ok(Reply::Err(error).into()))),
            };
            Ok(tonic::Response::new(replies))
        })
    }
}

struct ControlService(Arc<dyn Service>, Arc<Identity>);

type Parts = Pin<Box<dyn Stream<Item = Result<ControlPart, Status>> + Send>>;

impl StreamingService<ControlPart> for ControlService {
    type Response = ControlPart;
    type ResponseStream = Parts;
    type Future = Boxed<Result<tonic::Response<Parts>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<ControlPart>>) -> Self::Future {
        let (service, from) = (Arc::clone(&self.0), Arc::clone(&self.1));
        Box::pin(async move {
            let mut parts = request.into_inner();
            let invalid = || status(Refused::Invalid("an exchange without an opening".to_owned()));
            let first =
                timeout(CONNECT_TIMEOUT, parts.message()).await.map_err(|_| invalid())??;
            let opening = first.as_ref().and_then(ControlPart::opening).ok_or_else(invalid)?;
            let (to, input) = mpsc::channel(PARTS_AHEAD);
            let output = service.control(from, opening, input).await.map_err(status)?;
            tokio::spawn(async move {
                loop {
                    let part = tokio::select! {
                        part = parts.message() => part,
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
            let part = |bytes: Bytes| Ok(ControlPart { bytes, ..ControlPart::default() });
            let parts: Parts = Box::pin(ReceiverStream::new(output).map(part));
            Ok(tonic::Response::new(parts))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_machine_does_not_take_the_connections_of_another() {
        let open = Arc::new(Open::default());
        let [one, other] = [Location([1; 16]), Location([2; 16])];
        let mut taken: Vec<_> =
            (0..MOST_OF_ONE).map(|_| Arc::clone(&open).enter(one).expect("room")).collect();
        assert!(Arc::clone(&open).enter(one).is_none());
        assert!(Arc::clone(&open).enter(other).is_some());
        taken.pop();
        taken.push(Arc::clone(&open).enter(one).expect("room again"));
        drop(taken);
        assert!(locked(&open.0).is_empty());
    }
}
