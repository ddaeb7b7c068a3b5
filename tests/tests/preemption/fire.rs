//! Preemption after every 100 us of run time, at arbitrary instructions: all results stay correct.

use std::cell::Cell;
use std::ffi::{CString, c_int};
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use kumihimo::policy::RoundRobin;
use kumihimo::runtime::{Preemption, Runtime, metrics};
use kumihimo::thread;
use kumihimo_tests::process::{again, is_child, is_one_to_one, is_preempted};
use kumihimo_tests::{Random, rounds, skip};

unsafe extern "C" {
    safe fn fire_integer(seed: u64, rounds: c_int) -> c_int;
    safe fn fire_sse(seed: u64, rounds: c_int) -> c_int;
    safe fn fire_wide(seed: u64, rounds: c_int) -> c_int;
    safe fn fire_red_zone(seed: u64, rounds: c_int) -> c_int;
    safe fn fire_strings(seed: u64, rounds: c_int) -> c_int;
    safe fn fire_x87(seed: u64, rounds: c_int) -> c_int;
    safe fn fire_malloc(seed: u64, rounds: c_int) -> c_int;
    safe fn fire_printf(seed: u64, rounds: c_int) -> c_int;
    safe fn fire_qsort(seed: u64, rounds: c_int) -> c_int;
    safe fn fire_time(seed: u64, rounds: c_int) -> c_int;
    safe fn fire_calls(seed: u64, rounds: c_int) -> c_int;
}
#[cfg(cplusplus)]
unsafe extern "C" {
    safe fn cpp_exceptions(wait: extern "C" fn()) -> c_int;
}

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
    static LAZY: Cell<Option<Box<u64>>> = const { Cell::new(None) };
}

/// Thread-local variables keep their values, including those with destructors.
fn locals(seed: u64, rounds: c_int) -> c_int {
    OWN.set(seed);
    let mut errors = 0;
    for n in 0..rounds as u64 * 8 {
        errors += c_int::from(OWN.replace(seed ^ n) != if n == 0 { seed } else { seed ^ (n - 1) });
        LAZY.set(Some(Box::new(n)));
        errors += c_int::from(LAZY.take().is_none_or(|own| *own != n));
    }
    errors
}

/// Lines on standard output stay whole. The parent process checks them.
fn lines(seed: u64, rounds: c_int) -> c_int {
    for n in 0..rounds as u64 / 16 {
        let x = seed ^ n;
        let _ = writeln!(std::io::stdout(), "fire {x} {} {}", x.wrapping_mul(3), x.wrapping_mul(5));
    }
    0
}

fn panics(seed: u64, rounds: c_int) -> c_int {
    let payload = |n| match std::panic::catch_unwind(move || std::panic::resume_unwind(Box::new(n)))
    {
        Ok(()) => None,
        Err(payload) => payload.downcast::<u64>().ok().map(|n| *n),
    };
    (0..rounds as u64 / 16).filter(|n| payload(seed ^ n) != Some(seed ^ n)).count() as c_int
}

#[cfg(cplusplus)]
fn exceptions(_: u64, rounds: c_int) -> c_int {
    extern "C" fn busy() {
        std::hint::black_box((0..500u64).fold(1, |a, b| std::hint::black_box(a ^ b)));
    }
    (0..rounds / 16).filter(|_| cpp_exceptions(busy) != 0).count() as c_int
}

/// fork(2) and execve(2).
fn processes(_: u64, _: c_int) -> c_int {
    let mut command = Command::new("/bin/true");
    // SAFETY: the closure does nothing. With a closure, std uses fork(2) instead of posix_spawn(3).
    unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, || Ok(())) };
    c_int::from(!command.status().is_ok_and(|status| status.success()))
}

fn libraries(_: u64, _: c_int) -> c_int {
    let path = CString::new(env!("LIB_DYNAMIC")).expect("no NUL");
    // SAFETY: the tests' own library.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        let found = !handle.is_null() && !libc::dlsym(handle, c"get".as_ptr()).is_null();
        c_int::from(!found || libc::dlclose(handle) != 0)
    }
}

/// System calls of the runtime's own I/O, and parks.
fn pipes(seed: u64, _: c_int) -> c_int {
    use kumihimo::net::UnixStream;
    use std::io::Read;
    let Ok((mut here, mut there)) = UnixStream::pair() else { return 1 };
    let sent: Vec<u8> = (0..300_000u64).map(|n| (seed ^ n) as u8).collect();
    let expected = sent.clone();
    let writer = thread::spawn(move || here.write_all(&sent).is_ok());
    let mut got = Vec::new();
    let read = there.read_to_end(&mut got).is_ok_and(|n| n == expected.len());
    c_int::from(!read || got != expected || !writer.join().unwrap_or(false))
}

