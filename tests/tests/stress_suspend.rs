//! Random suspensions and resumptions from everywhere at once: by microprocesses, by foreign kernel
//! threads, and by another process through the control socket. Meanwhile the suspended
//! microprocesses compute, lock, send, select, sleep, block in the kernel, spawn, panic, are
//! cancelled, change priorities, and are preempted as often as possible. Each round is a child
//! process. Its books must balance at the end, and in its trace no microprocess may run between a
//! suspension and the next resumption.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use kumihimo::machine::{Action, Done, Error, Machine, Microprocess, Neighbour, Refused, State};
use kumihimo::policy::{FixedPriority, Priority, RoundRobin};
use kumihimo::runtime::{Design, OnDeadlock, Runtime, metrics};
use kumihimo::sync::select;
use kumihimo::sync::{Mutex, mpmc, mpsc};
use kumihimo::thread::{self, Builder, Cancelled, JoinHandle, Suspended, Thread};
use kumihimo_tests::process::{finish, has_vps, is_child, start};
use kumihimo_tests::{Random, rounds, seed, skip};
use kumihimo_trace::check;

/// Numbers of workers: those that any steerer may stop, those of a single steerer, and those of the
/// other process.
const COMMON: usize = 12;
const OWN: usize = 2;
const FAR: usize = 4;
const PIECES: u64 = 30;
/// Numbers of steerers: microprocesses and kernel threads.
const MICRO: usize = 2;
const FOREIGN: usize = 2;
const WORKERS: usize = COMMON + OWN * (MICRO + FOREIGN) + FAR;
/// Number of ended microprocesses that a steerer remembers.
const REMEMBERED: usize = 32;

/// Payload of a deliberate panic, which is not reported.
struct Asked;

/// State shared by the workers. The steerers take none of its locks, because a holder may be
/// suspended.
struct World {
    book: Mutex<(u64, u64)>,
    entries: AtomicU64,
    /// Number of completed pieces of work.
    done: AtomicU64,
    /// Children, for the steerers. Its locks are the runtime's, which no suspended microprocess
    /// holds.
    newcomers: (mpmc::Sender<Thread>, mpmc::Receiver<Thread>),
}

impl World {
    fn is_over(&self) -> bool {
        self.done.load(SeqCst) == WORKERS as u64 * PIECES
    }
}

#[derive(Clone)]
struct Worker {
    thread: Thread,
    /// Counter that increases whenever the worker runs.
    beats: Arc<AtomicU64>,
}

fn short(random: &mut Random) -> Duration {
    Duration::from_micros(random.below(300))
}

fn priority(random: &mut Random, below: u64) -> Priority {
    Priority::new(u8::try_from(random.below(below)).expect("below 64")).expect("below 64")
}

fn work(world: &World, beats: &AtomicU64, mut random: Random) {
    for _ in 0..PIECES {
        beats.fetch_add(1, SeqCst);
        piece(world, beats, &mut random);
        world.done.fetch_add(1, SeqCst);
    }
}

fn piece(world: &World, beats: &AtomicU64, random: &mut Random) {
    match random.below(14) {
        0 | 1 => compute(beats, random),
        2 => {
            let mut book = world.book.lock().expect("not poisoned");
            assert_eq!(book.0, book.1);
            book.0 += 1;
            if random.one_in(4) {
                thread::yield_now();
            }
            book.1 += 1;
            world.entries.fetch_add(1, SeqCst);
        }
        3 => thread::sleep(short(random)),
        4 => thread::park_timeout(short(random)),
        5 => channel(world, random),
        6 => selects(world, random),
        7 => thread::blocking(|| std::thread::sleep(Duration::from_micros(100))),
        8 => kernel(random),
        9 => {
            let seven = child(world, random, || 7);
            assert_eq!(seven.join().expect("no panic"), 7);
        }
        10 => {
            let panics = child(world, random, || -> u32 { std::panic::panic_any(Asked) });
            assert!(panics.join().expect_err("it panics").is::<Asked>());
        }
        11 => cancelled(world, random),
        12 => thread::current().set_priority(priority(random, 60)),
        _ => assert_eq!(thread::current().suspend().expect("a microprocess"), Suspended::Now),
    }
}

