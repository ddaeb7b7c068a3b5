//! The crate `postgres`: a thousand sessions wait for a lock in the server.
//!
//! `cargo run --release -p kumihimo-examples-unmodified --bin unmodified_postgres [URL]`, with a
//! server at that URL that allows 1,001 connections, and a limit of at least 6,000 descriptors
//! (`ulimit -n`). Each client has a Tokio runtime inside, which waits in epoll_wait(2).

kumihimo::interpose!();

use std::thread;
use std::time::Duration;

use postgres::{Client, Error, NoTls};

const COUNT: usize = 1_000;

#[kumihimo::main]
fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1);
    let url = url.unwrap_or_else(|| "postgres://postgres@localhost/postgres".to_owned());
    let mut client = Client::connect(&url, NoTls)?;
    client.batch_execute("SELECT pg_advisory_lock(1)")?;

    let sessions: Vec<_> = (0..COUNT)
        .map(|_| {
            let url = url.clone();
            thread::spawn(move || wait_for_lock(&url))
        })
        .collect();
    while waiting_sessions(&mut client)? < COUNT {
        thread::sleep(Duration::from_millis(50));
    }
    println!("{COUNT} waiting in epoll_wait on {} kernel threads", kernel_threads());
    println!("Enter releases the lock.");
    let _ = std::io::stdin().read_line(&mut String::new());

    client.batch_execute("SELECT pg_advisory_unlock(1)")?;
    let mut processes = Vec::new();
    for session in sessions {
        processes.push(session.join().expect("no panic")?);
    }
    processes.sort_unstable();
    processes.dedup();
    println!("{} processes of the server had the lock.", processes.len());
    Ok(())
}

/// Opens a session, waits for the lock, and returns the ID of the server's process.
fn wait_for_lock(url: &str) -> Result<i32, Error> {
    let mut client = Client::connect(url, NoTls)?;
    client.batch_execute("SELECT pg_advisory_lock_shared(1)")?;
    Ok(client.query_one("SELECT pg_backend_pid()", &[])?.get(0))
}

fn waiting_sessions(client: &mut Client) -> Result<usize, Error> {
    let count = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    let count: i64 = client.query_one(count, &[])?.get(0);
    Ok(count as usize)
}

fn kernel_threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux").count()
}
