//! `transaction`: the paper's Table 3 today, and its first open problem: throughput against
//! response time, by threshold.
//!
//! A hundred microprocesses make transactions of fixed calls (`mix`), continuously (`load=full`) or
//! at times (`load=thin`). The policies alternate slice by slice. The predictions of equations 1 to
//! 8 from D, t and the rate without batches are printed beside the measured rates.
//!
//! - memory allocated and released, requests cancelled (26): getppid(2), a system call without
//!   work.
//! - messages and semaphores sent (10): 64 bytes to a UNIX socket.
//! - timers set, time read (5): the clock through the vDSO: never batched, and no system call
//!   today.
//! - messages, semaphores, requests and line received (16): 64 bytes from that socket, which were
//!   sent before: a call that may wait, but does not.
//! - written to the line (4): 64 bytes to the socket.
//! - line's state (3): statx(2): always plain.
//! - delays (2): a switch to another microprocess, no system call.
//! - file written, flushed (2): pwrite(2) and fdatasync(2) of a file in memory: always plain.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kumihimo::runtime::{BatchPolicy, set_batch_policy};
use kumihimo::thread;
use kumihimo_bench_kit::work::Dice;
use kumihimo_bench_kit::{Lateness, Request, sample};
use kumihimo_runtime::syscall_batch::{self, SystemCall};

use crate::variant::Variant;

const MICROPROCESSES: usize = 100;
const SLICE: Duration = Duration::from_millis(60);
const SLICES: usize = 7;
const MESSAGE: usize = 64;
const BLOCK: usize = 4096;
/// Number of blocks of the file that is read.
const BLOCKS: u64 = 100;
/// Average pause between two transactions of a microprocess with a thin load, for about a quarter
/// of the processor's time.
const PAUSE: Duration = Duration::from_millis(20);

const POLICIES: [BatchPolicy; 9] = [
    BatchPolicy::Off,
    BatchPolicy::Fixed(1),
    BatchPolicy::Fixed(2),
    BatchPolicy::Fixed(4),
    BatchPolicy::Fixed(8),
    BatchPolicy::Fixed(16),
    BatchPolicy::Fixed(32),
    BatchPolicy::Fixed(64),
    BatchPolicy::Adaptive,
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Nop,
    Clock,
    Send,
    Receive,
    Read,
    Write,
    Flush,
    Stat,
    Delay,
}

/// A number of steps of one kind.
type Part = (Step, usize);

/// The steps, partly grouped and partly mixed, as in a typical program.
const PAPER: &[Part] = &[
    (Step::Nop, 13),
    (Step::Clock, 3),
    (Step::Send, 7),
    (Step::Receive, 7),
    (Step::Stat, 3),
    (Step::Delay, 1),
    (Step::Write, 1),
    (Step::Flush, 1),
    (Step::Clock, 2),
    (Step::Send, 7),
    (Step::Receive, 9),
    (Step::Delay, 1),
    (Step::Nop, 13),
];
const READS: &[Part] = &[
    (Step::Nop, 4),
    (Step::Send, 4),
    (Step::Read, 40),
    (Step::Receive, 4),
    (Step::Clock, 2),
    (Step::Nop, 4),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Full,
    Thin,
    /// All microprocesses at once, followed by a pause.
    Bursts,
}

pub fn transaction(request: &Request) {
    let variant = Variant::of(request);
    // Measure the cost of calls first.
    let costs = Costs::measure();
    sample("entry", costs.plain, "ns", "");
    sample("put", costs.put, "ns", "");
    for (mix, name) in [(PAPER, "paper"), (READS, "reads")] {
        measure(mix, Load::Full, &format!("mix={name} load=full"), variant, &costs);
        measure(mix, Load::Thin, &format!("mix={name} load=thin"), variant, &costs);
    }
    measure(PAPER, Load::Bursts, "mix=bursty load=full", variant, &costs);
}

/// D and t of the paper.
struct Costs {
    plain: f64,
    put: f64,
}

impl Costs {
    /// Measures with a short getpid loop of `syscall-batch`: one microprocess alone, and 64
    /// together.
    fn measure() -> Costs {
        const ROUNDS: usize = 20_000;
        let all = |n: usize, policy| {
            set_batch_policy(policy).expect("a runtime runs");
            let begin = Instant::now();
            let callers: Vec<_> = (0..n)
                .map(|_| {
                    thread::spawn(move || {
                        for _ in 0..ROUNDS / n {
                            syscall_batch::call(SystemCall::Nop, false).expect("getppid");
                        }
                    })
                })
                .collect();
            callers.into_iter().for_each(|caller| caller.join().expect("no panic"));
            begin.elapsed().as_nanos() as f64 / ROUNDS as f64
        };
        let plain = (0..5).map(|_| all(1, BatchPolicy::Off)).fold(f64::MAX, f64::min);
        let many = (0..5).map(|_| all(64, BatchPolicy::Fixed(64))).fold(f64::MAX, f64::min);
        // Equation 4 with N = 64.
        Costs { plain, put: (many - plain / 64.0).max(0.0) }
    }

