//! `parked`.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Release};

use kumihimo_bench_kit::{CROWD, Memory, Request, sample};
use may::coroutine;
use may::go;

pub fn parked(request: &Request) {
    let count = request.value("count", CROWD);
    let (stands, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let before = Memory::now();
    let made: Vec<_> = (0..count)
        .map(|i| {
            let (stands, gate) = (stands.clone(), gate.clone());
            go!(move || {
                let kept = black_box(Box::new(i));
                stands.fetch_add(1, Release);
                while !gate.load(Acquire) {
                    coroutine::park();
                }
                assert_eq!(*kept, i);
            })
        })
        .collect();
    while stands.load(Acquire) < count {
        coroutine::yield_now();
    }
    let (rss, kernel) = Memory::now().each_since(&before, count);
    let stack = request.get("stack").unwrap_or("default");
    let keys = format!("count={count} stack={stack} alive_max:={count}");
    sample("rss", rss, "bytes", &keys);
    sample("kernel", kernel, "bytes", &keys);
    gate.store(true, Release);
    for one in &made {
        one.coroutine().unpark();
    }
    for one in made {
        one.join().expect("no panic");
    }
}
