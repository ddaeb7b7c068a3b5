//! Bad input that ends the process, or causes a report on standard error.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use kumihimo::policy::{Info, Placement, Policy, Why};
use kumihimo::runtime::{OnDeadlock, Runtime};
use kumihimo::sync::{Mutex, mpsc};
use kumihimo::thread::{self, Builder};
use kumihimo_tests::process::{Ended, again, finish, is_child, is_one_to_one, start};
use kumihimo_tests::skip;

const ABORTED: Option<i32> = Some(libc::SIGABRT);

#[inline(never)]
fn endless(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { endless(depth + 1) + room[(depth % 64) as usize] }
}

#[test]
fn stack_overflow_report_names_the_microprocess_and_the_setting() {
    let name = "stack_overflow_report_names_the_microprocess_and_the_setting";
    if is_child(name) {
        let size = std::env::var("SIZE").expect("given").parse().expect("a number");
        Runtime::builder().vps(2).build().expect("a runtime").run(|| {
            let mut builder = Builder::new().stack_size(size);
            if let Ok(name) = std::env::var("NAME") {
                builder = builder.name(name);
            }
            let id = std::sync::Arc::new(Mutex::new(()));
            let handle = builder.spawn(move || {
                let _held = id.lock().expect("not poisoned");
                println!("\nid {}", thread::current().id());
                endless(0)
            });
            handle.expect("it begins").join().expect("it does not end like this");
        });
        return;
    }
    let say = |ended: &Ended| -> String {
        assert_eq!(ended.status.signal(), ABORTED, "{ended:#?}");
        let lines: Vec<_> =
            ended.stderr.lines().filter(|line| line.contains("overflowed its stack")).collect();
        assert_eq!(lines.len(), 1, "{ended:#?}");
        lines[0].to_owned()
    };
    let named = say(&again(name, &[("SIZE", "65536"), ("NAME", "digger")]));
    if is_one_to_one() {
        assert!(named.contains("digger"), "{named}");
        return;
    }
    assert!(
        named.contains("microprocess 'digger' (id ") && named.contains("Builder::stack_size"),
        "{named}"
    );
    let kib =
        named.split("stack of ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a size");
    assert!(kib.parse::<u32>().expect("a number") >= 64, "{named}");
    // The first bytes of a long name, whole characters.
    let long = "ü".repeat(100);
    let named = say(&again(name, &[("SIZE", "65536"), ("NAME", &long)]));
    assert!(named.contains(&format!("'{}' (id ", "ü".repeat(23))), "{named}");
    // The smallest stack, and no name.
    let ended = again(name, &[("SIZE", "0")]);
    let id =
        ended.stdout.lines().find_map(|line| line.strip_prefix("id ")).expect("a line with the id");
    assert!(say(&ended).contains(&format!("(no name) (id {id})")), "{ended:#?}");
}

/// Spawns a closure whose own frame has `N` bytes, and joins it.
fn overflow_at_once<const N: usize>(builder: Builder) {
    let handle = builder.spawn(|| {
        let room = std::hint::black_box([1u8; N]);
        usize::from(room[N - 1])
    });
    handle.expect("it begins").join().expect("it does not end like this");
}

#[test]
fn overflow_in_the_first_frame_is_reported_with_the_name() {
    let name = "overflow_in_the_first_frame_is_reported_with_the_name";
    if is_child(name) {
        let is = |variable, value| std::env::var(variable).is_ok_and(|given| given == value);
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            // SAFETY: the closure keeps nothing in thread-local storage.
            let mut builder = unsafe { Builder::new().lean(is("KIND", "lean")) };
            if is("NAMED", "yes") {
                builder = builder.name("digger".into());
            }
            let overflow = match () {
                () if is("FRAME", "256k") => overflow_at_once::<{ 256 << 10 }>,
                () if is("FRAME", "3m") => overflow_at_once::<{ 3 << 20 }>,
                () => overflow_at_once::<{ 1 << 30 }>,
            };
            overflow(builder.stack_size(64 << 10));
        });
        return;
    }
    for (kind, named) in [("full", "yes"), ("full", "no"), ("lean", "yes"), ("lean", "no")] {
        for size in ["256k", "3m", "1g"] {
            let ended = again(name, &[("KIND", kind), ("FRAME", size), ("NAMED", named)]);
            assert_eq!(ended.status.signal(), ABORTED, "{kind} {size}: {ended:#?}");
            let shown = match (is_one_to_one(), named) {
                (false, "yes") => "microprocess 'digger' (id ",
                (false, _) => "microprocess (no name) (id ",
                (true, "yes") => "'digger' (",
                (true, _) => "thread '<u",
            };
            let lines = ended.stderr.lines().filter(|line| line.contains("overflowed its stack"));
            let lines: Vec<_> = lines.collect();
            let told = matches!(lines[..], [line] if line.contains(shown));
            assert!(told, "{kind} {size} {shown}: {ended:#?}");
        }
    }
}

