use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Blocks the thread that drops it until its channel is closed.
struct BlocksUntil(Receiver<()>, Sender<()>);

impl Drop for BlocksUntil {
    fn drop(&mut self) {
        let _ = self.1.send(());
        let _ = self.0.recv();
    }
}

#[test]
fn blocked_disposal_delays_no_other_and_counts_for_its_user() {
    let (begins, begun) = channel();
    let (uid, other) = (77_001, 77_002);
    let blocked: Vec<Sender<()>> = (0..MAX_OF_USER)
        .map(|_| {
            let (keeps, until) = channel();
            dispose(uid, BlocksUntil(until, begins.clone()));
            keeps
        })
        .collect();
    // Each blocks a thread of its own.
    (0..MAX_OF_USER).for_each(|_| begun.recv().expect("it begins"));
    assert!(is_full(uid) && !is_full(other));
    let (keeps, until) = channel();
    dispose(other, BlocksUntil(until, begins.clone()));
    begun.recv().expect("it begins beside those that are blocked");
    drop((keeps, blocked));
    while pending(uid) + pending(other) > 0 {
        thread::yield_now();
    }
}
