//! `tarpc`: its own transport over a Unix socket, for `remote` over TCP, with bincode. All callers
//! share one client.

use kumihimo_bench_kit::rpc::{Answer, Check, Plan, Side, serve};
use serde_bytes::ByteBuf;
use tarpc::serde_transport::{tcp, unix};
use tarpc::server::{BaseChannel, Channel};
use tarpc::{client, context};
use tokio_serde::formats::Bincode;
use tokio_stream::{Stream, StreamExt};

use crate::futures::{Call, by_futures, until_told_by};
use crate::{announce, while_};

#[tarpc::service]
trait Sums {
    /// Number and sum of a payload.
    async fn sum(payload: ByteBuf) -> (u64, u64);
}

pub fn run(plan: &Plan) -> Result<(), String> {
    plan.placed(&["scheduled"])?;
    match plan.side {
        Side::Server => until_told_by(plan, server),
        Side::Client => by_futures(plan, async || {
            let connect = unix::connect(plan.place.join("socket"), Bincode::default);
            let transport = connect.await.map_err(while_("connect"))?;
            Ok(Client(SumsClient::new(client::Config::default(), transport).spawn()))
        }),
    }
}

async fn server(plan: Plan) -> Result<(), String> {
    let mut incoming =
        unix::listen(plan.place.join("socket"), Bincode::default).await.map_err(while_("bind"))?;
    println!("ready");
    let transport =
        incoming.next().await.ok_or("no client connected")?.map_err(while_("accept"))?;
    serve_all(BaseChannel::with_defaults(transport).execute(Server(plan.check).serve())).await;
    Ok(())
}

pub fn run_by_tcp(plan: &Plan, to: &str) -> Result<(), String> {
    plan.placed(&["scheduled"])?;
    match plan.side {
        Side::Server => until_told_by(plan, server_by_tcp),
        Side::Client => by_futures(plan, async || {
            let transport = tcp::connect(to, Bincode::default).await.map_err(while_("connect"))?;
            Ok(Client(SumsClient::new(client::Config::default(), transport).spawn()))
        }),
    }
}

async fn server_by_tcp(plan: Plan) -> Result<(), String> {
    let mut incoming =
        tcp::listen("127.0.0.1:0", Bincode::default).await.map_err(while_("bind"))?;
    announce(&plan, Ok(incoming.local_addr()))?;
    let transport =
        incoming.next().await.ok_or("no client connected")?.map_err(while_("accept"))?;
    serve_all(BaseChannel::with_defaults(transport).execute(Server(plan.check).serve())).await;
    Ok(())
}

/// Runs each request as a task.
async fn serve_all(requests: impl Stream<Item = impl Future<Output = ()> + Send + 'static>) {
    let mut requests = std::pin::pin!(requests);
    while let Some(request) = requests.next().await {
        tokio::spawn(request);
    }
}

#[derive(Clone)]
struct Server(Check);

impl Sums for Server {
    async fn sum(self, _: context::Context, payload: ByteBuf) -> (u64, u64) {
        let Answer { number, sum } = serve(&payload, self.0);
        (number, sum)
    }
}

#[derive(Clone)]
struct Client(SumsClient);

impl Call for Client {
    async fn call(&mut self, payload: &[u8]) -> Result<Answer, String> {
        let reply = self.0.sum(context::current(), ByteBuf::from(payload)).await;
        let (number, sum) = reply.map_err(while_("the call"))?;
        Ok(Answer { number, sum })
    }
}
