//! The crate `r2d2`: a thousand threads wait for one of eight pooled connections to Redis.
//!
//! `cargo run --release -p kumihimo-examples-unmodified --bin unmodified_r2d2 [URL]`, with a server
//! at that URL.

kumihimo::interpose!();

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use r2d2::Pool;
use redis::{Client, Commands};

const COUNT: usize = 1_000;
const CONNECTIONS: u32 = 8;
const COUNTER: &str = "kumihimo:counter";

type Trouble = Box<dyn std::error::Error + Send + Sync>;

#[kumihimo::main]
fn main() -> Result<(), Trouble> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let client = Client::open(url)?;
    let _: usize = client.get_connection()?.del(COUNTER)?;
    let patience = Duration::from_secs(600);
    let pool = Pool::builder().max_size(CONNECTIONS).connection_timeout(patience).build(client)?;
    // All connections are in use until they are dropped.
    let taken = (0..CONNECTIONS).map(|_| pool.get()).collect::<Result<Vec<_>, _>>()?;

    let asking = Arc::new(AtomicUsize::new(0));
    let users: Vec<_> = (0..COUNT)
        .map(|_| {
            let (pool, asking) = (pool.clone(), Arc::clone(&asking));
            thread::spawn(move || count(&pool, &asking))
        })
        .collect();
    while asking.load(Ordering::Acquire) < COUNT {
        thread::sleep(Duration::from_millis(20));
    }
    println!("{COUNT} waiting in Pool::get on {} kernel threads", kernel_threads());
    println!("Enter returns the connections.");
    std::io::stdin().read_line(&mut String::new())?;

    drop(taken);
    for user in users {
        user.join().expect("no panic")?;
    }
    let total: usize = pool.get()?.get(COUNTER)?;
    println!("{total} increments over {} connections", pool.state().connections);
    Ok(())
}

/// Waits for a connection, and increments the counter.
fn count(pool: &Pool<Client>, asking: &AtomicUsize) -> Result<(), Trouble> {
    asking.fetch_add(1, Ordering::Release);
    let _: usize = pool.get()?.incr(COUNTER, 1)?;
    Ok(())
}

fn kernel_threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux").count()
}
