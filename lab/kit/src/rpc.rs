//! Calls, checks and timing of `rpc`, over any transport: a client with several callers, each in a
//! closed loop, and a server in another process that checks every payload. Both print `ready`. The
//! server ends with its standard input. The client reads durations in milliseconds from its
//! standard input, runs for each of them, and prints a [`Slice`].

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::late::Lateness;
use crate::request::Request;
use crate::work::Dice;

/// Size of a reply in bytes.
pub const ANSWER: usize = 16;
/// Minimum size of a payload. With [`Check::Head`], only so many bytes are summed.
pub const HEAD: usize = 64;
/// With several callers, only one call of this many is timed, because two readings of the clock
/// take as long as a cheap call.
const SAMPLED: u64 = 16;
/// Number in the reply to a payload with a wrong checksum.
const WRONG: u64 = u64::MAX;

/// Role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Replies to calls.
    Server,
    /// Makes calls.
    Client,
}

/// Part of each payload that the server sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The whole payload.
    Whole,
    /// The first [`HEAD`] bytes, so that mainly the transport of the payload is measured.
    Head,
}

/// Parameters of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Role of this process.
    pub side: Side,
    /// Number of callers, each with one outstanding call.
    pub callers: usize,
    /// Size of a payload in bytes.
    pub bytes: usize,
    /// Number of cores that both processes share.
    pub cores: usize,
    /// The way in which both sides wait. Its meaning depends on the contender.
    pub placement: String,
    /// Part of the payload to check.
    pub check: Check,
    /// A directory in memory known to both processes.
    pub place: PathBuf,
    /// The call whose payload the first caller corrupts.
    corrupt: Option<u64>,
}

impl Plan {
    /// Parses `side`, `callers`, `bytes`, `placement`, `check`, `place` and, for tests, `corrupt`.
    ///
    /// # Errors
    /// If a key is missing or has an invalid value.
    pub fn of(request: &Request) -> Result<Plan, String> {
        let side = match request.get("side") {
            Some("server") => Side::Server,
            Some("client") => Side::Client,
            other => {
                return Err(format!(
                    "side={}: expected `server` or `client`",
                    other.unwrap_or_default()
                ));
            }
        };
        let check = match request.get("check").unwrap_or("whole") {
            "whole" => Check::Whole,
            "head" => Check::Head,
            other => return Err(format!("check={other}: expected `whole` or `head`")),
        };
        let number =
            |key: &str, default: usize, least: usize| match request.get(key).map(str::parse) {
                None => Ok(default),
                Some(Ok(number)) if number >= least => Ok(number),
                Some(_) => Err(format!("{key}: expected a number of at least {least}")),
            };
        let bytes = number("bytes", HEAD, HEAD)?;
        if !bytes.is_multiple_of(8) {
            return Err(format!("bytes={bytes}: expected a multiple of eight"));
        }
        Ok(Plan {
            side,
            callers: number("callers", 1, 1)?,
            bytes,
            cores: request.vps,
            placement: request.get("placement").unwrap_or("scheduled").to_owned(),
            check,
            place: request
                .get("place")
                .ok_or("place: expected the directory of both processes")?
                .into(),
            corrupt: request
                .get("corrupt")
                .map(|text| text.parse().map_err(|_| "corrupt: expected a number"))
                .transpose()?,
        })
    }

    /// The call whose payload the first caller corrupts, if any.
    #[must_use]
    pub fn corrupt(&self) -> Option<u64> {
        self.corrupt
    }

    /// Checks that the placement is one of `known`.
    ///
    /// # Errors
    /// If it is another one.
    pub fn placed(&self, known: &[&str]) -> Result<(), String> {
        match known.contains(&self.placement.as_str()) {
            true => Ok(()),
            false => {
                Err(format!("placement={}: expected one of {}", self.placement, known.join(", ")))
            }
        }
    }
}

/// The server's reply to a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Number of the payload.
    pub number: u64,
    /// Sum that the server computed.
    pub sum: u64,
}

impl Answer {
    /// Encodes the reply.
    #[must_use]
    pub fn to_bytes(self) -> [u8; ANSWER] {
        let mut bytes = [0; ANSWER];
        bytes[..8].copy_from_slice(&self.number.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.sum.to_ne_bytes());
        bytes
    }

    /// Decodes a reply.
    #[must_use]
    pub fn from_bytes(bytes: [u8; ANSWER]) -> Answer {
        Answer { number: word(&bytes, 0), sum: word(&bytes, 1) }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("eight bytes"))
}

/// Sum of all words. It does not detect exchanged words, which is not a likely error here, and it
/// is the cheapest function that reads everything.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0, |sum, eight| sum.wrapping_add(word(eight, 0)))
}

/// The server's work for each payload: returns its number and the sum of the checked words without
/// the checksum. Not inlined, so that all contenders run the same code.
#[inline(never)]
#[must_use]
pub fn serve(payload: &[u8], check: Check) -> Answer {
    let checked = match check {
        Check::Whole => payload,
        Check::Head => &payload[..payload.len().min(HEAD)],
    };
    if checked.len() < HEAD {
        return Answer { number: WRONG, sum: 0 };
    }
    let number = word(checked, 0);
    let sum = sum(&checked[16..]).wrapping_add(number);
    Answer { number: if sum == word(checked, 1) { number } else { WRONG }, sum }
}

