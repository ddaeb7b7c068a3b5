//! C library functions on a microprocess's block: keys, locks, fork, set*id, malloc and
//! thread-local state.
#![cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    target_env = "gnu"
))]

mod harness;

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use harness::{Micro, again, current, pause};
use kumihimo_arch::tls::{self, setxid};

const STACK: usize = 256 << 10;

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[test]
fn malloc_and_errno_move_with_the_microprocess() {
    needs_blocks!();
    Micro::new(STACK, || {
        let mut all = Vec::new();
        for i in 0..300usize {
            all.push(vec![i as u8; 16 + i * 7]);
            // SAFETY: the call fails and sets errno.
            unsafe { libc::close(-1) };
            if i % 30 == 0 {
                pause();
            }
            assert_eq!(errno(), libc::EBADF);
        }
        assert!(all.iter().enumerate().all(|(i, v)| v.iter().all(|b| *b == i as u8)));
    })
    .run();
}

static KEYED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count_down(value: *mut c_void) {
    KEYED.fetch_add(1, Ordering::Relaxed);
    let value = value as usize;
    if value > 1 {
        // Sets the key again, so that POSIX requires a further round.
        let key = AGAIN.load(Ordering::Relaxed) as libc::pthread_key_t;
        // SAFETY: the key is live.
        unsafe { libc::pthread_setspecific(key, (value - 1) as *const c_void) };
    }
}

static AGAIN: AtomicUsize = AtomicUsize::new(0);

#[test]
fn pthread_key_destructors_run_at_the_end() {
    needs_blocks!();
    // More than the 32 keys whose values are stored in the block itself.
    let mut keys = [0; 60];
    for k in &mut keys {
        // SAFETY: the out pointer is valid.
        assert_eq!(unsafe { libc::pthread_key_create(k, None) }, 0);
    }
    let mut key = 0;
    // SAFETY: the out pointer is valid.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(count_down)) }, 0);
    AGAIN.store(key as usize, Ordering::Relaxed);
    let body = move || {
        // SAFETY: the keys are live.
        unsafe {
            for (i, k) in keys.iter().enumerate() {
                assert!(libc::pthread_getspecific(*k).is_null());
                assert_eq!(libc::pthread_setspecific(*k, (i + 1) as *const c_void), 0);
            }
            pause();
            for (i, k) in keys.iter().enumerate() {
                assert_eq!(libc::pthread_getspecific(*k) as usize, i + 1);
            }
            assert!(libc::pthread_getspecific(key).is_null());
            libc::pthread_setspecific(key, 3 as *const c_void);
        }
    };
    let mut m = Micro::new(STACK, body).run();
    assert_eq!(KEYED.load(Ordering::Relaxed), 3);
    for round in 2..20 {
        m.reuse(body);
        m = m.run();
        assert_eq!(KEYED.load(Ordering::Relaxed), 3 * round);
    }
}

#[test]
fn mutexes_distinguish_their_owners() {
    needs_blocks!();
    let lock =
        Arc::new(PthreadMutex::new(libc::PTHREAD_MUTEX_ERRORCHECK, libc::PTHREAD_MUTEX_STALLED));
    let (a, b) = (lock.clone(), lock.clone());
    let mut owner = Micro::new(STACK, move || {
        assert_eq!(a.lock(), 0);
        assert_eq!(a.lock(), libc::EDEADLK);
        pause();
        assert_eq!(a.unlock(), 0);
    });
    let mut other = Micro::new(STACK, move || {
        assert_eq!(b.unlock(), libc::EPERM);
        assert_eq!(b.try_lock(), libc::EBUSY);
    });
    owner.resume();
    assert!(other.resume() && !other.panicked());
    assert_eq!(lock.unlock(), libc::EPERM);
    owner.run();
    assert_eq!(lock.lock(), 0);
    assert_eq!(lock.unlock(), 0);
}

#[test]
fn robust_mutexes_are_released_at_the_end() {
    needs_blocks!();
    let lock = Arc::new(PthreadMutex::new(libc::PTHREAD_MUTEX_NORMAL, libc::PTHREAD_MUTEX_ROBUST));
    let inner = lock.clone();
    let mut m = Micro::new(STACK, move || assert_eq!(inner.lock(), 0)).run();
    assert_eq!(lock.lock(), libc::EOWNERDEAD);
    lock.consistent();
    assert_eq!(lock.unlock(), 0);
    // The robust list of the recycled block is empty and usable.
    let inner = lock.clone();
    m.reuse(move || {
        assert_eq!(inner.lock(), 0);
        pause();
        assert_eq!(inner.unlock(), 0);
    });
    m.run();
    assert_eq!(lock.lock(), 0);
    assert_eq!(lock.unlock(), 0);
}

