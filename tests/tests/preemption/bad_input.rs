//! Uses of the preemption signals by the application, and endless loops in unusual places.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use kumihimo::runtime::{NoEvents, Preemption, Runtime, metrics};
use kumihimo::thread;
use kumihimo_arch::{stack, tls};
use kumihimo_tests::process::{again, alone, has_vps, is_child, is_preempted};

/// A runtime with `vps` virtual processors. If one of them cannot be preempted, another one must
/// end the loop.
fn runtime(vps: usize, means: Preemption) -> Runtime {
    Runtime::builder().vps(vps).preemption(means).build().expect("a runtime")
}

fn signal() -> Preemption {
    Preemption::Signal(libc::SIGURG)
}

static STOP: AtomicBool = AtomicBool::new(false);
static HANDLED: AtomicU64 = AtomicU64::new(0);

fn spin() {
    while !STOP.load(Relaxed) {
        std::hint::black_box(0);
    }
}

/// Loops until another microprocess sets a flag, for which it needs a turn. Other microprocesses on
/// the same virtual processors need turns as well.
fn loop_beside_others(loopers: usize, body: fn()) {
    thread::scope(|s| {
        for _ in 0..loopers {
            s.spawn(body);
        }
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(1));
        }
        STOP.store(true, Relaxed);
    });
}

/// As [`loop_beside_others`], for loops that cannot be preempted: their virtual processors stall. A
/// kernel thread ends the loop.
fn loop_on(loopers: usize, body: fn()) {
    let end = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(30));
        STOP.store(true, Relaxed);
    });
    thread::scope(|s| {
        for _ in 0..loopers {
            s.spawn(body);
        }
    });
    end.join().expect("no panic");
}

extern "C" fn count(_: c_int) {
    HANDLED.fetch_add(1, Relaxed);
}

extern "C" fn loops(_: c_int) {
    spin();
}

fn handle(signal: c_int, handler: usize) {
    // SAFETY: handlers of the tests, which access atomics only, or SIG_IGN.
    assert_ne!(unsafe { libc::signal(signal, handler) }, libc::SIG_ERR);
}

fn raise(signal: c_int) {
    // SAFETY: plain call.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

fn block_signal(signal: c_int, how: c_int) {
    // SAFETY: a live set.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        assert_eq!(libc::pthread_sigmask(how, &set, std::ptr::null_mut()), 0);
    }
}

fn with_blocked(signal: c_int) {
    block_signal(signal, libc::SIG_BLOCK);
    spin();
    block_signal(signal, libc::SIG_UNBLOCK);
}

#[test]
fn earlier_handler_of_the_preemption_signal_is_kept() {
    const NAME: &str = "bad_input::earlier_handler_of_the_preemption_signal_is_kept";
    // Not in the child: the check starts a runtime, which would precede the handler.
    if !is_child(NAME) && !is_preempted(NAME) {
        return;
    }
    alone(NAME, || {
        handle(libc::SIGURG, count as *const () as usize);
        handle(libc::SIGTRAP, count as *const () as usize);
        for means in [signal(), Preemption::Clock] {
            STOP.store(false, Relaxed);
            runtime(1, means).run(|| {
                loop_beside_others(2, spin);
                let before = HANDLED.load(Relaxed);
                raise(libc::SIGURG);
                raise(libc::SIGTRAP);
                assert_eq!(
                    HANDLED.load(Relaxed),
                    before + 2,
                    "only the application's signals may reach its handler"
                );
            });
        }
    });
}

#[test]
fn ignored_preemption_signal_still_preempts() {
    const NAME: &str = "bad_input::ignored_preemption_signal_still_preempts";
    // Not in the child: the check starts a runtime, which would precede the change.
    if !is_child(NAME) && !is_preempted(NAME) {
        return;
    }
    alone(NAME, || {
        handle(libc::SIGURG, libc::SIG_IGN);
        runtime(1, signal()).run(|| {
            loop_beside_others(2, spin);
            raise(libc::SIGURG);
        });
    });
}

/// Preemption stops, which is reported. Nothing is lost, and the other microprocesses continue.
#[test]
fn replaced_preemption_handler_stops_preemption() {
    const NAME: &str = "bad_input::replaced_preemption_handler_stops_preemption";
    if is_child(NAME) {
        if !has_vps(NAME) {
            return;
        }
        return runtime(2, signal()).run(|| {
            handle(libc::SIGURG, count as *const () as usize);
            loop_on(3, spin);
            assert_eq!(HANDLED.load(Relaxed), 0, "no preemption signal may reach the handler");
            raise(libc::SIGURG);
            assert_eq!(HANDLED.load(Relaxed), 1);
        });
    }
    let ended = again(NAME, &[]);
    assert!(ended.status.success(), "{ended:#?}");
    let skipped = ended.stderr.contains("[skip]");
    if skipped {
        kumihimo_tests::skip(NAME, "see the child's output");
    }
    let said = ended.stderr.matches("was given another handler after the runtime started").count();
    // The looping microprocess may have been alone on its virtual processor all the time. Then it
    // was never to be preempted.
    assert!(said <= 1, "{ended:#?}");
}

