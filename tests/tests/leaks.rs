//! Leak tests: memory, stacks, descriptors and kernel threads return to their previous level after
//! many runtimes and microprocesses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use kumihimo::net::UnixStream;
use kumihimo::runtime::{Design, Runtime, metrics};
use kumihimo::sync::Barrier;
use kumihimo::thread::{self, Builder};
use kumihimo_tests::process::{alone, has_vps, is_one_to_one, kernel_threads, one_to_one};
use kumihimo_tests::{extent, skip};

/// Resources that must not grow.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    kernel_threads: usize,
    mappings: usize,
}

fn held() -> Held {
    let entries = |path| std::fs::read_dir(path).expect("procfs").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
    Held {
        descriptors: entries("/proc/self/fd"),
        kernel_threads: kernel_threads(),
        mappings: maps.lines().count(),
    }
}

/// Resident memory in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    text.split(' ').nth(1).expect("a number").parse::<u64>().expect("a number") * 4096
}

/// Value of `KUMI_LEAK_MICROPROCESSES`, or `default`.
fn microprocesses(default: u64) -> u64 {
    std::env::var("KUMI_LEAK_MICROPROCESSES")
        .map_or(default, |text| text.parse().expect("a number"))
}

fn a_runtime(vps: usize) -> usize {
    Runtime::builder().vps(vps).build().expect("a runtime").run(|| {
        let sum = AtomicU64::new(0);
        thread::scope(|s| {
            for n in 0..5 {
                let sum = &sum;
                s.spawn(move || sum.fetch_add(n, Relaxed));
            }
        });
        assert_eq!(sum.into_inner(), 10);
        assert_eq!(thread::blocking(|| 7), 7);
        let (mut here, there) = UnixStream::pair().expect("a pair");
        drop(thread::spawn(move || drop(there)));
        assert_eq!(std::io::Read::read(&mut here, &mut [0]).expect("the end"), 0);
        // A microprocess that the end of the runtime cancels.
        if !one_to_one() {
            drop(thread::spawn(thread::park));
        }
        metrics().expect("it runs").stacks
    })
}

/// AddressSanitizer delays the release of freed memory on purpose.
const QUARANTINE: bool = cfg!(kumihimo_asan);

#[test]
fn thousand_runtimes_leak_nothing() {
    alone("thousand_runtimes_leak_nothing", || {
        for n in 0..50 {
            a_runtime(1 + n % 4);
        }
        let stacks = a_runtime(4);
        let (before, memory) = (held(), resident());
        for n in 0..extent(1000, 300) {
            a_runtime(1 + n % 4);
        }
        let (after, now) = (held(), resident());
        assert_eq!(
            (after.descriptors, after.kernel_threads),
            (before.descriptors, before.kernel_threads)
        );
        let more = a_runtime(4).saturating_sub(stacks);
        assert!(more <= 512, "stacks must be reused: {more} more than {stacks}");
        // The number of mappings varies: the allocator's arenas depend on the kernel threads that
        // lived at the same time, and a stack whose guard was made by mprotect(2) takes two
        // mappings.
        assert!(
            after.mappings <= before.mappings + 32 + 2 * more,
            "{more} more stacks, {before:?} {after:?}"
        );
        assert!(QUARANTINE || now < memory + (16 << 20), "{memory} bytes before, {now} after");
    });
}

/// A kernel thread inside `blocking` outlives its runtime and the VPs. The stacks that the VPs have
/// cached must not be lost.
#[test]
fn kernel_threads_that_outlive_their_runtime_return_stacks() {
    const NAME: &str = "kernel_threads_that_outlive_their_runtime_return_stacks";
    const RUNTIMES: usize = 20;
    alone(NAME, || {
        if !has_vps(NAME) {
            return;
        }
        let stacks = a_runtime(2);
        let before = kernel_threads();
        for _ in 0..RUNTIMES {
            let (mut reader, writer) = std::io::pipe().expect("a pipe");
            let runtime = Runtime::builder().vps(2).shutdown_grace(Duration::from_millis(1));
            runtime.build().expect("a runtime").run(|| {
                let (begun, begins) = std::sync::mpsc::channel();
                drop(thread::spawn(move || {
                    thread::blocking(move || {
                        begun.send(()).expect("it is waited for");
                        std::io::Read::read(&mut reader, &mut [0]).expect("the end")
                    })
                }));
                thread::blocking(|| begins.recv()).expect("it begins");
            });
            assert!(kernel_threads() > before, "one is inside `blocking`");
            drop(writer);
            while kernel_threads() > before {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // Microprocesses inside `blocking` never ran again, and keep their stacks.
        let more = a_runtime(2).saturating_sub(stacks);
        assert!(more <= RUNTIMES + 256, "stacks must be reused: {more} more than {stacks}");
    });
}

/// Spawns microprocesses: some with names, some that yield, some that allocate memory, some that
/// are never joined.
fn batch(size: u64) {
    thread_local!(static OWN: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) });
    let all: Vec<_> = (0..size)
        .map(|n| {
            let body = move || {
                if n % 16 == 0 {
                    OWN.with_borrow_mut(|own| own.resize(100, 1));
                    thread::yield_now();
                }
                n
            };
            if n % 64 == 0 {
                Builder::new().name(format!("n{n}")).spawn(body)
            } else {
                Builder::new().spawn(body)
            }
        })
        .collect();
    for (n, handle) in all.into_iter().enumerate() {
        let handle = handle.expect("it begins");
        if n % 8 != 0 {
            assert_eq!(handle.join().expect("no panic"), n as u64);
        }
    }
}

