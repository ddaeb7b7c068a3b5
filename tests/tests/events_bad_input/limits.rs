//! Kernel threads, descriptors or locked memory run out during hand-offs: the runtime counts this,
//! reports it once, and loses nothing.

use std::fs::File;
use std::io::Write;
use std::sync::mpsc;

use kumihimo::runtime::{Events, Runtime, metrics};
use kumihimo::thread;
use kumihimo_tests::process::{kernel_threads, one_to_one};
use kumihimo_tests::user::{become_user, own_user};

use crate::blocked::{Blocked, begin, block, create_stacks, nanosleep};
use crate::under::{ALL, limit, under, well_and_said_once, with_vps};

/// Report that no further kernel thread, descriptor or locked memory is available.
const SAID: &str = "kumihimo: no further kernel thread for a virtual processor";

/// A kernel thread outside of the runtime that releases the blocked microprocesses, because the VPs
/// may be waiting for a kernel thread. Created before a resource runs out.
struct Outside {
    give: mpsc::Sender<Blocked>,
    take: mpsc::Receiver<Blocked>,
}

impl Outside {
    fn begin() -> Outside {
        let (give, given) = mpsc::channel::<Blocked>();
        let (back, take) = mpsc::channel();
        std::thread::spawn(move || {
            for blocked in given {
                while metrics().expect("it runs").exhausted == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                // Microprocesses that have not started yet will find the bytes.
                blocked.write();
                back.send(blocked).expect("it is awaited");
            }
        });
        Outside { give, take }
    }

    /// Blocks more microprocesses than there are kernel threads.
    fn too_many_block(&self, n: u64) {
        self.give.send(begin(n).blocked).expect("a listening socket");
        // The caller must not occupy its VP while it waits.
        thread::blocking(|| self.take.recv()).expect("no panic").await_end();
    }
}

#[test]
fn max_kernel_threads_is_reached() {
    under(
        "limits::max_kernel_threads_is_reached",
        &ALL,
        |_| {
            Runtime::builder().vps(2).max_kernel_threads(5).build().expect("a runtime").run(|| {
                if one_to_one() {
                    return eprintln!("\n[skip] microprocesses are kernel threads here");
                }
                let outside = Outside::begin();
                create_stacks(20);
                for _ in 0..3 {
                    outside.too_many_block(20);
                }
                let now = metrics().expect("it runs");
                assert!(now.exhausted > 0 && now.kernel_threads <= 5, "{now:?}");
                // Afterwards everything works as before.
                block(2).release();
            });
        },
        well_and_said_once(SAID),
    );
}

#[test]
fn exhausted_user_processes_delay_handoffs_only() {
    under(
        "limits::exhausted_user_processes_delay_handoffs_only",
        &[Events::Perf, Events::Watch],
        |_| {
            if !become_user(own_user()) {
                return eprintln!("\n[skip] not root");
            }
            with_vps(2, || {
                block(2).release();
                let outside = Outside::begin();
                create_stacks(100);
                limit(libc::RLIMIT_NPROC, kernel_threads() as u64 + 3);
                for _ in 0..3 {
                    outside.too_many_block(20);
                }
                assert!(metrics().expect("it runs").exhausted > 0);
                limit(libc::RLIMIT_NPROC, libc::RLIM_INFINITY);
                block(20).release();
            });
        },
        well_and_said_once(SAID),
    );
}

/// Number of the lowest free descriptor.
fn next_descriptor() -> u64 {
    let fd = File::open("/dev/null").expect("a descriptor");
    std::os::fd::AsRawFd::as_raw_fd(&fd) as u64
}

