//! Thousands of random blocking calls: each returns the same result as on a kernel thread.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use kumihimo::net;
use kumihimo::runtime::Runtime;
use kumihimo::thread;
use kumihimo_tests::process::kernel_threads;
use kumihimo_tests::{Random, seed};

use crate::calls::flock;
use crate::case::{await_shrunk, of_the_runtime, seen};

const VPS: usize = 2;
const MICROPROCESSES: u64 = 50;
const ROUNDS: u64 = 100;
const RELEASERS: usize = 3;

/// A release, and the time after which it happens.
type Release = (Duration, Box<dyn FnOnce(Duration) + Send>);

/// Kernel threads that release blocked microprocesses.
struct Releasers(mpsc::Sender<Release>);

impl Releasers {
    fn start() -> (Releasers, Vec<std::thread::JoinHandle<()>>) {
        let (sender, receiver) = mpsc::channel::<Release>();
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = (0..RELEASERS)
            .map(|_| {
                let receiver = receiver.clone();
                std::thread::spawn(move || {
                    loop {
                        let next = receiver.lock().expect("not poisoned").recv();
                        let Ok((after, release)) = next else { return };
                        release(after);
                    }
                })
            })
            .collect();
        (Releasers(sender), threads)
    }

    /// Calls `release` with the time to wait, during which `release` may hold a resource.
    fn ask(&self, after: Duration, release: impl FnOnce(Duration) + Send + 'static) {
        self.0.send((after, Box::new(release))).expect("they live longer");
    }

    fn after(&self, after: Duration, release: impl FnOnce() + Send + 'static) {
        self.ask(after, move |after| {
            std::thread::sleep(after);
            release();
        });
    }
}

/// The objects in which one microprocess blocks.
struct Own {
    number: u64,
    random: Random,
    releasers: Arc<Releasers>,
    pipe: (std::io::PipeReader, std::io::PipeWriter),
    sockets: (UnixStream, UnixStream),
    files: (File, Arc<File>),
    mutex: Arc<Mutex<u64>>,
    net: (net::UnixStream, net::UnixStream),
}

impl Own {
    fn new(number: u64, random: Random, releasers: Arc<Releasers>) -> Own {
        let path =
            std::env::temp_dir().join(format!("kumihimo-random-{}-{number}", std::process::id()));
        let files =
            (File::create(&path).expect("a file"), Arc::new(File::create(&path).expect("a file")));
        std::fs::remove_file(&path).expect("it is there");
        Own {
            number,
            random,
            releasers,
            pipe: std::io::pipe().expect("a pipe"),
            sockets: UnixStream::pair().expect("a pair"),
            files,
            mutex: Arc::default(),
            net: net::UnixStream::pair().expect("a pair"),
        }
    }

    /// A short time, sometimes zero: the call then returns before the block is detected.
    fn short(&mut self) -> Duration {
        if self.random.one_in(3) {
            Duration::ZERO
        } else {
            Duration::from_micros(self.random.below(1500))
        }
    }

    fn run(mut self) -> u64 {
        for round in 0..ROUNDS {
            match self.random.below(10) {
                0 | 1 => self.pipe(round),
                2 => self.mutex(),
                3 => self.flock(),
                4 => self.nanosleep(),
                5 => self.socketpair(round),
                6 => self.futex(),
                7 => self.readiness(round),
                8 => self.annotated(round),
                _ => thread::sleep(self.short()),
            }
        }
        ROUNDS
    }

    /// Eight bytes that identify the round.
    fn word(&self, round: u64) -> [u8; 8] {
        (self.number << 32 | round).to_ne_bytes()
    }

    fn pipe(&mut self, round: u64) {
        let (word, after) = (self.word(round), self.short());
        let mut writer = self.pipe.1.try_clone().expect("a descriptor");
        self.releasers.after(after, move || writer.write_all(&word).expect("room"));
        let mut got = [0; 8];
        assert_eq!(self.pipe.0.read(&mut got).expect("no EINTR"), 8);
        assert_eq!(got, word);
    }

    fn socketpair(&mut self, round: u64) {
        let (word, after) = (self.word(round), self.short());
        let mut its = self.sockets.1.try_clone().expect("a descriptor");
        self.releasers.after(after, move || its.write_all(&word).expect("room"));
        let mut got = [0; 8];
        assert_eq!(self.sockets.0.read(&mut got).expect("no EINTR"), 8);
        assert_eq!(got, word);
    }

