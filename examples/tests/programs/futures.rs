//! Tests of `future_channel` and `beside_tokio`, and of the use of Tokio without its runtime in the
//! documentation of `kumihimo::future`.

use std::sync::Arc;

use kumihimo::future::block_on;
use kumihimo::thread;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::program::output;

#[test]
fn async_crates_run_without_a_reactor() {
    let said = output(env!("CARGO_BIN_EXE_future_channel"), &[]);
    assert_eq!(said, "sum 5050, letters 22\nthe second came first\n");
}

#[test]
fn async_crates_run_beside_tokio() {
    let said = output(env!("CARGO_BIN_EXE_beside_tokio"), &[]);
    let clients: String = (0..20).map(|n| format!("there {n}, here {n}\n")).collect();
    assert_eq!(said, clients + "never: deadline has elapsed\n");
}

#[test]
fn tokio_sync_needs_no_runtime() {
    const SENDERS: u64 = 10;
    let (sender, mut receiver) = mpsc::channel(1);
    let turns = Arc::new(Semaphore::new(2));
    let (told, sum) = oneshot::channel();
    thread::spawn(move || {
        let mut sum = 0;
        while let Some(n) = block_on(receiver.recv()) {
            sum += n;
        }
        told.send(sum).unwrap();
    });
    let senders = (0..SENDERS).map(|n| {
        let (sender, turns) = (sender.clone(), turns.clone());
        let send = move || {
            for _ in 0..100 {
                let _turn = block_on(turns.acquire()).unwrap();
                block_on(sender.send(n)).unwrap();
            }
        };
        if n % 2 == 0 {
            drop(thread::spawn(send));
        } else {
            std::thread::spawn(send);
        }
    });
    senders.for_each(drop);
    drop(sender);
    assert_eq!(block_on(sum), Ok(100 * (SENDERS - 1) * SENDERS / 2));
}
