//! Our side of every benchmark. What `kumi bench` measures stands here, written as a user of
//! Kumihimo would write it: only `floor` looks below the public interface.

mod batch;
mod control;
mod echo;
mod events;
mod files;
mod fork;
mod holder;
mod inversion;
mod kernel_threads;
mod mutex;
mod park;
mod preempt;
mod preempted;
mod priority;
mod priority_io;
mod queues;
mod ready;
mod resources;
mod rpc;
mod sieve;
mod spread;
mod stall;
mod talk;
mod timer;
mod trace;
mod transaction;
mod unwrapped;
mod variant;

pub use park::park_one;

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
        "yield" => talk::switch,
        "null-fork" => fork::null_fork,
        "message" => talk::message,
        "sieve" => sieve::sieve,
        "skynet" => fork::skynet,
        "parked" => park::parked,
        "mutex" => mutex::mutex,
        "timer" => timer::timer,
        "latency" => timer::latency,
        "spread" => spread::spread,
        "queues" => queues::queues,
        "echo" => echo::serve,
        "syscall-batch" => batch::batch,
        "transaction" => transaction::transaction,
        "priority-io" => priority_io::serve,
        "files" => files::files,
        "stall" => stall::stall,
        "resources" => resources::resources,
        "control" => control::control,
        "trace" => trace::hashing,
        "events" => events::events,
        "preempt" => preempt::preempt,
        "priority-local" => ready::ready,
        "spin-holder" => holder::spin_holder,
        "kernel-threads" => kernel_threads::kernel_threads,
        "unwrapped" => {
            kernel_threads = kumihimo_bench_unwrapped::Plan::of(request)?.most_kernel_threads();
            unwrapped::unwrapped
        }
        "rpc" => {
            said(rpc::plan(request))?;
            rpc::rpc
        }
        "priority" => {
            said(priority::plan(request))?;
            priority::priority
        }
        "inversion" => {
            said(inversion::check(request))?;
            inversion::inversion
        }
        other => return Err(format!("{other}: no such benchmark")),
    };
    let queue = runtime::Design::from_name(&request.queue)
        .ok_or_else(|| format!("{}: no such queue", request.queue))?;
    // Before the runtime is started with it: a source that this machine lacks is refused, no
    // failure.
    match request.get("events") {
        None | Some("default") => {}
        Some(source) => events::check_source(source)?,
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
        return Ok(Some(Box::new(RoundRobin::with_quantum(holder::QUANTUM))));
    }
    if request.get("quantum").is_some() {
        let quantum = preempt::quantum(request)
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
