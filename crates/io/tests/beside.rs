//! While one microprocess waits for a file, a child or a signal, the only virtual processor goes on
//! with the others.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bodies::files::{Place, terminal};
use kumihimo_io::fs::File;
use kumihimo_io::io::pipe;
use kumihimo_io::process::{Command, Stdio};
use kumihimo_io::signal::{self, Kind};
use kumihimo_runtime::cancel::Cancelled;
use kumihimo_runtime::runtime::Runtime;
use kumihimo_runtime::thread;

mod bodies;

/// One runtime at a time.
static ONE: Mutex<()> = Mutex::new(());

fn alone(f: impl FnOnce() + Send + 'static) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    Runtime::builder().vps(1).build().expect("a runtime").run(|| {
        if let Err(payload) = thread::spawn(f).join() {
            std::panic::resume_unwind(payload);
        }
    });
}

/// Runs `wait` in a microprocess; when it is about to, the others switch some hundred times on the
/// one VP, and only then `end` ends the wait.
fn others_go_on<W: Send + 'static>(
    wait: impl FnOnce() -> W + Send + 'static,
    end: impl FnOnce() + Send + 'static,
) -> W {
    static TURNS: AtomicU64 = AtomicU64::new(0);
    TURNS.store(0, Ordering::Relaxed);
    let waits = std::sync::Arc::new(AtomicBool::new(false));
    let began = waits.clone();
    let waiter = thread::spawn(move || {
        began.store(true, Ordering::Release);
        wait()
    });
    while !waits.load(Ordering::Acquire) {
        thread::yield_now();
    }
    let others: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(|| {
                for _ in 0..100 {
                    TURNS.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now();
                }
            })
        })
        .collect();
    others.into_iter().for_each(|other| other.join().expect("counts"));
    assert_eq!(TURNS.load(Ordering::Relaxed), 400);
    assert!(!waiter.is_finished(), "nothing has ended its wait yet");
    end();
    waiter.join().expect("the waiter")
}

#[test]
fn a_read_of_a_fifo_waits() {
    alone(|| {
        let place = Place::new();
        let path = place.fifo("f");
        let mut writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut reader = File::open(&path).unwrap();
        let read = move || {
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            byte
        };
        assert_eq!(others_go_on(read, move || writer.write_all(b"x").unwrap()), *b"x");
    });
}

/// Opening waits in the kernel, where only the event source sees it.
#[test]
fn opening_a_fifo_waits() {
    alone(|| {
        let place = Place::new();
        let path = place.fifo("f");
        let other = path.clone();
        let end = move || drop(OpenOptions::new().write(true).open(other).unwrap());
        assert_eq!(others_go_on(move || File::open(path).unwrap().read(&mut [0]).unwrap(), end), 0);
    });
}

#[test]
fn a_terminal_and_a_pipe_wait() {
    alone(|| {
        let (mut keyboard, mut screen) = terminal();
        // Gone only when all is read.
        let _keyboard = keyboard.try_clone().unwrap();
        let mut line = [0; 8];
        assert_eq!(
            others_go_on(
                move || screen.read(&mut line).unwrap(),
                move || keyboard.write_all(b"ab\n").unwrap()
            ),
            3
        );
        let (mut reader, mut writer) = pipe().unwrap();
        assert_eq!(
            others_go_on(
                move || reader.read(&mut [0]).unwrap(),
                move || writer.write_all(b"x").unwrap()
            ),
            1
        );
    });
}

#[test]
fn a_full_pipe_waits() {
    alone(|| {
        let (mut reader, mut writer) = pipe().unwrap();
        let read = move || {
            let mut all = Vec::new();
            assert_eq!(reader.read_to_end(&mut all).unwrap(), 200_000);
        };
        others_go_on(move || writer.write_all(&[0; 200_000]).unwrap(), read);
    });
}

#[test]
fn a_lock_of_a_file_waits() {
    alone(|| {
        let place = Place::new();
        let first = File::create(place.at("a")).unwrap();
        let second = File::open(place.at("a")).unwrap();
        first.lock().unwrap();
        others_go_on(move || second.lock().unwrap(), move || first.unlock().unwrap());
    });
}

#[test]
fn a_child_is_waited_for() {
    alone(|| {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let input = child.stdin.take();
        assert!(others_go_on(move || child.wait().unwrap(), move || drop(input)).success());
        // With nothing to end it but itself.
        assert!(
            others_go_on(|| Command::new("sleep").arg("0.3").status().unwrap(), || ()).success()
        );
    });
}

