//! The whole process is stopped and continued while microprocesses are blocked: each call returns
//! the same result as on a kernel thread. With `bpf`, the comparison is with a program that handles
//! SIGCONT with SA_RESTART, because the trap is a handler as well.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use kumihimo::runtime::Events;
use kumihimo::thread;
use kumihimo_tests::process::{finish, has_vps, is_child, start};

use crate::blocked::{block, nanosleep, sleeps_in, this_tid};
use crate::under::{ALL, end_at_a_panic, may, well, with_vps};

/// Long enough that the stop usually happens in between. If it does not, the result is the same.
const TIME: Duration = Duration::from_millis(300);

/// Result of a call, and errno.
type Outcome = (i64, i32);

fn outcome(n: i64) -> Outcome {
    (n, if n < 0 { std::io::Error::last_os_error().raw_os_error().expect("an errno") } else { 0 })
}

/// A call with its name and the number of the system call in which it blocks.
type Call = (&'static str, i64, fn() -> Outcome);

fn waits_for_a_socket() -> Outcome {
    let (mine, _its) = UnixStream::pair().expect("a pair");
    mine.set_read_timeout(Some(TIME)).expect("a timeout");
    let mut byte = 0u8;
    // SAFETY: one live byte.
    outcome(unsafe { libc::recv(mine.as_raw_fd(), (&raw mut byte).cast(), 1, 0) } as i64)
}

fn waits_for_epoll() -> Outcome {
    // SAFETY: an integer; a live event.
    unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let got = outcome(libc::epoll_wait(epoll, &mut event, 1, TIME.as_millis() as i32).into());
        libc::close(epoll);
        got
    }
}

fn waits_for_a_futex() -> Outcome {
    let word = AtomicU32::new(0);
    let time = libc::timespec { tv_sec: 0, tv_nsec: TIME.as_nanos() as i64 };
    // SAFETY: a live word and a live timespec.
    outcome(unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, 0, &raw const time)
    })
}

fn sleeps() -> Outcome {
    let since = Instant::now();
    match nanosleep(TIME.as_nanos() as i64) {
        0 => assert!(since.elapsed() >= TIME, "not too short"),
        errno => return (-1, errno),
    }
    (0, 0)
}

/// The system call behind epoll_wait(3).
#[cfg(target_arch = "x86_64")]
const EPOLL_WAIT: libc::c_long = libc::SYS_epoll_wait;
#[cfg(not(target_arch = "x86_64"))]
const EPOLL_WAIT: libc::c_long = libc::SYS_epoll_pwait;

const CALLS: [Call; 4] = [
    ("recv with a timeout", libc::SYS_recvfrom, waits_for_a_socket),
    ("epoll_wait with a timeout", EPOLL_WAIT, waits_for_epoll),
    ("futex with a timeout", libc::SYS_futex, waits_for_a_futex),
    ("nanosleep", libc::SYS_clock_nanosleep, sleeps),
];

/// In the stopped process: runs each call on a kernel thread and in a microprocess, beside blocked
/// reads without a timeout.
fn stopped(source: Events) {
    with_vps(1, || {
        let blocked = block(5);
        let asleep = Arc::new(AtomicUsize::new(0));
        let tids: Arc<Vec<AtomicU32>> =
            Arc::new((0..2 * CALLS.len()).map(|_| AtomicU32::new(0)).collect());
        let call = |n: usize| {
            let (tids, asleep) = (tids.clone(), asleep.clone());
            move || {
                tids[n].store(this_tid(), SeqCst);
                let got = CALLS[n / 2].2();
                asleep.fetch_add(1, SeqCst);
                got
            }
        };
        let here: Vec<_> = (0..CALLS.len()).map(|n| thread::spawn(call(2 * n))).collect();
        let there: Vec<_> = (0..CALLS.len()).map(|n| std::thread::spawn(call(2 * n + 1))).collect();
        // All calls are blocked, or have already ended on a slow machine.
        while asleep.load(SeqCst) == 0
            && !(0..2 * CALLS.len()).all(|n| sleeps_in(tids[n].load(SeqCst), CALLS[n / 2].1))
        {
            thread::yield_now();
        }
        let all_slept = asleep.load(SeqCst) == 0;
        println!("stop me");
        std::io::stdout().flush().expect("a pipe");
        let timer = Instant::now();
        thread::sleep(TIME);
        assert!(timer.elapsed() >= TIME, "a sleep of the runtime must not be cut short");
        let here: Vec<_> = here.into_iter().map(|one| one.join().expect("no panic")).collect();
        let there: Vec<_> = there
            .into_iter()
            .map(|one| thread::blocking(|| one.join()).expect("no panic"))
            .collect();
        for ((call, here), there) in CALLS.iter().zip(&here).zip(&there) {
            let time_is_over = match call.1 {
                libc::SYS_recvfrom => (-1, libc::EAGAIN),
                libc::SYS_futex => (-1, libc::ETIMEDOUT),
                _ => (0, 0),
            };
            // EINTR after SIGCONT is the kernel's behaviour for some calls (signal(7)). One of the
            // two may have ended before the stop.
            let may_be = [time_is_over, (-1, libc::EINTR)];
            assert!(
                may_be.contains(here) && may_be.contains(there),
                "{}: {here:?}, {there:?}",
                call.0
            );
            println!("seen {}: {here:?} {there:?} {all_slept}", call.0);
        }
        if source != Events::Bpf {
            assert_eq!(here[3], (0, 0), "nanosleep must continue");
        }
        assert_eq!(thread::blocking(|| std::io::stdin().read(&mut [0])).expect("a pipe"), 1);
        blocked.release();
    });
}

/// State of a process: `T` means stopped.
fn state(pid: u32) -> String {
    let of =
        |stat: String| stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('?');
    let all = kumihimo_bench_kit::kernel_threads(pid).expect("it lives").into_iter();
    all.map(|thread| {
        std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).map(of).unwrap_or('?')
    })
    .collect()
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: an own child that has not been reaped.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

#[test]
fn blocked_calls_survive_stop_and_continue() {
    const NAME: &str = "stops::blocked_calls_survive_stop_and_continue";
    if is_child(NAME) {
        end_at_a_panic();
        let source = std::env::var("KUMI_EVENTS").expect("the parent sets it");
        return stopped(Events::from_name(&source).expect("a source"));
    }
    if !has_vps(NAME) {
        return;
    }
    for source in ALL.into_iter().filter(|source| may(NAME, *source)) {
        let mut child = start(NAME, &[("KUMI_EVENTS", source.name())]);
        let mut says = BufReader::new(child.stdout.take().expect("a pipe"));
        loop {
            let mut line = String::new();
            // The child ended, which is checked below, or skipped.
            if says.read_line(&mut line).expect("text") == 0 || line.contains("stop me") {
                break;
            }
        }
        for _ in 0..3 {
            signal(&child, libc::SIGSTOP);
            while state(child.id()).chars().any(|state| !matches!(state, 'T' | 'Z' | 'X' | '?')) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Longer than the calls take: timeouts expire while the process is stopped.
            std::thread::sleep(TIME / 4);
            signal(&child, libc::SIGCONT);
        }
        child.stdin.as_mut().expect("a pipe").write_all(b"1").expect("it listens, or has skipped");
        let rest = std::thread::spawn(move || std::io::read_to_string(says).expect("text"));
        let mut ended = finish(NAME, child);
        ended.stdout = rest.join().expect("no panic");
        well(source, &ended);
    }
}
