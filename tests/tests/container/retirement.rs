//! The number of virtual processors in use follows the quota and the affinity while the process
//! runs, and no microprocess is lost.

mod stress;

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo::net::UnixStream;
use kumihimo::runtime::{Runtime, metrics};
use kumihimo::sync::mpsc;
use kumihimo::thread;
use kumihimo_events::cores::affinity;
use kumihimo_tests::container::{Container, DEFAULT, PERIOD, USER, is_inside};
use kumihimo_tests::process::{alone, command, finish, is_child, is_preempted, one_to_one};
use kumihimo_tests::{extent, skip};

/// Prefix of lines to the parent process.
const MARK: &str = "> ";
/// Microprocesses of each kind, or pairs of them.
const EACH: usize = 4;

/// Progress of the microprocesses of [`Load`].
struct Load {
    stop: AtomicBool,
    turns: Vec<AtomicU64>,
}

impl Load {
    fn new() -> Load {
        Load { stop: AtomicBool::new(false), turns: (0..8 * EACH).map(|_| 0.into()).collect() }
    }

    fn goes_on(&self, n: usize) -> bool {
        self.turns[n].fetch_add(1, Relaxed);
        !self.stop.load(Relaxed)
    }

    /// Waits until each microprocess has made progress.
    fn await_progress(&self) {
        let before: Vec<_> = self.turns.iter().map(|turns| turns.load(Relaxed)).collect();
        until("each microprocess runs", || {
            self.turns.iter().zip(&before).all(|(now, then)| now.load(Relaxed) > then + 3)
        });
    }

    /// Runs microprocesses of each kind that can be runnable, or waiting, at a VP that retires.
    /// Calls `body` beside them, and then ends and joins them.
    fn run(&self, body: impl FnOnce()) {
        /// Ends the microprocesses even if the body fails.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let preempts = metrics().expect("it runs").preemption != "off";
        thread::scope(|scope| {
            for n in 0..EACH {
                let (mut near, mut far) = UnixStream::pair().expect("descriptors");
                // Waits for a descriptor most of the time.
                scope.spawn(move || {
                    while self.goes_on(n) {
                        near.write_all(b"a").expect("it is open");
                        near.read_exact(&mut [0]).expect("a reply");
                    }
                });
                scope.spawn(move || {
                    let mut byte = [0];
                    while far.read(&mut byte).expect("it is open") == 1 {
                        far.write_all(&byte).expect("it is open");
                    }
                });
                // Waits for a timer.
                scope.spawn(move || {
                    while self.goes_on(EACH + n) {
                        thread::sleep(Duration::from_micros(200 + 300 * n as u64));
                    }
                });
                // Stays runnable.
                scope.spawn(move || {
                    while self.goes_on(2 * EACH + n) {
                        thread::yield_now();
                    }
                });
                let (sender, receiver) = mpsc::sync_channel(1);
                // Waits for another microprocess.
                scope.spawn(move || while self.goes_on(3 * EACH + n) && sender.send(n).is_ok() {});
                scope.spawn(move || while receiver.recv().is_ok() {});
                // Waits for a child.
                scope.spawn(move || {
                    while self.goes_on(4 * EACH + n) {
                        assert_eq!(thread::spawn(move || told(n)).join().expect("no panic"), n);
                    }
                });
                // Keeps its kernel thread meanwhile, and gives the VP away.
                scope.spawn(move || {
                    while self.goes_on(6 * EACH + n) {
                        thread::blocking(|| std::thread::sleep(Duration::from_micros(100)));
                    }
                });
                // Loses its VP while it sleeps, if the event source reports that.
                scope.spawn(move || {
                    while self.goes_on(7 * EACH + n) {
                        std::thread::sleep(Duration::from_micros(100));
                        thread::yield_now();
                    }
                });
                // Enters the runtime only when it is preempted, if it ever is.
                scope.spawn(move || {
                    while self.goes_on(5 * EACH + n) {
                        if !preempts {
                            thread::yield_now();
                        }
                    }
                });
            }
            let _stop = Stop(&self.stop);
            body();
        });
    }
}

/// Receives `n` through a descriptor of its own.
fn told(n: usize) -> usize {
    let (mut near, mut far) = UnixStream::pair().expect("descriptors");
    let sender = thread::spawn(move || far.write_all(&n.to_ne_bytes()).expect("it is open"));
    let mut bytes = [0; size_of::<usize>()];
    near.read_exact(&mut bytes).expect("a message");
    sender.join().expect("no panic");
    usize::from_ne_bytes(bytes)
}

fn until(what: &str, is: impl FnMut() -> bool) {
    kumihimo_tests::until(what, metrics, is);
}

fn await_open(vps: usize) {
    until(&format!("{vps} VPs are in use"), || metrics().expect("it runs").open_vps == vps);
}

/// Waits until the second VP is parked, and remains so while the others make progress: its
/// descriptors and timers are elsewhere, too.
fn await_retired(load: &Load) {
    let second = || metrics().expect("it runs").vps[1].clone();
    until("the second VP is parked", || second().is_parked);
    let seen = || (second().switches, second().sleeps, second().is_parked);
    until("the second VP rests", || {
        let before = seen();
        load.await_progress();
        seen() == before && before.2
    });
}

/// Waits until the second VP switches again.
fn await_opened() {
    let switches = || metrics().expect("it runs").vps[1].switches;
    let before = switches();
    until("the second VP runs", || switches() > before);
}

/// Whether the number of VPs cannot change here.
fn is_fixed(name: &str) -> bool {
    if std::env::var_os("KUMI_VPS").is_some() {
        skip(name, "KUMI_VPS decides");
    } else if affinity().len() < 2 {
        skip(name, "a single core");
    } else {
        return !is_preempted(name);
    }
    true
}

