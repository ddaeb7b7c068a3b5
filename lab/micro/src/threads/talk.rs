//! `yield` with its `floor`, and `message`.

use std::sync::Arc;
use std::time::Instant;

use kumihimo::sync::{Barrier, msg};
use kumihimo::thread;
use kumihimo_arch::cpu::{self, Context};
use kumihimo_bench_kit::{Request, per, sample};

use crate::variant::Variant;

/// Two microprocesses for each VP, which take turns.
pub fn switch(request: &Request) {
    const ROUNDS: usize = 5_000_000;
    let variant = Variant::of(request);
    sample("switch", switches(variant, request.vps, ROUNDS), "ns", "");
    if request.variant == "full" {
        sample("switch", floors(request.vps, ROUNDS), "ns", "runtime=floor");
    }
}

/// Runs the floor on as many processors as the other measurement, because processors may share a
/// core's units and its clock frequency.
fn floors(processors: usize, rounds: usize) -> f64 {
    let all = std::sync::Barrier::new(processors);
    let one = || {
        all.wait();
        floor(rounds)
    };
    std::thread::scope(|s| {
        let runs: Vec<_> = (0..processors).map(|_| s.spawn(one)).collect();
        runs.into_iter().map(|run| run.join().expect("no panic")).fold(0.0, f64::max)
    })
}

/// Nanoseconds for a switch on one VP.
pub fn switches(variant: Variant, vps: usize, rounds: usize) -> f64 {
    let all = Arc::new(Barrier::new(2 * vps));
    let yielders: Vec<_> = (0..2 * vps)
        .map(|_| {
            let all = all.clone();
            variant.spawn(move || {
                for _ in 0..rounds / 10 {
                    thread::yield_now();
                }
                all.wait();
                let start = Instant::now();
                for _ in 0..rounds {
                    thread::yield_now();
                }
                start.elapsed()
            })
        })
        .collect();
    let slowest = yielders.into_iter().map(|y| y.join().expect("no panic")).max();
    per(slowest.expect("two at least"), 2 * rounds)
}

struct Pair {
    main: Context,
    other: Context,
    fs: usize,
}

extern "C" fn back_at_once(pair: *mut u8) -> ! {
    let pair = pair.cast::<Pair>();
    loop {
        // SAFETY: the pair outlives this context, and both sides run on one kernel thread.
        unsafe { cross(&raw mut (*pair).other, (*pair).main, (*pair).fs) };
    }
}

/// The runtime's switch without anything around it.
unsafe fn cross(save: *mut Context, to: Context, fs: usize) {
    if cpu::fsgsbase() {
        // SAFETY: guaranteed by the caller.
        unsafe { cpu::switch_fs(save, to, fs) }
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { cpu::switch_prctl(save, to, fs) }
    }
}

/// Nanoseconds for one bare switch of the crate arch, including a write of FS. Both sides write the
/// current value, which takes the same time.
fn floor(rounds: usize) -> f64 {
    const STACK: usize = 16 << 10;
    let mut stack = vec![0u128; STACK / 16];
    let mut pair = Pair { main: Context::NULL, other: Context::NULL, fs: cpu::fs_base() };
    let shared: *mut Pair = &raw mut pair;
    // SAFETY: the stack is 16-aligned, used by nothing else, and lives until the last switch. The
    // caller does not move to another kernel thread meanwhile, because nothing here is a switch
    // point of the runtime.
    unsafe {
        let top = stack.as_mut_ptr().cast::<u8>().add(STACK);
        (*shared).other = Context::prepare(top, back_at_once, shared.cast());
        let there_and_back = |rounds: usize| {
            for _ in 0..rounds {
                cross(&raw mut (*shared).main, (*shared).other, (*shared).fs);
            }
        };
        there_and_back(rounds / 10);
        let start = Instant::now();
        there_and_back(rounds);
        per(start.elapsed(), 2 * rounds)
    }
}

pub fn message(request: &Request) {
    const ROUNDS: usize = 1_000_000;
    sample("roundtrip", roundtrips(Variant::of(request), ROUNDS), "ns", "");
}

/// Nanoseconds for a send, its receive and its reply.
pub fn roundtrips(variant: Variant, rounds: usize) -> f64 {
    let (address, mailbox) = msg::mailbox::<usize, usize>();
    let server = variant.spawn(move || {
        // As in the paper's server, the reply and the wait for the next request are one call.
        let mut next = mailbox.receive();
        while let Ok(request) = next {
            next = mailbox.reply_and_receive(request.from, request.message + 1);
        }
    });
    let client = variant.spawn(move || {
        let exchange = |rounds: usize| {
            for i in 0..rounds {
                assert_eq!(address.send_recv(i), Ok(i + 1));
            }
        };
        exchange(rounds / 10);
        let start = Instant::now();
        exchange(rounds);
        per(start.elapsed(), rounds)
    });
    let each = client.join().expect("no panic");
    server.join().expect("no panic");
    each
}
