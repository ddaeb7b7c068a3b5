//! Kernel threads that waits of std need under `kumihimo::interpose!`.
kumihimo::interpose!();

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard, PoisonError, RwLock, mpsc};
use std::thread;
use std::time::Duration;

const MANY: usize = 1000;
const MOST_KERNEL_THREADS: usize = 16;

fn kernel_threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("proc(5)").count()
}

/// One test at a time: each counts the kernel threads of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts `MANY` threads that all wait, until they need few kernel threads, and ends them.
///
/// Page faults of the first use of a stack are no waits of the runtime. Kernel threads that they
/// needed stay in the pool for a tenth of a second.
fn wait_at_once(wait: impl Fn(usize) + Send + Sync + 'static, end: impl FnOnce()) {
    let (begun, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let wait = Arc::new(wait);
    let threads: Vec<_> = (0..MANY)
        .map(|n| {
            let (begun, ended, wait) = (begun.clone(), ended.clone(), wait.clone());
            thread::spawn(move || {
                begun.fetch_add(1, Ordering::Relaxed);
                wait(n);
                ended.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    while begun.load(Ordering::Relaxed) < MANY as u32 {
        thread::yield_now();
    }
    loop {
        let (used, ended) = (kernel_threads(), ended.load(Ordering::Relaxed));
        assert_eq!(ended, 0, "they end before they need fewer than {used} kernel threads");
        if used <= MOST_KERNEL_THREADS {
            break;
        }
        thread::yield_now();
    }
    end();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

#[test]
fn many_waits_at_once_need_few_kernel_threads() {
    let _alone = alone();
    let lock = Arc::new(Mutex::new(()));
    let held = lock.clone();
    let guard = lock.lock().expect("not poisoned");
    wait_at_once(move |_| drop(held.lock().expect("not poisoned")), || drop(guard));

    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let waits = gate.clone();
    wait_at_once(
        move |_| {
            let open = waits.0.lock().expect("not poisoned");
            drop(waits.1.wait_while(open, |open| !*open).expect("not poisoned"));
        },
        || {
            *gate.0.lock().expect("not poisoned") = true;
            gate.1.notify_all();
        },
    );

    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..MANY).map(|_| mpsc::channel::<usize>()).map(|(s, r)| (s, Mutex::new(r))).unzip();
    wait_at_once(
        move |n| assert_eq!(receivers[n].lock().expect("not poisoned").recv(), Ok(n)),
        || senders.iter().enumerate().for_each(|(n, to)| to.send(n).expect("it waits")),
    );

    wait_at_once(|_| thread::sleep(Duration::from_secs(3)), || ());

    let barrier = Arc::new(Barrier::new(MANY + 1));
    let other = barrier.clone();
    wait_at_once(
        move |_| {
            other.wait();
        },
        || {
            barrier.wait();
        },
    );

    let words = Arc::new(RwLock::new(0));
    let readers = words.clone();
    let guard = words.write().expect("not poisoned");
    wait_at_once(move |_| assert_eq!(*readers.read().expect("not poisoned"), 0), || drop(guard));

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    listen(&listener, 2 * MANY as i32);
    grow_descriptor_table(&listener);
    let accepted = thread::spawn(move || {
        (0..MANY).map(|_| listener.accept().expect("a connection").0).collect::<Vec<_>>()
    });
    wait_at_once(
        move |_| {
            let mut stream = TcpStream::connect(at).expect("it listens");
            let mut word = [0; 4];
            stream.read_exact(&mut word).expect("a word");
            assert_eq!(&word, b"word");
        },
        || {
            for mut stream in accepted.join().expect("no panic") {
                stream.write_all(b"word").expect("it reads");
            }
        },
    );
}

/// A listener whose backlog is full does not answer: the connection waits until the next attempt of
/// the kernel, and other threads run.
#[test]
fn connection_that_waits_blocks_its_thread_only() {
    let _alone = alone();
    const WAITING: usize = 12;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    listen(&listener, 0);
    let fills = TcpStream::connect(at).expect("there is room for one");
    let before = kernel_threads();
    let connecting: Vec<_> =
        (0..WAITING).map(|_| thread::spawn(move || TcpStream::connect(at))).collect();
    thread::sleep(Duration::from_millis(100));
    let during = kernel_threads();
    thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            kept.push(stream);
        }
    });
    let connected: Vec<_> = connecting
        .into_iter()
        .map(|one| one.join().expect("no panic").expect("a connection"))
        .collect();
    for stream in connected.iter().chain([&fills]) {
        // SAFETY: an integer.
        let flags = unsafe { libc::fcntl(stream.as_raw_fd(), libc::F_GETFL) };
        assert_eq!(flags & libc::O_NONBLOCK, 0, "the flag is the program's");
    }
    assert!(during < before + WAITING / 2, "{before} kernel threads, then {during}");
}

/// Has the kernel enlarge the table of descriptors now. While it does so, for milliseconds, all
/// calls that make a descriptor block in the kernel, and each takes a kernel thread
/// (`expand_fdtable` in fs/file.c).
fn grow_descriptor_table(any: &TcpListener) {
    // SAFETY: integers; the new descriptor is closed.
    unsafe {
        let highest = libc::fcntl(any.as_raw_fd(), libc::F_DUPFD, 3 * MANY as i32);
        assert!(highest >= 0 && libc::close(highest) == 0, "{}", std::io::Error::last_os_error());
    }
}

/// Changes the number of connections that wait to be accepted.
fn listen(listener: &TcpListener, backlog: i32) {
    // SAFETY: integers.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), backlog) }, 0);
}
