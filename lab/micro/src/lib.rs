//! Our side of every benchmark. What `kumi bench` measures stands here, written as a user of
//! Kumihimo would write it: only `floor` looks below the public interface.

mod control;
mod io;
mod resources;
mod rpc;
mod scheduling;
mod threads;
mod trace;
mod variant;

pub use threads::park::park_one;

use kumihimo::policy::{Feedback, FixedPriority, Policy, RoundRobin};
use kumihimo::runtime;
use kumihimo_bench_kit::Request;

/// The queue design that runs unless another is asked for.
#[must_use]
pub fn default_queue() -> &'static str {
    runtime::DEFAULT_DESIGN.name()
}

/// Runs one benchmark. Wants a process of its own: the next one would find pools filled.
///
/// # Errors
/// The benchmark is not known, or the runtime could not be started as asked for. `refused: WHY`:
/// this machine or this build does not have the event source.
///
/// # Panics
/// If a result is wrong.
pub fn run(request: &Request) -> Result<(), String> {
    let mut kernel_threads = None;
    let body: fn(&Request) = match request.bench.as_str() {
        "yield" => threads::talk::switch,
        "null-fork" => threads::fork::null_fork,
        "message" => threads::talk::message,
        "sieve" => threads::sieve::sieve,
        "skynet" => threads::fork::skynet,
        "parked" => threads::park::parked,
        "mutex" => threads::mutex::mutex,
        "timer" => threads::timer::timer,
        "latency" => threads::timer::latency,
        "spread" => scheduling::spread::spread,
        "queues" => scheduling::queues::queues,
        "echo" => io::echo::serve,
        "syscall-batch" => io::batch::batch,
        "transaction" => io::transaction::transaction,
        "priority-io" => io::priority_io::serve,
        "files" => io::files::files,
        "stall" => io::stall::stall,
        "resources" => resources::resources,
        "control" => control::control,
        "trace" => trace::hashing,
        "events" => scheduling::events::events,
        "preempt" => scheduling::preempt::preempt,
        "priority-local" => scheduling::ready::ready,
        "spin-holder" => scheduling::holder::spin_holder,
        "kernel-threads" => io::kernel_threads::kernel_threads,
        "unwrapped" => {
            kernel_threads = kumihimo_bench_unwrapped::Plan::of(request)?.most_kernel_threads();
            io::unwrapped::unwrapped
        }
        "rpc" => {
            said(rpc::plan(request))?;
            rpc::rpc
        }
        "priority" => {
            said(scheduling::priority::plan(request))?;
            scheduling::priority::priority
        }
        "inversion" => {
            said(scheduling::inversion::check(request))?;
            scheduling::inversion::inversion
        }
        other => return Err(format!("{other}: no such benchmark")),
    };
    let queue = runtime::Design::from_name(&request.queue)
        .ok_or_else(|| format!("{}: no such queue", request.queue))?;
    // Before the runtime is started with it: a source that this machine lacks is refused, no
    // failure.
    match request.get("events") {
        None | Some("default") => {}
        Some(source) => scheduling::events::check_source(source)?,
    }
    let mut builder = runtime::Builder::new().vps(request.vps).queue(queue);
    if let Some(most) = kernel_threads {
        builder = builder.max_kernel_threads(most);
    }
    if request.get("sticky") == Some("off") {
        builder = builder.sticky(false);
    }
    if let Some(rule) = request.get("capacity") {
        builder = builder
            .capacity(capacity(rule).ok_or_else(|| format!("{rule}: no such capacity rule"))?);
    }
    builder = match policy(request)? {
        Some(policy) => builder.policy(policy),
        None => builder,
    };
    if let Some(design) = request.get("locking") {
        builder = builder
            .locking(design.parse().map_err(|e: kumihimo::resource::LockingError| e.to_string())?);
    }
    let runtime = builder.build().map_err(|e| e.to_string())?;
    runtime.run(|| body(request));
    Ok(())
}

/// A contender that is told to begin has a reader of its first word: what is refused is said there
/// too.
fn said<T>(done: Result<T, String>) -> Result<T, String> {
    done.inspect_err(|why| println!("{why}"))
}

/// `quantum=5ms` and `policy=fixed`; `None`: the default.
fn policy(request: &Request) -> Result<Option<Box<dyn Policy>>, String> {
    if request.bench == "spin-holder" {
        return Ok(Some(Box::new(RoundRobin::with_quantum(scheduling::holder::QUANTUM))));
    }
    if request.get("quantum").is_some() {
        let quantum = scheduling::preempt::quantum(request)
            .ok_or("quantum: a number of milliseconds is wanted, as in 5ms")?;
        return Ok(Some(Box::new(RoundRobin::with_quantum(quantum))));
    }
    Ok(match request.get("policy") {
        None => None,
        Some("fixed") => Some(Box::new(FixedPriority)),
        Some("round-robin") => Some(Box::new(RoundRobin::new())),
        Some("feedback") => Some(Box::new(Feedback::new())),
        Some(other) => return Err(format!("{other}: no such policy")),
    })
}

/// `fixed8`: eight items; `slack2`: a fair share, and two more start no move.
fn capacity(rule: &str) -> Option<runtime::Capacity> {
    let number = |text: &str| text.parse().ok();
    match rule.strip_prefix("fixed") {
        Some(items) => number(items).map(runtime::Capacity::Fixed),
        None => {
            number(rule.strip_prefix("slack")?).map(|slack| runtime::Capacity::FairShare { slack })
        }
    }
}
