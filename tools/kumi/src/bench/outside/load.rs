//! The load: an open loop over some connections, each with intended times of its own.

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use kumihimo_bench_kit::work::Dice;
use kumihimo_bench_stall::{CONNECTIONS, Place, REQUEST, now_ns};
use rustix::net::sockopt::set_socket_send_buffer_size_force;
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute, set_current_timer_slack};

/// Requests in one write, at most: who is late sends what is due together.
const TOGETHER: usize = 64;
/// A contender that takes nothing for a while shall not stop the load at once.
const BUFFER: usize = 4 << 20;

/// Accepts the contender's connections, and then sends `count` requests in all over them.
pub fn listen(place: &Place, rate: f64, count: usize) -> io::Result<()> {
    let listener = UnixListener::bind(place.load())?;
    thread::Builder::new().spawn(move || {
        let connections: io::Result<Vec<_>> = (0..CONNECTIONS).map(|_| Ok(listener.accept()?.0)).collect();
        let begin = now_ns();
        for (i, connection) in connections.expect("accept").into_iter().enumerate() {
            thread::spawn(move || {
                precise();
                // Without the right to it the buffer stays as it is.
                let _ = set_socket_send_buffer_size_force(&connection, BUFFER);
                let times = Times { next: begin, mean: 1e9 * CONNECTIONS as f64 / rate, dice: Dice::new(i as u64 + 1) };
                // The contender says itself that requests are missing.
                let _ = send(connection, times, (i..count).step_by(CONNECTIONS));
            });
        }
    })?;
    Ok(())
}

/// This kernel thread's sleeps end when they are to: without this they are coalesced over 50 us (prctl(2), PR_SET_TIMERSLACK).
pub fn precise() {
    // A sandbox that refuses it makes the load late, and the latencies with it, for all alike.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// Intended times, exponentially distributed: a Poisson process. With rate 0 (an infinite mean) all are due at once.
struct Times {
    next: u64,
    mean: f64,
    dice: Dice,
}

impl Iterator for Times {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.mean.is_finite() {
            let part = (self.dice.below(1 << 40) + 1) as f64 / (1u64 << 40) as f64;
            self.next += (-part.ln() * self.mean) as u64;
        }
        Some(self.next)
    }
}

/// Never skips: what could not be sent in time is sent as soon as possible, with the time at which it was due.
fn send(mut connection: UnixStream, times: Times, numbers: impl Iterator<Item = usize>) -> io::Result<()> {
    let mut all = times.zip(numbers).peekable();
    let mut bytes = Vec::with_capacity(TOGETHER * REQUEST);
    while let Some(&(due, _)) = all.peek() {
        if due > now_ns() {
            let until = Duration::from_nanos(due);
            let until = Timespec { tv_sec: until.as_secs() as i64, tv_nsec: until.subsec_nanos().into() };
            clock_nanosleep_absolute(ClockId::Monotonic, &until)?;
        }
        let now = now_ns();
        bytes.clear();
        while bytes.len() < TOGETHER * REQUEST
            && let Some((due, number)) = all.next_if(|&(due, _)| due <= now)
        {
            bytes.extend_from_slice(&due.to_le_bytes());
            bytes.extend_from_slice(&(number as u64).to_le_bytes());
        }
        connection.write_all(&bytes)?;
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
        let (mine, mut its) = UnixStream::pair().unwrap();
        let begin = now_ns();
        let times = Times { next: begin, mean: 20_000.0, dice: Dice::new(1) };
        let sender = thread::spawn(move || send(mine, times, (3..400).step_by(4)));
        let mut bytes = Vec::new();
        its.read_to_end(&mut bytes).unwrap();
        sender.join().unwrap().unwrap();
        let now = now_ns();
        let got: Vec<_> = requests_in(&bytes).collect();
        assert_eq!(got.iter().map(|r| r.1).collect::<Vec<_>>(), (3..400).step_by(4).collect::<Vec<_>>());
        assert!(got.iter().all(|r| (begin..=now).contains(&r.0)));
        assert!(got.is_sorted());
    }

    #[test]
    fn intended_times_have_the_mean_that_was_asked_for() {
        let times = Times { next: 0, mean: 1_000.0, dice: Dice::new(7) };
        let last = times.take(100_000).last().unwrap();
        assert!((95_000_000..105_000_000).contains(&last), "{last}");
    }
}