extern "C" fn leave(_: libc::c_int) {
    // SAFETY: async-signal-safe.
    unsafe { libc::_exit(42) }
}

#[test]
fn other_faults_reach_the_programs_handler() {
    let name = "other_faults_reach_the_programs_handler";
    if is_child(name) {
        let install = || {
            // SAFETY: a handler of the right type.
            unsafe { libc::signal(libc::SIGSEGV, leave as *const () as libc::sighandler_t) };
        };
        let when = std::env::var("WHEN").expect("given");
        if when == "before" {
            install();
        }
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            if when == "after" {
                install();
            }
            let fault = || {
                thread::yield_now();
                // SAFETY: none. The fault is under test: a read from an address that is never
                // mapped.
                unsafe { std::ptr::read_volatile(std::ptr::without_provenance::<u8>(8)) }
            };
            drop(thread::spawn(fault).join());
        });
        return;
    }
    for when in ["before", "after"] {
        let ended = again(name, &[("WHEN", when)]);
        assert_eq!(ended.status.code(), Some(42), "{when}: {ended:#?}");
    }
    let ended = again(name, &[("WHEN", "never")]);
    assert_eq!(ended.status.signal(), Some(libc::SIGSEGV), "{ended:#?}");
    assert!(!ended.stderr.contains("overflowed"), "{ended:#?}");
}

/// Creates a deadlock: two mutexes, each held by a microprocess that waits for the other.
fn embrace() {
    let locks = Arc::new((Mutex::new(()), Mutex::new(())));
    let both = Arc::new(kumihimo::sync::Barrier::new(2));
    let (l, b) = (locks.clone(), both.clone());
    let other = Builder::new().name("second".into()).spawn(move || {
        let _one = l.1.lock().expect("not poisoned");
        b.wait();
        drop(l.0.lock());
    });
    let _one = locks.0.lock().expect("not poisoned");
    both.wait();
    let (one, other_one) = (&raw const locks.0, &raw const locks.1);
    println!(
        "\nmutexes main waits for the mutex at {other_one:p}, second waits for the mutex at {one:p}"
    );
    drop(locks.1.lock());
    other.expect("it begins").join().expect("it never ends");
}

#[test]
fn deadlock_report_lists_all_waits() {
    let name = "deadlock_report_lists_all_waits";
    if is_child(name) {
        let runtime =
            Runtime::builder().vps(2).on_deadlock(OnDeadlock::Abort).build().expect("a runtime");
        return runtime.run(embrace);
    }
    if is_one_to_one() {
        return skip(
            name,
            "the runtime does not control waits where microprocesses are kernel threads",
        );
    }
    let ended = again(name, &[]);
    assert_eq!(ended.status.signal(), ABORTED, "{ended:#?}");
    assert!(ended.stderr.contains("deadlock: all 2 living microprocesses wait"), "{ended:#?}");
    let wanted = ended
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("mutexes "))
        .expect("a line with the addresses of the mutexes");
    for name in wanted.split(", ") {
        assert!(ended.stderr.contains(name), "{name}: {ended:#?}");
    }
    let holders = ended.stderr.lines().filter(|line| line.contains(", held by "));
    assert!(holders.clone().any(|line| line.ends_with(" (second)")), "{ended:#?}");
    let (_, cycle) =
        ended.stderr.split_once("these wait for each other in a circle:\n").expect("a cycle");
    let cycle = cycle.lines().next().expect("a line");
    assert_eq!(cycle.matches("waits for the mutex at 0x").count(), 2, "{cycle}");
    assert_eq!(cycle.matches(", held by ").count(), 2, "{cycle}");
}

