//! Attributes that bind a microprocess: its kernel thread serves no other one, and ends with it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use kumihimo::runtime::Runtime;
use kumihimo::sync::{Mutex, mpsc};
use kumihimo::thread::{self, Builder, Suspended};
use kumihimo_tests::process::{alone, one_to_one};
use kumihimo_tests::skip;

use crate::{in_runtime, pass_the_kernel_thread_on, status, statuses};

pub fn kernel_thread() -> i32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::gettid() }
}

/// Waits until kernel thread `id` of this process has ended.
fn await_end(id: i32) {
    while std::path::Path::new(&format!("/proc/self/task/{id}")).exists() {
        thread::yield_now();
    }
}

/// Runs `change`, which changes the calling kernel thread, in one of nine microprocesses. `seen`
/// must differ in that one and in its children, and in no other microprocess, then and later.
///
/// # Errors
/// The machine refuses the change.
fn concerns_one_only<T>(
    change: impl Fn() -> bool + Send + Copy + 'static,
    seen: impl Fn() -> T + Send + Copy + 'static,
) -> io::Result<()>
where
    T: PartialEq + std::fmt::Debug + Copy + Send + 'static,
{
    let usual = thread::spawn(seen).join().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..8)
        .map(|_| {
            let stop = stop.clone();
            thread::spawn(move || {
                let mut all = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    all.push(seen());
                    pass_the_kernel_thread_on();
                }
                all
            })
        })
        .collect();
    let one = thread::spawn(move || {
        let usual = seen();
        if !change() {
            return Err(io::Error::last_os_error());
        }
        let own = kernel_thread();
        let changed = seen();
        assert_ne!(changed, usual, "the change is visible");
        for _ in 0..20 {
            pass_the_kernel_thread_on();
            assert_eq!((seen(), kernel_thread()), (changed, own));
            assert_eq!(std::thread::spawn(seen).join().unwrap(), changed);
        }
        // What its children have, a thread of std has as well.
        let child = thread::spawn(move || (seen(), thread::spawn(seen).join().unwrap()));
        assert_eq!(child.join().unwrap(), (changed, changed));
        thread::scope(|scope| {
            assert_eq!(scope.spawn(seen).join().unwrap(), changed);
        });
        Ok(own)
    });
    let own = one.join().unwrap();
    stop.store(true, Ordering::Relaxed);
    for other in others {
        for at_some_time in other.join().unwrap() {
            assert_eq!(at_some_time, usual, "in another microprocess");
        }
    }
    await_end(own?);
    for _ in 0..100 {
        assert_eq!(thread::spawn(seen).join().unwrap(), usual, "in a later microprocess");
    }
    Ok(())
}

/// Checks that `change` concerns the microprocess that makes it, in a child process.
pub fn check<T>(
    name: &'static str,
    change: impl Fn() -> bool + Send + Copy + 'static,
    seen: impl Fn() -> T + Send + Copy + 'static,
) where
    T: PartialEq + std::fmt::Debug + Copy + Send + 'static,
{
    in_runtime(name, move || {
        if let Err(why) = concerns_one_only(change, seen) {
            skip(name, &format!("this machine refuses the change ({why})"));
        }
    });
}

/// A test per attribute: its name, the change, and what shows it.
macro_rules! attributes {
    ($($name:ident: $change:expr, $seen:expr;)*) => {
        $(
            #[test]
            fn $name() {
                check(concat!("bound::", stringify!($name)), $change, $seen);
            }
        )*
    };
}

/// A number that stands for `field` of the calling kernel thread's status.
pub fn hash_of(field: &str) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(status(field))
}

fn namespace(kind: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let path = format!("/proc/self/task/{}/ns/{kind}", kernel_thread());
    std::fs::metadata(path).expect("a namespace").ino()
}

/// System call `number` through the C library.
fn call(number: libc::c_long, arguments: [usize; 5]) -> bool {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the callers pass integers, and pointers to live values.
    unsafe { libc::syscall(number, a, b, c, d, e) >= 0 }
}

