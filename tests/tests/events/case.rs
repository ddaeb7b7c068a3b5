//! A single case: a microprocess blocks in the kernel, other microprocesses on the same VP must
//! continue, and invariants must hold afterwards.

use std::fmt::Debug;
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kumihimo_events::source;
use kumihimo_tests::process::{again, is_child, kernel_threads};
use kumihimo_tests::skip;

use crate::fuse;
use crate::package::{self, JoinHandle, Listener};

/// Number of turns that each other microprocess must get while the first one is blocked.
const TURNS: u64 = 20;
/// Number of the runtime's kernel threads beside those of the pool: the control socket's, the
/// watchdog's, and the one that starts those of the pool.
pub const BESIDE_THE_POOL: usize = 3;
/// Event sources to test: those in `KUMI_TEST_EVENTS`, otherwise all that the machine supports.
///
/// # Panics
/// If `KUMI_TEST_EVENTS` names an unknown source.
pub fn sources() -> Vec<String> {
    let known = ["bpf", "perf", "watch"];
    let asked = std::env::var("KUMI_TEST_EVENTS").ok();
    let wanted: Vec<String> = match &asked {
        Some(names) => names.split(',').map(|name| name.trim().to_owned()).collect(),
        None => known.map(str::to_owned).into(),
    };
    for name in &wanted {
        assert!(
            known.contains(&name.as_str()),
            "KUMI_TEST_EVENTS: {name:?} is no event source: {}",
            known.join(", ")
        );
    }
    // A source that was requested by name and is unavailable fails the test, with the reason.
    wanted.into_iter().filter(|name| asked.is_some() || is_allowed(name)).collect()
}

fn is_allowed(name: &str) -> bool {
    static SAID: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let kind = source::Kind::from_name(name).expect("a known name");
    let Err(refused) = source::open_one(kind, 1) else { return true };
    let mut said = SAID.lock().expect("not poisoned");
    if !said.iter().any(|other| other == name) {
        said.push(name.to_owned());
        skip(&format!("conformance of event source {name}"), &refused.to_string());
    }
    false
}

/// Runs `body` under each source, in a child process. A panic of any thread ends the child at once,
/// because other threads might wait for the panicked one indefinitely.
///
/// # Panics
/// If a child fails, or `name` is not the name of the test.
pub fn under_each(name: &str, body: impl Fn(&str)) {
    if is_child(name) {
        if fuse::is_server() {
            return fuse::serve();
        }
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |what| {
            report(what);
            // SAFETY: nothing is left to clean up. `abort` is not used, because a core dump waits
            // for kernel threads that may be in uninterruptible sleep.
            unsafe { libc::_exit(101) };
        }));
        return body(&std::env::var("KUMI_EVENTS").expect("the parent sets it"));
    }
    for source in sources() {
        let ended = again(name, &[("KUMI_EVENTS", &source)]);
        for line in ended.stderr.lines() {
            if let Some(rest) = line.strip_prefix("[skip] ") {
                skip(&format!("{source}: {name}"), rest);
            } else if line.starts_with("[seen] ") {
                eprintln!("{line}");
            }
        }
        let (out, err) = (&ended.stdout, &ended.stderr);
        assert!(ended.status.success(), "{name} under {source}: {}\n{out}\n{err}", ended.status);
        assert!(out.contains("1 passed"), "there is no test {name}: {out}");
    }
}

/// As [`under_each`], for a test of Kumihimo's own runtime.
pub fn of_the_runtime(name: &str, body: impl Fn(&str)) {
    if package::is_minimal() {
        return skip(
            name,
            "the test concerns the runtime, and KUMI_TEST_SCHEDULER selects another scheduler",
        );
    }
    under_each(name, body);
}

/// Prints an observation, which is visible with `--nocapture` or if the test fails.
pub fn seen(name: &str, source: &str, what: impl Debug) {
    eprintln!("[seen] {name} under {source}: {what:?}");
}

