//! Many microprocesses, of which many are blocked in the kernel at once.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use kumihimo::runtime::{Builder, Runtime, metrics};
use kumihimo::thread;
use kumihimo_tests::process::{has_vps, kernel_threads};

use crate::case::{BESIDE_THE_POOL, await_shrunk, of_the_runtime, seen, until};

const VPS: usize = 2;
/// Allowed kernel threads beyond one for each VP and one for each blocked microprocess: spares that
/// are being created.
const SLACK: usize = 8;

/// A blocking call, and its expected result.
type Call = (Box<dyn FnOnce() -> u64 + Send>, u64);

/// Blocking calls, and a function that releases all of them.
struct Calls {
    all: Vec<Call>,
    release: Box<dyn FnOnce() + Send>,
}

impl Calls {
    /// Reads of separate pipes.
    fn pipes(n: u64) -> Calls {
        let (all, writers): (Vec<Call>, Vec<_>) = (0..n)
            .map(|number| {
                let (mut reader, writer) = std::io::pipe().expect("a pipe");
                let call = move || {
                    let mut bytes = [0; 8];
                    assert_eq!(reader.read(&mut bytes).expect("no EINTR"), 8);
                    u64::from_ne_bytes(bytes)
                };
                ((Box::new(call) as Box<dyn FnOnce() -> u64 + Send>, number), writer)
            })
            .unzip();
        let release = move || {
            for (number, mut writer) in (0u64..).zip(writers) {
                writer.write_all(&number.to_ne_bytes()).expect("room");
            }
        };
        Calls { all, release: Box::new(release) }
    }

    /// Reads of one eventfd semaphore and of one pipe, half of the calls each. Each read of the
    /// semaphore takes one unit.
    fn of_two(n: u64) -> Calls {
        // SAFETY: integers only; a fresh descriptor.
        let semaphore =
            unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC)) };
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let (semaphore, reader) = (Arc::new(semaphore), Arc::new(reader));
        let all = (0..n)
            .map(|number| {
                let (semaphore, reader) = (semaphore.clone(), reader.clone());
                let call = move || {
                    let mut bytes = [0; 8];
                    let n = if number % 2 == 0 {
                        (&*semaphore).read(&mut bytes)
                    } else {
                        (&*reader).read(&mut bytes[..1])
                    };
                    assert_eq!(n.expect("no EINTR"), if number % 2 == 0 { 8 } else { 1 });
                    u64::from_ne_bytes(bytes)
                };
                (Box::new(call) as Box<dyn FnOnce() -> u64 + Send>, 1)
            })
            .collect();
        let release = move || {
            (&*semaphore).write_all(&n.div_ceil(2).to_ne_bytes()).expect("room");
            let ones = vec![1; n as usize / 2];
            writer.write_all(&ones).expect("room");
        };
        Calls { all, release: Box::new(release) }
    }
}

/// State of a run, for other threads.
#[derive(Default)]
struct State {
    /// Number of calls that have begun.
    begun: AtomicUsize,
    /// Number of turns of each other microprocess.
    turns: Vec<AtomicU64>,
    /// Maximum numbers of kernel threads, according to the runtime and to the kernel.
    most: AtomicUsize,
    most_of_all: AtomicUsize,
    end: AtomicBool,
}

impl State {
    fn count_kernel_threads(&self) {
        if let Some(now) = metrics() {
            self.most.fetch_max(now.kernel_threads, SeqCst);
            self.most_of_all.fetch_max(kernel_threads(), SeqCst);
        }
    }

    /// Waits until each other microprocess has had `n` more turns.
    fn await_turns(&self, n: u64) {
        let since: Vec<_> = self.turns.iter().map(|turns| turns.load(SeqCst)).collect();
        until(|| {
            self.count_kernel_threads();
            self.turns.iter().zip(&since).all(|(turns, since)| turns.load(SeqCst) >= since + n)
        });
    }
}

