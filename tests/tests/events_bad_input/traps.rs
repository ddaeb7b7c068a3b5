//! SIGTRAP, which the `bpf` source uses, is also available to the application.

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};

use kumihimo::runtime::{Events, Runtime, metrics};
use kumihimo::thread;
use kumihimo_tests::process::one_to_one;

use crate::blocked::{block, nanosleep};
use crate::under::{under, well, well_and_said_once, with_vps};

/// Number of traps that the application's handler received.
static SEEN: AtomicU64 = AtomicU64::new(0);
/// Number of the source's traps that reached the application, which must not happen.
static OURS: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicI32 = AtomicI32::new(0);

/// `si_code` of a trap from a perf event or a BPF program. libc does not define it.
const TRAP_PERF: i32 = 6;
const SI_KERNEL: i32 = 0x80;

extern "C" fn full(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: provided by the kernel.
    let (code, data) = unsafe { ((*info).si_code, info.cast::<u64>().add(3).read()) };
    // A breakpoint has the code SI_KERNEL as well.
    if code == TRAP_PERF || code == SI_KERNEL && data != 0 {
        OURS.fetch_add(1, SeqCst);
    } else {
        LAST.store(code, SeqCst);
        SEEN.fetch_add(1, SeqCst);
    }
}

extern "C" fn plain(_: i32) {
    SEEN.fetch_add(1, SeqCst);
}

fn handle(handler: usize, flags: i32) {
    // SAFETY: zeros are a valid sigaction; the handlers are async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()), 0);
    }
}

fn raise() {
    // SAFETY: integers only.
    assert_eq!(unsafe { libc::raise(libc::SIGTRAP) }, 0);
}

fn kill() {
    // SAFETY: integers only.
    assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGTRAP) }, 0);
}

fn breakpoint() {
    // SAFETY: the test is about the handler or the default action.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("int3");
    }
    // The instruction runs again after a handler, so only a default action can be tested by it.
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("brk #0");
    }
}

/// Blocks and sleeps, so that the source's traps occur in between, and sends each kind of trap
/// meanwhile.
fn blocks() {
    let blocked = block(10);
    let naps: Vec<_> = (0..10)
        .map(|_| {
            thread::spawn(|| {
                for _ in 0..20 {
                    assert_eq!(nanosleep(100_000), 0, "no EINTR");
                    thread::yield_now();
                }
            })
        })
        .collect();
    for nap in naps {
        nap.join().expect("no panic");
    }
    blocked.release();
}

fn the_programs_own(handler: usize, flags: i32) {
    handle(handler, flags);
    with_vps(2, || {
        let blocked = block(10);
        blocks();
        let trapping: Vec<_> = (0..10)
            .map(|_| {
                thread::spawn(|| {
                    for _ in 0..5 {
                        raise();
                        assert_eq!(nanosleep(1000), 0);
                        if cfg!(target_arch = "x86_64") {
                            breakpoint();
                        }
                        thread::yield_now();
                    }
                })
            })
            .collect();
        for one in trapping {
            one.join().expect("no panic");
        }
        let seen = if cfg!(target_arch = "x86_64") { 100 } else { 50 };
        assert_eq!(SEEN.load(SeqCst), seen);
        kill();
        while SEEN.load(SeqCst) < seen + 1 {
            thread::yield_now();
        }
        blocked.release();
        assert!(metrics().expect("it runs").unblocked > 0);
        assert_eq!(OURS.load(SeqCst), 0, "traps of the source reached the application");
    });
}

const BPF: [Events; 1] = [Events::Bpf];

#[test]
fn earlier_handler_gets_its_own_traps() {
    let body = |_| {
        the_programs_own(full as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK);
        assert_eq!(LAST.load(SeqCst), libc::SI_USER);
    };
    under("traps::earlier_handler_gets_its_own_traps", &BPF, body, well);
}

#[test]
fn earlier_one_argument_handler_gets_its_own_traps() {
    let body = |_| the_programs_own(plain as *const () as usize, 0);
    under("traps::earlier_one_argument_handler_gets_its_own_traps", &BPF, body, well);
}

fn ends_by_sigtrap(name: &str, before: Option<usize>, trap: fn()) {
    let body = |_| {
        if let Some(before) = before {
            handle(before, 0);
        }
        with_vps(1, || {
            let blocked = block(3);
            trap();
            blocked.leave();
            // Well, then.
        });
    };
    under(name, &BPF, body, |source, ended| {
        if ended.stderr.contains("[skip]") {
            return;
        }
        assert_eq!(ended.status.signal(), Some(libc::SIGTRAP), "under {source}: {ended:#?}");
    });
}