struct PthreadMutex(std::cell::UnsafeCell<libc::pthread_mutex_t>);
// SAFETY: a pthread mutex may be shared between threads.
unsafe impl Sync for PthreadMutex {}
// SAFETY: the mutex stays at its address inside its Arc.
unsafe impl Send for PthreadMutex {}

impl PthreadMutex {
    fn new(kind: c_int, robust: c_int) -> Self {
        // SAFETY: initialises the structs declared here.
        unsafe {
            let mut attr: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut attr);
            libc::pthread_mutexattr_settype(&mut attr, kind);
            libc::pthread_mutexattr_setrobust(&mut attr, robust);
            let mut m: libc::pthread_mutex_t = std::mem::zeroed();
            assert_eq!(libc::pthread_mutex_init(&mut m, &attr), 0);
            PthreadMutex(std::cell::UnsafeCell::new(m))
        }
    }

    fn call(&self, f: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> c_int) -> c_int {
        // SAFETY: the mutex is initialised.
        unsafe { f(self.0.get()) }
    }

    fn lock(&self) -> c_int {
        self.call(libc::pthread_mutex_lock)
    }

    fn try_lock(&self) -> c_int {
        self.call(libc::pthread_mutex_trylock)
    }

    fn unlock(&self) -> c_int {
        self.call(libc::pthread_mutex_unlock)
    }

    fn consistent(&self) {
        assert_eq!(self.call(libc::pthread_mutex_consistent), 0);
    }
}

unsafe extern "C" {
    fn uselocale(locale: libc::locale_t) -> libc::locale_t;
    fn toupper(c: c_int) -> c_int;
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

#[test]
fn c_library_state_is_per_microprocess_and_fresh() {
    needs_blocks!();
    let global = usize::MAX as libc::locale_t as usize;
    let body = move || {
        // SAFETY: the calls concern only the calling thread. The locale outlives its use by the
        // microprocess.
        unsafe {
            assert_eq!(uselocale(std::ptr::null_mut()) as usize, global);
            let mine = libc::newlocale(libc::LC_ALL_MASK, c"C".as_ptr(), std::ptr::null_mut());
            uselocale(mine);
            pause();
            assert_eq!(uselocale(std::ptr::null_mut()), mine);
            assert_eq!(toupper(i32::from(b'q')), i32::from(b'Q'));

            assert!(libc::dlerror().is_null(), "no error of the block's last user");
            assert!(libc::dlopen(c"./no-such-library.so".as_ptr(), libc::RTLD_NOW).is_null());
            pause();
            let text = CStr::from_ptr(libc::dlerror()).to_string_lossy().into_owned();
            assert!(text.contains("no-such-library"), "{text}");
            libc::dlopen(c"./not-read.so".as_ptr(), libc::RTLD_NOW);

            let mut before = -1;
            assert_eq!(pthread_setcancelstate(1, &mut before), 0);
            assert_eq!(
                before, 0,
                "cancellation is enabled after the block's last user disabled it"
            );

            let text = libc::strerror(9_999);
            pause();
            assert!(CStr::from_ptr(text).to_bytes().ends_with(b"9999"));
        }
    };
    let mut m = Micro::new(STACK, body).run();
    for _ in 0..20 {
        m.reuse(body);
        m = m.run();
    }
}

#[test]
fn pthread_attributes_describe_the_microprocess() {
    needs_blocks!();
    Micro::new(STACK, || {
        // SAFETY: the out pointers are valid; current() is the running microprocess.
        unsafe {
            let me = libc::pthread_self();
            // On x86_64 it is the thread pointer, on AArch64 it lies below that.
            let from_thread_pointer = ((*current()).fs as usize).abs_diff(me as usize);
            assert!(from_thread_pointer < 4096, "{from_thread_pointer}");
            let mut attr: libc::pthread_attr_t = std::mem::zeroed();
            assert_eq!(libc::pthread_getattr_np(me, &mut attr), 0);
            let (mut at, mut size) = (std::ptr::null_mut(), 0);
            libc::pthread_attr_getstack(&attr, &mut at, &mut size);
            libc::pthread_attr_destroy(&mut attr);
            assert_eq!(at as usize, (*current()).lo as usize);
            assert_eq!(at as usize + size, (*current()).hi as usize);

            let mut set: libc::cpu_set_t = std::mem::zeroed();
            let affinity = pthread_getaffinity_np(me, size_of_val(&set), &mut set);
            assert_eq!(affinity, 0);
            assert!(libc::CPU_COUNT(&set) > 0);
            assert!(libc::sched_getcpu() >= 0);
        }
        assert!(std::thread::available_parallelism().is_ok());
        // Starts a kernel thread from a microprocess.
        assert_eq!(std::thread::spawn(|| 5).join().unwrap(), 5);
    })
    .run();
    // For a kernel thread, the C library's own function runs.
    // SAFETY: the out pointers are valid.
    unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &mut attr), 0);
        libc::pthread_attr_destroy(&mut attr);
    }
}

