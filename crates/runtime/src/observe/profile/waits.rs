//! Profile of waits: the time between park and wake, by the stack that parked.
//!
//! At random times, every parked microprocess adds the time since the last look to its stack. That
//! is an unbiased estimate: a wait is seen with a probability in proportion to its length. A stack
//! is walked once in a wait, because it does not change meanwhile. At most [`MOST_WALKS`] stacks
//! are walked in one look; if more are new, some are chosen at random, and count for the others. So
//! the cost does not depend on the number of waits, and no wait becomes slower.
//!
//! A stack whose waits were seen n times has the relative standard error 1 / sqrt(n), at most: that
//! of many short waits. Long waits are seen in each look, and their sum is exact.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kumihimo_arch::kernel_attributes::cpu_time;
use kumihimo_backtrace::{Trace, Walker};
use kumihimo_events::random::Random;
use kumihimo_machine::handler::Refused;
use kumihimo_machine::profile::ProfileStack;

use super::table::Table;
use super::{Session, name_of, visit};
use crate::memory::pool;
use crate::microprocess::protocol::state::Phase;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::wait_reason::kind_name;
use crate::observe::dump;
use crate::scheduler::thread_place;

/// Largest number of stacks that are walked in one look, which takes 10 to 20 us each.
const MOST_WALKS: usize = 64;
/// The next look comes after this multiple of the CPU time of the last one, at least: all looks
/// together take at most 2 % of a core.
const REST: u32 = 50;

/// Looks at the waits, `rate` times a second on average, until the session ends.
pub(super) fn run(mut session: Session<'_>, rate: u32, walker: Walker) -> Result<(), Refused> {
    let mean = Duration::from_secs(1) / rate;
    let mut looks = Looks { walker, known: Vec::new(), generation: 0, random: Random::new(seed()) };
    let mut last = Instant::now();
    let mut cost = Duration::ZERO;
    loop {
        let time = (mean / 2 + mean.mul_f64(looks.random.fraction())).max(cost * REST);
        let until = last + time;
        // Short waits, so that the client receives something in time.
        let mut goes_on = true;
        while goes_on && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            goes_on = session.wait(left.min(super::SEND));
            session.send(false)?;
        }
        let before = cpu_time();
        let now = Instant::now();
        let goes_on = goes_on && visit(|_| ()).is_ok();
        looks.look(now - last, &mut session.table);
        last = now;
        session.send(!goes_on)?;
        if !goes_on {
            return Ok(());
        }
        cost = Duration::from_nanos(cpu_time().saturating_sub(before));
    }
}

/// A wait whose stack was walked.
#[derive(Clone, Copy, Default)]
struct Known {
    /// ID and switches of the microprocess, which change with the next wait; 0: none.
    id: u64,
    switches: u64,
    /// Number of its stack in the table.
    stack: u32,
}

/// What is kept from one look to the next.
struct Looks {
    walker: Walker,
    /// By the position of the record, because records are never removed.
    known: Vec<Known>,
    /// Generation of the table in which the numbers are valid.
    generation: u32,
    random: Random,
}

impl Looks {
    /// Adds `time` for each parked microprocess.
    fn look(&mut self, time: Duration, table: &mut Table) {
        let ns = time.as_nanos() as u64;
        if self.generation != table.generation() {
            self.generation = table.generation();
            self.known.clear();
        }
        let mut fresh: Vec<(usize, Ref, u64)> = Vec::new();
        let mut position = 0;
        pool::for_each(|mp| {
            if self.known.len() == position {
                self.known.push(Known::default());
            }
            let known = self.known[position];
            if mp.state.phase() == Phase::Parked {
                let (who, switches) = (mp.reference(), mp.switches());
                if (known.id, known.switches) == (who.id(), switches) {
                    table.add(known.stack, 1, ns);
                } else {
                    fresh.push((position, who, switches));
                }
            }
            position += 1;
        });
        let all = fresh.len() as u64;
        let chosen = fresh.len().min(MOST_WALKS);
        for n in 0..chosen {
            let other = n + self.random.below(fresh.len() - n);
            fresh.swap(n, other);
        }
        for (n, (position, who, switches)) in fresh.into_iter().take(chosen).enumerate() {
            // One that has been woken in the meantime has waited nevertheless.
            let (stack, is_whole) = stack_of(who, &mut self.walker);
            let number = table.number(stack);
            // The parts of all add up to their number.
            let (n, chosen) = (n as u64, chosen as u64);
            let part = all * (n + 1) / chosen - all * n / chosen;
            table.add(number, part, ns.saturating_mul(all) / chosen);
            if is_whole && who.mp.switches() == switches && who.is_current() {
                self.known[position] = Known { id: who.id(), switches, stack: number };
            }
        }
    }
}

/// Returns the stack of a waiting microprocess, and whether it was still waiting.
fn stack_of(who: Ref, walker: &mut Walker) -> (ProfileStack, bool) {
    let state = state_of(who.mp);
    // A sticky microprocess waits on its kernel thread, which has its registers.
    let on_thread = if who.mp.sticky.reason().is_some() {
        visit(|instance| {
            thread_place::on(instance, who).map(|place| place.trace(instance, who, walker))
        })
        .ok()
        .flatten()
    } else {
        None
    };
    let trace = on_thread.unwrap_or_else(|| dump::still(who, walker));
    // One that is about to switch has not saved its registers yet.
    let is_code = |trace: &Trace| {
        let mut modules = walker.modules.iter();
        trace.frames.first().is_some_and(|at| modules.any(|one| one.addresses.contains(at)))
    };
    let trace = trace.filter(is_code);
    let is_whole = trace.is_some() && who.mp.state.phase() == Phase::Parked;
    let trace = trace.unwrap_or_default();
    let stack = ProfileStack {
        is_cut: trace.cut || trace.frames.is_empty(),
        frames: trace.frames,
        name: name_of(who.mp),
        state,
    };
    (stack, is_whole)
}

/// Returns the kind of object that a parked microprocess waits for.
pub(super) fn state_of(mp: &Mp) -> String {
    kind_name(mp.wait_kind.load(Ordering::Relaxed)).to_owned()
}

/// Returns a seed that differs from profile to profile.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64)
}
