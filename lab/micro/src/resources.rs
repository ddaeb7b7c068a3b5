//! `resources`: the paper's three loads (P3, 5.2.1), each by 24 concurrent microprocesses, measured
//! from the start of the first one to the end of the last one.
//!
//! `create`: spawns and joins a microprocess with its stack, its share of the processor and its
//! table entries. `region`: allocates and frees 4 KB. `message`: 24 pairs transfer 4 KB from a
//! sender to a receiver, with an empty reply. A pair runs on one VP, because a microprocess woken
//! by a message continues where its peer ran. `join`: does nothing; the command measures the
//! process from outside (`create_space`). `parts`: input of the simulation, each part alone in a
//! loop.

use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::{Duration, Instant};

use kumihimo::machine;
use kumihimo::resource::{Entries, Kind, Region, table};
use kumihimo::runtime::{self, VpMetrics};
use kumihimo::sync::{Mutex, msg};
use kumihimo::thread::{self, Builder, JoinHandle};
use kumihimo_bench_kit::{CpuClock, Request, per, sample};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

const WORKERS: usize = 24;
const BYTES: usize = 4096;
/// Number of repetitions for a total of some milliseconds, of which the best part counts.
const ALONE: usize = 100_000;
const BATCH: usize = 1_000;
/// Time limit for finding and spreading the workers.
const PATIENCE: Duration = Duration::from_millis(100);

/// Start and end of a worker.
type Span = (Instant, Instant);
type Begin = fn(&Arc<AtomicBool>, usize) -> JoinHandle<Span>;

pub fn resources(request: &Request) {
    let load = request.get("load").unwrap_or("create");
    let begin: Begin = match load {
        "create" => create,
        "region" => region,
        "message" => message,
        "join" => {
            machine::number().expect("it has joined");
            return;
        }
        "parts" => return parts(),
        other => panic!("load={other}: unknown load"),
    };
    let over = if request.vps > cores_here().len() { " over_committed:=yes" } else { "" };
    let placed = place(request.vps);
    let iterations = request.value("iterations", 10_000);
    // Warm-up, which allocates stacks, slabs and tables.
    run(begin, iterations.min(100));
    let locking = table().locking();
    for iterations in [100, iterations] {
        let clock = CpuClock::now();
        let (took, even) = run(begin, iterations);
        // Fewer than VPs: some VPs had no work or no core.
        let cores = clock.elapsed().as_secs_f64() / took;
        let keys = format!(
            "load={load} iterations={iterations} locking={locking} cores:={cores:.2} placed:={placed} least:={even:.2}{over}"
        );
        sample("time", took * 1e3, "ms", &keys);
    }
}

fn cores_here() -> Vec<usize> {
    let set = sched_getaffinity(None).expect("one's own affinity");
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

/// Pins each kernel thread that carries a VP to its own core, like the paper's processes: a run is
/// shorter than the kernel needs to separate two threads that start on one core. Returns the number
/// found: a VP that is always idle has no carrier.
fn place(vps: usize) -> usize {
    let found = Arc::new(Mutex::new(Vec::new()));
    let until = Instant::now() + PATIENCE;
    let searching = |_| {
        let found = found.clone();
        thread::spawn(move || {
            while Instant::now() < until {
                let (mut found, me) = (found.lock().expect("no panic while locked"), gettid());
                if found.len() == vps {
                    break;
                }
                if !found.contains(&me) {
                    found.push(me);
                }
                drop(found);
                thread::yield_now();
            }
        })
    };
    (0..WORKERS)
        .map(searching)
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|one| one.join().expect("no panic"));
    let found: &[Pid] = &found.lock().expect("no panic while locked");
    for (thread, core) in found.iter().zip(cores_here().into_iter().cycle()) {
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(Some(*thread), &set).expect("a core of one's own");
    }
    found.len()
}

/// Returns seconds from the first start to the last end; and the number of microprocesses that
/// ended on the VP with the fewest, relative to an even share.
fn run(begin: Begin, iterations: usize) -> (f64, f64) {
    let gate = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..WORKERS).map(|_| begin(&gate, iterations)).collect();
    until_even();
    let before = ended();
    // The opener of the gate may run last, so the workers read the clock themselves.
    gate.store(true, Release);
    let spans: Vec<Span> =
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect();
    let here: Vec<u64> = ended().iter().zip(before).map(|(now, then)| now - then).collect();
    let least = here.iter().min().map_or(0, |least| least * here.len() as u64);
    let first = spans.iter().map(|span| span.0).min().expect("some");
    let last = spans.iter().map(|span| span.1).max().expect("some");
    ((last - first).as_secs_f64(), least as f64 / here.iter().sum::<u64>().max(1) as f64)
}