unsafe extern "C" {
    fn pthread_getaffinity_np(
        thread: libc::pthread_t,
        bytes: usize,
        set: *mut libc::cpu_set_t,
    ) -> c_int;
}

/// Returns the FS base of the running microprocess's kernel thread, as the runtime does for set*id.
fn carrier() -> Option<usize> {
    let me = current();
    // SAFETY: the running microprocess is alive.
    if me.is_null() { None } else { Some(unsafe { (*me).carrier_fs }) }
}

fn change_nothing() {
    // SAFETY: -1 leaves each ID unchanged. The C library signals all threads nevertheless.
    assert_eq!(unsafe { libc::setresgid(u32::MAX, u32::MAX, u32::MAX) }, 0);
}

#[test]
fn set_id_works_while_microprocesses_run_and_start() {
    needs_blocks!();
    again::alone("set_id_works_while_microprocesses_run_and_start", || {
        tls::get();
        setxid::set_carrier_fs(carrier);
        let stop = Arc::new(AtomicBool::new(false));
        let spin = |calls: bool| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut m = Micro::new(STACK, move || {
                    while !stop.load(Ordering::Relaxed) {
                        if calls {
                            change_nothing();
                        }
                        pause();
                        std::hint::black_box(vec![1u8; 64]);
                    }
                });
                while !m.resume() {}
                assert!(!m.panicked());
            })
        };
        let others = [spin(false), spin(true)];
        let maker = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut kept = Vec::new();
                while !stop.load(Ordering::Relaxed) && kept.len() < 2000 {
                    kept.push(Micro::new(0, || ()).run());
                }
            })
        };
        for _ in 0..1000 {
            change_nothing();
        }
        stop.store(true, Ordering::Relaxed);
        for t in others {
            t.join().unwrap();
        }
        maker.join().unwrap();
    });
}

/// Forks; the child exits with 0 if `child` returns, and the parent waits for that status.
fn fork_and_wait(child: impl FnOnce()) {
    // SAFETY: the child uses only state that is valid after a fork, and exits by _exit.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).is_ok();
            libc::_exit(if ok { 0 } else { 7 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
            "the child's status is {status:#x}"
        );
    }
}

fn work_of_a_child() {
    thread_local! { static HERE: Mutex<u32> = const { Mutex::new(5) }; }
    drop(vec![1u8; 10_000]);
    HERE.with(|h| assert_eq!(*h.lock().unwrap(), 5));
    assert_eq!(std::thread::spawn(|| 3).join().unwrap(), 3);
    // SAFETY: libm is installed and does not affect thread-local state.
    unsafe {
        let h = libc::dlopen(c"libm.so.6".as_ptr(), libc::RTLD_NOW);
        assert!(!h.is_null());
        libc::dlclose(h);
    }
    change_nothing();
    // Blocks can be built in the child as well.
    for _ in 0..3 {
        Micro::new(STACK, || {
            pause();
            drop(vec![2u8; 100]);
        })
        .run();
    }
}

#[test]
fn child_of_a_microprocess_can_build_blocks_and_fork() {
    needs_blocks!();
    again::alone("child_of_a_microprocess_can_build_blocks_and_fork", || {
        setxid::set_carrier_fs(carrier);
        // These blocks are neighbours in the chain of blocks.
        let before: Vec<_> = (0..3).map(|_| Micro::new(STACK, pause)).collect();
        let mut m = Micro::new(STACK, || {
            for _ in 0..3 {
                fork_and_wait(work_of_a_child);
                pause();
            }
        });
        let after: Vec<_> = (0..3).map(|_| Micro::new(STACK, pause)).collect();
        m = m.run();
        m.reuse(|| {
            fork_and_wait(|| {
                work_of_a_child();
                // The child forks again.
                fork_and_wait(work_of_a_child);
            })
        });
        m.run();
        fork_and_wait(work_of_a_child);
        for m in before.into_iter().chain(after) {
            m.run();
        }
        // The newest and the oldest block of the chain fork as well.
        Micro::new(STACK, || fork_and_wait(work_of_a_child)).run();
        work_of_a_child();
    });
}

