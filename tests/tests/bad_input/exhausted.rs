//! Exhaustion of memory, kernel threads, descriptors, and the runtime's own limits.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use kumihimo::runtime::{Events, Runtime, metrics};
use kumihimo::sync::{Mutex, mpsc};
use kumihimo::thread::{self, Builder};
use kumihimo_tests::process::{alone, is_one_to_one, kernel_threads, one_to_one, others_sleep};
use kumihimo_tests::skip;

use super::with_vps;

fn set_limit(resource: libc::__rlimit_resource_t, limit: u64) {
    // SAFETY: in and out pointers to live structs.
    unsafe {
        let mut now: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(resource, &mut now), 0);
        now.rlim_cur = limit.min(now.rlim_max);
        assert_eq!(libc::setrlimit(resource, &now), 0);
    }
}

/// Bytes of address space in use.
fn address_space() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("statm");
    text.split(' ').next().expect("a number").parse::<u64>().expect("a number") * 4096
}

#[test]
fn exhausted_address_space_refuses_microprocesses() {
    alone("exhausted::exhausted_address_space_refuses_microprocesses", || {
        with_vps(2, || {
            // Allocate everything that a first microprocess needs before the limit is set.
            thread::spawn(|| ()).join().expect("no panic");
            set_limit(libc::RLIMIT_AS, address_space() + (1 << 30));
            let (sender, receiver) = mpsc::channel::<()>();
            let receiver = Arc::new(Mutex::new(receiver));
            let mut begun = Vec::new();
            let refused = loop {
                let receiver = receiver.clone();
                let body = move || assert!(receiver.lock().expect("not poisoned").recv().is_err());
                match Builder::new().stack_size(48 << 20).spawn(body) {
                    Ok(handle) => begun.push(handle),
                    Err(e) => break e,
                }
                assert!(begun.len() < 1000, "the limit does not bind");
            };
            assert!(!one_to_one() || refused.kind() == ErrorKind::WouldBlock, "{refused:?}");
            assert!(one_to_one() || refused.to_string().contains("ulimit -v"), "{refused}");
            drop(sender);
            let all = begun.len();
            for handle in begun {
                handle.join().expect("those that began end as ever");
            }
            // Their memory is available again.
            let again: Vec<_> = (0..all)
                .map(|_| Builder::new().stack_size(48 << 20).spawn(|| ()).expect("room again"))
                .collect();
            for handle in again {
                handle.join().expect("no panic");
            }
            set_limit(libc::RLIMIT_AS, libc::RLIM_INFINITY);
        });
    });
}

/// Starts waiting microprocesses until one is refused. Then ends them, and starts one more. Returns
/// the refusal.
fn until_refused(stack: usize) -> std::io::Error {
    let gate = Arc::new(AtomicBool::new(false));
    let mut begun = Vec::new();
    let refused = loop {
        let gate = gate.clone();
        let wait = move || {
            while !gate.load(SeqCst) {
                thread::park();
            }
        };
        match Builder::new().stack_size(stack).spawn(wait) {
            Ok(handle) => begun.push(handle),
            Err(e) => break e,
        }
        assert!(begun.len() <= 2000, "the limit does not bind");
    };
    gate.store(true, SeqCst);
    for handle in begun {
        handle.thread().unpark();
        handle.join().expect("no panic");
    }
    Builder::new().stack_size(stack).spawn(|| ()).expect("room again").join().expect("no panic");
    refused
}

#[test]
fn microprocesses_beyond_the_runtimes_limits_are_refused() {
    alone("exhausted::microprocesses_beyond_the_runtimes_limits_are_refused", || {
        let limited = |builder: kumihimo::runtime::Builder, word: &str| {
            builder.vps(2).build().expect("a runtime").run(|| {
                let refused = until_refused(2 << 20);
                assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
                assert!(refused.to_string().contains(word), "{refused}");
            });
        };
        limited(Runtime::builder().max_microprocesses(20), "Builder::max_microprocesses");
        if is_one_to_one() {
            return skip(
                "exhausted::microprocesses_beyond_the_runtimes_limits_are_refused",
                "the stacks of kernel threads are not counted",
            );
        }
        let made = {
            let runtime = Runtime::builder().vps(1).build().expect("a runtime");
            let now = metrics().expect("it runs");
            drop(runtime);
            now
        };
        // Pooled stacks of this size are used before new ones.
        limited(Runtime::builder().max_stacks(made.stacks + 200), "Builder::max_stacks");
        let bytes = made.stack_bytes + (1 << 30);
        limited(Runtime::builder().max_stack_memory(bytes), "Builder::max_stack_memory");
    });
}