    /// Equation 8: the speed-up of transactions with threshold `n`, where one takes `alone`
    /// nanoseconds without batches and has `calls` calls, of which `share` may be batched. (D and t
    /// replace Dh and t, and S = calls. The denominator is the time of a whole transaction.)
    fn predicted(&self, n: usize, alone: f64, calls: usize, share: f64) -> f64 {
        let saved = share * calls as f64 * (self.plain * (1.0 - 1.0 / n as f64) - self.put);
        alone / (alone - saved)
    }
}

fn measure(mix: &'static [Part], load: Load, keys: &str, variant: Variant, costs: &Costs) {
    let callers: Arc<Vec<Caller>> =
        Arc::new((0..MICROPROCESSES).map(|i| Caller::new(i as u64)).collect());
    let mut results: Vec<(Vec<f64>, Lateness)> =
        POLICIES.iter().map(|_| (Vec::new(), Lateness::default())).collect();
    for slice in 0..SLICES + 1 {
        for (policy, (rates, took)) in POLICIES.iter().zip(&mut results) {
            set_batch_policy(*policy).expect("a runtime runs");
            let (rate, late) = run(&callers, mix, load, variant);
            if slice > 0 {
                rates.push(rate);
                took.add(&late);
            }
        }
    }
    let median = |rates: &[f64]| {
        let mut rates = rates.to_vec();
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let (calls, batched) = (count(mix, Step::enters), count(mix, Step::is_batchable));
    let off = median(&results[0].0);
    let gain = |rates: &[f64]| {
        // Each slice is compared with its neighbour without batches.
        median(
            &rates.iter().zip(&results[0].0).map(|(rate, plain)| rate / plain).collect::<Vec<_>>(),
        )
    };
    let is = |which: fn(&BatchPolicy) -> bool| {
        POLICIES.iter().zip(&results).filter(move |(policy, _)| which(policy))
    };
    let fixed = || is(|policy| matches!(policy, BatchPolicy::Fixed(_)));
    for (_, (rates, took)) in is(|policy| *policy == BatchPolicy::Adaptive) {
        if load == Load::Thin {
            let lowest = fixed().map(|(_, (_, took))| took.us(0.99)).fold(f64::MAX, f64::min);
            sample("p99_of_lowest", took.us(0.99) / lowest, "x", keys);
        } else {
            let best = fixed().map(|(_, (rates, _))| gain(rates)).fold(0.0, f64::max);
            sample("rate_of_best", gain(rates) / best, "x", keys);
        }
    }
    for (policy, (rates, took)) in POLICIES.iter().zip(&results) {
        let keys = format!("{keys} batch={policy}");
        sample("rate", median(rates), "1/s", &keys);
        sample("p50", took.us(0.5), "us", &keys);
        sample("p99", took.us(0.99), "us", &keys);
        sample("gain", gain(rates), "x", &keys);
        if let BatchPolicy::Fixed(n) = policy
            && load == Load::Full
        {
            let predicted = costs.predicted(*n, 1e9 / off, calls, batched as f64 / calls as f64);
            sample("predicted", predicted, "x", &keys);
        }
    }
}

fn count(mix: &[Part], which: impl Fn(Step) -> bool) -> usize {
    mix.iter().filter(|(step, _)| which(*step)).map(|(_, n)| n).sum()
}

impl Step {
    fn enters(self) -> bool {
        !matches!(self, Step::Clock | Step::Delay)
    }

    fn is_batchable(self) -> bool {
        matches!(self, Step::Nop | Step::Send | Step::Receive | Step::Read)
    }
}

/// Returns transactions per second, and their durations.
fn run(
    callers: &Arc<Vec<Caller>>,
    mix: &'static [Part],
    load: Load,
    variant: Variant,
) -> (f64, Lateness) {
    let over = Arc::new(AtomicBool::new(false));
    let all = Arc::new(Mutex::new(Lateness::default()));
    let begin = Instant::now();
    let running: Vec<_> = (0..MICROPROCESSES)
        .map(|i| {
            let (callers, over, all) = (callers.clone(), over.clone(), all.clone());
            variant.spawn(move || {
                let (caller, mut room) = (&callers[i], vec![0; BLOCK]);
                let mut dice = Dice::new(i as u64 + 1);
                let mut late = Lateness::default();
                while !over.load(Relaxed) {
                    match load {
                        Load::Full => {}
                        Load::Thin => {
                            thread::sleep(PAUSE.mul_f64(dice.below(2000) as f64 / 1000.0))
                        }
                        Load::Bursts => {
                            // All microprocesses start at the same times.
                            let period = Duration::from_millis(15);
                            let next = begin.elapsed().as_nanos() / period.as_nanos() + 1;
                            thread::sleep_until(begin + period * next as u32);
                        }
                    }
                    let from = Instant::now();
                    caller.transaction(mix, &mut room, &mut dice);
                    late.record(from.elapsed());
                }
                all.lock().expect("not poisoned").add(&late);
            })
        })
        .collect();
    thread::sleep(SLICE);
    over.store(true, Relaxed);
    running.into_iter().for_each(|caller| caller.join().expect("no panic"));
    let took = begin.elapsed();
    let late = std::mem::take(&mut *all.lock().expect("not poisoned"));
    (late.len() as f64 / took.as_secs_f64(), late)
}

struct Caller {
    near: UnixStream,
    far: UnixStream,
    file: File,
    memory: File,
}

impl Caller {
    fn new(number: u64) -> Caller {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        let path = format!("/dev/shm/kumihimo-transaction-{}-{number}", std::process::id());
        let memory = File::create_new(&path).expect("a file in memory");
        std::fs::remove_file(path).expect("just made");
        let file = File::open("/proc/self/exe").expect("this program");
        // Loaded into the page cache, so that reads do not wait for the disk.
        file.read_exact_at(&mut vec![0; BLOCKS as usize * BLOCK], 0).expect("readable");
        Caller { near, far, file, memory }
    }

    fn transaction(&self, mix: &[Part], room: &mut [u8], dice: &mut Dice) {
        // SAFETY: all-zero is a valid statx.
        let mut stat: libc::statx = unsafe { std::mem::zeroed() };
        // More messages are received than sent, so some sends consist of two messages.
        let mut twice = count(mix, |step| matches!(step, Step::Receive))
            - count(mix, |step| matches!(step, Step::Send));
        for &(step, n) in mix {
            for _ in 0..n {
                let call = match step {
                    Step::Clock => {
                        std::hint::black_box(Instant::now());
                        continue;
                    }
                    Step::Delay => {
                        thread::yield_now();
                        continue;
                    }
                    Step::Nop => SystemCall::Nop,
                    Step::Send => {
                        let messages = if twice > 0 { 2 } else { 1 };
                        twice -= messages - 1;
                        SystemCall::Send {
                            socket: self.near.as_fd(),
                            from: &room[..MESSAGE * messages],
                        }
                    }
                    Step::Receive => SystemCall::Recv {
                        socket: self.far.as_fd(),
                        into: &mut room[..MESSAGE],
                        flags: 0,
                    },
                    Step::Read => SystemCall::ReadAt {
                        file: self.file.as_fd(),
                        into: room,
                        at: dice.below(BLOCKS) * BLOCK as u64,
                    },
                    Step::Write => SystemCall::WriteAt {
                        file: self.memory.as_fd(),
                        from: &room[..MESSAGE],
                        at: 0,
                    },
                    Step::Flush => SystemCall::Sync { file: self.memory.as_fd(), data: true },
                    Step::Stat => SystemCall::Stat { path: c"/proc/self", into: &mut stat },
                };
                match syscall_batch::call(call, false) {
                    // The kernel had evicted the pages: same behaviour as `File::read_at`.
                    Err(e) if step == Step::Read && e.kind() == ErrorKind::WouldBlock => {
                        self.file.read_exact_at(room, 0).expect("readable");
                    }
                    other => drop(other.expect("none of them fails")),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_have_the_papers_counts() {
        assert_eq!(count(PAPER, |_| true), 68);
        assert_eq!(count(PAPER, |step| matches!(step, Step::Receive)), 16);
        assert_eq!(count(PAPER, |step| matches!(step, Step::Clock)), 5);
    }

    #[test]
    fn sent_messages_are_received() {
        for mix in [PAPER, READS] {
            let sent = count(mix, |step| matches!(step, Step::Send));
            let received = count(mix, |step| matches!(step, Step::Receive));
            assert!((sent..=2 * sent).contains(&received));
            let caller = Caller::new(received as u64);
            for _ in 0..3 {
                caller.transaction(mix, &mut vec![0; BLOCK], &mut Dice::new(1));
            }
        }
    }

    /// With the paper's own figures: 5.3 % (errata: PAPERS.md).
    #[test]
    fn equation_8_agrees_with_the_papers_figures() {
        let costs = Costs { plain: 1.169, put: 0.612 - 1.169 / 60.0 };
        let alone = 380.93;
        let gain = costs.predicted(60, alone, 68, 36.0 / 68.0);
        assert!((gain - 1.0 / (1.0 - 0.0527)).abs() < 0.002, "{gain}");
    }
}
