//! loom models: of the rings as they are, of the free list, and of both sides of a lane of one or
//! two cells.

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;

use super::super::free_list::FreeList;
use super::super::memory::LaneMemory;
use super::super::ring::{Consumer, Producer};
use super::super::*;
use crate::loom::AtomicU32;

/// Bounds what is too large to be explored whole.
fn bounded(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(f);
}

fn entries(n: usize) -> Arc<Vec<AtomicU32>> {
    Arc::new((0..n).map(|_| AtomicU32::new(0)).collect())
}

fn drain(consumer: &Consumer, entries: &[AtomicU32], to: &mut Vec<u32>) -> usize {
    consumer
        .drain(entries, 8, |entry| {
            to.push(entry);
            Ok::<(), ()>(())
        })
        .unwrap()
}

/// What each of two producers wrote before its push is seen with its entry; entries of one producer
/// keep their order; none is lost.
#[test]
fn two_producers_one_consumer() {
    bounded(3, || {
        let ring = entries(4);
        let written: Arc<Vec<AtomicU32>> = entries(4);
        let producer = Arc::new(Producer::new());
        let pushes = |numbers: &'static [u32]| {
            let (ring, written, producer) = (ring.clone(), written.clone(), producer.clone());
            thread::spawn(move || {
                for n in numbers {
                    written[*n as usize].store(1, Ordering::Relaxed);
                    producer.push(&ring, *n);
                }
            })
        };
        let others = [pushes(&[0, 1]), pushes(&[2])];
        let consumer = Consumer::new();
        let mut came = Vec::new();
        drain(&consumer, &ring, &mut came);
        for n in &came {
            assert_eq!(
                written[*n as usize].load(Ordering::Relaxed),
                1,
                "an entry without what it stands for"
            );
        }
        others.into_iter().for_each(|other| other.join().unwrap());
        drain(&consumer, &ring, &mut came);
        assert!(!consumer.has_some(&ring));
        let place = |n| came.iter().position(|came| *came == n).expect("lost");
        assert!(came.len() == 3 && place(0) < place(1) && place(2) < 3);
    });
}

/// Two that want to consume: one turn at a time, each entry once.
#[test]
fn two_consumers_pop_each_entry_once() {
    loom::model(|| {
        let ring = entries(2);
        let (producer, consumer) = (Producer::new(), Arc::new(Consumer::new()));
        producer.push(&ring, 5);
        let other = {
            let (ring, consumer) = (ring.clone(), consumer.clone());
            thread::spawn(move || {
                let mut came = Vec::new();
                drain(&consumer, &ring, &mut came);
                came
            })
        };
        let mut came = Vec::new();
        producer.push(&ring, 6);
        drain(&consumer, &ring, &mut came);
        came.extend(other.join().unwrap());
        drain(&consumer, &ring, &mut came);
        came.sort_unstable();
        assert_eq!(came, [5, 6]);
    });
}

/// Two cells, each at most once in a ring of two places, go round and round; with two producers,
/// over two laps. A producer that claims a place finds it popped: no entry is overwritten, no lap
/// mistaken.
#[test]
fn ring_place_is_popped_before_its_reuse() {
    bounded(3, || {
        let ring = entries(2);
        // What sends a cell back: its pop, and from there a release that its producer acquires.
        let popped = entries(2);
        let producer = Arc::new(Producer::new());
        let others: Vec<_> = (0..2u32)
            .map(|cell| {
                let (ring, popped, producer) = (ring.clone(), popped.clone(), producer.clone());
                thread::spawn(move || {
                    producer.push(&ring, cell);
                    if popped[cell as usize].load(Ordering::Acquire) == 1 {
                        producer.push(&ring, cell);
                        return 2;
                    }
                    1
                })
            })
            .collect();
        let consumer = Consumer::new();
        let mut came = Vec::new();
        for _ in 0..2 {
            consumer
                .drain(&ring, 1, |cell| {
                    came.push(cell);
                    popped[cell as usize].store(1, Ordering::Release);
                    Ok::<(), ()>(())
                })
                .unwrap();
        }
        let pushed: Vec<usize> = others.into_iter().map(|other| other.join().unwrap()).collect();
        drain(&consumer, &ring, &mut came);
        for cell in 0..2 {
            let n = came.iter().filter(|came| **came == cell as u32).count();
            assert_eq!(n, pushed[cell], "cell {cell}");
        }
    });
}

