//! Threads that wait often in calls that nothing replaces: `raw` makes the system calls itself,
//! until the standard input ends; `library` has the C library make them, two thousand times.
kumihimo::interpose!();

use std::arch::asm;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// read(2) or write(2) of one byte, without the C library.
#[inline(never)]
fn one_byte(number: i64, descriptor: i32) -> bool {
    let mut byte = 0u8;
    let done: i64;
    // SAFETY: room for the byte.
    unsafe {
        asm!("syscall", inlateout("rax") number => done, in("rdi") i64::from(descriptor),
             in("rsi") &raw mut byte, in("rdx") 1, lateout("rcx") _, lateout("r11") _);
    }
    done == 1
}

fn pipe() -> [i32; 2] {
    let mut ends = [0; 2];
    // SAFETY: room for both.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    ends
}

/// One thread sends a byte, and another one sends it back, until the first has nothing to send.
fn exchange_raw(is_over: &Arc<AtomicBool>) -> [thread::JoinHandle<()>; 2] {
    let (there, back, is_over) = (pipe(), pipe(), is_over.clone());
    let first = thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) && one_byte(libc::SYS_write, there[1]) {
            assert!(one_byte(libc::SYS_read, back[0]));
        }
        // SAFETY: this thread's, and not used any more.
        unsafe { libc::close(there[1]) };
    });
    let second = thread::spawn(move || {
        while one_byte(libc::SYS_read, there[0]) {
            assert!(one_byte(libc::SYS_write, back[1]));
        }
    });
    [first, second]
}

/// As above by msgsnd(2) and msgrcv(2).
fn exchange_by_library() -> [thread::JoinHandle<()>; 2] {
    // SAFETY: integers only.
    let queue = unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) };
    assert!(queue >= 0, "{}", std::io::Error::last_os_error());
    let [first, second] = [(1i64, 2i64), (2, 1)].map(|(own, other)| {
        thread::spawn(move || {
            for _ in 0..2000 {
                let mut message = [own, 0];
                // SAFETY: a message of a kind and eight bytes, in both calls.
                unsafe {
                    assert_eq!(libc::msgsnd(queue, (&raw const message).cast(), 8, 0), 0);
                    let at = (&raw mut message).cast();
                    assert_eq!(libc::msgrcv(queue, at, 8, other, 0), 8);
                }
            }
        })
    });
    let remove = thread::spawn(move || {
        let done = [first, second].map(thread::JoinHandle::join);
        // SAFETY: integers only.
        unsafe { libc::msgctl(queue, libc::IPC_RMID, std::ptr::null_mut()) };
        assert!(done.iter().all(Result::is_ok));
    });
    [remove, thread::spawn(|| ())]
}

#[kumihimo::main]
fn main() {
    let is_over = Arc::new(AtomicBool::new(false));
    let is_raw = std::env::args().nth(1).as_deref() == Some("raw");
    let threads: Vec<_> = (0..4)
        .flat_map(|_| if is_raw { exchange_raw(&is_over) } else { exchange_by_library() })
        .collect();
    if is_raw {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        is_over.store(true, Ordering::Relaxed);
    }
    for thread in threads {
        thread.join().expect("no panic");
    }
}