fn prctl(option: i32, first: u64) -> bool {
    // SAFETY: the callers pass options that take integers.
    unsafe { libc::prctl(option, first, 0, 0, 0) >= 0 }
}

fn query(option: i32) -> i32 {
    // SAFETY: the callers pass options that take integers.
    unsafe { libc::prctl(option, 0, 0, 0, 0) }
}

/// Allows all system calls.
fn filter(install: impl FnOnce(&libc::sock_fprog) -> bool) -> bool {
    let allow = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    };
    let program = libc::sock_fprog { len: 1, filter: std::ptr::from_ref(&allow).cast_mut() };
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1) && install(&program)
}

/// The CPUs of the calling kernel thread, one bit each.
fn cpus() -> u64 {
    // SAFETY: zeros are an empty set, which is written and read.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        (0..64).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).map(|cpu| 1 << cpu).sum()
    }
}

fn set_of_one_cpu() -> libc::cpu_set_t {
    // SAFETY: zeros are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the CPU is within the set.
    unsafe { libc::CPU_SET(cpus().trailing_zeros() as usize, &mut set) };
    set
}

static NO_PRIORITY: libc::sched_param = libc::sched_param { sched_priority: 0 };

fn scheduling_class_now() -> i32 {
    // SAFETY: integers only.
    unsafe { libc::sched_getscheduler(0) }
}

fn io_priority_now() -> libc::c_long {
    // SAFETY: integers only.
    unsafe { libc::syscall(libc::SYS_ioprio_get, 1, 0) }
}

pub fn personality(persona: libc::c_ulong) -> i32 {
    // SAFETY: integers only.
    unsafe { libc::personality(persona) }
}

fn setfsuid(id: u32) -> i32 {
    // SAFETY: integers only.
    unsafe { libc::setfsuid(id) }
}

fn setfsgid(id: u32) -> i32 {
    // SAFETY: integers only.
    unsafe { libc::setfsgid(id) }
}

/// Drops CAP_SYS_TIME from the effective set; capset(2).
pub fn drop_a_capability(set: impl FnOnce(*mut [u32; 2], *mut [u32; 6]) -> bool) -> bool {
    const VERSION: u32 = 0x2008_0522;
    const SYS_TIME: u32 = 25;
    let (mut header, mut data) = ([VERSION, 0], [0u32; 6]);
    let got = call(libc::SYS_capget, [(&raw mut header).addr(), (&raw mut data).addr(), 0, 0, 0]);
    data[0] &= !(1 << SYS_TIME);
    got && set(&raw mut header, &raw mut data)
}

unsafe extern "C" {
    fn capset(header: *mut [u32; 2], data: *mut [u32; 6]) -> i32;
    fn pkey_alloc(flags: u32, rights: u32) -> i32;
    fn pkey_get(key: i32) -> i32;
    fn pkey_set(key: i32, rights: u32) -> i32;
}

/// The key of `protection_keys`.
static KEY: AtomicI32 = AtomicI32::new(-1);

fn refuse_writing_by_key() -> bool {
    // SAFETY: integers only.
    let key = unsafe { pkey_alloc(0, 0) };
    KEY.store(key, Ordering::Relaxed);
    // SAFETY: integers only. No memory has the key.
    key >= 0 && unsafe { pkey_set(key, 2) } == 0
}

fn rights_of_key() -> i32 {
    match KEY.load(Ordering::Relaxed) {
        -1 => 0,
        // SAFETY: integers only; the machine has keys, since one was allocated.
        key => unsafe { pkey_get(key) },
    }
}

