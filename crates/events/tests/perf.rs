//! The doorbell rings for every sleep while it listens, and for none while it is quiet. Works
//! without privileges; says so where it does not.
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

/// No bell comes that late; a test that gets here has lost one. Milliseconds.
const LOST: i32 = 15_000;

struct Epoll(OwnedFd);

impl Epoll {
    fn new() -> Epoll {
        // SAFETY: a flag.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: new, and nobody else's.
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
        // SAFETY: as many events as it says.
        let n =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 64, milliseconds) };
        assert!(n >= 0, "{}", std::io::Error::last_os_error());
        events[..n as usize].iter().map(|event| event.u64).collect()
    }
}

/// None: says why, and the test passes as skipped.
fn perf(test: &str) -> Option<Perf> {
    match Perf::probe() {
        Ok(perf) => Some(perf),
        Err(refused) => {
            eprintln!("\n[skip] {test}: {refused}\n");
            None
        }
    }
}

/// Where a kernel thread sleeps until another one says.
enum Bed {
    Pipe(PipeReader, PipeWriter),
    Futex(AtomicU32),
    /// Short sleeps that end by themselves, perhaps before anyone has noticed, until one was
    /// noticed.
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
                    // SAFETY: a word that lives; no time limit.
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
                // SAFETY: a word that lives.
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

/// A sleep that ends by itself.
fn nap(nanoseconds: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: a time; the rest of it is not asked for.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

/// Numbers that differ (splitmix64).
fn mixed(n: u64) -> u64 {
    let mut x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 27)
}

/// One kernel thread that goes to bed again and again, and is woken only by a poller that saw it
/// away.
struct Sleeper {
    bed: Bed,
    in_bed: AtomicBool,
}

impl Sleeper {
    /// Before each bed up to two naps of 0-60 us, of which the poller may see any or none, and now
    /// and then a spell of quiet.
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

/// What the poller does after a bell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Makes it ready again at once.
    AtOnce,
    /// Looks, and makes it ready again a little later.
    Later,
}

/// The poller acts on bells only, so a bell that is missed ends in its time limit.
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
                tell.send((i, me.clone())).expect("it listens");
                theirs.live(&me, rounds, i);
            });
            (sleeper, thread)
        })
        .collect();
    let mut watched: Vec<_> = lives.iter().map(|_| told.recv().expect("it tells")).collect();
    watched.sort_by_key(|(i, _)| *i);
    watched.iter().for_each(|(i, w)| epoll.add(w, *i));
    let (mut seen, mut bells) = (vec![0; lives.len()], 0);
    let mut answer = |i: u64, away: bool| {
        let i = i as usize;
        // In this order: away and in bed at the same moment, or else it will ring.
        if away && lives[i].0.in_bed.swap(false, Ordering::Acquire) {
            seen[i] += 1;
            lives[i].0.bed.wake();
        }
        seen.iter().any(|n| *n < rounds)
    };
    // Adding swallows what rang before: so the first look is at all.
    let mut goes_on = watched.iter().fold(true, |_, (i, w)| answer(*i, w.is_away()));
    let (mut later, mut due) = (BTreeSet::new(), Instant::now());
    while goes_on {
        let rung = epoll.wait(if later.is_empty() { LOST } else { 1 });
        assert!(!rung.is_empty() || !later.is_empty(), "a bell was missed");
        bells += rung.len();
        // Others may ring all the time.
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
    eprintln!("{way:?}: {} sleeps were seen, {bells} bells", seen.iter().sum::<u64>());
}

#[test]
fn each_of_ten_thousand_sleeps_is_seen() {
    let Some(perf) = perf("each_of_ten_thousand_sleeps_is_seen") else { return };
    for bed in Bed::all() {
        seen_every_time(perf, [bed], 10_000, Way::AtOnce);
    }
}

#[test]
fn many_threads_and_one_poller() {
    let Some(perf) = perf("many_threads_and_one_poller") else { return };
    for way in [Way::AtOnce, Way::Later] {
        seen_every_time(perf, (0..8).flat_map(|_| Bed::all()), 400, way);
    }
}

/// A kernel thread and how many times it went to bed.
struct Counted {
    bed: Bed,
    times: AtomicU64,
}

impl Counted {
    fn sleep(&self) {
        self.times.fetch_add(1, Ordering::Release);
        self.bed.sleep();
    }

    /// Until it sleeps in its bed for the n-th time, out of which only `wake` gets it.
    fn await_asleep(&self, n: u64, watched: &Watched) {
        while self.times.load(Ordering::Acquire) < n || !sleeps(watched.tid()) {
            std::thread::yield_now();
        }
        assert_eq!(self.times.load(Ordering::Acquire), n);
    }
}

#[test]
fn quiet_is_quiet_and_listening_rings_again() {
    let Some(perf) = perf("quiet_is_quiet_and_listening_rings_again") else { return };
    let (reader, writer) = pipe().expect("a pipe");
    let sleeper = Arc::new(Counted { bed: Bed::Pipe(reader, writer), times: AtomicU64::new(0) });
    let (tell, told) = mpsc::channel();
    let theirs = sleeper.clone();
    let (spells, rounds) = (20, 200);
    let thread = std::thread::spawn(move || {
        let me = Arc::new(perf.watch_this_thread().expect("a perf event"));
        tell.send(me.clone()).expect("it listens");
        for _ in 0..spells {
            (0..rounds).for_each(|_| theirs.sleep());
            me.listen();
            theirs.sleep();
            me.quiet();
        }
        theirs.sleep();
    });
    let watched = told.recv().expect("it tells");
    let epoll = Epoll::new();
    epoll.add(&watched, 0);
    let mut times = 0;
    for spell in 0..spells {
        for round in 0..rounds {
            times += 1;
            sleeper.await_asleep(times, &watched);
            // What rang in the spell of listening has arrived: it woke us before the thread went on
            // to say `quiet`.
            while round == 0 && !epoll.wait(0).is_empty() {}
            assert!(!watched.is_away(), "quiet");
            assert_eq!(epoll.wait(0), [], "spell {spell}, round {round}");
            sleeper.bed.wake();
        }
        times += 1;
        loop {
            assert_eq!(epoll.wait(LOST), [0], "a bell was missed in spell {spell}");
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

/// How a hand-off ends it: dropped by another kernel thread while the watched one is away; and it
/// watches itself anew when it is back.
#[test]
fn dropped_by_another_while_away() {
    let Some(perf) = perf("dropped_by_another_while_away") else { return };
    let (reader, writer) = pipe().expect("a pipe");
    let bed = Arc::new(Bed::Pipe(reader, writer));
    let (tell, told) = mpsc::channel();
    let theirs = bed.clone();
    let rounds = 3000;
    let thread = std::thread::spawn(move || {
        for _ in 0..rounds {
            let me = perf.watch_this_thread().expect("a perf event");
            me.listen();
            tell.send(me).expect("it listens");
            theirs.sleep();
        }
    });
    let epoll = Epoll::new();
    for round in 0..rounds {
        let watched: Watched = told.recv().expect("it tells");
        epoll.add(&watched, round);
        while !watched.is_away() {
            assert_eq!(epoll.wait(LOST), [round], "a bell was missed");
        }
        drop(watched);
        assert_eq!(epoll.wait(0), [], "a descriptor that is closed leaves the epoll");
        bed.wake();
    }
    thread.join().expect("no panic");
}