/// A cell is with one taker at a time, also if it goes and comes back while another looks (ABA).
#[test]
fn free_cell_is_taken_once() {
    bounded(3, || {
        let free = Arc::new(FreeList::new(2));
        let taken: Arc<Vec<AtomicU32>> = entries(2);
        let hold = |free: &FreeList, taken: &[AtomicU32]| {
            let cell = free.take()?;
            assert_eq!(taken[cell as usize].swap(1, Ordering::Relaxed), 0, "taken twice");
            Some(cell)
        };
        let other = {
            let (free, taken) = (free.clone(), taken.clone());
            thread::spawn(move || {
                let (first, second) = (hold(&free, &taken), hold(&free, &taken));
                for cell in [first, second].into_iter().flatten() {
                    taken[cell as usize].store(0, Ordering::Relaxed);
                    free.give_back(cell);
                }
            })
        };
        if let Some(cell) = hold(&free, &taken) {
            taken[cell as usize].store(0, Ordering::Relaxed);
            free.give_back(cell);
        }
        other.join().unwrap();
        assert!(free.take().is_some() && free.take().is_some() && free.take().is_none());
    });
}

fn lane() -> (ServerEnd, ClientEnd) {
    let lane = LaneMemory::new(Geometry::checked(1, 128).unwrap());
    (ServerEnd::new(lane.clone()), ClientEnd::new(lane))
}

fn call(caller: &ClientEnd, cell: CellNo, byte: u8) {
    caller.write(cell, &RequestHeader { tag: byte.into(), ..Default::default() }, &[byte]).unwrap();
    caller.push_request(cell).unwrap();
}

/// Answers what is there; returns the tags of requests and how many cancels it was told of.
fn serve(host: &ServerEnd) -> (Vec<u64>, usize) {
    let (mut came, mut cancels) = (Vec::new(), 0);
    host.pop_requests(8, |incoming| match incoming {
        Incoming::Request(request) => came.push(request),
        Incoming::Cancel { .. } => cancels += 1,
    })
    .unwrap();
    for request in &came {
        let mut bytes = Vec::new();
        host.read_request(request.cell, &mut bytes).unwrap();
        assert_eq!(bytes, [request.header.tag as u8]);
        bytes[0] += 100;
        host.push_reply(
            request.cell,
            &ReplyHeader { tag: request.header.tag, ..Default::default() },
            &bytes,
        )
        .unwrap();
    }
    (came.iter().map(|request| request.header.tag).collect(), cancels)
}

fn take_reply(caller: &ClientEnd, byte: u8) -> bool {
    let mut came = None;
    caller.pop_replies(8, |reply| came = Some(reply)).unwrap();
    let Some(reply) = came else { return false };
    let mut bytes = Vec::new();
    caller.read_reply(reply.cell, &mut bytes).unwrap();
    assert_eq!((reply.header.tag, &bytes[..]), (byte.into(), &[byte + 100][..]));
    true
}

/// Request and reply carry what was written, in either order of looks.
#[test]
fn call_and_reply() {
    bounded(2, || {
        let (host, caller) = lane();
        let host = Arc::new(host);
        let server = {
            let host = host.clone();
            thread::spawn(move || serve(&host))
        };
        let cell = caller.take_cell().unwrap();
        call(&caller, cell, 1);
        let came = take_reply(&caller, 1);
        let (served, cancels) = server.join().unwrap();
        if served.is_empty() {
            assert!(!came);
            serve(&host);
        }
        assert!(came || take_reply(&caller, 1));
        assert_eq!(cancels, 0);
        caller.give_back(cell).unwrap();
    });
}

/// A cancel races with the reply, and the cell with its next request: the request is answered once,
/// and the cancel never meets the next one.
#[test]
fn cancel_races_with_reply() {
    bounded(2, || {
        let (host, caller) = lane();
        let host = Arc::new(host);
        let cell = caller.take_cell().unwrap();
        call(&caller, cell, 1);
        let server = {
            let host = host.clone();
            thread::spawn(move || {
                let first = serve(&host);
                let second = serve(&host);
                (first.0.len() + second.0.len(), first.1 + second.1)
            })
        };
        let cancelled = caller.push_cancel(cell);
        assert!(cancelled, "only the client pops");
        assert!(!caller.push_cancel(cell));
        let first = take_reply(&caller, 1);
        if first {
            call(&caller, cell, 2);
        }
        let (served, cancels) = server.join().unwrap();
        assert!(served >= 1 && cancels <= 1 && (first || served == 1));
        if !first {
            assert!(take_reply(&caller, 1));
            call(&caller, cell, 2);
        }
        let (rest, late) = serve(&host);
        assert_eq!((served + rest.len(), late), (2, 0), "the second request is never cancelled");
        assert!(take_reply(&caller, 2));
        caller.give_back(cell).unwrap();
        assert_eq!((caller.in_use(), host.in_use()), (0, 0));
    });
}