#[test]
fn oldest_block_can_fork() {
    needs_blocks!();
    again::alone("oldest_block_can_fork", || {
        setxid::set_carrier_fs(carrier);
        let mut oldest = Micro::new(STACK, || fork_and_wait(work_of_a_child));
        oldest = oldest.run();
        let _newer = Micro::new(STACK, || ());
        oldest.reuse(|| fork_and_wait(work_of_a_child));
        oldest.run();
    });
}

#[test]
fn recycling_leaks_nothing() {
    needs_blocks!();
    again::alone("recycling_leaks_nothing", || {
        let body = || {
            thread_local! { static KEPT: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) }; }
            KEPT.with_borrow_mut(|k| k.extend([1; 1000]));
            let many: Vec<_> = (0..40).map(|i| vec![0u8; i * 24 + 1]).collect();
            pause();
            drop(many);
            // SAFETY: the calls concern only the calling thread.
            unsafe {
                uselocale(libc::newlocale(libc::LC_ALL_MASK, c"C".as_ptr(), std::ptr::null_mut()));
                libc::freelocale(uselocale(usize::MAX as libc::locale_t));
                libc::strerror(5555);
                libc::dlopen(c"./no-such-library.so".as_ptr(), libc::RTLD_NOW);
            }
            drop(std::thread::current());
        };
        let mut m = Micro::new(STACK, body);
        let mut round = |n: usize| {
            for _ in 0..n {
                while !m.resume() {}
                m.reuse(body);
            }
            // SAFETY: mallinfo2 only reads malloc's counters.
            unsafe { libc::mallinfo2() }.uordblks
        };
        let before = round(100);
        let after = round(20_000);
        assert!(after < before + 5_000, "malloc in use: {before} -> {after} bytes");
    });
}

#[test]
fn pthread_exit_aborts_as_on_a_std_thread() {
    const NAME: &str = "pthread_exit_aborts_as_on_a_std_thread";
    needs_blocks!();
    unsafe extern "C-unwind" {
        fn pthread_exit(value: *mut c_void) -> !;
    }
    if again::is_child(NAME) {
        // SAFETY: pthread_exit unwinds, and every frame on the way permits that.
        Micro::new(STACK, || unsafe { pthread_exit(std::ptr::null_mut()) }).resume();
        unreachable!();
    }
    let out = again::once_more(NAME, &[]);
    let text = again::text(&out.stderr);
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&out.status),
        Some(libc::SIGABRT),
        "{text}"
    );
    assert!(
        text.contains("exception not rethrown") || text.contains("foreign exception"),
        "{text}"
    );
}

/// Runs all operations on the C library's list of threads concurrently.
#[test]
fn fork_dlopen_and_threads_run_concurrently() {
    again::alone("fork_dlopen_and_threads_run_concurrently", || {
        needs_blocks!();
        setxid::set_carrier_fs(carrier);
        let stop = AtomicBool::new(false);
        let go_on = || !stop.load(Ordering::Relaxed);
        std::thread::scope(|s| {
            s.spawn(|| {
                while go_on() {
                    let all: Vec<_> = (0..8).map(|_| std::thread::spawn(|| ())).collect();
                    all.into_iter().for_each(|t| t.join().unwrap());
                }
            });
            s.spawn(|| {
                while go_on() {
                    change_nothing();
                    std::thread::yield_now();
                }
            });
            s.spawn(|| {
                while go_on() {
                    fork_and_wait(|| drop(vec![1u8; 1000]));
                }
            });
            s.spawn(|| {
                while go_on() {
                    // SAFETY: libm is installed.
                    unsafe { libc::dlclose(libc::dlopen(c"libm.so.6".as_ptr(), libc::RTLD_NOW)) };
                }
            });
            let makers: Vec<_> = (0..2)
                .map(|_| {
                    s.spawn(|| {
                        let mut m = Micro::new(0, || ());
                        for i in 0..1000 {
                            while !m.resume() {}
                            if i % 4 == 0 {
                                m = Micro::new(0, || drop(std::thread::current()));
                            } else {
                                m.reuse(|| drop(vec![2u8; 300]));
                            }
                        }
                    })
                })
                .collect();
            makers.into_iter().for_each(|t| t.join().unwrap());
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn suite_passes_with_donors() {
    again::all_with("all_of_this_with", &[("KUMI_LAB", "tls=donor")]);
}

#[test]
fn suite_passes_with_all_blocks_listed() {
    again::all_with("all_of_this_with", &[("KUMI_LAB", "dlopen=listed")]);
}

#[test]
fn suite_passes_without_fsgsbase() {
    again::all_with("all_of_this_with", &[("KUMI_LAB", "fsbase=arch_prctl")]);
}