/// The thread is unknown to the runtime.
#[test]
fn thread_of_the_program_that_reads_is_no_deadlock() {
    let name = "thread_of_the_program_that_reads_is_no_deadlock";
    if is_child(name) {
        let runtime = Runtime::builder().vps(2).build().expect("a runtime");
        return runtime.run(|| {
            let (sender, receiver) = mpsc::channel();
            std::thread::spawn(move || {
                let mut byte = [0];
                std::io::stdin().read_exact(&mut byte).expect("the other side writes");
                sender.send(byte[0]).expect("it waits");
            });
            assert_eq!(receiver.recv(), Ok(b'x'));
            println!("resolved");
        });
    }
    let mut child = start(name, &[]);
    // Longer than the second after which a deadlock is reported.
    std::thread::sleep(Duration::from_millis(1500));
    child.stdin.take().expect("piped").write_all(b"x").expect("it reads");
    let ended = finish(name, child);
    assert!(ended.status.success() && ended.stdout.contains("resolved"), "{ended:#?}");
    assert!(!ended.stderr.contains("deadlock"), "{ended:#?}");
}

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("in a destructor");
    }
}

#[test]
fn panic_while_panicking_ends_the_process() {
    let name = "panic_while_panicking_ends_the_process";
    if is_child(name) {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let twice = || {
                let _second = PanicsOnDrop;
                thread::yield_now();
                panic!("the first");
            };
            drop(Builder::new().name("unlucky".into()).spawn(twice).expect("it begins").join());
        });
        return;
    }
    let ended = again(name, &[]);
    assert_eq!(ended.status.signal(), ABORTED, "{ended:#?}");
    for text in ["the first", "in a destructor"] {
        assert!(ended.stderr.contains(text), "{ended:#?}");
    }
}

#[test]
fn panic_in_a_thread_local_destructor_ends_the_process() {
    thread_local!(static LAST: PanicsOnDrop = const { PanicsOnDrop });
    let name = "panic_in_a_thread_local_destructor_ends_the_process";
    if is_child(name) {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let touch = || LAST.with(|last| assert_eq!(size_of_val(last), 0));
            drop(thread::spawn(touch).join());
            println!("not reached");
        });
        return;
    }
    let ended = again(name, &[]);
    assert_eq!(ended.status.signal(), ABORTED, "{ended:#?}");
    assert!(ended.stderr.contains("thread local panicked on drop"), "{ended:#?}");
    assert!(!ended.stdout.contains("not reached"), "{ended:#?}");
}

#[test]
fn unclaimed_result_that_panics_on_drop() {
    let name = "unclaimed_result_that_panics_on_drop";
    if is_child(name) {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let (done, dropped) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (seen, waits_for) = (done.clone(), dropped.clone());
            let handle = thread::spawn(move || {
                // Otherwise dropping the handle would drop the result.
                while !waits_for.load(SeqCst) {
                    thread::yield_now();
                }
                seen.store(true, SeqCst);
                PanicsOnDrop
            });
            drop(handle);
            dropped.store(true, SeqCst);
            while !done.load(SeqCst) {
                thread::yield_now();
            }
            thread::spawn(thread::yield_now).join().expect("no panic");
            println!("went on");
        });
        return;
    }
    let ended = again(name, &[]);
    assert_eq!(ended.status.signal(), ABORTED, "{ended:#?}");
    assert!(ended.stderr.contains("the result of a detached microprocess panicked"), "{ended:#?}");
}

#[test]
fn unjoined_panic_is_reported() {
    let name = "unjoined_panic_is_reported";
    if is_child(name) {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let handle =
                Builder::new().name("lonely".into()).spawn(|| -> () { panic!("heard by no one") });
            drop(handle.expect("it begins"));
            thread::spawn(|| ()).join().expect("the others go on");
        });
        return;
    }
    let ended = again(name, &[]);
    assert!(ended.status.success(), "{ended:#?}");
    assert!(ended.stderr.contains("heard by no one"), "{ended:#?}");
}

struct Panics;

impl Policy for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn place(&self, _: &Info, _: Why) -> Placement {
        panic!("nowhere to go");
    }
}

#[test]
fn panic_in_the_policy_ends_the_process() {
    let name = "panic_in_the_policy_ends_the_process";
    if is_child(name) {
        Runtime::builder().vps(1).policy(Panics).build().expect("a runtime").run(|| ());
        return;
    }
    if is_one_to_one() {
        return skip(name, "the policy is not used where microprocesses are kernel threads");
    }
    let ended = again(name, &[]);
    assert_eq!(ended.status.signal(), ABORTED, "{ended:#?}");
    assert!(
        ended.stderr.contains("nowhere to go") && ended.stderr.contains("policy panicked"),
        "{ended:#?}"
    );
}
