//! A program with something to see: microprocesses with names that compute, wait, exchange bytes
//! and hold a lock, at several priorities. `cargo xtask picture` shows `kumi top` over it.
//!
//! `cargo run --release -p kumihimo-examples --bin busy [SECONDS]`, and `kumi top` beside it.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use kumihimo::net::{SocketAddr, TcpListener, TcpStream};
use kumihimo::sync::{Mutex, PoisonError};
use kumihimo::thread::{self, Builder, Priority};

const CLIENTS: usize = 3;

fn named(name: impl Into<String>, priority: u8) -> Builder {
    let priority = Priority::new(priority).expect("0 to 63");
    Builder::new().name(name.into()).priority(priority)
}

/// Sends back what arrives.
fn serve(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (mut stream, _peer) = listener.accept()?;
        named("connection", 40).spawn(move || io::copy(&mut stream.try_clone()?, &mut stream))?;
    }
}

fn ask(server: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(server)?;
    let mut buffer = [0; 64];
    loop {
        stream.write_all(&buffer)?;
        stream.read_exact(&mut buffer)?;
        thread::sleep(Duration::from_millis(1));
    }
}

fn checksum(until: Instant) {
    let mut sum = 1u64;
    while Instant::now() < until {
        sum = (0..100_000u64).fold(sum, |sum, n| sum.rotate_left(5) ^ n);
    }
    std::hint::black_box(sum);
}

fn main() -> io::Result<()> {
    let seconds = std::env::args().nth(1).map_or(10, |n| n.parse().expect("SECONDS is a number"));
    let until = Instant::now() + Duration::from_secs(seconds);
    let listener = &TcpListener::bind("127.0.0.1:0")?;
    let (server, journal) = (listener.local_addr()?, &Mutex::new(0u64));
    // Cancellation at the end may unwind a holder, which poisons the lock.
    let entries = || journal.lock().unwrap_or_else(PoisonError::into_inner);
    // At the end, whatever still waits is cancelled.
    thread::scope_until(until, |s| {
        named("listener", 48).spawn_scoped(s, || serve(listener))?;
        for n in 1..=CLIENTS {
            named(format!("client-{n}"), 32).spawn_scoped(s, move || ask(server))?;
        }
        named("clock", 60).spawn_scoped(s, || {
            loop {
                thread::sleep(Duration::from_millis(10));
            }
        })?;
        // Holds the lock for a while; `audit`, which is more important, lends it its priority.
        named("journal", 16).spawn_scoped(s, move || {
            loop {
                let mut entries = entries();
                thread::sleep(Duration::from_millis(900));
                *entries += 1;
                drop(entries);
                thread::sleep(Duration::from_millis(10));
            }
        })?;
        named("audit", 52).spawn_scoped(s, move || {
            loop {
                let count = *entries();
                thread::sleep(Duration::from_millis(20 + count % 2));
            }
        })?;
        // A call that the runtime does not know: it blocks its kernel thread and nothing else.
        named("backup", 24).spawn_scoped(s, move || {
            while Instant::now() < until {
                std::thread::sleep(Duration::from_millis(700));
            }
        })?;
        let paused = named("reindex", 8).spawn_scoped(s, move || checksum(until))?;
        // Refused where microprocesses are kernel threads.
        let _ = paused.thread().suspend();
        named("checksum", 12).spawn_scoped(s, move || checksum(until))?;
        thread::sleep_until(until);
        let _ = paused.thread().resume();
        Ok(())
    })
}