type Load = (&'static str, fn(u64, c_int) -> c_int);

fn loads(calls: bool) -> Vec<Load> {
    let mut all: Vec<Load> = vec![
        ("integer", |s, r| fire_integer(s, r)),
        ("sse", |s, r| fire_sse(s, r)),
        ("avx", |s, r| fire_wide(s, r)),
        ("red zone", |s, r| fire_red_zone(s, r)),
        ("string instructions", |s, r| fire_strings(s, r)),
        ("x87", |s, r| fire_x87(s, r)),
        ("malloc", |s, r| fire_malloc(s, r)),
        ("printf", |s, r| fire_printf(s, r)),
        ("qsort", |s, r| fire_qsort(s, r)),
        ("time", |s, r| fire_time(s, r)),
        ("locals", locals),
        ("lines", lines),
        ("panics", panics),
        ("processes", processes),
        ("libraries", libraries),
        ("pipes", pipes),
    ];
    #[cfg(cplusplus)]
    all.push(("exceptions", exceptions));
    if calls {
        all.push(("system calls", |s, r| fire_calls(s, r)));
    }
    all
}

/// Runs each load beside a computing one, because its own quanta rarely end outside of the kernel;
/// then all loads together.
fn under_fire(means: Preemption, mut random: Random) {
    // With preemption by a signal, system calls may end early
    // (docs/src/reference/limits/preemption.md).
    let all = loads(means == Preemption::Clock);
    for load in &all {
        let preempted = fire_at(&[all[0], *load], means, random.split());
        assert!(preempted > 0, "no preemption of {}", load.0);
    }
    assert!(fire_at(&all, means, random.split()) > 0, "no preemption");
}

const VPS: u64 = 2;

/// Runs three of each load on these virtual processors with the shortest quanta. Returns the number
/// of preemptions.
fn fire_at(loads: &[Load], means: Preemption, mut random: Random) -> u64 {
    let policy = RoundRobin::with_quantum(Duration::ZERO);
    let runtime = Runtime::builder()
        .vps(VPS as usize)
        .policy(policy)
        .preemption(means)
        .build()
        .expect("a runtime");
    runtime.run(|| {
        let errors: Vec<AtomicU64> = loads.iter().map(|_| AtomicU64::new(0)).collect();
        let since = std::time::Instant::now();
        // Some loads wait more than they compute. The first ones that are done, one for each
        // virtual processor, therefore compute until all are done, so that there is always
        // something to interrupt. They do not repeat their own load: a load that takes a lock again
        // and again is mostly preempted while it holds the lock. And not all of them compute: the
        // last few would get only every twentieth turn.
        let all = 3 * loads.len() as u64;
        let behind = AtomicU64::new(all);
        thread::scope(|s| {
            for _ in 0..3 {
                for (load, errors) in loads.iter().zip(&errors) {
                    let (mut random, behind) = (random.split(), &behind);
                    s.spawn(move || {
                        for _ in 0..3 {
                            let rounds = 100 + random.below(4000) as c_int;
                            errors.fetch_add((load.1)(random.number(), rounds) as u64, Relaxed);
                        }
                        if behind.fetch_sub(1, Relaxed) <= all - VPS {
                            return;
                        }
                        while behind.load(Relaxed) > 0 {
                            errors.fetch_add(fire_integer(random.number(), 100) as u64, Relaxed);
                        }
                    });
                }
            }
        });
        for (load, errors) in loads.iter().zip(&errors) {
            assert_eq!(errors.load(Relaxed), 0, "{}", load.0);
        }
        let (took, now) = (since.elapsed(), metrics().expect("it runs"));
        println!(
            "{}: in {took:.3?} on {} virtual processors preempted {} times, {} bells rung by other threads, stood aside {} times, {} switches",
            loads.iter().map(|load| load.0).collect::<Vec<_>>().join(", "),
            now.vps.len(),
            now.preempted,
            now.rung,
            now.stood_aside,
            now.vps.iter().map(|vp| vp.switches).sum::<u64>(),
        );
        now.preempted
    })
}

fn fire(name: &str, means: Preemption) {
    if is_child(name) {
        if is_one_to_one() {
            return skip(name, "microprocesses are kernel threads, which the kernel preempts");
        }
        if !is_preempted(name) {
            return;
        }
        for round in rounds(name) {
            under_fire(means, round.random);
        }
        return;
    }
    let ended = again(name, &[]);
    assert!(ended.status.success(), "{name}: {}", ended.told());
    for line in ended.stderr.lines().filter(|line| line.starts_with("[skip]")) {
        let _ = writeln!(std::io::stderr(), "\n{line}");
    }
    for line in ended.stdout.lines().filter(|line| line.starts_with("fire ")) {
        let n: Vec<u64> = line
            .split(' ')
            .skip(1)
            .map(|n| n.parse().unwrap_or_else(|_| panic!("{line}")))
            .collect();
        assert!(
            n.len() == 3 && n[1] == n[0].wrapping_mul(3) && n[2] == n[0].wrapping_mul(5),
            "{line}"
        );
    }
}

#[test]
fn results_are_correct_when_preempted_by_the_clock() {
    fire("fire::results_are_correct_when_preempted_by_the_clock", Preemption::Clock);
}

#[test]
fn results_are_correct_when_preempted_by_a_signal() {
    fire("fire::results_are_correct_when_preempted_by_a_signal", Preemption::Signal(libc::SIGURG));
}