attributes! {
    file_system_user: || { setfsuid(12345); setfsuid(u32::MAX) == 12345 }, || setfsuid(u32::MAX);
    file_system_group: || { setfsgid(12345); setfsgid(u32::MAX) == 12345 }, || setfsgid(u32::MAX);
    file_system_user_by_number: || call(libc::SYS_setfsuid, [12345, 0, 0, 0, 0]),
        || hash_of("Uid");
    user_of_one_thread: || call(libc::SYS_setresuid, [usize::MAX, 12345, usize::MAX, 0, 0]),
        || hash_of("Uid");
    groups_of_one_thread: || call(libc::SYS_setgroups, [0, 0, 0, 0, 0])
        && call(libc::SYS_setresgid, [usize::MAX, 12345, usize::MAX, 0, 0]),
        || hash_of("Gid");
    // SAFETY: live structs.
    capabilities: || drop_a_capability(|header, data| unsafe { capset(header, data) } == 0),
        || hash_of("CapEff");
    capabilities_by_number: || drop_a_capability(|header, data| {
        call(libc::SYS_capset, [header.addr(), data.addr(), 0, 0, 0])
    }), || hash_of("CapEff");
    capability_bounding_set: || prctl(libc::PR_CAPBSET_DROP, 25), || hash_of("CapBnd");
    keep_capabilities: || prctl(libc::PR_SET_KEEPCAPS, 1), || query(libc::PR_GET_KEEPCAPS);
    secure_bits: || prctl(libc::PR_SET_SECUREBITS, 1), || query(libc::PR_GET_SECUREBITS);
    no_new_privileges: || prctl(libc::PR_SET_NO_NEW_PRIVS, 1), || hash_of("NoNewPrivs");
    seccomp_by_prctl: || filter(|program| {
        let at = std::ptr::from_ref(program).addr();
        // SAFETY: a live program.
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, 2, at, 0, 0) == 0 }
    }), || hash_of("Seccomp");
    seccomp_by_number: || filter(|program| {
        call(libc::SYS_seccomp, [1, 0, std::ptr::from_ref(program).addr(), 0, 0])
    }), || hash_of("Seccomp");
    // SAFETY: integers only.
    namespace_of_host_names: || unsafe { libc::unshare(libc::CLONE_NEWUTS) == 0 },
        || namespace("uts");
    namespace_by_number: || call(libc::SYS_unshare, [libc::CLONE_NEWUTS as usize, 0, 0, 0, 0]),
        || namespace("uts");
    affinity: || {
        let set = set_of_one_cpu();
        // SAFETY: a live set.
        unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0 }
    }, cpus;
    affinity_by_pthread: || {
        let set = set_of_one_cpu();
        // SAFETY: a live set; the caller's own thread.
        unsafe {
            let own = libc::pthread_self();
            libc::pthread_setaffinity_np(own, size_of_val(&set), &raw const set) == 0
        }
    }, cpus;
    scheduling_class: || {
        // SAFETY: a live struct.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const NO_PRIORITY) == 0 }
    }, scheduling_class_now;
    scheduling_class_by_pthread: || {
        // SAFETY: a live struct; the caller's own thread.
        unsafe {
            let own = libc::pthread_self();
            libc::pthread_setschedparam(own, libc::SCHED_BATCH, &raw const NO_PRIORITY) == 0
        }
    }, scheduling_class_now;
    // Of one process; the idle class (ioprio_set(2)).
    io_priority: || call(libc::SYS_ioprio_set, [1, 0, 3 << 13, 0, 0]), io_priority_now;
    // MPOL_LOCAL.
    memory_policy: || call(libc::SYS_set_mempolicy, [4, 0, 0, 0, 0]), || {
        let mut mode = -1i32;
        call(libc::SYS_get_mempolicy, [(&raw mut mode).expose_provenance(), 0, 0, 0, 0]);
        mode
    };
    // ADDR_NO_RANDOMIZE; the present value.
    address_randomisation: || personality(0x0004_0000) != -1, || personality(0xffff_ffff);
    // KEYCTL_JOIN_SESSION_KEYRING; KEYCTL_GET_KEYRING_ID of the session's.
    session_keyring: || call(libc::SYS_keyctl, [1, 0, 0, 0, 0]), session_keyring_id;
    protection_keys: refuse_writing_by_key, rights_of_key;
}

