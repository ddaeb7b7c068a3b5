//! The load: an open loop over several connections. At each intended time, one request is sent over
//! each of them, because a sleep for each request would cost a virtual machine more than the
//! requests.

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use kumihimo_bench_kit::work::Dice;
use kumihimo_bench_stall::{CONNECTIONS, Place, REQUEST, now_ns};
use rustix::net::sockopt::set_socket_send_buffer_size_force;
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute, set_current_timer_slack};

/// Socket buffer size, so that a contender that receives nothing for a while does not block the
/// load at once.
const BUFFER: usize = 16 << 20;
/// Nanoseconds between sends if requests are to arrive as fast as possible. The load still sleeps
/// in between, which costs as much as the request on a virtual machine.
const AT_ONCE: u64 = 20_000;

/// Accepts the contender's connections, and sends `count` requests in total, rounded up to one for
/// each connection.
pub fn listen(place: &Place, rate: f64, count: usize) -> io::Result<()> {
    let listener = UnixListener::bind(place.load())?;
    thread::Builder::new().spawn(move || {
        precise();
        let connections: io::Result<Vec<_>> =
            (0..CONNECTIONS).map(|_| Ok(listener.accept()?.0)).collect();
        let connections = connections.expect("accept");
        for connection in &connections {
            // Without the privilege, the buffer keeps its size.
            let _ = set_socket_send_buffer_size_force(connection, BUFFER);
        }
        let mean = 1e9 * CONNECTIONS as f64 / rate;
        let mut times = Times { next: now_ns(), mean, dice: Dice::new(1) };
        let due = move || if mean.is_finite() { times.next() } else { now_ns() + AT_ONCE };
        // If the contender ends too early, it reports the missing requests itself.
        let _ = send(&connections, due, count);
    })?;
    Ok(())
}

/// Makes this kernel thread's sleeps precise. By default the kernel coalesces them over 50 us
/// (prctl(2), PR_SET_TIMERSLACK).
pub fn precise() {
    // If a sandbox refuses this, the load is late, which affects the latencies of all contenders
    // alike.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// Intended times with exponentially distributed intervals: a Poisson process.
struct Times {
    next: u64,
    mean: f64,
    dice: Dice,
}

impl Times {
    fn next(&mut self) -> u64 {
        let part = (self.dice.below(1 << 40) + 1) as f64 / (1u64 << 40) as f64;
        self.next += (-part.ln() * self.mean) as u64;
        self.next
    }
}

/// Sends one request over each connection at each due time. Never skips: a late request is sent as
/// soon as possible, with the time at which it was due.
fn send(connections: &[UnixStream], mut due: impl FnMut() -> u64, count: usize) -> io::Result<()> {
    for first in (0..count).step_by(connections.len()) {
        let due = due();
        if due > now_ns() {
            let until = Duration::from_nanos(due);
            let until =
                Timespec { tv_sec: until.as_secs() as i64, tv_nsec: until.subsec_nanos().into() };
            clock_nanosleep_absolute(ClockId::Monotonic, &until)?;
        }
        for (i, mut connection) in connections.iter().enumerate() {
            let mut bytes = [0; REQUEST];
            bytes[..8].copy_from_slice(&due.to_le_bytes());
            bytes[8..].copy_from_slice(&((first + i) as u64).to_le_bytes());
            connection.write_all(&bytes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use kumihimo_bench_stall::requests_in;

    use super::*;

    #[test]
    fn every_request_is_sent_once_and_none_before_its_time() {
        let (mine, its): (Vec<_>, Vec<_>) = (0..2).map(|_| UnixStream::pair().unwrap()).unzip();
        let begin = now_ns();
        let mut times = Times { next: begin, mean: 20_000.0, dice: Dice::new(1) };
        let sender = thread::spawn(move || send(&mine, || times.next(), 200));
        let mut dues = Vec::new();
        for (i, mut its) in its.into_iter().enumerate() {
            let mut bytes = Vec::new();
            its.read_to_end(&mut bytes).unwrap();
            let now = now_ns();
            let got: Vec<_> = requests_in(&bytes).collect();
            assert_eq!(
                got.iter().map(|r| r.1).collect::<Vec<_>>(),
                (i..200).step_by(2).collect::<Vec<_>>()
            );
            assert!(got.iter().all(|r| (begin..=now).contains(&r.0)));
            assert!(got.is_sorted());
            dues.push(got.iter().map(|r| r.0).collect::<Vec<_>>());
        }
        sender.join().unwrap().unwrap();
        assert_eq!(dues[0], dues[1]);
    }

    #[test]
    fn intended_times_have_the_given_mean() {
        let mut times = Times { next: 0, mean: 1_000.0, dice: Dice::new(7) };
        let last = (0..100_000).map(|_| times.next()).last().unwrap();
        assert!((95_000_000..105_000_000).contains(&last), "{last}");
    }
}
