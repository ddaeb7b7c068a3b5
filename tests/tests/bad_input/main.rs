//! Bad input that causes an error or a panic, and limits that are reached. For input that ends the
//! process, see last_words.rs.

mod callbacks;
mod closed_descriptors;
mod exhausted;
mod other_stacks;
mod sandbox;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use kumihimo::runtime::Runtime;
use kumihimo::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, mpsc,
};
use kumihimo::thread::{self, Builder};
use kumihimo_tests::process::{again, alone, is_child, one_to_one};
use kumihimo_tests::skip;

fn with_vps(vps: usize, body: impl FnOnce() + Send) {
    Runtime::builder().vps(vps).build().expect("a runtime").run(body);
}

fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .expect("a panic with a text")
}

#[test]
fn small_or_odd_stack_sizes_are_rounded_up() {
    alone("small_or_odd_stack_sizes_are_rounded_up", || {
        with_vps(2, || {
            for bytes in [0, 1, 12_345, 65_537, 1 << 20] {
                let deep = move || {
                    let mut room = [0u8; 1024];
                    std::hint::black_box(&mut room);
                    thread::yield_now();
                    room[bytes % 1024]
                };
                let handle = Builder::new()
                    .stack_size(bytes)
                    .spawn(deep)
                    .expect("a stack of at least the minimum");
                assert_eq!(handle.join().expect("it fits"), 0, "{bytes}");
            }
        });
        for bytes in [0, 1, 12_345] {
            let runtime =
                Runtime::builder().vps(1).stack_size(bytes).build().expect("at least the minimum");
            runtime.run(|| thread::spawn(thread::yield_now).join().expect("it fits"));
        }
    });
}

#[test]
fn terabyte_stack_is_refused() {
    alone("terabyte_stack_is_refused", || {
        with_vps(1, || {
            for bytes in [1 << 40, (1 << 30) + 1, usize::MAX] {
                let refused = Builder::new().stack_size(bytes).spawn(|| ()).expect_err("too large");
                assert_eq!(refused.kind(), ErrorKind::InvalidInput);
                assert!(refused.to_string().contains("the largest is"), "{refused}");
            }
            thread::spawn(|| ()).join().expect("the next one is none the worse");
        });
        let refused = Runtime::builder().stack_size(1 << 40).build().expect_err("too large");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        with_vps(1, || ());
    });
}

#[test]
fn result_larger_than_the_stack_is_refused() {
    alone("result_larger_than_the_stack_is_refused", || {
        with_vps(1, || {
            if one_to_one() {
                return skip(
                    "result_larger_than_the_stack_is_refused",
                    "kernel threads put results on the heap",
                );
            }
            let refused =
                Builder::new().stack_size(0).spawn(|| [0u8; 1 << 20]).expect_err("it does not fit");
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            assert!(refused.to_string().contains("Builder::stack_size"), "{refused}");
            let large =
                Builder::new().stack_size(8 << 20).spawn(|| [7u8; 100_000]).expect("it fits");
            assert_eq!(large.join().expect("no panic")[99_999], 7);
        });
    });
}

#[test]
fn invalid_numbers_of_vps_are_refused() {
    alone("invalid_numbers_of_vps_are_refused", || {
        for vps in [0, 1025, 10_000, usize::MAX] {
            let refused = Runtime::builder().vps(vps).build().expect_err("not possible");
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            let text = refused.to_string();
            assert!(text.contains(&vps.to_string()) && text.contains("1 to 1024"), "{text}");
        }
        with_vps(64, || {
            let all: Vec<_> = (0..1000).map(|n| thread::spawn(move || n)).collect();
            let sum: u64 = all.into_iter().map(|handle| handle.join().expect("no panic")).sum();
            assert_eq!(sum, 499_500);
        });
    });
}

#[test]
fn invalid_environment_settings_are_refused() {
    let name = "invalid_environment_settings_are_refused";
    if is_child(name) {
        let refused = Runtime::builder().build().expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        let value = std::env::var("WRONG").expect("given");
        assert!(refused.to_string().contains(&value), "{refused}");
        return;
    }
    for (variable, value) in
        [("KUMI_VPS", "0"), ("KUMI_VPS", "many"), ("KUMI_VPS", "10000"), ("KUMI_LAB", "queue=list")]
    {
        let ended = again(name, &[(variable, value), ("WRONG", value)]);
        assert!(ended.status.success(), "{variable}={value}: {ended:#?}");
    }
}

#[test]
fn second_runtime_is_refused() {
    alone("second_runtime_is_refused", || {
        let runtime = Runtime::builder().vps(1).build().expect("a runtime");
        let refused = || Runtime::builder().build().expect_err("one runs").kind();
        assert_eq!(refused(), ErrorKind::AlreadyExists);
        runtime.run(|| {
            assert_eq!(refused(), ErrorKind::AlreadyExists);
            assert_eq!(thread::spawn(refused).join().expect("no panic"), ErrorKind::AlreadyExists);
            assert_eq!(
                kumihimo::runtime::run(|| ()).expect_err("one runs").kind(),
                ErrorKind::AlreadyExists
            );
        });
        with_vps(1, || ());
    });
}

