//! Events by BPF in the running kernel: with a program loaded here, and with a seat, as user
//! nobody.
#![cfg(not(loom))]

mod common;
mod seats;
mod shared;

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::*;
use kumihimo_events::bpf::{
    Bpf, Header, LENT, MAGIC, SLOT_SIZE, VERSION, WANTS_BLOCKED, WANTS_UNBLOCKED,
};

#[test]
fn header_describes_the_mapping() {
    for bpf in loaded("header_describes_the_mapping", 10) {
        let (start, length) = bpf.memory();
        assert_eq!(length, 11 * SLOT_SIZE);
        // SAFETY: the header is at the start, and no thread writes to it now.
        let header = unsafe { start.cast::<Header>().read() };
        assert_eq!(
            header,
            Header {
                magic: MAGIC,
                version: VERSION,
                slot_size: SLOT_SIZE as u32,
                slots: 10,
                seat: 0
            }
        );
        assert!(!bpf.is_pinned());
        for wrong in [0, 11] {
            assert_eq!(
                bpf.attach(wrong).expect_err("no such slot").kind(),
                io::ErrorKind::InvalidInput
            );
        }
        assert!(Bpf::load(0).is_err());
    }
}

#[test]
fn every_sleep_lends_the_vp_and_traps_once_without_eintr() {
    for bpf in loaded("every_sleep_lends_the_vp_and_traps_once_without_eintr", 8) {
        every_kind_of_sleep(&bpf, 2_000);
        assert_eq!(STRANGE.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn masked_or_unwanted_sleep_is_not_reported() {
    for bpf in loaded("masked_or_unwanted_sleep_is_not_reported", 1) {
        let slot = Slot::of(&bpf, 1);
        let both = WANTS_BLOCKED | WANTS_UNBLOCKED;
        // masked, vp, wanted
        let quiet = [
            (1, TOKEN, both),
            (u32::MAX, TOKEN, both),
            (0, 0, both),
            (0, 3, both),
            (0, TOKEN | 1, both),
        ];
        let quiet = quiet.into_iter().chain([
            (0, TOKEN | LENT, both),
            (0, TOKEN, 0),
            (0, TOKEN, WANTS_UNBLOCKED),
        ]);
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _attached = bpf.attach(1).expect("attached");
                let start = TRAPS.get();
                for (masked, vp, wanted) in quiet {
                    slot.masked().store(masked, Ordering::Relaxed);
                    slot.half(20).store(wanted, Ordering::Relaxed);
                    slot.vp().store(vp, Ordering::Relaxed);
                    for _ in 0..200 {
                        assert_eq!(nanosleep(1_000), 0);
                    }
                    assert_eq!(slot.vp().load(Ordering::Relaxed), vp);
                }
                assert_eq!(
                    (slot.blocked(), slot.traps(), slot.missed(), TRAPS.get() - start),
                    (0, 0, 0, 0)
                );
                // Only Blocked is wanted: the VP is lent, without a trap.
                slot.half(20).store(WANTS_BLOCKED, Ordering::Relaxed);
                slot.vp().store(TOKEN, Ordering::Relaxed);
                sleep_until_lent(slot, 1_000);
                assert_eq!(slot.vp().load(Ordering::Relaxed), TOKEN | LENT);
                assert_eq!((slot.blocked(), slot.traps(), TRAPS.get() - start), (1, 0, 0));
            });
            joined([thread]);
        });
        let mut records = Vec::new();
        bpf.drain(|slot, vp| records.push((slot, vp)));
        assert_eq!(records, [(1, 6)]);
    }
}

