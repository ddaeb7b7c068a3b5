//! exec, exit, fork and similar calls while other microprocesses are blocked in the kernel.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use kumihimo::runtime::{Runtime, metrics};
use kumihimo::thread;

use crate::blocked::{block, nanosleep};
use crate::under::{ALL, under, under_each, well, with_vps};

unsafe extern "C" {
    safe fn c_longjmp_over_a_read(fd: libc::c_int) -> libc::c_int;
}

unsafe extern "C-unwind" {
    fn pthread_exit(value: *mut libc::c_void) -> !;
}

/// Asserts the exit code of the child process.
fn ends_with(name: &str, code: i32, body: impl Fn()) {
    under(
        name,
        &ALL,
        |_| body(),
        |source, ended| {
            if !ended.stderr.contains("[skip]") {
                assert_eq!(ended.status.code(), Some(code), "under {source}: {ended:#?}");
            }
        },
    );
}

fn exit_while_others_are_blocked(name: &str, exit: fn()) {
    ends_with(name, 3, || {
        with_vps(2, || {
            block(10).leave();
            thread::spawn(exit).join().expect("it does not come back");
        });
    });
}

#[test]
fn exit_with_blocked_microprocesses_ends_the_process() {
    let name = "processes::exit_with_blocked_microprocesses_ends_the_process";
    exit_while_others_are_blocked(name, || std::process::exit(3));
}

#[test]
fn exit_group_with_blocked_microprocesses_ends_the_process() {
    let name = "processes::exit_group_with_blocked_microprocesses_ends_the_process";
    // SAFETY: ends the process.
    exit_while_others_are_blocked(name, || unsafe { libc::_exit(3) });
}

#[test]
fn exit_after_blocking_ends_the_process() {
    let name = "processes::exit_after_blocking_ends_the_process";
    exit_while_others_are_blocked(name, || {
        // Blocks reported by events at first, later as a sticky microprocess.
        for _ in 0..30 {
            assert_eq!(nanosleep(1_000_000), 0);
            thread::yield_now();
        }
        assert_eq!(nanosleep(1_000_000), 0);
        // The microprocess may be without a VP at this moment.
        std::process::exit(3);
    });
}

/// Blocked microprocesses are abandoned, and the process ends with main.
#[test]
fn return_from_main_abandons_blocked_microprocesses() {
    under(
        "processes::return_from_main_abandons_blocked_microprocesses",
        &ALL,
        |_| {
            let runtime = Runtime::builder()
                .vps(2)
                .shutdown_grace(std::time::Duration::from_millis(10))
                .build()
                .expect("a runtime");
            let mut blocked = 0;
            runtime.run(|| {
                if !kumihimo_tests::process::one_to_one() {
                    block(10).leave();
                    blocked = 10;
                }
            });
            if blocked == 0 {
                eprintln!("\n[skip] microprocesses are kernel threads here");
            }
        },
        well,
    );
}

#[test]
fn exec_with_blocked_microprocesses_works() {
    const NAME: &str = "processes::exec_with_blocked_microprocesses_works";
    if std::env::var("KUMI_EXECED").is_ok() {
        // The new program sleeps, and a pending SIGTRAP would kill it.
        // SAFETY: integers; the default action.
        assert_ne!(unsafe { libc::signal(libc::SIGTRAP, libc::SIG_DFL) }, libc::SIG_ERR);
        let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
        assert!(status.contains("Threads:\t2") || status.contains("Threads:\t1"), "{status}");
        assert!((0..200).all(|_| nanosleep(100_000) == 0));
        assert_eq!(open_events(), 0, "descriptors of the runtime must be closed");
        std::process::exit(7);
    }
    ends_with(NAME, 7, || {
        with_vps(2, || {
            block(10).leave();
            let exec = || {
                let me = std::env::current_exe().expect("this program");
                let error = Command::new(me).args(["--exact", NAME]).env("KUMI_EXECED", "1").exec();
                panic!("exec: {error}");
            };
            thread::spawn(exec).join().expect("it does not come back");
        });
    });
}

