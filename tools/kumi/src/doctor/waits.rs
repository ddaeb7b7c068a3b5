//! What a wait costs here: one asks a kernel thread over std's pipes, of which the runtime knows nothing, and waits for the answer.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::time::Duration;

use kumihimo::runtime::{Metrics, Runtime, metrics};
use kumihimo::thread;
use kumihimo_bench_kit::Usage;

/// In one round. A told one takes some 50 us.
const WAITS: u32 = 2_000;
/// The least of so many rounds counts: which cores two have is chance, and changes the cost of a wake-up fourfold.
const ROUNDS: u32 = 7;

/// Prints a line for each way to wait.
pub fn measure() -> Result<(), String> {
    let said = |e: io::Error| format!("measuring waits: {e}");
    let (mut thread, mut told, mut kept) = (Duration::MAX, Duration::MAX, Duration::MAX);
    let mut of = Metrics::default();
    for _ in 0..ROUNDS {
        thread = thread.min(ask(|| ()).map_err(said)?);
        told = told.min(of_ours(false).map_err(said)?.0);
        let last = of_ours(true).map_err(said)?;
        (kept, of) = (kept.min(last.0), last.1);
    }
    show("wait of a thread", thread, thread, "std's, and the thread's that answers");
    if of.tls == "kernel" {
        println!("{:<24} that of a thread: 1:1", "wait of a microprocess");
        return Ok(());
    }
    let source = format!("by events from {}: its virtual processor goes on elsewhere", of.events);
    show("wait that is told", told, thread, &source);
    let why = match of.changes {
        0 => "told as each other: KUMI_STICKY=off, or levels differ",
        _ => "who waits often keeps its kernel thread",
    };
    show("wait, one of many", kept, thread, why);
    Ok(())
}

fn show(name: &str, took: Duration, thread: Duration, what: &str) {
    let us = |took: Duration| took.as_secs_f64() * 1e6 / f64::from(WAITS);
    println!("{name:<24} {:.1} us of CPU time, {:.2} times a thread's ({what})", us(took), us(took) / us(thread));
}

/// CPU time of the process while the caller asks and waits, and does `then` after each answer.
fn ask(then: fn()) -> io::Result<Duration> {
    let ((mut asked, mut to), (mut from, mut answers)) = (io::pipe()?, io::pipe()?);
    let answer = move || -> io::Result<()> { (0..WAITS).try_for_each(|_| pass(&mut asked, &mut answers)) };
    let answers = std::thread::Builder::new().spawn(answer)?;
    let before = Usage::now();
    for _ in 0..WAITS {
        to.write_all(&[7])?;
        from.read_exact(&mut [0])?;
        then();
    }
    let took = Usage::now().since(before).cpu;
    answers.join().expect("no panic")?;
    Ok(took)
}

fn pass(from: &mut PipeReader, to: &mut PipeWriter) -> io::Result<()> {
    let mut byte = [0];
    from.read_exact(&mut byte)?;
    to.write_all(&byte)
}

fn of_ours(sticky: bool) -> io::Result<(Duration, Metrics)> {
    let builder = Runtime::builder();
    let runtime = if sticky { builder } else { builder.sticky(false) }.build()?;
    // Some sources notice a return only where the runtime is entered.
    let (took, of) = runtime.run(|| (ask(thread::yield_now), metrics().expect("a runtime runs")));
    Ok((took?, of))
}
