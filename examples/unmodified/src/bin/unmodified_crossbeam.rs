//! The crate `crossbeam`: a thousand threads wait in `recv`, in `select!` and in `Parker::park`.
//!
//! `cargo run --release -p kumihimo-examples-unmodified --bin unmodified_crossbeam`

kumihimo::interpose!();

use std::thread;

use crossbeam::channel::{Receiver, bounded};
use crossbeam::select;
use crossbeam::sync::{Parker, WaitGroup};

const COUNT: u64 = 1_000;

#[kumihimo::main]
fn main() -> std::io::Result<()> {
    let (numbers, received) = bounded::<u64>(0);
    let (stop, stopped) = bounded::<()>(0);
    let all_begun = WaitGroup::new();
    let mut threads = Vec::new();

    for _ in 0..400 {
        let (received, begun) = (received.clone(), all_begun.clone());
        threads.push(thread::spawn(move || {
            drop(begun);
            received.iter().sum::<u64>()
        }));
    }
    for _ in 0..300 {
        let (received, stopped, begun) = (received.clone(), stopped.clone(), all_begun.clone());
        threads.push(thread::spawn(move || {
            drop(begun);
            sum_until_stopped(&received, &stopped)
        }));
    }
    let mut unparkers = Vec::new();
    for _ in 0..300 {
        let (parker, begun) = (Parker::new(), all_begun.clone());
        unparkers.push(parker.unparker().clone());
        threads.push(thread::spawn(move || {
            drop(begun);
            parker.park();
            0
        }));
    }
    all_begun.wait();
    println!("{} waiting in crossbeam on {} kernel threads", threads.len(), kernel_threads());
    println!("Enter wakes them.");
    std::io::stdin().read_line(&mut String::new())?;

    // Each send meets a thread that waits, in `recv` or in `select!`.
    for number in 1..=COUNT {
        numbers.send(number).expect("a receiver");
    }
    drop((stop, numbers));
    unparkers.iter().for_each(|unparker| unparker.unpark());
    let sum: u64 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    println!("The sum of the numbers is {sum}.");
    Ok(())
}

fn sum_until_stopped(numbers: &Receiver<u64>, stopped: &Receiver<()>) -> u64 {
    let mut sum = 0;
    loop {
        select! {
            recv(numbers) -> number => match number {
                Ok(number) => sum += number,
                Err(_) => return sum,
            },
            recv(stopped) -> _ => return sum,
        }
    }
}

fn kernel_threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux").count()
}
