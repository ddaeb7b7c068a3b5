//! Channels and messages on kernel threads.
#![cfg(not(loom))]

mod seed;

use kumihimo_sync::mpsc::{
    self, RecvError, RecvTimeoutError, SendTimeoutError, TryRecvError, TrySendError,
};
use kumihimo_sync::msg::{self, ReceiveError, Request, SendRecvError};
use seed::{Rng, crew, seed};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn every_message_arrives_once_and_in_order() {
    let seed = seed("every_message_arrives_once_and_in_order");
    for bound in [0, 1, 3, 200] {
        let (sender, receiver) = mpsc::sync_channel(bound);
        crew(|s| {
            for t in 0..4u64 {
                let sender = sender.clone();
                s.spawn(move || {
                    let mut rng = Rng::new(seed, t);
                    for n in 0..3_000u64 {
                        let mut message = (t, n);
                        loop {
                            message = match rng.below(4) {
                                0 => match sender.try_send(message) {
                                    Ok(()) => break,
                                    Err(TrySendError::Full(m) | TrySendError::Disconnected(m)) => m,
                                },
                                1 => match sender
                                    .send_timeout(message, Duration::from_micros(rng.below(30)))
                                {
                                    Ok(()) => break,
                                    Err(
                                        SendTimeoutError::Timeout(m)
                                        | SendTimeoutError::Disconnected(m),
                                    ) => m,
                                },
                                _ => {
                                    sender.send(message).unwrap();
                                    break;
                                }
                            };
                        }
                    }
                });
            }
            drop(sender);
            let mut next = [0; 4];
            let mut rng = Rng::new(seed, 99);
            loop {
                let (t, n) = match rng.below(4) {
                    0 => match receiver.try_recv() {
                        Ok(m) => m,
                        Err(TryRecvError::Empty) => continue,
                        Err(TryRecvError::Disconnected) => break,
                    },
                    1 => match receiver.recv_timeout(Duration::from_micros(rng.below(30))) {
                        Ok(m) => m,
                        Err(RecvTimeoutError::Timeout) => continue,
                        Err(RecvTimeoutError::Disconnected) => break,
                    },
                    _ => match receiver.recv() {
                        Ok(m) => m,
                        Err(_) => break,
                    },
                };
                assert_eq!(next[t as usize], n);
                next[t as usize] += 1;
            }
            assert_eq!(next, [3_000; 4]);
        });
    }
}

#[test]
fn unbounded_channel_delivers_in_order() {
    let (sender, receiver) = mpsc::channel();
    for n in 0..10_000 {
        sender.send(n).unwrap();
    }
    assert!(receiver.try_iter().take(5_000).eq(0..5_000));
    let other = sender.clone();
    drop(sender);
    let producer = thread::spawn(move || (10_000..20_000).for_each(|n| other.send(n).unwrap()));
    assert!(receiver.into_iter().eq(5_000..20_000));
    producer.join().unwrap();
}

#[test]
fn dropping_ends_waits_and_frees_messages() {
    let token = Arc::new(());
    for bound in [0, 1, 8] {
        let (sender, receiver) = mpsc::sync_channel(bound);
        crew(|s| {
            for _ in 0..3 {
                let (sender, token) = (sender.clone(), token.clone());
                s.spawn(move || while sender.send(token.clone()).is_ok() {});
            }
            for _ in 0..100 {
                receiver.recv().unwrap();
            }
            drop(receiver);
        });
        assert!(sender.send(token.clone()).is_err());
    }
    let (sender, receiver) = mpsc::channel();
    (0..1_000).for_each(|_| sender.send(token.clone()).unwrap());
    drop(receiver);
    assert_eq!(Arc::strong_count(&token), 1);
    let (sender, receiver) = mpsc::channel::<()>();
    crew(|s| {
        s.spawn(move || assert!(receiver.recv().is_err()));
        drop(sender);
    });
}

