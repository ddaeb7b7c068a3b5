//! The perf event rings for every sleep while it listens, and for none while it is quiet. Needs no
//! privileges; skipped where perf events are unavailable.
#![cfg(not(loom))]

use std::collections::BTreeSet;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kumihimo_events::perf::{Perf, Watched};
use kumihimo_events::watch::sleeps;

/// A timeout that no ring exceeds, in milliseconds: a test that reaches it has missed a ring.
const LOST: i32 = 15_000;

struct Epoll(OwnedFd);

impl Epoll {
    fn new() -> Epoll {
        // SAFETY: a flag.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: a new descriptor without another owner.
        Epoll(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn add(&self, watched: &Watched, data: u64) {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: data };
        let (epoll, fd) = (self.0.as_raw_fd(), watched.fd().as_raw_fd());
        // SAFETY: an event that outlives the call.
        let done = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    fn wait(&self, milliseconds: i32) -> Vec<u64> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: room for 64 events.
        let n =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 64, milliseconds) };
        assert!(n >= 0, "{}", std::io::Error::last_os_error());
        events[..n as usize].iter().map(|event| event.u64).collect()
    }
}

/// Returns `None` after printing the reason; the test then passes as skipped.
fn perf(test: &str) -> Option<Perf> {
    match Perf::probe() {
        Ok(perf) => Some(perf),
        Err(refused) => {
            eprintln!("\n[skip] {test}: {refused}\n");
            None
        }
    }
}

/// A place where a kernel thread sleeps until another thread wakes it.
enum Bed {
    Pipe(PipeReader, PipeWriter),
    Futex(AtomicU32),
    /// Short sleeps that end by themselves, perhaps unnoticed, until one was noticed.
    Naps(AtomicBool),
}

impl Bed {
    fn all() -> [Bed; 3] {
        let (reader, writer) = pipe().expect("a pipe");
        [
            Bed::Pipe(reader, writer),
            Bed::Futex(AtomicU32::new(0)),
            Bed::Naps(AtomicBool::new(false)),
        ]
    }

    fn sleep(&self) {
        match self {
            Bed::Pipe(reader, _) => assert_eq!({ reader }.read(&mut [0]).expect("a byte"), 1),
            Bed::Futex(word) => {
                while word.swap(0, Ordering::Acquire) == 0 {
                    // SAFETY: a live word; no timeout.
                    unsafe {
                        let (wait, none) = (
                            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                            std::ptr::null::<libc::timespec>(),
                        );
                        libc::syscall(libc::SYS_futex, word.as_ptr(), wait, 0, none);
                    }
                }
            }
            Bed::Naps(end) => {
                while !end.swap(false, Ordering::Acquire) {
                    nap(20_000);
                }
            }
        }
    }

    fn wake(&self) {
        match self {
            Bed::Pipe(_, writer) => assert_eq!({ writer }.write(&[1]).expect("room"), 1),
            Bed::Futex(word) => {
                word.store(1, Ordering::Release);
                // SAFETY: a live word.
                unsafe {
                    libc::syscall(
                        libc::SYS_futex,
                        word.as_ptr(),
                        libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                        1,
                    )
                };
            }
            Bed::Naps(end) => end.store(true, Ordering::Release),
        }
    }
}

/// Sleeps for a fixed time.
fn nap(nanoseconds: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: a live timespec; the remaining time is not requested.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

/// Returns pseudo-random numbers (splitmix64).
fn mixed(n: u64) -> u64 {
    let mut x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 27)
}

/// A kernel thread that sleeps repeatedly, and is woken only by a poller that found it asleep.
struct Sleeper {
    bed: Bed,
    in_bed: AtomicBool,
}

