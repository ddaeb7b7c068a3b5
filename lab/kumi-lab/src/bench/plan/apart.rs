//! Contenders of the benchmarks that are not run cell by cell.

use super::{FLOORS, Options, Plan, join};
use crate::bench::contender::{Contender, Runtime};

/// Kumihimo's batching in `echo`.
const BATCHES: [&str; 3] = ["batch=adaptive", "batch=forced", "batch=plain"];

/// Kumihimo's other order of ready connections, in `echo`.
const RECENT: &str = "ready=recent";

/// Servers of one cell of `echo`.
pub fn echo_servers(options: &Options) -> Vec<Contender> {
    let plan = Plan { options };
    join([
        join(BATCHES.map(|batch| plan.ours("full", &[batch]))),
        plan.ours("full", &[RECENT]),
        plan.rivals(&[], usize::MAX),
        plan.rival(Runtime::May, &[], usize::MAX),
        join(
            FLOORS
                .map(|calls| plan.rival(Runtime::Floor, &[&format!("calls={calls}")], usize::MAX)),
        ),
    ])
}

/// Servers of `http`.
pub fn http_servers(options: &Options) -> Vec<Contender> {
    let plan = Plan { options };
    join([
        plan.full_or_both(&[]),
        plan.rivals(&[], usize::MAX),
        plan.rival(Runtime::May, &[], usize::MAX),
        plan.rival(Runtime::Axum, &[], usize::MAX),
    ])
}

/// Servers of `kv`.
pub fn kv_servers(options: &Options) -> Vec<Contender> {
    let plan = Plan { options };
    let rival = |runtime| plan.rival(runtime, &[], usize::MAX);
    join([plan.ours("full", &[]), rival(Runtime::Redis), rival(Runtime::Tokio)])
}

/// Servers of `priority-io`. The first is compared with the second.
pub fn priority_servers(options: &Options) -> Vec<Contender> {
    let plan = Plan { options };
    join(["priorities=on", "priorities=off"].map(|priorities| plan.ours("full", &[priorities])))
}

/// Servers of `connections`.
pub fn connection_servers(options: &Options) -> Vec<Contender> {
    let plan = Plan { options };
    join([plan.full_or_both(&[]), plan.rivals(&[], usize::MAX)])
}

/// Kumihimo's contender of `idle_cost`, with one additional argument.
pub fn with_source(options: &Options, source: &str, arg: &str) -> Contender {
    Plan { options }.sourced(source, &[arg], usize::MAX).remove(0)
}

/// Values of `trace` in the benchmark of that name. The second is compared with the first.
pub const TRACED: [&str; 2] = ["trace=off", "trace=on"];

/// Kumihimo's contender of a part of `control` or `observe`, with the address spaces of
/// `directory`.
pub fn control(options: &Options, part: &str, directory: &str) -> Contender {
    Plan { options }.ours("full", &[&format!("part={part}"), directory]).remove(0)
}

/// The contender of `report`: the command.
pub fn report(options: &Options) -> Contender {
    Plan { options }.ours("full", &[]).remove(0)
}

/// Kumihimo's contender of `hostile`, with additional arguments.
pub fn hostile(options: &Options, args: &[&str]) -> Contender {
    Plan { options }.ours("full", args).remove(0)
}

/// Kumihimo's contender of `trace`.
pub fn traced(options: &Options, trace: &str) -> Contender {
    Plan { options }.ours("full", &[trace]).remove(0)
}

/// The contender with which `priority-local` is compared: `events/preempted`.
pub fn preempted(options: &Options) -> Contender {
    with_source(options, "bpf", "part=preempts")
}

/// The contender that determines the rate of `stall`.
pub fn stall_capacity(options: &Options) -> Contender {
    Plan { options }.sourced("off", &["stall=none", "part=capacity"], 1).remove(0)
}
