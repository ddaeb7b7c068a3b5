//! Panic messages of microprocesses: the name, the backtrace, hooks of the program.
//!
//! AddressSanitizer defines pthread_create, so std does not know the names of microprocesses there.
#![cfg(not(kumihimo_asan))]

use std::os::unix::process::ExitStatusExt;
use std::panic;
use std::sync::Arc;

use kumihimo::policy::{Info, Placement, Policy, RoundRobin, Why};
use kumihimo::runtime::Runtime;
use kumihimo::thread::{self, Builder};
use kumihimo_tests::process::{
    again, alone, is_child, is_one_to_one, kernel_threads, one_to_one, others_sleep,
};
use kumihimo_tests::skip;

/// Returns the name of the current thread, as std knows it.
fn std_name() -> Option<String> {
    std::thread::current().name().map(str::to_owned)
}

#[test]
fn std_knows_the_name_of_a_microprocess() {
    let name = "std_knows_the_name_of_a_microprocess";
    alone(name, || {
        let kernel_names = || {
            let tasks = std::fs::read_dir("/proc/self/task").expect("readable").flatten();
            let mut names: Vec<_> = tasks
                .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
                .collect();
            names.sort();
            names
        };
        Runtime::builder().vps(2).build().expect("a runtime").run(|| {
            let is_one_to_one = one_to_one();
            assert_eq!(std_name().as_deref(), Some(if is_one_to_one { name } else { "main" }));
            let named = Builder::new().name("reader".into()).spawn(move || {
                let first = std_name();
                thread::yield_now();
                let kept = is_one_to_one || !kernel_names().contains(&"reader\n".to_owned());
                (first, std_name(), std::thread::current().id(), kept)
            });
            let (first, second, id, kept) = named.expect("it begins").join().expect("no panic");
            assert_eq!(first.as_deref(), Some("reader"));
            assert_eq!(second.as_deref(), Some("reader"));
            assert_ne!(id, std::thread::current().id());
            assert!(kept, "a kernel thread has the microprocess's name");
            // The slot that was a named microprocess's.
            assert_eq!(thread::spawn(std_name).join().expect("no panic"), None);
            // A closure and an outcome beyond the size that is kept on the stack.
            let large = [7u8; 2048];
            let named = Builder::new().name("large".into()).spawn(move || (std_name(), large));
            let (shown, large) = named.expect("it begins").join().expect("no panic");
            assert_eq!((shown.as_deref(), large[2047]), (Some("large"), 7));
        });
    });
}

/// The name of the calling thread in the C library.
fn c_name() -> String {
    let mut bytes = [0u8; 16];
    // SAFETY: room for a name of that length.
    let error = unsafe {
        libc::pthread_getname_np(libc::pthread_self(), bytes.as_mut_ptr().cast(), bytes.len())
    };
    assert_eq!(error, 0);
    let name = std::ffi::CStr::from_bytes_until_nul(&bytes).expect("a NUL");
    name.to_str().expect("text").to_owned()
}

#[test]
fn name_is_kept_by_scopes_bound_ones_and_their_children() {
    let name = "name_is_kept_by_scopes_bound_ones_and_their_children";
    alone(name, || {
        Runtime::builder().vps(2).build().expect("a runtime").run(|| {
            let names = || (std_name(), c_name());
            let are = |shown: &str| (Some(shown.to_owned()), shown.to_owned());
            thread::scope(|scope| {
                let scoped = Builder::new().name("scoped".into()).spawn_scoped(scope, names);
                assert_eq!(scoped.expect("room").join().expect("no panic"), are("scoped"));
            });
            let bound = Builder::new().name("bound".into()).bound(true).spawn(move || {
                let child = Builder::new().name("child".into()).spawn(names);
                (names(), child.expect("room").join().expect("no panic"))
            });
            let (bound, child) = bound.expect("room").join().expect("no panic");
            assert_eq!((bound, child), (are("bound"), are("child")));
            // As in std, a new name in the C library leaves the handle's name alone.
            let renamed = Builder::new().name("before".into()).spawn(move || {
                // SAFETY: a string that ends in NUL.
                let error =
                    unsafe { libc::pthread_setname_np(libc::pthread_self(), c"after".as_ptr()) };
                assert_eq!(error, 0);
                thread::yield_now();
                names()
            });
            let renamed = renamed.expect("room").join().expect("no panic");
            assert_eq!(renamed, (Some("before".to_owned()), "after".to_owned()));
        });
    });
}

/// Prints the name that std shows, and panics.
struct PanicsAtTheEnd;

impl Drop for PanicsAtTheEnd {
    fn drop(&mut self) {
        eprintln!("\nends {}", std_name().unwrap_or_default());
        panic!("at the end");
    }
}

