//! The crate `ureq` with its own connections: a thousand requests wait for their replies.
//!
//! `cargo run --release -p kumihimo-examples-unmodified --bin unmodified_ureq [ADDRESS]`, with
//! `unmodified_tiny_http` at that address, and a limit of at least 2,000 descriptors (`ulimit -n`).

kumihimo::interpose!();

use std::thread;
use std::time::Duration;

const COUNT: usize = 1_000;

#[kumihimo::main]
fn main() -> Result<(), ureq::Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());

    let requests: Vec<_> = (0..COUNT)
        .map(|_| {
            let address = address.clone();
            thread::spawn(move || get(&address, "wait"))
        })
        .collect();
    while waiting(&get(&address, "waiting")?) < COUNT {
        if requests.iter().any(|request| request.is_finished()) {
            break; // An error, which `join` returns below.
        }
        thread::sleep(Duration::from_millis(20));
    }
    println!("{COUNT} waiting in recv on {} kernel threads", kernel_threads());
    println!("Enter lets them go.");
    std::io::stdin().read_line(&mut String::new())?;

    get(&address, "go")?;
    let mut replies = Vec::new();
    for request in requests {
        replies.push(request.join().expect("no panic")?);
    }
    replies.dedup();
    println!("All replies are {replies:?}.");
    Ok(())
}

/// Gets a page, on a connection of its own.
fn get(address: &str, page: &str) -> Result<String, ureq::Error> {
    let request = ureq::get(format!("http://{address}/{page}")).header("Connection", "close");
    request.call()?.body_mut().read_to_string()
}

/// The first number of the server's reply: how many requests wait there.
fn waiting(reply: &str) -> usize {
    reply.split(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

fn kernel_threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux").count()
}