#[test]
fn exhausted_kernel_threads_make_blocking_hold_its_vp() {
    alone("exhausted::exhausted_kernel_threads_make_blocking_hold_its_vp", || {
        Runtime::builder().vps(1).max_kernel_threads(1).build().expect("a runtime").run(|| {
            if one_to_one() {
                return skip(
                    "exhausted::exhausted_kernel_threads_make_blocking_hold_its_vp",
                    "every microprocess is a kernel thread",
                );
            }
            let other = thread::spawn(|| 5);
            assert_eq!(thread::blocking(|| 7), 7);
            assert_eq!(other.join().expect("no panic"), 5);
            let now = metrics().expect("it runs");
            assert_eq!((now.blocking_inline, now.hand_offs, now.kernel_threads), (1, 0, 1));
        });
    });
}

#[test]
fn blocking_without_memory_for_a_thread_holds_its_vp() {
    alone("exhausted::blocking_without_memory_for_a_thread_holds_its_vp", || {
        // With events, a spare kernel thread would already be waiting.
        Runtime::builder().vps(1).events(Events::Off).build().expect("a runtime").run(|| {
            if one_to_one() {
                return skip(
                    "exhausted::blocking_without_memory_for_a_thread_holds_its_vp",
                    "every microprocess is a kernel thread",
                );
            }
            // A starting thread needs memory, or temporarily has more than it keeps: glibc maps an
            // arena of twice its size and trims it.
            others_sleep();
            // Less memory than a kernel thread's stack is left.
            set_limit(libc::RLIMIT_AS, address_space() + (64 << 10));
            let answer = thread::blocking(|| 7);
            set_limit(libc::RLIMIT_AS, libc::RLIM_INFINITY);
            assert_eq!(answer, 7);
            assert_eq!(metrics().expect("it runs").blocking_inline, 1);
            assert_eq!(thread::blocking(|| 8), 8);
            assert_eq!(metrics().expect("it runs").blocking_inline, 1, "and then there is one");
        });
    });
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("fd").count()
}

#[test]
fn build_fails_without_descriptors() {
    alone("exhausted::build_fails_without_descriptors", || {
        // Open the descriptors that the process keeps.
        with_vps(1, || ());
        let before = descriptors();
        set_limit(libc::RLIMIT_NOFILE, before as u64 + 3);
        let refused = Runtime::builder().vps(16).build().expect_err("too few descriptors");
        let text = refused.to_string();
        assert!(text.contains("os error 24") && text.contains("ulimit -n"), "{text}");
        set_limit(libc::RLIMIT_NOFILE, 4096);
        assert_eq!(descriptors(), before, "what was opened is closed");
        with_vps(16, || thread::spawn(|| ()).join().expect("no panic"));
        assert_eq!(descriptors(), before);
    });
}

#[test]
fn build_fails_without_kernel_threads() {
    alone("exhausted::build_fails_without_kernel_threads", || {
        // Create everything that the process keeps.
        with_vps(1, || ());
        // SAFETY: no pointers. The limit does not apply to root. A process that changes its user
        // must become dumpable again to see its own descriptors.
        let changed = unsafe {
            libc::geteuid() != 0
                || libc::setuid(54_321) == 0 && libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) == 0
        };
        if !changed {
            return skip(
                "exhausted::build_fails_without_kernel_threads",
                "root here may not become another user",
            );
        }
        let (before, threads) = (descriptors(), kernel_threads());
        set_limit(libc::RLIMIT_NPROC, threads as u64 + 3);
        let refused = Runtime::builder().vps(64).build().expect_err("too few kernel threads");
        set_limit(libc::RLIMIT_NPROC, libc::RLIM_INFINITY);
        let text = refused.to_string();
        assert!(text.contains("virtual processor") && text.contains("Builder::vps"), "{text}");
        assert_eq!((descriptors(), kernel_threads()), (before, threads), "what had begun is ended");
        with_vps(64, || thread::spawn(|| ()).join().expect("no panic"));
    });
}

/// No virtual processor keeps a free stack that another one needs.
#[test]
fn small_limit_on_stacks_is_exact() {
    alone("exhausted::small_limit_on_stacks_is_exact", || {
        for _ in 0..100 {
            let runtime = Runtime::builder().vps(4).max_stacks(2).build().expect("a runtime");
            // Until the virtual processors are idle.
            std::thread::sleep(Duration::from_micros(200));
            runtime.run(|| {
                for _ in 0..10 {
                    let one = Builder::new().spawn(thread::yield_now).expect("within the limit");
                    one.join().expect("no panic");
                }
            });
        }
    });
}
