//! Random mix of waits inside and outside of the runtime, under every event source and with random
//! limits on kernel threads. Every wait ends and the books balance. Seconds in `make test`, minutes
//! in `make soak`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use kumihimo::policy::Priority;
use kumihimo::runtime::{OnDeadlock, Runtime, metrics};
use kumihimo::sync::{Mutex, mpmc};
use kumihimo::thread::{self, Builder};
use kumihimo_events::source::{Kind, open_one};
use kumihimo_tests::pipe_echo::PipeEcho;
use kumihimo_tests::process::{again, is_child, one_to_one};
use kumihimo_tests::{Random, rounds, skip};

const ACTORS: u64 = 24;
const STEPS: u64 = 120;
const SOURCES: [Kind; 3] = [Kind::Bpf, Kind::Perf, Kind::Watch];

/// State shared by the actors.
struct World {
    /// Two pairs of numbers. Those of a pair are equal whenever its lock is free.
    ours: Mutex<(u64, u64)>,
    std: std::sync::Mutex<(u64, u64)>,
    locks_of_std: bool,
    /// Entries in both books.
    booked: AtomicU64,
    post: mpmc::Sender<u64>,
    posted: AtomicU64,
}

/// An echo thread that answers a quarter of the bytes late.
fn echo() -> PipeEcho {
    PipeEcho::delayed(|byte| (byte % 4 == 0).then(|| Duration::from_micros(u64::from(byte))))
}

/// Asks with a random byte.
fn ask(echo: &mut PipeEcho, random: &mut Random) {
    echo.ask(random.below(256) as u8);
}

fn short(random: &mut Random) -> Duration {
    Duration::from_micros(random.below(400))
}

fn step(world: &World, outside: &mut PipeEcho, random: &mut Random) {
    match random.below(16) {
        0..6 => (0..1 + random.below(8)).for_each(|_| ask(outside, random)),
        6 => std::thread::sleep(short(random)),
        7..9 if world.locks_of_std => {
            let mut books = world.std.lock().expect("no panic while locked");
            assert_eq!(books.0, books.1);
            books.0 += 1;
            if random.one_in(4) {
                std::thread::sleep(short(random));
            }
            books.1 += 1;
            world.booked.fetch_add(1, Relaxed);
        }
        7..11 => {
            let mut books = world.ours.lock().expect("no panic while locked");
            assert_eq!(books.0, books.1);
            books.0 += 1;
            match random.below(4) {
                0 => thread::yield_now(),
                1 => thread::sleep(short(random)),
                // Waiters for this lock wait in the runtime and need no kernel thread.
                2 => ask(outside, random),
                _ => {}
            }
            books.1 += 1;
            world.booked.fetch_add(1, Relaxed);
        }
        11 => thread::sleep(short(random)),
        12 => thread::blocking(|| std::thread::sleep(short(random))),
        13 => {
            let n = random.below(1000);
            world.post.send(n).expect("a receiver");
            world.posted.fetch_add(n, Relaxed);
        }
        14 => (0..random.below(20)).for_each(|_| thread::yield_now()),
        _ => {
            let n = random.below(50_000);
            std::hint::black_box((0..n).fold(n, |n, i| n.wrapping_mul(31).wrapping_add(i)));
        }
    }
}

fn play(random: &mut Random, limit: usize) {
    let (post, letters) = mpmc::channel();
    let world = Arc::new(World {
        ours: Mutex::default(),
        std: std::sync::Mutex::default(),
        // At the limit, waiters for a std lock could occupy every kernel thread while its holder is
        // preempted.
        locks_of_std: limit > ACTORS as usize + 8,
        booked: AtomicU64::new(0),
        post,
        posted: AtomicU64::new(0),
    });
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let letters = letters.clone();
            thread::spawn(move || letters.iter().sum::<u64>())
        })
        .collect();
    drop(letters);
    let differ = random.one_in(3);
    let actors: Vec<_> = (0..ACTORS)
        .map(|_| {
            let (world, mut own) = (world.clone(), random.split());
            let mut builder = Builder::new();
            if differ && own.one_in(4) {
                builder =
                    builder.priority(Priority::new(20 + own.below(20) as u8).expect("a priority"));
            }
            let acts = move || {
                let mut outside = echo();
                (0..STEPS).for_each(|_| step(&world, &mut outside, &mut own));
            };
            builder.spawn(acts).expect("memory")
        })
        .collect();
    actors.into_iter().for_each(|actor| actor.join().expect("no panic"));
    let (booked, posted) = (world.booked.load(Relaxed), world.posted.load(Relaxed));
    let (ours, std) = (*world.ours.lock().expect("no panic"), *world.std.lock().expect("no panic"));
    assert_eq!((ours.0 + std.0, ours.1 + std.1), (booked, booked));
    drop(world);
    assert_eq!(
        readers.into_iter().map(|reader| reader.join().expect("no panic")).sum::<u64>(),
        posted
    );
}

#[test]
fn every_wait_ends() {
    const NAME: &str = "every_wait_ends";
    if is_child(NAME) {
        for mut round in rounds(NAME) {
            let random = &mut round.random;
            let vps = 1 + random.below(3) as usize;
            let most = if random.one_in(2) { 6 } else { 60 };
            let limit = vps + 1 + random.below(most) as usize;
            let builder = Runtime::builder()
                .vps(vps)
                .max_kernel_threads(limit)
                .on_deadlock(OnDeadlock::Abort);
            let builder = if random.one_in(4) { builder.sticky(false) } else { builder };
            builder.build().expect("a runtime").run(|| {
                play(random, limit);
                let now = metrics().expect("it runs");
                assert!(one_to_one() || now.kernel_threads <= limit, "{limit}: {now:?}");
            });
        }
        return;
    }
    for source in SOURCES {
        if let Err(refused) = open_one(source, 8) {
            skip(&format!("{source}: {NAME}"), &refused.to_string());
            continue;
        }
        let ended = again(NAME, &[("KUMI_EVENTS", source.name())]);
        assert!(ended.status.success(), "under {source}: {}", ended.told());
    }
}
