//! `tcp`: each caller has a connection, and a kernel thread on either side. No encryption.

use std::iter;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use kumihimo_bench_kit::rpc::{Plan, Side, by_threads};

use crate::streams::{call, serve_each};
use crate::{announce, while_};

pub fn run(plan: &Plan, to: &str) -> Result<(), String> {
    plan.placed(&["scheduled"])?;
    match plan.side {
        Side::Server => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(while_("bind"))?;
            announce(plan, listener.local_addr())?;
            let accept = move || {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(stream)
            };
            serve_each(plan, iter::repeat_with(accept))
        }
        Side::Client => by_threads(
            plan,
            |_| {
                let stream = TcpStream::connect(to).map_err(while_("connect"))?;
                stream.set_nodelay(true).map_err(while_("TCP_NODELAY"))?;
                Ok(stream)
            },
            |stream, payload| call(&*stream, &*stream, payload),
        ),
    }
}