#[test]
fn blocked_preemption_signal_is_harmless() {
    const NAME: &str = "bad_input::blocked_preemption_signal_is_harmless";
    alone(NAME, || {
        if !is_preempted(NAME) {
            return;
        }
        for (means, number) in [(signal(), libc::SIGURG), (Preemption::Clock, libc::SIGTRAP)] {
            STOP.store(false, Relaxed);
            runtime(2, means).run(move || {
                // The mask belongs to the kernel thread. It is restored on the same thread, because
                // nothing switches in between.
                if number == libc::SIGURG {
                    loop_on(1, || with_blocked(libc::SIGURG));
                } else {
                    loop_on(1, || with_blocked(libc::SIGTRAP));
                }
                // Afterwards everything works as before.
                STOP.store(false, Relaxed);
                loop_beside_others(3, spin);
            });
        }
    });
}

/// On two virtual processors. On one, if a kernel thread can wait in the handler.
#[test]
fn loop_in_a_signal_handler_is_preempted() {
    alone("bad_input::loop_in_a_signal_handler_is_preempted", || {
        handle(libc::SIGUSR1, loops as *const () as usize);
        for means in [signal(), Preemption::Clock] {
            STOP.store(false, Relaxed);
            runtime(2, means).run(|| {
                loop_on(1, || raise(libc::SIGUSR1));
                STOP.store(false, Relaxed);
                if may_stand_aside() {
                    loop_beside_others(4, || raise(libc::SIGUSR1));
                }
            });
        }
    });
}

/// Returns whether the running runtime can preempt at any point.
fn may_stand_aside() -> bool {
    let now = metrics().expect("it runs");
    now.events == "bpf" && now.preemption == "clock" && now.tls != "kernel"
}

/// So close to the end of the stack that the injected call does not fit.
#[test]
fn loop_at_the_end_of_the_stack_is_preempted() {
    #[inline(never)]
    fn deeper(low: usize) -> usize {
        let frame = std::hint::black_box([0u8; 64]);
        let here = (&raw const frame).addr();
        if here > low + 3000 { deeper(low) + 1 } else { (spin(), 0).1 }
    }
    fn to_the_end() {
        let class = stack::class_for(SIZE, tls::get().bytes()).expect("a class");
        let frame = std::hint::black_box([0u8; 64]);
        let here = (&raw const frame).addr();
        // The address is slightly above the frame of this function.
        std::hint::black_box(deeper(here - class.usable(tls::get().bytes()) + 2000));
    }
    const NAME: &str = "bad_input::loop_at_the_end_of_the_stack_is_preempted";
    alone(NAME, || {
        // Stacks of kernel threads end elsewhere.
        if !has_vps(NAME) {
            return;
        }
        for means in [signal(), Preemption::Clock] {
            STOP.store(false, Relaxed);
            runtime(2, means).run(|| {
                let deep = || {
                    let deep = thread::Builder::new()
                        .stack_size(SIZE)
                        .spawn(to_the_end)
                        .expect("it begins");
                    deep.join().expect("no panic");
                };
                loop_on(2, deep);
                STOP.store(false, Relaxed);
                if may_stand_aside() {
                    loop_beside_others(4, deep);
                }
            });
        }
    });
}

const SIZE: usize = 40 << 10;

/// Preemption is delayed as long as the guard lives, and happens at its end.
#[test]
fn guard_delays_preemption() {
    const NAME: &str = "bad_input::guard_delays_preemption";
    alone(NAME, || {
        if !has_vps(NAME) || !is_preempted(NAME) {
            return;
        }
        runtime(1, Preemption::Clock).run(|| {
            let turns = AtomicU64::new(0);
            thread::scope(|s| {
                s.spawn(|| {
                    while !STOP.load(Relaxed) {
                        turns.fetch_add(1, Relaxed);
                    }
                });
                thread::yield_now();
                for _ in 0..20 {
                    let quiet = NoEvents::new();
                    let before = turns.load(Relaxed);
                    // Several quanta.
                    let since = std::time::Instant::now();
                    while since.elapsed() < Duration::from_millis(30) {
                        std::hint::spin_loop();
                    }
                    assert_eq!(
                        turns.load(Relaxed),
                        before,
                        "no other microprocess may run while the guard lives"
                    );
                    drop(quiet);
                }
                STOP.store(true, Relaxed);
            });
        });
    });
}

#[test]
fn unknown_preemption_mode_is_refused() {
    const NAME: &str = "bad_input::unknown_preemption_mode_is_refused";
    if is_child(NAME) {
        let error = Runtime::builder().vps(1).build().expect_err("refused");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        let text = std::env::var("KUMI_PREEMPT").expect("it is set");
        let expected = format!("KUMI_PREEMPT={text}: expected clock, signal, signal=N or off");
        assert!(error.to_string().starts_with(&expected), "{error}");
        return;
    }
    for text in ["tick", "signal=9", "signal=", "signal=x"] {
        let ended = again(NAME, &[("KUMI_PREEMPT", text)]);
        assert!(ended.status.success(), "{text}: {}", ended.told());
    }
}