/// A microprocess that is to be preempted during execve(2) receives no signal any more, because the
/// new program has no handler.
#[test]
fn exec_with_computing_microprocesses_works() {
    const NAME: &str = "processes::exec_with_computing_microprocesses_works";
    if let Ok(left) = std::env::var("KUMI_EXECED") {
        let left: u32 = left.parse().expect("a number");
        if left == 0 {
            std::process::exit(7);
        }
        return exec_beside_loops(NAME, left);
    }
    ends_with(NAME, 7, || exec_beside_loops(NAME, 20));
}

fn exec_beside_loops(name: &'static str, left: u32) {
    // Quanta so short that many end during a system call.
    let policy = kumihimo::policy::RoundRobin::with_quantum(std::time::Duration::from_micros(200));
    Runtime::builder().vps(2).policy(policy).build().expect("a runtime").run(|| {
        // Without preemption, the computing microprocesses would keep both VPs.
        let computing = if metrics().expect("it runs").preemption == "off" { 0 } else { 4 };
        for _ in 0..computing {
            drop(thread::spawn(|| {
                loop {
                    std::hint::spin_loop();
                }
            }));
        }
        let exec = move || {
            let me = std::env::current_exe().expect("this program");
            let left = (left - 1).to_string();
            let error = Command::new(me).args(["--exact", name]).env("KUMI_EXECED", left).exec();
            panic!("exec: {error}");
        };
        thread::spawn(exec).join().expect("it does not come back");
    });
}

/// Number of open perf events, BPF objects and epoll instances.
fn open_events() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("/proc").flatten();
    all.filter(|fd| {
        std::fs::read_link(fd.path())
            .is_ok_and(|to| to.to_string_lossy().starts_with("anon_inode:"))
    })
    .count()
}

#[test]
fn setuid_with_blocked_microprocesses_works() {
    under_each("processes::setuid_with_blocked_microprocesses_works", |_| {
        with_vps(2, || {
            let blocked = block(10);
            let setters: Vec<_> = (0..4)
                .map(|n| {
                    thread::spawn(move || {
                        for _ in 0..10 {
                            // SAFETY: integers; sets the current IDs again.
                            let done = unsafe {
                                if n % 2 == 0 {
                                    libc::setuid(libc::getuid())
                                } else {
                                    libc::setgid(libc::getgid())
                                }
                            };
                            assert_eq!(done, 0);
                            // glibc notifies every kernel thread by a signal, and nanosleep(2) is
                            // not restarted after a handler. The same happens without Kumihimo.
                            assert!(matches!(nanosleep(10_000), 0 | libc::EINTR));
                        }
                    })
                })
                .collect();
            for one in setters {
                one.join().expect("no panic");
            }
            blocked.release();
        });
    });
}

/// The call changes the kernel thread's affinity, and other microprocesses run on the thread
/// afterwards. All of them continue.
#[test]
fn sched_setaffinity_changes_only_the_kernel_thread() {
    under_each("processes::sched_setaffinity_changes_only_the_kernel_thread", |_| {
        with_vps(2, || {
            let blocked = block(3);
            // SAFETY: a live set of the given length.
            let (own, size) = unsafe {
                let mut own: libc::cpu_set_t = std::mem::zeroed();
                assert_eq!(libc::sched_getaffinity(0, size_of_val(&own), &mut own), 0);
                (own, size_of_val(&own))
            };
            // SAFETY: within the set.
            let cpus: Vec<_> =
                (0..1024).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &own) }).collect();
            let setters: Vec<_> = (0..6)
                .map(|n| {
                    let cpu = cpus[n % cpus.len()];
                    thread::spawn(move || {
                        // SAFETY: a zeroed set is empty and valid.
                        unsafe {
                            let mut one: libc::cpu_set_t = std::mem::zeroed();
                            libc::CPU_SET(cpu, &mut one);
                            assert_eq!(libc::sched_setaffinity(0, size, &one), 0);
                        }
                        assert_eq!(nanosleep(100_000), 0);
                        thread::yield_now();
                    })
                })
                .collect();
            for one in setters {
                one.join().expect("no panic");
            }
            block(10).release();
            blocked.release();
        });
    });
}

