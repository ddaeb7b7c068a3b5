//! `parked`: memory use of a microprocess that has run, allocated a little, and waits.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use kumihimo::thread;
use kumihimo_bench_kit::{CROWD, Memory, Request, sample};

use crate::variant::Variant;

pub fn parked(request: &Request) {
    let count = request.value("count", CROWD);
    let stack = request.get("stack").unwrap_or("default");
    // A size below the minimum selects the minimum.
    let size = if stack == "min" { Some(1) } else { None };
    let variant = Variant::of(request).stack(size);
    let used = request.get("part") == Some("parked_used");
    let standing = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(AtomicBool::new(false));
    let mut made = Vec::with_capacity(count);
    // Allocated before, as by all contenders: the list of handles is not part of the cost.
    made.resize_with(count, || None);
    let before = Memory::now();
    for (i, place) in made.iter_mut().enumerate() {
        let (standing, gate) = (standing.clone(), gate.clone());
        *place = Some(variant.spawn(move || {
            let kept = black_box(Box::new(i));
            if used {
                black_box((0..200).map(Box::new).collect::<Vec<_>>());
            }
            standing.fetch_add(1, Relaxed);
            while !gate.load(Acquire) {
                thread::park();
            }
            assert_eq!(*kept, i);
        }));
    }
    while standing.load(Relaxed) < count {
        thread::yield_now();
    }
    let (rss, kernel) = Memory::now().each_since(&before, count);
    let keys = format!("count={count} stack={stack} alive_max:={count}");
    if used {
        sample("parked_used", rss, "bytes", &keys);
    } else {
        sample("rss", rss, "bytes", &keys);
        sample("kernel", kernel, "bytes", &keys);
    }
    gate.store(true, Release);
    for one in made.into_iter().flatten() {
        one.thread().unpark();
        one.join().expect("no panic");
    }
}

/// For the tour: a microprocess that increments `standing`, parks until the gate is open, and
/// returns its number. A lean one has the smallest stack.
///
/// # Errors
/// As `kumihimo::thread::Builder::spawn`.
pub fn park_one(
    lean: bool,
    number: usize,
    standing: Arc<AtomicUsize>,
    gate: Arc<AtomicBool>,
) -> std::io::Result<thread::JoinHandle<usize>> {
    park(Variant::default().lean(lean).stack(lean.then_some(1)), number, standing, gate)
}

/// As [`park_one`], of the given variant.
pub(crate) fn park(
    variant: Variant,
    number: usize,
    standing: Arc<AtomicUsize>,
    gate: Arc<AtomicBool>,
) -> std::io::Result<thread::JoinHandle<usize>> {
    variant.try_spawn(move || {
        standing.fetch_add(1, Relaxed);
        while !gate.load(Acquire) {
            thread::park();
        }
        number
    })
}
