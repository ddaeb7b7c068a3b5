//! Sockets whose system calls enter the kernel together: when batches start, what they come to, and
//! that nothing can be left half done.
//!
//! One runtime at a time: the tests of this file take turns.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kumihimo_batch::fault::Faulty;
use kumihimo_io::net::{UdpSocket, UnixStream};
use kumihimo_runtime::runtime::{BatchMetrics, BatchPolicy, Builder, Preemption, Runtime, metrics};
use kumihimo_runtime::syscall_batch::{self, SystemCall};
use kumihimo_runtime::thread;

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn runtime(policy: BatchPolicy) -> Builder {
    Runtime::builder().vps(1).batch(policy)
}

fn seen() -> BatchMetrics {
    metrics().expect("a runtime runs").batch
}

/// Whether system calls enter the kernel in batches: not where microprocesses are kernel threads.
fn has_batches(test: &str) -> bool {
    let has = metrics().expect("a runtime runs").tls != "kernel";
    if !has {
        eprintln!("\n[skip] {test}: microprocesses are kernel threads here");
    }
    has
}

/// Pairs that talk, all at once: each byte comes back.
fn talk(pairs: usize, rounds: usize) {
    let all: Vec<_> = (0..pairs)
        .map(|i| {
            let (mut near, mut far) = UnixStream::pair().unwrap();
            let echo = thread::spawn(move || {
                let mut room = [0; 100];
                while let Ok(n @ 1..) = far.read(&mut room) {
                    far.write_all(&room[..n]).unwrap();
                }
            });
            let ask = thread::spawn(move || {
                for round in 0..rounds {
                    let sent = [(i * 31 + round) as u8; 64];
                    near.write_all(&sent).unwrap();
                    let mut got = [0; 64];
                    near.read_exact(&mut got).unwrap();
                    assert_eq!(got, sent);
                }
            });
            (ask, echo)
        })
        .collect();
    for (ask, echo) in all {
        ask.join().unwrap();
        echo.join().unwrap();
    }
}

#[test]
fn many_calls_enter_the_kernel_together_and_are_counted() {
    let _alone = alone();
    // A batch then starts when it is full or nothing else is runnable, however slow the machine is.
    let builder = runtime(BatchPolicy::Fixed(16)).batch_deadline(Duration::from_secs(3600));
    builder.build().unwrap().run(|| {
        talk(32, 20);
        if !has_batches("many_calls_enter_the_kernel_together_and_are_counted") {
            return;
        }
        let seen = seen();
        assert_eq!(seen.policy, "fixed=16");
        // 32 x 20 requests and replies, each sent and received.
        assert!(seen.calls >= 2 * 2 * 32 * 20, "{seen:?}");
        assert_eq!(seen.sizes.iter().sum::<u64>(), seen.batches, "{seen:?}");
        assert!(seen.batches < seen.calls / 4, "{seen:?}");
        if seen.back_end == "uring" {
            assert!(seen.entries < seen.calls / 4, "{seen:?}");
        } else {
            assert!(seen.entries <= seen.calls && seen.refused.is_some(), "{seen:?}");
        }
        assert!(seen.waited_ns > 0);
    });
}

#[test]
fn lone_call_enters_at_once() {
    let _alone = alone();
    for policy in
        [BatchPolicy::Fixed(64), BatchPolicy::Adaptive, BatchPolicy::Paper, BatchPolicy::Off]
    {
        runtime(policy).build().unwrap().run(|| talk(1, 20));
    }
}

#[test]
fn sparse_traffic_is_not_batched() {
    let _alone = alone();
    runtime(BatchPolicy::Adaptive).build().unwrap().run(|| {
        talk(1, 20);
        assert_eq!(seen().calls, 0);
    });
}

