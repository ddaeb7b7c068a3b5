//! Step 5: ten thousand clients of the server of step 4, each a microprocess with a connection.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use kumihimo::net::TcpStream;
use kumihimo::sync::{Barrier, Semaphore};
use kumihimo::thread;

const ROUNDS: usize = 3;

fn client(address: &str, connecting: &Semaphore, open: &Barrier) -> io::Result<()> {
    let mut stream = {
        let _permit = connecting.acquire(); // a few at a time: the backlog is finite
        TcpStream::connect(address)?
    };
    if open.wait().is_leader() {
        println!("all connections are open");
    }
    for round in 0..ROUNDS {
        let request = format!("round {round}");
        stream.write_all(request.as_bytes())?;
        let mut reply = vec![0; request.len()];
        stream.read_exact(&mut reply)?;
        if reply != request.as_bytes() {
            return Err(io::Error::other("the reply differs from the request"));
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let count = arguments.next().map_or(10_000, |n| n.parse().expect("COUNT is a number"));
    let begun = Instant::now();
    let (connecting, open) = (Semaphore::new(128), Barrier::new(count));
    let deadline = begun + Duration::from_secs(120);
    let served = thread::scope_until(deadline, |s| {
        // The first client that fails cancels all others.
        let clients: Vec<_> =
            (0..count).map(|_| s.try_spawn(|| client(&address, &connecting, &open))).collect();
        let outcomes = clients.into_iter().filter_map(|client| client.join().ok());
        outcomes.map(|outcome| outcome.map(|()| 1)).sum::<io::Result<usize>>()
    })?;
    if served < count {
        return Err(io::ErrorKind::TimedOut.into());
    }
    println!("{served} clients had {ROUNDS} replies each within {:.1?}", begun.elapsed());
    Ok(())
}
