//! `syscall-batch`: the paper's getpid loop. `n` microprocesses make calls in turn: without
//! batches, each yielding after its call; in batches of `n`; and with the adaptive policy.
//! `merged`: for calls that can be merged; `unmerged`: the same calls in the order of arrival, each
//! by itself. The three policies alternate slice by slice, so that disturbances affect all of them
//! alike.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use kumihimo::runtime::{BatchPolicy, set_batch_policy};
use kumihimo::sync::Barrier;
use kumihimo::thread;
use kumihimo_bench_kit::{Request, sample};
use kumihimo_runtime::syscall_batch::{self, FIRST_COME, Order, SystemCall};

use crate::variant::Variant;

const SIZES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Number of slices of each policy, unless `slices=N` is given.
const SLICES: usize = 15;
/// Approximate number of calls in a slice.
const CALLS: usize = 4096;
const MESSAGE: usize = 64;
const BLOCK: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Nop,
    Recv,
    Send,
    Read,
    Stat,
    /// All callers send to one connection.
    SendToOne,
    /// Reads of consecutive blocks of one file.
    ReadAdjacent,
}

const ALL: [(What, &str); 5] = [
    (What::Nop, "nop"),
    (What::Recv, "recv"),
    (What::Send, "send"),
    (What::Read, "pread"),
    (What::Stat, "statx"),
];

pub fn batch(request: &Request) {
    let (variant, slices) = (Variant::of(request), request.value("slices", SLICES));
    // Warm-up: the runtime measures the cost of calls when there are many.
    measure(What::Nop, 16, 1, variant);
    for (what, name) in ALL {
        let (mut curve, mut worst) = (Vec::new(), 0.0_f64);
        for n in SIZES {
            let times = measure(what, n, slices, variant);
            sample("plain", times.plain, "ns", &format!("op={name} n={n}"));
            times.ratios("ratio", name, n);
            worst = worst.max(times.adaptive_ratio / times.fixed_ratio.min(1.0));
            if what != What::Nop {
                curve.push((n, times));
                continue;
            }
            // Equal requests share one reply. Without merging, the cost of each system call shows.
            syscall_batch::set_order(FIRST_COME);
            let times = measure(what, n, slices, variant);
            syscall_batch::set_order(Order::default());
            sample("unmerged", times.fixed_ratio, "x", &format!("op={name} n={n} batch=fixed"));
            curve.push((n, times));
        }
        sample("adaptive_worst", worst, "x", &format!("op={name}"));
        // `statx` is always a plain call, so there is no curve to fit.
        if what != What::Stat {
            fitted(name, &curve);
        }
    }
    for (what, name) in [(What::SendToOne, "send"), (What::ReadAdjacent, "pread")] {
        measure(what, 16, slices, variant).ratios("merged", name, 16);
        syscall_batch::set_order(FIRST_COME);
        let times = measure(what, 16, slices, variant);
        syscall_batch::set_order(Order::default());
        sample("unmerged", times.fixed_ratio, "x", &format!("op={name} n=16 batch=fixed to=one"));
    }
}

/// Fits equation 4, `batched(N) = E/N + (t + w)`, by least squares over `1/N`, and prints its
/// prediction for each N beside the measurement.
fn fitted(name: &str, curve: &[(usize, Times)]) {
    let points: Vec<(f64, f64)> =
        curve.iter().skip(2).map(|(n, times)| (1.0 / *n as f64, times.batched)).collect();
    let count = points.len() as f64;
    let mean = |f: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / count;
    let (x, y) = (mean(&|p| p.0), mean(&|p| p.1));
    let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>()
        / points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>();
    let each = y - slope * x;
    let plain = median(curve.iter().map(|(_, times)| times.plain).collect());
    sample("entry", slope, "ns", &format!("op={name}"));
    sample("each", each, "ns", &format!("op={name}"));
    if plain > each {
        sample("pays_from", slope / (plain - each), "calls", &format!("op={name}"));
    }
    for (n, _) in curve {
        sample("predicted", (each + slope / *n as f64) / plain, "x", &format!("op={name} n={n}"));
    }
}

/// Nanoseconds for a call, and medians of the ratios to the preceding plain slice.
struct Times {
    plain: f64,
    batched: f64,
    fixed_ratio: f64,
    adaptive_ratio: f64,
}