#[test]
fn a_signal_is_waited_for() {
    alone(|| {
        let mut stream = signal::stream(Kind::USER_2).unwrap();
        // SAFETY: a handler is installed.
        others_go_on(
            move || stream.recv().unwrap(),
            || unsafe { assert_eq!(libc::raise(libc::SIGUSR2), 0) },
        );
    });
}

/// A microprocess that waits can be cancelled; the child of a `status` that was is reaped later,
/// and no descriptor stays open.
#[test]
fn cancelled_waits_leave_no_registration() {
    alone(|| {
        // The poll sets and all that is opened once.
        assert!(Command::new("true").status().unwrap().success());
        let before = descriptors();
        let place = Place::new();
        let path = place.fifo("f");
        let waits: [Box<dyn Fn() + Send>; 5] = [
            Box::new(move || {
                let mut both =
                    kumihimo_io::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
                drop(both.read(&mut [0]));
            }),
            Box::new(|| {
                drop(pipe().unwrap().0.try_clone().map(|mut reader| {
                    let (_keep, mut other) = (pipe().unwrap(), pipe().unwrap());
                    drop((reader.read(&mut [0]), other.0.read(&mut [0])));
                }))
            }),
            Box::new(|| drop(Command::new("sleep").arg("0.2").status())),
            Box::new(|| drop(Command::new("sleep").arg("0.2").output())),
            Box::new(|| drop(signal::ctrl_c())),
        ];
        for wait in waits {
            let (began, begins) = std::sync::mpsc::channel();
            let one = thread::spawn(move || {
                began.send(()).unwrap();
                wait();
            });
            while begins.try_recv().is_err() {
                thread::yield_now();
            }
            (0..50).for_each(|_| thread::yield_now());
            one.cancel();
            assert!(one.join().unwrap_err().is::<Cancelled>());
        }
        drop(place);
        assert_eq!(descriptors(), before);
        // SAFETY: no status is asked for. Looks, and reaps nothing.
        let zombie = || unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOWAIT)
        };
        assert_eq!(zombie(), 0, "one of them has ended");
        // Each spawn reaps those that have ended meanwhile, so in the end none is left.
        while zombie() == 0 {
            assert!(Command::new("true").status().unwrap().success());
        }
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ECHILD));
    });
}

/// What is opened is closed, whatever way it goes.
#[test]
fn calls_close_every_descriptor() {
    alone(|| {
        let round = || {
            let place = Place::new();
            bodies::streams::copy_between_anything(bodies::STD);
            bodies::files::fifos(bodies::STD);
            bodies::files::directories(bodies::STD);
            bodies::children::much_output(bodies::STD);
            bodies::children::waiting(bodies::STD);
            bodies::children::streams_of_ours(bodies::STD);
            bodies::children::what_cannot_begin(bodies::STD);
            drop(signal::stream(Kind::USER_1).unwrap());
            drop(place);
        };
        round();
        let before = descriptors();
        round();
        assert_eq!(descriptors(), before);
    });
}

/// Those that are open, but for what kernel threads of the pool have for their events.
fn descriptors() -> Vec<String> {
    let open = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| std::fs::read_link(entry.unwrap().path()));
    // The directory itself is closed by the time that it is looked at.
    let names = open.filter_map(|name| Some(name.ok()?.to_str()?.to_owned()));
    let ours = names.filter(|name| !name.contains("perf_event") && !name.contains("bpf"));
    // Without the numbers that pipes and sockets have.
    let mut kinds: Vec<String> =
        ours.map(|name| name.split(":[").next().unwrap().to_owned()).collect();
    kinds.sort();
    kinds
}

/// Two handles with one number: the second cannot join the same poll set, and waits on a kernel
/// thread.
#[test]
fn two_handles_of_one_descriptor_both_wait() {
    alone(|| {
        let (reader, mut writer) = pipe().unwrap();
        let fd = reader.as_raw_fd();
        let read = move || {
            // SAFETY: open for as long as `reader` is; taken out again without closing.
            let mut same = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
            same.read(&mut [0]).unwrap()
        };
        let mut first = reader;
        let one = thread::spawn(move || {
            let n = first.read(&mut [0]).unwrap();
            (n, first)
        });
        (0..10).for_each(|_| thread::yield_now());
        let two = thread::spawn(read);
        (0..10).for_each(|_| thread::yield_now());
        writer.write_all(b"x").unwrap();
        writer.write_all(b"y").unwrap();
        assert_eq!(two.join().unwrap(), 1);
        assert_eq!(one.join().unwrap().0, 1);
    });
}
