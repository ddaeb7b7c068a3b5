//! Shares and feedback between real processes. The observer uses another board.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use kumihimo::runtime::{Design, Runtime, Share};
use kumihimo::thread::{self, Builder};
use kumihimo_arbiter::board::Board;
use kumihimo_arbiter::feedback::Rule;
use kumihimo_arbiter::view::{CoreView, SpaceView, View};
use kumihimo_tests::place::Place;
use kumihimo_tests::process::{again, has_vps, is_child, is_preempted};
use kumihimo_trace::Reader;

use super::pair::{Server, serve_on, side};
use super::{compute, level};

/// Timeout. Reaching it means a hang.
const LIMIT: Duration = Duration::from_secs(60);

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "{what}: it never comes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn board(place: &Place) -> PathBuf {
    place.0.join("board")
}

/// User and system CPU time of the calling process.
fn used() -> Duration {
    // SAFETY: an all-zero rusage is valid. getrusage(2) of the calling process cannot fail.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time =
        |t: libc::timeval| Duration::from_micros(t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Computes on all virtual processors, without a switch point, until `done`.
fn hog(priority: u8, done: impl Fn() -> bool + Sync) {
    thread::scope(|scope| {
        // The number of VPs comes from the metrics, because this kernel thread's affinity mask may
        // allow fewer cores.
        for _ in 0..kumihimo::runtime::metrics().expect("a runtime runs").vps.len() {
            let computes = || {
                while !done() {
                    for _ in 0..20_000 {
                        std::hint::spin_loop();
                    }
                }
            };
            Builder::new()
                .priority(level(priority))
                .spawn_scoped(scope, computes)
                .expect("a microprocess");
        }
    });
}

/// Returns whether the caller is the observer. A process that computes returns false after its
/// work, and so does an observer that cannot run on this machine.
fn watches_hogs(name: &str) -> bool {
    match side(name).as_deref() {
        Some("high") => hog_process(50),
        Some(_) => hog_process(10),
        None => return has_vps(name) && is_preempted(name),
    }
    false
}

/// A process that computes until its standard input ends.
fn hog_process(priority: u8) {
    Runtime::builder().build().expect("a runtime").run(|| {
        // A high priority, so that the end of the input is noticed.
        thread::current().set_priority(level(63));
        let over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| hog(priority, || over.load(std::sync::atomic::Ordering::Relaxed)));
            serve_on();
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    });
}

fn begin(name: &str, place: &Place, side: &str, environment: &[(&str, &str)]) -> Server {
    let all: Vec<_> = [("KUMI_TEST_SIDE", side), ("KUMI_ARBITER", "on")]
        .into_iter()
        .chain(environment.iter().copied())
        .collect();
    Server::start(name, place, &all)
}

/// Asserts that the process exits with success.
fn ends(mut server: Server) {
    drop(server.child.stdin.take());
    let status = server.child.wait().expect("it ends");
    assert!(status.success(), "{status}");
}

fn row_of(view: &View, server: &Server) -> SpaceView {
    let spaces = view.spaces();
    spaces.into_iter().find(|space| space.pid == server.child.id()).expect("it is at the board")
}

/// Returns whether one process holds a core at its level while the other waits for that core at its
/// own.
fn goes_before(
    cores: &[CoreView],
    (holder, high): (u16, Option<u8>),
    (waiter, low): (u16, Option<u8>),
) -> bool {
    cores.iter().any(|core| {
        core.holder.is_some_and(|stand| (stand.row, stand.level) == (holder, high))
            && core.waiting.iter().any(|stand| (stand.row, stand.level) == (waiter, low))
    })
}

#[test]
fn hard_share_holds_on_idle_cores() {
    const NAME: &str = "rules::hard_share_holds_on_idle_cores";
    if is_child(NAME) {
        return Runtime::builder().build().expect("a runtime").run(|| {
            let (begun, before) = (Instant::now(), used());
            hog(32, || used() - before > Duration::from_millis(400));
            let (used, elapsed) = (used() - before, begun.elapsed());
            // Half of the share may be in debt: CPU time is booked with a delay, which grows on a
            // busy machine.
            assert!(
                used / 2 <= elapsed / 5,
                "{used:?} of CPU time in {elapsed:?}, of which it has a fifth"
            );
            let booked: u64 = kumihimo::runtime::metrics()
                .expect("a runtime runs")
                .vps
                .iter()
                .map(|vp| vp.cpu_ns)
                .sum();
            assert!(Duration::from_nanos(booked) > used / 2, "{booked} ns booked, {used:?} used");
        });
    }
    if !has_vps(NAME) || !is_preempted(NAME) {
        return;
    }
    // With a board, without one, and without sharing by priority; and with a queue in which other
    // VPs see a microprocess that they may not take.
    for (arbiter, queue) in [("on", "ring"), ("none", "ring"), ("off", "ring"), ("on", "steal")] {
        if Design::from_name(queue).is_none() {
            continue;
        }
        let place = Place::new(NAME);
        let environment = [
            ("KUMI_DIR", place.path()),
            ("KUMI_ARBITER", arbiter),
            ("KUMI_SHARE", "20%,20ms,hard"),
            ("KUMI_LAB", &format!("queue={queue}")),
        ];
        let ended = again(NAME, &environment);
        assert!(ended.status.success(), "arbiter {arbiter}, queue {queue}: {}", ended.told());
    }
}

#[test]
fn used_up_share_ranks_below_all_levels() {
    const NAME: &str = "rules::used_up_share_ranks_below_all_levels";
    if !watches_hogs(NAME) {
        return;
    }
    let place = Place::new(NAME);
    let bounded = begin(NAME, &place, "high", &[("KUMI_SHARE", "10%")]);
    let other = begin(NAME, &place, "low", &[]);
    let view = View::open(&board(&place)).expect("a board");
    let (high, low) = (row_of(&view, &bounded).row, row_of(&view, &other).row);
    assert_eq!(row_of(&view, &bounded).share, "10%".parse::<Share>().ok());
    until("the lower one goes first", || goes_before(&view.cores(), (low, Some(10)), (high, None)));
    until("and in a new period the higher one", || {
        goes_before(&view.cores(), (high, Some(50)), (low, Some(10)))
    });
    assert!(row_of(&view, &bounded).used > Duration::ZERO);
    ends(other);
    ends(bounded);
}

#[test]
fn waiting_goes_before_computing() {
    const NAME: &str = "rules::waiting_goes_before_computing";
    match side(NAME).as_deref() {
        Some("computes") => return hog_process(30),
        Some(_) => {
            return Runtime::builder().build().expect("a runtime").run(|| {
                let over = std::sync::atomic::AtomicBool::new(false);
                thread::scope(|scope| {
                    let waits = || {
                        while !over.load(std::sync::atomic::Ordering::Relaxed) {
                            thread::sleep(Duration::from_millis(10));
                            compute(Duration::from_millis(1));
                        }
                    };
                    Builder::new()
                        .priority(level(30))
                        .spawn_scoped(scope, waits)
                        .expect("a microprocess");
                    serve_on();
                    over.store(true, std::sync::atomic::Ordering::Relaxed);
                });
            });
        }
        None => {}
    }
    if !has_vps(NAME) || !is_preempted(NAME) {
        return;
    }
    let place = Place::new(NAME);
    // The rule is set before any address space exists, by a process that is not at the board.
    let rule = Rule::new(Duration::from_millis(50), 1, 4).expect("a rule");
    Board::open(&board(&place)).expect("a board").set_feedback(Some(rule));
    let trace = place.0.join("trace");
    let computing =
        begin(NAME, &place, "computes", &[("KUMI_TRACE", trace.to_str().expect("text"))]);
    let waiting = begin(NAME, &place, "waits", &[]);
    let view = View::open(&board(&place)).expect("a board");
    assert_eq!(view.feedback(), Some(rule));
    until("a computation sinks as far as it can", || row_of(&view, &computing).sunk == 4);
    until("a waiting one does not", || row_of(&view, &waiting).sunk == 0);
    let (low, high) = (row_of(&view, &computing).row, row_of(&view, &waiting).row);
    until("a waiting one goes first", || {
        goes_before(&view.cores(), (high, Some(30)), (low, Some(26)))
    });
    ends(waiting);
    ends(computing);
    // The virtual processors were notified of each change.
    let mut reader = Reader::open(&trace).expect("a trace");
    let mut changed = 0;
    while let Some(event) = reader.next_event().expect("a whole trace") {
        changed += u32::from(&*event.name == "Changed");
    }
    assert!(changed >= 4, "Changed was told {changed} times");
}

#[test]
fn no_address_space_waits_while_a_core_is_free() {
    const NAME: &str = "rules::no_address_space_waits_while_a_core_is_free";
    if !watches_hogs(NAME) {
        return;
    }
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        return kumihimo_tests::skip(NAME, "there is one core only");
    }
    // Both prefer the same core.
    let place = Place::new(NAME);
    let high = begin(NAME, &place, "high", &[("KUMI_VPS", "1")]);
    let low = begin(NAME, &place, "low", &[("KUMI_VPS", "1")]);
    let view = View::open(&board(&place)).expect("a board");
    let rows = [&high, &low].map(|server| row_of(&view, server).row);
    until("each has a core", || {
        // Both cores in one snapshot: a core has one holder, so these are two processes.
        let cores = view.cores();
        let has = |row, level| {
            cores.iter().any(|core| {
                core.holder.is_some_and(|its| (its.row, its.level) == (row, Some(level)))
            })
        };
        has(rows[0], 50) && has(rows[1], 10)
    });
    ends(low);
    ends(high);
}

#[test]
fn invalid_shares_are_refused() {
    const NAME: &str = "rules::invalid_shares_are_refused";
    if is_child(NAME) {
        let error = Runtime::builder().build().expect_err("it means nothing");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        let said = error.to_string();
        assert!(
            said.contains("KUMI_SHARE=half: expected per cent") && said.contains("50%,20ms,hard"),
            "{said}"
        );
        // The error also occurs if the program sets another share.
        let share = Share::new(500, Duration::from_millis(100), false).expect("a share");
        Runtime::builder().share(share).build().expect_err("it means nothing");
        return;
    }
    let ended = again(NAME, &[("KUMI_SHARE", "half")]);
    assert!(ended.status.success(), "{}", ended.told());
}
