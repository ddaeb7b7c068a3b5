//! Gates and the arbiter under faults: a server, callers in other processes, and processes that
//! compute at other priorities beside them. Each call returns the right reply or an error.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use kumihimo::gate::{Error, ErrorKind, Gate, Options};
use kumihimo::policy::Priority;
use kumihimo::thread;
use kumihimo_tests::Random;

use crate::service::{Fault, Service};

pub const FAULTS: [Fault; 4] = [Fault::Kill, Fault::Stop, Fault::Descriptors, Fault::Memory];
const CALLERS: u64 = 8;
/// Size from which on a payload goes by a region.
const LARGE: u64 = 100_000;

type Sums = Gate<Vec<u8>, u64>;

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().enumerate().map(|(at, byte)| (at as u64 + 1) * u64::from(*byte)).sum()
}

/// A process of this test program.
fn part(place: &Path, side: &str, seed: u64) -> Service {
    let (run, own) = (place.join("machine"), side.to_owned());
    let errors = place.join(format!("{side}.errors"));
    Service::new(side, errors, "serving", move || {
        let mut command = crate::again(&own);
        command.env("KUMI_SEED", seed.to_string());
        command.env("KUMI_DIR", &run).env("KUMI_ARBITER", "on").env("KUMI_VPS", "2");
        command
    })
}

/// All processes.
pub fn services(place: &Path, random: &mut Random) -> Vec<Service> {
    ["server", "caller-1", "caller-2", "computes-1", "computes-2"]
        .into_iter()
        .map(|side| part(place, side, random.number()))
        .collect()
}

/// The part of a process that was started by [`services`].
pub fn play(side: &str) {
    match side {
        "server" => {
            let options = Options::new();
            let _serving = Sums::serve_with("sums", &options, |bytes, _| Ok(sum(&bytes)));
            say_and_wait();
        }
        "caller-1" | "caller-2" => call(),
        _ => {
            let level = if side == "computes-1" { 10 } else { 40 };
            let computes =
                thread::Builder::new().priority(Priority::new(level).expect("a level")).spawn(
                    || loop {
                        std::hint::black_box((0..100_000_u64).fold(1, |a, b| a ^ (a << 7) ^ b));
                        thread::sleep(Duration::from_millis(1));
                    },
                );
            say_and_wait();
            drop(computes);
        }
    }
}

fn say_and_wait() {
    println!("serving");
    std::io::stdout().flush().expect("standard output is open");
    thread::blocking(|| {
        let _ = std::io::stdin().read(&mut [0]);
    });
    std::process::exit(0)
}

/// Calls without end. A wrong reply ends the process.
fn call() {
    let mut random = Random(kumihimo_tests::seed());
    let callers: Vec<Random> = (0..CALLERS).map(|_| random.split()).collect();
    for mut random in callers {
        let caller = move || {
            let mut gate: Option<Sums> = None;
            loop {
                let most = if random.one_in(10) { 2 * LARGE } else { 500 };
                let length = random.below(most);
                let bytes: Vec<u8> = (0..length).map(|n| (n ^ random.0) as u8).collect();
                let reply = one_call(&mut gate, &bytes, &mut random);
                if reply.is_ok_and(|reply| reply != sum(&bytes)) {
                    eprintln!("a wrong reply to {length} bytes");
                    std::process::abort();
                }
            }
        };
        drop(thread::spawn(caller));
    }
    say_and_wait();
}

/// A call, which is abandoned in some cases.
fn one_call(gate: &mut Option<Sums>, bytes: &[u8], random: &mut Random) -> Result<u64, Error> {
    if gate.is_none() {
        match Gate::connect("sums") {
            Ok(new) => *gate = Some(new),
            Err(error) => {
                thread::sleep(Duration::from_millis(5));
                return Err(checked(error));
            }
        }
    }
    let one = gate.as_ref().expect("set above");
    let bytes = bytes.to_vec();
    let reply = match random.below(10) {
        0 => one.call_within(&bytes, Duration::from_micros(random.below(500))),
        1 => one.send(&bytes).and_then(|()| one.call(&bytes)),
        _ => one.call(&bytes),
    };
    if random.one_in(50) {
        *gate = None;
    }
    reply.map_err(checked)
}

/// An error, which has to be one that a caller can expect here.
fn checked(error: Error) -> Error {
    let expected = [
        ErrorKind::Gone,
        ErrorKind::NotFound,
        ErrorKind::TimedOut,
        ErrorKind::Exhausted,
        ErrorKind::Cancelled,
        ErrorKind::Io,
    ];
    if !expected.contains(&error.kind()) || error.to_string().is_empty() {
        eprintln!("an unexpected error: {:?}: {error}", error.kind());
        std::process::abort();
    }
    error
}

/// Starts the services again that have ended, until `over`.
pub fn revive(services: &[Service], over: &AtomicBool) {
    while !over.load(SeqCst) {
        for service in services {
            service.revive();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// With all processes alive and undisturbed, calls succeed, and all are listed.
pub fn check(place: &Path, kumi: &Path, services: &[Service]) {
    for service in services {
        service.revive();
    }
    let options = Options::new().directory(place.join("machine"));
    let bytes = vec![7; 1000];
    let mut last = String::new();
    let answered = (0..600).any(|_| {
        let reply = Sums::connect_with("sums", &options).and_then(|gate| gate.call(&bytes));
        match reply {
            Ok(reply) => {
                assert_eq!(reply, sum(&bytes));
                true
            }
            Err(error) => {
                last = error.to_string();
                std::thread::sleep(Duration::from_millis(100));
                false
            }
        }
    });
    assert!(answered, "no call succeeds in a minute without faults: {last}");
    let listed = Command::new(kumi).arg("ps").env("KUMI_DIR", place.join("machine")).output();
    let listed = listed.expect("kumi ps");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
}
