//! System calls and foreign libraries that wait for another thread or process.

use std::ffi::c_int;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::case::{case, until};

unsafe extern "C" {
    safe fn c_cond_wait() -> c_int;
    safe fn c_cond_signal(value: c_int) -> c_int;
}

/// Result of a call, and errno if it failed.
pub type Outcome = (isize, Option<i32>);

fn outcome(n: isize) -> Outcome {
    (n, std::io::Error::last_os_error().raw_os_error().filter(|_| n < 0))
}

fn recv(from: &UnixStream, to: &mut [u8], flags: c_int) -> Outcome {
    // SAFETY: live bytes.
    outcome(unsafe { libc::recv(from.as_raw_fd(), to.as_mut_ptr().cast(), to.len(), flags) })
}

#[test]
fn read_of_an_empty_pipe_stalls_no_one() {
    case("calls::read_of_an_empty_pipe_stalls_no_one", |case| {
        let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
        let got = case.blocked(
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
fn std_mutex_held_by_a_kernel_thread_stalls_no_one() {
    case("calls::std_mutex_held_by_a_kernel_thread_stalls_no_one", |case| {
        let mutex = Arc::new(Mutex::new(1));
        let (held, free) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (m, h, f) = (mutex.clone(), held.clone(), free.clone());
        let holder = std::thread::spawn(move || {
            let mut guard = m.lock().expect("not poisoned");
            h.store(true, SeqCst);
            until(|| f.load(SeqCst));
            *guard = 2;
        });
        until(|| held.load(SeqCst));
        let got = case.blocked(
            move || *mutex.lock().expect("not poisoned"),
            move || free.store(true, SeqCst),
        );
        assert_eq!(got, 2);
        holder.join().expect("no panic");
    });
}

/// flock(2), which std provides only since Rust 1.89.
pub fn flock(file: &File, operation: c_int) -> Outcome {
    // SAFETY: integers only.
    outcome(unsafe { libc::flock(file.as_raw_fd(), operation) } as isize)
}

#[test]
fn flock_held_by_another_stalls_no_one() {
    case("calls::flock_held_by_another_stalls_no_one", |case| {
        let path = std::env::temp_dir().join(format!("kumihimo-flock-{}", std::process::id()));
        let (mine, other) =
            (File::create(&path).expect("a file"), File::create(&path).expect("a file"));
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(flock(&other, libc::LOCK_EX | libc::LOCK_NB), (0, None));
        let got = case.blocked(move || flock(&mine, libc::LOCK_EX), move || drop(other));
        assert_eq!(got, (0, None), "no EINTR");
    });
}

#[test]
fn writing_a_megabyte_to_a_full_pipe_stalls_no_one() {
    case("calls::writing_a_megabyte_to_a_full_pipe_stalls_no_one", |case| {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let byte = |at: usize| (at % 251) as u8;
        let got = case.blocked(
            move || {
                let data: Vec<u8> = (0..1 << 20).map(byte).collect();
                // SAFETY: live bytes.
                outcome(unsafe {
                    libc::write(writer.as_raw_fd(), data.as_ptr().cast(), data.len())
                })
            },
            move || {
                let mut all = vec![0; 1 << 20];
                for part in all.chunks_mut(4096) {
                    reader.read_exact(part).expect("bytes");
                }
                assert!(all.iter().enumerate().all(|(at, got)| *got == byte(at)));
            },
        );
        assert_eq!(got, (1 << 20, None), "no short write");
    });
}

#[test]
fn recv_with_a_timeout_stalls_no_one() {
    case("calls::recv_with_a_timeout_stalls_no_one", |case| {
        let (mine, mut its) = UnixStream::pair().expect("a pair");
        mine.set_read_timeout(Some(Duration::from_secs(600))).expect("a timeout");
        let got = case.blocked(
            move || {
                let mut byte = [0];
                (recv(&mine, &mut byte, 0), byte)
            },
            move || its.write_all(&[9]).expect("room"),
        );
        assert_eq!(got, ((1, None), [9]));
    });
}

#[test]
fn recv_waitall_returns_all_bytes() {
    case("calls::recv_waitall_returns_all_bytes", |case| {
        let (mine, mut its) = UnixStream::pair().expect("a pair");
        its.write_all(&[1; 100]).expect("room");
        let got = case.blocked(
            move || {
                let mut bytes = vec![0; 200];
                (recv(&mine, &mut bytes, libc::MSG_WAITALL), bytes)
            },
            move || its.write_all(&[1; 100]).expect("room"),
        );
        assert_eq!(got, ((200, None), vec![1; 200]), "no short read");
    });
}

/// An epoll instance that watches an eventfd.
pub fn an_epoll() -> (OwnedFd, OwnedFd) {
    // SAFETY: integers only; fresh descriptors.
    let (epoll, event) = unsafe {
        (
            OwnedFd::from_raw_fd(libc::epoll_create1(0)),
            OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)),
        )
    };
    let mut want = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 5 };
    let (set, of) = (epoll.as_raw_fd(), event.as_raw_fd());
    // SAFETY: a live event.
    assert_eq!(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, of, &mut want) }, 0);
    (epoll, event)
}

/// epoll_wait(2) for one event. Returns the result and the event's number.
pub fn epoll_wait_for(epoll: &OwnedFd, timeout_ms: c_int) -> (Outcome, u64) {
    let mut got = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one.
    let n = unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut got, 1, timeout_ms) };
    (outcome(n as isize), got.u64)
}

#[test]
fn epoll_wait_stalls_no_one() {
    case("calls::epoll_wait_stalls_no_one", |case| {
        let (epoll, event) = an_epoll();
        // If the eventfd were closed, it would leave the set before the event is delivered.
        let _open = event.try_clone().expect("a descriptor");
        let got = case.blocked(
            move || epoll_wait_for(&epoll, -1),
            move || File::from(event).write_all(&1u64.to_ne_bytes()).expect("room"),
        );
        assert_eq!(got, ((1, None), 5));
    });
}

#[test]
fn semop_stalls_no_one() {
    case("calls::semop_stalls_no_one", |case| {
        // SAFETY: integers only.
        let set = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
        assert!(set >= 0, "a semaphore: {}", std::io::Error::last_os_error());
        let change = move |by: i16| {
            let mut op = libc::sembuf { sem_num: 0, sem_op: by, sem_flg: 0 };
            // SAFETY: one live operation.
            outcome(unsafe { libc::semop(set, &mut op, 1) } as isize)
        };
        let got = case.blocked(move || change(-1), move || assert_eq!(change(1), (0, None)));
        // SAFETY: integers only.
        assert_eq!(unsafe { libc::semctl(set, 0, libc::IPC_RMID) }, 0);
        assert_eq!(got, (0, None), "no EINTR");
    });
}

#[test]
fn waitpid_stalls_no_one() {
    case("calls::waitpid_stalls_no_one", |case| {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep");
        let pid = child.id() as libc::pid_t;
        let got = case.blocked(
            move || child.wait().expect("no EINTR"),
            move || {
                // SAFETY: our own child, not yet reaped.
                assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
            },
        );
        assert_eq!(got.signal(), Some(libc::SIGTERM));
    });
}

#[test]
fn condition_variable_of_a_foreign_library_stalls_no_one() {
    case("calls::condition_variable_of_a_foreign_library_stalls_no_one", |case| {
        assert_eq!(case.blocked(|| c_cond_wait(), || assert_eq!(c_cond_signal(6), 0)), 6);
    });
}
