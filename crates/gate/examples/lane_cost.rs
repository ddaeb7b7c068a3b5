//! What a lane costs: a request there and its reply back, on one kernel thread and between two that
//! look all the time; and the copies of payloads.
//! `cargo run --release -p kumihimo-gate --example lane_cost`

use std::hint::{black_box, spin_loop};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kumihimo_gate::Region;
use kumihimo_gate::lane::{ClientEnd, Geometry, Incoming, ReplyHeader, RequestHeader, ServerEnd};

/// Best of several rounds, in nanoseconds for each of `n`.
fn best(n: u32, mut f: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..n {
            f();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(n));
    }
    best
}

fn lane() -> (ServerEnd, ClientEnd) {
    let geometry = Geometry::default();
    let (host, fd) = ServerEnd::create("lane-cost", geometry).unwrap();
    (host, ClientEnd::open(fd.as_fd(), geometry).unwrap())
}

fn answer(host: &ServerEnd, bytes: &mut Vec<u8>) -> usize {
    host.pop_requests(64, |incoming| {
        let Incoming::Request(request) = incoming else { return };
        host.read_request(request.cell, bytes).unwrap();
        host.push_reply(request.cell, &ReplyHeader::default(), bytes).unwrap();
    })
    .unwrap()
}

fn call(caller: &ClientEnd, payload: &[u8]) {
    let cell = caller.take_cell().unwrap();
    caller.write(cell, &RequestHeader::default(), payload).unwrap();
    caller.push_request(cell).unwrap();
}

fn collect(caller: &ClientEnd, bytes: &mut Vec<u8>) -> usize {
    caller
        .pop_replies(64, |reply| {
            caller.read_reply(reply.cell, bytes).unwrap();
            caller.give_back(reply.cell).unwrap();
        })
        .unwrap()
}

fn main() {
    for len in [0, 64, 128, 256, 1024, 4096] {
        let (host, caller) = lane();
        let (payload, mut one, mut two) = (vec![7; len], Vec::new(), Vec::new());
        let alone = best(20_000, || {
            call(&caller, &payload);
            assert_eq!((answer(&host, &mut one), collect(&caller, &mut two)), (1, 1));
        });
        let batched = best(400, || {
            for _ in 0..64 {
                call(&caller, &payload);
            }
            assert_eq!((answer(&host, &mut one), collect(&caller, &mut two)), (64, 64));
        });
        println!(
            "{len:5} bytes: request, reply, 4 copies on one kernel thread: {alone:6.1} ns; in rounds of 64: {:6.1} ns each",
            batched / 64.0
        );
    }
    for len in [0, 64, 4096] {
        let (host, caller) = lane();
        let (payload, mut bytes, done) = (vec![7; len], Vec::new(), AtomicBool::new(false));
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut bytes = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    if !host.has_requests() || answer(&host, &mut bytes) == 0 {
                        spin_loop();
                    }
                }
            });
            let mut round = |n: usize| {
                (0..n).for_each(|_| call(&caller, &payload));
                let mut came = 0;
                while came < n {
                    came += collect(&caller, &mut bytes);
                    spin_loop();
                }
            };
            let single = best(20_000, || round(1));
            let many = best(400, || round(64));
            println!(
                "{len:5} bytes: two cores that look: {single:6.1} ns; in rounds of 64: {:6.1} ns each",
                many / 64.0
            );
            done.store(true, Ordering::Relaxed);
        });
    }
    for len in [0, 4096, 1 << 20] {
        let bytes = vec![7; len];
        let written = best(200, || drop(black_box(Region::copy_of(&bytes).unwrap())));
        let filled = best(200, || {
            drop(black_box(Region::new(len, |to| to.copy_from_slice(&bytes)).unwrap()))
        });
        let region = Region::copy_of(&bytes).unwrap();
        let received = best(200, || {
            let passed =
                Region::receive(region.as_fd().try_clone_to_owned().unwrap(), len).unwrap();
            black_box(passed.len());
        });
        let read = best(200, || {
            let passed =
                Region::receive(region.as_fd().try_clone_to_owned().unwrap(), len).unwrap();
            black_box(passed.iter().step_by(4096).fold(0, |all, byte| all ^ byte));
        });
        println!(
            "{len:8} bytes in a region: copied {written:9.0} ns, filled in place {filled:9.0}, received {received:6.0}, and each page read {read:6.0}"
        );
    }
}
