use kumihimo::net::UnixStream;
use kumihimo::thread;

use super::*;
use crate::budget::Budget;
use crate::clients::{Clients, Presence};

/// Subscribers whose outboxes nothing empties.
struct Subscribed {
    clients: Arc<Clients>,
    budget: Arc<Budget>,
    channels: Channels,
    all: Vec<(Presence, Arc<Outbox>)>,
}

impl Subscribed {
    fn new(count: usize, to: To, name: &[u8]) -> Subscribed {
        let (clients, budget) = (Arc::<Clients>::default(), Arc::new(Budget::new(1 << 30)));
        let mut one =
            Subscribed { clients, budget, channels: Channels::default(), all: Vec::new() };
        for _ in 0..count {
            let outbox = one.outbox();
            one.channels.subscribe(to, name, &outbox, b"");
        }
        one
    }

    fn outbox(&mut self) -> Arc<Outbox> {
        let stream = Arc::new(Stream::Unix(UnixStream::pair().expect("a pair").0));
        let addresses = (String::new(), String::new());
        let presence =
            self.clients.enter(1000, &self.budget, &stream, addresses, 1).expect("there is room");
        let outbox = Arc::new(Outbox::new(Arc::clone(&presence.client), Version::Two));
        self.all.push((presence, Arc::clone(&outbox)));
        outbox
    }

    fn received(&self) -> Vec<Vec<u8>> {
        self.all.iter().map(|(_, outbox)| outbox.lock().bytes.to_vec()).collect()
    }
}

#[test]
fn publication_pauses_without_a_lock_after_a_few_subscribers() {
    let mut subscribed = Subscribed::new(100, To::Channel, b"news");
    let late = subscribed.outbox();
    let (channels, mut pauses) = (&subscribed.channels, 0);
    let count = channels.publish(b"news", b"text", || {
        // Nobody could subscribe while a lock is held.
        channels.subscribe(To::Channel, b"other", &late, b"");
        pauses += 1;
    });
    assert_eq!((count, pauses), (100, 100 / SLICE));
    let received = subscribed.received();
    let message = b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$4\r\ntext\r\n".to_vec();
    assert!(received[..100].iter().all(|one| *one == message));
    assert!(received[100].is_empty());
}

#[test]
fn many_and_long_patterns_are_compared_in_slices() {
    let mut subscribed = Subscribed::new(20, To::Pattern, b"n*s");
    let outbox = subscribed.outbox();
    for n in 0..1000 {
        let name = format!("{n}-{}*", "a".repeat(1000));
        subscribed.channels.subscribe(To::Pattern, name.as_bytes(), &outbox, b"");
    }
    // Each `a?` is tried at each position.
    let long = format!("*{}b", "a?".repeat(1000));
    subscribed.channels.subscribe(To::Pattern, long.as_bytes(), &outbox, b"");
    let mut pauses = 0;
    assert_eq!(subscribed.channels.publish(b"news", b"text", || pauses += 1), 20);
    // A slice ends with the pattern that exceeds it.
    assert!(pauses >= 1000 * 5000 / (SLICE_STEPS + 6000), "{pauses}");
    pauses = 0;
    assert_eq!(subscribed.channels.publish(&[b'a'; 1000], b"text", || pauses += 1), 0);
    assert!(pauses >= 1000, "{pauses}");
}

#[test]
fn all_subscribers_of_a_channel_receive_its_messages_in_one_order() {
    let subscribed = Subscribed::new(100, To::Channel, b"news");
    thread::scope(|scope| {
        for publisher in ["one", "two", "three"] {
            let channels = &subscribed.channels;
            scope.spawn(move || {
                for n in 0..20 {
                    let message = format!("{publisher}-{n}");
                    channels.publish(b"news", message.as_bytes(), thread::yield_now);
                }
            });
        }
    });
    let received = subscribed.received();
    assert_eq!(received[0].iter().filter(|byte| **byte == b'*').count(), 60);
    assert!(received.iter().all(|one| *one == received[0]));
}
