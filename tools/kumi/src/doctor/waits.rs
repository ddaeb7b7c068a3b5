//! What a wait costs here: some ask a kernel thread each over std's pipes, of which the runtime knows nothing, and wait for the answers.
//!
//! Several, so that no core idles: to wake one that does costs as much as ten waits, and whether two that talk share a core is chance.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::time::Duration;

use kumihimo::runtime::{Metrics, Runtime, metrics};
use kumihimo::thread;
use kumihimo_bench_kit::Usage;

/// Of each, in one round. A told one takes some 50 us.
const WAITS: u32 = 500;
/// They that ask.
const ALL: u32 = 8;
/// The least of so many rounds counts.
const ROUNDS: u32 = 5;

/// Prints a line for each way to wait.
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
    let us = |took: Duration| took.as_secs_f64() * 1e6 / f64::from(WAITS * ALL);
    println!("{name:<24} {:.1} us of CPU time, {:.2} times a thread's ({what})", us(took), us(took) / us(thread));
}

/// One that asks and waits, and does `then` after each answer, until it has asked often enough; a kernel thread that answers has begun.
fn ask(then: fn()) -> io::Result<impl FnOnce() -> io::Result<()> + Send> {
    let ((mut asked, mut to), (mut from, mut answers)) = (io::pipe()?, io::pipe()?);
    let answer = move || -> io::Result<()> { (0..WAITS).try_for_each(|_| pass(&mut asked, &mut answers)) };
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

/// CPU time of the process for all of them.
fn of_std() -> io::Result<Duration> {
    let all = (0..ALL).map(|_| ask(|| ())).collect::<io::Result<Vec<_>>>()?;
    let before = Usage::now();
    std::thread::scope(|scope| {
        let all: Vec<_> = all.into_iter().map(|one| scope.spawn(one)).collect();
        all.into_iter().try_for_each(|one| one.join().expect("no panic"))
    })?;
    Ok(Usage::now().since(before).cpu)
}

fn of_ours(sticky: bool) -> io::Result<(Duration, Metrics)> {
    let builder = Runtime::builder();
    let runtime = if sticky { builder } else { builder.sticky(false) }.build()?;
    // Some sources notice a return only where the runtime is entered.
    let all = (0..ALL).map(|_| ask(thread::yield_now)).collect::<io::Result<Vec<_>>>()?;
    runtime.run(|| {
        let before = Usage::now();
        let all: Vec<_> = all.into_iter().map(thread::spawn).collect();
        all.into_iter().try_for_each(|one| one.join().expect("no panic"))?;
        Ok((Usage::now().since(before).cpu, metrics().expect("a runtime runs")))
    })
}
