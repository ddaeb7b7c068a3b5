//! `inversion`: three processes on one core. A process of high priority calls a gate of a process
//! of low priority (`side=caller`, `server`). A third process of medium priority computes, with
//! short pauses, because without them and without inheritance (`inherit=off`) the server would
//! never run.

use std::hint::black_box;
use std::time::{Duration, Instant};

use kumihimo::thread;
use kumihimo_bench_kit::work::{STEP, spin};
use kumihimo_bench_kit::{CpuClock, Lateness, Request, rpc, sample};

use crate::io::echo::until_told;
use crate::rpc::ours;
use crate::variant::Variant;

/// Levels of the server and of its caller, relative to the process of medium priority.
const LOW: i8 = -8;
const HIGH: i8 = 8;
/// CPU time of a call in the server.
const SERVICE: Duration = Duration::from_micros(500);
/// Times for which the process of medium priority computes and pauses.
const COMPUTES: Duration = Duration::from_millis(20);
const RESTS: Duration = Duration::from_millis(2);
/// Pause between two calls.
const PAUSE: Duration = Duration::from_millis(1);
const CALLS: usize = 300;

/// Checks the request.
///
/// # Errors
/// If a key has an invalid value.
pub fn check(request: &Request) -> Result<(), String> {
    inherits(request)?;
    match request.get("side") {
        Some("server" | "caller" | "middle") => Ok(()),
        other => Err(format!(
            "side={}: expected `server`, `caller` or `middle`",
            other.unwrap_or_default()
        )),
    }
}

fn inherits(request: &Request) -> Result<bool, String> {
    match request.get("inherit") {
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        other => Err(format!("inherit={}: expected `on` or `off`", other.unwrap_or_default())),
    }
}

pub fn inversion(request: &Request) {
    let variant = Variant::of(request);
    let side = match request.get("side") {
        Some("server") => variant.above(LOW).spawn({
            let inherit = inherits(request).expect("checked before");
            move || {
                let _serving = ours::Slow::begin(inherit, || compute(SERVICE))
                    .unwrap_or_else(|why| rpc::fail(&why));
                println!("ready");
                until_told();
            }
        }),
        Some("middle") => variant.spawn(|| {
            println!("ready");
            loop {
                compute(COMPUTES);
                thread::sleep(RESTS);
            }
        }),
        _ => {
            let calls = request.value("calls", CALLS);
            variant.above(HIGH).spawn(move || call(calls))
        }
    };
    if request.get("side") == Some("middle") {
        until_told();
    }
    side.join().expect("no panic");
}

/// Uses this much CPU time of the process, in which no other thread computes.
fn compute(time: Duration) {
    let clock = CpuClock::now();
    while clock.elapsed() < time {
        black_box(spin(1, STEP));
    }
}

/// Prints `ready`, waits for a line, and makes the calls.
fn call(calls: usize) {
    let slowly = ours::Slowly::connect().unwrap_or_else(|why| rpc::fail(&why));
    println!("ready");
    thread::blocking(|| std::io::stdin().read_line(&mut String::new()))
        .expect("the standard input");
    let mut late = Lateness::default();
    for _ in 0..calls {
        thread::sleep_until(Instant::now() + PAUSE);
        late.record(slowly.call().unwrap_or_else(|why| rpc::fail(&why)));
    }
    let service = SERVICE.as_micros();
    sample("p50", late.us(0.5), "us", &format!("service_us:={service}"));
    sample("p99", late.us(0.99), "us", &format!("service_us:={service}"));
}