/// Checks that memory, kernel threads and descriptors after `total` microprocesses are as after the
/// first few.
fn nothing_is_left_by(total: u64) {
    let size = (total / 20).clamp(1, 1000);
    for _ in 0..5 {
        batch(size);
    }
    let (before, memory, stacks) = (held(), resident(), metrics().expect("it runs").stacks);
    for _ in 0..total / size {
        batch(size);
    }
    // Threads kept by the pool. The pool is larger for a moment after blocks, here in the
    // allocator.
    let kept = 1 + metrics().expect("it runs").vps.len();
    // Some event sources use a descriptor for each kernel thread, and so does its preemption clock.
    // The first measurement may include neither.
    let descriptors = before.descriptors + before.kernel_threads + 2 * kept;
    let is_more = |now: &Held| {
        now.kernel_threads > before.kernel_threads + kept || now.descriptors > descriptors
    };
    let mut after = held();
    while !one_to_one() && is_more(&after) {
        eprintln!("{before:?} before, {after:?} after");
        thread::sleep(Duration::from_millis(100));
        after = held();
    }
    let (now, end) = (resident(), metrics().expect("it runs"));
    if one_to_one() {
        assert!(after.descriptors <= before.descriptors + kept, "{before:?}, then {after:?}");
    } else {
        assert!(end.stacks <= stacks + 2048, "{stacks} stacks before, {} after", end.stacks);
        // Each new stack has touched pages at its top and in its TLS block.
        let more = (end.stacks.saturating_sub(stacks) as u64) * (16 << 10);
        assert!(
            QUARANTINE || now < memory + more + (16 << 20),
            "{memory} bytes before, {now} after"
        );
        assert!(end.spawned >= total);
    }
}

#[test]
fn million_microprocesses_leak_nothing() {
    alone("million_microprocesses_leak_nothing", || {
        let total = microprocesses(if is_one_to_one() { 10_000 } else { 1_000_000 });
        Runtime::builder().vps(2).build().expect("a runtime").run(|| nothing_is_left_by(total));
        assert!(metrics().is_none());
    });
}

/// A microprocess may steal from another queue on any stack. Queues with state in thread-local
/// storage must not leak memory for each such microprocess.
#[test]
fn millions_of_stealable_microprocesses_leak_nothing() {
    const NAME: &str = "millions_of_stealable_microprocesses_leak_nothing";
    let Some(design) = Design::ALL.into_iter().find(|design| design.has_thieves()) else {
        return skip(NAME, "work stealing needs the feature `lab`");
    };
    alone(NAME, || {
        let total = microprocesses(if is_one_to_one() { 10_000 } else { 4_000_000 });
        Runtime::builder()
            .vps(2)
            .queue(design)
            .build()
            .expect("a runtime")
            .run(|| nothing_is_left_by(total));
    });
}

/// Memory used by many concurrent microprocesses is returned to the kernel when the runtime is
/// idle, without a call of `trim`.
#[test]
fn idle_runtime_returns_memory() {
    const CROWD: usize = 2_000;
    const USED: usize = 64 << 10;
    alone("idle_runtime_returns_memory", || {
        Runtime::builder().vps(2).build().expect("a runtime").run(|| {
            if one_to_one() {
                return println!("[skip] idle_runtime_returns_memory: stacks belong to the C library");
            }
            if QUARANTINE {
                return println!(
                    "[skip] idle_runtime_returns_memory: AddressSanitizer keeps memory of its own for each stack"
                );
            }
            let before = resident();
            let gate = Arc::new(Barrier::new(CROWD + 1));
            let all: Vec<_> = (0..CROWD)
                .map(|_| {
                    let gate = gate.clone();
                    thread::spawn(move || {
                        let deep = std::hint::black_box([1u8; USED]);
                        gate.wait();
                        usize::from(deep[USED / 2])
                    })
                })
                .collect();
            gate.wait();
            assert!(resident().saturating_sub(before) > (CROWD * USED) as u64, "all of it was in use");
            assert_eq!(all.into_iter().map(|one| one.join().expect("no panic")).sum::<usize>(), CROWD);
            // Up to half of the memory may be cached by the virtual processors, which keep it.
            while resident().saturating_sub(before) > (CROWD * USED / 2) as u64 {
                thread::sleep(Duration::from_millis(50));
            }
        });
    });
}
