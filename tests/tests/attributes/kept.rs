//! Attributes that are kept per microprocess: signal stack, nice value, timer slack, name, CPU
//! clock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kumihimo::thread::{self, Builder};
use kumihimo_tests::skip;
use kumihimo_tests::user::{become_user, own_user};

use crate::{in_runtime, pass_the_kernel_thread_on, status};

static STACK_POINTER: AtomicUsize = AtomicUsize::new(0);

extern "C" fn note_stack(_: i32) {
    let here = 0u8;
    STACK_POINTER.store(std::ptr::from_ref(&here).addr(), Ordering::SeqCst);
}

fn handle_on_signal_stack(signal: i32) {
    // SAFETY: zeros are a valid action; the handler accesses an atomic only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note_stack as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// Sends the calling thread a signal, and returns where its handler ran.
fn handler_address(signal: i32) -> usize {
    // SAFETY: integers only.
    unsafe { libc::raise(signal) };
    STACK_POINTER.load(Ordering::SeqCst)
}

fn current_signal_stack() -> libc::stack_t {
    // SAFETY: zeros are a valid stack_t, which is written.
    unsafe {
        let mut now: libc::stack_t = std::mem::zeroed();
        assert_eq!(libc::sigaltstack(std::ptr::null(), &raw mut now), 0);
        now
    }
}

const BYTES: usize = 64 << 10;

fn install(memory: &mut [u8]) {
    let stack =
        libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    // SAFETY: the memory outlives the microprocess's use of it.
    assert_eq!(unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) }, 0);
}

#[test]
fn signal_stack_belongs_to_its_microprocess() {
    in_runtime("kept::signal_stack_belongs_to_its_microprocess", || {
        handle_on_signal_stack(libc::SIGUSR1);
        let inside = |memory: &[u8], at: usize| at.wrapping_sub(memory.as_ptr().addr()) < BYTES;
        let others_run = AtomicBool::new(true);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while others_run.load(Ordering::Relaxed) {
                        assert_ne!(current_signal_stack().ss_flags & libc::SS_DISABLE, 0);
                        pass_the_kernel_thread_on();
                    }
                });
            }
            let mut memory = vec![0u8; BYTES];
            for _ in 0..50 {
                install(&mut memory);
                pass_the_kernel_thread_on();
                assert_eq!(current_signal_stack().ss_sp.addr(), memory.as_ptr().addr());
                assert!(inside(&memory, handler_address(libc::SIGUSR1)), "on its own stack");
                // SAFETY: no handler runs.
                unsafe {
                    let none = libc::stack_t {
                        ss_sp: std::ptr::null_mut(),
                        ss_flags: libc::SS_DISABLE,
                        ss_size: 0,
                    };
                    libc::sigaltstack(&raw const none, std::ptr::null_mut());
                }
                assert!(!inside(&memory, handler_address(libc::SIGUSR1)), "after its end");
            }
            others_run.store(false, Ordering::Relaxed);
        });
    });
}

#[test]
fn invalid_signal_stacks_are_refused_as_by_the_kernel() {
    in_runtime("kept::invalid_signal_stacks_are_refused_as_by_the_kernel", || {
        let mut memory = vec![0u8; 16];
        let refused = |flags, size| {
            let stack =
                libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: flags, ss_size: size };
            // SAFETY: refused, so the memory is not used.
            let done = unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
            (done, std::io::Error::last_os_error().raw_os_error())
        };
        let mut refused = refused;
        assert_eq!(refused(0, 16), (-1, Some(libc::ENOMEM)));
        assert_eq!(refused(0x40, BYTES), (-1, Some(libc::EINVAL)));
        assert_ne!(current_signal_stack().ss_flags & libc::SS_DISABLE, 0);
    });
}

fn nice() -> i32 {
    // SAFETY: integers only.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

fn set_nice(value: i32) -> i32 {
    // SAFETY: integers only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value) }
}

/// The nice value of the calling kernel thread, from `stat` (proc_pid_stat(5)).
fn nice_in_kernel() -> i32 {
    // SAFETY: takes nothing, cannot fail.
    let thread = unsafe { libc::gettid() };
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("/proc");
    let fields = stat.rsplit(')').next().expect("a name in parentheses");
    fields.split_whitespace().nth(16).and_then(|nice| nice.parse().ok()).expect("a nice value")
}

fn each_keeps_its_nice_value() {
    let handles: Vec<_> = (0..8)
        .map(|value| {
            thread::spawn(move || {
                assert_eq!(set_nice(value), 0);
                for _ in 0..20 {
                    pass_the_kernel_thread_on();
                    assert_eq!((nice(), nice_in_kernel()), (value, value));
                }
                // A child inherits it.
                let child = thread::spawn(|| (nice(), nice_in_kernel()));
                assert_eq!(child.join().unwrap(), (value, value));
            })
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    for _ in 0..50 {
        let usual = thread::spawn(|| (nice(), nice_in_kernel()));
        assert_eq!(usual.join().unwrap(), (0, 0));
    }
}

#[test]
fn nice_value_belongs_to_its_microprocess() {
    in_runtime("kept::nice_value_belongs_to_its_microprocess", each_keeps_its_nice_value);
}

#[test]
fn nice_value_that_cannot_be_lowered_again_binds() {
    const NAME: &str = "kept::nice_value_that_cannot_be_lowered_again_binds";
    in_runtime(NAME, || {
        if !become_user(own_user()) {
            skip(NAME, "not root");
        }
        each_keeps_its_nice_value();
        assert_eq!(set_nice(-20), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EACCES));
    });
}

#[test]
fn nice_returns_the_new_value() {
    in_runtime("kept::nice_returns_the_new_value", || {
        // SAFETY: integers only.
        let value = unsafe { libc::nice(3) };
        pass_the_kernel_thread_on();
        assert_eq!((value, nice(), nice_in_kernel()), (3, 3, 3));
    });
}

fn slack() -> i32 {
    // SAFETY: integers only.
    unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) }
}