#[test]
fn pthread_exit_ends_the_process() {
    under(
        "processes::pthread_exit_ends_the_process",
        &ALL,
        |_| {
            with_vps(1, || {
                let blocked = block(2);
                let exits = || -> () {
                    let before = metrics().expect("it runs").hand_offs;
                    // Yields to other microprocesses, so that one is runnable when this one blocks.
                    while metrics().expect("it runs").hand_offs == before {
                        assert_eq!(nanosleep(1_000_000), 0);
                    }
                    // SAFETY: unwinds to the runtime's `catch_unwind`, which ends the process.
                    unsafe { pthread_exit(std::ptr::null_mut()) }
                };
                let _ = thread::spawn(exits).join();
                blocked.leave();
                unreachable!("pthread_exit ends the process");
            });
        },
        |source, ended| {
            if !ended.stderr.contains("[skip]") {
                assert_eq!(
                    ended.status.signal(),
                    Some(libc::SIGABRT),
                    "under {source}: {ended:#?}"
                );
                assert!(
                    ended.stderr.contains("exception not rethrown"),
                    "under {source}: {ended:#?}"
                );
            }
        },
    );
}

/// A jump to a frame of the same microprocess. A jump to another stack is undefined, as between
/// threads.
#[test]
fn longjmp_over_a_blocking_call_works() {
    under_each("processes::longjmp_over_a_blocking_call_works", |_| {
        with_vps(1, || {
            use std::os::fd::AsRawFd;
            for _ in 0..20 {
                let (reader, mut writer) = std::io::pipe().expect("a pipe");
                let jumps = thread::spawn(move || c_longjmp_over_a_read(reader.as_raw_fd()));
                block(2).release();
                std::io::Write::write_all(&mut writer, &[42]).expect("room");
                assert_eq!(jumps.join().expect("no panic"), 42);
            }
        });
    });
}

/// Status of a child process.
fn reap(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: a live integer; our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

#[test]
fn fork_with_blocked_microprocesses_works() {
    under_each("processes::fork_with_blocked_microprocesses_works", |_| {
        with_vps(2, || {
            let blocked = block(10);
            let forks: Vec<_> = (0..10)
                .map(|n| {
                    thread::spawn(move || {
                        // SAFETY: the child continues with one kernel thread and makes only calls
                        // that are allowed there.
                        let child = unsafe { libc::fork() };
                        if child != 0 {
                            return reap(child);
                        }
                        // The child sleeps, and no trap may arrive: the handler and the record
                        // behind GS still exist.
                        // SAFETY: integers; the default action.
                        let before = unsafe { libc::signal(libc::SIGTRAP, libc::SIG_DFL) };
                        assert_ne!(before, libc::SIG_ERR);
                        assert!((0..20).all(|_| nanosleep(100_000) == 0));
                        // A grandchild.
                        // SAFETY: ends at once.
                        let grandchild = unsafe { libc::fork() };
                        if grandchild == 0 {
                            // SAFETY: ends at once.
                            unsafe { libc::_exit(5) };
                        }
                        let status = reap(grandchild);
                        // SAFETY: ends at once.
                        unsafe { libc::_exit(if libc::WEXITSTATUS(status) == 5 { n } else { 99 }) };
                    })
                })
                .collect();
            for (n, fork) in (0..).zip(forks) {
                let status = fork.join().expect("no panic");
                assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == n, "{status:#x}");
            }
            blocked.release();
        });
    });
}