/// Computes in registers and in its own thread-local storage, without a switch point.
fn compute(beats: &AtomicU64, random: &mut Random) {
    thread_local!(static OWN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    let (seed, turns) = (random.number(), random.below(3_000));
    let mix = |n: u64, i: u64| (n ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    OWN.set(seed);
    let mut other = seed;
    for i in 0..turns {
        OWN.set(mix(OWN.get(), i));
        other = mix(std::hint::black_box(other), i);
        beats.fetch_add(1, SeqCst);
    }
    assert_eq!(OWN.get(), other);
}

fn child<T: Send + 'static>(
    world: &World,
    random: &mut Random,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let builder = Builder::new()
        .name("child".into())
        .priority(priority(random, 60))
        .child_first(random.one_in(2));
    let child = builder.spawn(f).expect("a microprocess");
    world.newcomers.0.send(child.thread().clone()).expect("its receiver lives");
    child
}

fn channel(world: &World, random: &mut Random) {
    let (sender, receiver) = mpsc::sync_channel(1);
    let n = random.below(20);
    let sends =
        child(world, random, move || (0..n).for_each(|i| sender.send(i).expect("it is received")));
    assert_eq!(receiver.iter().sum::<u64>(), n * n.saturating_sub(1) / 2);
    sends.join().expect("no panic");
}

fn selects(world: &World, random: &mut Random) {
    let ((here, left), (there, right)) = (mpsc::channel(), mpsc::channel());
    let n = 1 + random.below(10);
    // Neither channel is closed before all messages have arrived.
    let (to_left, to_right) = (here.clone(), there.clone());
    let (one, other) = (
        child(world, random, move || (0..n).for_each(|_| to_left.send(1).expect("it is received"))),
        child(world, random, move || {
            (0..n).for_each(|_| to_right.send(2).expect("it is received"))
        }),
    );
    let (mut sum, mut late) = (0, 0);
    while sum < 3 * n {
        select! {
            recv(left) -> n => sum += n.expect("it is open"),
            recv(right) -> n => sum += n.expect("it is open"),
            after(Duration::from_micros(100)) => late += 1,
        }
    }
    std::hint::black_box((late, here, there));
    assert_eq!(sum, 3 * n);
    one.join().expect("no panic");
    other.join().expect("no panic");
}

/// Blocks the kernel thread, outside of Kumihimo. A microprocess replies, unless it would need the
/// reader's virtual processor.
fn kernel(random: &mut Random) {
    let time = short(random);
    if random.one_in(2) || metrics().is_none_or(|now| now.events == "off") {
        return std::thread::sleep(time);
    }
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let answers = thread::spawn(move || {
        thread::sleep(time);
        writer.write_all(&[7]).expect("room");
    });
    let mut byte = [0];
    reader.read_exact(&mut byte).expect("no EINTR");
    assert_eq!(byte, [7]);
    answers.join().expect("no panic");
}

fn cancelled(world: &World, random: &mut Random) {
    let (how, sleeps) = (random.below(3), short(random));
    let waits = child(world, random, move || {
        loop {
            match how {
                0 => thread::sleep(Duration::from_secs(3600)),
                1 => thread::park(),
                _ => thread::sleep(sleeps),
            }
        }
    });
    for _ in 0..random.below(3) {
        thread::yield_now();
    }
    waits.cancel();
    assert!(waits.join().expect_err("it never returns").is::<Cancelled>());
}

/// Suspends a worker that only this steerer controls, and checks that the worker does not run while
/// others do much.
fn stop(one: &Worker, random: &mut Random) {
    if one.thread.suspend().expect("a microprocess") == Suspended::Now {
        let before = one.beats.load(SeqCst);
        for _ in 0..random.below(8) {
            thread::yield_now();
            thread::sleep(short(random));
        }
        // The worker may have ended before.
        assert_eq!(
            one.beats.load(SeqCst),
            before,
            "KUMI_SEED={}: {:?} runs while it is suspended",
            seed(),
            one.thread
        );
    }
    resume(&one.thread);
}

fn resume(one: &Thread) {
    let _ = one.resume().expect("a microprocess");
}

fn steer(world: &World, mut random: Random, own: &[Worker], common: &[Worker]) {
    let mut known = std::collections::VecDeque::new();
    while !world.is_over() {
        while let Ok(newcomer) = world.newcomers.1.try_recv() {
            known.push_back(newcomer);
        }
        known.drain(..known.len().saturating_sub(REMEMBERED)).for_each(|former| resume(&former));
        let any = |random: &mut Random| {
            let n = random.below((common.len() + known.len()) as u64) as usize;
            common
                .get(n)
                .map_or_else(|| known[n - common.len()].clone(), |worker| worker.thread.clone())
        };
        match random.below(4) {
            0 => stop(&own[random.below(own.len() as u64) as usize], &mut random),
            1 => any(&mut random).set_priority(priority(&mut random, 60)),
            _ => {
                let some: Vec<_> = (0..1 + random.below(4)).map(|_| any(&mut random)).collect();
                for one in &some {
                    let _ = one.suspend().expect("a microprocess");
                }
                // Operations that every microprocess needs, by a microprocess that is not
                // suspended.
                assert_eq!(thread::spawn(|| 5).join().expect("no panic"), 5);
                thread::sleep(short(&mut random));
                some.iter().for_each(resume);
            }
        }
        // Resumes workers that suspended themselves.
        if random.one_in(2) {
            common.iter().chain(own).for_each(|one| resume(&one.thread));
        }
    }
    known.iter().for_each(resume);
    while let Ok(newcomer) = world.newcomers.1.try_recv() {
        resume(&newcomer);
    }
}

fn play(random: &mut Random) {
    let world = Arc::new(World {
        book: Mutex::new((0, 0)),
        entries: AtomicU64::new(0),
        done: AtomicU64::new(0),
        newcomers: mpmc::channel(),
    });
    let mut handles = Vec::new();
    let mut workers: Vec<Worker> = (0..WORKERS)
        .map(|n| {
            let name = match n {
                _ if n < FAR => "far",
                _ if n < FAR + COMMON => "near",
                _ => "own",
            };
            let (world, own, beats) = (world.clone(), random.split(), Arc::new(AtomicU64::new(0)));
            let counts = beats.clone();
            let builder = Builder::new().name(name.into()).priority(priority(random, 60));
            handles.push(builder.spawn(move || work(&world, &counts, own)).expect("a worker"));
            Worker { thread: handles[n].thread().clone(), beats }
        })
        .collect();
    workers.drain(..FAR);
    let common: Vec<_> = workers.drain(..COMMON).collect();
    let mut steerer = |n: usize| {
        let (world, own) = (world.clone(), random.split());
        let (mine, common) = (workers[n * OWN..(n + 1) * OWN].to_vec(), common.clone());
        move || steer(&world, own, &mine, &common)
    };
    let micro: Vec<_> = (0..MICRO)
        .map(|n| {
            let builder = Builder::new().name("steers".into()).priority(Priority::HIGHEST);
            builder.spawn(steerer(n)).expect("a microprocess")
        })
        .collect();
    let foreign: Vec<_> =
        (MICRO..MICRO + FOREIGN).map(|n| std::thread::spawn(steerer(n))).collect();
    for one in micro.into_iter().chain(handles) {
        one.join().expect("no panic");
    }
    for one in foreign {
        thread::blocking(|| one.join()).expect("no panic");
    }
    let book = world.book.lock().expect("not poisoned");
    assert_eq!((book.0, book.1), (world.entries.load(SeqCst), world.entries.load(SeqCst)));
    // Microprocesses that stay suspended: the end of the runtime resumes them.
    for _ in 0..random.below(4) {
        let _ = thread::spawn(thread::park).thread().suspend().expect("a microprocess");
    }
}

/// The steered process.
fn round(mut random: Random, trace: PathBuf) {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Asked>() {
            report(info);
        }
    }));
    let builder =
        Runtime::builder().vps(1 + random.below(4) as usize).trace(trace).trace_buffer(1 << 18);
    let builder = builder.queue(Design::ALL[random.below(3) as usize % Design::ALL.len()]);
    // A long grace time, so that a lost microprocess causes a hang.
    let builder = builder.shutdown_grace(Duration::from_secs(3600)).on_deadlock(OnDeadlock::Abort);
    let builder = match random.below(3) {
        0 => builder.policy(FixedPriority),
        _ => builder.policy(RoundRobin::with_quantum(Duration::ZERO)),
    };
    builder.build().expect("a runtime").run(|| {
        thread::current().set_priority(Priority::HIGHEST);
        play(&mut random);
    });
}

