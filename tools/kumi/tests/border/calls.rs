//! Gates of another machine are called.

use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kumihimo::gate::{Context, ErrorKind, Gate, Options, RawGate, Region};
use kumihimo::thread;
use kumihimo_tests::process::{is_child, is_one_to_one, send_signal, start};
use kumihimo_tests::{extent, skip, until};
use rustix::process::Signal;

use super::site::Site;

/// Handlers of `hang` that have begun, and that were cancelled.
type Counts = (u64, u64);
/// An item of `numbers`.
type Numbered = (u64, Vec<u8>);
/// The origin and the level of a call.
type Caller = (Option<String>, u8);

/// The servers of `build7`, until this value is dropped.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Counts when a handler is unwound.
struct Unwound(Arc<AtomicU64>);

impl Drop for Unwound {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The body of the child process. Ends when the parent kills it, or with its standard input.
fn body() -> ! {
    let options = Options::new().largest(4 << 20);
    let (begun, cancelled) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (b, c) = (begun.clone(), cancelled.clone());
    let counts = move |(): (), _: &Context<'_>| -> Result<Counts, _> {
        Ok((b.load(Ordering::Relaxed), c.load(Ordering::Relaxed)))
    };
    let hang = move |(): (), _: &Context<'_>| -> Result<(), _> {
        begun.fetch_add(1, Ordering::Relaxed);
        let _unwound = Unwound(cancelled.clone());
        loop {
            thread::park();
        }
    };
    let sent = Arc::new(AtomicU64::new(0));
    let (add, total) = (sent.clone(), sent);
    let (made, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (m, e) = (made.clone(), ended.clone());
    let _serving = (
        Gate::serve("adder", |(a, b): (u32, u32)| a.wrapping_add(b)),
        Gate::serve_with("caller", &options, |(): (), context| -> Result<Caller, _> {
            Ok((context.origin().map(str::to_owned), context.priority()))
        }),
        Gate::serve_with("echo", &options, |bytes: Vec<u8>, _| Ok(bytes)),
        Gate::serve_with("hang", &options, hang),
        Gate::serve_with("counts", &options, counts),
        Gate::serve("add", move |n: u64| {
            add.fetch_add(n, Ordering::Relaxed);
        }),
        Gate::serve("total", move |(): ()| total.load(Ordering::Relaxed)),
        RawGate::serve("raw", &options, |request, _, reply| {
            reply.extend(request.iter().rev());
            Ok(Vec::new())
        }),
        Gate::serve_stream("numbers", &options, move |up_to: u64, sink| {
            let _unwound = Unwound(ended.clone());
            (0..up_to).try_for_each(|n| {
                made.fetch_max(n, Ordering::Relaxed);
                sink.send(&(n, vec![7_u8; 1024]))
            })
        }),
        Gate::serve("made", move |(): ()| (m.load(Ordering::Relaxed), e.load(Ordering::Relaxed))),
        Gate::serve("secret", |(): ()| 7_u32),
    );
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
    std::process::exit(0);
}

/// Starts the servers of the test `name`; `None` if the test is skipped.
fn serve(site: &Site, name: &str) -> Option<Served> {
    if is_child(name) {
        body();
    }
    if is_one_to_one() {
        skip(name, "there are no gates here");
        return None;
    }
    let path = site.there.path().to_str().expect("text");
    let served = Served(start(name, &[("KUMI_DIR", path)]));
    let there = kumihimo::machine::Machine::at(site.there.path()).expect("a directory");
    let is_there = || there.gate("secret").ok().flatten().is_some();
    until("the servers are ready", || (), is_there);
    site.allow("call=adder,caller,echo,hang,counts,add,total,raw,absent,numbers,made level=40 bytes=2097152");
    Some(served)
}

fn here(site: &Site) -> Options {
    Options::new().directory(site.here.path()).largest(4 << 20)
}

const REACHED: &str = "calls::calls_reach_another_machine";

