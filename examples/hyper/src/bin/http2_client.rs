//! Many requests at once over one connection of HTTP/2, by hyper's client: each is a plain blocking
//! call in a microprocess of its own.
//!
//! `cargo run --release -p kumihimo-examples-hyper --bin http2_client ADDRESS PATH COUNT`

use std::collections::BTreeMap;
use std::error::Error;

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use kumihimo::future::block_on;
use kumihimo::futures::{Executor, Polled};
use kumihimo::net::TcpStream;
use kumihimo::thread;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

// ANCHOR: client
/// A connection whose frames a microprocess of its own sends and receives.
fn connect(address: &str) -> Fallible<SendRequest<Empty<Bytes>>> {
    let stream = TcpStream::connect(address)?;
    let (sender, connection) = block_on(http2::handshake(Executor::new(), Polled::new(stream)))?;
    Executor::new().spawn(connection)?;
    Ok(sender)
}

/// Sends one request and waits for its whole response.
fn get(mut sender: SendRequest<Empty<Bytes>>, uri: &str) -> Fallible<String> {
    let request = Request::get(uri).body(Empty::new())?;
    block_on(async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok(format!("{status} {}", String::from_utf8_lossy(&body).trim_end()))
    })
}
// ANCHOR_END: client

fn main() -> Fallible<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [address, path, count] = &arguments[..] else {
        return Err("usage: http2_client ADDRESS PATH COUNT".into());
    };
    let (sender, uri) = (connect(address)?, format!("http://{address}{path}"));
    let requests: Vec<_> = (0..count.parse::<usize>()?)
        .map(|_| {
            let (sender, uri) = (sender.clone(), uri.clone());
            thread::spawn(move || get(sender, &uri))
        })
        .collect();
    let mut replies = BTreeMap::<String, usize>::new();
    for request in requests {
        *replies.entry(request.join().expect("no panic")?).or_default() += 1;
    }
    for (reply, count) in replies {
        println!("{count} x {reply}");
    }
    Ok(())
}
