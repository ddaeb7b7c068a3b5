//! A stack that overflows, and faults that are something else. Each in a process of its own, which
//! dies.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

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
    // SAFETY: `describe` only copies; the calling kernel thread has an alternate stack.
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
fn overflow_is_one_clear_line() {
    needs_blocks!();
    const NAME: &str = "overflow_is_one_clear_line";
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
        let line = text.lines().find(|l| l.starts_with("kumihimo: ")).expect("a line of ours");
        assert!(line.contains("microprocess 'deep' (id 42) overflowed its stack of 1"), "{line}");
        assert!(line.contains("KiB") && line.contains("Builder::stack_size"), "{line}");
    }
}

#[test]
fn overflow_in_a_frame_larger_than_a_page() {
    needs_blocks!();
    if again::sanitizer() {
        return again::skip("a sanitizer's frames are not probed page by page");
    }
    const NAME: &str = "overflow_in_a_frame_larger_than_a_page";
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
fn other_faults_take_the_default_course() {
    needs_blocks!();
    const NAME: &str = "other_faults_take_the_default_course";
    if again::is_child(NAME) {
        let _alt = install();
        Micro::new(64 << 10, || {
            // SAFETY: it faults, which is what is tested.
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
fn a_stray_pointer_into_a_guard_is_no_overflow() {
    needs_blocks!();
    const NAME: &str = "a_stray_pointer_into_a_guard_is_no_overflow";
    if again::is_child(NAME) {
        let _alt = install();
        let m = Micro::new(64 << 10, || ());
        // SAFETY: it faults, which is what is tested.
        unsafe { m.lo.wrapping_sub(1).write_volatile(1) };
        unreachable!();
    }
    let out = again::once_more(NAME, &[]);
    assert_eq!(signal_of(&out), Some(libc::SIGSEGV), "{}", again::text(&out.stderr));
    assert!(!again::text(&out.stderr).contains("kumihimo: "));
}

unsafe fn handle(signal: i32, handler: usize, flags: i32) {
    // SAFETY: the caller passes a handler of the type that the flags say.
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
    // SAFETY: the kernel's siginfo; _exit is async-signal-safe; the mask asked for is in force.
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
fn the_programs_own_handlers_keep_their_faults() {
    needs_blocks!();
    const NAME: &str = "the_programs_own_handlers_keep_their_faults";
    let fault = || {
        // SAFETY: it faults, which is what is tested.
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
                // Not Rust's own handler, which lets a signal that was sent pass once.
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
                    println!("went on");
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
    // Sent, not a fault: ignored where it was ignored, fatal where the default held.
    assert_eq!(code("ignored").code(), Some(5));
    assert_eq!(code("sent").signal(), Some(libc::SIGSEGV));
}

#[test]
fn alternate_stacks_are_put_back() {
    std::thread::spawn(|| {
        let now = || {
            // SAFETY: an out pointer.
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
