//! std under `kumihimo::interpose!`: the test harness itself runs each test as a microprocess.
kumihimo::interpose!();

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

fn runs_on_microprocess() -> bool {
    kumihimo::thread::current().id().resource().is_some()
}

#[test]
fn threads_of_std_are_microprocesses() {
    assert!(runs_on_microprocess(), "the harness has started this test by std::thread");
    assert!(thread::spawn(runs_on_microprocess).join().expect("no panic"));
    let named = thread::Builder::new().name("named".into()).stack_size(256 << 10);
    let name = named.spawn(|| thread::current().name().map(str::to_owned)).expect("a thread");
    assert_eq!(name.join().expect("no panic").as_deref(), Some("named"));
}

#[test]
fn sockets_time_out() {
    let (mut near, _far) = UnixStream::pair().expect("a pair");
    near.set_read_timeout(Some(Duration::from_millis(30))).expect("a time-out");
    let begun = Instant::now();
    let error = near.read(&mut [0]).expect_err("nothing comes");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    assert!(begun.elapsed() >= Duration::from_millis(30));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_nonblocking(true).expect("a flag");
    let error = socket.recv_from(&mut [0]).expect_err("nothing comes");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn connection_to_a_closed_port_is_refused() {
    let at = TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).expect("a port");
    let error = TcpStream::connect(at).expect_err("nothing listens");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let error = TcpStream::connect_timeout(&at, Duration::from_secs(5)).expect_err("as above");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn panics_reach_the_thread_that_joins() {
    let payload = thread::spawn(|| std::panic::panic_any(7u32)).join().expect_err("it panics");
    assert_eq!(payload.downcast_ref(), Some(&7u32));
    let lock = Arc::new(Mutex::new(()));
    let poisons = lock.clone();
    let thread = thread::spawn(move || {
        let _guard = poisons.lock().expect("not poisoned");
        panic!("on purpose");
    });
    assert!(thread.join().is_err());
    assert!(lock.lock().is_err(), "the lock is poisoned");
}

#[test]
fn thread_local_destructors_run_before_the_join() {
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    struct Counts(Cell<u32>);
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPPED.fetch_add(self.0.get(), Ordering::Relaxed);
        }
    }
    thread_local! {
        static OWN: Counts = const { Counts(Cell::new(0)) };
    }
    let threads: Vec<_> =
        (0..100).map(|_| thread::spawn(|| OWN.with(|own| own.0.set(own.0.get() + 1)))).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(DROPPED.load(Ordering::Relaxed), 100);
}

#[test]
fn scoped_threads_borrow() {
    let (sum, numbers) = (Mutex::new(0), [1, 2, 3, 4]);
    thread::scope(|scope| {
        let sum = &sum;
        for n in &numbers {
            scope.spawn(move || *sum.lock().expect("not poisoned") += n);
        }
    });
    assert_eq!(sum.into_inner().expect("not poisoned"), 10);
}

#[test]
fn parked_threads_are_woken() {
    let thread = thread::spawn(|| {
        thread::park();
        thread::park_timeout(Duration::from_millis(1));
    });
    thread.thread().unpark();
    thread.join().expect("no panic");
}

#[test]
fn initialisations_run_once() {
    static ONCE: Once = Once::new();
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static LAZY: LazyLock<u32> = LazyLock::new(|| {
        thread::sleep(Duration::from_millis(10));
        RUNS.fetch_add(1, Ordering::Relaxed)
    });
    let threads: Vec<_> = (0..50)
        .map(|_| {
            thread::spawn(|| {
                ONCE.call_once(|| thread::sleep(Duration::from_millis(10)));
                assert_eq!(*LAZY, 0);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(RUNS.load(Ordering::Relaxed), 1);
}

#[test]
fn commands_run() {
    let mut cat =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat(1)");
    let mut input = cat.stdin.take().expect("piped");
    let writer = thread::spawn(move || input.write_all(b"through a pipe"));
    let output = cat.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("it reads");
    assert_eq!(output.stdout, b"through a pipe");
    assert!(Command::new("false").status().is_ok_and(|status| !status.success()));
}

#[test]
fn child_of_fork_creates_kernel_threads() {
    // SAFETY: the child calls functions of std that a program may call in it, as glibc allows.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let sum = Arc::new(Mutex::new(0));
        let add = sum.clone();
        let joined = thread::spawn(move || *add.lock().expect("not poisoned") += 1).join().is_ok();
        let is_right = joined && *sum.lock().expect("not poisoned") == 1;
        // SAFETY: an integer.
        unsafe { libc::_exit(if is_right { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: a live integer.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// Threads of Kumihimo and of std use the same locks.
#[test]
fn both_kinds_of_thread_share_locks_of_std() {
    let sum = Arc::new(Mutex::new(0u32));
    let std_threads: Vec<_> = (0..50)
        .map(|_| {
            let sum = sum.clone();
            thread::spawn(move || (0..100).for_each(|_| *sum.lock().expect("not poisoned") += 1))
        })
        .collect();
    let own_threads: Vec<_> = (0..50)
        .map(|_| {
            let sum = sum.clone();
            kumihimo::thread::spawn(move || {
                (0..100).for_each(|_| *sum.lock().expect("not poisoned") += 1);
            })
        })
        .collect();
    std_threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    own_threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(*sum.lock().expect("not poisoned"), 10_000);
}

/// A thread in a section without events wakes threads of std.
#[test]
fn wake_up_without_events_reaches_its_thread() {
    let threads: Vec<_> = (0..32)
        .map(|_| {
            thread::spawn(|| {
                for _ in 0..100 {
                    thread::park();
                }
            })
        })
        .collect();
    while threads.iter().any(|thread| !thread.is_finished()) {
        let _events = kumihimo::runtime::NoEvents::new();
        threads.iter().for_each(|thread| thread.thread().unpark());
    }
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

/// Threads that compute are preempted, and those beside them go on.
#[test]
fn computing_threads_let_others_run() {
    if kumihimo::runtime::metrics().expect("a runtime runs").preemption == "off" {
        return println!("[skip] nothing is preempted here");
    }
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let computing: Vec<_> = (0..4)
        .map(|_| {
            let stop = stop.clone();
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let begun = Instant::now();
    for _ in 0..10 {
        thread::spawn(|| thread::sleep(Duration::from_millis(1))).join().expect("no panic");
    }
    let taken = begun.elapsed();
    stop.store(true, Ordering::Relaxed);
    computing.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert!(taken < Duration::from_secs(10), "{taken:?}");
}
