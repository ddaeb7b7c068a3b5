//! Guarantees for a user scheduler, tested with the minimal one: events held back while masked, a
//! block inside the scheduler, and the limits of the pool.
#![cfg(not(loom))]

#[path = "../examples/minimal/scheduler.rs"]
#[allow(dead_code)]
mod scheduler;

use std::cell::Cell;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::Duration;

use kumihimo_events::kernel::Settings;
use kumihimo_events::limit::Limit;
use kumihimo_events::preempt::Means;
use kumihimo_events::sched::{Answer, Event, UserScheduler};
use kumihimo_events::source::{self, Kind};
use kumihimo_events::{Kernel, KernelThread};
use scheduler::handle::Handle;
use scheduler::{Scheduler, check, yield_now};

/// Settings with one pooled kernel thread and without preemption.
fn settings(source: Kind, vps: u32, max_threads: usize) -> Settings {
    let preempt = Some(Means::Off);
    Settings {
        vps,
        parked: 0,
        concurrency: 1,
        limit: Limit::asked(max_threads, "the test"),
        source: Some(source),
        preempt,
        record: false,
    }
}

/// Runs `body` under each source that this machine allows.
fn under_each(vps: u32, max_threads: usize, body: impl Fn(&Arc<Scheduler>)) {
    for source in [Kind::Bpf, Kind::Perf, Kind::Watch] {
        if let Err(why) = source::open_one(source, 8) {
            eprintln!("\n[skip] under {source}: {why}");
            continue;
        }
        let package = Scheduler::open(settings(source, vps, max_threads)).expect("a scheduler");
        body(&package);
        package.wait();
    }
}

fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_micros(200));
    }
}

type Body = Box<dyn FnOnce(&KernelThread) + Send>;

/// A user scheduler that runs one script on its one VP, and records the events that it receives.
#[derive(Default)]
struct Script {
    script: Mutex<Option<Body>>,
    told: Mutex<Vec<u32>>,
    done: AtomicBool,
}

impl UserScheduler for Script {
    fn thread(&self, _thread: &KernelThread, live: &mut dyn FnMut()) {
        live();
    }

    fn blocked(&self, _vp: u32) -> Answer {
        Answer::Nothing
    }

    fn resumed(&self, _vp: u32, thread: &KernelThread) {
        let script = self.script.lock().expect("not poisoned").take();
        script.expect("resumed once")(thread);
        thread.release_vp();
        self.done.store(true, SeqCst);
    }

    fn unblocked(&self) {}

    fn notified(&self, events: u32) {
        self.told.lock().expect("not poisoned").push(events);
    }
}

/// Runs `script` on a kernel thread that carries VP 0. Returns the events that the user scheduler
/// received.
fn told(script: impl FnOnce(&KernelThread) + Send + 'static) -> Vec<u32> {
    let settings = Settings {
        vps: 1,
        parked: 0,
        concurrency: 0,
        limit: Limit::asked(4, "the test"),
        source: Some(Kind::Off),
        preempt: Some(Means::Off),
        record: false,
    };
    let kernel = Kernel::open(settings).expect("a kernel's half");
    let user = Arc::new(Script { script: Mutex::new(Some(Box::new(script))), ..Script::default() });
    let known: Arc<dyn UserScheduler> = user.clone();
    kernel.init_sched(Arc::downgrade(&known));
    kernel.resume(0, None).expect("a kernel thread");
    until(|| user.done.load(SeqCst));
    kernel.dismiss();
    while kernel.await_end(|| 0, Duration::from_secs(1)) > 0 {}
    kernel.join();
    std::mem::take(&mut *user.told.lock().expect("not poisoned"))
}

/// Unmasks and delivers, as a user scheduler does.
fn exit(thread: &KernelThread) {
    if thread.slot().exit() {
        thread.deliver();
    }
}

const PREEMPTED: u32 = Event::Preempted.bit();
const CHANGED: u32 = Event::Changed.bit();

#[test]
fn events_wait_for_the_unmask_and_are_delivered_once() {
    let told = told(|thread| {
        let kernel = thread.kernel();
        // The kernel's half has masked the slot once; this masks it again.
        assert!(thread.slot().enter(thread.token()));
        kernel.raise(0, Event::Preempted);
        kernel.raise(0, Event::Preempted);
        exit(thread);
        assert_eq!(thread.slot().pending.load(SeqCst), PREEMPTED, "still masked: held back");
        exit(thread);
        assert_eq!(thread.slot().pending.load(SeqCst), 0, "delivered at once");
        // No event is left.
        assert!(thread.slot().enter(thread.token()));
        exit(thread);
        // Two events are delivered as one.
        assert!(thread.slot().enter(thread.token()));
        kernel.raise(0, Event::Changed);
        kernel.raise(0, Event::Preempted);
        exit(thread);
        assert!(thread.slot().enter(thread.token()));
    });
    assert_eq!(told, [PREEMPTED, PREEMPTED | CHANGED]);
}

