//! Measures the costs of the unprivileged event sources on this machine: `cargo run --release -p
//! kumihimo-events --example costs`.
//!
//! Prints nanoseconds for each call, as the minimum and the median of 99 repetitions, or p50 and
//! p99 of 2,000 events. The minimum is meaningful even on a busy machine.

use std::hint::black_box;
use std::io::{Read, Write, pipe};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use kumihimo_events::barrier;
use kumihimo_events::perf::{Perf, Watched};
use kumihimo_events::watch::{CpuClock, sleeps};

fn pin(cpu: usize) {
    let set = [1u64 << cpu];
    // SAFETY: `set` is live and has the 8 bytes of the size argument.
    assert_eq!(unsafe { libc::sched_setaffinity(0, 8, set.as_ptr().cast()) }, 0, "CPU {cpu}");
}

fn sleep(nanoseconds: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: a live timespec; the remaining time is not requested.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

/// Prints the minimum and the median time of a call, of 99 runs of `n` / 10 calls. Returns the
/// minimum.
fn cost(what: &str, n: u64, mut f: impl FnMut()) -> f64 {
    let mut times: Vec<_> = (0..99)
        .map(|_| {
            let start = Instant::now();
            (0..n / 10).for_each(|_| f());
            start.elapsed().as_nanos() as f64 / (n / 10) as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{what:<60} {:>9.1} {:>9.1} ns", times[0], times[49]);
    times[0]
}

fn epoll(watched: &Watched) -> OwnedFd {
    // SAFETY: integers, and an event that outlives the call; the descriptor is new.
    unsafe {
        let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        libc::epoll_ctl(
            epoll.as_raw_fd(),
            libc::EPOLL_CTL_ADD,
            watched.fd().as_raw_fd(),
            &raw mut event,
        );
        epoll
    }
}

fn wait(epoll: &OwnedFd, milliseconds: i32) -> bool {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one event.
    unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, milliseconds) == 1 }
}

/// Measures from just before the sleeping call to the poller in user mode, and on to the result of
/// `is_away`.
fn latency(perf: Perf, theirs: usize, mine: usize) {
    let epoch = Instant::now();
    let asleep_at = Arc::new(AtomicU64::new(0));
    let end = Arc::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let (at, done) = (asleep_at.clone(), end.clone());
    let thread = std::thread::spawn(move || {
        pin(theirs);
        let me = Arc::new(perf.watch_this_thread().expect("a perf event"));
        tell.send(me.clone()).expect("the receiver is alive");
        sleep(20_000_000);
        for _ in 0..2000 {
            let start = Instant::now();
            while start.elapsed().as_micros() < 150 {}
            me.listen();
            at.store(epoch.elapsed().as_nanos() as u64, Ordering::Release);
            sleep(300_000);
            at.store(0, Ordering::Release);
            me.quiet();
        }
        done.store(true, Ordering::Release);
    });
    let watched = told.recv().expect("a watched thread");
    pin(mine);
    let epoll = epoll(&watched);
    let (mut rung, mut answered) = (Vec::new(), Vec::new());
    while !end.load(Ordering::Acquire) {
        if !wait(&epoll, 100) {
            continue;
        }
        let (woken, at) = (epoch.elapsed().as_nanos() as u64, asleep_at.load(Ordering::Acquire));
        if at != 0 && watched.is_away() {
            rung.push(woken - at);
            answered.push(epoch.elapsed().as_nanos() as u64 - at);
        }
    }
    thread.join().expect("no panic");
    let us = |times: &mut Vec<u64>, percent: usize| {
        times.sort_unstable();
        times[times.len() * percent / 100] as f64 / 1000.0
    };
    let place = if theirs == mine { "same core" } else { "other core" };
    let n = rung.len();
    let (a, b, c, d) =
        (us(&mut rung, 50), us(&mut rung, 99), us(&mut answered, 50), us(&mut answered, 99));
    println!(
        "switch-out -> poller, {place}, {n} times: p50 {a:.1} p99 {b:.1} us; -> is_away returned: p50 {c:.1} p99 {d:.1} us"
    );
}

/// Sends one byte back and forth over two pipes on one core, so that the watched kernel thread
/// sleeps once in each round trip. Its event is absent, quiet, or rings each time without a poller.
/// The three variants alternate in short bursts, so that a busy machine disturbs all of them alike.
fn round_trips(perf: Perf) {
    const BURST: u32 = 20;
    let ((mut their_in, mut my_out), (mut my_in, mut their_out)) =
        (pipe().expect("a pipe"), pipe().expect("a pipe"));
    let echo = std::thread::spawn(move || {
        pin(0);
        let mut byte = [0];
        while their_in.read(&mut byte).is_ok_and(|n| n == 1) {
            their_out.write_all(&byte).expect("room");
        }
    });
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..1000 {
        for (kind, times) in times.iter_mut().enumerate() {
            let me = (kind > 0).then(|| perf.watch_this_thread().expect("a perf event"));
            let start = Instant::now();
            for _ in 0..BURST {
                if kind == 2 {
                    me.iter().for_each(Watched::listen);
                }
                my_out.write_all(&[1]).expect("room");
                my_in.read_exact(&mut [0]).expect("a byte");
            }
            times.push(f64::from(start.elapsed().as_nanos() as u32) / f64::from(BURST));
        }
    }
    drop(my_out);
    echo.join().expect("no panic");
    for (what, times) in ["not watched", "quiet", "a ring each time"].into_iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("pipe round trip, {what:<43} {:>9.1} {:>9.1} ns", times[0], times[500]);
    }
    let more = |kind: usize| [times[kind][0] - times[0][0], times[kind][500] - times[0][500]];
    println!(
        "one voluntary switch of the watched thread: quiet {:+.0?} ns; with a ring {:+.0?} ns",
        more(1),
        more(2)
    );
}

