//! Lanes within one process: both sides map the same memory, at two addresses.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::super::*;
use crate::error::ErrorKind;

fn lane(cells: u32, inline: u32) -> (ServerEnd, ClientEnd) {
    let geometry = Geometry::checked(cells, inline).expect("a possible geometry");
    let (host, fd) = ServerEnd::create("kumihimo-test", geometry).expect("a lane");
    (host, ClientEnd::open(fd.as_fd(), geometry).expect("the same lane"))
}

fn requests(host: &ServerEnd) -> Vec<IncomingRequest> {
    let mut came = Vec::new();
    host.pop_requests(usize::MAX, |incoming| match incoming {
        Incoming::Request(request) => came.push(request),
        Incoming::Cancel { .. } => panic!("nothing was cancelled"),
    })
    .expect("a peer that keeps to the protocol");
    came
}

fn replies(caller: &ClientEnd) -> Vec<IncomingReply> {
    let mut came = Vec::new();
    caller
        .pop_replies(usize::MAX, |reply| came.push(reply))
        .expect("a peer that keeps to the protocol");
    came
}

#[test]
fn call_returns_its_reply() {
    let (host, caller) = lane(8, 4096);
    let mut bytes = Vec::new();
    for len in [0, 1, 7, 8, 9, 63, 64, 127, 128, 129, 130, 1000, 4095, 4096] {
        let payload: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
        let header = RequestHeader {
            kind: 3,
            flags: 0x81,
            priority: 63,
            deadline: u64::MAX,
            tag: 1 << 40,
            regions: [1, 2, 3, u32::MAX],
            chain: Chain::of(&(0..CHAIN as u32).collect::<Vec<_>>())
                .expect("just as long as possible"),
        };
        assert!(!host.has_requests() && !caller.has_replies());
        let cell = caller.take_cell().expect("all are free");
        caller.write(cell, &header, &payload).unwrap();
        caller.push_request(cell).unwrap();
        assert!(host.has_requests());
        let [request] = requests(&host)[..] else { panic!("one request") };
        assert_eq!((request.cell, request.len, request.header), (cell, len, header));
        assert_eq!(host.unanswered(cell), Some(request.serial));
        host.read_request(cell, &mut bytes).unwrap();
        assert_eq!(bytes, payload);
        let header = ReplyHeader { status: 9, tag: 5, regions: [0, 0, 7, 0] };
        bytes.reverse();
        host.push_reply(cell, &header, &bytes).unwrap();
        assert_eq!(
            (host.unanswered(cell), host.has_requests(), caller.has_replies()),
            (None, false, true)
        );
        let [reply] = replies(&caller)[..] else { panic!("one reply") };
        assert_eq!((reply.cell, reply.len, reply.header), (cell, len, header));
        caller.read_reply(cell, &mut bytes).unwrap();
        bytes.reverse();
        assert_eq!(bytes, payload);
        caller.give_back(cell).unwrap();
    }
    assert_eq!((caller.in_use(), host.in_use()), (0, 0));
}

#[test]
fn cells_are_taken_last_in_first_out() {
    let (_host, caller) = lane(4, 128);
    let cells: Vec<_> = std::iter::from_fn(|| caller.take_cell()).collect();
    assert_eq!(cells.iter().map(|cell| cell.index()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(caller.in_use(), 4);
    for cell in [cells[2], cells[0]] {
        caller.give_back(cell).unwrap();
    }
    assert_eq!(
        [caller.take_cell(), caller.take_cell(), caller.take_cell()],
        [Some(cells[0]), Some(cells[2]), None]
    );
}

#[test]
fn operations_in_the_wrong_cell_state_are_refused() {
    let (host, caller) = lane(2, 128);
    let (_other, wider) = lane(8, 128);
    let invalid = |result: Result<(), crate::Error>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid)
    };
    let cell = caller.take_cell().unwrap();
    let header = RequestHeader::default();
    invalid(caller.read_reply(cell, &mut Vec::new()));
    invalid(host.push_reply(cell, &ReplyHeader::default(), &[]));
    invalid(host.read_request(cell, &mut Vec::new()));
    let foreign = std::iter::from_fn(|| wider.take_cell()).last().unwrap();
    invalid(caller.push_request(foreign));
    invalid(host.push_reply(foreign, &ReplyHeader::default(), &[]));
    assert_eq!(caller.write(cell, &header, &[0; 129]).unwrap_err().kind(), ErrorKind::TooLarge);
    assert!(!caller.push_cancel(cell), "not lent");
    caller.push_request(cell).unwrap();
    invalid(caller.push_request(cell));
    invalid(caller.write(cell, &header, &[]));
    invalid(caller.give_back(cell));
    assert_eq!(caller.lent().collect::<Vec<_>>(), [cell]);
    assert_eq!(requests(&host).len(), 1);
    assert_eq!(
        host.push_reply(cell, &ReplyHeader::default(), &[0; 129]).unwrap_err().kind(),
        ErrorKind::TooLarge
    );
    host.push_reply(cell, &ReplyHeader::default(), &[]).unwrap();
    invalid(host.push_reply(cell, &ReplyHeader::default(), &[]));
    assert_eq!(replies(&caller).len(), 1);
    caller.give_back(cell).unwrap();
    invalid(caller.give_back(cell));
    assert_eq!(caller.lent().count(), 0);
}

