//! An endless loop stalls nobody.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use kumihimo::net::UnixStream;
use kumihimo::policy::Priority;
use kumihimo::runtime::Runtime;
use kumihimo::sync::SpinLock;
use kumihimo::thread;
use kumihimo_tests::process::{alone, has_vps};

/// Runs until `stop`, without a call of anything.
fn spin(stop: &AtomicBool) -> u64 {
    let mut n = 0u64;
    while !stop.load(Relaxed) {
        n = n.wrapping_mul(31).wrapping_add(7);
    }
    n
}

#[test]
fn one_that_never_waits_gives_way_to_its_equals() {
    alone("loops::one_that_never_waits_gives_way_to_its_equals", || {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
            thread::scope(|s| {
                for _ in 0..3 {
                    s.spawn(|| {
                        while !stop.load(Relaxed) {
                            turns.fetch_add(1, Relaxed);
                        }
                    });
                }
                s.spawn(|| {
                    // Its turn comes round again and again.
                    for _ in 0..5 {
                        thread::sleep(Duration::from_millis(1));
                    }
                    stop.store(true, Relaxed);
                });
                spin(&stop);
            });
            assert!(turns.into_inner() > 0);
        });
    });
}

#[test]
fn descriptors_and_timers_beside_a_loop() {
    alone("loops::descriptors_and_timers_beside_a_loop", || {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let stop = AtomicBool::new(false);
            let (mut here, mut there) = UnixStream::pair().expect("a pair");
            thread::scope(|s| {
                s.spawn(|| spin(&stop));
                s.spawn(move || {
                    let mut byte = [0];
                    while there.read(&mut byte).expect("a byte") == 1 {
                        there.write_all(&byte).expect("it is taken");
                    }
                });
                for n in 0..100u8 {
                    here.write_all(&[n]).expect("it is taken");
                    let mut byte = [0];
                    here.read_exact(&mut byte).expect("it comes back");
                    assert_eq!(byte[0], n);
                    thread::sleep(Duration::from_micros(100));
                }
                stop.store(true, Relaxed);
                drop(here);
            });
        });
    });
}

/// On one VP whoever spins for a holder that sleeps, or was preempted, would keep it from ever coming back.
#[test]
fn who_spins_for_one_that_does_not_run_gives_way() {
    alone("loops::who_spins_for_one_that_does_not_run_gives_way", || {
        // No quantum ends: only the waiters' own giving way lets the holder run.
        let runtime = Runtime::builder().vps(1).policy(kumihimo::policy::FixedPriority);
        runtime.build().expect("a runtime").run(|| {
            let lock = SpinLock::new(0);
            thread::scope(|s| {
                for level in [10, 32, 50] {
                    let lock = &lock;
                    let priority = Priority::new(level).expect("a priority");
                    let work = move || {
                        for n in 0..20 {
                            let mut count = lock.lock();
                            if n % 4 == 0 {
                                // In the kernel, or only to others: away with the lock.
                                std::thread::sleep(Duration::from_millis(1));
                            } else {
                                thread::yield_now();
                            }
                            *count += 1;
                        }
                    };
                    thread::Builder::new().priority(priority).spawn_scoped(s, work).expect("it begins");
                }
            });
            assert_eq!(lock.into_inner(), 60);
        });
    });
}

/// A child of fork has its parent's descriptors, the clocks among them: they tick no more for kernel threads that have ended. (One did, in the last
/// instructions of such a kernel thread: a crash.)
#[test]
fn kernel_threads_end_while_children_have_their_clocks() {
    const NAME: &str = "loops::kernel_threads_end_while_children_have_their_clocks";
    alone(NAME, || {
        if !has_vps(NAME) {
            return;
        }
        let quantum = kumihimo::policy::RoundRobin::with_quantum(Duration::ZERO);
        for _ in 0..10 {
            let runtime = Runtime::builder().vps(2).policy(quantum).build().expect("a runtime");
            let children: Vec<i32> = runtime.run(|| {
                let stop = AtomicBool::new(false);
                thread::scope(|s| {
                    for _ in 0..4 {
                        s.spawn(|| spin(&stop));
                    }
                    let children = (0..5).map(|_| {
                        thread::sleep(Duration::from_millis(1));
                        // SAFETY: the child calls what signal-safety(7) allows.
                        match unsafe { libc::fork() } {
                            // SAFETY: as above.
                            0 => unsafe {
                                libc::usleep(200_000);
                                libc::_exit(0)
                            },
                            child => child,
                        }
                    });
                    let children = children.collect();
                    stop.store(true, Relaxed);
                    children
                })
            });
            for child in children {
                let mut status = 0;
                // SAFETY: a live word to be written.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
            }
        }
    });
}