/// The process that steers from outside until the other one has ended. Returns the number of
/// workers that ran while they were suspended.
fn from_outside(
    machine: &Machine,
    random: &mut Random,
    over: impl Fn() -> bool,
) -> Vec<Microprocess> {
    let mut ran = Vec::new();
    while !over() {
        let Some(mut space) = machine.spaces().expect("the directory is read").pop() else {
            continue;
        };
        // Refusals and the end of the process are expected errors.
        let _ = turn(&mut space, random, &mut ran);
        std::thread::sleep(short(random));
    }
    ran
}

fn turn(
    space: &mut Neighbour,
    random: &mut Random,
    ran: &mut Vec<Microprocess>,
) -> Result<(), Error> {
    let all = space.microprocesses()?;
    let is_steered =
        |one: &&Microprocess| matches!(one.name.as_deref(), Some("far" | "near" | "child"));
    let steered: Vec<_> = all.iter().filter(is_steered).collect();
    if steered.is_empty() {
        return Ok(());
    }
    let some: Vec<_> = (0..1 + random.below(3))
        .map(|_| steered[random.below(steered.len() as u64) as usize])
        .collect();
    for one in &some {
        let done = or_stale(space.act(one.id, Action::Suspend))?;
        // Only this process resumes these workers.
        if done == Some(Done::Now) && one.name.as_deref() == Some("far") {
            for _ in 0..3 {
                let Some(seen) = or_stale(space.microprocess(one.id))? else { break };
                if seen.stopping || seen.state != State::Suspended {
                    ran.push(seen);
                }
            }
        }
    }
    if random.one_in(4) {
        drop(space.metrics()?);
        let _ = or_stale(space.backtrace(some[0].id))?;
        drop(space.resources(None)?);
        let _ = or_stale(space.act(some[0].id, Action::Priority(random.below(60) as u8)))?;
    }
    for one in some {
        let _ = or_stale(space.act(one.id, Action::Resume))?;
    }
    // Resumes workers that suspended themselves, or were suspended by a request whose reply came
    // too late.
    for one in space.microprocesses()?.iter().filter(is_steered) {
        if one.state == State::Suspended || one.stopping {
            let _ = or_stale(space.act(one.id, Action::Resume))?;
        }
    }
    Ok(())
}

