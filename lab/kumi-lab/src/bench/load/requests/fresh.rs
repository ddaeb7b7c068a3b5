//! A new connection for each point select, beside connections whose queries compute all the time.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use kumihimo_bench_kit::Lateness;

use super::protocol::Protocol;
use super::{Connection, Slice, connect, mysql};

/// Time for the queries to begin.
const WARM_UP: Duration = Duration::from_millis(300);
/// Time that the queries go on after the end of the slice, in which the last request is answered.
const MARGIN: Duration = Duration::from_secs(1);

/// Runs `queries` that compute for as long as the slice takes, and measures the time from the
/// beginning of a connection to the reply of its select.
pub fn run(port: u16, queries: usize, length: Duration) -> io::Result<Slice> {
    let whole = WARM_UP + length + MARGIN;
    let computing: Vec<_> =
        (0..queries).map(|_| std::thread::spawn(move || compute(port, whole))).collect();
    std::thread::sleep(WARM_UP);
    let mut late = Lateness::default();
    let (start, mut slot) = (Instant::now(), 0);
    while start.elapsed() < length {
        let begun = Instant::now();
        drop(Connection::open(Protocol::Mysql, port, slot)?);
        late.record(begun.elapsed());
        slot += 1;
    }
    let took = start.elapsed();
    for one in computing {
        let computed = one.join().map_err(|_| io::Error::other("a query panicked"))??;
        if computed < WARM_UP + length {
            return Err(io::Error::other(format!("a query ended after {computed:?}")));
        }
    }
    Ok(Slice { requests: late.len(), late, took, dropped: 0 })
}

/// Runs a query that computes until the server ends it after `length`. Returns for how long it ran.
fn compute(port: u16, length: Duration) -> io::Result<Duration> {
    let mut stream = connect(port)?;
    Protocol::Mysql.greet(&mut stream)?;
    let query = mysql::query(&format!(
        "SET STATEMENT max_statement_time={} FOR SELECT BENCHMARK(1000000000000, MD5('k'))",
        length.as_secs_f64()
    ));
    let begun = Instant::now();
    stream.write_all(&query)?;
    mysql::read_result(&mut stream)?;
    Ok(begun.elapsed())
}