#[test]
fn panic_in_a_thread_local_destructor_shows_the_name() {
    thread_local! {
        static LAST: std::cell::Cell<Option<PanicsAtTheEnd>> = const { std::cell::Cell::new(None) };
    }
    let name = "panic_in_a_thread_local_destructor_shows_the_name";
    if is_child(name) {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let ends = Builder::new().name("reader".into());
            ends.spawn(|| LAST.set(Some(PanicsAtTheEnd))).expect("room").join().expect("it aborts");
        });
        return;
    }
    let ended = again(name, &[]);
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{ended:#?}");
    assert!(ended.stderr.contains("\nends reader\n"), "{ended:#?}");
    let line = ended.stderr.lines().find(|line| line.starts_with("thread 'reader' "));
    assert!(line.is_some_and(|line| line.contains(" panicked at ")), "{ended:#?}");
}

/// Uses std's ID of the current thread, as each use of standard output does, wherever the runtime
/// calls the policy.
struct Nosy;

impl Policy for Nosy {
    fn name(&self) -> &str {
        "nosy"
    }

    fn place(&self, info: &Info, why: Why) -> Placement {
        drop(std::io::stdout().lock());
        RoundRobin::new().place(info, why)
    }
}

#[test]
fn named_microprocess_begins_under_a_policy_that_uses_standard_output() {
    let name = "named_microprocess_begins_under_a_policy_that_uses_standard_output";
    alone(name, || {
        let runtime = Runtime::builder().vps(1).policy(Nosy).build();
        runtime.expect("a runtime").run(|| {
            for i in 0..200 {
                let named = |i| Builder::new().name(format!("{i}")).child_first(i % 2 == 0);
                let both = [0, 1].map(|n| {
                    named(i + n).spawn(|| {
                        thread::yield_now();
                        std_name()
                    })
                });
                for (n, one) in both.into_iter().enumerate() {
                    let shown = one.expect("it begins").join().expect("no panic");
                    assert_eq!(shown, Some(format!("{}", i + n)));
                }
            }
        });
    });
}

#[test]
fn named_spawn_beyond_a_limit_drops_its_closure_and_leaves_no_thread() {
    let name = "named_spawn_beyond_a_limit_drops_its_closure_and_leaves_no_thread";
    alone(name, || {
        // Two stacks: of the main microprocess, and of the first child.
        let runtime = Runtime::builder().vps(1).max_stacks(2).build().expect("a runtime");
        runtime.run(|| {
            if one_to_one() {
                return skip(name, "std begins its threads itself");
            }
            let held = Arc::new(());
            // A spare is started beside this microprocess, and must not be missed.
            others_sleep();
            let before = kernel_threads();
            let first = Builder::new().name("first".into()).spawn(thread::park).expect("room");
            for _ in 0..20 {
                let copy = held.clone();
                let refused = Builder::new().name("second".into()).spawn(move || drop(copy));
                assert!(refused.is_err());
                assert_eq!(Arc::strong_count(&held), 1);
            }
            // Kernel threads that free what std prepared end soon.
            while kernel_threads() > before {
                thread::yield_now();
            }
            first.thread().unpark();
            first.join().expect("no panic");
        });
    });
}

#[test]
fn panic_message_has_the_form_of_std_and_the_name() {
    let name = "panic_message_has_the_form_of_std_and_the_name";
    if is_child(name) {
        let given = std::env::var("NAME").ok();
        Runtime::builder().vps(2).build().expect("a runtime").run(move || {
            let mut builder = Builder::new();
            if let Some(name) = given {
                builder = builder.name(name);
            }
            let handle = builder.spawn(|| -> () { panic!("no such file") }).expect("it begins");
            handle.join().expect_err("it panics");
        });
        return;
    }
    let long = "ü".repeat(300);
    for (given, shown) in
        [(Some("reader"), "reader"), (Some(&*long), &*long), (Some(""), ""), (None, "<unnamed>")]
    {
        let environment: Vec<_> = given.map(|name| ("NAME", name)).into_iter().collect();
        let ended = again(name, &environment);
        assert!(ended.status.success(), "{ended:#?}");
        let begin = format!("thread '{shown}' ");
        let line = ended.stderr.lines().find(|line| line.starts_with(&begin));
        let line = line.unwrap_or_else(|| panic!("{begin}: {ended:#?}"));
        assert!(line.contains(" panicked at ") && line.ends_with(':'), "{line}");
        assert!(ended.stderr.contains("\nno such file\n"), "{ended:#?}");
    }
}

