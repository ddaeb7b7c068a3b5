//! Peers that write anything into a lane: each side ends in an answer or in `Malformed`, and in
//! nothing else.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use super::super::*;
use crate::error::ErrorKind;
use crate::memory::Memory;

/// A lane and, mapped once more, its memory as words.
struct Open {
    host: ServerEnd,
    caller: ClientEnd,
    memory: Memory,
    _fd: OwnedFd,
}

impl Open {
    fn new(cells: u32, inline: u32) -> Open {
        let geometry = Geometry::checked(cells, inline).unwrap();
        let (host, fd) = ServerEnd::create("kumihimo-test", geometry).unwrap();
        let caller = ClientEnd::open(fd.as_fd(), geometry).unwrap();
        let memory = Memory::map(fd.as_fd(), geometry.bytes()).unwrap();
        Open { host, caller, memory, _fd: fd }
    }

    fn words(&self) -> &[AtomicU32] {
        // SAFETY: mapped as long as `self` lives, aligned to pages; atomics, which others may
        // write.
        unsafe { std::slice::from_raw_parts(self.memory.start().cast(), self.memory.len() / 4) }
    }

    /// The word of a cell's head at this index.
    fn head(&self, cell: usize, word: usize) -> &AtomicU32 {
        &self.words()[(self.host.geometry().heads() + cell * cell::HEAD) / 4 + word]
    }

    fn request(&self, at: usize) -> &AtomicU32 {
        &self.words()[self.host.geometry().requests_at() / 4 + at]
    }

    fn reply(&self, at: usize) -> &AtomicU32 {
        &self.words()[self.host.geometry().replies_at() / 4 + at]
    }

    /// A request under way.
    fn pushed(&self) -> CellNo {
        let cell = self.caller.take_cell().unwrap();
        self.caller.write(cell, &RequestHeader::default(), b"request").unwrap();
        self.caller.push_request(cell).unwrap();
        cell
    }

    /// A request that the server has.
    fn served(&self) -> CellNo {
        let cell = self.pushed();
        assert_eq!(self.host.pop_requests(8, |_| {}).unwrap(), 1);
        cell
    }