#[test]
fn calls_reach_another_machine() {
    let site = Site::new("border-calls");
    let Some(_served) = serve(&site, REACHED) else { return };
    let _borders = site.serve();
    let options = here(&site);
    for name in ["build7/adder", "*/adder"] {
        let adder = Gate::<(u32, u32), u32>::connect_with(name, &options).expect(name);
        for n in 0..100 {
            assert_eq!(adder.call(&(n, 1)).expect("an answer"), n + 1);
        }
    }
    // A name without a machine stays on this one.
    let own = Gate::<(u32, u32), u32>::connect_with("adder", &options).expect_err("not here");
    assert_eq!(own.kind(), ErrorKind::NotFound);
    // The level is capped by the rights, and the handler knows the caller.
    for (level, seen) in [(63, 40), (7, 7)] {
        let options = options.clone().priority(level);
        let caller = Gate::<(), Caller>::connect_with("build7/caller", &options).expect("a gate");
        assert_eq!(caller.call(&()).expect("an answer"), (Some("build8".to_owned()), seen));
    }
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
    let echo = Gate::<Vec<u8>, Vec<u8>>::connect_with("build7/echo", &options).expect("a gate");
    assert!(echo.call(&bytes).expect("an answer") == bytes);
    // One way.
    let add = Gate::<u64, ()>::connect_with("build7/add", &options).expect("a gate");
    let total = Gate::<(), u64>::connect_with("build7/total", &options).expect("a gate");
    (0..10).for_each(|_| add.send(&3).expect("sent"));
    let sum = || total.call(&()).expect("an answer");
    until("all have come", sum, || sum() == 30);
    let raw = RawGate::connect_with("build7/raw", &options).expect("a gate");
    let mut reply = Vec::new();
    raw.call(&[1, 2], &mut reply).expect("an answer");
    assert_eq!(reply, [2, 1]);
}

const REFUSED: &str = "calls::wrong_calls_are_refused";

#[test]
fn wrong_calls_are_refused() {
    let site = Site::new("border-wrong");
    let Some(_served) = serve(&site, REFUSED) else { return };
    let options = here(&site);
    let connect = |name: &str| {
        let gate = Gate::<(u32, u32), u32>::connect_with(name, &options);
        let error = gate.map(drop).expect_err(name);
        assert!(error.to_string().contains(name), "{error}");
        error.kind()
    };
    assert_eq!(connect("build7/adder"), ErrorKind::Unreachable, "no border runs");
    let _borders = site.serve();
    for (name, kind) in [
        ("build7/absent", ErrorKind::NotFound),
        ("*/absent", ErrorKind::NotFound),
        ("build7/secret", ErrorKind::NotPermitted),
        ("build7/kumihimo.border", ErrorKind::NotPermitted),
        ("build9/adder", ErrorKind::Invalid),
        ("Build7/adder", ErrorKind::Invalid),
        ("build7/", ErrorKind::Invalid),
        ("build7/build8/adder", ErrorKind::Invalid),
        ("all/adder", ErrorKind::Invalid),
    ] {
        assert_eq!(connect(name), kind, "{name}");
    }
    // The server itself compares the types.
    let other = Gate::<(u64, u64), u64>::connect_with("build7/adder", &options);
    assert_eq!(other.map(drop).expect_err("other types").kind(), ErrorKind::Version);
    let echo = Gate::<Vec<u8>, Vec<u8>>::connect_with("build7/echo", &options).expect("a gate");
    let region = Region::copy_of(b"shared").expect("memory");
    let error = echo.call_with(&Vec::new(), &[region]).map(drop).expect_err("regions are shared");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let mut stream = echo.stream(&Vec::new()).expect("a stream of errors");
    let error = stream.next().expect("an item").expect_err("it has single replies");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = echo.call(&vec![0; 3 << 20]).map(drop).expect_err("above the right");
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(echo.call(&vec![1]).expect("an answer"), [1]);
}

const CANCELLED: &str = "calls::cancelled_and_late_calls_end_their_handlers";

#[test]
fn cancelled_and_late_calls_end_their_handlers() {
    let site = Site::new("border-cancel");
    let Some(_served) = serve(&site, CANCELLED) else { return };
    let _borders = site.serve();
    let options = here(&site);
    let hang = Gate::<(), ()>::connect_with("build7/hang", &options).expect("a gate");
    let counts = Gate::<(), Counts>::connect_with("build7/counts", &options).expect("a gate");
    let counted = || counts.call(&()).expect("an answer");
    let late = hang.call_within(&(), Duration::from_millis(50)).expect_err("it hangs");
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    until("its handler has ended", counted, || counted() == (1, 1));
    const CALLS: u64 = 50;
    let callers: Vec<_> = (0..CALLS)
        .map(|_| {
            let hang = hang.clone();
            thread::spawn(move || hang.call(&()))
        })
        .collect();
    until("all handlers have begun", counted, || counted().0 == CALLS + 1);
    for caller in callers {
        caller.cancel();
        let _ = caller.join();
    }
    until("all handlers have ended", counted, || counted() == (CALLS + 1, CALLS + 1));
    // More than run at a time: most are cancelled while they wait for room.
    let many = extent(10_000, 3_000);
    let callers: Vec<_> = (0..many)
        .map(|_| {
            let hang = hang.clone();
            thread::spawn(move || hang.call(&()))
        })
        .collect();
    for caller in callers {
        caller.cancel();
        let _ = caller.join();
    }
    until("all handlers have ended", counted, || {
        let (begun, ended) = counted();
        begun == ended
    });
    assert!(counted().0 <= CALLS + 1 + many as u64);
}

