//! Thousands of microprocesses on the minimal user scheduler, each of which blocks in the kernel at
//! random. `KUMI_SEED` repeats a run.
// Not under AddressSanitizer: its allocator spins on an internal lock, which a microprocess that
// waits for a VP in a signal handler may hold. Progress then needs preemption, or waiters that give
// up on a VP without switches, as in Kumihimo's own scheduler.
#![cfg(not(any(loom, kumihimo_asan)))]

#[path = "../examples/minimal/scheduler.rs"]
#[allow(dead_code)]
mod scheduler;

use std::cell::Cell;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, SystemTime};

use kumihimo_events::kernel::Settings;
use kumihimo_events::limit::Limit;
use kumihimo_events::preempt::Means;
use kumihimo_events::source::{self, Kind};
use scheduler::{Scheduler, check, yield_now};

/// splitmix64 (Steele et al. 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }
}

thread_local!(static OWN: Cell<u64> = const { Cell::new(0) });

struct Shared {
    package: Arc<Scheduler>,
    counter: Mutex<u64>,
    baton: (Mutex<bool>, Condvar),
    steps: AtomicU64,
}

/// Performs a few random steps. Returns how often it incremented the counter under the lock.
fn live(shared: &Arc<Shared>, number: u64, mut random: Random, depth: u32) -> u64 {
    OWN.set(number);
    let mut counted = 0;
    for _ in 0..1 + random.below(6) {
        shared.steps.fetch_add(1, Relaxed);
        match random.below(10) {
            0 => std::thread::sleep(Duration::from_micros(random.below(500))),
            1 => {
                let mut held = shared.counter.lock().expect("not poisoned");
                if random.below(4) == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
                *held += 1;
                counted += 1;
            }
            2 => {
                let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
                let writes = shared
                    .package
                    .spawn(random.below(64) as u8, move || writer.write_all(&[9]))
                    .expect("memory");
                let mut byte = [0];
                assert_eq!((reader.read(&mut byte).expect("no EINTR"), byte), (1, [9]));
                writes.join().expect("no panic").expect("the pipe is read");
            }
            3 => {
                let (tell, told) = mpsc::sync_channel(0);
                let tells = shared
                    .package
                    .spawn(random.below(64) as u8, move || tell.send(number))
                    .expect("memory");
                assert_eq!(told.recv(), Ok(number));
                tells.join().expect("no panic").expect("the value is received");
            }
            4 => {
                let (free, changed) = &shared.baton;
                let mut mine = changed
                    .wait_while(free.lock().expect("not poisoned"), |free| !*free)
                    .expect("as before");
                *mine = false;
                drop(mine);
                check();
                *free.lock().expect("not poisoned") = true;
                changed.notify_one();
            }
            5 => {
                let random = Random(random.0);
                let child = (depth < 2).then(|| {
                    let shared = shared.clone();
                    shared.package.clone().spawn(random.0 as u8 % 64, move || {
                        live(&shared, number + 1, random, depth + 1)
                    })
                });
                counted +=
                    child.map_or(0, |child| child.expect("memory").join().expect("no panic"));
            }
            6 => {
                let quiet =
                    shared.package.spawn(random.below(64) as u8, yield_now).expect("memory");
                quiet.set_priority(random.below(64) as u8);
            }
            7 => {
                let large = vec![number as u8; 1 + random.below(300_000) as usize];
                assert!(large.iter().step_by(4096).all(|byte| *byte == number as u8));
            }
            8 => yield_now(),
            _ => check(),
        }
        assert_eq!(OWN.get(), number, "the thread-local belongs to the microprocess");
    }
    counted
}

fn run(source: Kind, vps: u32, max_threads: usize, n: u64, seed: u64) {
    let settings = Settings {
        vps,
        parked: 0,
        concurrency: 2,
        limit: Limit::asked(max_threads, "the test"),
        source: Some(source),
        preempt: Some(Means::Off),
        record: false,
    };
    let package = Scheduler::open(settings).expect("a scheduler");
    let shared = Arc::new(Shared {
        package: package.clone(),
        counter: Mutex::new(0),
        baton: (Mutex::new(true), Condvar::new()),
        steps: AtomicU64::new(0),
    });
    let mut random = Random(seed);
    let all: Vec<_> = (0..n)
        .map(|number| {
            let (shared, own) = (shared.clone(), Random(random.below(u64::MAX)));
            package
                .spawn(random.below(64) as u8, move || live(&shared, number * 10, own, 0))
                .expect("memory")
        })
        .collect();
    let counted: u64 = all.into_iter().map(|one| one.join().expect("no panic")).sum();
    assert_eq!(*shared.counter.lock().expect("not poisoned"), counted);
    let counts = package.kernel().counts();
    eprintln!(
        "{source}, {vps} VPs, {n} microprocesses, {} steps: {counts:?}",
        shared.steps.load(Relaxed)
    );
    assert!(counts.threads <= max_threads);
    package.wait();
    assert_eq!(package.kernel().counts().bound, 0, "all have unbound");
}

#[test]
fn randomly_blocking_microprocesses_all_finish() {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(1, |time| time.as_nanos() as u64);
    let seed = std::env::var("KUMI_SEED")
        .ok()
        .map_or(now, |seed| seed.parse().expect("KUMI_SEED: a number"));
    eprintln!("randomly_blocking_microprocesses_all_finish: KUMI_SEED={seed}");
    for source in [Kind::Bpf, Kind::Perf, Kind::Watch] {
        if let Err(why) = source::open_one(source, 8) {
            eprintln!("\n[skip] under {source}: {why}");
            continue;
        }
        for (vps, max_threads, n) in [(2, 4000, 2000), (4, 4000, 1000), (3, 300, 100)] {
            run(source, vps, max_threads, n, seed);
        }
    }
}
