//! Thread-local state stays with its microprocess when the microprocess moves between kernel
//! threads: at waits, yields and in `blocking`.
//!
//! [`moved`] forces such a move. With one VP, another microprocess can run during `blocking` only
//! if the VP has moved to another kernel thread. The caller continues there, unless the VP has
//! moved back meanwhile; in that case the function repeats.

mod fork;

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use kumihimo::runtime::Runtime;
use kumihimo::thread;
use kumihimo_tests::process::{again, alone, is_child, one_to_one};

#[allow(clashing_extern_declarations)]
mod native {
    use std::ffi::c_int;

    unsafe extern "C" {
        pub safe fn c_number() -> c_int;
        pub safe fn c_set_number(to: c_int);
        pub safe fn c_text_end() -> c_int;
        pub safe fn c_errno() -> c_int;
        pub safe fn c_set_errno(to: c_int);
    }
    #[cfg(cplusplus)]
    unsafe extern "C" {
        pub safe fn cpp_object() -> c_int;
        pub safe fn cpp_constructed() -> c_int;
        pub safe fn cpp_destroyed() -> c_int;
        pub safe fn cpp_exceptions(wait: extern "C" fn()) -> c_int;
    }
}

fn kernel_thread() -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::gettid() }
}

/// Moves the caller to another kernel thread. Requires one VP.
#[inline(never)]
fn moved() {
    if one_to_one() {
        return thread::yield_now();
    }
    let before = kernel_thread();
    for _ in 0..1000 {
        let other_runs = Arc::new(AtomicBool::new(false));
        let runs = other_runs.clone();
        let other = thread::spawn(move || runs.store(true, SeqCst));
        thread::blocking(|| {
            while !other_runs.load(SeqCst) {
                std::thread::yield_now();
            }
        });
        let here = kernel_thread();
        other.join().expect("no panic");
        if here != before && kernel_thread() != before {
            return;
        }
    }
    panic!("the microprocess never moved");
}

/// Runs `body` in several microprocesses on one VP, each of which certainly moves, then in many on
/// three VPs.
fn everywhere(body: impl Fn(u64, &dyn Fn()) + Clone + Send + Sync + 'static) {
    let run = |vps: usize, number: u64, wait: fn(), sticky: bool| {
        Runtime::builder().vps(vps).sticky(sticky).build().expect("a runtime").run(|| {
            let all: Vec<_> = (0..number)
                .map(|n| {
                    let body = body.clone();
                    thread::spawn(move || body(n, &wait))
                })
                .collect();
            for handle in all {
                handle.join().expect("no panic");
            }
        });
    };
    // Without stickiness: `body` blocks in the C library, and a sticky microprocess does not move.
    run(1, 5, moved, false);
    run(3, 100, thread::yield_now, true);
    run(3, 30, || thread::blocking(std::thread::yield_now), true);
}

#[test]
fn thread_locals_of_rust_and_c_follow_the_microprocess() {
    thread_local! {
        static PLAIN: Cell<u64> = const { Cell::new(7) };
        static LAZY: RefCell<Vec<u64>> = RefCell::new(vec![1, 2, 3]);
    }
    alone("thread_locals_of_rust_and_c_follow_the_microprocess", || {
        everywhere(|n, wait| {
            assert_eq!(
                (PLAIN.get(), native::c_number(), native::c_text_end()),
                (7, 11, 0),
                "fresh"
            );
            LAZY.with_borrow(|lazy| assert_eq!(*lazy, [1, 2, 3]));
            for round in 0..5 {
                let value = (n as c_int + 1) * 10 + round;
                PLAIN.set(value as u64);
                native::c_set_number(value);
                LAZY.with_borrow_mut(|lazy| {
                    lazy.push(n);
                    // Borrowed across the switch: no other microprocess accesses the value.
                    wait();
                    assert_eq!(lazy.len(), 4 + round as usize);
                });
                assert_eq!((PLAIN.get(), native::c_number()), (value as u64, value));
                assert_eq!(native::c_text_end(), c_int::from(value as c_char));
            }
        });
    });
}

#[test]
fn errno_follows_the_microprocess() {
    alone("errno_follows_the_microprocess", || {
        everywhere(|n, wait| {
            let mine = 1000 + n as c_int;
            native::c_set_errno(mine);
            wait();
            // System calls of the runtime may change errno, as on any thread, but never to the
            // value of another microprocess.
            let now = native::c_errno();
            assert!(now == mine || now < 1000, "{mine} became {now}");
            for _ in 0..5 {
                native::c_set_errno(mine);
                thread::yield_now();
                assert_eq!(native::c_errno(), mine, "a yield makes no system call that fails");
            }
        });
    });
}