    /// What the server says is wrong.
    fn refused_request(&self) -> String {
        let error =
            self.host.pop_requests(8, |incoming| panic!("passed on: {incoming:?}")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        error.to_string()
    }

    /// What the client says is wrong.
    fn refused_reply(&self) -> String {
        let error = self.caller.pop_replies(8, |reply| panic!("passed on: {reply:?}")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        error.to_string()
    }
}

fn set(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Relaxed);
}

/// Words of a head: see `CellHead`.
const SERIAL: usize = 0;
const SHAPE: usize = 1;
const LEN: usize = 2;

/// What the text has to say, and what is written.
type Wrong = (&'static str, fn(&Open, CellNo));

#[test]
fn malformed_request_words_are_named() {
    let cases: [Wrong; 6] = [
        ("names no cell of 2", |lane, _| set(lane.request(0), ring::LAP | 2)),
        ("names no cell of 2", |lane, _| set(lane.request(0), ring::LAP | 0xffff)),
        ("serial", |lane, cell| set(lane.head(cell.index(), SERIAL), 77)),
        ("513 bytes of 512", |lane, cell| set(lane.head(cell.index(), LEN), 513)),
        ("priority 64", |lane, cell| set(lane.head(cell.index(), SHAPE), 64 << 16)),
        ("chain of 16", |lane, cell| set(lane.head(cell.index(), SHAPE), 16 << 24)),
    ];
    for (says, wrong) in cases {
        let lane = Open::new(2, 512);
        let cell = lane.pushed();
        wrong(&lane, cell);
        let text = lane.refused_request();
        assert!(text.contains(says), "{text}: not {says}");
        assert_eq!(lane.host.in_use(), 0);
    }
}

#[test]
fn second_request_in_an_unanswered_cell_is_refused() {
    let lane = Open::new(2, 512);
    let cell = lane.served();
    set(lane.request(1), lane.request(0).load(Ordering::Relaxed));
    assert!(lane.refused_request().contains("no reply yet"));
    // What came in order is answered in order.
    lane.host.push_reply(cell, &ReplyHeader::default(), b"reply").unwrap();
    assert_eq!(lane.caller.pop_replies(8, |_| {}).unwrap(), 1);
}

#[test]
fn malformed_reply_words_are_named() {
    let answer =
        |lane: &Open, cell| lane.host.push_reply(cell, &ReplyHeader::default(), b"reply").unwrap();
    let cases: [Wrong; 6] = [
        ("names no cell of 2", |lane, _| set(lane.reply(0), ring::LAP | 2)),
        ("names no cell of 2", |lane, cell| {
            set(lane.reply(0), ring::LAP | cell::RingEntry::cancel(cell.0.into(), 1).0)
        }),
        ("waits for none", |lane, _| set(lane.reply(0), ring::LAP | cell::RingEntry::new(1, 1).0)),
        ("waits for none", |lane, cell| {
            set(lane.reply(0), ring::LAP | cell::RingEntry::new(cell.0.into(), 2).0)
        }),
        ("513 bytes of 512", |lane, cell| set(lane.head(cell.index(), LEN), 513)),
        ("bytes of 512", |lane, cell| set(lane.head(cell.index(), LEN), u32::MAX)),
    ];
    for (says, wrong) in cases {
        let lane = Open::new(2, 512);
        let cell = lane.served();
        answer(&lane, cell);
        wrong(&lane, cell);
        let text = lane.refused_reply();
        assert!(text.contains(says), "{text}: not {says}");
        assert_eq!(lane.caller.lent().collect::<Vec<_>>(), [cell], "the waiter is to be told");
    }
}

/// A cancel that crosses the reply is nothing wrong: see `late_cancels_are_dropped`. All others
/// are.
#[test]
fn cancel_without_a_request_is_refused() {
    let cancel = |cell, serial| ring::LAP | cell::RingEntry::cancel(cell, serial).0;
    for (cell, more) in [(1, 0), (0, 1), (0, u32::MAX), (2, 0)] {
        let lane = Open::new(2, 512);
        let served = lane.served();
        let serial = lane.host.unanswered(served).unwrap();
        set(lane.request(1), cancel(cell, serial.wrapping_add(more)));
        let text = lane.refused_request();
        assert!(
            text.contains(if cell < 2 { "no request that the cancel" } else { "names no cell" }),
            "{text}"
        );
    }
}

#[test]
fn late_cancels_are_dropped() {
    let lane = Open::new(2, 512);
    let cell = lane.served();
    assert!(lane.caller.push_cancel(cell));
    lane.host.push_reply(cell, &ReplyHeader::default(), b"reply").unwrap();
    let dropped = lane.host.pop_requests(8, |incoming| panic!("passed on: {incoming:?}"));
    assert_eq!(dropped.unwrap(), 1);
    // A second one is too much.
    set(lane.request(2), lane.request(1).load(Ordering::Relaxed));
    assert!(lane.refused_request().contains("no request that the cancel"));
}

/// A length that grows after it was checked changes nothing: the checked one counts.
#[test]
fn payload_length_is_read_once() {
    let lane = Open::new(2, 512);
    let cell = lane.served();
    set(lane.head(cell.index(), LEN), u32::MAX);
    let mut bytes = Vec::new();
    lane.host.read_request(cell, &mut bytes).unwrap();
    assert_eq!(bytes, b"request");
    lane.host.push_reply(cell, &ReplyHeader::default(), b"reply").unwrap();
    assert_eq!(lane.caller.pop_replies(8, |reply| assert_eq!(reply.len, 5)).unwrap(), 1);
    set(lane.head(cell.index(), LEN), u32::MAX);
    lane.caller.read_reply(cell, &mut bytes).unwrap();
    assert_eq!(bytes, b"reply");
}

/// Not random enough for anything else.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Random words, and ones that are nearly right.
fn scribble(lane: &Open, state: &mut u64) {
    let geometry = lane.host.geometry();
    let cells = geometry.cells() as usize;
    let value = random(state);
    let cell = (value >> 32) as usize % cells;
    let near_right =
        cell::RingEntry::new(cell as u32, (value >> 40) as u32 % 8).0 | (value as u32 & ring::LAP);
    match random(state) % 8 {
        0 => set(lane.request(value as usize % geometry.requests()), near_right),
        1 => set(lane.reply(value as usize % geometry.replies()), near_right),
        2 => set(lane.request(value as usize % geometry.requests()), (value >> 32) as u32),
        3 => set(lane.head(cell, LEN), value as u32 % (2 * geometry.inline())),
        4 => set(lane.head(cell, value as usize % (cell::HEAD / 4)), (value >> 16) as u32),
        5 => set(lane.head(cell, SERIAL), (value >> 40) as u32 % 8),
        _ => set(&lane.words()[value as usize % lane.words().len()], (value >> 8) as u32),
    }
}

/// Both sides work while a third scribbles over everything, all the time: every step ends, in `Ok`
/// or `Malformed`. Lanes that are given up are made anew.
#[test]
fn peer_overwriting_the_lane_causes_only_malformed() {
    let seed = std::env::var("KUMI_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(0x9e37_79b9_7f4a_7c15);
    println!("a_peer_that_scribbles: KUMI_SEED={seed}");
    let (mut answered, mut given_up) = (0u32, 0u32);
    for round in 1..=200u64 {
        let lane = Open::new(4, 192);
        let (done, scribbled) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|s| {
            let mut state = seed ^ round;
            let (lane, done, scribbled) = (&lane, &done, &scribbled);
            s.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    scribble(lane, &mut state);
                    scribbled.fetch_add(1, Ordering::Relaxed);
                    // Rarely enough that something goes right, too.
                    for _ in 0..random(&mut state) % (20 * round) {
                        std::hint::spin_loop();
                    }
                }
            });
            while scribbled.load(Ordering::Relaxed) < 1000 {
                match turn(lane) {
                    Ok(n) => answered += n,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
                        given_up += 1;
                        break;
                    }
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
    assert!(given_up > 0 && answered > 0, "{given_up} lanes given up, {answered} replies");
}

/// Both sides do what there is to do.
fn turn(lane: &Open) -> Result<u32, crate::Error> {
    let (host, caller) = (&lane.host, &lane.caller);
    let mut bytes = Vec::new();
    while let Some(cell) = caller.take_cell() {
        caller.write(cell, &RequestHeader::default(), &[7; 190][cell.index()..])?;
        caller.push_request(cell)?;
        if cell.index() == 1 {
            caller.push_cancel(cell);
        }
    }
    let mut came = Vec::new();
    host.pop_requests(64, |incoming| {
        came.extend(if let Incoming::Request(request) = incoming { Some(request) } else { None })
    })?;
    for request in came {
        assert!(
            request.len <= 192
                && request.header.priority < LEVELS
                && request.header.chain.words().len() <= CHAIN
        );
        host.read_request(request.cell, &mut bytes)?;
        assert_eq!(bytes.len(), request.len as usize);
        host.push_reply(request.cell, &ReplyHeader::default(), &bytes)?;
    }
    let mut replies = Vec::new();
    caller.pop_replies(64, |reply| replies.push(reply))?;
    for reply in &replies {
        caller.read_reply(reply.cell, &mut bytes)?;
        assert!(bytes.len() == reply.len as usize && bytes.len() <= 192);
        caller.give_back(reply.cell)?;
    }
    Ok(replies.len() as u32)
}

/// Memory of nothing but noise, from the first word on: it is not opened, or serves nothing.
#[test]
fn memory_without_the_header_is_refused() {
    let geometry = Geometry::checked(4, 128).unwrap();
    let mut state = 88_172_645_463_325_252;
    for round in 0..200 {
        let (memory, fd) =
            Memory::create("kumihimo-test", geometry.bytes(), crate::memory::Pages::AsTouched)
                .unwrap();
        // SAFETY: mapped as long as `memory` lives, aligned to pages; atomics, which others may
        // write.
        let words: &[AtomicU32] =
            unsafe { std::slice::from_raw_parts(memory.start().cast(), memory.len() / 4) };
        let from = if round % 2 == 0 { 0 } else { 5 };
        for word in &words[from..] {
            set(word, random(&mut state) as u32);
        }
        if from == 0 {
            assert_eq!(
                ClientEnd::open(fd.as_fd(), geometry).err().map(|e| e.kind()),
                Some(ErrorKind::Malformed)
            );
            continue;
        }
        for (word, says) in words.iter().zip([
            u32::from_ne_bytes(*b"KUMI"),
            u32::from_ne_bytes(*b"LANE"),
            1,
            4,
            128,
        ]) {
            set(word, says);
        }
        let caller = ClientEnd::open(fd.as_fd(), geometry).expect("its beginning is right");
        // A client waits for nothing yet: no reply is right.
        let popped = caller.pop_replies(usize::MAX, |reply| panic!("{reply:?}"));
        assert!(
            popped.is_ok_and(|n| n == 0)
                || words[geometry.replies_at() / 4].load(Ordering::Relaxed) & ring::LAP != 0
        );
        let host = ServerEnd::new(memory::LaneMemory::open(fd.as_fd(), geometry).unwrap());
        for _ in 0..64 {
            if host.pop_requests(usize::MAX, |_| {}).is_err() {
                break;
            }
        }
    }
}

#[test]
fn geometry_other_than_the_memorys_is_refused() {
    let right = Geometry::checked(8, 1024).unwrap();
    let (_host, fd) = ServerEnd::create("kumihimo-test", right).unwrap();
    for (cells, inline) in [(16, 1024), (4, 1024), (8, 128), (8, 2048)] {
        let wrong = Geometry::checked(cells, inline).unwrap();
        assert_eq!(
            ClientEnd::open(fd.as_fd(), wrong).err().map(|e| e.kind()),
            Some(ErrorKind::Malformed)
        );
    }
    // Of the same size, and yet another.
    let alike = (1..=65536 / 64)
        .filter_map(|n| Geometry::checked(8, 64 * n).ok())
        .find(|other| *other != right && other.bytes() == right.bytes());
    if let Some(alike) = alike {
        assert!(
            ClientEnd::open(fd.as_fd(), alike)
                .err()
                .is_some_and(|e| e.to_string().contains("begins with"))
        );
    }
}

#[test]
fn impossible_geometries_are_refused() {
    for (cells, inline) in [
        (0, 4096),
        (3, 4096),
        (1 << 17, 128),
        (u32::MAX, 4096),
        (8, 0),
        (8, 64),
        (8, 100),
        (8, u32::MAX),
        (8, 1 << 21),
        (1 << 16, 1 << 20),
    ] {
        assert_eq!(
            Geometry::checked(cells, inline).unwrap_err().kind(),
            ErrorKind::Malformed,
            "{cells} {inline}"
        );
    }
    for (cells, inline) in [
        (0, 4096),
        ((1 << 16) + 1, 64),
        (8, (1 << 20) + 1),
        (1 << 16, 1 << 20),
        (u32::MAX, u32::MAX),
    ] {
        assert_eq!(
            Geometry::fitting(cells, inline).unwrap_err().kind(),
            ErrorKind::Invalid,
            "{cells} {inline}"
        );
    }
    for (wanted, got) in [
        ((1000, 4000), (1024, 4032)),
        ((1, 0), (1, 128)),
        ((65536, 4096), (65536, 4096)),
        ((5, 1 << 20), (8, 1 << 20)),
    ] {
        let geometry = Geometry::fitting(wanted.0, wanted.1).unwrap();
        assert_eq!((geometry.cells(), geometry.inline()), got);
    }
    assert_eq!(Geometry::fitting(1024, 4096).unwrap(), Geometry::default());
}
