//! Restricted machines: unprivileged users, seccomp filters of containers, limits on locked memory.

use std::io::Read;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kumihimo::runtime::{Events, Runtime};
use kumihimo::thread;
use kumihimo_events::perf::Perf;
use kumihimo_events::watch;
use kumihimo_tests::process::{again, alone, has_vps, is_child};
use kumihimo_tests::refusal::refuse;
use kumihimo_tests::skip;
use kumihimo_tests::user::{become_user, own_user};

fn limit(resource: libc::__rlimit_resource_t, to: u64) {
    let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
    // SAFETY: a limit that lives during the call.
    let done = unsafe { libc::setrlimit(resource, &raw const limit) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// The limit up to which this process may raise a resource limit.
fn allowed(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a limit to be written.
    assert_eq!(unsafe { libc::getrlimit(resource, &raw mut limit) }, 0);
    limit.rlim_max
}

/// A perf source, if the machine's setting allows it without privileges.
fn perf_or_skip(test: &str) -> Option<Perf> {
    match Perf::probe() {
        Ok(perf) => Some(perf),
        Err(refused) => {
            let level =
                std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            assert!(
                !matches!(level.trim(), "-1" | "0" | "1" | "2") || refused.why.contains("seccomp"),
                "{refused}"
            );
            skip(test, &refused.to_string());
            None
        }
    }
}

#[test]
fn perf_needs_no_privilege() {
    alone("perf_needs_no_privilege", || {
        if !become_user(own_user()) {
            return skip("perf_needs_no_privilege", "not root");
        }
        let Some(perf) = perf_or_skip("perf_needs_no_privilege") else { return };
        // More than fits into the locked memory of any user, if some were leaked.
        for _ in 0..3000 {
            let me = perf.watch_this_thread().expect("a perf event");
            me.listen();
            me.quiet();
        }
    });
}

#[test]
fn exhausted_locked_memory_is_a_clear_error() {
    alone("exhausted_locked_memory_is_a_clear_error", || {
        limit(libc::RLIMIT_MEMLOCK, 0);
        limit(libc::RLIMIT_NOFILE, allowed(libc::RLIMIT_NOFILE));
        if !become_user(own_user()) {
            return skip("exhausted_locked_memory_is_a_clear_error", "not root");
        }
        let Some(perf) = perf_or_skip("exhausted_locked_memory_is_a_clear_error") else {
            return;
        };
        // Every user may lock kernel.perf_event_mlock_kb for each CPU.
        let mut watched = Vec::new();
        let error = loop {
            match perf.watch_this_thread() {
                Ok(w) => watched.push(w),
                Err(e) => break e,
            }
        };
        eprintln!("{} perf events, then: {error}", watched.len());
        if error.raw_os_error() == Some(libc::EMFILE) {
            let why = format!(
                "{} descriptors do not suffice to exhaust the locked memory of this machine's CPUs",
                watched.len()
            );
            return skip("exhausted_locked_memory_is_a_clear_error", &why);
        }
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        assert!(
            error.to_string().contains("ulimit -l") && error.to_string().contains("EPERM"),
            "{error}"
        );
        let refused = Perf::probe().expect_err("nothing left");
        assert!(
            refused.why.contains("locked memory") && refused.remedy.contains("ulimit -l"),
            "{refused}"
        );
        // Released when the events end.
        watched.clear();
        drop(perf.watch_this_thread().expect("locked memory again"));
    });
}

#[test]
fn missing_descriptor_is_the_kernels_error() {
    alone("missing_descriptor_is_the_kernels_error", || {
        let Some(perf) = perf_or_skip("missing_descriptor_is_the_kernels_error") else {
            return;
        };
        let me = perf.watch_this_thread().expect("a perf event");
        limit(libc::RLIMIT_NOFILE, 3);
        let error = perf.watch_this_thread().expect_err("no descriptor");
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        // /proc is not readable either, so the thread may be blocked as far as the source can tell.
        me.listen();
        std::thread::scope(|scope| scope.spawn(|| assert!(me.is_away())).join().expect("no panic"));
        assert!(watch::sleeps(me.tid()));
        me.quiet();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!me.is_away())).join().expect("no panic")
        });
    });
}