/// Destructors run once, at the end, in the same order as on a kernel thread, and before `join`
/// returns.
#[test]
fn thread_local_destructors_run_once_in_order() {
    struct Says(&'static str, RefCell<Option<Arc<Mutex<Vec<&'static str>>>>>);
    impl Says {
        const fn new(name: &'static str) -> Self {
            Says(name, RefCell::new(None))
        }
        fn to(&self, list: &Arc<Mutex<Vec<&'static str>>>) {
            *self.1.borrow_mut() = Some(list.clone());
        }
    }
    impl Drop for Says {
        fn drop(&mut self) {
            if let Some(list) = self.1.borrow_mut().take() {
                // Destructors may wait and move, too.
                thread::yield_now();
                list.lock().expect("not poisoned").push(self.0);
            }
        }
    }
    thread_local! {
        static FIRST: Says = const { Says::new("first") };
        static SECOND: Says = const { Says::new("second") };
        static THIRD: Says = const { Says::new("third") };
    }
    fn touch(list: &Arc<Mutex<Vec<&'static str>>>, wait: &dyn Fn()) {
        SECOND.with(|says| says.to(list));
        wait();
        FIRST.with(|says| says.to(list));
        wait();
        THIRD.with(|says| says.to(list));
        wait();
    }
    alone("thread_local_destructors_run_once_in_order", || {
        let expected = Arc::new(Mutex::new(Vec::new()));
        let list = expected.clone();
        std::thread::spawn(move || touch(&list, &|| ())).join().expect("no panic");
        let expected = expected.lock().expect("not poisoned").clone();
        assert_eq!(expected.len(), 3);
        everywhere(move |_, wait| {
            let list = Arc::new(Mutex::new(Vec::new()));
            let own = list.clone();
            let ends_normally = thread::spawn(move || touch(&own, &thread::yield_now));
            ends_normally.join().expect("no panic");
            assert_eq!(*list.lock().expect("not poisoned"), expected);
            list.lock().expect("not poisoned").clear();
            let own = list.clone();
            let panics = thread::spawn(move || {
                touch(&own, &thread::yield_now);
                std::panic::resume_unwind(Box::new(5));
            });
            wait();
            panics.join().expect_err("it panics");
            assert_eq!(*list.lock().expect("not poisoned"), expected);
        });
    });
}

#[test]
fn panics_keep_payload_and_backtrace_after_a_move() {
    struct Waits<'a>(&'a dyn Fn());
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            // Moves during a panic.
            assert!(std::thread::panicking());
            (self.0)();
            assert!(std::thread::panicking());
        }
    }
    #[inline(never)]
    fn a_name_to_look_for(n: u64, wait: &dyn Fn()) {
        let _waits = Waits(wait);
        wait();
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        assert!(trace.contains("a_name_to_look_for"), "{trace}");
        std::panic::panic_any((n, trace));
    }
    alone("panics_keep_payload_and_backtrace_after_a_move", || {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<(u64, String)>() {
                report(info);
            }
        }));
        everywhere(|n, moves| {
            moves();
            let wait: fn() = if n % 2 == 0 {
                thread::yield_now
            } else {
                || thread::blocking(std::thread::yield_now)
            };
            let handle = thread::spawn(move || a_name_to_look_for(n, &wait));
            let payload = handle.join().expect_err("it panics");
            assert_eq!(payload.downcast_ref::<(u64, String)>().expect("the payload").0, n);
            assert!(!std::thread::panicking());
        });
        everywhere(|n, wait| {
            let caught = catch_unwind(AssertUnwindSafe(|| a_name_to_look_for(n, wait)))
                .expect_err("it panics");
            wait();
            assert_eq!(caught.downcast::<(u64, String)>().expect("the payload").0, n);
        });
    });
}

/// The report of a panic, with a backtrace, on a microprocess that has moved.
#[test]
fn panic_report_has_a_backtrace() {
    #[inline(never)]
    fn a_frame_of_the_report() {
        panic!("reported");
    }
    let name = "panic_report_has_a_backtrace";
    if is_child(name) {
        return Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let handle = thread::spawn(|| {
                moved();
                a_frame_of_the_report();
            });
            handle.join().expect_err("it panics");
        });
    }
    let ended = again(name, &[("RUST_BACKTRACE", "1")]);
    assert!(ended.status.success(), "{ended:#?}");
    assert!(
        ended.stderr.contains("reported") && ended.stderr.contains("a_frame_of_the_report"),
        "{ended:#?}"
    );
}

