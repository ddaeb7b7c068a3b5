//! Channels of `mpsc`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kumihimo::sync::Arc;
use kumihimo::sync::mpsc::{
    self, RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError,
};

use crate::Beside;
use crate::beside::behaviours;

const SOON: Duration = Duration::from_millis(5);
const NEVER: Duration = Duration::from_secs(3600);

behaviours!(
    values_arrive_in_order,
    values_of_every_sender_arrive,
    receive_waits_for_a_value,
    receive_fails_without_senders,
    values_outlive_their_sender,
    send_fails_without_a_receiver,
    send_to_a_gone_receiver_gives_the_value_back,
    receiver_drops_what_it_holds,
    try_receive_tells_empty_from_disconnected,
    receive_times_out,
    receive_with_a_limit_gets_a_value,
    receive_with_a_limit_sees_the_end,
    last_clone_keeps_the_channel_open,
    iterator_ends_with_the_senders,
    borrowed_iterator_leaves_the_receiver,
    try_iterator_never_waits,
    full_channel_refuses_a_try,
    full_channel_waits_for_room,
    bound_limits_what_is_queued,
    rendezvous_waits_for_the_receiver,
    rendezvous_refuses_a_try_without_a_receiver,
    rendezvous_accepts_a_try_beside_a_receiver,
    waiting_sender_fails_with_the_receiver,
    try_send_to_a_gone_receiver,
    channel_carries_a_channel,
    channel_of_large_values,
    channel_of_empty_values,
    errors_format_as_in_std,
    receiver_moves_between_threads,
);

fn values_arrive_in_order(beside: Beside) {
    let (sender, receiver) = mpsc::channel();
    let sends = beside.spawn(move || (0..500).for_each(|n| sender.send(n).unwrap()));
    (0..500).for_each(|n| assert_eq!(receiver.recv(), Ok(n)));
    sends.result();
}

fn values_of_every_sender_arrive(beside: Beside) {
    let (sender, receiver) = mpsc::channel();
    let senders: Vec<_> = (0..4)
        .map(|s| {
            let sender = sender.clone();
            beside.spawn(move || (0..100).for_each(|n| sender.send((s, n)).unwrap()))
        })
        .collect();
    drop(sender);
    let mut next = [0; 4];
    for (s, n) in receiver {
        assert_eq!(n, next[s], "each sender's values are in order");
        next[s] += 1;
    }
    assert_eq!(next, [100; 4]);
    senders.into_iter().for_each(|sender| sender.result());
}

fn receive_waits_for_a_value(beside: Beside) {
    let (sender, receiver) = mpsc::channel();
    let (asks, asked) = mpsc::channel();
    let receives = beside.spawn(move || {
        asks.send(()).unwrap();
        receiver.recv()
    });
    asked.recv().unwrap();
    sender.send("late").unwrap();
    assert_eq!(receives.result(), Ok("late"));
}

fn receive_fails_without_senders(beside: Beside) {
    let (sender, receiver) = mpsc::channel::<()>();
    let receives = beside.spawn(move || receiver.recv());
    drop(sender);
    assert_eq!(receives.result(), Err(RecvError));
}

fn values_outlive_their_sender(beside: Beside) {
    let (sender, receiver) = mpsc::channel();
    beside.spawn(move || (sender.send(1).unwrap(), sender.send(2).unwrap())).result();
    assert_eq!((receiver.recv(), receiver.recv(), receiver.recv()), (Ok(1), Ok(2), Err(RecvError)));
}

fn send_fails_without_a_receiver(beside: Beside) {
    let (sender, receiver) = mpsc::channel();
    beside.spawn(move || drop(receiver)).result();
    assert_eq!(sender.send(1), Err(SendError(1)));
    assert_eq!(sender.clone().send(2), Err(SendError(2)));
}

fn send_to_a_gone_receiver_gives_the_value_back(_: Beside) {
    let (sender, receiver) = mpsc::sync_channel(1);
    drop(receiver);
    assert_eq!(sender.send(String::from("mine")).unwrap_err().0, "mine");
}