fn set_slack(nanoseconds: u64) {
    // SAFETY: integers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds, 0, 0, 0) }, 0);
}

fn slack_in_kernel() -> u64 {
    kumihimo_arch::kernel_attributes::timer_slack()
}

#[test]
fn timer_slack_belongs_to_its_microprocess() {
    in_runtime("kept::timer_slack_belongs_to_its_microprocess", || {
        let usual = slack();
        let pools = thread::spawn(slack_in_kernel).join().unwrap();
        let handles: Vec<_> = (1..9)
            .map(|millis| {
                thread::spawn(move || {
                    set_slack(millis * 1_000_000);
                    for _ in 0..20 {
                        pass_the_kernel_thread_on();
                        assert_eq!(slack() as u64, millis * 1_000_000);
                        assert_eq!(slack_in_kernel(), millis * 1_000_000);
                    }
                    assert_eq!(thread::spawn(slack).join().unwrap() as u64, millis * 1_000_000);
                    // 0 is the default.
                    set_slack(0);
                    assert_eq!((slack(), slack_in_kernel()), (usual, pools));
                })
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        assert_eq!(thread::spawn(|| (slack(), slack_in_kernel())).join().unwrap(), (usual, pools));
    });
}

fn name() -> String {
    let mut bytes = [0u8; 16];
    // SAFETY: 16 bytes to be written.
    unsafe {
        assert_eq!(
            libc::pthread_getname_np(libc::pthread_self(), bytes.as_mut_ptr().cast(), 16),
            0
        );
    }
    text(&bytes)
}

fn name_by_prctl() -> String {
    let mut bytes = [0u8; 16];
    // SAFETY: 16 bytes to be written.
    unsafe { libc::prctl(libc::PR_GET_NAME, bytes.as_mut_ptr(), 0, 0, 0) };
    text(&bytes)
}

fn text(bytes: &[u8; 16]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).expect("a NUL");
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[test]
fn thread_name_is_the_microprocess_name() {
    in_runtime("kept::thread_name_is_the_microprocess_name", || {
        let named = Builder::new().name("a name of twenty chars".into());
        let seen = named.spawn(|| (name(), name_by_prctl())).unwrap().join().unwrap();
        assert_eq!(seen, ("a name of twent".to_owned(), "a name of twent".to_owned()));
        // As a thread of std without a name: the program's.
        let program = thread::spawn(name).join().unwrap();
        let own = std::fs::read_to_string("/proc/self/comm").expect("/proc");
        assert!(!program.is_empty() && program != "kumihimo", "{program} in {own}");

        let handle = thread::spawn(|| {
            // SAFETY: terminated texts.
            unsafe {
                libc::prctl(libc::PR_SET_NAME, c"by prctl, cut off".as_ptr(), 0, 0, 0);
                assert_eq!(name(), "by prctl, cut o");
                let own = libc::pthread_self();
                assert_eq!(
                    libc::pthread_setname_np(own, c"sixteen letters.".as_ptr()),
                    libc::ERANGE
                );
                assert_eq!(libc::pthread_setname_np(own, c"by pthread".as_ptr()), 0);
            }
            pass_the_kernel_thread_on();
            (name(), name_by_prctl())
        });
        assert_eq!(handle.join().unwrap(), ("by pthread".to_owned(), "by pthread".to_owned()));
        // The record is used again.
        (0..20).for_each(|_| assert_eq!(thread::spawn(name).join().unwrap(), program));
    });
}

#[test]
fn thread_name_of_another_microprocess_can_be_read_and_set() {
    in_runtime("kept::thread_name_of_another_microprocess_can_be_read_and_set", || {
        let (sends, receives) = kumihimo::sync::mpsc::channel();
        let other = Builder::new().name("other".into()).spawn(move || {
            // SAFETY: takes nothing, cannot fail.
            sends.send(unsafe { libc::pthread_self() }).unwrap();
            thread::park();
            name()
        });
        let (other, thread) = (other.unwrap(), receives.recv().unwrap());
        let mut bytes = [0u8; 16];
        // SAFETY: the microprocess lives; 16 bytes to be written; a terminated text.
        unsafe {
            assert_eq!(libc::pthread_getname_np(thread, bytes.as_mut_ptr().cast(), 16), 0);
            assert_eq!(text(&bytes), "other");
            assert_eq!(
                libc::pthread_getname_np(thread, bytes.as_mut_ptr().cast(), 5),
                libc::ERANGE
            );
            assert_eq!(libc::pthread_setname_np(thread, c"renamed".as_ptr()), 0);
        }
        while !other.is_finished() {
            other.thread().unpark();
            thread::yield_now();
        }
        assert_eq!(other.join().unwrap(), "renamed");
    });
}

fn cpu_clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live timespec to be written.
    assert_eq!(unsafe { libc::clock_gettime(id, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn compute(time: Duration) {
    let begun = cpu_clock(libc::CLOCK_THREAD_CPUTIME_ID);
    while cpu_clock(libc::CLOCK_THREAD_CPUTIME_ID) - begun < time {
        std::hint::spin_loop();
    }
}

/// The sum of what the microprocesses count is at most what the process has used.
#[test]
fn cpu_clock_counts_the_microprocess_only() {
    in_runtime("kept::cpu_clock_counts_the_microprocess_only", || {
        let all = cpu_clock(libc::CLOCK_PROCESS_CPUTIME_ID);
        let handles: Vec<_> = (0..6u32)
            .map(|i| {
                thread::spawn(move || {
                    let mut last = cpu_clock(libc::CLOCK_THREAD_CPUTIME_ID);
                    let begun = last;
                    for _ in 0..30 {
                        compute(Duration::from_micros(u64::from(i) * 100));
                        pass_the_kernel_thread_on();
                        let now = cpu_clock(libc::CLOCK_THREAD_CPUTIME_ID);
                        assert!(now >= last, "{now:?} after {last:?}");
                        last = now;
                    }
                    // By the id that pthread_getcpuclockid(3) gives.
                    let mut id = -1;
                    // SAFETY: a clock id to be written.
                    let done =
                        unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut id) };
                    assert_eq!(done, 0);
                    assert!(cpu_clock(id) >= last);
                    last - begun
                })
            })
            .collect();
        let counted: Vec<Duration> =
            handles.into_iter().map(|handle| handle.join().unwrap()).collect();
        for (i, time) in (0u32..).zip(&counted) {
            assert!(*time >= Duration::from_micros(30 * 100 * u64::from(i)), "{counted:?}");
        }
        let used = cpu_clock(libc::CLOCK_PROCESS_CPUTIME_ID) - all;
        assert!(counted.iter().sum::<Duration>() <= used, "{counted:?} of {used:?}");
    });
}

#[test]
fn other_clocks_are_the_kernels() {
    in_runtime("kept::other_clocks_are_the_kernels", || {
        let begun = Instant::now();
        let before = cpu_clock(libc::CLOCK_MONOTONIC);
        thread::sleep(Duration::from_millis(5));
        let passed = cpu_clock(libc::CLOCK_MONOTONIC) - before;
        assert!(passed >= Duration::from_millis(5) && passed <= begun.elapsed());
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a live timespec.
        assert_eq!(unsafe { libc::clock_gettime(12345, &raw mut time) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
    });
}

/// A child process gets mask, nice value and slack of the microprocess that starts it.
#[test]
fn child_process_inherits_the_microprocess_attributes() {
    in_runtime("kept::child_process_inherits_the_microprocess_attributes", || {
        use kumihimo::process::Command;
        let seen = || {
            let files = ["status", "stat", "timerslack_ns"].map(|of| format!("/proc/self/{of}"));
            let output = Command::new("/bin/cat").args(files).output().expect("cat");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let mask = crate::field_of(&text, "SigBlk");
            let mut last_lines = text.lines().rev().map(str::to_owned);
            let (slack, stat) = (last_lines.next().unwrap(), last_lines.next().unwrap());
            (mask, stat.split(' ').nth(18).unwrap().to_owned(), slack)
        };
        let before = seen();
        let child = thread::spawn(move || {
            crate::signal_mask::change(libc::SIG_BLOCK, &[libc::SIGUSR2]);
            set_nice(7);
            set_slack(3_000_000);
            seen()
        });
        let (mask, nice, slack) = child.join().unwrap();
        let mask = u64::from_str_radix(&mask, 16).expect("hexadecimal");
        assert_eq!(mask, 1 << (libc::SIGUSR2 - 1));
        assert_eq!((nice.as_str(), slack.as_str()), ("7", "3000000"));
        assert_eq!(seen(), before);
        assert_eq!(status("SigBlk").trim_start_matches('0'), "");
    });
}