#[test]
fn event_for_a_former_carrier_is_dropped() {
    let told = told(|thread| {
        thread.kernel().raise(0, Event::Preempted);
        thread.release_vp();
        // As a thread that returns, waits and receives the VP: it must not be preempted in
        // addition.
        thread.acquire_vp(0);
        exit(thread);
        assert!(thread.slot().enter(thread.token()));
    });
    assert_eq!(told, [] as [u32; 0]);
}

#[test]
fn each_poll_of_a_waiter_is_counted() {
    let _ = told(|thread| {
        thread.release_vp();
        assert!(thread.begin_wait(None).is_some());
        let (looks, before) = (Cell::new(0), thread.kernel().counts().looks);
        let stuck = || {
            looks.set(looks.get() + 1);
            looks.get() == 3
        };
        assert!(!thread.wait_for_vp(stuck), "no thread hands a VP over");
        assert_eq!((looks.get(), thread.kernel().counts().looks - before), (3, 3));
        thread.acquire_vp(0);
    });
}

#[test]
fn higher_priority_preempts_at_the_next_switch_point() {
    under_each(1, 8, |package| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let (own, its) = (package.clone(), order.clone());
        let low = package.spawn(10, move || {
            let note = |what| its.lock().expect("not poisoned").push(what);
            note("low begins");
            let notes = its.clone();
            // The event is delivered when the spawn unmasks.
            let high = own
                .spawn(50, move || notes.lock().expect("not poisoned").push("high"))
                .expect("memory");
            note("low goes on");
            high.join().expect("no panic");
        });
        low.expect("memory").join().expect("no panic");
        assert_eq!(*order.lock().expect("not poisoned"), ["low begins", "high", "low goes on"]);
    });
}

/// Starts a microprocess that computes, with switch points, until `end`. Returns its handle and the
/// number of its rounds.
fn computing(
    package: &Arc<Scheduler>,
    priority: u8,
    end: &Arc<AtomicBool>,
) -> (Handle<()>, Arc<AtomicU64>) {
    let (rounds, end) = (Arc::new(AtomicU64::new(0)), end.clone());
    let its = rounds.clone();
    let handle = package.spawn(priority, move || {
        while !end.load(SeqCst) {
            its.fetch_add(1, SeqCst);
            check();
        }
    });
    (handle.expect("memory"), rounds)
}

#[test]
fn changed_priorities_take_effect() {
    under_each(1, 8, |package| {
        let end = Arc::new(AtomicBool::new(false));
        let (first, its) = computing(package, 20, &end);
        let (second, others) = computing(package, 19, &end);
        until(|| its.load(SeqCst) > 100);
        assert_eq!(others.load(SeqCst), 0);
        // The second one is queued, and raised above the running one.
        second.set_priority(21);
        until(|| others.load(SeqCst) > 100);
        // The second one runs, and is lowered below the queued one.
        second.set_priority(5);
        let before = its.load(SeqCst);
        until(|| its.load(SeqCst) > before + 100);
        end.store(true, SeqCst);
        first.join().expect("no panic");
        second.join().expect("no panic");
    });
}

/// Creates a pipe, and a thread that writes into it once `is_so` returns true.
fn filled_when(
    is_so: impl Fn() -> bool + Send + 'static,
) -> (PipeReader, std::thread::JoinHandle<PipeWriter>) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let fills = std::thread::spawn(move || {
        until(is_so);
        writer.write_all(&[1]).expect("room");
        writer
    });
    (reader, fills)
}

/// A weakness in P0 (3.3.2): there, a user scheduler that blocks stalls its whole address space.
#[test]
fn block_inside_the_scheduler_stalls_only_its_vp() {
    under_each(2, 8, |package| {
        let end = Arc::new(AtomicBool::new(false));
        let (computes, rounds) = computing(package, 10, &end);
        let seen = rounds.clone();
        let (begun, since) = (Arc::new(OnceLock::new()), rounds.clone());
        let its = begun.clone();
        let (mut reader, fills) = filled_when(move || {
            its.get().is_some_and(|from: &u64| seen.load(SeqCst) > from + 1000)
        });
        let masked = package.spawn(20, move || {
            let hand_offs = |thread: &KernelThread| thread.kernel().counts().hand_offs;
            scheduler::masked(|thread| {
                let before = hand_offs(thread);
                begun.set(since.load(SeqCst)).expect("once");
                assert_eq!(reader.read(&mut [0]).expect("no EINTR"), 1);
                assert_eq!(hand_offs(thread), before, "Blocked is not reported while masked");
            });
        });
        masked.expect("memory").join().expect("no panic");
        fills.join().expect("no panic");
        end.store(true, SeqCst);
        computes.join().expect("no panic");
    });
}