/// Runs the load, and calls `change` with the number of VPs that the next step expects.
fn retire_and_open(change: impl Fn(usize) + Sync) {
    Runtime::builder().build().expect("a runtime").run(|| {
        if one_to_one() {
            return eprintln!("\n[skip] microprocesses are kernel threads here");
        }
        let vps = metrics().expect("it runs").vps.len();
        let load = Load::new();
        load.run(|| {
            load.await_progress();
            for _ in 0..extent(3, 1) {
                change(1);
                await_open(1);
                await_retired(&load);
                change(vps);
                await_open(vps);
                await_opened();
                load.await_progress();
            }
        });
    });
}

/// Has the parent process give the container the quota of so many cores.
fn ask_for_quota(cores: usize) {
    println!("{MARK}{cores}");
    std::io::stdout().flush().expect("standard output is open");
}

/// Runs the test `name` in `container`, and grants what it [asks for](ask_for_quota).
fn grant_quotas(name: &str, container: &Container) {
    let group = match container.group() {
        Ok(group) => group,
        Err(why) => return skip(name, &why),
    };
    let mut command = command(name, &[]);
    container.restrict(&mut command, &group);
    let mut child = command.spawn().expect("a process inside the container");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while lines.read_line(&mut line).expect("it writes") != 0 {
        // libtest's own line precedes the first one without a line feed.
        if let Some((_, cores)) = line.split_once(MARK) {
            group.limit_cpu(cores.trim().parse::<u64>().expect("a number") * PERIOD, PERIOD);
        }
        line.clear();
    }
    child.stdout = Some(lines.into_inner());
    let ended = finish(name, child);
    assert!(ended.status.success(), "{}", ended.told());
    assert!(!ended.stderr.contains("kumihimo:"), "{}", ended.told());
}

#[test]
fn vps_follow_changes_of_the_quota() {
    const NAME: &str = "retirement::vps_follow_changes_of_the_quota";
    if is_inside() {
        return retire_and_open(ask_for_quota);
    }
    if is_fixed(NAME) {
        return;
    }
    for user in [0, USER] {
        let quota = PERIOD * affinity().len() as u64;
        grant_quotas(NAME, &Container { user, quota, ..DEFAULT });
    }
}

/// The quota of a container that began with a single core grows, and shrinks again.
#[test]
fn quota_that_grows_opens_more_vps_than_at_the_start() {
    const NAME: &str = "retirement::quota_that_grows_opens_more_vps_than_at_the_start";
    if is_inside() {
        return open_and_retire(ask_for_quota);
    }
    if !is_fixed(NAME) {
        grant_quotas(NAME, &Container { quota: PERIOD, ..DEFAULT });
    }
}

#[test]
fn affinity_that_grows_opens_more_vps_than_at_the_start() {
    const NAME: &str = "retirement::affinity_that_grows_opens_more_vps_than_at_the_start";
    if !is_child(NAME) && is_fixed(NAME) {
        return;
    }
    alone(NAME, || {
        let all = affinity();
        set_affinity(&all[..1]);
        open_and_retire(|vps| set_affinity(&all[..vps]));
    });
}

/// As [`retire_and_open`], for a runtime that begins with one VP.
fn open_and_retire(change: impl Fn(usize) + Sync) {
    Runtime::builder().build().expect("a runtime").run(|| {
        if one_to_one() {
            return eprintln!("\n[skip] microprocesses are kernel threads here");
        }
        let now = metrics().expect("it runs");
        assert_eq!(now.open_vps, 1);
        assert!(now.vps[1].is_parked, "{now:?}");
        assert_eq!(now.vps[1].switches, 0);
        let load = Load::new();
        load.run(|| {
            load.await_progress();
            assert!(metrics().expect("it runs").vps[1].is_parked);
            change(2);
            await_open(2);
            await_opened();
            load.await_progress();
            change(1);
            await_open(1);
            await_retired(&load);
        });
    });
}

/// Sets the affinity of all kernel threads of this process, as `taskset --all-tasks` does.
fn set_affinity(cores: &[u32]) {
    // SAFETY: a set of cores on the stack, within its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cores.iter().for_each(|core| libc::CPU_SET(*core as usize, &mut set));
        set
    };
    // Threads that start meanwhile inherit either affinity: the second round finds them.
    for _ in 0..2 {
        for thread in std::fs::read_dir("/proc/self/task").expect("procfs").flatten() {
            let id = thread.file_name().to_str().and_then(|id| id.parse().ok()).expect("a number");
            // SAFETY: a set of that size. The thread may have ended.
            unsafe { libc::sched_setaffinity(id, size_of_val(&set), &raw const set) };
        }
    }
}

#[test]
fn vps_follow_changes_of_the_affinity() {
    const NAME: &str = "retirement::vps_follow_changes_of_the_affinity";
    if !is_child(NAME) && is_fixed(NAME) {
        return;
    }
    alone(NAME, || {
        let all = affinity();
        retire_and_open(|vps| set_affinity(&all[..vps]));
    });
}

#[test]
fn explicit_number_of_vps_is_kept() {
    const NAME: &str = "retirement::explicit_number_of_vps_is_kept";
    let container = Container { quota: PERIOD, ..DEFAULT };
    let body = || {
        Runtime::builder().vps(2).build().expect("a runtime").run(|| {
            // The timekeeper looks once a second while microprocesses run.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(2500) {
                thread::yield_now();
            }
            assert_eq!(metrics().expect("it runs").open_vps, 2);
        });
    };
    container.run(NAME, body, |_| {});
}