    fn mutex(&mut self) {
        let held = Arc::new(AtomicBool::new(false));
        let (mutex, its) = (self.mutex.clone(), held.clone());
        let before = *mutex.lock().expect("not poisoned");
        let after = self.short();
        self.releasers.ask(after, move |after| {
            let mut guard = mutex.lock().expect("not poisoned");
            its.store(true, SeqCst);
            std::thread::sleep(after);
            *guard += 1;
        });
        while !held.load(SeqCst) {
            thread::yield_now();
        }
        assert_eq!(*self.mutex.lock().expect("not poisoned"), before + 1);
    }

    fn flock(&mut self) {
        assert_eq!(flock(&self.files.1, libc::LOCK_EX | libc::LOCK_NB), (0, None));
        let (other, unlocked) = (self.files.1.clone(), Arc::new(AtomicBool::new(false)));
        let its = unlocked.clone();
        let after = self.short();
        self.releasers.after(after, move || {
            its.store(true, SeqCst);
            assert_eq!(flock(&other, libc::LOCK_UN), (0, None));
        });
        assert_eq!(flock(&self.files.0, libc::LOCK_EX), (0, None), "no EINTR");
        assert!(unlocked.load(SeqCst), "two have the lock");
        assert_eq!(flock(&self.files.0, libc::LOCK_UN), (0, None));
    }

    fn nanosleep(&mut self) {
        let (time, since) = (self.short(), Instant::now());
        let wanted = libc::timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        // SAFETY: a live timespec.
        let r = unsafe { libc::nanosleep(&wanted, std::ptr::null_mut()) };
        assert_eq!(r, 0, "{}", std::io::Error::last_os_error());
        assert!(since.elapsed() >= time, "not too short");
    }

    fn futex(&mut self) {
        let word = Arc::new(AtomicU32::new(0));
        let its = word.clone();
        let after = self.short();
        self.releasers.after(after, move || {
            its.store(1, SeqCst);
            // SAFETY: a word that lives on.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    its.as_ptr(),
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                    1,
                )
            };
        });
        while word.load(SeqCst) == 0 {
            let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: a word that lives on; no timeout.
            let r = unsafe {
                libc::syscall(libc::SYS_futex, word.as_ptr(), wait, 0, std::ptr::null::<()>())
            };
            let error = std::io::Error::last_os_error().raw_os_error();
            assert!(r == 0 || error == Some(libc::EAGAIN), "{r}: {error:?}");
        }
    }

    /// A wait on Kumihimo's own socket, for which the VP needs no event.
    fn readiness(&mut self, round: u64) {
        let word = self.word(round);
        let (here, there) = (&mut self.net.0, &mut self.net.1);
        let mut got = [0; 8];
        thread::scope(|s| {
            s.spawn(|| there.write_all(&word).expect("room"));
            here.read_exact(&mut got).expect("eight bytes");
        });
        assert_eq!(got, word);
    }

    /// A block inside Kumihimo's `blocking`, which hands the VP over.
    fn annotated(&mut self, round: u64) {
        let time = self.short();
        let got = thread::blocking(|| {
            std::thread::sleep(time);
            round
        });
        assert_eq!(got, round);
    }
}

#[test]
fn random_blocking_calls_return_as_on_a_kernel_thread() {
    const NAME: &str = "random::random_blocking_calls_return_as_on_a_kernel_thread";
    of_the_runtime(NAME, |source| {
        // The parent repeats this line if the test fails.
        seen(NAME, source, format_args!("KUMI_SEED={}", seed()));
        let mut random = Random(seed());
        let before = kernel_threads();
        let (releasers, threads) = Releasers::start();
        let (releasers, done) = (Arc::new(releasers), Arc::new(AtomicU64::new(0)));
        Runtime::builder().vps(VPS).build().expect("a runtime").run(|| {
            let all: Vec<_> = (0..MICROPROCESSES)
                .map(|number| {
                    let own = Own::new(number, random.split(), releasers.clone());
                    let done = done.clone();
                    thread::spawn(move || done.fetch_add(own.run(), SeqCst))
                })
                .collect();
            for one in all {
                one.join().expect("no panic");
            }
            await_shrunk(before + RELEASERS, VPS);
        });
        assert_eq!(done.load(SeqCst), MICROPROCESSES * ROUNDS);
        drop(releasers);
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}