/// The microprocesses that run beside the blocked one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// A microprocess that sleeps in a loop, two microprocesses that exchange messages over TCP,
    /// and a microprocess that computes and yields. The VP is never idle.
    Busy,
    /// A microprocess that sleeps in a loop, and two microprocesses that exchange messages over a
    /// UNIX socket after short sleeps. The VP is idle in between.
    Idle,
}

/// A case under one source.
pub struct Case<'a> {
    name: &'a str,
    source: &'a str,
    beside: Beside,
}

/// Runs `body` under each source twice: with others that keep the VP busy, and with others that
/// leave it idle at times.
pub fn case(name: &str, body: impl Fn(&Case<'_>)) {
    under_each(name, |source| {
        for beside in [Beside::Busy, Beside::Idle] {
            body(&Case { name, source, beside });
        }
    });
}

impl Case<'_> {
    /// Skips the case on this machine.
    pub fn skip(&self, why: &str) {
        if self.beside == Beside::Busy {
            eprintln!("\n[skip] {why}");
        }
    }

    /// Runs `block` beside other microprocesses on the only VP. `block` must not return before
    /// `release` is called. A kernel thread calls `release` once each of the others has had its
    /// turns after `block` began.
    pub fn blocked<T: Send + 'static>(
        &self,
        block: impl FnOnce() -> T + Send + 'static,
        release: impl FnOnce() + Send + 'static,
    ) -> T {
        let (turns, begun) = (Turns::new(self.beside), Arc::new(OnceLock::new()));
        let before = kernel_threads();
        let (its, since) = (turns.clone(), begun.clone());
        let releaser = std::thread::spawn(move || {
            until(|| since.get().is_some_and(|since| its.are_enough(since)));
            release();
        });
        let of_block = turns.clone();
        let result = self.beside_others(&turns, before, move || {
            // No other microprocess runs on this VP between here and the end of `block`, unless the
            // VP is handed over.
            begun.set(of_block.now()).expect("once");
            block()
        });
        releaser.join().expect("no panic");
        result
    }

    /// Runs `call`, which blocks for a fixed time, beside other microprocesses on the only VP.
    /// Repeats until each of them has run during one call. The number of turns depends on the
    /// machine.
    pub fn timed(&self, call: impl Fn() + Send + 'static) {
        let turns = Turns::new(self.beside);
        let of_call = turns.clone();
        let calls = self.beside_others(&turns, kernel_threads(), move || {
            let mut calls = 0u64;
            loop {
                let since = of_call.now();
                call();
                calls += 1;
                if of_call.are_enough(&since) {
                    return calls;
                }
            }
        });
        seen(self.name, self.source, format_args!("{calls} calls"));
    }

    /// Runs `call` beside other microprocesses on the only VP. Does not require any turns, because
    /// the call may be too short for them.
    pub fn beside<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> T {
        self.beside_others(&Turns::new(self.beside), kernel_threads(), call)
    }

    fn beside_others<T: Send + 'static>(
        &self,
        turns: &Arc<Turns>,
        before: usize,
        block: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        package::run(1, || {
            let others = Others::start(turns, self.beside);
            let result = package::spawn(block).join().expect("no panic");
            seen(self.name, self.source, (self.beside, turns.now()));
            others.end();
            await_shrunk(before, 1);
            result
        })
    }
}

/// Waits until the pool has shrunk to its limit, according to the runtime and to the kernel.
/// `before` is the number of kernel threads before the runtime started. Called by a microprocess.
pub fn await_shrunk(before: usize, vps: usize) {
    // By default, the pool keeps one kernel thread for each VP.
    let kept = vps;
    loop {
        if package::threads() <= vps + kept
            && kernel_threads() <= before + vps + kept + BESIDE_THE_POOL
        {
            return;
        }
        package::sleep(Duration::from_millis(1));
    }
}

/// Blocks the kernel thread until the condition holds.
pub fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Turns of the other microprocesses: timers, message exchanges, and yields.
struct Turns {
    kinds: usize,
    all: [AtomicU64; 3],
}

