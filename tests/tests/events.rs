//! No block of one microprocess stalls another, in code that knows nothing of Kumihimo: one VP, one that blocks, one that goes on.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kumihimo::runtime::Runtime;
use kumihimo::thread;
use kumihimo_tests::process::alone;

/// How often the other one must have had its turn while the first one was blocked.
const TURNS: u64 = 20;

/// Runs `block`, which must not return before `until` was called, on the only VP. `until` is called by a kernel thread, after another
/// microprocess has had its turns.
fn others_go_on<T: Send + 'static>(
    name: &str,
    block: impl FnOnce() -> T + Send + 'static,
    until: impl FnOnce() + Send + 'static,
) -> T {
    // SAFETY: before the runtime begins.
    unsafe { std::env::set_var("KUMI_EVENTS", "watch") };
    let turns = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let seen = turns.clone();
    let release = std::thread::spawn(move || {
        while seen.load(SeqCst) < TURNS {
            std::thread::sleep(Duration::from_millis(1));
        }
        until();
    });
    let result = Runtime::builder().vps(1).build().expect("a runtime").run(|| {
        let blocked = thread::spawn(block);
        let (turns, ended) = (turns.clone(), done.clone());
        let other = thread::spawn(move || {
            while !ended.load(SeqCst) {
                turns.fetch_add(1, SeqCst);
                thread::sleep(Duration::from_micros(100));
            }
        });
        let result = blocked.join().expect("no panic");
        done.store(true, SeqCst);
        other.join().expect("no panic");
        result
    });
    release.join().expect("no panic");
    eprintln!("{name}: {} turns", turns.load(SeqCst));
    result
}

#[test]
fn read_of_an_empty_pipe() {
    alone("read_of_an_empty_pipe", || {
        let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
        let got = others_go_on(
            "pipe",
            move || {
                let mut byte = [0];
                reader.read(&mut byte).map(|n| (n, byte))
            },
            move || writer.write_all(&[7]).expect("room"),
        );
        assert_eq!(got.expect("no EINTR"), (1, [7]));
    });
}

#[test]
fn a_mutex_of_std_held_by_a_kernel_thread() {
    alone("a_mutex_of_std_held_by_a_kernel_thread", || {
        let mutex = Arc::new(Mutex::new(1));
        let (held, free) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (m, h, f) = (mutex.clone(), held.clone(), free.clone());
        let holder = std::thread::spawn(move || {
            let mut guard = m.lock().expect("not poisoned");
            h.store(true, SeqCst);
            while !f.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            *guard = 2;
        });
        while !held.load(SeqCst) {
            std::thread::yield_now();
        }
        let got = others_go_on("mutex", move || *mutex.lock().expect("not poisoned"), move || free.store(true, SeqCst));
        assert_eq!(got, 2);
        holder.join().expect("no panic");
    });
}

#[test]
fn flock_held_by_another() {
    alone("flock_held_by_another", || {
        let path = std::env::temp_dir().join(format!("kumihimo-flock-{}", std::process::id()));
        let (mine, other) = (File::create(&path).expect("a file"), File::create(&path).expect("a file"));
        other.lock().expect("free");
        let got = others_go_on("flock", move || mine.lock(), move || other.unlock().expect("held"));
        std::fs::remove_file(&path).expect("it is there");
        got.expect("no EINTR");
    });
}

#[test]
fn nanosleep() {
    alone("nanosleep", || {
        let took = others_go_on(
            "nanosleep",
            || {
                let since = Instant::now();
                let time = libc::timespec { tv_sec: 0, tv_nsec: 300_000_000 };
                // SAFETY: a live timespec.
                let r = unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
                (r, since.elapsed())
            },
            || (),
        );
        assert_eq!(took.0, 0);
        assert!(took.1.as_millis() >= 300, "not too short");
    });
}

#[test]
fn a_megabyte_into_a_full_pipe() {
    alone("a_megabyte_into_a_full_pipe", || {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let got = others_go_on(
            "write",
            move || {
                let data = vec![3u8; 1 << 20];
                // SAFETY: live bytes.
                unsafe { libc::write(writer.as_raw_fd(), data.as_ptr().cast(), data.len()) }
            },
            move || {
                let mut all = Vec::new();
                while all.len() < 1 << 20 {
                    let mut part = vec![0; 4096];
                    let n = reader.read(&mut part).expect("bytes");
                    all.extend_from_slice(&part[..n]);
                }
                assert!(all.iter().all(|b| *b == 3));
            },
        );
        assert_eq!(got, 1 << 20, "no short write");
    });
}

#[test]
fn recv_with_a_timeout() {
    alone("recv_with_a_timeout", || {
        let (mine, mut its) = UnixStream::pair().expect("a pair");
        mine.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let got = others_go_on(
            "recv",
            move || {
                let mut byte = [0];
                // SAFETY: one live byte.
                let n = unsafe { libc::recv(mine.as_raw_fd(), byte.as_mut_ptr().cast(), 1, 0) };
                (n, byte, std::io::Error::last_os_error().raw_os_error().filter(|_| n < 0))
            },
            move || its.write_all(&[9]).expect("room"),
        );
        assert_eq!(got, (1, [9], None));
    });
}

#[test]
fn epoll_wait() {
    alone("epoll_wait", || {
        // SAFETY: integers only; fresh descriptors.
        let (epoll, event) =
            unsafe { (OwnedFd::from_raw_fd(libc::epoll_create1(0)), OwnedFd::from_raw_fd(libc::eventfd(0, 0))) };
        let mut want = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 5 };
        // SAFETY: a live event.
        assert_eq!(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, event.as_raw_fd(), &mut want) }, 0);
        // Closed, it would leave the set before anybody is told.
        let _open = event.try_clone().expect("a descriptor");
        let got = others_go_on(
            "epoll",
            move || {
                let mut got = libc::epoll_event { events: 0, u64: 0 };
                // SAFETY: room for one.
                let n = unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut got, 1, -1) };
                (n, got.u64)
            },
            move || {
                let one = 1u64;
                // SAFETY: eight live bytes.
                assert_eq!(unsafe { libc::write(event.as_raw_fd(), (&raw const one).cast(), 8) }, 8);
            },
        );
        assert_eq!(got, (1, 5));
    });
}

#[test]
fn waitpid() {
    alone("waitpid", || {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep");
        let pid = child.id() as libc::pid_t;
        let got = others_go_on(
            "waitpid",
            move || child.wait().expect("no EINTR"),
            move || {
                // SAFETY: our own child, not yet reaped.
                assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
            },
        );
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&got), Some(libc::SIGTERM));
    });
}