/// With `bpf`, each kernel thread has a descriptor. With `perf`, each thread that carries a VP has
/// one, and passes it on.
#[test]
fn exhausted_descriptors_delay_handoffs_only() {
    under(
        "limits::exhausted_descriptors_delay_handoffs_only",
        &[Events::Bpf],
        |source| {
            with_vps(2, || {
                block(2).release();
                let n = 20;
                let gates: Vec<_> = (0..n).map(|_| std::io::pipe().expect("a pipe")).collect();
                limit(libc::RLIMIT_NOFILE, next_descriptor() + 2);
                let (readers, mut writers): (Vec<_>, Vec<_>) = gates.into_iter().unzip();
                // Before the readers begin: they may hold up all VPs, and with them this
                // microprocess.
                let release = std::thread::spawn(move || {
                    while metrics().expect("it runs").exhausted == 0 {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    for (number, writer) in (0u8..).zip(&mut writers) {
                        writer.write_all(&[number]).expect("room");
                    }
                    writers
                });
                let handles: Vec<_> = readers
                    .into_iter()
                    .map(|mut reader| {
                        thread::spawn(move || {
                            let mut byte = [0];
                            assert_eq!(
                                std::io::Read::read(&mut reader, &mut byte).expect("no EINTR"),
                                1
                            );
                            // The descriptors stay open.
                            (reader, byte[0])
                        })
                    })
                    .collect();
                // Lets the readers use up the descriptors.
                (0..100).for_each(|_| thread::yield_now());
                let readers: Vec<_> = (0u8..)
                    .zip(handles)
                    .map(|(number, handle)| {
                        let (reader, got) = handle.join().expect("no panic");
                        assert_eq!(got, number, "under {source}");
                        reader
                    })
                    .collect();
                let _writers = thread::blocking(|| release.join()).expect("no panic");
                limit(libc::RLIMIT_NOFILE, u64::MAX);
                drop(readers);
                // A thread without an event may still carry a VP. Threads in the pool get an event
                // before they carry the next one.
                let many = begin(20);
                thread::blocking(|| many.blocked.write());
                many.blocked.await_end();
            });
        },
        well_and_said_once(SAID),
    );
}

/// Without a free descriptor, /proc cannot be read. A microprocess that another one on the same VP
/// releases must not wait indefinitely.
#[test]
fn blocks_are_reported_without_a_free_descriptor() {
    under(
        "limits::blocks_are_reported_without_a_free_descriptor",
        &[Events::Perf, Events::Watch],
        |_| {
            with_vps(1, || {
                // Spares that already have their descriptors.
                block(3).release();
                let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
                let others: Vec<_> =
                    (0..4).map(|_| File::open("/dev/null").expect("a descriptor")).collect();
                limit(libc::RLIMIT_NOFILE, next_descriptor());
                let reads = thread::spawn(move || {
                    let mut byte = [0];
                    std::io::Read::read(&mut reader, &mut byte).expect("no EINTR");
                    byte[0]
                });
                let writes = thread::spawn(move || {
                    writer.write_all(&[9]).expect("room");
                    writer
                });
                // A descriptor becomes free at times, as in a server at its limit.
                assert_eq!(reads.join().expect("no panic"), 9);
                drop(writes.join().expect("no panic"));
                drop(others);
            });
        },
        crate::under::well,
    );
}

/// A user may lock about 500 KiB for each CPU, and beyond that as much as RLIMIT_MEMLOCK allows.
/// With perf, each VP's kernel thread needs 8 KiB.
#[test]
fn exhausted_locked_memory_delays_handoffs_only() {
    under(
        "limits::exhausted_locked_memory_delays_handoffs_only",
        &[Events::Perf],
        |_| {
            limit(libc::RLIMIT_MEMLOCK, 0);
            // Several descriptors for each VP.
            limit(libc::RLIMIT_NOFILE, u64::MAX);
            if !become_user(own_user()) {
                return eprintln!("\n[skip] not root");
            }
            // SAFETY: an integer.
            let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } as usize;
            let text =
                std::fs::read_to_string("/proc/sys/kernel/perf_event_mlock_kb").expect("/proc");
            let free = text.trim().parse::<usize>().expect("a number") * cpus / 4;
            // Two pages for each VP.
            let vps = free + 8;
            if vps > 1024 {
                return eprintln!(
                    "\n[skip] with {cpus} CPUs, the locked memory suffices for more than 1024 VPs"
                );
            }
            with_vps(vps, || {
                let outside = Outside::begin();
                while metrics().expect("it runs").exhausted == 0 {
                    thread::spawn(thread::yield_now).join().expect("no panic");
                }
                outside.too_many_block(3);
                let naps: Vec<_> =
                    (0..50).map(|_| thread::spawn(|| assert_eq!(nanosleep(100_000), 0))).collect();
                for nap in naps {
                    nap.join().expect("no panic");
                }
            });
        },
        well_and_said_once(SAID),
    );
}