/// The session keyring, from `/proc/keys`-less kernels as well; asked without binding.
pub fn session_keyring_id() -> isize {
    // SAFETY: integers only: KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING.
    unsafe {
        kumihimo_arch::system_call(libc::SYS_keyctl, [0, (-3isize).cast_unsigned(), 0, 0, 0, 0])
    }
}

#[test]
fn landlock_rules_concern_their_microprocess() {
    const NAME: &str = "bound::landlock_rules_concern_their_microprocess";
    in_runtime(NAME, || {
        let ours = concerns_one_only(
            || {
                // Handled: reading of folders (LANDLOCK_ACCESS_FS_READ_DIR); no rule allows any.
                let attributes = [1u64 << 3];
                let at = (&raw const attributes).expose_provenance();
                // SAFETY: a live struct of that size.
                let ruleset = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, at, 8, 0) };
                ruleset >= 0
                    && prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
                    && call(libc::SYS_landlock_restrict_self, [ruleset as usize, 0, 0, 0, 0])
            },
            || std::fs::read_dir("/").is_ok(),
        );
        if let Err(why) = ours {
            skip(NAME, &format!("this kernel has no Landlock ({why})"));
        }
    });
}

#[test]
fn bound_microprocess_waits_and_is_woken_as_others() {
    in_runtime("bound::bound_microprocess_waits_and_is_woken_as_others", || {
        let (to, requests) = mpsc::channel();
        let (answers, from) = mpsc::channel();
        let mutex = Arc::new(Mutex::new(0));
        let shared = mutex.clone();
        let bound = Builder::new().bound(true).name("bound".into()).spawn(move || {
            let thread = kernel_thread();
            for request in requests {
                *shared.lock().unwrap() += 1;
                thread::sleep(Duration::from_micros(50));
                thread::yield_now();
                thread::blocking(thread::yield_now);
                answers.send(request + 1).unwrap();
                assert_eq!(kernel_thread(), thread);
            }
            thread
        });
        let bound = bound.unwrap();
        for number in 0..200 {
            to.send(number).unwrap();
            assert_eq!(from.recv().unwrap(), number + 1);
        }
        drop(to);
        let thread = bound.join().unwrap();
        assert_eq!(*mutex.lock().unwrap(), 200);
        await_end(thread);
    });
}

#[test]
fn bind_inside_blocking_and_twice_keeps_the_kernel_thread() {
    in_runtime("bound::bind_inside_blocking_and_twice_keeps_the_kernel_thread", || {
        let handle = thread::spawn(|| {
            let inside = thread::blocking(|| {
                thread::bind().unwrap();
                kernel_thread()
            });
            thread::bind().unwrap();
            for _ in 0..50 {
                pass_the_kernel_thread_on();
                assert_eq!(kernel_thread(), inside);
            }
            inside
        });
        await_end(handle.join().unwrap());
    });
}

#[test]
fn bind_outside_of_microprocesses_does_nothing() {
    thread::bind().expect("a kernel thread has itself");
}

#[test]
fn bound_microprocess_is_cancelled_and_unwinds() {
    in_runtime("bound::bound_microprocess_is_cancelled_and_unwinds", || {
        let bound = Builder::new().bound(true).spawn(thread::park).unwrap();
        bound.thread().cancel();
        assert!(bound.join().is_err());
        let panics = Builder::new().bound(true).spawn(|| {
            let own = kernel_thread();
            std::panic::panic_any(own);
        });
        let thread = panics.unwrap().join().expect_err("it panics");
        await_end(*thread.downcast::<i32>().expect("the thread"));
    });
}

