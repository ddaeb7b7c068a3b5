//! The crate `redis` with its own connections: a thousand threads wait for work in a list.
//!
//! `cargo run --release -p kumihimo-examples-unmodified --bin unmodified_redis [URL]`, with a
//! server at that URL, and a limit of at least 2,000 descriptors (`ulimit -n`).

kumihimo::interpose!();

use std::thread;
use std::time::Duration;

use redis::{Client, Commands, Connection, RedisResult};

const COUNT: usize = 1_000;
const LIST: &str = "kumihimo:unmodified";

#[kumihimo::main]
fn main() -> RedisResult<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let client = Client::open(url)?;
    let mut connection = client.get_connection()?;
    let _: usize = connection.del(LIST)?;

    let workers: Vec<_> = (0..COUNT)
        .map(|_| {
            let client = client.clone();
            thread::spawn(move || work(&client))
        })
        .collect();
    while blocked_clients(&mut connection)? < COUNT {
        thread::sleep(Duration::from_millis(20));
    }
    println!("{COUNT} waiting in BLPOP on {} kernel threads", kernel_threads());
    println!("Enter gives them work.");
    std::io::stdin().read_line(&mut String::new())?;

    let numbers: Vec<usize> = (1..=COUNT).collect();
    let _: usize = connection.rpush(LIST, numbers)?;
    let mut sum = 0;
    for worker in workers {
        sum += worker.join().expect("no panic")?;
    }
    println!("The sum of the replies is {sum}.");
    Ok(())
}

/// Waits for a number in the list, on a connection of its own.
fn work(client: &Client) -> RedisResult<usize> {
    let (_list, number): (String, usize) = client.get_connection()?.blpop(LIST, 0.0)?;
    Ok(number)
}

/// Number of connections for which the server waits.
fn blocked_clients(connection: &mut Connection) -> RedisResult<usize> {
    let info: String = redis::cmd("INFO").arg("clients").query(connection)?;
    let line = info.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    Ok(line.expect("every server counts them").parse().expect("a number"))
}

fn kernel_threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux").count()
}
