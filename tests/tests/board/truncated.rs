//! Programs whose board is truncated by another process, again and again: priorities between them
//! may be lost meanwhile, but no program ends and no wake-up is lost.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use kumihimo::gate::Gate;
use kumihimo::runtime::Runtime;
use kumihimo::sync::mpsc;
use kumihimo::thread;
use kumihimo_arbiter::view::View;
use kumihimo_tests::place::Place;
use kumihimo_tests::process::{again, is_child};

use super::ON;
use super::pair::{pair_with, serve_on};

/// Truncations of the board in each test. Fewer than after which a process leaves the board.
const CUTS: u32 = 60;

fn path() -> PathBuf {
    let directory = std::env::var_os("KUMI_DIR").expect("the test sets it");
    PathBuf::from(directory).join("board")
}

fn truncate() {
    let file = File::options().write(true).open(path()).expect("the user's own");
    file.set_len(0).expect("it is cut");
}

#[test]
fn callers_and_servers_of_gates_survive() {
    let serve = || {
        Runtime::builder().build().expect("a runtime").run(|| {
            let _gate = Gate::serve("echo", |n: u32| n + 1).expect("it serves");
            serve_on();
        });
    };
    pair_with("truncated::callers_and_servers_of_gates_survive", &ON, serve, || {
        let gate = Gate::<u32, u32>::connect("echo").expect("it is there");
        for n in 0..CUTS {
            truncate();
            assert_eq!(gate.call(&n).expect("the server lives"), n + 1);
        }
        // Both count again, within a second, and share the cores as before.
        while seen_members() != 2 {
            thread::sleep(std::time::Duration::from_millis(10));
        }
    });
}

/// Number of address spaces that an observer sees with their VPs.
fn seen_members() -> usize {
    let view = View::open(&path()).expect("a board");
    view.spaces().iter().filter(|space| space.vps > 0).count()
}

#[test]
fn sleeping_vps_of_a_lone_process_are_woken() {
    const NAME: &str = "truncated::sleeping_vps_of_a_lone_process_are_woken";
    if !is_child(NAME) {
        let place = Place::new(NAME);
        for preempt in ["off", "signal=27"] {
            let settings =
                [("KUMI_DIR", place.path()), ("KUMI_ARBITER", "on"), ("KUMI_PREEMPT", preempt)];
            let ended = again(NAME, &settings);
            assert!(ended.status.success(), "{}", ended.told());
        }
        return;
    }
    // A pipe, so that a VP sleeps on descriptors too.
    let (mut reader, mut writer) = kumihimo::io::pipe().expect("a pipe");
    let (sender, receiver) = mpsc::channel::<u32>();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let outside = std::thread::spawn(move || {
        for n in 0..CUTS {
            let () = is_ready.recv().expect("it runs");
            truncate();
            if n % 2 == 0 {
                sender.send(n).expect("it receives");
            } else {
                writer.write_all(&[n as u8]).expect("it reads");
            }
        }
    });
    Runtime::builder().vps(2).build().expect("a runtime").run(move || {
        for n in 0..CUTS {
            ready.send(()).expect("it waits");
            if n % 2 == 0 {
                assert_eq!(receiver.recv(), Ok(n));
            } else {
                let mut byte = [0];
                reader.read_exact(&mut byte).expect("a byte");
                assert_eq!(u32::from(byte[0]), n);
            }
        }
    });
    outside.join().expect("it ends");
}

/// Faults of the program's own that its handler has seen.
static OWN: AtomicU32 = AtomicU32::new(0);
const PAGE: usize = 4096;

/// The program's own handler: a page that its file lost is replaced by an empty one.
extern "C" fn on_bus(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    OWN.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel passes a valid siginfo. The page belongs to the program's own mapping.
    unsafe {
        let page = ((*info).si_addr() as usize & !(PAGE - 1)) as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(page, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
    }
}

#[test]
fn handler_of_the_program_keeps_its_own_faults() {
    const NAME: &str = "truncated::handler_of_the_program_keeps_its_own_faults";
    if !is_child(NAME) {
        let place = Place::new(NAME);
        let ended = again(NAME, &[("KUMI_DIR", place.path()), ("KUMI_ARBITER", "on")]);
        return assert!(ended.status.success(), "{}", ended.told());
    }
    // SAFETY: all zeroes are a valid sigaction, and the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()), 0);
    }
    let own = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path().with_file_name("own"))
        .expect("a file");
    own.set_len(PAGE as u64).expect("room");
    // SAFETY: a new mapping of a live descriptor.
    let mapped = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(ptr::null_mut(), PAGE, protection, libc::MAP_SHARED, own.as_raw_fd(), 0)
    };
    assert_ne!(mapped, libc::MAP_FAILED);
    let mapped = mapped as usize;
    Runtime::builder().vps(2).build().expect("a runtime").run(move || {
        own.set_len(0).expect("it is cut");
        let faults = thread::spawn(move || {
            truncate();
            thread::yield_now();
            // SAFETY: mapped, and readable after the program's handler has run.
            unsafe { ptr::read_volatile(mapped as *const u8) }
        });
        assert_eq!(faults.join().expect("it ends"), 0);
        truncate();
        thread::spawn(|| {}).join().expect("it ends");
        // A microprocess that blocks all signals does not end the process either.
        let blocks = thread::spawn(|| {
            // SAFETY: a live set.
            unsafe {
                let mut all: libc::sigset_t = std::mem::zeroed();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &all, ptr::null_mut());
            }
            for _ in 0..10 {
                truncate();
                thread::yield_now();
                thread::spawn(|| {}).join().expect("it ends");
            }
        });
        blocks.join().expect("it ends");
    });
    assert_eq!(OWN.load(Ordering::Relaxed), 1, "faults on the board are not the program's");
}
