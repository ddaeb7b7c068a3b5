//! `long`: each body makes one request over its own connection, whose reply takes seconds.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use super::Work;
use crate::plan::Plan;
use crate::threads::Body;

/// Requests whose replies the peer delays by the plan's length.
pub fn requests(plan: &Plan) -> Work {
    let (port, length) = (plan.port, plan.length);
    let mut work = Work::of(
        (0..plan.count).map(|_| Box::new(move || request(port, length)) as Body).collect(),
    );
    let note = format!(" waits:={}", plan.count);
    work.end = Box::new(move |_| note);
    work
}

fn request(port: u16, length: Duration) {
    let begin = Instant::now();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the peer");
    let path = format!("/{}", length.as_millis());
    write!(stream, "GET {path} HTTP/1.1\r\nhost: peer\r\nconnection: close\r\n\r\n")
        .expect("the peer");
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("the peer");
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut parsed = httparse::Response::new(&mut headers);
    let status = parsed.parse(&reply).expect("HTTP");
    assert!(parsed.code == Some(200) && status.is_complete());
    assert_eq!(&reply[status.unwrap()..], path.as_bytes());
    assert!(begin.elapsed() >= length, "the reply came too early");
}
