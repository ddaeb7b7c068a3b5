use std::sync::Mutex;

use super::*;
use crate::preempt::doorbell::DEFAULT_SIGNAL;
use crate::preempt::signal_handler;
use crate::trap::HANDLERS as OWN;

/// There is one profiler in a process.
static ONE: Mutex<()> = Mutex::new(());

fn start(has_clocks: bool, interval: Duration, places: usize) -> CpuProfiler {
    signal_handler::install(DEFAULT_SIGNAL, OWN.signal).expect("installed");
    signal_handler::install(libc::SIGTRAP, OWN.trap).expect("installed");
    CpuProfiler::start(DEFAULT_SIGNAL, has_clocks, interval, places).expect("no other")
}

/// Timers, and clocks where the kernel allows them.
fn means() -> impl Iterator<Item = bool> {
    [false, true].into_iter().filter(|clocks| !clocks || doorbell::full_clock(0, 0).is_ok())
}

fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

/// Computes for this much CPU time of the calling thread.
fn compute(nanoseconds: u64) {
    let end = cpu_time() + nanoseconds;
    while cpu_time() < end {
        std::hint::spin_loop();
    }
}

#[test]
fn weights_of_a_thread_add_up_to_its_cpu_time() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for has_clocks in means() {
        let mut profiler = start(has_clocks, Duration::from_millis(5), 64);
        let before = cpu_time();
        profiler.follow(std::iter::once(own_tid())).expect("a timer");
        let is_clock = matches!(profiler.followed[0].means, Means::Clock(..));
        assert_eq!(is_clock, has_clocks);
        compute(200_000_000);
        let samples = profiler.take();
        let used = cpu_time() - before;
        let sum: u64 = samples.iter().map(|one| one.cpu_time).sum();
        assert!(samples.len() > 5, "{}", samples.len());
        assert!(sum <= used && sum > used / 2, "{sum} of {used}");
        let at = samples[0].stack.pointer();
        let here = (&raw const at).addr();
        assert!(at.abs_diff(here) < 1 << 20, "the stack of this thread: {at:#x}, {here:#x}");
    }
}

#[test]
fn samples_without_room_are_counted_and_the_next_ones_weigh_more() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for has_clocks in means() {
        let mut profiler = start(has_clocks, Duration::from_millis(5), 1);
        profiler.follow(std::iter::once(own_tid())).expect("a timer");
        while profiler.lost() < 3 {
            compute(5_000_000);
        }
        assert_eq!(profiler.take().len(), 1);
        let next = loop {
            compute(5_000_000);
            if let Some(next) = profiler.take().pop() {
                break next;
            }
        };
        // Half of the mean interval is the shortest one; that of a timer is shortened by a tick.
        let least = (5_000_000 / 2u64).saturating_sub(tick() / 2);
        assert!(next.cpu_time > 4 * least, "{next:?}");
    }
}

#[test]
fn second_profiler_is_refused_and_the_end_of_the_first_allows_it() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let first = start(false, Duration::from_millis(10), 4);
    assert!(CpuProfiler::start(DEFAULT_SIGNAL, false, Duration::from_millis(10), 4).is_none());
    drop(first);
    drop(start(false, Duration::from_millis(10), 4));
}

#[test]
fn thread_that_has_ended_is_passed_over() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let ended = std::thread::spawn(own_tid).join().expect("no panic");
    let mut profiler = start(false, Duration::from_millis(10), 4);
    // The kernel frees the number a moment after the join.
    while cpu_time_of(ended).is_some() {
        std::thread::yield_now();
    }
    profiler.follow(std::iter::once(ended)).expect("no error");
    assert!(profiler.followed.is_empty());
}

#[test]
fn paused_clock_takes_no_sample_until_it_goes_on() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !means().any(|has_clocks| has_clocks) {
        return eprintln!("skipped: the kernel allows no clock that counts the kernel");
    }
    let mut profiler = start(true, Duration::from_millis(1), 64);
    profiler.follow(std::iter::once(own_tid())).expect("a clock");
    pause(own_tid(), true);
    profiler.take();
    compute(20_000_000);
    assert!(profiler.take().is_empty());
    // The profiler does not start it, either.
    profiler.follow(std::iter::once(own_tid())).expect("a clock");
    compute(20_000_000);
    assert!(profiler.take().is_empty());
    pause(own_tid(), false);
    compute(20_000_000);
    assert!(!profiler.take().is_empty());
}
