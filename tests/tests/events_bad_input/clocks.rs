//! Clock changes: the runtime does not use the wall clock, and another origin of the monotonic
//! clock has no effect.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use kumihimo::runtime::metrics;
use kumihimo::sync::{Condvar, Mutex, mpsc};
use kumihimo::thread;
use kumihimo_tests::process::{alone, is_child};
use kumihimo_tests::skip;

use crate::blocked::{block, nanosleep};
use crate::under::{ALL, end_at_a_panic, may, under_each, with_vps};

static STEPS: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicU64 = AtomicU64::new(0);
static OFFSET: AtomicI64 = AtomicI64::new(0);

/// Replaces the C library's function in this program. While [`STEPS`] is set, the wall clock jumps
/// by an hour, back and forth, at each call.
///
/// # Safety
/// `time` is null or points to a writable timespec.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(
    clock: libc::clockid_t,
    time: *mut libc::timespec,
) -> libc::c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
    if done == 0
        && STEPS.load(SeqCst)
        && matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE)
    {
        ASKED.fetch_add(1, SeqCst);
        // SAFETY: the kernel has just written it.
        unsafe { (*time).tv_sec += OFFSET.load(SeqCst) };
        OFFSET.store(if OFFSET.load(SeqCst) == 0 { 3600 } else { 0 }, SeqCst);
    }
    done as libc::c_int
}

/// Waits for a time in every way, beside blocked microprocesses.
fn wait_in_every_way() {
    let blocked = block(3);
    let time = Duration::from_millis(20);
    let since = Instant::now();
    thread::sleep(time);
    thread::park_timeout(time);
    let (_sender, receiver) = mpsc::channel::<()>();
    assert!(receiver.recv_timeout(time).is_err());
    let (lock, changed) = (Mutex::new(()), Condvar::new());
    let guard = lock.lock().expect("not poisoned");
    drop(changed.wait_timeout(guard, time).expect("not poisoned"));
    assert_eq!(nanosleep(20_000_000), 0);
    assert!(
        since.elapsed() >= 3 * time,
        "no wait may be cut short, except a park, which may end spuriously"
    );
    // Without preemption, an endless loop keeps its VP.
    if metrics().expect("a runtime runs").preemption != "off" {
        quanta(time);
    }
    blocked.release();
}

/// Runs more endless loops than VPs beside a microprocess that sleeps for `time`.
fn quanta(time: Duration) {
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while !stop.load(SeqCst) {
                    std::hint::spin_loop()
                }
            });
        }
        thread::sleep(time);
        stop.store(true, SeqCst);
    });
}

#[test]
fn wall_clock_jumps_have_no_effect() {
    under_each("clocks::wall_clock_jumps_have_no_effect", |_| {
        with_vps(2, || {
            let wall = std::time::SystemTime::now;
            STEPS.store(true, SeqCst);
            let (one, other) = (wall(), wall());
            assert!(
                one.duration_since(other).or_else(|e| Ok::<_, ()>(e.duration())).expect("either")
                    > Duration::from_secs(3000)
            );
            assert_eq!(ASKED.swap(0, SeqCst), 2, "the wall clock must jump");
            wait_in_every_way();
            assert_eq!(ASKED.load(SeqCst), 0, "the runtime must not read the wall clock");
            STEPS.store(false, SeqCst);
        });
    });
}

/// In a time namespace whose clocks are a thousand days ahead, or near their origin, like after a
/// migration between machines.
#[test]
fn monotonic_clock_of_another_origin_has_no_effect() {
    const NAME: &str = "clocks::monotonic_clock_of_another_origin_has_no_effect";
    if is_child(NAME) && std::env::var("KUMI_CLOCK").is_ok() {
        end_at_a_panic();
        return with_vps(2, wait_in_every_way);
    }
    alone(NAME, || {
        let now = monotonic();
        for source in ALL {
            if !may(NAME, source) {
                continue;
            }
            for offset in [86_400_000, 1 - now] {
                let mut command = Command::new(std::env::current_exe().expect("this program"));
                command.args(["--exact", NAME, "--nocapture", "--test-threads=1"]).envs([
                    ("KUMI_EVENTS", source.name()),
                    ("KUMI_CLOCK", "1"),
                    ("KUMI_TEST_CHILD", NAME),
                ]);
                // SAFETY: the process has one kernel thread, as unshare(2) requires, and no lock is
                // held by another thread.
                unsafe {
                    command.pre_exec(move || {
                        if libc::unshare(libc::CLONE_NEWTIME) != 0 {
                            return Err(std::io::Error::last_os_error());
                        }
                        std::fs::write(
                            "/proc/self/timens_offsets",
                            format!("monotonic {offset} 0\nboottime {offset} 0\n"),
                        )
                    });
                }
                match command.output() {
                    Err(e) => return skip(NAME, &format!("cannot create a time namespace: {e}")),
                    Ok(output) => {
                        assert!(output.status.success(), "{source}, {offset}: {output:#?}")
                    }
                }
            }
        }
    });
}

fn monotonic() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec to be written.
    assert_eq!(unsafe { clock_gettime(libc::CLOCK_MONOTONIC, &mut time) }, 0);
    time.tv_sec
}
