//! `grpc-uds`: gRPC by tonic over a Unix socket; `tonic` of `remote`: over TCP with mutual TLS. All
//! callers share one channel. The messages are
//! defined here as `protoc` would generate them from `message Ask { bytes payload = 1; } message
//! Reply { fixed64 number = 1; fixed64 sum = 2; }`.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::uri::PathAndQuery;
use kumihimo_bench_kit::rpc::{Answer, Check, Plan, Side, serve};
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codegen::Service;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{
    Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig,
};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::futures::{Call, by_futures, until_told_by};
use crate::{announce, while_};

const METHOD: &str = "/rpc.Sums/Sum";

#[derive(Clone, PartialEq, prost::Message)]
struct Ask {
    #[prost(bytes = "bytes", tag = "1")]
    payload: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Reply {
    #[prost(fixed64, tag = "1")]
    number: u64,
    #[prost(fixed64, tag = "2")]
    sum: u64,
}

pub fn run(plan: &Plan) -> Result<(), String> {
    plan.placed(&["scheduled"])?;
    match plan.side {
        Side::Server => until_told_by(plan, server),
        Side::Client => by_futures(plan, async || {
            let address = format!("unix:{}", plan.place.join("socket").display());
            let endpoint = Endpoint::from_shared(address).map_err(while_("the address"))?;
            Ok(Client(Grpc::new(endpoint.connect().await.map_err(while_("connect"))?)))
        }),
    }
}

async fn server(plan: Plan) -> Result<(), String> {
    let listener = UnixListener::bind(plan.place.join("socket")).map_err(while_("bind"))?;
    println!("ready");
    let incoming = UnixListenerStream::new(listener);
    Server::builder().serve_with_incoming(Sums(plan.check), incoming).await.map_err(while_("serve"))
}

pub fn run_by_tls(plan: &Plan, to: &str) -> Result<(), String> {
    plan.placed(&["scheduled"])?;
    match plan.side {
        Side::Server => until_told_by(plan, server_by_tls),
        Side::Client => by_futures(plan, async || {
            let (authority, identity) = certificates(plan, "border")?;
            let tls = ClientTlsConfig::new()
                .ca_certificate(authority)
                .identity(identity)
                .domain_name("build7");
            let endpoint =
                Endpoint::from_shared(format!("https://{to}")).map_err(while_("the address"))?;
            let endpoint = endpoint.tls_config(tls).map_err(while_("TLS"))?;
            Ok(Client(Grpc::new(endpoint.connect().await.map_err(while_("connect"))?)))
        }),
    }
}

async fn server_by_tls(plan: Plan) -> Result<(), String> {
    let (authority, identity) = certificates(&plan, "border-build7")?;
    let tls = ServerTlsConfig::new().identity(identity).client_ca_root(authority);
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(while_("bind"))?;
    announce(&plan, listener.local_addr())?;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().tls_config(tls).map_err(while_("TLS"))?;
    server.serve_with_incoming(Sums(plan.check), incoming).await.map_err(while_("serve"))
}

/// The authority's certificate, and the certificate and key in a folder of the place.
fn certificates(plan: &Plan, folder: &str) -> Result<(Certificate, Identity), String> {
    let read = |name: &str| {
        let path = plan.place.join(folder).join(name);
        std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    Ok((
        Certificate::from_pem(read("ca.pem")?),
        Identity::from_pem(read("border.pem")?, read("border.key")?),
    ))
}

/// The service as `tonic-build` would generate it.
#[derive(Clone)]
struct Sums(Check);

impl NamedService for Sums {
    const NAME: &'static str = "rpc.Sums";
}

struct Sum(Check);

impl UnaryService<Ask> for Sum {
    type Response = Reply;
    type Future = Ready<Result<Response<Reply>, Status>>;

    fn call(&mut self, request: Request<Ask>) -> Self::Future {
        let Answer { number, sum } = serve(&request.get_ref().payload, self.0);
        ready(Ok(Response::new(Reply { number, sum })))
    }
}

impl Service<http::Request<Body>> for Sums {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let check = self.0;
        Box::pin(async move {
            if request.uri().path() != METHOD {
                return Ok(Status::unimplemented("no such method").into_http());
            }
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Reply, Ask>::default());
            Ok(grpc.unary(Sum(check), request).await)
        })
    }
}

#[derive(Clone)]
struct Client(Grpc<Channel>);

impl Call for Client {
    async fn call(&mut self, payload: &[u8]) -> Result<Answer, String> {
        let ask = Request::new(Ask { payload: Bytes::copy_from_slice(payload) });
        self.0.ready().await.map_err(while_("the channel"))?;
        let codec = ProstCodec::<Ask, Reply>::default();
        let reply = self
            .0
            .unary(ask, PathAndQuery::from_static(METHOD), codec)
            .await
            .map_err(while_("the call"))?;
        let Reply { number, sum } = reply.into_inner();
        Ok(Answer { number, sum })
    }
}
