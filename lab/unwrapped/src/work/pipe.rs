//! `pipe` and `mix`: pairs that pass a byte back and forth through two pipes.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::Arc;

use super::Work;
use crate::plan::Plan;
use crate::threads::{Body, Counter, Threads};

/// Operations that a side performs at times through the contender's API.
#[derive(Clone)]
struct Own {
    threads: Arc<dyn Threads>,
    counter: Arc<Counter>,
    every: usize,
}

/// One body for each side of each pair. With `threads`, some turns, as many as the plan requests,
/// take a shared lock and yield.
pub fn turns(plan: &Plan, threads: Option<&Arc<dyn Threads>>) -> io::Result<Work> {
    let own = threads.map(|threads| Own {
        threads: threads.clone(),
        counter: Arc::new(threads.counter()),
        every: plan.every,
    });
    let mut bodies = Vec::new();
    for _ in 0..plan.count {
        let ((there, to_there), (back, to_back)) = (io::pipe()?, io::pipe()?);
        let (rounds, first, second) = (plan.rounds, own.clone(), own.clone());
        bodies.push(Box::new(move || begin(back, to_there, rounds, first.as_ref())) as Body);
        bodies.push(Box::new(move || answer(there, to_back, rounds, second.as_ref())) as Body);
    }
    let (sides, rounds, every) = (bodies.len(), plan.rounds, plan.every);
    let end = move |_: &_| {
        if let Some(own) = own {
            let expected = (sides * rounds.div_ceil(every)) as u64;
            assert_eq!((own.counter)(), expected + 1, "sections under the lock");
        }
        format!(" turns:={}", sides / 2 * rounds)
    };
    Ok(Work { end: Box::new(end), ..Work::of(bodies) })
}

/// The side that writes first.
fn begin(mut reader: PipeReader, mut writer: PipeWriter, rounds: usize, own: Option<&Own>) {
    for round in 0..rounds {
        writer.write_all(&[round as u8]).expect("the other side");
        expect(&mut reader, round);
        lock_and_yield(round, own);
    }
}

fn answer(mut reader: PipeReader, mut writer: PipeWriter, rounds: usize, own: Option<&Own>) {
    for round in 0..rounds {
        expect(&mut reader, round);
        writer.write_all(&[round as u8]).expect("the other side");
        lock_and_yield(round, own);
    }
}

fn expect(reader: &mut PipeReader, round: usize) {
    let mut byte = [0];
    reader.read_exact(&mut byte).expect("the other side");
    assert_eq!(byte[0], round as u8);
}

fn lock_and_yield(round: usize, own: Option<&Own>) {
    if let Some(own) = own.filter(|own| round.is_multiple_of(own.every)) {
        (own.counter)();
        own.threads.yield_now();
    }
}