/// Waits until the workers, which yield at the gate, are spread over the VPs, like the paper's
/// processes. Many workers are too short-lived to be spread during the measurement. Gives up if the
/// queue design does not spread them.
fn until_even() {
    let until = Instant::now() + PATIENCE;
    let even = |vps: &[VpMetrics]| vps.iter().all(|vp| vp.runnable + 2 > WORKERS / vps.len());
    while Instant::now() < until && !even(&now()) {
        thread::yield_now();
    }
}

fn now() -> Vec<VpMetrics> {
    runtime::metrics().expect("a runtime runs").vps
}

/// Number of microprocesses that have ended, by VP.
fn ended() -> Vec<u64> {
    now().iter().map(|vp| vp.ended).collect()
}

fn worker(gate: &Arc<AtomicBool>, body: impl FnOnce() + Send + 'static) -> JoinHandle<Span> {
    let gate = gate.clone();
    thread::spawn(move || {
        while !gate.load(Acquire) {
            thread::yield_now();
        }
        let begun = Instant::now();
        body();
        (begun, Instant::now())
    })
}

fn create(gate: &Arc<AtomicBool>, iterations: usize) -> JoinHandle<Span> {
    worker(gate, move || {
        for _ in 0..iterations {
            thread::spawn(|| ()).join().expect("no panic");
        }
    })
}

fn region(gate: &Arc<AtomicBool>, iterations: usize) -> JoinHandle<Span> {
    worker(gate, move || {
        for _ in 0..iterations {
            drop(black_box(Region::new(BYTES).expect("there is memory")));
        }
    })
}

fn message(gate: &Arc<AtomicBool>, iterations: usize) -> JoinHandle<Span> {
    worker(gate, move || {
        let (address, mailbox) = msg::mailbox::<[u8; BYTES], ()>();
        let receiver = Builder::new().spawn(move || {
            let mut next = msg::receive(&mailbox);
            while let Ok(msg::Request { message, from }) = next {
                black_box(&message);
                next = msg::reply_and_receive(&mailbox, from, ());
            }
        });
        for n in 0..iterations {
            msg::send_recv(&address, [n as u8; BYTES]).expect("it is received");
        }
        drop(address);
        receiver.expect("it begins").join().expect("no panic");
    })
}

/// `slot`: a table entry is opened and closed, with its guard. `copy`: 4 KB. `hand_over`: a cache
/// line moves to another core.
fn parts() {
    static ENTRIES: Entries<usize> = Entries::new(Kind::REGION);
    let locking = table().locking();
    let slot = timed(|n| _ = ENTRIES.close(ENTRIES.open(n).expect("there is room")));
    sample("slot", slot, "ns", &format!("locking={locking}"));
    let (from, mut to) = ([7; BYTES], [0; BYTES]);
    sample("copy", timed(|_| black_box(&mut to).copy_from_slice(black_box(&from))), "ns", "");
    sample("hand_over", hand_over(), "ns", "");
}

/// The fastest of several batches, in which no other thread had the core.
fn timed(mut once: impl FnMut(usize)) -> f64 {
    let mut least = f64::INFINITY;
    for batch in 0..ALONE / BATCH {
        let start = Instant::now();
        (batch * BATCH..(batch + 1) * BATCH).for_each(&mut once);
        least = least.min(per(start.elapsed(), BATCH));
    }
    least
}

/// Two kernel threads pass a number back and forth. With one core there is nothing to pass.
fn hand_over() -> f64 {
    let cores = cores_here();
    let [one, other, ..] = cores[..] else { return 0.0 };
    let number = AtomicU64::new(0);
    // One thread writes the odd numbers, the other one the even numbers.
    let pass = |mine: u64, core: usize| {
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(None, &set).expect("a core of one's own");
        timed(|turn| {
            while number.load(Acquire) != 2 * turn as u64 + mine {
                spin_loop();
            }
            number.store(2 * turn as u64 + mine + 1, Release);
        })
    };
    let both = || {
        std::thread::scope(|scope| {
            let peer = scope.spawn(|| pass(1, other));
            pass(0, one);
            peer.join().expect("no panic") / 2.0
        })
    };
    std::thread::scope(|scope| scope.spawn(both).join().expect("no panic"))
}
