//! The crate `rayon`: a pool of a thousand threads, all of which wait in their jobs.
//!
//! `cargo run --release -p kumihimo-examples-unmodified --bin unmodified_rayon`

kumihimo::interpose!();

use std::sync::{Condvar, Mutex};

use rayon::ThreadPoolBuilder;
use rayon::prelude::*;

const COUNT: usize = 1_000;

#[kumihimo::main]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = ThreadPoolBuilder::new().num_threads(COUNT).build()?;
    let (waiting, is_open) = (Mutex::new(0), Mutex::new(false));
    let (arrived, opened) = (Condvar::new(), Condvar::new());

    pool.in_place_scope(|scope| {
        for _ in 0..COUNT {
            scope.spawn(|_| {
                let is_open = is_open.lock().unwrap();
                *waiting.lock().unwrap() += 1;
                arrived.notify_one();
                drop(opened.wait_while(is_open, |is_open| !*is_open).unwrap());
            });
        }
        // A thread of rayon has one job at a time, so all of them are in one.
        let all = arrived.wait_while(waiting.lock().unwrap(), |waiting| *waiting < COUNT);
        drop(all.unwrap());
        println!("{COUNT} waiting in jobs on {} kernel threads", kernel_threads());
        println!("Enter ends the jobs.");
        let _ = std::io::stdin().read_line(&mut String::new());
        *is_open.lock().unwrap() = true;
        opened.notify_all();
    });
    let sum: u64 = pool.install(|| (1..=1_000_000_u64).into_par_iter().sum());
    println!("{} threads have computed the sum {sum}.", pool.current_num_threads());
    Ok(())
}

fn kernel_threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux").count()
}
