//! Step 1: four microprocesses, spawned and joined as threads of std are.

use kumihimo::{runtime, thread};

fn main() {
    let workers: Vec<_> =
        (1..=4).map(|n| thread::spawn(move || format!("hello from worker {n}"))).collect();
    for worker in workers {
        println!("{}", worker.join().expect("a worker panicked"));
    }
    println!("threads here are {}", runtime::mode());
}