#[test]
fn std_threads_are_per_microprocess() {
    alone("std_threads_are_per_microprocess", || {
        let seen = Arc::new(Mutex::new(std::collections::HashSet::new()));
        everywhere(move |_, wait| {
            let id = std::thread::current().id();
            assert!(seen.lock().expect("not poisoned").insert(id), "one thread for std each");
            for _ in 0..4 {
                wait();
                assert_eq!(std::thread::current().id(), id);
            }
            // std's park blocks the kernel thread. The token belongs to the microprocess.
            let me = std::thread::current();
            me.unpark();
            wait();
            std::thread::park();
            let waker = std::thread::spawn(move || me.unpark());
            thread::blocking(std::thread::park);
            thread::blocking(|| waker.join()).expect("no panic");
        });
    });
}

#[test]
fn cpp_exceptions_and_thread_locals_work() {
    #[cfg(not(cplusplus))]
    kumihimo_tests::skip("cpp_exceptions_and_thread_locals_work", "no C++ compiler");
    #[cfg(cplusplus)]
    alone("cpp_exceptions_and_thread_locals_work", || {
        extern "C" fn moves() {
            moved();
        }
        extern "C" fn yields() {
            thread::yield_now();
        }
        let at_first = (native::cpp_constructed(), native::cpp_destroyed());
        everywhere(|_, wait| {
            let own = native::cpp_object();
            wait();
            assert_eq!(native::cpp_object(), own);
            for _ in 0..3 {
                assert_eq!(native::cpp_exceptions(yields), 0);
                wait();
            }
        });
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let all: Vec<_> = (0..3)
                .map(|_| thread::spawn(|| assert_eq!(native::cpp_exceptions(moves), 0)))
                .collect();
            for handle in all {
                handle.join().expect("no panic");
            }
        });
        let made = native::cpp_constructed() - at_first.0;
        assert!(made >= 138, "one each: {made}");
        assert_eq!(native::cpp_destroyed() - at_first.1, made, "each destroyed once");
    });
}

/// A shared library made by the build script.
#[derive(Clone, Copy)]
struct Library {
    get: extern "C" fn() -> c_int,
    set: extern "C" fn(c_int),
    end: extern "C" fn() -> c_int,
    fresh: c_int,
}

impl Library {
    fn open(path: &str, fresh: c_int) -> Library {
        let path = CString::new(path).expect("no NUL");
        // SAFETY: the tests' own libraries, whose functions have these types.
        unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            assert!(!handle.is_null(), "{path:?}");
            let symbol = |name: &std::ffi::CStr| -> *mut c_void {
                let found = libc::dlsym(handle, name.as_ptr());
                assert!(!found.is_null(), "{name:?}");
                found
            };
            Library {
                get: std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(symbol(c"get")),
                set: std::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(symbol(c"set")),
                end: std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(symbol(c"end")),
                fresh,
            }
        }
    }

    fn both() -> [Library; 2] {
        [Library::open(env!("LIB_DYNAMIC"), 1234), Library::open(env!("LIB_INITIAL_EXEC"), 4321)]
    }

    fn check(self, n: c_int, wait: &dyn Fn()) {
        assert_eq!((self.get)(), self.fresh);
        (self.set)(n);
        wait();
        assert_eq!(((self.get)(), (self.end)()), (n, c_int::from(n as i8)));
        (self.set)(self.fresh);
    }
}

#[test]
fn thread_locals_of_libraries_loaded_before_work() {
    alone("thread_locals_of_libraries_loaded_before_work", || {
        let libraries = Library::both();
        everywhere(move |n, wait| {
            for library in libraries {
                library.check(n as c_int + 1, wait);
                library.check(n as c_int + 2, wait);
            }
        });
    });
}

/// Libraries are loaded by a microprocess while others wait, whose TLS blocks are older than the
/// libraries.
#[test]
fn thread_locals_of_libraries_loaded_later_work() {
    alone("thread_locals_of_libraries_loaded_later_work", || {
        for vps in [1, 3] {
            Runtime::builder().vps(vps).build().expect("a runtime").run(move || {
                let loaded = Arc::new(Mutex::new(None));
                let early: Vec<_> = (0..20)
                    .map(|n| {
                        let loaded = loaded.clone();
                        thread::spawn(move || {
                            thread::park();
                            let libraries: [Library; 2] =
                                loaded.lock().expect("not poisoned").expect("loaded");
                            for library in libraries {
                                library.check(n + 1, &thread::yield_now);
                                if vps == 1 {
                                    library.check(n + 2, &moved);
                                }
                            }
                        })
                    })
                    .collect();
                thread::yield_now();
                let load = thread::spawn(Library::both).join().expect("no panic");
                *loaded.lock().expect("not poisoned") = Some(load);
                for handle in early {
                    handle.thread().unpark();
                    handle.join().expect("no panic");
                }
                let late: Vec<_> = (0..100)
                    .map(|n| {
                        thread::spawn(move || {
                            load.into_iter().for_each(|l| l.check(n, &thread::yield_now))
                        })
                    })
                    .collect();
                for handle in late {
                    handle.join().expect("no panic");
                }
            });
        }
    });
}

