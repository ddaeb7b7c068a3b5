//! Profile of CPU time: samples of the pool's kernel threads, by timers of their CPU clocks
//! ([`kumihimo_events::cpu_profiler`]).
//!
//! The time in the scheduler counts, too: the sum is the CPU time of the pool. Kernel threads that
//! the program or a library has started are not sampled.
//!
//! After n samples of equal weight, the estimate of a share p has the standard error
//! sqrt(p (1-p) / n).

use std::time::Duration;

use kumihimo_backtrace::Walker;
use kumihimo_events::cpu_profiler::CpuSample;
use kumihimo_machine::handler::Refused;
use kumihimo_machine::profile::ProfileStack;

use super::{Session, visit};
use crate::observe::names::prefix;

/// Time between two rounds in which the samples are read, and new kernel threads are found.
const ROUND: Duration = Duration::from_millis(20);
/// Bounds of the number of samples for which there is room.
const PLACES: std::ops::RangeInclusive<usize> = 16..=1024;

/// Samples at `rate` per second of CPU time until the session ends.
pub(super) fn run(mut session: Session<'_>, rate: u32, mut walker: Walker) -> Result<(), Refused> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Half more than what comes within a round from threads on all cores, and two for each.
    let places = cores * (2 + rate as usize * ROUND.as_millis() as usize * 3 / 2000);
    let places = places.clamp(*PLACES.start(), *PLACES.end());
    let interval = Duration::from_secs(1) / rate;
    let refused = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::ResourceBusy => Refused::Busy(e.to_string()),
        std::io::ErrorKind::Unsupported => Refused::Unsupported(e.to_string()),
        _ => Refused::Failed(format!("the timers of a profile (timer_create): {e}")),
    };
    let mut profiler =
        visit(|instance| instance.kernel.profile_cpu(interval, places))?.map_err(refused)?;
    visit(|instance| instance.kernel.follow(&mut profiler))?.map_err(refused)?;
    loop {
        let goes_on = session.wait(ROUND);
        for sample in profiler.take() {
            let stack = stack_of(&sample, &mut walker);
            let number = session.table.number(stack);
            session.table.add(number, 1, sample.cpu_time);
        }
        session.lost = profiler.lost();
        // The runtime of the process may have ended.
        let follows = visit(|instance| instance.kernel.follow(&mut profiler));
        let goes_on = goes_on && follows.is_ok();
        session.send(!goes_on)?;
        if !goes_on {
            return Ok(());
        }
        follows?.map_err(refused)?;
    }
}

fn stack_of(sample: &CpuSample, walker: &mut Walker) -> ProfileStack {
    let trace = sample.stack.trace(walker);
    ProfileStack {
        frames: trace.frames,
        name: prefix(&sample.name).to_owned(),
        state: String::new(),
        is_cut: trace.cut,
    }
}