#[test]
fn bound_microprocess_is_suspended_and_resumed() {
    const NAME: &str = "bound::bound_microprocess_is_suspended_and_resumed";
    in_runtime(NAME, || {
        let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counts, until) = (count.clone(), stop.clone());
        let bound = Builder::new().bound(true).spawn(move || {
            let own = kernel_thread();
            while !until.load(Ordering::SeqCst) {
                counts.fetch_add(1, Ordering::SeqCst);
                thread::yield_now();
            }
            assert_eq!(kernel_thread(), own);
        });
        let bound = bound.unwrap();
        for _ in 0..20 {
            let before = count.load(Ordering::SeqCst);
            while count.load(Ordering::SeqCst) == before {
                thread::yield_now();
            }
            let suspended = bound.thread().suspend().unwrap();
            assert!(matches!(suspended, Suspended::Now | Suspended::OnReturn), "{suspended:?}");
            let stands = count.load(Ordering::SeqCst);
            (0..50).for_each(|_| pass_the_kernel_thread_on());
            assert_eq!(count.load(Ordering::SeqCst), stands);
            bound.thread().resume().unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        bound.join().unwrap();
    });
}

#[test]
fn child_process_of_a_bound_microprocess_has_its_sandbox() {
    in_runtime("bound::child_process_of_a_bound_microprocess_has_its_sandbox", || {
        use kumihimo::process::Command;
        let seen = || {
            let output =
                Command::new("/bin/grep").args(["NoNewPrivs", "/proc/self/status"]).output();
            String::from_utf8_lossy(&output.expect("grep").stdout).trim().to_owned()
        };
        let bound = thread::spawn(move || {
            assert!(prctl(libc::PR_SET_NO_NEW_PRIVS, 1));
            seen()
        });
        assert_eq!(bound.join().unwrap(), "NoNewPrivs:\t1");
        (0..5).for_each(|_| assert_eq!(seen(), "NoNewPrivs:\t0"));
    });
}

#[test]
fn exhausted_kernel_threads_refuse_a_bound_microprocess() {
    const NAME: &str = "bound::exhausted_kernel_threads_refuse_a_bound_microprocess";
    alone(NAME, || {
        let runtime = Runtime::builder().vps(1).max_kernel_threads(4).build().expect("a runtime");
        if one_to_one() {
            return skip(NAME, "microprocesses are kernel threads here");
        }
        runtime.run(|| {
            let mut bound = Vec::new();
            let error = loop {
                match Builder::new().bound(true).spawn(thread::park) {
                    Ok(handle) => bound.push(handle),
                    Err(error) => break error,
                }
                // Each takes its kernel thread when it begins.
                thread::sleep(Duration::from_millis(1));
            };
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            assert!(error.to_string().contains("KUMI_KERNEL_THREADS"), "{error}");
            assert!((1..=4).contains(&bound.len()), "{}", bound.len());
            // A call of the C library that would bind fails as well, and changes nothing.
            assert!(!prctl(libc::PR_SET_NO_NEW_PRIVS, 1));
            let refused = std::io::Error::last_os_error().raw_os_error();
            assert_eq!(refused, Some(libc::EAGAIN));
            assert!(statuses("NoNewPrivs").iter().all(|value| value == "0"));
            // Places become free.
            for handle in bound {
                handle.thread().cancel();
                assert!(handle.join().is_err());
            }
            while Builder::new().bound(true).spawn(|| ()).map(|handle| handle.join()).is_err() {
                thread::yield_now();
            }
        });
    });
}

#[test]
fn thousand_bound_microprocesses_leave_no_kernel_thread() {
    in_runtime("bound::thousand_bound_microprocesses_leave_no_kernel_thread", || {
        for round in 0..50 {
            let handles: Vec<_> =
                (0..20).map(|_| Builder::new().bound(true).spawn(kernel_thread).unwrap()).collect();
            let threads: Vec<i32> =
                handles.into_iter().map(|handle| handle.join().unwrap()).collect();
            if round % 10 == 0 {
                threads.into_iter().for_each(await_end);
            }
        }
    });
}