impl Times {
    fn ratios(&self, metric: &str, name: &str, n: usize) {
        sample(metric, self.fixed_ratio, "x", &format!("op={name} n={n} batch=fixed"));
        sample(metric, self.adaptive_ratio, "x", &format!("op={name} n={n} batch=adaptive"));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(what: What, n: usize, slices: usize, variant: Variant) -> Times {
    let objects = Arc::new(Objects::new(what, n));
    let (mut plain, mut batched, mut adaptive) = (Vec::new(), Vec::new(), Vec::new());
    for slice in 0..slices + 1 {
        let ways: [(&mut Vec<f64>, BatchPolicy); 3] = [
            (&mut plain, BatchPolicy::Off),
            (&mut batched, BatchPolicy::Fixed(n)),
            (&mut adaptive, BatchPolicy::Adaptive),
        ];
        for (times, policy) in ways {
            set_batch_policy(policy).expect("a runtime runs");
            let rounds = (CALLS / n).min(objects.most);
            let turns = (CALLS / (rounds * n)).max(1);
            let took: f64 = (0..turns)
                .map(|_| run(&objects, n, rounds, policy == BatchPolicy::Off, variant))
                .sum();
            let took = took / turns as f64;
            if slice > 0 {
                times.push(took);
            }
        }
    }
    let to_plain = |times: &[f64]| {
        median(times.iter().zip(&plain).map(|(time, plain)| time / plain).collect())
    };
    let (fixed_ratio, adaptive_ratio) = (to_plain(&batched), to_plain(&adaptive));
    Times { plain: median(plain), batched: median(batched), fixed_ratio, adaptive_ratio }
}

/// Runs one slice.
fn run(objects: &Arc<Objects>, n: usize, rounds: usize, yields: bool, variant: Variant) -> f64 {
    objects.fill(rounds);
    let all = Arc::new(Barrier::new(n + 1));
    let callers: Vec<_> = (0..n)
        .map(|i| {
            let (objects, all) = (objects.clone(), all.clone());
            variant.spawn(move || {
                let mut room = vec![0; BLOCK];
                all.wait();
                let begin = Instant::now();
                for round in 0..rounds {
                    objects.call(i, round, &mut room);
                    if yields {
                        thread::yield_now();
                    }
                }
                (begin, Instant::now())
            })
        })
        .collect();
    all.wait();
    let spans: Vec<(Instant, Instant)> =
        callers.into_iter().map(|caller| caller.join().expect("no panic")).collect();
    let begin = spans.iter().map(|span| span.0).min().expect("one at least");
    let end = spans.iter().map(|span| span.1).max().expect("one at least");
    objects.drain(rounds * n);
    (end - begin).as_nanos() as f64 / (rounds * n) as f64
}

struct Objects {
    what: What,
    near: Vec<TcpStream>,
    far: Vec<TcpStream>,
    file: File,
    /// Maximum number of rounds in a slice, limited by the sockets' buffers.
    most: usize,
}

impl Objects {
    fn new(what: What, n: usize) -> Objects {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        let pairs = match what {
            What::Recv | What::Send => n,
            What::SendToOne => 1,
            _ => 0,
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        for _ in 0..pairs {
            let stream =
                TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
            stream.set_nodelay(true).expect("nodelay");
            far.push(listener.accept().expect("accept").0);
            near.push(stream);
        }
        let file = File::open("/proc/self/exe").expect("this program");
        assert!(
            file.metadata().expect("stat").len() > (64 * 2 * BLOCK) as u64,
            "a file of 512 KB at least"
        );
        // Loaded into the page cache, so that reads do not wait for the disk.
        file.read_exact_at(&mut vec![0; 64 * 2 * BLOCK], 0).expect("readable");
        let most = match what {
            What::Recv | What::Send => 256,
            What::SendToOne => 16,
            _ => usize::MAX,
        };
        Objects { what, near, far, file, most }
    }

    /// Sends the data that a slice will receive.
    fn fill(&self, rounds: usize) {
        if self.what == What::Recv {
            self.far
                .iter()
                .for_each(|mut far| far.write_all(&vec![7; rounds * MESSAGE]).expect("write"));
        }
    }

    /// Receives the data that a slice has sent.
    fn drain(&self, calls: usize) {
        if matches!(self.what, What::Send | What::SendToOne) {
            let each = calls / self.far.len() * MESSAGE;
            self.far.iter().for_each(|mut far| far.read_exact(&mut vec![0; each]).expect("read"));
        }
    }

    fn call(&self, i: usize, round: usize, room: &mut [u8]) {
        let file = self.file.as_fd();
        let wanted = match self.what {
            What::Nop | What::Stat => 0,
            What::Recv | What::Send | What::SendToOne => MESSAGE,
            What::Read | What::ReadAdjacent => BLOCK,
        };
        // Every second block, unless the blocks must be consecutive.
        let at = |stride: usize| (i * stride % 128 * BLOCK) as u64;
        // SAFETY: all-zero is a valid statx.
        let mut stat: libc::statx = unsafe { std::mem::zeroed() };
        let call = match self.what {
            What::Nop => SystemCall::Nop,
            What::Recv => SystemCall::Recv {
                socket: self.near[i].as_fd(),
                into: &mut room[..MESSAGE],
                flags: 0,
            },
            What::Send => SystemCall::Send { socket: self.near[i].as_fd(), from: &room[..MESSAGE] },
            What::SendToOne => {
                SystemCall::Send { socket: self.near[0].as_fd(), from: &room[..MESSAGE] }
            }
            What::Read => SystemCall::ReadAt { file, into: room, at: at(2) },
            What::ReadAdjacent => SystemCall::ReadAt { file, into: room, at: at(1) },
            What::Stat => SystemCall::Stat { path: c"/proc/self", into: &mut stat },
        };
        let shared = matches!(self.what, What::SendToOne | What::ReadAdjacent);
        let n = match syscall_batch::call(call, shared) {
            // The kernel had evicted the pages: same behaviour as `File::read_at`.
            Err(e) if wanted == BLOCK && e.kind() == ErrorKind::WouldBlock => {
                self.file.read_at(&mut vec![0; BLOCK], at(2)).unwrap_or(0)
            }
            other => other.unwrap_or_else(|e| panic!("round {round}: {e}")),
        };
        assert_eq!(n, wanted, "round {round}");
    }
}
