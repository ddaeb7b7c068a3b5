//! Signals that are waited for, and signals that come while something else is.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bodies::files::Place;
use kumihimo_io::fs::{self, File, OpenOptions};
use kumihimo_io::io::{self, pipe};
use kumihimo_io::process::{Command, Stdio};
use kumihimo_io::signal::{self, Kind};
use kumihimo_runtime::thread;

mod bodies;

/// On a std thread, and in a microprocess.
fn everywhere(f: fn()) {
    f();
    if let Err(payload) = thread::spawn(f).join() {
        std::panic::resume_unwind(payload);
    }
}

fn send(kind: Kind) {
    // SAFETY: to ourselves; a handler is installed.
    assert_eq!(unsafe { libc::kill(libc::getpid(), kind.as_raw()) }, 0);
}

#[test]
fn each_delivery_is_counted() {
    everywhere(|| {
        let (mut one, mut two) =
            (signal::stream(Kind::HANGUP).unwrap(), signal::stream(Kind::HANGUP).unwrap());
        assert_eq!(one.kind(), Kind::HANGUP);
        for _ in 0..5 {
            send(Kind::HANGUP);
            // Delivered before the next one is sent: the kernel merges those that are pending.
            one.recv().unwrap();
        }
        for _ in 0..5 {
            two.recv().unwrap();
        }
        thread::scope_until(Instant::now() + Duration::from_millis(5), |_| {
            assert_eq!(two.recv().unwrap_err().kind(), ErrorKind::TimedOut);
        });
        drop(one);
        send(Kind::HANGUP);
        assert_eq!(two.next().unwrap().unwrap(), Kind::HANGUP);
    });
}

#[test]
fn a_real_time_signal_and_a_child() {
    everywhere(|| {
        let kind = Kind::from_raw(libc::SIGRTMIN() + 5);
        let mut queued = signal::stream(kind).unwrap();
        (0..10).for_each(|_| send(kind));
        (0..10).for_each(|_| queued.recv().unwrap());
        let mut children = signal::stream(Kind::CHILD).unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        children.recv().unwrap();
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn ctrl_c_is_waited_for() {
    static WAITS: AtomicU64 = AtomicU64::new(0);
    everywhere(|| {
        // From the first call on it does not end the process.
        let mut own = signal::stream(Kind::INTERRUPT).unwrap();
        let before = WAITS.load(Ordering::SeqCst);
        let waiter = thread::spawn(|| {
            signal::ctrl_c().unwrap();
            WAITS.fetch_add(1, Ordering::SeqCst);
        });
        // Whether it was waiting already is not to be seen from outside, so until it has ended.
        while !waiter.is_finished() {
            send(Kind::INTERRUPT);
            own.recv().unwrap();
            thread::yield_now();
        }
        waiter.join().unwrap();
        assert_eq!(WAITS.load(Ordering::SeqCst), before + 1);
    });
}

#[test]
fn uncatchable_signals_are_refused() {
    for number in [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGSEGV,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGBUS,
        libc::SIGTRAP,
    ] {
        assert_eq!(
            signal::stream(Kind::from_raw(number)).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
    for number in [0, -1, 1000] {
        assert_eq!(
            signal::stream(Kind::from_raw(number)).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
}

extern "C" fn nothing(_: libc::c_int) {}

/// Pelts the kernel threads of the process with a signal whose handler ends system calls, while `f`
/// runs.
fn pelted(f: impl FnOnce()) {
    // SAFETY: all zero is a valid sigaction: no flags, so no SA_RESTART; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    static OVER: AtomicBool = AtomicBool::new(false);
    OVER.store(false, Ordering::Relaxed);
    let pelting = std::thread::spawn(|| {
        let mut threads = Vec::new();
        while !OVER.load(Ordering::Relaxed) {
            threads.clear();
            let all = std::fs::read_dir("/proc/self/task").unwrap();
            threads.extend(
                all.filter_map(|t| t.ok()?.file_name().to_str()?.parse::<libc::pid_t>().ok()),
            );
            for &thread in &threads {
                // SAFETY: one that has ended meanwhile is an error, not a danger: numbers of this
                // process only.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1) };
            }
            std::thread::yield_now();
        }
    });
    f();
    OVER.store(true, Ordering::Relaxed);
    pelting.join().unwrap();
}

/// Signals without SA_RESTART end no call of Kumihimo's, and lose no byte.
#[test]
fn a_storm_of_signals_ends_no_call() {
    pelted(|| everywhere(under_fire));
}

fn under_fire() {
    let place = Place::new();
    let bytes: Vec<u8> = (0..400_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(place.at("a"), &bytes).unwrap();
    assert_eq!(fs::copy(place.at("a"), place.at("b")).unwrap(), 400_000);
    assert_eq!(fs::read(place.at("b")).unwrap(), bytes);
    File::open(place.at("b")).unwrap().sync_all().unwrap();

    let (mut reader, mut writer) = pipe().unwrap();
    let all = bytes.clone();
    let writes = thread::spawn(move || writer.write_all(&all).unwrap());
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    assert_eq!(got, bytes);
    writes.join().unwrap();

    let path = place.fifo("f");
    let (mut from, at) = (File::open(place.at("a")).unwrap(), path.clone());
    let writes = thread::spawn(move || {
        let mut fifo = OpenOptions::new().write(true).open(at).unwrap();
        io::copy(&mut from, &mut fifo).unwrap()
    });
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert_eq!(writes.join().unwrap(), 400_000);

    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, all) = (cat.stdin.take().unwrap(), bytes.clone());
    let writes = thread::spawn(move || to.write_all(&all).unwrap());
    assert_eq!(cat.wait_with_output().unwrap().stdout, bytes);
    writes.join().unwrap();
    assert!(Command::new("sleep").arg("0.05").status().unwrap().success());
    let first = File::open(place.at("a")).unwrap();
    let second = File::open(place.at("a")).unwrap();
    first.lock().unwrap();
    let waits = thread::spawn(move || second.lock().unwrap());
    (0..100).for_each(|_| thread::yield_now());
    first.unlock().unwrap();
    waits.join().unwrap();
}