/// What a step of a random program does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Call { len: usize, priority: u8, depth: usize },
    Cancel(usize),
    Serve(usize),
    Answer { which: usize, len: usize },
    Collect(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![0..10usize, 120..140usize, 0..=512usize];
    prop_oneof![
        3 => (len.clone(), 0..LEVELS, 0..=CHAIN).prop_map(|(len, priority, depth)| Step::Call { len, priority, depth }),
        1 => (0..64usize).prop_map(Step::Cancel),
        2 => (1..8usize).prop_map(Step::Serve),
        3 => (0..64usize, len).prop_map(|(which, len)| Step::Answer { which, len }),
        2 => (1..8usize).prop_map(Step::Collect),
    ]
}

/// The `n`th payload of this length.
fn payload(n: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (n.wrapping_mul(31) ^ i.wrapping_mul(7)) as u8).collect()
}

/// What a lane is to do, without a lane.
#[derive(Default)]
struct Expected {
    /// Calls whose reply was not yet collected, by cell: tag, and whether it was cancelled.
    out: HashMap<CellNo, (u64, bool)>,
    /// What was pushed and not yet popped by the server: tag, header, length; or a cancel of the
    /// tag.
    pushed: std::collections::VecDeque<(u64, Option<(RequestHeader, usize)>)>,
    /// With the server, in the order of their coming.
    here: Vec<(CellNo, u64)>,
    /// Answered and not yet collected: cell, tag, length.
    answered: std::collections::VecDeque<(CellNo, u64, usize)>,
}