/// Starts `n` microprocesses that read one byte each. Returns their handles, the pipe, and the
/// number that have started.
fn readers(package: &Arc<Scheduler>, n: u32) -> (Vec<Handle<()>>, PipeWriter, Arc<AtomicU32>) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let (reader, begun) = (Arc::new(reader), Arc::new(AtomicU32::new(0)));
    let all = (0..n).map(|_| {
        let (reader, begun) = (reader.clone(), begun.clone());
        let reads = move || {
            begun.fetch_add(1, SeqCst);
            assert_eq!((&*reader).read(&mut [0]).expect("no EINTR"), 1);
        };
        package.spawn(30, reads).expect("memory")
    });
    (all.collect(), writer, begun)
}

#[test]
fn pool_keeps_the_configured_number_of_threads() {
    under_each(1, 64, |package| {
        let (all, mut writer, begun) = readers(package, 20);
        until(|| begun.load(SeqCst) == 20 && package.kernel().counts().bound == 20);
        assert!(package.kernel().counts().threads >= 20);
        package.kernel().set_concurrency(5);
        writer.write_all(&[0; 20]).expect("room");
        all.into_iter().for_each(|one| one.join().expect("no panic"));
        // Nothing runs, so all threads are in the pool.
        until(|| package.kernel().counts().threads == 5);
        package.kernel().set_concurrency(1);
        until(|| package.kernel().counts().threads == 1);
    });
}

/// No source reports the sleep, and the only kernel thread in the pool is the one that sleeps.
#[test]
fn vp_gets_a_carrier_while_all_kernel_threads_sleep() {
    let package = Scheduler::open(settings(Kind::Off, 2, 64)).expect("a scheduler");
    until(|| package.kernel().counts().threads == 1);
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let begun = Arc::new(AtomicBool::new(false));
    let its = begun.clone();
    let sleeps = package.spawn(30, move || {
        its.store(true, SeqCst);
        reader.read_exact(&mut [0]).expect("a byte");
    });
    until(|| begun.load(SeqCst));
    package.spawn(30, || ()).expect("memory").join().expect("no panic");
    writer.write_all(&[0]).expect("a reader");
    sleeps.expect("memory").join().expect("no panic");
    until(|| package.kernel().counts().threads == 1);
    package.wait();
}

#[test]
fn block_at_the_thread_limit_holds_its_vp_and_loses_nothing() {
    const MOST: usize = 6;
    under_each(2, MOST, |package| {
        let (all, mut writer, begun) = readers(package, 40);
        // Each kernel thread has a microprocess: one that sleeps now keeps its VP.
        until(|| begun.load(SeqCst) == MOST as u32);
        let counts = package.kernel().counts();
        assert_eq!(counts.threads, MOST);
        assert!(counts.exhausted > 0, "{counts:?}");
        // Spawned from outside, while no kernel thread can carry it.
        let late = package.spawn(60, yield_now).expect("memory");
        writer.write_all(&[0; 40]).expect("room");
        all.into_iter().for_each(|one| one.join().expect("no panic"));
        late.join().expect("no panic");
        assert!(package.kernel().counts().threads <= MOST);
    });
}

#[test]
fn idle_vp_uses_no_kernel_thread() {
    under_each(4, 8, |package| {
        // Single sleepers: the spare that handles each *Blocked* finds nothing to run and stays in
        // the pool.
        for _ in 0..20 {
            let (all, mut writer, begun) = readers(package, 1);
            until(|| begun.load(SeqCst) == 1 && package.kernel().counts().bound == 1);
            // Only the sleeping thread is outside of the pool: the others are in it or on their way
            // to it.
            until(|| {
                let counts = package.kernel().counts();
                counts.threads - counts.waiting == 1
            });
            writer.write_all(&[0]).expect("room");
            all.into_iter().for_each(|one| one.join().expect("no panic"));
        }
    });
}

#[test]
fn join_returns_the_panic_and_thread_locals_are_separate() {
    thread_local!(static OWN: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    under_each(2, 16, |package| {
        let both = Arc::new(Barrier::new(8));
        let all: Vec<_> = (0..8)
            .map(|number| {
                let both = both.clone();
                let body = move || {
                    OWN.set(number);
                    both.wait();
                    yield_now();
                    assert_eq!(OWN.get(), number);
                    assert!(number != 3, "the third");
                };
                package.spawn(number as u8, body).expect("memory")
            })
            .collect();
        for (number, one) in all.into_iter().enumerate() {
            assert_eq!(one.join().is_err(), number == 3);
        }
    });
}
