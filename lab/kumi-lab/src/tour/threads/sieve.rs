//! Chapter 1: the paper's prime sieve, a chain of filters that send numbers to each other and wait
//! until each is received.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kumihimo::sync::msg::{self, Address, Mailbox};
use kumihimo_bench_kit::work::PRIMES_700;

use super::kinds::{Kernel, Kind, Micro};
use crate::tour::page::text;
use crate::tour::page::watch::Watch;
use crate::tour::{Args, Figures, check, in_runtime};

const ROUNDS: usize = 5;

pub fn run(_: &Args, figures: &mut Figures) -> Result<(), String> {
    text::say(
        "A generator sends 2, 3, 4, ... 700 to a chain of filters. Each filter keeps its first number, a prime, \
         and passes on each number that is not a multiple of it. The last filter starts the next one. Each filter \
         is a thread and waits until its number is received: there is little computation and many switches.",
    );
    println!();
    let watch = Watch::new("sieving", 3 * ROUNDS);
    let condvar = median(&watch, 0, sieve::<Kernel, Cell>)?;
    let message = median(&watch, ROUNDS, sieve::<Kernel, Message>)?;
    let micro = in_runtime(|| median(&watch, 2 * ROUNDS, sieve::<Micro, Message>))?;
    drop(watch);
    let row = |name: &str, time: Duration, paper: &str| {
        vec![name.to_owned(), text::time(time), text::times(time, micro), paper.to_owned()]
    };
    text::table(
        &["", "time", "against microprocesses", "the paper (i486SX, 16 MHz)"],
        &[
            row("kernel threads, mutex and condvar", condvar, "8.79 s"),
            row("kernel threads, messages", message, "2.32 s"),
            row("microprocesses, messages", micro, "1.16 s"),
        ],
    );
    println!();
    text::say(&format!(
        "All three found the same {} primes with {} messages. A message between microprocesses takes {}.",
        PRIMES_700.primes,
        text::number(PRIMES_700.messages()),
        text::time(micro / PRIMES_700.messages() as u32),
    ));
    figures.add("sieve, primes up to 700", text::time(condvar.min(message)), text::time(micro));
    Ok(())
}

fn median(watch: &Watch, done: usize, once: fn() -> (usize, u64)) -> Result<Duration, String> {
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let start = Instant::now();
        let found = once();
        took.push(start.elapsed());
        check(found == (PRIMES_700.primes, PRIMES_700.sum), || {
            format!("primes and their sum: {found:?}")
        })?;
        watch.at(done + round + 1);
    }
    took.sort_unstable();
    Ok(took[ROUNDS / 2])
}

/// Number and sum of the primes.
fn sieve<K: Kind, L: Link>() -> (usize, u64) {
    let (out, into) = L::new();
    let first = K::spawn(move || filter::<K, L>(into));
    let generator = K::spawn(move || (2..=PRIMES_700.limit).for_each(|n| L::send(&out, n)));
    K::join(generator);
    K::join(first)
}

fn filter<K: Kind, L: Link>(from: L::In) -> (usize, u64) {
    let Some(prime) = L::receive(&from) else { return (0, 0) };
    let mut next = None;
    while let Some(n) = L::receive(&from) {
        if n % prime != 0 {
            let (out, _) = next.get_or_insert_with(|| {
                let (out, into) = L::new();
                (out, K::spawn(move || filter::<K, L>(into)))
            });
            L::send(out, n);
        }
    }
    let (count, sum) = next.map_or((0, 0), |(out, filter)| {
        drop(out);
        K::join(filter)
    });
    (count + 1, sum + u64::from(prime))
}

/// A connection between two filters. A send returns when the number has been received; dropping the
/// sending side ends the stream.
trait Link: 'static {
    type Out: Send + 'static;
    type In: Send + 'static;

    fn new() -> (Self::Out, Self::In);
    fn send(out: &Self::Out, n: u32);
    fn receive(from: &Self::In) -> Option<u32>;
}

/// The paper's synchronous message. Kernel threads can use it as well, like all of
/// `kumihimo::sync`.
struct Message;

impl Link for Message {
    type Out = Address<u32, ()>;
    type In = Mailbox<u32, ()>;

    fn new() -> (Self::Out, Self::In) {
        msg::mailbox()
    }

    fn send(out: &Self::Out, n: u32) {
        msg::send_recv(out, n).expect("a running filter");
    }

    fn receive(from: &Self::In) -> Option<u32> {
        let request = msg::receive(from).ok()?;
        msg::reply(request.from, ()).expect("a waiting sender");
        Some(request.message)
    }
}

/// A connection without messages: a cell with a mutex and a condition variable.
struct Cell;

#[derive(Default)]
struct Shared {
    state: Mutex<(Option<u32>, bool)>,
    changed: Condvar,
}

struct Sender(Arc<Shared>);

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.0.changed.notify_all();
    }
}

impl Link for Cell {
    type Out = Sender;
    type In = Arc<Shared>;

    fn new() -> (Sender, Arc<Shared>) {
        let shared = Arc::new(Shared::default());
        (Sender(shared.clone()), shared)
    }

    fn send(out: &Sender, n: u32) {
        let mut state = out.0.state.lock().expect("no panic");
        state.0 = Some(n);
        out.0.changed.notify_all();
        while state.0.is_some() {
            state = out.0.changed.wait(state).expect("no panic");
        }
    }

    fn receive(from: &Arc<Shared>) -> Option<u32> {
        let mut state = from.state.lock().expect("no panic");
        loop {
            if let Some(n) = state.0.take() {
                from.changed.notify_all();
                return Some(n);
            }
            if state.1 {
                return None;
            }
            state = from.changed.wait(state).expect("no panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sieve_finds_the_primes() {
        let expect = (PRIMES_700.primes, PRIMES_700.sum);
        assert_eq!(sieve::<Kernel, Cell>(), expect);
        assert_eq!(sieve::<Kernel, Message>(), expect);
        assert_eq!(in_runtime(|| Ok(sieve::<Micro, Message>())), Ok(expect));
    }
}
