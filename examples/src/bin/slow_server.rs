//! A server that is slow for three reasons: a report computes all the time, the lock of the journal
//! is held while its file is written, and a peer answers late. The page "A slow server, step by
//! step" of the book finds them with `kumi top`, `kumi locks` and `kumi profile`.
//!
//! `cargo run --release -p kumihimo-examples --bin slow_server`, until Ctrl-C.

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::time::Duration;

use kumihimo::net::TcpStream;
use kumihimo::sync::{Mutex, PoisonError};
use kumihimo::thread::{self, Builder};

const ORDERS: usize = 24;
const AUDITS: usize = 40;
/// Time that the peer takes for an answer.
const LATE: Duration = Duration::from_millis(300);
/// Time that the journal's file takes.
const FILE: Duration = Duration::from_millis(50);

static JOURNAL: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// First fault: nobody waits for the report, but it is computed again and again.
#[inline(never)]
fn summarise() {
    let mut sum = 1u64;
    loop {
        sum = (0..50_000).fold(black_box(sum), |sum, n| sum.rotate_left(5) ^ n);
    }
}

/// Second fault: the entries are written while their lock is held.
#[inline(never)]
fn flush_journal() {
    loop {
        let mut entries = JOURNAL.lock().unwrap_or_else(PoisonError::into_inner);
        thread::sleep(FILE);
        entries.clear();
        drop(entries);
        thread::yield_now();
    }
}

#[inline(never)]
fn write_entry(entry: u64) {
    JOURNAL.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
}

fn audit() {
    for entry in 0.. {
        write_entry(entry);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Third fault: each order waits for the peer.
#[inline(never)]
fn ask_for_price(peer: &mut TcpStream) -> io::Result<u8> {
    let mut price = [0];
    peer.write_all(b"?")?;
    peer.read_exact(&mut price)?;
    Ok(price[0])
}

fn serve_orders(mut peer: TcpStream) {
    while ask_for_price(&mut peer).is_ok() {}
}

/// The peer: a kernel thread for each connection, which `kumi` does not see, as if it were another
/// machine.
fn start_peer() -> io::Result<std::net::SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            std::thread::spawn(move || answer_late(connection?));
        }
        Ok::<(), io::Error>(())
    });
    Ok(address)
}

fn answer_late(mut order: std::net::TcpStream) -> io::Result<()> {
    let mut question = [0];
    loop {
        order.read_exact(&mut question)?;
        std::thread::sleep(LATE);
        order.write_all(b"7")?;
    }
}

/// Runs until the process ends.
///
/// # Errors
/// Those of sockets, and of the kernel threads of the peer.
pub fn main() -> io::Result<()> {
    let peer = start_peer()?;
    Builder::new().name("report".into()).spawn(summarise)?;
    let flush = Builder::new().name("flush".into()).spawn(flush_journal)?;
    for n in 1..=AUDITS {
        Builder::new().name(format!("audit-{n}")).spawn(audit)?;
    }
    for n in 1..=ORDERS {
        let peer = TcpStream::connect(peer)?;
        Builder::new().name(format!("order-{n}")).spawn(move || serve_orders(peer))?;
    }
    println!("process {}", std::process::id());
    flush.join().map_err(|_| io::Error::other("flush ended"))
}