#[test]
fn rendezvous_waits_for_the_receiver() {
    let (sender, receiver) = mpsc::sync_channel(0);
    assert!(matches!(sender.try_send(1), Err(TrySendError::Full(1))));
    assert!(matches!(
        sender.send_timeout(1, Duration::from_millis(1)),
        Err(SendTimeoutError::Timeout(1))
    ));
    assert!(matches!(sender.send_until(1, Instant::now()), Err(SendTimeoutError::Timeout(1))));
    assert_eq!(receiver.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
    assert_eq!(receiver.recv_until(Instant::now()), Err(RecvTimeoutError::Timeout));
    crew(|s| {
        s.spawn(|| sender.send(2).unwrap());
        assert_eq!(receiver.recv(), Ok(2));
    });
}

#[test]
fn requests_get_their_own_replies() {
    let seed = seed("requests_get_their_own_replies");
    let (address, mailbox) = msg::mailbox::<u64, u64>();
    crew(|s| {
        for t in 0..4 {
            let address = address.clone();
            s.spawn(move || {
                let mut rng = Rng::new(seed, t);
                for n in 0..3_000 {
                    let ask = n * 4 + t;
                    let answer = match rng.below(4) {
                        0 => address.send_recv_timeout(ask, Duration::from_micros(rng.below(40))),
                        _ => msg::send_recv(&address, ask),
                    };
                    match answer {
                        Ok(answer) => assert_eq!(answer, ask + 1),
                        Err(SendRecvError::Timeout(back)) => assert!(back.is_none_or(|m| m == ask)),
                        Err(SendRecvError::Unanswered) => assert_eq!(ask % 7, 3),
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
        drop(address);
        for t in 0..2 {
            let mailbox = &mailbox;
            s.spawn(move || {
                let mut rng = Rng::new(seed, 100 + t);
                let mut next = msg::receive(mailbox);
                while let Ok(Request { message, from }) = next {
                    next = if message % 7 == 3 {
                        drop(from);
                        msg::receive(mailbox)
                    } else if rng.below(2) == 0 {
                        let _ = msg::reply(from, message + 1);
                        msg::receive(mailbox)
                    } else if rng.below(2) == 0 {
                        let deadline = Instant::now() + Duration::from_micros(rng.below(40));
                        match mailbox.reply_and_receive_until(from, message + 1, deadline) {
                            Err(ReceiveError::Empty) => msg::receive(mailbox),
                            next => next.map_err(|_| RecvError),
                        }
                    } else {
                        msg::reply_and_receive(mailbox, from, message + 1)
                    };
                }
            });
        }
    });
}

#[test]
fn message_outcomes_reach_both_sides() {
    let (address, mailbox) = msg::mailbox::<String, ()>();
    assert_eq!(mailbox.try_receive().unwrap_err(), ReceiveError::Empty);
    assert_eq!(mailbox.receive_timeout(Duration::from_millis(1)).unwrap_err(), ReceiveError::Empty);
    assert_eq!(mailbox.receive_until(Instant::now()).unwrap_err(), ReceiveError::Empty);
    crew(|s| {
        // The reply arrives although no other request arrives before the deadline.
        let client = s.scope.spawn(|| address.send_recv("one".into()));
        let from = mailbox.receive().unwrap().from;
        let limit = Duration::from_micros(100);
        assert_eq!(
            mailbox.reply_and_receive_timeout(from, (), limit).unwrap_err(),
            ReceiveError::Empty
        );
        assert_eq!(client.join().unwrap(), Ok(()));
    });
    let late = address.send_recv_timeout("late".into(), Duration::from_millis(1));
    assert_eq!(late, Err(SendRecvError::Timeout(Some("late".into()))));
    crew(|s| {
        // Received, but not replied to in time: the reply returns to the server.
        let (slow, request) = loop {
            let client = s
                .scope
                .spawn(|| address.send_recv_timeout("slow".into(), Duration::from_millis(10)));
            match mailbox.receive_timeout(Duration::from_secs(1)) {
                Ok(request) => break (client.join().unwrap(), request),
                Err(_) => assert_eq!(
                    client.join().unwrap(),
                    Err(SendRecvError::Timeout(Some("slow".into())))
                ),
            }
        };
        assert_eq!(slow, Err(SendRecvError::Timeout(None)));
        let Request { message, from } = request;
        assert_eq!(message, "slow");
        assert_eq!(from.reply(()), Err(()));
        // Dropped by the server without a reply.
        let client = s.scope.spawn(|| address.send_recv("dropped".into()));
        drop(mailbox.receive());
        assert_eq!(client.join().unwrap(), Err(SendRecvError::Unanswered));
        // Several requests held at once, and replied to in another order.
        let clients: Vec<_> =
            (0..3).map(|_| s.scope.spawn(|| address.send_recv("held".into()))).collect();
        let mut held: Vec<_> = (0..3).map(|_| mailbox.receive().unwrap()).collect();
        held.rotate_left(1);
        held.into_iter().for_each(|r| r.from.reply(()).unwrap());
        clients.into_iter().for_each(|c| assert_eq!(c.join().unwrap(), Ok(())));
    });
    crew(|s| {
        let client = s.scope.spawn(|| address.send_recv("closed".into()));
        drop(mailbox);
        assert_eq!(client.join().unwrap(), Err(SendRecvError::Closed("closed".into())));
    });
    let (address, mailbox) = msg::mailbox::<(), ()>();
    drop(address);
    assert!(mailbox.receive().is_err());
    assert_eq!(mailbox.try_receive().unwrap_err(), ReceiveError::Closed);
}
