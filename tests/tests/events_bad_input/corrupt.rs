//! Corruption of the shared page: the process either reports it and ends, or continues. It neither
//! hangs nor ends in another way.

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use kumihimo::thread;
use kumihimo_events::slot::{CLAIMING, LENT, Slot, token};
use kumihimo_tests::process::{again, is_child};
use kumihimo_tests::skip;
use kumihimo_tests::{Random, seed};

use crate::blocked::{block, nanosleep, this_tid};
use crate::under::{ALL, may, with_vps};

/// The mapping of the slots: the memfd or the BPF map.
fn slots() -> &'static [AtomicU64] {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let line = maps.lines().find(|line| line.contains("kumihimo-slots")).or_else(|| {
        // The buffer of records is mapped as well. The slots are the larger writable mapping.
        maps.lines()
            .filter(|line| line.contains("bpf-map") && line.contains("rw-s"))
            .max_by_key(|line| range(line).1)
    });
    let (start, bytes) = range(line.expect("a mapping of slots"));
    // SAFETY: mapped as long as the runtime runs, which is as long as this process. Any contents
    // are valid atomics.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(start), bytes / 8) }
}

/// Start and length of a mapping.
fn range(line: &str) -> (usize, usize) {
    let (start, rest) = line.split_once('-').expect("proc_pid_maps(5)");
    let number = |text: &str| usize::from_str_radix(text, 16).expect("a hexadecimal number");
    let (start, end) = (number(start), number(rest.split(' ').next().expect("an address")));
    (start, end - start)
}

const WORDS: usize = size_of::<Slot>() / 8;
/// Index of a slot's word with the number of its VP.
const VP: usize = 1;
/// Index of the word whose lower half is the kernel thread's ID.
const TID: usize = 5;

/// Blocks, sleeps and yields.
fn work() {
    let blocked = block(5);
    let naps: Vec<_> = (0..10)
        .map(|_| {
            thread::spawn(|| {
                for _ in 0..20 {
                    nanosleep(50_000);
                    thread::yield_now();
                }
            })
        })
        .collect();
    for nap in naps {
        nap.join().expect("no panic");
    }
    blocked.release();
}

/// Runs a child process for each source and each value. `write` receives the words of the slots and
/// the value, and corrupts them. Then microprocesses run.
fn scribbled(name: &str, values: &[u64], write: impl Fn(&[AtomicU64], u64) + Sync) {
    if is_child(name) {
        let value =
            std::env::var("KUMI_SCRIBBLE").expect("the parent sets it").parse().expect("a number");
        return with_vps(2, || {
            work();
            write(slots(), value);
            work();
        });
    }
    for source in ALL.into_iter().filter(|source| may(name, *source)) {
        for value in values {
            let ended = again(
                name,
                &[("KUMI_EVENTS", source.name()), ("KUMI_SCRIBBLE", &value.to_string())],
            );
            if ended.stderr.contains("[skip]") {
                return skip(name, "microprocesses are kernel threads here");
            }
            if !ended.status.success() {
                let said = ended.stderr.contains("kumihimo: the shared page is corrupt");
                let aborted = ended.status.signal() == Some(libc::SIGABRT);
                assert!(said && aborted, "under {source}, {value:#x}: {ended:#?}");
            }
        }
    }
}

/// Writes values that no valid slot contains into each slot that has a VP.
fn into_those_that_carry(name: &str, values: &[u64]) {
    scribbled(name, values, |words, value| {
        for slot in words.chunks_exact(WORDS).skip(1) {
            if slot[VP].load(SeqCst) != 0 {
                slot[VP].store(value, SeqCst);
            }
        }
    });
}

#[test]
fn event_for_a_nonexistent_vp_is_detected() {
    let values = [!(CLAIMING | LENT), token(2), token(1 << 20), token(1000) | LENT, u64::MAX];
    into_those_that_carry("corrupt::event_for_a_nonexistent_vp_is_detected", &values);
}

/// Without [`LENT`]: no event is delivered for a slot that seems lent or masked, and the VP stays
/// with the blocked thread until that returns.
#[test]
fn event_for_the_vp_of_another_thread_is_detected() {
    into_those_that_carry(
        "corrupt::event_for_the_vp_of_another_thread_is_detected",
        &[token(0), token(1)],
    );
}

#[test]
fn slot_without_its_vp_is_detected() {
    into_those_that_carry("corrupt::slot_without_its_vp_is_detected", &[0]);
}

/// Clears the VP of a slot whose thread blocks next, in a call outside of Kumihimo. Neither its
/// kernel thread nor a source detects the change by itself. The virtual processor and its queue
/// must not be lost.
#[test]
fn event_without_a_vp_for_a_blocked_thread_is_detected() {
    const NAME: &str = "corrupt::event_without_a_vp_for_a_blocked_thread_is_detected";
    if is_child(NAME) {
        return with_vps(2, || {
            let sleeper = thread::spawn(|| {
                let tid = this_tid();
                let own =
                    slots().chunks_exact(WORDS).find(|slot| slot[TID].load(SeqCst) as u32 == tid);
                own.expect("a kernel thread of the pool")[VP].store(0, SeqCst);
                nanosleep(i64::MAX);
            });
            sleeper.join().expect("it is never over");
        });
    }
    for source in ALL.into_iter().filter(|source| may(NAME, *source)) {
        let ended = again(NAME, &[("KUMI_EVENTS", source.name())]);
        if ended.stderr.contains("[skip]") {
            return skip(NAME, "microprocesses are kernel threads here");
        }
        let said = ended.stderr.contains("kumihimo: the shared page is corrupt");
        assert!(said && ended.status.signal() == Some(libc::SIGABRT), "under {source}: {ended:#?}");
    }
}

#[test]
fn event_with_an_invalid_claim_is_detected() {
    scribbled("corrupt::event_with_an_invalid_claim_is_detected", &[CLAIMING], |words, bits| {
        for slot in words.chunks_exact(WORDS).skip(1).filter(|slot| slot[VP].load(SeqCst) != 0) {
            slot[VP].fetch_or(bits, SeqCst);
        }
    });
}

/// A slot without a VP claims one.
#[test]
fn slot_that_claims_a_second_vp_is_detected() {
    scribbled(
        "corrupt::slot_that_claims_a_second_vp_is_detected",
        &[token(0), token(1), token(0) | LENT, token(1) | LENT],
        |words, value| {
            for slot in words.chunks_exact(WORDS).skip(1).filter(|slot| slot[VP].load(SeqCst) == 0)
            {
                slot[VP].store(value, SeqCst);
            }
        },
    );
}

/// Overwrites all words that do not contain a VP, repeatedly: counters, states, priorities, IDs and
/// others.
#[test]
fn other_corrupt_words_are_survived_or_detected() {
    const NAME: &str = "corrupt::other_corrupt_words_are_survived_or_detected";
    let first = if is_child(NAME) { 0 } else { seed() };
    scribbled(NAME, &[first, first.wrapping_add(1)], |words, value| {
        let mut random = Random(value);
        for slot in words.chunks_exact(WORDS).skip(1) {
            // Excludes `vp`, `masked` and `wanted`, `pending` and `priority`, `tid` and `state`.
            for word in [0, 4].into_iter().chain(6..WORDS) {
                slot[word].store(random.number(), SeqCst);
            }
        }
    });
}

/// Overwrites the header before the slots, which is not read after the start.
#[test]
fn corrupt_header_is_not_read() {
    scribbled("corrupt::corrupt_header_is_not_read", &[0, u64::MAX], |words, value| {
        for word in &words[..WORDS] {
            word.store(value, SeqCst);
        }
    });
}
