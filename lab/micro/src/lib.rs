//! Kumihimo's contender of every benchmark, written like user code: only `floor` uses more than the
//! public interface.

mod control;
mod hostile;
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

/// Default queue design.
#[must_use]
pub fn default_queue() -> &'static str {
    runtime::DEFAULT_DESIGN.name()
}

/// Runs one benchmark. Requires a process of its own, because a second benchmark would find filled
/// pools.
///
/// # Errors
/// If the benchmark is unknown, or the runtime cannot be started as requested. `refused: WHY` if
/// this machine or this build lacks the event source.
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
        "http" => io::http::serve,
        "syscall-batch" => io::batch::batch,
        "transaction" => io::transaction::transaction,
        "priority-io" => io::priority_io::serve,
        "files" => io::files::files,
        "stall" => io::stall::stall,
        "resources" => resources::resources,
        "control" | "observe" => control::control,
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
        "rpc" | "remote" => {
            said(rpc::plan(request))?;
            rpc::rpc
        }
        "priority" => {
            said(scheduling::priority::plan(request))?;
            scheduling::priority::priority
        }
        "hostile" => hostile::hostile,
        "inversion" => {
            said(scheduling::inversion::check(request))?;
            scheduling::inversion::inversion
        }
        other => return Err(format!("{other}: no such benchmark")),
    };
    let queue = runtime::Design::from_name(&request.queue)
        .ok_or_else(|| format!("{}: unknown queue", request.queue))?;
    // Checked before the runtime is started: a missing source is a refusal, not a failure.
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
            .capacity(capacity(rule).ok_or_else(|| format!("{rule}: unknown capacity rule"))?);
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

/// Prints a refusal also on standard output, where the starting process reads the first word.
fn said<T>(done: Result<T, String>) -> Result<T, String> {
    done.inspect_err(|why| println!("{why}"))
}

/// Policy of `quantum=5ms` and `policy=fixed`; `None` for the default.
fn policy(request: &Request) -> Result<Option<Box<dyn Policy>>, String> {
    if request.bench == "spin-holder" {
        return Ok(Some(Box::new(RoundRobin::with_quantum(scheduling::holder::QUANTUM))));
    }
    if request.get("quantum").is_some() {
        let quantum = scheduling::preempt::quantum(request)
            .ok_or("quantum: expected a number of milliseconds, for example 5ms")?;
        return Ok(Some(Box::new(RoundRobin::with_quantum(quantum))));
    }
    Ok(match request.get("policy") {
        None => None,
        Some("fixed") => Some(Box::new(FixedPriority)),
        Some("round-robin") => Some(Box::new(RoundRobin::new())),
        Some("feedback") => Some(Box::new(Feedback::new())),
        Some(other) => return Err(format!("{other}: unknown policy")),
    })
}

/// `fixed8`: eight items; `slack2`: a fair share, plus two items that start no move.
fn capacity(rule: &str) -> Option<runtime::Capacity> {
    let number = |text: &str| text.parse().ok();
    match rule.strip_prefix("fixed") {
        Some(items) => number(items).map(runtime::Capacity::Fixed),
        None => {
            number(rule.strip_prefix("slack")?).map(|slack| runtime::Capacity::FairShare { slack })
        }
    }
}