#[test]
fn breakpoint_without_a_handler_ends_the_process() {
    ends_by_sigtrap("traps::breakpoint_without_a_handler_ends_the_process", None, breakpoint);
}

/// As without Kumihimo: the kernel does not allow a synchronous trap to be ignored.
#[test]
fn ignored_breakpoint_ends_the_process() {
    ends_by_sigtrap("traps::ignored_breakpoint_ends_the_process", Some(libc::SIG_IGN), breakpoint);
}

#[test]
fn sigtrap_without_a_handler_ends_the_process() {
    ends_by_sigtrap("traps::sigtrap_without_a_handler_ends_the_process", None, || {
        kill();
        loop {
            nanosleep(1_000_000);
        }
    });
}

#[test]
fn sigtrap_ignored_before_the_start_has_no_effect() {
    let body = |_| {
        handle(libc::SIG_IGN, 0);
        with_vps(2, || {
            raise();
            blocks();
            raise();
            assert!(metrics().expect("it runs").unblocked > 0);
        });
    };
    under("traps::sigtrap_ignored_before_the_start_has_no_effect", &BPF, body, well);
}

/// Report that the source's handler was replaced.
const REPLACED: &str = "kumihimo: the handler of SIGTRAP was replaced";

#[test]
fn sigtrap_ignored_after_the_start_degrades_events() {
    let body = |_| {
        with_vps(2, || {
            handle(libc::SIG_IGN, 0);
            blocks();
            raise();
            blocks();
        });
    };
    under(
        "traps::sigtrap_ignored_after_the_start_degrades_events",
        &BPF,
        body,
        well_and_said_once(REPLACED),
    );
}

#[test]
fn handler_installed_after_the_start_degrades_events() {
    let body = |_| {
        // A microprocess that becomes sticky closes its event, which may cause another trap.
        Runtime::builder().vps(2).sticky(false).build().expect("a runtime").run(|| {
            if one_to_one() {
                return eprintln!("\n[skip] microprocesses are kernel threads here");
            }
            blocks();
            let blocked = block(5);
            handle(
                full as *const () as usize,
                libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART,
            );
            blocks();
            raise();
            assert_eq!(SEEN.load(SeqCst), 1);
            blocked.release();
            blocks();
            // Traps requested before the replacement was detected have arrived. From then on none
            // is requested.
            let foreign = OURS.load(SeqCst);
            blocks();
            assert_eq!(OURS.load(SeqCst), foreign);
        });
    };
    under(
        "traps::handler_installed_after_the_start_degrades_events",
        &BPF,
        body,
        well_and_said_once(REPLACED),
    );
}

fn mask(how: i32) {
    // SAFETY: a live set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGTRAP);
        assert_eq!(libc::pthread_sigmask(how, &set, std::ptr::null_mut()), 0);
    }
}

#[test]
fn sigtrap_blocked_in_the_process_has_no_effect() {
    let body = |_| {
        mask(libc::SIG_BLOCK);
        with_vps(2, || {
            blocks();
            blocks();
        });
        // None of the pending signals belongs to this kernel thread.
        mask(libc::SIG_UNBLOCK);
    };
    under("traps::sigtrap_blocked_in_the_process_has_no_effect", &BPF, body, well);
}

/// Blocks the signal on the kernel thread that happens to carry the microprocess. A pending trap
/// arrives after it is unblocked, and has no effect.
#[test]
fn sigtrap_blocked_by_a_microprocess_has_no_effect() {
    let body = |_| {
        with_vps(2, || {
            let masked: Vec<_> = (0..4)
                .map(|_| {
                    thread::spawn(|| {
                        for _ in 0..20 {
                            mask(libc::SIG_BLOCK);
                            for _ in 0..3 {
                                assert_eq!(nanosleep(100_000), 0);
                            }
                            mask(libc::SIG_UNBLOCK);
                            thread::yield_now();
                            mask(libc::SIG_BLOCK);
                            assert_eq!(nanosleep(100_000), 0);
                            thread::yield_now();
                            mask(libc::SIG_UNBLOCK);
                        }
                    })
                })
                .collect();
            blocks();
            for one in masked {
                one.join().expect("no panic");
            }
            blocks();
        });
    };
    under("traps::sigtrap_blocked_by_a_microprocess_has_no_effect", &BPF, body, well);
}