/// A caller: its payload, and the durations of its calls.
#[derive(Debug)]
pub struct Caller {
    payload: Vec<u8>,
    base: u64,
    number: u64,
    every: u64,
    begun: Option<Instant>,
    calls: u64,
    nanoseconds: Vec<u32>,
    corrupt: Option<u64>,
}

impl Caller {
    /// Creates caller `n` of a plan.
    #[must_use]
    pub fn new(plan: &Plan, n: usize) -> Caller {
        let mut dice = Dice::new(n as u64 + 1);
        let payload: Vec<u8> =
            (0..plan.bytes / 8).flat_map(|_| dice.below(u64::MAX).to_ne_bytes()).collect();
        let base = match plan.check {
            Check::Whole => sum(&payload[16..]),
            Check::Head => sum(&payload[16..HEAD]),
        };
        let every = if plan.callers == 1 { 1 } else { SAMPLED };
        // Distinct numbers for each caller.
        let number = (n as u64) << 40;
        let corrupt = if n == 0 { plan.corrupt } else { None };
        let nanoseconds = Vec::with_capacity(if every == 1 { 1 << 20 } else { 1 << 8 });
        Caller { payload, base, number, every, begun: None, calls: 0, nanoseconds, corrupt }
    }

    /// Stamps the payload of the next call, whose time begins now.
    #[inline]
    pub fn stamped(&mut self) -> &[u8] {
        self.number += 1;
        self.payload[..8].copy_from_slice(&self.number.to_ne_bytes());
        self.payload[8..16].copy_from_slice(&self.base.wrapping_add(self.number).to_ne_bytes());
        if self.corrupt.is_some_and(|corrupt| corrupt == self.number) {
            self.payload[HEAD - 1] ^= 1;
        }
        if self.begun.is_none() && self.number.is_multiple_of(self.every) {
            self.begun = Some(Instant::now());
        }
        &self.payload
    }

    /// Ends a call with its reply.
    ///
    /// # Errors
    /// If the server found a wrong checksum, or the reply belongs to another call.
    #[inline]
    pub fn answered(&mut self, answer: Answer) -> Result<(), String> {
        if answer.number != self.number || answer.sum != self.base.wrapping_add(self.number) {
            return Err(self.complaint(answer));
        }
        self.calls += 1;
        if let Some(begun) = self.begun.take() {
            let now = Instant::now();
            self.nanoseconds.push(u32::try_from((now - begun).as_nanos()).unwrap_or(u32::MAX));
            // If every call is timed, the end of one is the beginning of the next.
            self.begun = (self.every == 1).then_some(now);
        }
        Ok(())
    }

    fn complaint(&self, answer: Answer) -> String {
        match answer.number {
            WRONG => format!("call {}: the server computed a different checksum", self.number),
            other => format!(
                "call {}: the reply belongs to call {other}, with the sum {:x}",
                self.number, answer.sum
            ),
        }
    }

    /// Excludes the time until the next call from that call's duration.
    pub fn pause(&mut self) {
        self.begun = None;
    }

    /// Moves the calls since the last collection into `slice`.
    pub fn collect(&mut self, slice: &mut Slice) {
        slice.calls += std::mem::take(&mut self.calls);
        self.nanoseconds
            .drain(..)
            .for_each(|ns| slice.late.record(Duration::from_nanos(ns.into())));
    }
}

/// Result of all callers.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    calls: u64,
    /// Time until the last reply.
    took: Duration,
    late: Lateness,
}

impl Slice {
    /// A slice from `begun` until now.
    #[must_use]
    pub fn since(begun: Instant) -> Slice {
        Slice { took: begun.elapsed(), ..Slice::default() }
    }

    /// Prints `CALLS SECONDS P50 P99` (microseconds).
    pub fn say(&self) {
        println!(
            "{} {} {} {}",
            self.calls,
            self.took.as_secs_f64(),
            self.late.us(0.5),
            self.late.us(0.99)
        );
    }
}

/// Reads the next line of standard input, a number of milliseconds; `None` at its end. Blocks the
/// kernel thread.
///
/// # Errors
/// If the line is not a number.
pub fn told() -> Result<Option<Duration>, String> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) => Ok(None),
        Ok(_) => match line.trim().parse() {
            Ok(ms) => Ok(Some(Duration::from_millis(ms))),
            Err(_) => Err(format!("{line:?} is not a number of milliseconds")),
        },
        Err(e) => Err(e.to_string()),
    }
}

/// Waits until the standard input ends. Blocks the kernel thread.
pub fn until_told() {
    while told().is_ok_and(|line| line.is_some()) {}
}