const LOST: &str = "calls::lost_border_ends_calls_and_then_refuses_them";

#[test]
fn lost_border_ends_calls_and_then_refuses_them() {
    let site = Site::new("border-lost-calls");
    let Some(_served) = serve(&site, LOST) else { return };
    let options = here(&site);
    let there = site.serve_there("127.0.0.1:0");
    let (_here, place) = (site.serve_here(&there.place), there.place.clone());
    let hang = Gate::<(), ()>::connect_with("build7/hang", &options).expect("a gate");
    let counts = Gate::<(), Counts>::connect_with("build7/counts", &options).expect("a gate");
    let begun = |n| {
        let counted = || counts.call(&()).expect("an answer");
        until("its handler has begun", counted, || counted().0 == n);
    };
    let call = || {
        let hang = hang.clone();
        thread::spawn(move || hang.call(&()).expect_err("it hangs").kind())
    };
    let killed = call();
    begun(1);
    there.kill();
    assert_eq!(killed.join().expect("no panic"), ErrorKind::Gone);
    site.until_listed(" unreachable ");
    assert_eq!(hang.call(&()).expect_err("unreachable").kind(), ErrorKind::Unreachable);
    // A new border finds the same servers.
    let there = site.serve_there(&place);
    site.until_listed(" reachable ");
    let stopped = call();
    begun(2);
    send_signal(there.child.id(), Signal::STOP).expect("it lives");
    assert_eq!(stopped.join().expect("no panic"), ErrorKind::Gone);
    site.until_listed(" unreachable ");
    assert_eq!(hang.call(&()).expect_err("unreachable").kind(), ErrorKind::Unreachable);
    send_signal(there.child.id(), Signal::CONT).expect("it lives");
    site.until_listed(" reachable ");
    let counted = counts.call(&()).expect("an answer");
    // No call was performed twice.
    assert_eq!(counted.0, 2);
}

const STREAMS: &str = "calls::streams_end_and_slow_readers_hold_their_servers";

#[test]
fn streams_end_and_slow_readers_hold_their_servers() {
    let site = Site::new("border-streams");
    let Some(_served) = serve(&site, STREAMS) else { return };
    let (_here, there) = site.serve();
    let options = here(&site);
    let numbers = Gate::<u64, Numbered>::connect_with("build7/numbers", &options).expect("a gate");
    let all: Vec<Numbered> =
        numbers.stream(&500).expect("a stream").map(|item| item.expect("an item")).collect();
    assert!(all.iter().map(|(n, _)| *n).eq(0..500));
    // A reader that takes nothing holds its server, and delays no call.
    let mut slow = numbers.stream(&u64::MAX).expect("a stream");
    assert_eq!(slow.next().expect("an item").expect("an item").0, 0);
    let made = Gate::<(), Counts>::connect_with("build7/made", &options).expect("a gate");
    let counted = || made.call(&()).expect("an answer");
    let mut before = counted();
    until("the server waits", counted, || {
        let now = counted();
        std::mem::replace(&mut before, now) == now && now.0 > 0
    });
    assert!(counted().0 < 5_000, "{:?} of 1 KiB each were read ahead", counted());
    assert_eq!(counted().1, 1, "the first one has ended");
    drop(slow);
    until("its handler has ended", counted, || counted().1 == 2);
    // A stream whose border is killed ends with an error, and not as if it were whole.
    let mut lost = numbers.stream(&u64::MAX).expect("a stream");
    assert!(lost.next().expect("an item").is_ok());
    there.kill();
    let end = lost.find_map(Result::err).expect("an error");
    assert_eq!(end.kind(), ErrorKind::Gone);
}