fn main() {
    let perf = match Perf::probe() {
        Ok(perf) => perf,
        Err(refused) => return println!("perf: {refused}"),
    };
    pin(0);
    let (mut reader, writer) = pipe().expect("a pipe");
    let (tell, told) = mpsc::channel();
    let sleeper = std::thread::spawn(move || {
        let me = Arc::new(perf.watch_this_thread().expect("a perf event"));
        me.listen();
        tell.send(me.clone()).expect("the receiver is alive");
        reader.read_to_end(&mut Vec::new()).expect("the end")
    });
    let theirs: Arc<Watched> = told.recv().expect("a watched thread");
    let tid = theirs.tid();
    while !theirs.is_away() {
        sleep(100_000);
    }
    cost("CpuClock::read of a sleeper", 100_000, || _ = black_box(CpuClock::of(tid).read()));
    cost("sleeps(tid) of a sleeper", 20_000, || _ = black_box(sleeps(tid)));
    cost("Watched::is_away of a sleeper", 20_000, || _ = black_box(theirs.is_away()));
    drop(writer);
    sleeper.join().expect("no panic");

    cost("watch_this_thread + drop", 2_000, || {
        drop(perf.watch_this_thread().expect("a perf event"))
    });
    let me = perf.watch_this_thread().expect("a perf event");
    cost("quiet", 1_000_000, || me.quiet());
    cost("listen", 1_000_000, || me.listen());
    me.quiet();
    let fd = me.fd().as_raw_fd();
    // SAFETY: integers. PERF_EVENT_IOC_PAUSE_OUTPUT, _DISABLE and _ENABLE, for comparison.
    let ioctl =
        |call: libc::c_ulong, with: u64| unsafe { assert_eq!(libc::ioctl(fd, call, with), 0) };
    cost("for comparison: PERF_EVENT_IOC_PAUSE_OUTPUT", 20_000, || ioctl(0x4004_2409, 1));
    ioctl(0x4004_2409, 0);
    cost("for comparison: PERF_EVENT_IOC_DISABLE and _ENABLE", 20_000, || {
        ioctl(0x2401, 0);
        ioctl(0x2400, 0);
    });
    drop(me);
    cost("Perf::probe", 200, || drop(black_box(Perf::probe())));
    cost("barrier::heavy", 20_000, barrier::heavy);

    round_trips(perf);
    latency(perf, 0, 0);
    latency(perf, 0, 1);
}
