//! gRPC by tonic, on hyper, without tonic's `transport`: one unary call and one stream of replies,
//! over a pair of UNIX sockets.
//!
//! `cargo run --release -p kumihimo-examples-hyper --bin grpc`

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::stream::{self, Stream};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use kumihimo::future::block_on;
use kumihimo::futures::{Executor, Polled, Timer};
use kumihimo::net::UnixStream;
use kumihimo::thread;
use tonic::body::Body;
use tonic::client;
use tonic::server::{self, ServerStreamingService, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tower_service::Service;

/// `message CountRequest { uint32 to = 1; }`
#[derive(Clone, PartialEq, prost::Message)]
struct CountRequest {
    #[prost(uint32, tag = "1")]
    to: u32,
}

/// `message Number { uint32 value = 1; string words = 2; }`
#[derive(Clone, PartialEq, prost::Message)]
struct Number {
    #[prost(uint32, tag = "1")]
    value: u32,
    #[prost(string, tag = "2")]
    words: String,
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

// ANCHOR: service
/// `rpc Sum(CountRequest) returns (Number);`
struct Sum;

impl UnaryService<CountRequest> for Sum {
    type Response = Number;
    type Future = Boxed<Result<tonic::Response<Number>, Status>>;

    fn call(&mut self, request: tonic::Request<CountRequest>) -> Self::Future {
        // The call's own microprocess polls this future, so it may block.
        Box::pin(async move {
            let to = request.into_inner().to;
            if to > 1000 {
                return Err(Status::out_of_range("at most 1000"));
            }
            thread::sleep(Duration::from_millis(1));
            Ok(tonic::Response::new(Number { value: (1..=to).sum(), words: "the sum".into() }))
        })
    }
}

/// `rpc Count(CountRequest) returns (stream Number);`
struct Count;

impl ServerStreamingService<CountRequest> for Count {
    type Response = Number;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Number, Status>> + Send>>;
    type Future = Boxed<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<CountRequest>) -> Self::Future {
        Box::pin(async move {
            let numbers = (1..=request.into_inner().to).map(|value| {
                thread::sleep(Duration::from_millis(1)); // one after the other, as they are made
                Ok(Number { value, words: format!("number {value}") })
            });
            let numbers: Self::ResponseStream = Box::pin(stream::iter(numbers));
            Ok(tonic::Response::new(numbers))
        })
    }
}

async fn route(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    Ok(match request.uri().path() {
        "/demo.Numbers/Sum" => server::Grpc::new(ProstCodec::default()).unary(Sum, request).await,
        "/demo.Numbers/Count" => {
            server::Grpc::new(ProstCodec::default()).server_streaming(Count, request).await
        }
        path => Status::unimplemented(path).into_http(),
    })
}

fn serve(stream: UnixStream) -> hyper::Result<()> {
    let connection = hyper::server::conn::http2::Builder::new(Executor::new())
        .timer(Timer)
        .serve_connection(Polled::new(stream), service_fn(route));
    block_on(connection)
}
// ANCHOR_END: service

/// What tonic's client sends its requests through.
#[derive(Clone)]
struct Channel(SendRequest<Body>);

impl Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Boxed<hyper::Result<Response<Incoming>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

fn connect(stream: UnixStream) -> Result<client::Grpc<Channel>, Box<dyn Error>> {
    let (sender, connection) = block_on(http2::handshake(Executor::new(), Polled::new(stream)))?;
    Executor::new().spawn(connection)?;
    let origin = Uri::from_static("http://numbers.example");
    Ok(client::Grpc::with_origin(Channel(sender), origin))
}

fn sum(client: &mut client::Grpc<Channel>, path: &'static str, to: u32) -> Result<Number, Status> {
    block_on(async {
        client.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let codec = ProstCodec::<CountRequest, Number>::default();
        let request = tonic::Request::new(CountRequest { to });
        let path = hyper::http::uri::PathAndQuery::from_static(path);
        Ok(client.unary(request, path, codec).await?.into_inner())
    })
}

fn count(client: &mut client::Grpc<Channel>, to: u32) -> Result<Vec<Number>, Status> {
    block_on(async {
        client.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let codec = ProstCodec::<CountRequest, Number>::default();
        let request = tonic::Request::new(CountRequest { to });
        let path = hyper::http::uri::PathAndQuery::from_static("/demo.Numbers/Count");
        let mut replies = client.server_streaming(request, path, codec).await?.into_inner();
        let mut numbers = Vec::new();
        while let Some(number) = replies.message().await? {
            numbers.push(number);
        }
        Ok(numbers)
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let (near, far) = UnixStream::pair()?;
    let server = thread::spawn(move || serve(far));
    let mut client = connect(near)?;
    let sum_of_ten = sum(&mut client, "/demo.Numbers/Sum", 10)?;
    println!("{} {}", sum_of_ten.words, sum_of_ten.value);
    for number in count(&mut client, 3)? {
        println!("{} {}", number.words, number.value);
    }
    let too_much = sum(&mut client, "/demo.Numbers/Sum", 1001).expect_err("out of range");
    println!("{:?}: {}", too_much.code(), too_much.message());
    let unknown = sum(&mut client, "/demo.Numbers/Product", 1).expect_err("no such method");
    assert_eq!(unknown.code(), Code::Unimplemented);
    println!("{:?}: {}", unknown.code(), unknown.message());
    // The server's connection ends with the client's.
    drop(client);
    server.join().expect("no panic")?;
    Ok(())
}