struct Counts(Arc<AtomicUsize>);
impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn receiver_drops_what_it_holds(beside: Beside) {
    let dropped = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = mpsc::channel();
    (0..3).for_each(|_| sender.send(Counts(dropped.clone())).unwrap());
    beside.spawn(move || drop(receiver)).result();
    assert_eq!(dropped.load(Ordering::SeqCst), 3, "while a sender lives");
    drop(sender.send(Counts(dropped.clone())));
    assert_eq!(dropped.load(Ordering::SeqCst), 4);
}

fn try_receive_tells_empty_from_disconnected(_: Beside) {
    let (sender, receiver) = mpsc::channel();
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    sender.send(1).unwrap();
    drop(sender);
    assert_eq!(receiver.try_recv(), Ok(1));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
}

fn receive_times_out(_: Beside) {
    let (_sender, receiver) = mpsc::channel::<()>();
    let begun = Instant::now();
    assert_eq!(receiver.recv_timeout(SOON), Err(RecvTimeoutError::Timeout));
    assert!(begun.elapsed() >= SOON, "it does not end early");
    assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
}

fn receive_with_a_limit_gets_a_value(beside: Beside) {
    let (sender, receiver) = mpsc::sync_channel(0);
    let sends = beside.spawn(move || sender.send(3));
    assert_eq!(receiver.recv_timeout(NEVER), Ok(3));
    assert_eq!(sends.result(), Ok(()));
}

fn receive_with_a_limit_sees_the_end(beside: Beside) {
    let (sender, receiver) = mpsc::channel::<()>();
    let drops = beside.spawn(move || drop(sender));
    assert_eq!(receiver.recv_timeout(NEVER), Err(RecvTimeoutError::Disconnected));
    assert_eq!(receiver.recv_timeout(Duration::MAX), Err(RecvTimeoutError::Disconnected));
    drops.result();
}

fn last_clone_keeps_the_channel_open(beside: Beside) {
    let (sender, receiver) = mpsc::channel();
    let clone = sender.clone();
    drop(sender);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    beside.spawn(move || clone.send(1).unwrap()).result();
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [1]);
}

fn iterator_ends_with_the_senders(beside: Beside) {
    let (sender, receiver) = mpsc::sync_channel(2);
    let sends = beside.spawn(move || (1..=10).for_each(|n| sender.send(n).unwrap()));
    assert_eq!(receiver.into_iter().sum::<i32>(), 55);
    sends.result();
}

