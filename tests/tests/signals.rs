//! Signals that arrive on any stack: the smallest one, and with handlers that use no alternate
//! stack.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use kumihimo::runtime::Runtime;
use kumihimo::signal;
use kumihimo::thread::{self, Builder};
use kumihimo_tests::place::Place;
use kumihimo_tests::process::{again, alone, is_child};

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    // A handler that uses some stack.
    let room = std::hint::black_box([1u64; 64]);
    HANDLED.fetch_add(room[7], SeqCst);
}

/// Without `SA_ONSTACK`, the handler runs on the current stack.
fn install(flags: libc::c_int) {
    // SAFETY: a handler of the right type, and a live struct.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
}

#[test]
fn signals_fit_on_the_smallest_stack() {
    alone("signals_fit_on_the_smallest_stack", || {
        install(0);
        Runtime::builder().vps(2).build().expect("a runtime").run(|| {
            let raise = || {
                for _ in 0..100 {
                    // SAFETY: the handler is async-signal-safe.
                    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
                    thread::yield_now();
                }
            };
            let all: Vec<_> = (0..20)
                .map(|_| Builder::new().stack_size(0).spawn(raise).expect("it begins"))
                .collect();
            for handle in all {
                handle.join().expect("no panic");
            }
        });
        assert_eq!(HANDLED.load(SeqCst), 2000);
    });
}

/// A kernel thread that signals all others repeatedly.
struct Storm {
    over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl Storm {
    fn begin(flags: libc::c_int) -> Storm {
        install(flags | libc::SA_RESTART);
        let over = Arc::new(AtomicBool::new(false));
        let stop = over.clone();
        let thread = std::thread::spawn(move || {
            // SAFETY: no pointers.
            let (process, me) = unsafe { (libc::getpid(), libc::gettid()) };
            let mut sent = 0u64;
            while !stop.load(SeqCst) {
                for entry in std::fs::read_dir("/proc/self/task").expect("tasks").flatten() {
                    let id: libc::c_int =
                        entry.file_name().to_string_lossy().parse().expect("a number");
                    let signal =
                        // SAFETY: no pointers. An error means that the thread has ended, and is
                        // ignored.
                        || unsafe { libc::syscall(libc::SYS_tgkill, process, id, libc::SIGUSR1) };
                    if id != me && signal() == 0 {
                        sent += 1;
                    }
                }
            }
            sent
        });
        Storm { over, thread }
    }

    fn end(self) {
        self.over.store(true, SeqCst);
        let sent = self.thread.join().expect("no panic");
        assert!(sent > 0 && HANDLED.load(SeqCst) > 0);
    }
}

/// Microprocesses switch, wait, block and end during a storm of signals.
fn storm(flags: libc::c_int) {
    let storm = Storm::begin(flags);
    Runtime::builder().vps(3).build().expect("a runtime").run(|| {
        for round in 0..100u64 {
            let work = move |n: u64| {
                let mut sum = 0.0;
                for i in 0..50u64 {
                    sum += (i * n) as f64;
                    match (i + n + round) % 10 {
                        0 => thread::yield_now(),
                        1 => thread::park_timeout(Duration::from_micros(20)),
                        2 if n == 0 => thread::blocking(std::thread::yield_now),
                        _ => {}
                    }
                }
                assert_eq!(sum, (1225 * n) as f64);
            };
            let all: Vec<_> = (0..20)
                .map(|n| Builder::new().stack_size(0).spawn(move || work(n)).expect("it begins"))
                .collect();
            for handle in all {
                handle.join().expect("no panic");
            }
        }
    });
    storm.end();
}

#[test]
fn signal_storm_on_microprocess_stacks_is_harmless() {
    alone("signal_storm_on_microprocess_stacks_is_harmless", || storm(0));
}

#[test]
fn signal_storm_on_alternate_stacks_is_harmless() {
    alone("signal_storm_on_alternate_stacks_is_harmless", || storm(libc::SA_ONSTACK));
}

/// If each signal added the kernel's timer slack to the remaining time, a storm would extend a
/// sleep indefinitely.
#[test]
fn signal_storm_neither_ends_nor_extends_sleeps() {
    alone("signal_storm_neither_ends_nor_extends_sleeps", || {
        let sleeps = || {
            for time in [50, 200, 1_000].map(Duration::from_micros).repeat(20) {
                let begun = Instant::now();
                thread::sleep(time);
                assert!(begun.elapsed() >= time);
            }
        };
        let storm = Storm::begin(0);
        sleeps();
        Runtime::builder().vps(2).build().expect("a runtime").run(|| {
            sleeps();
            thread::blocking(sleeps);
        });
        storm.end();
    });
}

/// The start of a runtime waits for the lock on the file of numbers for a limited time, which
/// signals must not extend.
#[test]
fn runtime_starts_in_a_storm_of_signals() {
    const NAME: &str = "runtime_starts_in_a_storm_of_signals";
    let begin = || Runtime::builder().vps(1).build().expect("a runtime").run(thread::yield_now);
    if is_child(NAME) {
        let storm = Storm::begin(0);
        begin();
        return storm.end();
    }
    let place = Place::new("storm");
    let next = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(place.0.join("next"))
        .expect("made");
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::flock(next.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }, 0);
    let ended = again(NAME, &[("KUMI_DIR", place.path())]);
    assert!(ended.status.success(), "{}", ended.told());
}

#[test]
fn signal_of_a_forked_child_is_not_received_by_its_parent() {
    static RECEIVED: AtomicU64 = AtomicU64::new(0);
    alone("signal_of_a_forked_child_is_not_received_by_its_parent", || {
        let mut stream = signal::stream(signal::Kind::TERMINATE).expect("a stream");
        thread::spawn(move || {
            while stream.recv().is_ok() {
                RECEIVED.fetch_add(1, SeqCst);
            }
        });
        // SAFETY: the child makes system calls only, and ends by the signal.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                loop {
                    libc::pause();
                }
            }
            assert!(child > 0);
            assert_eq!(libc::kill(child, libc::SIGTERM), 0);
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTERM);
            assert_eq!(libc::kill(libc::getpid(), libc::SIGTERM), 0);
        }
        while RECEIVED.load(SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // A second delivery would have been taken together with the first.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(RECEIVED.load(SeqCst), 1);
    });
}