/// Attempts to start another microprocess when dropped, while the runtime shuts down.
struct Spawns(mpsc::Sender<Option<ErrorKind>>);

impl Drop for Spawns {
    fn drop(&mut self) {
        self.0.send(Builder::new().spawn(|| ()).err().map(|e| e.kind())).expect("a receiver");
    }
}

#[test]
fn spawning_during_shutdown_is_refused() {
    alone("spawning_during_shutdown_is_refused", || {
        let (sender, receiver) = mpsc::channel();
        let runtime = Runtime::builder().vps(2).build().expect("a runtime");
        let waiting = Arc::new(AtomicU64::new(0));
        for _ in 0..10 {
            let (spawns, waiting) = (Spawns(sender.clone()), waiting.clone());
            let wait = move || {
                let _spawns = spawns;
                waiting.fetch_add(1, SeqCst);
                loop {
                    thread::park();
                }
            };
            drop(Builder::new().spawn(wait).expect("it does not end yet"));
        }
        while waiting.load(SeqCst) < 10 {
            std::thread::yield_now();
        }
        drop(sender);
        assert_eq!(runtime.shutdown(), 0);
        let refusals: Vec<_> = receiver.iter().collect();
        assert_eq!(refusals, [Some(ErrorKind::Other); 10]);
        // The next spawn starts the default runtime.
        assert_eq!(thread::spawn(|| 3).join().expect("no panic"), 3);
    });
}

#[test]
fn microprocess_that_never_ends_is_abandoned() {
    alone("microprocess_that_never_ends_is_abandoned", || {
        let runtime = Runtime::builder()
            .vps(2)
            .shutdown_grace(Duration::from_millis(10))
            .build()
            .expect("a runtime");
        let (sender, receiver) = mpsc::channel();
        for _ in 0..3 {
            let sender = sender.clone();
            drop(thread::spawn(move || {
                thread::without_cancellation(|| {
                    sender.send(()).expect("a receiver");
                    loop {
                        thread::park();
                    }
                })
            }));
        }
        for _ in 0..3 {
            receiver.recv().expect("it runs");
        }
        assert_eq!(runtime.shutdown(), 3);
        with_vps(2, || assert_eq!(thread::spawn(|| 4).join().expect("no panic"), 4));
    });
}

/// The abandoned microprocess continues on its kernel thread, beside the next runtime, until its
/// next check.
#[test]
fn microprocess_that_never_waits_is_abandoned() {
    alone("microprocess_that_never_waits_is_abandoned", || {
        let runtime = Runtime::builder()
            .vps(2)
            .shutdown_grace(Duration::from_millis(10))
            .build()
            .expect("a runtime");
        let over = Arc::new(AtomicU64::new(0));
        let seen = over.clone();
        let spins = thread::spawn(move || {
            seen.store(1, SeqCst);
            while seen.load(SeqCst) != 2 {
                std::hint::spin_loop();
            }
            let end = std::panic::catch_unwind(thread::yield_now).expect_err("cancelled");
            seen.store(3, SeqCst);
            std::panic::resume_unwind(end);
        });
        while over.load(SeqCst) != 1 {
            std::thread::yield_now();
        }
        assert_eq!(runtime.shutdown(), 1);
        with_vps(2, || {
            over.store(2, SeqCst);
            while over.load(SeqCst) != 3 {
                thread::yield_now();
            }
            assert_eq!(thread::spawn(|| 4).join().expect("no panic"), 4);
        });
        with_vps(2, || assert_eq!(thread::spawn(|| 5).join().expect("no panic"), 5));
        drop(spins);
    });
}

#[test]
fn joining_oneself_panics() {
    alone("joining_oneself_panics", || {
        with_vps(2, || {
            let (sender, receiver) = mpsc::channel::<thread::JoinHandle<()>>();
            let (say, hear) = mpsc::channel();
            let handle = thread::spawn(move || {
                let me = receiver.recv().expect("my handle");
                let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| me.join()))
                    .expect_err("refused");
                say.send(message(&*caught)).expect("a receiver");
            });
            sender.send(handle).expect("a listening socket");
            let text = hear.recv().expect("a message");
            assert!(text.contains("failed to join thread"), "{text}");
        });
    });
}

