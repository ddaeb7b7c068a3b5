//! The crate `parking_lot`: a thousand threads wait for a condition, for a mutex and for a
//! readers-writer lock. It parks them by the system call futex(2).
//!
//! `cargo run --release -p kumihimo-examples-unmodified --bin unmodified_parking_lot`

kumihimo::interpose!();

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};

const COUNT: usize = 1_000;

#[derive(Default)]
struct Shared {
    begun: AtomicUsize,
    is_open: Mutex<bool>,
    opened: Condvar,
    total: Mutex<usize>,
    step: RwLock<usize>,
}

#[kumihimo::main]
fn main() -> std::io::Result<()> {
    let shared = Arc::new(Shared::default());
    let total = shared.total.lock();
    let mut step = shared.step.write();

    let threads: Vec<_> = (0..COUNT)
        .map(|n| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || add(&shared, n))
        })
        .collect();
    while shared.begun.load(Ordering::Acquire) < COUNT {
        thread::sleep(Duration::from_millis(20));
    }
    println!("{COUNT} waiting in futex on {} kernel threads", kernel_threads());
    println!("Enter unlocks.");
    std::io::stdin().read_line(&mut String::new())?;

    *step = 3;
    drop(step);
    drop(total);
    *shared.is_open.lock() = true;
    shared.opened.notify_all();
    for thread in threads {
        thread.join().expect("no panic");
    }
    println!("The total is {}.", *shared.total.lock());
    Ok(())
}

/// Adds a step to the total. Each third of the threads waits for something else first.
fn add(shared: &Shared, n: usize) {
    shared.begun.fetch_add(1, Ordering::Release);
    match n % 3 {
        0 => {
            let mut is_open = shared.is_open.lock();
            shared.opened.wait_while(&mut is_open, |is_open| !*is_open);
        }
        1 => drop(shared.step.read()),
        _ => {}
    }
    let mut total = shared.total.lock();
    *total += *shared.step.read();
}

fn kernel_threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux").count()
}
