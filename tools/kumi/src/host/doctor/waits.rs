//! Measures the cost of a wait outside of the runtime: clients exchange bytes with kernel threads
//! over std's pipes.
//!
//! Several clients run at once, so that no core is idle: waking an idle core costs as much as ten
//! waits.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::time::Duration;

use kumihimo::runtime::{Metrics, Runtime, metrics};
use kumihimo::thread;
use rustix::time::{ClockId, clock_gettime};

use crate::text::say;

/// Waits of each client in a round. A wait with a hand-off takes about 50 us.
const WAITS: u32 = 500;
/// Number of concurrent clients.
const CLIENTS: u32 = 8;
/// Number of rounds. The fastest one counts.
const ROUNDS: u32 = 5;

/// Prints one line for each kind of wait.
pub fn measure() -> Result<(), String> {
    let said = |e: io::Error| format!("measuring waits: {e}");
    let (mut thread, mut told, mut kept) = (Duration::MAX, Duration::MAX, Duration::MAX);
    let mut of = Metrics::default();
    for _ in 0..ROUNDS {
        thread = thread.min(of_std().map_err(said)?);
        told = told.min(of_ours(false).map_err(said)?.0);
        let last = of_ours(true).map_err(said)?;
        (kept, of) = (kept.min(last.0), last.1);
    }
    show("waits of threads", thread, thread, "including its peer's wait");
    if of.tls == "kernel" {
        say!("{:<24} equal to waits of threads (1:1)", "waits of microprocesses");
        return Ok(());
    }
    let source = format!("event source {}, with a hand-off of the virtual processor", of.events);
    show("first waits", told, thread, &source);
    let why = match of.changes {
        0 => "with a hand-off, because of KUMI_LAB=sticky=off or different priorities",
        _ => "sticky: the microprocess keeps its kernel thread",
    };
    show("frequent waits", kept, thread, why);
    Ok(())
}

fn show(name: &str, took: Duration, thread: Duration, what: &str) {
    let us = |took: Duration| took.as_secs_f64() * 1e6 / f64::from(WAITS * CLIENTS);
    say!(
        "{name:<24} {:.1} us of CPU time, {:.2} times a thread's ({what})",
        us(took),
        us(took) / us(thread)
    );
}

/// Starts a peer and returns the client, which calls `then` after each answer.
fn ask(then: fn()) -> io::Result<impl FnOnce() -> io::Result<()> + Send> {
    let ((mut asked, mut to), (mut from, mut answers)) = (io::pipe()?, io::pipe()?);
    let answer =
        move || -> io::Result<()> { (0..WAITS).try_for_each(|_| pass(&mut asked, &mut answers)) };
    let answers = std::thread::Builder::new().spawn(answer)?;
    Ok(move || {
        for _ in 0..WAITS {
            to.write_all(&[7])?;
            from.read_exact(&mut [0])?;
            then();
        }
        answers.join().expect("no panic")
    })
}

fn pass(from: &mut PipeReader, to: &mut PipeWriter) -> io::Result<()> {
    let mut byte = [0];
    from.read_exact(&mut byte)?;
    to.write_all(&byte)
}

/// CPU time used by this process.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// CPU time of the process for all clients as kernel threads.
fn of_std() -> io::Result<Duration> {
    let all = (0..CLIENTS).map(|_| ask(|| ())).collect::<io::Result<Vec<_>>>()?;
    let before = cpu_time();
    std::thread::scope(|scope| {
        let all: Vec<_> = all.into_iter().map(|one| scope.spawn(one)).collect();
        all.into_iter().try_for_each(|one| one.join().expect("no panic"))
    })?;
    Ok(cpu_time() - before)
}

fn of_ours(sticky: bool) -> io::Result<(Duration, Metrics)> {
    let builder = Runtime::builder();
    let runtime = if sticky { builder } else { builder.sticky(false) }.build()?;
    // The sources `perf` and `watch` detect a return only when the microprocess enters the runtime.
    let all = (0..CLIENTS).map(|_| ask(thread::yield_now)).collect::<io::Result<Vec<_>>>()?;
    runtime.run(|| {
        let before = cpu_time();
        let all: Vec<_> = all.into_iter().map(thread::spawn).collect();
        all.into_iter().try_for_each(|one| one.join().expect("no panic"))?;
        Ok((cpu_time() - before, metrics().expect("a runtime runs")))
    })
}
