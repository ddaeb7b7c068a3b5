//! `http`: a server on `std::net` that parses requests with the crate `httparse`. The peer keeps
//! all connections busy: on each, the next request follows the reply.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::Work;
use crate::connections::Connections;
use crate::plan::Plan;
use crate::threads::Body;

/// The reply to a request for `path`, which the peer compares byte by byte.
#[must_use]
pub fn reply(path: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len()).into_bytes()
}

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

/// Replies to all requests of one connection, and returns their number.
fn answer(mut stream: impl Read + Write) -> io::Result<usize> {
    let (mut buffer, mut filled, mut served) = ([0; 1024], 0, 0);
    loop {
        let n = stream.read(&mut buffer[filled..])?;
        if n == 0 {
            return Ok(served);
        }
        filled += n;
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut request = httparse::Request::new(&mut headers);
        let status = request.parse(&buffer[..filled]).map_err(io::Error::other)?;
        let httparse::Status::Complete(length) = status else { continue };
        let reply = reply(request.path.expect("a complete request has a path"));
        stream.write_all(&reply)?;
        buffer.copy_within(length..filled, 0);
        filled -= length;
        served += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn requests_are_answered_also_if_they_arrive_in_parts() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let client = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).expect("the server");
            let mut read = Vec::new();
            for part in ["GET /a HT", "TP/1.1\r\nhost: x\r\n\r\n"] {
                stream.write_all(part.as_bytes()).expect("the server");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            stream.shutdown(std::net::Shutdown::Write).expect("connected");
            stream.read_to_end(&mut read).expect("the server");
            read
        });
        let served = answer(listener.accept().expect("the client").0).expect("HTTP");
        assert_eq!((served, client.join().expect("no panic")), (1, reply("/a")));
    }
}