fn borrowed_iterator_leaves_the_receiver(beside: Beside) {
    let (sender, receiver) = mpsc::channel();
    let sends = beside.spawn(move || (1..=10).for_each(|n| sender.send(n).unwrap()));
    assert_eq!(receiver.iter().take(3).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((&receiver).into_iter().count(), 7);
    sends.result();
}

fn try_iterator_never_waits(_: Beside) {
    let (sender, receiver) = mpsc::channel();
    assert_eq!(receiver.try_iter().count(), 0);
    (0..3).for_each(|n| sender.send(n).unwrap());
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
}

fn full_channel_refuses_a_try(_: Beside) {
    let (sender, receiver) = mpsc::sync_channel(2);
    assert_eq!((sender.try_send(1), sender.try_send(2)), (Ok(()), Ok(())));
    assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
    assert_eq!(receiver.recv(), Ok(1));
    assert_eq!(sender.try_send(3), Ok(()));
}

fn full_channel_waits_for_room(beside: Beside) {
    let (sender, receiver) = mpsc::sync_channel(1);
    sender.send(1).unwrap();
    let sends = beside.spawn(move || sender.send(2));
    assert_eq!((receiver.recv(), receiver.recv()), (Ok(1), Ok(2)));
    assert_eq!(sends.result(), Ok(()));
}

fn bound_limits_what_is_queued(beside: Beside) {
    let (sender, receiver) = mpsc::sync_channel(3);
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let sends = beside.spawn(move || {
        for n in 0..50 {
            sender.send(n).unwrap();
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    for n in 0..50 {
        assert!(sent.load(Ordering::SeqCst) <= n + 3, "no more than the bound is ahead");
        assert_eq!(receiver.recv(), Ok(n));
    }
    sends.result();
}

fn rendezvous_waits_for_the_receiver(beside: Beside) {
    let (sender, receiver) = mpsc::sync_channel(0);
    let received = Arc::new(AtomicUsize::new(0));
    let seen = received.clone();
    let sends = beside.spawn(move || {
        sender.send(1).unwrap();
        seen.load(Ordering::SeqCst)
    });
    received.store(1, Ordering::SeqCst);
    assert_eq!(receiver.recv(), Ok(1));
    assert_eq!(sends.result(), 1, "the send ends after the receive has begun");
}

fn rendezvous_refuses_a_try_without_a_receiver(_: Beside) {
    let (sender, _receiver) = mpsc::sync_channel(0);
    assert_eq!(sender.try_send(1), Err(TrySendError::Full(1)));
}

fn rendezvous_accepts_a_try_beside_a_receiver(beside: Beside) {
    let (sender, receiver) = mpsc::sync_channel(0);
    let receives = beside.spawn(move || receiver.recv());
    while sender.try_send(4).is_err() {
        kumihimo::thread::yield_now();
    }
    assert_eq!(receives.result(), Ok(4));
}

fn waiting_sender_fails_with_the_receiver(beside: Beside) {
    for bound in [0, 1] {
        let (sender, receiver) = mpsc::sync_channel(bound);
        (0..bound).for_each(|_| sender.send(0).unwrap());
        let sends = beside.spawn(move || sender.send(9));
        drop(receiver);
        assert_eq!(sends.result(), Err(SendError(9)));
    }
}

fn try_send_to_a_gone_receiver(_: Beside) {
    let (sender, receiver) = mpsc::sync_channel(1);
    sender.try_send(0).unwrap();
    drop(receiver);
    assert_eq!(sender.try_send(1), Err(TrySendError::Disconnected(1)));
}

fn channel_carries_a_channel(beside: Beside) {
    let (sender, receiver) = mpsc::channel::<mpsc::Sender<u8>>();
    let answers = beside.spawn(move || receiver.recv().unwrap().send(5));
    let (answer, answered) = mpsc::channel();
    sender.send(answer).unwrap();
    assert_eq!(answered.recv(), Ok(5));
    assert_eq!(answers.result(), Ok(()));
}

fn channel_of_large_values(beside: Beside) {
    let (sender, receiver) = mpsc::channel();
    let sends = beside.spawn(move || (0..10).for_each(|n| sender.send([n; 4096]).unwrap()));
    (0..10u8).for_each(|n| assert_eq!(receiver.recv().unwrap(), [n; 4096]));
    sends.result();
}

fn channel_of_empty_values(beside: Beside) {
    let (sender, receiver) = mpsc::channel();
    let sends = beside.spawn(move || (0..1000).for_each(|_| sender.send(()).unwrap()));
    assert_eq!(receiver.iter().count(), 1000);
    sends.result();
}

fn errors_format_as_in_std(_: Beside) {
    use std::sync::mpsc as of_std;
    assert_eq!(SendError(1).to_string(), of_std::SendError(1).to_string());
    assert_eq!(format!("{:?}", SendError(1)), format!("{:?}", of_std::SendError(1)));
    assert_eq!(TrySendError::Full(1).to_string(), of_std::TrySendError::Full(1).to_string());
    assert_eq!(RecvError.to_string(), of_std::RecvError.to_string());
    assert_eq!(TryRecvError::Empty.to_string(), of_std::TryRecvError::Empty.to_string());
    let timeouts = (RecvTimeoutError::Timeout, of_std::RecvTimeoutError::Timeout);
    assert_eq!(timeouts.0.to_string(), timeouts.1.to_string());
}

fn receiver_moves_between_threads(beside: Beside) {
    let (sender, receiver) = mpsc::channel();
    sender.send(1).unwrap();
    let receiver = beside.spawn(move || (receiver.recv(), receiver)).result();
    assert_eq!(receiver.0, Ok(1));
    sender.send(2).unwrap();
    assert_eq!(receiver.1.recv(), Ok(2));
}
