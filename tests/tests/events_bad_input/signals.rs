//! The application's signals during blocked calls: same results as on a kernel thread.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use kumihimo::thread;
use kumihimo_events::preempt::DOORBELL;
use kumihimo_tests::process::{again, is_child, is_one_to_one};
use kumihimo_tests::skip;

use crate::blocked::{begin, block, who_sleeps_reading};
use crate::under::{under_each, with_vps};

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: i32) {
    HANDLED.fetch_add(std::hint::black_box([1u64; 64])[7], SeqCst);
}

fn handle(flags: i32) {
    handle_signal(libc::SIGUSR1, flags);
}

fn handle_signal(signal: i32, flags: i32) {
    // SAFETY: zeros are a valid sigaction; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// Sends the signal to a kernel thread.
fn signal(tid: u32) {
    // SAFETY: integers only.
    let sent =
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid as i32, libc::SIGUSR1) };
    assert_eq!(sent, 0);
}

/// read(2) of one byte. Returns the result and errno.
fn read(from: &impl AsRawFd) -> (isize, Option<i32>) {
    let mut byte = 0u8;
    // SAFETY: one live byte.
    let n = unsafe { libc::read(from.as_raw_fd(), (&raw mut byte).cast(), 1) };
    (n, std::io::Error::last_os_error().raw_os_error().filter(|_| n < 0))
}

/// Sends a signal to a blocked read, and then writes a byte. Returns the first result of the read.
fn interrupted(
    start: impl FnOnce(Box<dyn FnOnce() -> (isize, Option<i32>) + Send>) -> Wait,
) -> (isize, Option<i32>) {
    interrupted_by(signal, start)
}

fn interrupted_by(
    signal: impl FnOnce(u32),
    start: impl FnOnce(Box<dyn FnOnce() -> (isize, Option<i32>) + Send>) -> Wait,
) -> (isize, Option<i32>) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let fd = reader.as_raw_fd();
    let wait = start(Box::new(move || read(&reader)));
    let tid = loop {
        if let Some(tid) = who_sleeps_reading(fd) {
            break tid;
        }
        thread::yield_now();
    };
    let before = HANDLED.load(SeqCst);
    signal(tid);
    while HANDLED.load(SeqCst) == before {
        thread::yield_now();
    }
    // If the call has ended, the pipe has no reader.
    let _ = writer.write_all(b"1");
    wait()
}

type Wait = Box<dyn FnOnce() -> (isize, Option<i32>)>;

#[test]
fn signal_interrupts_a_blocked_call_as_on_a_kernel_thread() {
    under_each("signals::signal_interrupts_a_blocked_call_as_on_a_kernel_thread", |_| {
        // Ignore SIGPIPE, because a pipe may have lost its reader.
        // SAFETY: no other threads exist yet.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        with_vps(1, || {
            let others = block(3);
            for stack in [0, libc::SA_ONSTACK] {
                for (restart, expected) in
                    [(0, (-1, Some(libc::EINTR))), (libc::SA_RESTART, (1, None))]
                {
                    handle(stack | restart);
                    for _ in 0..20 {
                        let here = interrupted(|read| {
                            let one = thread::spawn(read);
                            Box::new(|| one.join().expect("no panic"))
                        });
                        assert_eq!(here, expected, "a microprocess; flags {:#x}", stack | restart);
                    }
                    let there = interrupted(|read| {
                        let one = std::thread::spawn(read);
                        Box::new(|| one.join().expect("no panic"))
                    });
                    assert_eq!(there, expected, "a kernel thread; flags {:#x}", stack | restart);
                }
            }
            others.release();
        });
    });
}

/// The kernel delivers the preemption signal first, and its handler has the call restarted.
#[test]
fn signal_interrupts_a_blocked_call_despite_a_preemption_signal() {
    static RANG: AtomicU64 = AtomicU64::new(0);
    const NAME: &str = "signals::signal_interrupts_a_blocked_call_despite_a_preemption_signal";
    if !is_child(NAME) && is_one_to_one() {
        return skip(NAME, "nothing is preempted where microprocesses are kernel threads");
    }
    if !is_child(NAME) {
        let ended = again(NAME, &[("KUMI_PREEMPT", "signal"), ("KUMI_EVENTS", "watch")]);
        assert!(ended.status.success(), "{}", ended.stderr);
        return;
    }
    // The kernel delivers the pending signal with the lowest number first: the preemption signal.
    let signals = |tid: u32| {
        // SAFETY: an all-zero siginfo_t is valid, and the kernel reads the fields of a queued
        // signal.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            info.si_code = libc::SI_QUEUE;
            // The value follows the process ID and the user ID.
            (&raw mut info).byte_add(24).cast::<u64>().write(DOORBELL);
            let (pid, tid) = (libc::getpid(), tid as i32);
            // Both signals in this order: the application's signal ends the call alone, and must
            // end it together with the other one, too.
            assert_eq!(libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGIO), 0);
            let rang =
                libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, libc::SIGURG, &raw const info)
                    == 0;
            let error = std::io::Error::last_os_error();
            // The thread may have ended by now.
            assert!(rang || error.raw_os_error() == Some(libc::ESRCH), "{error}");
            RANG.fetch_add(rang.into(), SeqCst);
        }
    };
    // SAFETY: no other threads exist yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    with_vps(1, || {
        for (restart, expected) in [(0, (-1, Some(libc::EINTR))), (libc::SA_RESTART, (1, None))] {
            handle_signal(libc::SIGIO, restart);
            for _ in 0..200 {
                let here = interrupted_by(signals, |read| {
                    let one = thread::spawn(read);
                    Box::new(|| one.join().expect("no panic"))
                });
                assert_eq!(here, expected, "flags {restart:#x}");
            }
        }
        assert!(RANG.load(SeqCst) > 0, "the preemption signal never arrived");
    });
}

/// Threads that wait for a VP or are in the pool receive signals, too.
#[test]
fn signal_storm_while_many_block_is_harmless() {
    under_each("signals::signal_storm_while_many_block_is_harmless", |_| {
        handle(libc::SA_RESTART);
        with_vps(2, || {
            for _ in 0..20 {
                let readers = begin(20);
                let storm = std::thread::spawn(|| {
                    // SAFETY: takes nothing.
                    let me = unsafe { libc::gettid() };
                    for _ in 0..5 {
                        for entry in std::fs::read_dir("/proc/self/task").expect("tasks").flatten()
                        {
                            let tid: i32 =
                                entry.file_name().to_string_lossy().parse().expect("a number");
                            if tid != me {
                                // An error means that the thread has ended meanwhile, and is
                                // ignored.
                                // SAFETY: integers only.
                                unsafe {
                                    libc::syscall(
                                        libc::SYS_tgkill,
                                        libc::getpid(),
                                        tid,
                                        libc::SIGUSR1,
                                    )
                                };
                            }
                        }
                    }
                });
                readers.blocked.release();
                thread::blocking(|| storm.join()).expect("no panic");
            }
            assert!(HANDLED.load(SeqCst) > 0);
        });
    });
}
