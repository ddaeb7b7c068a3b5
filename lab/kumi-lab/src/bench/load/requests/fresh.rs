//! A new connection for each point select, beside connections whose queries compute all the time.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kumihimo_bench_kit::Lateness;

use super::protocol::Protocol;
use super::{Connection, Slice, connect, mysql};

/// Time for the queries to begin.
const WARM_UP: Duration = Duration::from_millis(300);
/// Time that the queries go on after the end of the slice, in which the last request is answered.
const MARGIN: Duration = Duration::from_secs(10);

/// Runs `queries` that compute for as long as the slice takes, and measures the time from the
/// beginning of a connection to the reply of its select.
///
/// # Errors
/// If a query ends before the last reply, because that request did not compete with all of them.
pub fn run(port: u16, queries: usize, length: Duration) -> io::Result<Slice> {
    let whole = WARM_UP + length + MARGIN;
    let mut logged_in = Vec::new();
    for _ in 0..queries {
        let mut stream = connect(port)?;
        Protocol::Mysql.greet(&mut stream)?;
        logged_in.push(stream);
    }
    let computing: Vec<_> = logged_in
        .into_iter()
        .map(|stream| std::thread::spawn(move || compute(stream, whole)))
        .collect();
    std::thread::sleep(WARM_UP);
    let mut late = Lateness::default();
    let (start, mut slot) = (Instant::now(), 0);
    while start.elapsed() < length {
        let begun = Instant::now();
        drop(Connection::open(Protocol::Mysql, port, slot)?);
        late.record(begun.elapsed());
        slot += 1;
    }
    let end = Instant::now();
    for one in computing {
        let ended = one.join().map_err(|_| io::Error::other("a query panicked"))??;
        if ended < end {
            let before = end - ended;
            let message = format!("a query that computes ended {before:?} before the last reply");
            return Err(io::Error::other(message));
        }
    }
    Ok(Slice { requests: late.len(), late, took: end - start, dropped: 0 })
}

/// Runs a query that computes until the server ends it after `length`. Returns when it ended.
fn compute(mut stream: TcpStream, length: Duration) -> io::Result<Instant> {
    let query = mysql::query(&format!(
        "SET STATEMENT max_statement_time={} FOR SELECT BENCHMARK(1000000000000, MD5('k'))",
        length.as_secs_f64()
    ));
    stream.write_all(&query)?;
    mysql::read_result(&mut stream)?;
    Ok(Instant::now())
}