/// Closing a link removes the filter before the event. At most one of our traps may follow, which
/// reports nothing.
#[test]
fn attach_and_detach_cause_only_our_traps() {
    for bpf in loaded("attach_and_detach_cause_only_our_traps", 1) {
        let slot = Slot::of(&bpf, 1);
        slot.masked().store(1, Ordering::Relaxed);
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let start = TRAPS.get();
                for _ in 0..500 {
                    let attached = bpf.attach(1).expect("attached");
                    assert_eq!(nanosleep(1_000), 0);
                    thread::yield_now();
                    drop(attached);
                    thread::yield_now();
                }
                println!("{} traps by closing 500 links", TRAPS.get() - start);
                assert_eq!((slot.blocked(), slot.traps()), (0, 0));
            });
            joined([thread]);
        });
        assert_eq!(STRANGE.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn full_buffer_counts_a_miss_and_leaves_the_vp() {
    for bpf in loaded("full_buffer_counts_a_miss_and_leaves_the_vp", 1) {
        let slot = Slot::of(&bpf, 1);
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _attached = bpf.attach(1).expect("attached");
                let start = TRAPS.get();
                slot.half(20).store(WANTS_BLOCKED | WANTS_UNBLOCKED, Ordering::Relaxed);
                let mut lent = 0;
                while slot.missed() == 0 {
                    slot.vp().store(TOKEN, Ordering::Relaxed);
                    assert_eq!(nanosleep(1_000), 0);
                    lent += u64::from(slot.vp().load(Ordering::Relaxed) == TOKEN | LENT);
                }
                // 4,096 bytes, 16 for each record; the kernel never fills the last one.
                assert_eq!((lent, slot.blocked()), (255, 255));
                assert_eq!(slot.vp().load(Ordering::Relaxed), TOKEN, "the VP stays");
                // A trap that becomes due while the previous one is under way is merged with it.
                let due = slot.traps();
                assert!(!bpf.traps() || due == 255 || !bpf.traps_at_once() && due > 0);
                assert!(!bpf.traps() || traps_since(&bpf, start, due) == due);
                let mut records = 0;
                bpf.drain(|_, _| records += 1);
                assert_eq!(records, 255);
                sleep_until_lent(slot, 1_000);
                assert_eq!(slot.vp().load(Ordering::Relaxed), TOKEN | LENT, "there is room again");
            });
            joined([thread]);
        });
    }
}

/// A trap would end the new program. A child of fork(2) keeps everything attached meanwhile, and
/// repeatedly gives the slot a VP.
#[test]
fn thread_is_not_followed_into_another_program() {
    const NAME: &str = "thread_is_not_followed_into_another_program";
    if let Ok(way) = std::env::var("KUMI_TEST_CHILD") {
        handle_traps();
        let (_, load) = WAYS.into_iter().find(|(name, _)| *name == way).expect("one of these");
        let bpf = load(1).expect("loaded before");
        let slot = Slot::of(&bpf, 1);
        slot.half(20).store(WANTS_BLOCKED | WANTS_UNBLOCKED, Ordering::Relaxed);
        let _attached = bpf.attach(1).expect("attached");
        // SAFETY: the child stores to memory that it shares, sleeps, and ends.
        if unsafe { libc::fork() } == 0 {
            for _ in 0..400 {
                slot.vp().store(TOKEN, Ordering::Relaxed);
                nanosleep(1_000_000);
            }
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        panic!("{}", std::process::Command::new("sleep").arg("0.2").exec());
    }
    for ((way, _), _) in WAYS.into_iter().zip(loaded(NAME, 1)) {
        let program = std::env::current_exe().expect("a program");
        let mut child = std::process::Command::new(program);
        let done = child
            .args([NAME, "--exact", "--nocapture"])
            .env("KUMI_TEST_CHILD", way)
            .status()
            .expect("begun");
        assert!(done.success(), "{way}: {done}");
    }
}

/// xorshift64*.
fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

#[test]
fn overwritten_slots_harm_no_thread() {
    for bpf in loaded("overwritten_slots_harm_no_thread", 8) {
        const ROUNDS: u64 = 20_000;
        let over = AtomicBool::new(false);
        let ((reader, mut pings), (mut answers, mut writer)) = (pipe(), pipe());
        let mut told = 0u64;
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                let _attached = bpf.attach(2).expect("attached");
                for n in 0..ROUNDS {
                    assert_eq!(
                        read_once(&reader, &mut [0]),
                        1,
                        "round {n}: {}",
                        io::Error::last_os_error()
                    );
                    writer.write_all(&[1]).expect("written");
                }
                over.store(true, Ordering::Release);
            });
            let thread = scope.spawn(|| {
                for _ in 0..ROUNDS {
                    pings.write_all(&[1]).expect("written");
                    assert_eq!(answers.read(&mut [0]).expect("read"), 1);
                }
            });
            let mut seed = 0x6b75_6d69_u64;
            while !over.load(Ordering::Acquire) {
                for slot in (0..=8).map(|n| Slot::of(&bpf, n)) {
                    for at in (0..SLOT_SIZE).step_by(8) {
                        slot.word(at).store(random(&mut seed), Ordering::Relaxed);
                    }
                    // Random words are nearly always masked. Plausible values in between make the
                    // program lend the VP.
                    if random(&mut seed) & 1 == 0 {
                        slot.masked().store(0, Ordering::Relaxed);
                        slot.vp().store(random(&mut seed) & !3, Ordering::Relaxed);
                    }
                }
                bpf.drain(|slot, _| {
                    assert_eq!(slot, 2);
                    told += 1;
                });
                thread::yield_now();
            }
            joined([first, thread]);
        });
        assert!(told > 0, "not one event: the overwritten slots had no effect");
        // The events still work afterwards.
        every_kind_of_sleep_after(&bpf);
    }
}