impl Sleeper {
    /// Takes up to two naps of 0-60 us before each bed, which the poller may notice or not, and
    /// sometimes makes the event quiet in between.
    fn live(&self, me: &Watched, rounds: u64, seed: u64) {
        for round in 0..rounds {
            let choice = mixed(seed << 32 | round);
            for n in 0..choice % 3 {
                nap((mixed(choice + n) % 60_000) as i64);
            }
            if choice.is_multiple_of(5) {
                me.quiet();
                (0..choice % 4).for_each(|_| nap(1000));
                me.listen();
            }
            self.in_bed.store(true, Ordering::Release);
            self.bed.sleep();
        }
    }
}

/// The poller's reaction to a ring.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Checks the thread and arms the event again at once.
    AtOnce,
    /// Checks the thread, and arms the event again a little later.
    Later,
}

/// Checks that every sleep is detected. The poller acts only after rings, so a missed ring ends in
/// a timeout.
fn seen_every_time(perf: Perf, beds: impl IntoIterator<Item = Bed>, rounds: u64, way: Way) {
    let epoll = Arc::new(Epoll::new());
    let (tell, told) = mpsc::channel();
    let lives: Vec<_> = (0..)
        .zip(beds)
        .map(|(i, bed)| {
            let sleeper = Arc::new(Sleeper { bed, in_bed: AtomicBool::new(false) });
            let (theirs, tell) = (sleeper.clone(), tell.clone());
            let thread = std::thread::spawn(move || {
                let me = Arc::new(perf.watch_this_thread().expect("a perf event"));
                me.listen();
                tell.send((i, me.clone())).expect("the receiver is alive");
                theirs.live(&me, rounds, i);
            });
            (sleeper, thread)
        })
        .collect();
    let mut watched: Vec<_> =
        lives.iter().map(|_| told.recv().expect("a watched thread")).collect();
    watched.sort_by_key(|(i, _)| *i);
    watched.iter().for_each(|(i, w)| epoll.add(w, *i));
    let (mut seen, mut bells) = (vec![0; lives.len()], 0);
    let mut answer = |i: u64, away: bool| {
        let i = i as usize;
        // In this order: either the thread is asleep and in bed at the same moment, or it will
        // ring.
        if away && lives[i].0.in_bed.swap(false, Ordering::Acquire) {
            seen[i] += 1;
            lives[i].0.bed.wake();
        }
        seen.iter().any(|n| *n < rounds)
    };
    // Adding a descriptor clears earlier rings, so all threads are checked first.
    let mut goes_on = watched.iter().fold(true, |_, (i, w)| answer(*i, w.is_away()));
    let (mut later, mut due) = (BTreeSet::new(), Instant::now());
    while goes_on {
        let rung = epoll.wait(if later.is_empty() { LOST } else { 1 });
        assert!(!rung.is_empty() || !later.is_empty(), "a ring was missed");
        bells += rung.len();
        // Other threads may ring all the time.
        if Instant::now() >= due {
            for i in std::mem::take(&mut later) {
                goes_on = answer(i, watched[i as usize].1.is_away());
            }
            due = Instant::now() + Duration::from_micros(100);
        }
        for i in rung {
            goes_on = match way {
                Way::AtOnce => answer(i, watched[i as usize].1.is_away()),
                Way::Later => {
                    later.insert(i);
                    answer(i, watched[i as usize].1.sleeps())
                }
            };
        }
    }
    for (_, thread) in lives {
        thread.join().expect("no panic");
    }
    eprintln!("{way:?}: {} sleeps were detected, {bells} rings", seen.iter().sum::<u64>());
}

#[test]
fn each_of_ten_thousand_sleeps_is_detected() {
    let Some(perf) = perf("each_of_ten_thousand_sleeps_is_detected") else { return };
    for bed in Bed::all() {
        seen_every_time(perf, [bed], 10_000, Way::AtOnce);
    }
}

#[test]
fn one_poller_detects_the_sleeps_of_many_threads() {
    let Some(perf) = perf("one_poller_detects_the_sleeps_of_many_threads") else { return };
    for way in [Way::AtOnce, Way::Later] {
        seen_every_time(perf, (0..8).flat_map(|_| Bed::all()), 400, way);
    }
}

