//! Stack overflows, and faults with other causes. Each runs in a process of its own, which the
//! fault terminates.
#![cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    target_env = "gnu"
))]

mod harness;

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use harness::{Micro, again};
use kumihimo_arch::overflow;

fn describe(slot_end: usize, out: &mut [u8]) -> usize {
    assert!(slot_end != 0);
    let text = b"'deep' (id 42)";
    out[..text.len()].copy_from_slice(text);
    text.len()
}

fn install() -> overflow::AltStack {
    // SAFETY: `describe` only copies, and the calling kernel thread has an alternate stack.
    unsafe { overflow::install_process_handler(describe) };
    overflow::alt_stack_for_this_thread().expect("an alternate stack")
}

#[inline(never)]
fn deep(n: u64) -> u64 {
    let frame = std::hint::black_box([n; 40]);
    if n == 0 { 0 } else { deep(std::hint::black_box(n + 1)) + frame[7] }
}

fn signal_of(out: &Output) -> Option<i32> {
    out.status.signal()
}

#[test]
fn overflow_is_reported_in_one_line() {
    needs_blocks!();
    const NAME: &str = "overflow_is_reported_in_one_line";
    if again::is_child(NAME) {
        let _alt = install();
        Micro::new(64 << 10, || {
            std::hint::black_box(deep(1));
        })
        .resume();
        unreachable!();
    }
    for kind in ["clone", "donor"] {
        let out = again::once_more(NAME, &[("KUMI_LAB", &format!("tls={kind}"))]);
        let text = again::text(&out.stderr);
        assert_eq!(signal_of(&out), Some(libc::SIGABRT), "{text}");
        let line = text.lines().find(|l| l.starts_with("kumihimo: ")).expect("a report line");
        assert!(line.contains("microprocess 'deep' (id 42) overflowed its stack of 1"), "{line}");
        assert!(line.contains("KiB") && line.contains("Builder::stack_size"), "{line}");
    }
}

#[test]
fn overflow_in_a_large_frame_is_reported() {
    needs_blocks!();
    if again::sanitizer() {
        return again::skip("a sanitizer's frames are not probed page by page");
    }
    const NAME: &str = "overflow_in_a_large_frame_is_reported";
    if again::is_child(NAME) {
        let _alt = install();
        Micro::new(0, || {
            std::hint::black_box([1u8; 1 << 20]);
        })
        .resume();
        unreachable!();
    }
    let out = again::once_more(NAME, &[]);
    let text = again::text(&out.stderr);
    assert_eq!(signal_of(&out), Some(libc::SIGABRT), "{text}");
    assert!(text.contains("overflowed its stack"), "{text}");
}

#[test]
fn other_faults_take_the_default_action() {
    needs_blocks!();
    const NAME: &str = "other_faults_take_the_default_action";
    if again::is_child(NAME) {
        let _alt = install();
        Micro::new(64 << 10, || {
            // SAFETY: the access faults, which is the tested behaviour.
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
        })
        .resume();
        unreachable!();
    }
    let out = again::once_more(NAME, &[]);
    assert_eq!(signal_of(&out), Some(libc::SIGSEGV), "{}", again::text(&out.stderr));
    assert!(!again::text(&out.stderr).contains("kumihimo: "));
}

#[test]
fn stray_access_to_a_guard_is_not_reported_as_overflow() {
    needs_blocks!();
    const NAME: &str = "stray_access_to_a_guard_is_not_reported_as_overflow";
    if again::is_child(NAME) {
        let _alt = install();
        let m = Micro::new(64 << 10, || ());
        // SAFETY: the access faults, which is the tested behaviour.
        unsafe { m.lo.wrapping_sub(1).write_volatile(1) };
        unreachable!();
    }
    let out = again::once_more(NAME, &[]);
    assert_eq!(signal_of(&out), Some(libc::SIGSEGV), "{}", again::text(&out.stderr));
    assert!(!again::text(&out.stderr).contains("kumihimo: "));
}

unsafe fn handle(signal: i32, handler: usize, flags: i32) {
    // SAFETY: the caller passes a handler of the type that the flags select.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaddset(&mut action.sa_mask, libc::SIGUSR1);
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

extern "C" fn leave_with_address(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the siginfo is the kernel's; _exit is async-signal-safe; the requested mask is in
    // effect.
    unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut blocked);
        let right = (*info).si_addr() as usize == 8
            && !context.is_null()
            && libc::sigismember(&blocked, libc::SIGUSR1) == 1
            && libc::sigismember(&blocked, signal) == 1;
        libc::_exit(if right { 42 } else { 43 });
    }
}

extern "C" fn leave_plainly(signal: i32) {
    // SAFETY: _exit is async-signal-safe.
    unsafe { libc::_exit(signal + 30) };
}

#[test]
fn program_handlers_receive_other_faults() {
    needs_blocks!();
    const NAME: &str = "program_handlers_receive_other_faults";
    let fault = || {
        // SAFETY: the access faults, which is the tested behaviour.
        unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
    };
    if again::is_child(NAME) {
        // SAFETY: handlers and flags match.
        unsafe {
            match std::env::var("KIND").as_deref() {
                Ok("info") => handle(
                    libc::SIGSEGV,
                    leave_with_address as *const () as usize,
                    libc::SA_SIGINFO,
                ),
                Ok("plain") => handle(libc::SIGSEGV, leave_plainly as *const () as usize, 0),
                Ok("bus") => {
                    handle(libc::SIGBUS, leave_plainly as *const () as usize, libc::SA_RESETHAND)
                }
                Ok("ignored") => handle(libc::SIGSEGV, libc::SIG_IGN, 0),
                // Removes Rust's own handler, which lets a sent signal pass once.
                Ok("sent") => handle(libc::SIGSEGV, libc::SIG_DFL, 0),
                _ => {}
            }
            let _alt = install();
            match std::env::var("KIND").as_deref() {
                Ok("bus") => {
                    libc::raise(libc::SIGBUS);
                }
                Ok("ignored" | "sent") => {
                    libc::raise(libc::SIGSEGV);
                    println!("continued");
                    libc::_exit(5);
                }
                _ => {
                    Micro::new(64 << 10, fault).resume();
                }
            }
        }
        unreachable!();
    }
    let code = |kind| again::once_more(NAME, &[("KIND", kind)]).status;
    assert_eq!(code("info").code(), Some(42));
    assert_eq!(code("plain").code(), Some(libc::SIGSEGV + 30));
    assert_eq!(code("bus").code(), Some(libc::SIGBUS + 30));
    // A sent signal is ignored under SIG_IGN, and fatal under the default action.
    assert_eq!(code("ignored").code(), Some(5));
    assert_eq!(code("sent").signal(), Some(libc::SIGSEGV));
}

#[test]
fn previous_alternate_stack_is_restored() {
    std::thread::spawn(|| {
        let now = || {
            // SAFETY: the out pointer is valid.
            unsafe {
                let mut s: libc::stack_t = std::mem::zeroed();
                assert_eq!(libc::sigaltstack(std::ptr::null(), &mut s), 0);
                (s.ss_sp as usize, s.ss_flags, s.ss_size)
            }
        };
        let before = now();
        let alt = overflow::alt_stack_for_this_thread().expect("an alternate stack");
        assert_ne!(now(), before);
        assert_eq!(now().1 & libc::SS_DISABLE, 0);
        drop(alt);
        assert_eq!((now().0, now().1), (before.0, before.1));
    })
    .join()
    .unwrap();
}
