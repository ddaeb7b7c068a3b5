//! `http`: a server on `std::net` that parses requests with the crate `httparse`. The peer keeps
//! all connections busy: on each, the next request follows the reply.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kumihimo_bench_http::answer;

use super::Work;
use crate::connections::Connections;
use crate::plan::Plan;
use crate::threads::Body;

/// One body for each connection of the peer. Times are for one request.
pub fn serve<C: Connections>(plan: &Plan) -> io::Result<Work> {
    let (listener, port) = C::listen()?;
    let mut peer = TcpStream::connect((Ipv4Addr::LOCALHOST, plan.port))?;
    writeln!(peer, "{port} {} {}", plan.count, plan.rounds)?;
    let served = Arc::new(AtomicUsize::new(0));
    let body = |_| {
        let (stream, served) = (C::accept(&listener)?, served.clone());
        Ok(Box::new(move || _ = served.fetch_add(answer(stream).expect("the peer"), Relaxed))
            as Body)
    };
    let bodies = (0..plan.count).map(body).collect::<io::Result<Vec<_>>>()?;
    let requests = plan.count * plan.rounds;
    let end = move |_: &_| {
        assert_eq!(served.load(Relaxed), requests, "served requests");
        format!(" requests:={requests}")
    };
    Ok(Work { operations: Some(requests), end: Box::new(end), ..Work::of(bodies) })
}