#[test]
fn hook_of_the_program_sees_the_name() {
    let name = "hook_of_the_program_sees_the_name";
    if is_child(name) {
        // A hook before the runtime starts, and one that wraps it afterwards.
        panic::set_hook(Box::new(|info| {
            let message = info.payload().downcast_ref::<&str>().copied().unwrap_or("none");
            println!("\nfirst {} {message}", std_name().unwrap_or_default());
        }));
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                println!("\nsecond {}", std_name().unwrap_or_default());
                before(info);
            }));
            let writer = Builder::new().name("writer".into()).spawn(|| -> () { panic!("full") });
            writer.expect("it begins").join().expect_err("it panics");
            drop(panic::take_hook());
            let last = Builder::new().name("last".into()).spawn(|| -> () { panic!("default") });
            last.expect("it begins").join().expect_err("it panics");
        });
        return;
    }
    let ended = again(name, &[]);
    assert!(ended.status.success(), "{ended:#?}");
    assert!(ended.stdout.contains("\nsecond writer\n\nfirst writer full\n"), "{ended:#?}");
    assert!(ended.stderr.contains("thread 'last' "), "{ended:#?}");
    assert!(!ended.stderr.contains("full"), "{ended:#?}");
}

#[test]
fn libtest_captures_what_a_named_microprocess_prints() {
    // Without --nocapture, what a passing test prints is not shown.
    let name = "libtest_captures_what_a_named_microprocess_prints";
    if is_child(name) {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let prints = Builder::new().name("prints".into()).spawn(|| -> () {
                println!("captured line");
                panic!("captured panic");
            });
            prints.expect("it begins").join().expect_err("it panics");
        });
        return;
    }
    let ended = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--test-threads=1"])
        .env("KUMI_TEST_CHILD", name)
        .output()
        .expect("the test program once more");
    let text = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && text.contains("1 passed"), "{text}");
    assert!(!text.contains("captured line") && !text.contains("captured panic"), "{text}");
}

#[test]
fn backtrace_of_a_panic_fits_on_a_stack_of_64_kib() {
    let name = "backtrace_of_a_panic_fits_on_a_stack_of_64_kib";
    if is_child(name) {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            for lean in [false, true] {
                // SAFETY: a panic that is caught before the next switch.
                let builder = unsafe { Builder::new().lean(lean) }.stack_size(64 << 10);
                let handle = builder.spawn(|| -> () { panic!("traced") }).expect("it begins");
                handle.join().expect_err("it panics");
            }
        });
        return;
    }
    for style in ["1", "full"] {
        let ended = again(name, &[("RUST_BACKTRACE", style)]);
        assert!(ended.status.success(), "{ended:#?}");
        assert_eq!(ended.stderr.matches("\ntraced\nstack backtrace:\n").count(), 2, "{ended:#?}");
        assert!(ended.stderr.contains("panics::backtrace_of_a_panic_fits"), "{ended:#?}");
    }
}

/// Calls itself until only `left` bytes of the stack are left, and panics.
#[inline(never)]
fn panic_with(left: usize, lowest: usize) -> usize {
    let room = std::hint::black_box([0u8; 256]);
    assert!(room.as_ptr().addr() - lowest > left, "little room");
    panic_with(left, lowest) + usize::from(room[0])
}

#[test]
fn overflow_while_a_panic_is_reported_names_the_cause() {
    let name = "overflow_while_a_panic_is_reported_names_the_cause";
    if is_child(name) {
        let runtime = Runtime::builder().vps(1).build().expect("a runtime");
        runtime.run(|| {
            let digs = Builder::new().name("digger".into()).stack_size(64 << 10).spawn(|| {
                let here = 0u8;
                let slot = kumihimo_arch::stack::locate((&raw const here).addr());
                panic_with(10 << 10, slot.expect("a slot").guard.end)
            });
            digs.expect("it begins").join().expect_err("it panics");
        });
        return;
    }
    if is_one_to_one() {
        return skip(name, "std reports the overflow of a kernel thread");
    }
    // The message needs little stack, the backtrace more than there is.
    let ended = again(name, &[("RUST_BACKTRACE", "0")]);
    assert!(ended.status.success() && ended.stderr.contains("\nlittle room\n"), "{ended:#?}");
    let ended = again(name, &[("RUST_BACKTRACE", "1")]);
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{ended:#?}");
    let line = ended.stderr.lines().find(|line| line.contains("overflowed its stack"));
    let line = line.unwrap_or_else(|| panic!("{ended:#?}"));
    assert!(line.contains("microprocess 'digger' (id "), "{line}");
    assert!(line.contains(" while it panicked: ") && line.contains("RUST_BACKTRACE=0"), "{line}");
}
