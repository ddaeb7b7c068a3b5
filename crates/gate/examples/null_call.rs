//! Cost of a call: `null_call serve` in one process, `null_call call CALLERS BYTES PLACEMENT` in
//! another one with the same `KUMI_DIR`. A fifth argument names the gate, which may be on another
//! machine: `build7/null`.

use std::time::{Duration, Instant};

use kumihimo_gate::{Options, Placement, RawGate};
use kumihimo_runtime::thread;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|n| n.parse::<usize>().ok());
    if arguments.first().is_some_and(|side| side == "serve") {
        let serving = RawGate::serve("null", &Options::new(), |asked, _, answer| {
            answer.extend_from_slice(asked);
            Ok(Vec::new())
        });
        let _serving = serving.expect("the gate");
        std::thread::sleep(Duration::from_secs(number(1).unwrap_or(60) as u64));
        return;
    }
    let (callers, bytes) = (number(1).unwrap_or(1), number(2).unwrap_or(64));
    let placement = match arguments.get(3).map(String::as_str) {
        Some("handoff") => Placement::Handoff,
        Some("scheduled") => Placement::Scheduled,
        Some("spin") => Placement::Spin,
        _ => Placement::Adaptive,
    };
    let name = arguments.get(4).map_or("null", String::as_str);
    let gate = RawGate::connect_with(name, &Options::new().placement(placement)).expect("a server");
    let until = Instant::now() + Duration::from_secs(2);
    let begun = Instant::now();
    let gate = &gate;
    let mut times: Vec<u64> = thread::scope(|scope| {
        let all: Vec<_> = (0..callers)
            .map(|_| {
                scope.spawn(move || {
                    let (asked, mut reply, mut times) = (vec![1; bytes], Vec::new(), Vec::new());
                    while Instant::now() < until {
                        let before = Instant::now();
                        gate.call(&asked, &mut reply).expect("a reply");
                        times.push(before.elapsed().as_nanos() as u64);
                    }
                    times
                })
            })
            .collect();
        all.into_iter().flat_map(|one| one.join().expect("no panic")).collect()
    });
    let rate = times.len() as f64 / begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |part: f64| times[(times.len() as f64 * part) as usize] as f64 / 1000.0;
    println!(
        "{callers} callers, {bytes} bytes, {placement:?}: p50 {:.2} us, p99 {:.2} us, {rate:.0} a second",
        at(0.5),
        at(0.99)
    );
}
