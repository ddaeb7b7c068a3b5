//! Step 2: ten thousand microprocesses that exist at the same time.

use std::time::Instant;

use kumihimo::sync::mpsc;
use kumihimo::{runtime, thread};

const COUNT: u64 = 10_000;

fn main() {
    let begun = Instant::now();
    let (sender, receiver) = mpsc::channel();
    let workers: Vec<_> = (1..=COUNT)
        .map(|n| {
            let sender = sender.clone();
            thread::spawn(move || {
                thread::park(); // until main unparks this worker
                sender.send(n).expect("main receives");
            })
        })
        .collect();
    drop(sender);

    let metrics = runtime::metrics().expect("the first spawn has started the runtime");
    println!("{} microprocesses are alive after {:.1?}", metrics.living, begun.elapsed());
    println!("{} kernel threads carry them", metrics.kernel_threads);

    workers.iter().for_each(|worker| worker.thread().unpark());
    println!("the sum of their numbers is {}", receiver.iter().sum::<u64>());
}
