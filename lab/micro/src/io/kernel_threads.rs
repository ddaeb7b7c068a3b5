//! `kernel-threads`: of many waiting microprocesses, only those that wait in the kernel occupy a
//! kernel thread.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::time::Duration;

use kumihimo::thread;
use kumihimo_bench_kit::{CROWD, Memory, Request, sample};
use rustix::event::{EventfdFlags, eventfd};

use crate::variant::Variant;

/// Time limit for all microprocesses to reach the kernel.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn kernel_threads(request: &Request) {
    let source = request.get("events").unwrap_or("off");
    let count = request.value("count", CROWD);
    let blocked = request.value("blocked", 0usize).min(count);
    let variant = Variant::of(request).stack(Some(1));
    let standing = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(AtomicBool::new(false));
    // Each read takes one unit, and blocks while there is none.
    let event = eventfd(0, EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC).expect("an eventfd");
    let event = Arc::new(File::from(event));
    let done = give_up_later(standing.clone(), count);
    let mut made = Vec::with_capacity(count);
    made.resize_with(count, || None);
    let before = Memory::now();
    let (parked_places, blocked_places) = made.split_at_mut(count - blocked);
    for place in parked_places {
        let (standing, gate) = (standing.clone(), gate.clone());
        *place = Some(variant.spawn(move || {
            standing.fetch_add(1, Relaxed);
            while !gate.load(Acquire) {
                thread::park();
            }
        }));
    }
    until(&standing, count - blocked);
    let parked = Memory::now();
    for place in blocked_places {
        let (standing, event) = (standing.clone(), event.clone());
        *place = Some(variant.spawn(move || {
            standing.fetch_add(1, Relaxed);
            let mut taken = [0; 8];
            assert_eq!((&*event).read(&mut taken).expect("no EINTR"), 8);
            assert_eq!(u64::from_ne_bytes(taken), 1);
        }));
    }
    until(&standing, count);
    let now = Memory::now();
    let threads = std::fs::read_dir("/proc/self/task").expect("/proc").count();
    done.store(true, Release);
    let keys = format!("microprocesses={count} blocked={blocked} events={source}");
    sample("count", threads as f64, "threads", &keys);
    let (_, kernel) = now.each_since(&before, 1);
    sample("kernel_bytes", kernel, "bytes", &keys);
    if blocked > 0 {
        let (_, each) = now.each_since(&parked, blocked);
        sample("kernel_each_blocked", each, "bytes", &keys);
        (&*event).write_all(&(blocked as u64).to_ne_bytes()).expect("room");
    }
    gate.store(true, Release);
    for one in made.into_iter().flatten() {
        one.thread().unpark();
        one.join().expect("no panic");
    }
}

fn until(standing: &AtomicUsize, count: usize) {
    while standing.load(Relaxed) < count {
        thread::yield_now();
    }
}

/// Starts a kernel thread that ends the process with a message unless the test succeeds in time: if
/// every VP is blocked in the kernel, no microprocess could report it.
fn give_up_later(standing: Arc<AtomicUsize>, count: usize) -> Arc<AtomicBool> {
    let done = Arc::new(AtomicBool::new(false));
    let told = done.clone();
    // Never joined: ends with the process.
    std::thread::spawn(move || {
        std::thread::sleep(PATIENCE);
        if !told.load(Acquire) {
            let n = standing.load(Relaxed);
            eprintln!(
                "kernel-threads: {n} of {count} have begun after {} s: the VPs are blocked in the kernel",
                PATIENCE.as_secs()
            );
            std::process::exit(1);
        }
    });
    done
}