/// Returns `None` if the target has ended.
fn or_stale<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::Refused(Refused::Stale(_))) => Ok(None),
        Err(e) => Err(e),
    }
}

#[test]
fn random_suspensions_from_everywhere_balance() {
    const NAME: &str = "random_suspensions_from_everywhere_balance";
    let is_said = |key: &str| std::env::var(key).expect("set by the parent process");
    if is_child(NAME) {
        return round(Random(seed()), is_said("KUMI_TEST_TRACE").into());
    }
    if !has_vps(NAME) {
        return;
    }
    // A suspended microprocess may hold its allocator's spin lock, for which others spin inside the
    // runtime.
    if cfg!(kumihimo_asan) {
        return skip(NAME, "AddressSanitizer's allocator has its own spin locks in the program");
    }
    for mut this in rounds(NAME) {
        let place = std::env::temp_dir().join(format!(
            "kumi-suspend-{}-{}",
            std::process::id(),
            this.number
        ));
        std::fs::create_dir(&place).expect("a directory");
        std::fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .expect("its mode");
        let trace = place.join("out.perfetto");
        let its = this.random.number().to_string();
        let path = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
        let (directory, out) = (path(&place), path(&trace));
        let child = start(
            NAME,
            &[("KUMI_SEED", &its), ("KUMI_DIR", &directory), ("KUMI_TEST_TRACE", &out)],
        );
        let (machine, over) =
            (Machine::at(&place).expect("a run-time directory"), AtomicU64::new(0));
        let ended = std::thread::scope(|scope| {
            let steers =
                scope.spawn(|| from_outside(&machine, &mut this.random, || over.load(SeqCst) != 0));
            // A hang panics, and the other process must end nevertheless.
            let ended = std::panic::catch_unwind(|| finish(NAME, child));
            over.store(1, SeqCst);
            let ran = steers.join().expect("no panic");
            assert!(ran.is_empty(), "round {}: {ran:?}", this.number);
            ended.unwrap_or_else(|hangs| std::panic::resume_unwind(hangs))
        });
        assert!(ended.status.success(), "round {}: {}", this.number, ended.told());
        let report = check(&trace, None).expect("a trace");
        // A trace without records proves nothing.
        assert!(
            report.runs == 1 && report.ends && report.microprocesses > WORKERS as u64,
            "round {}: {report}",
            this.number
        );
        assert_eq!(report.overlaps, [""; 0], "round {}: {report}", this.number);
        let _ = std::fs::remove_dir_all(&place);
    }
}