fn every_kind_of_sleep_after(bpf: &Bpf) {
    bpf.drain(|_, _| ());
    Slot::of(bpf, 3).word(64).store(0, Ordering::Relaxed);
    sleeps_are_told(bpf, 100, || sleep_until_lent(Slot::of(bpf, 3), 1_000), || ());
}

#[test]
fn records_of_many_threads_are_complete() {
    const THREADS: u32 = 16;
    const ROUNDS: u64 = 500;
    // So many slots that the buffer has room for all records.
    for bpf in loaded("records_of_many_threads_are_complete", THREADS * ROUNDS as u32) {
        let told: Vec<AtomicU64> = (0..=THREADS).map(|_| AtomicU64::new(0)).collect();
        let total = AtomicU64::new(0);
        let over = eventfd();
        thread::scope(|scope| {
            let mut threads = Vec::new();
            // Two readers at once, each in an edge-triggered epoll: a record that one reader leaves
            // must wake the other.
            for _ in 0..2 {
                threads.push(scope.spawn(|| {
                    let epoll = epoll_of(bpf.event_fd(), libc::EPOLLET as u32);
                    add(&epoll, over.as_fd(), 0, 1);
                    while wait_once(&epoll) == Some(0) {
                        bpf.drain(|slot, vp| {
                            assert_eq!(vp, slot * 3);
                            told[slot as usize].fetch_add(1, Ordering::Relaxed);
                            total.fetch_add(1, Ordering::Release);
                        });
                    }
                }));
            }
            for number in 1..=THREADS {
                let bpf = &bpf;
                threads.push(scope.spawn(move || {
                    let slot = Slot::of(bpf, number);
                    slot.half(20).store(WANTS_BLOCKED | WANTS_UNBLOCKED, Ordering::Relaxed);
                    slot.masked().store(1, Ordering::Relaxed);
                    let _attached = bpf.attach(number).expect("attached");
                    for _ in 0..ROUNDS {
                        slot.vp().store((u64::from(number) * 3 + 1) << 2, Ordering::Relaxed);
                        slot.masked().store(0, Ordering::Release);
                        sleep_until_lent(slot, 1_000);
                        slot.masked().store(1, Ordering::Release);
                    }
                    assert_eq!((slot.blocked(), slot.missed()), (ROUNDS, 0));
                }));
            }
            while total.load(Ordering::Acquire) < u64::from(THREADS) * ROUNDS {
                thread::yield_now();
            }
            assert_eq!(write_all_at_once(&over, &1u64.to_ne_bytes()), 8);
            joined(threads);
        });
        assert!(told[1..].iter().all(|n| n.load(Ordering::Relaxed) == ROUNDS));
    }
}