const SLEEPS: usize = 0;
const MESSAGES: usize = 1;
const YIELDS: usize = 2;

impl Turns {
    fn new(beside: Beside) -> Arc<Turns> {
        let kinds = if beside == Beside::Busy { 3 } else { 2 };
        Arc::new(Turns { kinds, all: Default::default() })
    }

    fn now(&self) -> [u64; 3] {
        std::array::from_fn(|kind| self.all[kind].load(SeqCst))
    }

    fn are_enough(&self, since: &[u64; 3]) -> bool {
        (0..self.kinds).all(|kind| self.all[kind].load(SeqCst) >= since[kind] + TURNS)
    }

    fn add(&self, kind: usize) {
        self.all[kind].fetch_add(1, SeqCst);
    }
}

/// The other microprocesses.
struct Others {
    end: Arc<AtomicBool>,
    alone: Vec<JoinHandle<()>>,
    client: JoinHandle<u64>,
    server: JoinHandle<u64>,
}

impl Others {
    fn start(turns: &Arc<Turns>, beside: Beside) -> Others {
        let end = Arc::new(AtomicBool::new(false));
        let repeat = |kind: usize, act: fn()| {
            let (turns, end) = (turns.clone(), end.clone());
            package::spawn(move || {
                while !end.load(SeqCst) {
                    act();
                    turns.add(kind);
                }
            })
        };
        let mut alone = vec![repeat(SLEEPS, || package::sleep(Duration::from_micros(100)))];
        let (its, ended) = (turns.clone(), end.clone());
        let (client, server) = match beside {
            Beside::Busy => {
                alone.push(repeat(YIELDS, compute));
                let listener = Listener::new();
                let address = listener.address();
                let client = package::spawn(move || {
                    talk(package::connect(address), || its.add(MESSAGES), || ended.load(SeqCst))
                });
                (client, package::spawn(move || answer(listener.accept())))
            }
            Beside::Idle => {
                let (here, there) = package::pair();
                let said = move || {
                    its.add(MESSAGES);
                    package::sleep(Duration::from_micros(20));
                };
                let client = package::spawn(move || talk(here, said, || ended.load(SeqCst)));
                (client, package::spawn(move || answer(there)))
            }
        };
        Others { end, alone, client, server }
    }

    fn end(self) {
        self.end.store(true, SeqCst);
        for other in self.alone {
            other.join().expect("no panic");
        }
        assert_eq!(
            self.client.join().expect("no panic"),
            self.server.join().expect("no panic"),
            "every message arrived"
        );
    }
}

fn compute() {
    let mut sum = 1u64;
    for n in 0..2000 {
        sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(n));
    }
    package::yield_now();
}

/// Contents of message `number`.
fn message(number: u64) -> [u8; 64] {
    std::array::from_fn(|at| {
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (at % 8 * 8)) as u8 ^ at as u8
    })
}

/// Sends messages and checks the replies until `end`. Returns the number of messages.
fn talk(mut stream: impl Read + Write, said: impl Fn(), end: impl Fn() -> bool) -> u64 {
    let mut number = 0;
    while !end() {
        stream.write_all(&message(number)).expect("a listening socket");
        let mut back = [0; 64];
        stream.read_exact(&mut back).expect("it answers");
        assert_eq!(back, message(number).map(|byte| !byte), "message {number}");
        number += 1;
        said();
    }
    number
}

/// Checks messages and replies to them until the stream ends. Returns the number of messages.
fn answer(mut stream: impl Read + Write) -> u64 {
    for number in 0.. {
        let mut there = [0; 64];
        match stream.read_exact(&mut there) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return number,
            outcome => outcome.expect("it sends"),
        }
        assert_eq!(there, message(number), "message {number}");
        stream.write_all(&there.map(|byte| !byte)).expect("a listening socket");
    }
    unreachable!("the numbers do not end")
}
