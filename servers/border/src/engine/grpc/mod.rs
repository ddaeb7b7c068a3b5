//! The engine by gRPC: `tonic` on `hyper`, without tonic's `transport`, so that each connection and
//! its TLS are this crate's own.
//!
//! The messages are declared with prost's derive and the service by hand, because a generator would
//! need `protoc` or a second parser of its language.
//!
//! ```text
//! service Border {                                    // package kumihimo.border.v1
//!   rpc Hello(Greeting) returns (Greeting);
//!   rpc Spaces(SpacesRequest) returns (SpacesReply);
//!   rpc Call(CallRequest) returns (CallReply);
//!   rpc Stream(CallRequest) returns (stream CallReply);
//!   rpc Control(stream ControlPart) returns (stream ControlPart);
//! }
//! ```

mod client;
mod messages;
mod server;
mod status;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpListener;

use super::{Boxed, Engine, Failure, Link, Service};
use crate::tls::Tls;

/// Time between two pings of a connection.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Time for the answer to a ping, after which the connection has ended.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for a connection with its TLS, and for the first exchange on it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Size of the longest message that is no call.
const LONGEST_MESSAGE: usize = 1 << 20;
/// Size of the longest reply to a call: that of a gate.
const LONGEST_REPLY: usize = (64 << 20) + LONGEST_MESSAGE;

/// What all streams of a connection together may send before their items are taken: slow readers
/// of some streams must not stop the others.
const CONNECTION_WINDOW: u32 = 64 << 20;

const HELLO: &str = "/kumihimo.border.v1.Border/Hello";
const SPACES: &str = "/kumihimo.border.v1.Border/Spaces";
const CALL: &str = "/kumihimo.border.v1.Border/Call";
const STREAM: &str = "/kumihimo.border.v1.Border/Stream";
const CONTROL: &str = "/kumihimo.border.v1.Border/Control";

/// The engine, with the certificates of this border.
pub struct Grpc {
    tls: Arc<Tls>,
    server: Arc<ServerConfig>,
}

impl Grpc {
    /// Prepares connections with these certificates.
    ///
    /// # Errors
    /// Returns why the certificates do not work.
    pub fn new(tls: Arc<Tls>) -> Result<Grpc, String> {
        Ok(Grpc { server: tls.server()?, tls })
    }
}

impl Engine for Grpc {
    fn connect(
        &self,
        address: SocketAddr,
        name: Option<String>,
    ) -> Boxed<Result<Arc<dyn Link>, Failure>> {
        let tls = Arc::clone(&self.tls);
        Box::pin(async move {
            let link = client::connect(&tls, address, name).await.map_err(Failure::Unreachable)?;
            Ok(Arc::new(link) as Arc<dyn Link>)
        })
    }

    fn serve(&self, listener: TcpListener, service: Arc<dyn Service>) -> Boxed<()> {
        Box::pin(server::serve(listener, Arc::clone(&self.server), service))
    }
}