#[test]
fn recursive_locking_panics() {
    alone("recursive_locking_panics", || {
        with_vps(1, || {
            let lock = Mutex::new(1);
            let guard = lock.lock().expect("not poisoned");
            let again =
                || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock.lock())));
            assert!(
                message(&*again().expect_err("refused")).contains("already locked by the caller")
            );
            assert!(matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
            assert!(!lock.is_poisoned(), "the guard is still there");
            drop(guard);
            assert!(again().is_ok());

            let lock = RwLock::new(1);
            let guard = lock.write().expect("not poisoned");
            let write =
                || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock.write())));
            let read =
                || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock.read())));
            assert!(
                message(&*write().expect_err("refused"))
                    .contains("already held for writing by the caller")
            );
            assert!(
                message(&*read().expect_err("refused"))
                    .contains("already held for writing by the caller")
            );
            assert!(matches!(lock.try_write(), Err(TryLockError::WouldBlock)));
            assert!(matches!(lock.try_read(), Err(TryLockError::WouldBlock)));
            drop(guard);
            assert!(write().is_ok() && read().is_ok());
        });
    });
}

/// A trait that makes `A` ambiguous for a type that is `Send`, so that this file does not compile.
trait NotSend<A> {
    fn holds() -> bool {
        true
    }
}
struct IsSend;
impl<T: ?Sized> NotSend<()> for T {}
impl<T: ?Sized + Send> NotSend<IsSend> for T {}

#[test]
fn lock_guards_are_not_send() {
    assert!(<MutexGuard<'static, u8> as NotSend<_>>::holds());
    assert!(<RwLockReadGuard<'static, u8> as NotSend<_>>::holds());
    assert!(<RwLockWriteGuard<'static, u8> as NotSend<_>>::holds());
}

#[test]
fn name_with_a_nul_panics() {
    alone("name_with_a_nul_panics", || {
        with_vps(1, || {
            let spawn =
                || Builder::new().name("a\0b".into()).spawn(|| ()).map(|handle| handle.join());
            let text = message(&*std::panic::catch_unwind(spawn).expect_err("refused"));
            assert!(text.contains("interior null"), "{text}");
            // A name much longer than the report of a panic shows.
            let long = "n".repeat(10_000);
            let handle = Builder::new()
                .name(long.clone())
                .spawn(|| thread::current().name().map(str::to_owned));
            assert_eq!(handle.expect("any length").join().expect("no panic"), Some(long));
        });
    });
}

#[test]
fn panic_in_the_panic_hook_is_ignored() {
    let name = "panic_in_the_panic_hook_is_ignored";
    if is_child(name) {
        let runtime = Runtime::builder()
            .vps(1)
            .on_panic(|_, _| panic!("the hook"))
            .build()
            .expect("a runtime");
        runtime.run(|| {
            let payload =
                thread::spawn(|| panic!("the microprocess")).join().expect_err("it panics");
            assert_eq!(message(&*payload), "the microprocess");
        });
        return;
    }
    let ended = again(name, &[]);
    assert!(
        ended.status.success() && ended.stderr.contains("on_panic hook panicked; ignored"),
        "{ended:#?}"
    );
}

/// The runtime recognises its microprocess after a block in the kernel, although another
/// microprocess computes on its virtual processor meanwhile.
#[test]
fn panic_hook_reports_a_microprocess_without_its_vp() {
    alone("panic_hook_reports_a_microprocess_without_its_vp", || {
        static HEARD: AtomicU64 = AtomicU64::new(0);
        let heard = |_: &thread::Thread, _: &(dyn std::any::Any + Send)| {
            HEARD.fetch_add(1, SeqCst);
        };
        let runtime = Runtime::builder().vps(1).on_panic(heard).build().expect("a runtime");
        runtime.run(|| {
            let others = Arc::new(AtomicBool::new(false));
            let compute = others.clone();
            let away = thread::spawn(|| {
                // SAFETY: no pointers. The C library's function blocks the kernel thread without
                // the runtime's knowledge.
                unsafe { libc::usleep(10_000) };
                std::panic::resume_unwind(Box::new(
                    "without a report, which would enter the runtime",
                ));
            });
            let busy = thread::spawn(move || {
                while !compute.load(SeqCst) {
                    thread::yield_now();
                }
            });
            assert_eq!(
                message(&*away.join().expect_err("it panics")),
                "without a report, which would enter the runtime"
            );
            others.store(true, SeqCst);
            busy.join().expect("no panic");
        });
        assert_eq!(HEARD.load(SeqCst), 1);
    });
}

#[test]
fn extreme_deadlines_and_times_are_accepted() {
    alone("extreme_deadlines_and_times_are_accepted", || {
        with_vps(1, || {
            // A polling loop lets other microprocesses run.
            for poll in [thread::sleep, thread::park_timeout] {
                let done = Arc::new(AtomicBool::new(false));
                let seen = done.clone();
                let other = thread::spawn(move || seen.store(true, SeqCst));
                while !done.load(SeqCst) {
                    poll(Duration::ZERO);
                }
                other.join().expect("no panic");
            }
            let long = thread::spawn(|| thread::sleep(Duration::MAX));
            let parked = thread::spawn(|| thread::park_timeout(Duration::MAX));
            thread::yield_now();
            parked.thread().unpark();
            parked.join().expect("unparked");
            long.cancel();
            assert!(long.join().expect_err("it would sleep for ever").is::<thread::Cancelled>());
        });
    });
}