#[test]
fn batched_call_is_not_delayed_by_a_computing_microprocess() {
    let _alone = alone();
    let runtime = runtime(BatchPolicy::Fixed(64)).build().unwrap();
    runtime.run(|| {
        if metrics().unwrap().preemption == Preemption::Off.to_string() {
            return println!("skipped: nothing is preempted here");
        }
        let over = Arc::new(AtomicBool::new(false));
        let computes = |over: Arc<AtomicBool>| {
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        // One that never leaves stands behind the caller: the batch is not due, not full, and
        // nobody but the clock starts it.
        let (near, mut far) = UnixStream::pair().unwrap();
        let caller = thread::spawn({
            let over = over.clone();
            move || {
                (&near).write_all(b"x").unwrap();
                over.store(true, Ordering::Relaxed);
            }
        });
        let others: Vec<_> = (0..2).map(|_| computes(over.clone())).collect();
        caller.join().unwrap();
        others.into_iter().for_each(|other| other.join().unwrap());
        far.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn sends_of_several_microprocesses_to_one_connection_are_merged() {
    let _alone = alone();
    runtime(BatchPolicy::Adaptive).build().unwrap().run(|| {
        if !has_batches("sends_of_several_microprocesses_to_one_connection_are_merged") {
            return;
        }
        let (near, mut far) = UnixStream::pair().unwrap();
        let near = Arc::new(near);
        let senders: Vec<_> = (0..16u8)
            .map(|i| {
                let near = near.clone();
                thread::spawn(move || {
                    for _ in 0..50 {
                        (&*near).write_all(&[i; 32]).unwrap();
                        thread::yield_now();
                    }
                })
            })
            .collect();
        let mut counts = [0; 16];
        let mut message = [0; 32];
        for _ in 0..16 * 50 {
            far.read_exact(&mut message).unwrap();
            assert!(message.iter().all(|byte| *byte == message[0]), "torn: {message:?}");
            counts[usize::from(message[0])] += 1;
        }
        assert_eq!(counts, [50; 16]);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        let seen = seen();
        assert!(seen.merged > 100, "{seen:?}");
    });
}

#[test]
fn merged_datagrams_keep_their_boundaries() {
    let _alone = alone();
    runtime(BatchPolicy::Adaptive).build().unwrap().run(|| {
        if !has_batches("merged_datagrams_keep_their_boundaries") {
            return;
        }
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let at = to.local_addr().unwrap();
        let mut counts = [0; 16];
        for _ in 0..10 {
            let senders: Vec<_> = (0..16u8)
                .map(|i| {
                    let from = from.clone();
                    thread::spawn(move || assert_eq!(from.send_to(&[i; 48], at).unwrap(), 48))
                })
                .collect();
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            let mut room = [0; 100];
            for _ in 0..16 {
                let (n, peer) = to.recv_from(&mut room).unwrap();
                assert_eq!((n, peer), (48, from.local_addr().unwrap()));
                assert!(room[..48].iter().all(|byte| *byte == room[0]));
                counts[usize::from(room[0])] += 1;
            }
        }
        assert_eq!(counts, [10; 16]);
        let seen = seen();
        assert!(seen.merged > 50, "{seen:?}");
    });
}

#[test]
fn adjacent_reads_of_several_microprocesses_are_merged() {
    let _alone = alone();
    // Beside the build, where files are on a disk: one in memory only cannot be asked whether a
    // read would wait.
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("followed-{}", std::process::id()));
    let contents: Arc<Vec<u8>> =
        Arc::new((0..16 * 4096u32).map(|i| (i / 16 % 251) as u8).collect());
    std::fs::write(&path, &*contents).unwrap();
    runtime(BatchPolicy::Adaptive).build().unwrap().run(|| {
        if !has_batches("adjacent_reads_of_several_microprocesses_are_merged") {
            return;
        }
        let file = Arc::new(kumihimo_io::fs::File::open(&path).unwrap());
        for _ in 0..10 {
            let readers: Vec<_> = (0..16usize)
                .map(|i| {
                    let (file, contents) = (file.clone(), contents.clone());
                    thread::spawn(move || {
                        let mut room = vec![0; 4096];
                        let n = file.read_at(&mut room, i as u64 * 4096).unwrap();
                        assert!(n == 4096 && room == contents[i * 4096..][..4096]);
                    })
                })
                .collect();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        }
        let seen = seen();
        assert!(seen.merged > 50, "{seen:?}");
    });
    std::fs::remove_file(&path).unwrap();
}

/// Microprocesses are cancelled, panic, or come to their deadline wherever they are; what their
/// buffers lay in is used again at once.
#[test]
fn cancelled_call_leaves_no_buffer_with_the_kernel() {
    let _alone = alone();
    runtime(BatchPolicy::Fixed(64)).build().unwrap().run(|| {
        let ended = Arc::new(AtomicUsize::new(0));
        for round in 0..20 {
            let mut handles = Vec::new();
            for i in 0..24usize {
                let (mut near, mut far) = UnixStream::pair().unwrap();
                let count = ended.clone();
                handles.push(thread::spawn(move || {
                    struct Ended(Arc<AtomicUsize>);
                    impl Drop for Ended {
                        fn drop(&mut self) {
                            self.0.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    let _ended = Ended(count);
                    let mut room = [0u8; 512];
                    loop {
                        near.write_all(&[i as u8; 200]).unwrap();
                        if i % 5 == 4 && round % 2 == 0 {
                            std::panic::resume_unwind(Box::new("ends by itself"));
                        }
                        let n = near.read(&mut room).unwrap();
                        assert!(room[..n].iter().all(|byte| *byte == !(i as u8)));
                    }
                }));
                handles.push(thread::spawn(move || {
                    let mut room = [0u8; 512];
                    while let Ok(n @ 1..) = far.read(&mut room) {
                        assert!(room[..n].iter().all(|byte| *byte == i as u8));
                        if far.write_all(&vec![!(i as u8); n]).is_err() {
                            break;
                        }
                    }
                }));
            }
            for _ in 0..round {
                thread::yield_now();
            }
            handles.iter().step_by(2).for_each(|handle| handle.cancel());
            for handle in handles {
                let _ = handle.join();
            }
        }
        assert_eq!(ended.load(Ordering::Relaxed), 20 * 24);
    });
}

#[test]
fn intermittent_kernel_errors_lose_no_data() {
    let _alone = alone();
    let seed = std::process::id().into();
    println!("seed {seed}");
    let make = move || -> Box<dyn kumihimo_batch::Backend> {
        Box::new(Faulty::new(kumihimo_batch::open(64).0, seed, 5))
    };
    runtime(BatchPolicy::Fixed(8)).batch_back_end(make).build().unwrap().run(|| {
        let pairs: Vec<_> = (0..12u8)
            .map(|i| {
                let (near, far) = UnixStream::pair().unwrap();
                let send = thread::spawn(move || {
                    let all: Vec<u8> = (0..20_000u32).map(|n| (n % 251) as u8 ^ i).collect();
                    let mut rest = &all[..];
                    while !rest.is_empty() {
                        match (&near).write(&rest[..rest.len().min(700)]) {
                            Ok(n) => rest = &rest[n..],
                            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::ENOBUFS), "{e}"),
                        }
                    }
                    all
                });
                let receive = thread::spawn(move || {
                    let (mut all, mut room) = (Vec::new(), [0; 900]);
                    loop {
                        match (&far).read(&mut room) {
                            Ok(0) => return all,
                            Ok(n) => all.extend_from_slice(&room[..n]),
                            Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{e}"),
                        }
                    }
                });
                (send, receive)
            })
            .collect();
        for (send, receive) in pairs {
            assert!(send.join().unwrap() == receive.join().unwrap());
        }
    });
}

/// The kernel interrupts the sleep of every kernel thread that has used a uring when that is
/// closed.
#[test]
fn descriptors_opened_in_one_batch_stay_open() {
    struct Counted(Box<dyn kumihimo_batch::Backend>, Arc<AtomicUsize>);
    impl kumihimo_batch::Backend for Counted {
        fn name(&self) -> &'static str {
            self.0.name()
        }
        fn enter(
            &mut self,
            requests: &[kumihimo_batch::Request<'_>],
            outcomes: &mut [kumihimo_batch::Outcome],
        ) -> u64 {
            self.0.enter(requests, outcomes)
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let _alone = alone();
    let closed = Arc::new(AtomicUsize::new(0));
    let its = closed.clone();
    // As a kernel may that has other things to do: all come to want one meanwhile.
    let make = move || -> Box<dyn kumihimo_batch::Backend> {
        std::thread::sleep(Duration::from_millis(5));
        Box::new(Counted(kumihimo_batch::open(64).0, its.clone()))
    };
    runtime(BatchPolicy::Fixed(3)).vps(2).batch_back_end(make).build().unwrap().run(|| {
        let all: Vec<_> = (0..40u8)
            .map(|i| {
                thread::spawn(move || {
                    let (mut near, mut far) = UnixStream::pair().unwrap();
                    let mut room = [0];
                    near.write_all(&[i]).unwrap();
                    far.read_exact(&mut room).unwrap();
                    assert_eq!(room, [i]);
                })
            })
            .collect();
        all.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(closed.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn policies_may_be_changed_while_calls_wait() {
    let _alone = alone();
    runtime(BatchPolicy::Off).vps(2).build().unwrap().run(|| {
        let over = Arc::new(AtomicBool::new(false));
        let changes = thread::spawn({
            let over = over.clone();
            move || {
                let policies = [
                    BatchPolicy::Fixed(3),
                    BatchPolicy::Adaptive,
                    BatchPolicy::Paper,
                    BatchPolicy::Off,
                    BatchPolicy::Fixed(64),
                ];
                for policy in policies.into_iter().cycle() {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    kumihimo_runtime::runtime::set_batch_policy(policy).unwrap();
                    thread::sleep(Duration::from_micros(200));
                }
            }
        });
        talk(20, 200);
        over.store(true, Ordering::Relaxed);
        changes.join().unwrap();
    });
}

#[test]
fn calls_of_a_foreign_kernel_thread_are_plain() {
    let _alone = alone();
    let _runtime = runtime(BatchPolicy::Fixed(64)).build().unwrap();
    let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
    let sent = syscall_batch::call(
        SystemCall::Send { socket: std::os::fd::AsFd::as_fd(&near), from: b"abc" },
        true,
    );
    assert_eq!(sent.unwrap(), 3);
    far.read_exact(&mut [0; 3]).unwrap();
    assert_eq!(seen().calls, 0);
}

#[test]
fn papers_policy_reports_calls_that_it_never_batches() {
    let _alone = alone();
    runtime(BatchPolicy::Paper).build().unwrap().run(|| {
        talk(8, 10);
        if !has_batches("papers_policy_reports_calls_that_it_never_batches") {
            return;
        }
        let said = seen().explained;
        assert_eq!(said.len(), 5, "one line for each kind that could be: {said:?}");
        for line in said {
            assert!(line.contains(": from ") || line.contains(": never, "), "{line}");
        }
    });
}

#[test]
fn unknown_policy_is_an_error() {
    const NAME: &str = "unknown_policy_is_an_error";
    if std::env::var("KUMI_TEST_CHILD").is_ok_and(|child| child == NAME) {
        let error = Runtime::builder().build().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let said = error.to_string();
        assert!(said.starts_with("KUMI_LAB=batch=often: expected adaptive"), "{said}");
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env("KUMI_TEST_CHILD", NAME)
        .env("KUMI_LAB", kumihimo_config::lab_with("batch=often"))
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"), "{child:?}");
    let _alone = alone();
    let none = kumihimo_runtime::runtime::set_batch_policy(BatchPolicy::Off).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
}