#[test]
fn set_id_calls_work_in_microprocesses() {
    alone("set_id_calls_work_in_microprocesses", || {
        everywhere(|n, wait| {
            for _ in 0..3 {
                // SAFETY: no pointers; sets the current IDs again.
                let done = unsafe {
                    if n % 2 == 0 {
                        libc::setuid(libc::getuid())
                    } else {
                        libc::setgid(libc::getgid())
                    }
                };
                assert_eq!(done, 0);
                wait();
            }
        });
    });
}

#[test]
fn memory_can_be_freed_by_another_microprocess() {
    alone("memory_can_be_freed_by_another_microprocess", || {
        let (sender, receiver) = kumihimo::sync::mpmc::channel::<Vec<u8>>();
        everywhere(move |n, wait| {
            for round in 0..20u64 {
                let size = ((n * 31 + round * 977) % 5000 + 1) as usize;
                sender.send(vec![n as u8; size]).expect("we receive");
                if round % 5 == 0 {
                    wait();
                }
                let other = receiver.recv().expect("at least ours is there");
                assert!(other.iter().all(|&byte| byte == other[0]));
            }
        });
    });
}

/// Rounding modes: of SSE and x87, or of FPCR.
#[test]
fn floating_point_control_follows_the_microprocess() {
    #[cfg(target_arch = "x86_64")]
    fn control() -> (u32, u16) {
        let (mut sse, mut x87) = (0u32, 0u16);
        // SAFETY: stores the control registers.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut sse, in(reg) &raw mut x87, options(nostack));
        }
        (sse & !0x3f, x87)
    }
    #[cfg(target_arch = "x86_64")]
    fn set((sse, x87): (u32, u16)) {
        // SAFETY: only the rounding modes change, and they are restored before other code depends
        // on them.
        unsafe {
            std::arch::asm!("ldmxcsr [{}]", "fldcw [{}]", in(reg) &raw const sse, in(reg) &raw const x87, options(nostack));
        }
    }
    /// The mode in the places that it has on x86_64.
    #[cfg(target_arch = "aarch64")]
    fn control() -> (u32, u16) {
        let control: u64;
        // SAFETY: reads a register.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) control, options(nomem, nostack)) };
        let mode = (control >> 22 & 3) as u32;
        (mode << 13, (mode as u16) << 10)
    }
    #[cfg(target_arch = "aarch64")]
    fn set((mode, _): (u32, u16)) {
        let control = u64::from(mode >> 13 & 3) << 22;
        // SAFETY: as on x86_64.
        unsafe { std::arch::asm!("msr fpcr, {}", in(reg) control, options(nomem, nostack)) };
    }
    alone("floating_point_control_follows_the_microprocess", || {
        everywhere(|n, wait| {
            let fresh = control();
            assert_eq!(
                (fresh.0 >> 13 & 3, fresh.1 >> 10 & 3),
                (0, 0),
                "a new one rounds to nearest"
            );
            let mode = (n % 4) as u32;
            let mine = (fresh.0 | mode << 13, fresh.1 | (mode as u16) << 10);
            for _ in 0..5 {
                set(mine);
                wait();
                let now = control();
                set(fresh);
                assert_eq!(now, mine);
            }
        });
    });
}

/// A microprocess may move at every wait. Sums over the completed work show whether one was lost or
/// ran twice.
#[test]
fn migration_neither_loses_nor_repeats_work() {
    thread_local!(static OWN: Cell<u64> = const { Cell::new(0) });
    alone("migration_neither_loses_nor_repeats_work", || {
        let total = Arc::new(AtomicU64::new(0));
        let sum = total.clone();
        everywhere(move |n, wait| {
            for _ in 0..10 {
                OWN.set(OWN.get() + n);
                wait();
            }
            sum.fetch_add(OWN.get(), SeqCst);
        });
        let expected = 10 * [5u64, 100, 30].map(|many| many * (many - 1) / 2).iter().sum::<u64>();
        assert_eq!(total.load(SeqCst), expected);
    });
}
