//! A program whose allocator has a lock, which a microprocess may hold while it waits for a virtual
//! processor.
#![cfg(all(target_arch = "x86_64", target_os = "linux", not(kumihimo_asan)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use kumihimo::runtime::Runtime;
use kumihimo::thread;
use kumihimo_tests::process::{alone, keeps_a_spare};

struct Locked;

static IS_LOCKED: AtomicBool = AtomicBool::new(false);
static GAVE_UP: AtomicBool = AtomicBool::new(false);

impl Locked {
    /// Waits in the kernel, as a lock on a futex does. Gives up after 10 s: the holder needs
    /// microseconds once it runs.
    fn wait() {
        let pause = Duration::from_millis(10);
        for _ in 0..1000 {
            if !IS_LOCKED.load(SeqCst) {
                return;
            }
            std::thread::sleep(pause);
        }
        GAVE_UP.store(true, SeqCst);
    }
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Locked::wait();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Locked = Locked;

/// The holder loses the only virtual processor, whose next microprocesses block. The kernel thread
/// that takes the virtual processor then needs a successor, which is started with the allocator.
#[test]
fn holder_of_the_allocators_lock_continues_although_a_kernel_thread_is_started() {
    let name = "holder_of_the_allocators_lock_continues_although_a_kernel_thread_is_started";
    if !keeps_a_spare(name) {
        return;
    }
    alone(name, || {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            // A spare waits from the first wait on.
            let sleeps = || std::thread::sleep(Duration::from_millis(50));
            thread::spawn(sleeps).join().expect("no panic");
            let holder = thread::spawn(|| {
                IS_LOCKED.store(true, SeqCst);
                thread::yield_now();
                IS_LOCKED.store(false, SeqCst);
            });
            let sleepers = [(); 4].map(|()| thread::spawn(sleeps));
            holder.join().expect("no panic");
            sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("no panic"));
        });
        assert!(!GAVE_UP.load(SeqCst), "a kernel thread waited for the holder in vain");
    });
}
