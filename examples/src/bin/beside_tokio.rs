//! Async crates that need Tokio: Tokio's runtime runs on a separate kernel thread, and
//! microprocesses await its futures. In this example, Tokio's sockets connect to a server of
//! microprocesses.
//!
//! `cargo run --release -p kumihimo-examples --bin beside_tokio`

use kumihimo::future::block_on;
use kumihimo::net::{SocketAddr, TcpListener};
use kumihimo::thread;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Echo server with a microprocess for each connection.
fn serve(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (stream, _peer) = listener.accept()?;
        thread::spawn(move || io::copy(&mut &stream, &mut &stream));
    }
}

/// A client in ordinary async code.
async fn ask(server: SocketAddr, words: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(words.as_bytes()).await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

// ANCHOR: client
/// A microprocess that uses Tokio in both possible ways.
fn client(n: usize, server: SocketAddr, tokio: &Handle) -> io::Result<String> {
    // The future runs on Tokio's thread; this microprocess waits for its end.
    let there = block_on(tokio.spawn(async move { ask(server, &format!("there {n}")).await }))??;
    // The future runs in this microprocess, and Tokio's thread wakes it. Such a future may borrow
    // local data. Tokio's timers work as well.
    let _inside = tokio.enter();
    let words = format!("here {n}");
    let here = block_on(timeout(Duration::from_secs(60), ask(server, &words)))??;
    Ok(format!("{there}, {here}"))
}
// ANCHOR_END: client

fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let server = listener.local_addr()?;
    thread::spawn(move || serve(&listener));
    let tokio =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let clients: Vec<_> = (0..20)
        .map(|n| {
            let handle = tokio.handle().clone();
            thread::spawn(move || client(n, server, &handle))
        })
        .collect();
    for client in clients {
        println!("{}", client.join().expect("no panic")?);
    }
    // A wait that only Tokio's timer ends.
    let _inside = tokio.enter();
    let never = block_on(timeout(Duration::from_millis(20), std::future::pending::<()>()));
    println!("never: {}", never.expect_err("the future never completes"));
    Ok(())
}
