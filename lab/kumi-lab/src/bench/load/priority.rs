//! Load generator of `priority-io`: many connections in a closed loop, and few in an open loop,
//! which is timed. The same for every server.

use std::collections::VecDeque;
use std::io::BufRead;
use std::mem::MaybeUninit;
use std::thread;
use std::time::{Duration, Instant};

use kumihimo_bench_kit::{Lateness, raise_descriptors};
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::PATIENCE;
use super::echo::{Connection, Load, connect};
use super::outside::precise;

/// Interval between requests of high priority, over all connections of that kind.
const EVERY: Duration = Duration::from_millis(1);
/// Priority of the open loop's thread, so that only the server delays its requests.
const NICE: i32 = -20;

#[derive(clap::Args)]
pub struct Args {
    /// Port on 127.0.0.1 for connections of low priority
    low: u16,
    /// Number of connections of low priority
    low_connections: usize,
    /// Port for connections of high priority
    high: u16,
    /// Number of connections of high priority
    high_connections: usize,
}

/// Connects and prints `ready`. Then each line of standard input is a number of milliseconds for
/// which to run. The reply is `LOW_REQUESTS SECONDS HIGH_REQUESTS HIGH_P50 HIGH_P99` (microseconds
/// since a request was due).
pub fn run(args: Args) -> Result<(), String> {
    let said = |e: std::io::Error| format!("load: {e}");
    raise_descriptors();
    let mut low = Load::connect(args.low, args.low_connections).map_err(said)?;
    let mut high = Paced::connect(args.high, args.high_connections).map_err(said)?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(said)?;
        let millis: u64 = line
            .trim()
            .parse()
            .map_err(|_| format!("load: {line:?} is not a number of milliseconds"))?;
        let length = Duration::from_millis(millis);
        let (slice, late) = thread::scope(|scope| {
            let high = scope.spawn(|| high.run(length));
            let low = low.run(length);
            (low, high.join().expect("no panic"))
        });
        let (slice, late) = (slice.map_err(said)?, late.map_err(said)?);
        let [p50, p99] = [0.5, 0.99].map(|q| late.us(q));
        println!("{} {} {} {p50} {p99}", slice.requests, slice.took.as_secs_f64(), late.len());
    }
    Ok(())
}

/// An open loop: requests are due at fixed times, over one connection after the other. If the last
/// reply is still missing, the next request on that connection is sent as soon as the reply
/// arrives. Its latency counts from the time at which it was due.
struct Paced {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// For each connection, the due times of requests without a reply, the oldest first.
    due: Vec<VecDeque<Instant>>,
}

impl Paced {
    fn connect(port: u16, count: usize) -> std::io::Result<Self> {
        let (epoll, connections) = connect(port, count)?;
        Ok(Paced { epoll, connections, due: vec![VecDeque::new(); count] })
    }

    fn run(&mut self, length: Duration) -> std::io::Result<Lateness> {
        precise();
        // Without the privilege, all threads compete alike.
        let _ = rustix::process::setpriority_process(None, NICE);
        let mut late = Lateness::default();
        let mut next = Instant::now();
        let end = next + length;
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 64];
        let mut turn = 0;
        loop {
            let now = Instant::now();
            while next <= now && next < end {
                let i = turn % self.connections.len();
                turn += 1;
                self.due[i].push_back(next);
                if self.due[i].len() == 1 {
                    self.connections[i].send(now)?;
                }
                next += EVERY;
            }
            let owed = self.due.iter().any(|due| !due.is_empty());
            if next >= end && !owed {
                return Ok(late);
            }
            let wait =
                if next < end { next.saturating_duration_since(Instant::now()) } else { PATIENCE };
            let wait =
                Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
            let ready = match epoll::wait(&self.epoll, &mut events, Some(&wait)) {
                Ok((ready, _)) => ready,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            if ready.is_empty() && next >= end {
                let message =
                    format!("replies of high priority are missing after {} s", PATIENCE.as_secs());
                return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, message));
            }
            for event in ready {
                let i = event.data.u64() as usize;
                if !self.connections[i].receive()? {
                    continue;
                }
                let due = self.due[i].pop_front().expect("a reply to a request");
                late.record(due.elapsed());
                if !self.due[i].is_empty() {
                    self.connections[i].send(Instant::now())?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_due_request_is_answered() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            thread::scope(|scope| {
                for _ in 0..2 {
                    let (stream, _) = listener.accept().unwrap();
                    scope.spawn(move || std::io::copy(&mut &stream, &mut &stream).unwrap());
                }
            });
        });
        let mut high = Paced::connect(port, 2).unwrap();
        let late = high.run(Duration::from_millis(20)).unwrap();
        assert_eq!(late.len(), 20);
        drop(high);
        server.join().unwrap();
    }
}