/// Runs `calls`, and `others` microprocesses that sleep up to `rest` between their turns. `ready`
/// runs on a kernel thread and returns when the calls may be released. Returns the maximum number
/// of the runtime's kernel threads, which is checked against the process's.
fn run(
    builder: Builder,
    calls: Calls,
    others: usize,
    rest: Duration,
    ready: impl FnOnce(&State) + Send + 'static,
) -> usize {
    let turns = (0..others).map(|_| AtomicU64::new(0)).collect();
    let state = Arc::new(State { turns, ..State::default() });
    let before = kernel_threads();
    let (of_releaser, release) = (state.clone(), calls.release);
    let releaser = std::thread::spawn(move || {
        ready(&of_releaser);
        release();
    });
    builder.vps(VPS).build().expect("a runtime").run(|| {
        let others: Vec<_> = (0..others)
            .map(|number| {
                let state = state.clone();
                thread::spawn(move || {
                    while !state.end.load(SeqCst) {
                        state.turns[number].fetch_add(1, SeqCst);
                        if number % 2 == 0 && rest < Duration::from_millis(1) {
                            thread::yield_now();
                        } else {
                            thread::sleep(rest.mul_f64((number + 1) as f64 / (others + 1) as f64));
                        }
                    }
                })
            })
            .collect();
        let blocked: Vec<_> = calls
            .all
            .into_iter()
            .map(|(call, expected)| {
                let state = state.clone();
                let call = move || {
                    state.begun.fetch_add(1, SeqCst);
                    call()
                };
                (thread::spawn(call), expected)
            })
            .collect();
        for (blocked, expected) in blocked {
            assert_eq!(blocked.join().expect("no panic"), expected);
        }
        // The others continue as before.
        thread::blocking(|| state.await_turns(1));
        state.end.store(true, SeqCst);
        for other in others {
            other.join().expect("no panic");
        }
        // The releaser may not have ended yet.
        await_shrunk(before + 1, VPS);
    });
    releaser.join().expect("no panic");
    let (most, of_all) = (state.most.load(SeqCst), state.most_of_all.load(SeqCst));
    // The two numbers are read one after the other, and a spare may be created in between. One more
    // thread: the releaser.
    assert!(
        of_all <= before + 1 + most + BESIDE_THE_POOL + SLACK,
        "{of_all} kernel threads; {most} of the runtime"
    );
    most
}

/// Waits until all calls are blocked and each other microprocess has had its turns.
fn all_are_blocked(n: usize, turns: u64) -> impl FnOnce(&State) + Send + 'static {
    move |state| {
        until(|| state.begun.load(SeqCst) == n);
        state.await_turns(turns);
    }
}

#[test]
fn several_blocked_microprocesses_stall_no_one() {
    const NAME: &str = "many::several_blocked_microprocesses_stall_no_one";
    of_the_runtime(NAME, |source| {
        if has_vps(NAME) {
            let most = run(
                Runtime::builder(),
                Calls::pipes(10),
                190,
                Duration::from_micros(500),
                all_are_blocked(10, 20),
            );
            seen(NAME, source, format_args!("{most} kernel threads"));
            assert!(most <= VPS + 10 + SLACK, "{most} kernel threads");
        }
    });
}

#[test]
fn ten_blocked_of_ten_thousand_stall_no_one() {
    const NAME: &str = "many::ten_blocked_of_ten_thousand_stall_no_one";
    of_the_runtime(NAME, |source| {
        if has_vps(NAME) {
            let most = run(
                Runtime::builder(),
                Calls::pipes(10),
                9_990,
                Duration::from_millis(100),
                all_are_blocked(10, 2),
            );
            seen(NAME, source, format_args!("{most} kernel threads"));
            assert!(most <= VPS + 10 + SLACK, "{most} kernel threads");
        }
    });
}

#[test]
fn thousand_blocked_microprocesses_stall_no_one() {
    const NAME: &str = "many::thousand_blocked_microprocesses_stall_no_one";
    of_the_runtime(NAME, |source| {
        if has_vps(NAME) {
            // A source may need one or two descriptors for each kernel thread.
            // SAFETY: a live structure.
            let descriptors = unsafe {
                let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
                limit.rlim_cur = limit.rlim_max;
                assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
                limit.rlim_cur
            };
            if descriptors < 4096 {
                eprintln!("\n[skip] {descriptors} descriptors are too few (ulimit -n)");
                return;
            }
            let most = run(
                Runtime::builder(),
                Calls::of_two(1000),
                10,
                Duration::from_micros(500),
                |state| {
                    all_are_blocked(1000, 20)(state);
                    // The last microprocess may not have reached its call when the others had had
                    // their turns.
                    until(|| {
                        state.count_kernel_threads();
                        state.most.load(SeqCst) > 1000
                    });
                },
            );
            seen(NAME, source, format_args!("{most} kernel threads"));
            assert!(most <= 1000 + VPS + SLACK, "{most} kernel threads");
        }
    });
}

#[test]
fn limit_on_kernel_threads_is_kept() {
    const NAME: &str = "many::limit_on_kernel_threads_is_kept";
    of_the_runtime(NAME, |source| {
        if has_vps(NAME) {
            let most = VPS + 3;
            let seen_most = run(
                Runtime::builder().max_kernel_threads(most),
                Calls::pipes(10),
                20,
                Duration::from_micros(500),
                move |state| {
                    // One call more than the limit allows: its VP finds no other kernel thread and
                    // waits, with the microprocesses in its queue.
                    until(|| {
                        state.count_kernel_threads();
                        state.begun.load(SeqCst) > most - VPS && state.most.load(SeqCst) == most
                    });
                },
            );
            seen(NAME, source, format_args!("{seen_most} kernel threads"));
            assert_eq!(seen_most, most);
        }
    });
}