/// A kernel thread, and the number of times that it went to bed.
struct Counted {
    bed: Bed,
    times: AtomicU64,
}

impl Counted {
    fn sleep(&self) {
        self.times.fetch_add(1, Ordering::Release);
        self.bed.sleep();
    }

    /// Waits until the thread sleeps in its bed for the n-th time. Only `wake` ends that sleep.
    fn await_asleep(&self, n: u64, watched: &Watched) {
        while self.times.load(Ordering::Acquire) < n || !sleeps(watched.tid()) {
            std::thread::yield_now();
        }
        assert_eq!(self.times.load(Ordering::Acquire), n);
    }
}

#[test]
fn quiet_event_is_silent_and_listening_event_rings() {
    let Some(perf) = perf("quiet_event_is_silent_and_listening_event_rings") else { return };
    let (reader, writer) = pipe().expect("a pipe");
    let sleeper = Arc::new(Counted { bed: Bed::Pipe(reader, writer), times: AtomicU64::new(0) });
    let (tell, told) = mpsc::channel();
    let theirs = sleeper.clone();
    let (spells, rounds) = (20, 200);
    let thread = std::thread::spawn(move || {
        let me = Arc::new(perf.watch_this_thread().expect("a perf event"));
        tell.send(me.clone()).expect("the receiver is alive");
        for _ in 0..spells {
            (0..rounds).for_each(|_| theirs.sleep());
            me.listen();
            theirs.sleep();
            me.quiet();
        }
        theirs.sleep();
    });
    let watched = told.recv().expect("a watched thread");
    let epoll = Epoll::new();
    epoll.add(&watched, 0);
    let mut times = 0;
    for spell in 0..spells {
        for round in 0..rounds {
            times += 1;
            sleeper.await_asleep(times, &watched);
            // Rings of the listening phase have arrived by now: they woke this thread before the
            // sleeper called `quiet`.
            while round == 0 && !epoll.wait(0).is_empty() {}
            assert!(!watched.is_away(), "quiet");
            assert_eq!(epoll.wait(0), [], "spell {spell}, round {round}");
            sleeper.bed.wake();
        }
        times += 1;
        loop {
            assert_eq!(epoll.wait(LOST), [0], "a ring was missed in spell {spell}");
            if watched.is_away() {
                break;
            }
        }
        sleeper.await_asleep(times, &watched);
        sleeper.bed.wake();
    }
    sleeper.await_asleep(times + 1, &watched);
    sleeper.bed.wake();
    thread.join().expect("no panic");
}

/// As in a hand-off: another kernel thread drops the event while the watched thread sleeps. That
/// thread opens a new event when it is back.
#[test]
fn event_can_be_dropped_while_its_thread_sleeps() {
    let Some(perf) = perf("event_can_be_dropped_while_its_thread_sleeps") else { return };
    let (reader, writer) = pipe().expect("a pipe");
    let bed = Arc::new(Bed::Pipe(reader, writer));
    let (tell, told) = mpsc::channel();
    let theirs = bed.clone();
    let rounds = 3000;
    let thread = std::thread::spawn(move || {
        for _ in 0..rounds {
            let me = perf.watch_this_thread().expect("a perf event");
            me.listen();
            tell.send(me).expect("the receiver is alive");
            theirs.sleep();
        }
    });
    let epoll = Epoll::new();
    for round in 0..rounds {
        let watched: Watched = told.recv().expect("a watched thread");
        epoll.add(&watched, round);
        while !watched.is_away() {
            assert_eq!(epoll.wait(LOST), [round], "a ring was missed");
        }
        drop(watched);
        assert_eq!(epoll.wait(0), [], "a descriptor that is closed leaves the epoll");
        bed.wake();
    }
    thread.join().expect("no panic");
}
