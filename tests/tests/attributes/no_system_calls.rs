//! A switch between microprocesses that never changed an attribute makes no system call, and
//! neither does the spawn of one, with a name or without.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use kumihimo::runtime::{Events, Preemption, Runtime};
use kumihimo::thread;
use kumihimo_tests::process::{alone_with, one_to_one};
use kumihimo_tests::skip;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

extern "C" fn count(_: i32, info: *const libc::siginfo_t, _: *mut libc::c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel's siginfo of SIGSYS, with the number of the call at offset 24
    // (sigaction(2), `si_syscall`).
    let number = unsafe { info.cast::<u8>().add(24).cast::<u32>().read() };
    LAST.store(u64::from(number), Ordering::Relaxed);
}

/// From here on, each system call of the calling kernel thread but the end of the process and of
/// handlers, and `allowed`, raises SIGSYS instead.
fn count_system_calls(allowed: libc::c_long) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let op = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let program = [
        op(LOAD, 0, 0),
        // The runtime reads the thread's CPU clock once in a while, to account for its time.
        op(IF_EQUAL, 4, libc::SYS_clock_gettime as u32),
        op(IF_EQUAL, 3, libc::SYS_exit_group as u32),
        op(IF_EQUAL, 2, allowed as u32),
        op(IF_EQUAL, 1, libc::SYS_rt_sigreturn as u32),
        op(RETURN, 0, libc::SECCOMP_RET_TRAP),
        op(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: 7, filter: program.as_ptr().cast_mut() };
    // SAFETY: zeros are a valid action; the handler accesses atomics. The program is live. By the
    // system calls themselves, which bind nobody.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut());
        let no_new_privs = [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0, 0];
        assert_eq!(kumihimo_arch::system_call(libc::SYS_prctl, no_new_privs), 0);
        let at = (&raw const filter).expose_provenance();
        let install = [libc::PR_SET_SECCOMP as usize, 2, at, 0, 0, 0];
        assert_eq!(kumihimo_arch::system_call(libc::SYS_prctl, install), 0);
    }
}

/// Number of system calls in a thousand switches between two microprocesses on one VP.
fn calls_in_switches(before: impl FnOnce()) -> usize {
    let other = thread::spawn(|| {
        loop {
            thread::yield_now();
        }
    });
    before();
    (0..100).for_each(|_| thread::yield_now());
    count_system_calls(libc::SYS_exit_group);
    let begun = CALLS.load(Ordering::Relaxed);
    (0..500).for_each(|_| thread::yield_now());
    std::mem::forget(other);
    CALLS.load(Ordering::Relaxed) - begun
}

/// Ends the process, since the runtime's kernel thread can make no other system call. The status is
/// 0, or 1 and the number of the last system call.
fn end(is_right: bool) -> ! {
    let status = if is_right { 0 } else { 1 + LAST.load(Ordering::Relaxed) as usize };
    // SAFETY: ends the process.
    unsafe { kumihimo_arch::system_call(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]) };
    unreachable!()
}

fn with_one_vp(name: &str, body: impl FnOnce() + Send) {
    alone_with(name, &[("KUMI_LAB", "check_attributes=off")], || {
        let builder = Runtime::builder().vps(1).events(Events::Off).preemption(Preemption::Off);
        let runtime = builder.build().expect("a runtime");
        if one_to_one() {
            return skip(name, "microprocesses are kernel threads here");
        }
        if !kumihimo_arch::cpu::fsgsbase() {
            return skip(name, "the FS register is written by a system call here");
        }
        runtime.run(body);
    });
}

#[test]
fn switch_without_changed_attributes_makes_no_system_call() {
    with_one_vp("no_system_calls::switch_without_changed_attributes_makes_no_system_call", || {
        end(calls_in_switches(|| ()) == 0);
    });
}

/// Proves that the test above can fail.
#[test]
fn switch_between_different_masks_makes_a_system_call() {
    with_one_vp("no_system_calls::switch_between_different_masks_makes_a_system_call", || {
        let calls = calls_in_switches(|| {
            crate::signal_mask::change(libc::SIG_BLOCK, &[libc::SIGUSR1]);
        });
        end(calls >= 1000);
    });
}

/// std's start routine of a thread makes two, and microprocesses with a name run it.
#[test]
fn named_spawn_makes_no_system_call() {
    with_one_vp("no_system_calls::named_spawn_makes_no_system_call", || {
        let spawns = |times: usize| {
            (0..times).for_each(|_| {
                let named = thread::Builder::new().name("reader".into()).spawn(|| {
                    assert_eq!(std::thread::current().name(), Some("reader"));
                });
                named.expect("room").join().expect("no panic");
                thread::spawn(|| ()).join().expect("no panic");
            });
        };
        spawns(100);
        // The allocator and std share locks with the process's other kernel threads.
        count_system_calls(libc::SYS_futex);
        let begun = CALLS.load(Ordering::Relaxed);
        spawns(300);
        end(CALLS.load(Ordering::Relaxed) == begun);
    });
}
