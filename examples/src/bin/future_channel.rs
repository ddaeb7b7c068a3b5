//! Async crates without a reactor in blocking code: the channels of `async-channel`, combined with
//! `futures-lite`.
//!
//! `cargo run --release -p kumihimo-examples --bin future_channel`

use async_channel::{Receiver, bounded};
use futures_lite::{FutureExt, StreamExt};
use kumihimo::{future::block_on, thread};

/// Receives from two channels, whichever has a message first, until both are closed.
fn both(numbers: &Receiver<u64>, words: &Receiver<String>) -> (u64, usize) {
    let (mut sum, mut letters) = (0, 0);
    block_on(async {
        let sums = async { numbers.clone().for_each(|n| sum += n).await };
        let counts = async { words.clone().for_each(|word| letters += word.len()).await };
        futures_lite::future::zip(sums, counts).await
    });
    (sum, letters)
}

fn main() {
    let (send_number, numbers) = bounded(8);
    let (send_word, words) = bounded(8);
    for n in 1..=100 {
        let sender = send_number.clone();
        // A microprocess that waits until the channel has room.
        thread::spawn(move || block_on(sender.send(n)));
    }
    // A kernel thread can wait in the same way.
    std::thread::spawn(move || {
        for word in ["woken", "from", "a", "kernel", "thread"] {
            block_on(send_word.send(word.to_owned())).expect("a receiver");
        }
    });
    drop(send_number);
    let (sum, letters) = thread::spawn(move || both(&numbers, &words)).join().expect("no panic");
    println!("sum {sum}, letters {letters}");

    // The first message wins, and the other future is dropped.
    let (first, second) = (bounded::<&str>(1), bounded::<&str>(1));
    let winner = thread::spawn(move || block_on(first.1.recv().or(second.1.recv())));
    second.0.try_send("the second").expect("there is room");
    println!("{} came first", winner.join().expect("no panic").expect("it was sent"));
    drop(first.0);
}