fn perf_refused(errno: i32, words: [&str; 2]) {
    refuse(&[(libc::SYS_perf_event_open, errno)]).expect("seccomp");
    let refused = Perf::probe().expect_err("perf_event_open is refused");
    let said = refused.to_string();
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

/// As with kernel.perf_event_paranoid = 3 or 4 (Debian, Ubuntu), and in Docker.
#[test]
fn perf_refused_with_eacces_or_eperm() {
    alone("perf_refused_with_eacces_or_eperm", || {
        perf_refused(libc::EACCES, ["perf_event_open", "os error 13"]);
        perf_refused(libc::EPERM, ["perf_event_open", "os error 1)"]);
    });
}

/// As in gVisor, and with a kernel built without perf events.
#[test]
fn perf_refused_with_enosys() {
    alone("perf_refused_with_enosys", || {
        perf_refused(libc::ENOSYS, ["perf_event_open", "seccomp profile"])
    });
}

/// Uses locks, blocks, and hands VPs over, under the event source in `KUMI_EVENTS`.
fn work() {
    let turns = AtomicU32::new(0);
    let runtime = Runtime::builder().vps(2).build().expect("a runtime");
    runtime.run(|| {
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        thread::blocking(|| std::thread::sleep(Duration::from_micros(20)));
                        turns.fetch_add(1, Ordering::Relaxed);
                        thread::yield_now();
                    }
                });
            }
        });
    });
    assert_eq!(turns.load(Ordering::Relaxed), 400);
}

fn works_without_membarrier(errno: i32, events: &str) {
    // SAFETY: the runtime has not started.
    unsafe { std::env::set_var("KUMI_EVENTS", events) };
    refuse(&[(libc::SYS_membarrier, errno)]).expect("seccomp");
    assert_eq!(kumihimo_events::barrier::probe(), Ok(kumihimo_events::barrier::Barrier::EachCpu));
    work();
}

#[test]
fn runtime_works_if_membarrier_is_refused() {
    alone("runtime_works_if_membarrier_is_refused", || {
        works_without_membarrier(libc::EPERM, "off")
    });
}

#[test]
fn runtime_works_without_membarrier() {
    alone("runtime_works_without_membarrier", || works_without_membarrier(libc::ENOSYS, "watch"));
}

/// The source `bpf` needs no barrier. Without it, hand-offs are impossible.
#[test]
fn without_a_barrier_blocking_holds_its_vp() {
    const NAME: &str = "without_a_barrier_blocking_holds_its_vp";
    if is_child(NAME) {
        // SAFETY: the runtime has not started.
        unsafe { std::env::remove_var("KUMI_EVENTS") };
        refuse(&[(libc::SYS_membarrier, libc::EPERM), (libc::SYS_sched_setaffinity, libc::EPERM)])
            .expect("seccomp");
        for source in [Events::Perf, Events::Watch] {
            let error = Runtime::builder()
                .vps(1)
                .events(source)
                .build()
                .expect_err("no hand-off is safe")
                .to_string();
            assert!(error.contains("membarrier") && error.contains("sched_setaffinity"), "{error}");
        }
        work();
        refuse(&[(libc::SYS_bpf, libc::EPERM)]).expect("seccomp");
        let runtime = Runtime::builder().vps(1).build().expect("a runtime");
        let events = runtime.run(|| kumihimo::runtime::metrics().expect("it runs").events);
        assert_eq!(events, "off");
        return work();
    }
    // With kernel threads 1:1, no VP can be held up, and there is nothing to report.
    if !has_vps(NAME) {
        return;
    }
    let ended = again(NAME, &[]);
    assert!(ended.status.success(), "{ended:#?}");
    // One report for each runtime in which a hand-off was requested.
    assert_eq!(
        ended.stderr.matches("kumihimo: `blocking` holds its virtual processor up").count(),
        2,
        "{ended:#?}"
    );
}

/// The source `watch` needs no system call that containers refuse.
#[test]
fn watch_works_if_all_other_system_calls_are_refused() {
    alone("watch_works_if_all_other_system_calls_are_refused", || {
        let list = [
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_io_uring_setup,
        ];
        refuse(&list.map(|call| (call, libc::EPERM))).expect("seccomp");
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: no arguments.
            tell.send(unsafe { libc::gettid() }).expect("a listening socket");
            reader.read_to_end(&mut Vec::new()).expect("the end")
        });
        let slots = [watch::WatchedThread { open: true, tid: told.recv().expect("it tells") }];
        let (mut watch, mut found) = (watch::Watch::new(), false);
        while !found {
            std::thread::sleep(watch.look(&slots, &mut watch::ProcProbe, |_| found = true));
        }
        drop(writer);
        thread.join().expect("no panic");
    });
}