/// Runs a client whose callers are kernel threads, each with the value that `connect` returned for
/// it.
///
/// # Errors
/// If `connect` fails or the standard input is invalid. A failing call ends the process ([`fail`]),
/// because the other callers could not continue.
///
/// # Panics
/// If a kernel thread cannot be created.
pub fn by_threads<C: Send>(
    plan: &Plan,
    connect: impl FnMut(usize) -> Result<C, String>,
    call: impl Fn(&mut C, &[u8]) -> Result<Answer, String> + Sync,
) -> Result<(), String> {
    let connections = (0..plan.callers).map(connect).collect::<Result<Vec<_>, _>>()?;
    let callers: Vec<_> = (0..plan.callers).map(|n| Mutex::new(Caller::new(plan, n))).collect();
    let (gate, over, ended) =
        (Barrier::new(plan.callers + 1), AtomicBool::new(false), AtomicBool::new(false));
    let one = |caller: &Mutex<Caller>, mut connection: C| {
        loop {
            gate.wait();
            if ended.load(Relaxed) {
                return;
            }
            let mut caller = caller.lock().expect("no panic");
            while !over.load(Relaxed) {
                let answer = call(&mut connection, caller.stamped());
                if let Err(why) = answer.and_then(|answer| caller.answered(answer)) {
                    fail(&why);
                }
            }
            caller.pause();
            drop(caller);
            gate.wait();
        }
    };
    thread::scope(|scope| {
        for (caller, connection) in callers.iter().zip(connections) {
            let one = &one;
            scope.spawn(move || one(caller, connection));
        }
        println!("ready");
        let mut said = Ok(());
        loop {
            let length = match told() {
                Ok(Some(length)) => length,
                Ok(None) => break,
                Err(why) => {
                    said = Err(why);
                    break;
                }
            };
            over.store(false, Relaxed);
            gate.wait();
            let begun = Instant::now();
            thread::sleep(length);
            over.store(true, Relaxed);
            gate.wait();
            let mut slice = Slice::since(begun);
            callers.iter().for_each(|caller| caller.lock().expect("no panic").collect(&mut slice));
            slice.say();
        }
        ended.store(true, Relaxed);
        gate.wait();
        said
    })
}

/// Ends this process with a failure, and prints the reason in place of a slice.
pub fn fail(why: &str) -> ! {
    println!("failed: {why}");
    eprintln!("rpc: {why}");
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        let line = format!("rpc place=/nowhere {line}");
        Plan::of(&Request::parse(line.split_whitespace().map(str::to_owned)).expect("a request"))
    }

    #[test]
    fn valid_plan_is_parsed_and_invalid_ones_are_refused() {
        let read =
            plan("side=client callers=16 bytes=4096 placement=spin check=head --vps 2").unwrap();
        assert_eq!((read.side, read.callers, read.bytes, read.cores), (Side::Client, 16, 4096, 2));
        assert_eq!((read.check, read.placed(&["spin"])), (Check::Head, Ok(())));
        assert!(read.placed(&["scheduled"]).unwrap_err().contains("placement=spin"));
        for (line, why) in [
            ("", "side"),
            ("side=middle", "side=middle"),
            ("side=server callers=0", "callers"),
            ("side=server callers=many", "callers"),
            ("side=server bytes=63", "bytes"),
            ("side=server bytes=65", "bytes=65"),
            ("side=server check=none", "check=none"),
            ("side=server corrupt=yes", "corrupt"),
        ] {
            let said = plan(line).unwrap_err();
            assert!(said.contains(why), "{line}: {said}");
        }
        let no_place = Request::parse(["rpc", "side=server"].map(str::to_owned)).unwrap();
        assert!(Plan::of(&no_place).unwrap_err().contains("place"));
    }

    #[test]
    fn falsified_payload_is_detected() {
        for check in ["whole", "head"] {
            let plan = plan(&format!("side=client bytes=4096 check={check} corrupt=3")).unwrap();
            let mut caller = Caller::new(&plan, 0);
            for _ in 0..2 {
                let answer = serve(caller.stamped(), plan.check);
                assert_eq!(Answer::from_bytes(answer.to_bytes()), answer);
                caller.answered(answer).unwrap();
            }
            let answer = serve(caller.stamped(), plan.check);
            assert!(
                caller
                    .answered(answer)
                    .unwrap_err()
                    .contains("call 3: the server computed a different checksum")
            );
        }
    }

    #[test]
    fn checksum_covers_every_word_and_rejects_short_payloads() {
        let plan = plan("side=client bytes=256").unwrap();
        let mut caller = Caller::new(&plan, 0);
        let payload = caller.stamped().to_vec();
        for at in 0..payload.len() {
            let mut other = payload.clone();
            other[at] ^= 0x10;
            assert_eq!(serve(&other, Check::Whole).number, WRONG, "byte {at}");
        }
        assert_eq!(serve(&payload[..32], Check::Whole).number, WRONG);
        assert_eq!(serve(&[], Check::Head).number, WRONG);
    }

    #[test]
    fn reply_to_another_caller_is_an_error() {
        let plan = plan("side=client callers=2").unwrap();
        let [mut one, mut other] = [0, 1].map(|n| Caller::new(&plan, n));
        let answer = serve(one.stamped(), plan.check);
        other.stamped();
        assert!(other.answered(answer).unwrap_err().contains("belongs to call 1"));
    }
}