fn run(cells: u32, steps: &[Step]) {
    let (host, caller) = lane(cells, 512);
    let (mut model, mut bytes, mut next) = (Expected::default(), Vec::new(), 0);
    for step in steps {
        match *step {
            Step::Call { len, priority, depth } => {
                let Some(cell) = caller.take_cell() else {
                    assert_eq!(model.out.len(), cells as usize, "a free cell is not found");
                    continue;
                };
                next += 1;
                let chain =
                    Chain::of(&(0..depth as u32).map(|i| i + next as u32).collect::<Vec<_>>())
                        .unwrap();
                let header = RequestHeader {
                    priority,
                    chain,
                    tag: next,
                    deadline: !next,
                    ..Default::default()
                };
                caller.write(cell, &header, &payload(next, len)).unwrap();
                caller.push_request(cell).unwrap();
                assert_eq!(model.out.insert(cell, (next, false)), None, "the cell was not free");
                model.pushed.push_back((next, Some((header, len))));
            }
            Step::Cancel(which) => {
                let mut cells: Vec<_> = model.out.keys().copied().collect();
                cells.sort();
                let Some(cell) = cells.get(which % cells.len().max(1)) else { continue };
                let (tag, cancelled) = model.out.get_mut(cell).unwrap();
                assert_eq!(caller.push_cancel(*cell), !*cancelled);
                if !*cancelled {
                    model.pushed.push_back((*tag, None));
                }
                *cancelled = true;
            }
            Step::Serve(most) => {
                assert_eq!(host.has_requests(), !model.pushed.is_empty());
                let expected: Vec<_> = model.pushed.drain(..most.min(model.pushed.len())).collect();
                let mut expected_ones = expected.iter();
                let n = host.pop_requests(most, |incoming| match incoming {
                    Incoming::Request(request) => {
                        let (tag, header, len) = loop {
                            match expected_ones.next().expect("no such request") {
                                (tag, Some((header, len))) => break (*tag, *header, *len),
                                (tag, None) => {
                                    assert!(
                                        !model.here.iter().any(|(_, here)| here == tag),
                                        "a cancel is lost"
                                    )
                                }
                            }
                        };
                        assert_eq!((request.header, request.len as usize), (header, len));
                        host.read_request(request.cell, &mut bytes).unwrap();
                        assert_eq!(bytes, payload(tag, len));
                        model.here.push((request.cell, tag));
                    }
                    Incoming::Cancel { cell, serial } => {
                        let tag = loop {
                            match expected_ones.next().expect("no such cancel") {
                                (tag, None) if model.here.contains(&(cell, *tag)) => break *tag,
                                (tag, None) => {
                                    assert!(
                                        !model.here.iter().any(|(_, here)| here == tag),
                                        "a cancel is lost"
                                    )
                                }
                                (_, Some(_)) => panic!("a request is lost"),
                            }
                        };
                        assert_eq!(host.unanswered(cell), Some(serial), "{tag}");
                    }
                });
                assert_eq!(n.unwrap(), expected.len());
                assert!(expected_ones.all(|(tag, request)| request.is_none()
                    && !model.here.iter().any(|(_, here)| here == tag)));
            }
            Step::Answer { which, len } => {
                if model.here.is_empty() {
                    continue;
                }
                let (cell, tag) = model.here.remove(which % model.here.len());
                let header =
                    ReplyHeader { status: tag as u32, tag, regions: [tag as u32; REGIONS] };
                host.push_reply(cell, &header, &payload(!tag, len)).unwrap();
                model.answered.push_back((cell, tag, len));
            }
            Step::Collect(most) => {
                assert_eq!(caller.has_replies(), !model.answered.is_empty());
                let n = caller.pop_replies(most, |reply| {
                    let (cell, tag, len) = model.answered.pop_front().expect("no such reply");
                    assert_eq!(
                        (reply.cell, reply.header.tag, reply.len as usize),
                        (cell, tag, len)
                    );
                    assert_eq!(reply.header.regions, [tag as u32; REGIONS]);
                    caller.read_reply(cell, &mut bytes).unwrap();
                    assert_eq!(bytes, payload(!tag, len));
                    assert_eq!(model.out.remove(&cell).map(|(out, _)| out), Some(tag));
                    caller.give_back(cell).unwrap();
                });
                assert!(n.unwrap() <= most);
            }
        }
        assert_eq!((caller.in_use(), host.in_use()), (model.out.len(), model.here.len()));
        assert_eq!(caller.lent().count(), model.out.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_programs_match_the_model(cells in 0..4u32, steps in prop::collection::vec(step(), 1..300)) {
        run(1 << cells, &steps);
    }
}

/// Several kernel threads call, several serve; each reply is that of its request, and in the end
/// all cells are there.
#[test]
fn concurrent_callers_and_servers_lose_nothing() {
    const CALLS: u64 = 3000;
    let (host, caller) = lane(8, 256);
    let done = AtomicU64::new(0);
    let ended = AtomicBool::new(false);
    // By cell: the tag of the reply that came for its taker.
    let came: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
    let deadline = Instant::now() + Duration::from_secs(30);
    let in_time = || assert!(Instant::now() < deadline, "it hangs");
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let mut bytes = Vec::new();
                while !ended.load(Ordering::Relaxed) {
                    let mut got = Vec::new();
                    host.pop_requests(3, |incoming| {
                        if let Incoming::Request(request) = incoming {
                            got.push(request)
                        }
                    })
                    .unwrap();
                    for request in &got {
                        host.read_request(request.cell, &mut bytes).unwrap();
                        bytes.iter_mut().for_each(|byte| *byte = !*byte);
                        let header = ReplyHeader { tag: request.header.tag, ..Default::default() };
                        host.push_reply(request.cell, &header, &bytes).unwrap();
                    }
                    if got.is_empty() {
                        in_time();
                        thread::yield_now();
                    }
                }
            });
        }
        let (caller, done, ended, came) = (&caller, &done, &ended, &came);
        for no in 0..3u64 {
            s.spawn(move || {
                let mut bytes = Vec::new();
                for n in 1..=CALLS {
                    let tag = no << 32 | n;
                    let sent = payload(tag, (n % 257) as usize);
                    let cell = loop {
                        in_time();
                        if let Some(cell) = caller.take_cell() {
                            break cell;
                        }
                        thread::yield_now();
                    };
                    caller
                        .write(cell, &RequestHeader { tag, ..Default::default() }, &sent)
                        .unwrap();
                    caller.push_request(cell).unwrap();
                    if n % 5 == 0 {
                        caller.push_cancel(cell);
                    }
                    while came[cell.index()].load(Ordering::Acquire) != tag {
                        in_time();
                        let put = |reply: IncomingReply| {
                            came[reply.cell.index()].store(reply.header.tag, Ordering::Release)
                        };
                        if caller.pop_replies(usize::MAX, put).unwrap() == 0 {
                            thread::yield_now();
                        }
                    }
                    caller.read_reply(cell, &mut bytes).unwrap();
                    assert!(
                        bytes.iter().zip(&sent).all(|(a, b)| *a == !b) && bytes.len() == sent.len()
                    );
                    caller.give_back(cell).unwrap();
                }
                if done.fetch_add(1, Ordering::Relaxed) == 2 {
                    ended.store(true, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!((caller.in_use(), host.in_use()), (0, 0));
    assert!(!caller.has_replies());
}
