//! Deadlock detection: all microprocesses wait for each other. The report lists the object of each
//! wait.
//!
//! The state counts as a deadlock if microprocesses live and none of them runs or is inside
//! `blocking`. None may wait for the clock, a descriptor, a gate, or a future, which another
//! runtime's threads may wake. Every kernel thread of the program must wait for another thread of
//! the process, too ([`other_threads`]): one that computes or sleeps may still wake a microprocess.
//! After a second in this state it is reported once on stderr, with backtraces, and then does what
//! `Builder::on_deadlock` specifies.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kumihimo_resource::id::Printed;

use crate::config::OnDeadlock;
use crate::memory::pool;
use crate::microprocess::protocol::state::Phase;
use crate::microprocess::wait_reason::Wait;
use crate::observe::holders::Waiting;
use crate::observe::locks::Snapshot;
use crate::observe::{dump, other_threads};
use crate::scheduler::instance::Instance;

const QUIET_PERIOD: Duration = Duration::from_secs(1);
/// Maximum time between two looks at the program's own kernel threads.
const LONGEST_PERIOD: Duration = Duration::from_secs(60);
/// Maximum number of microprocesses in a report.
const SHOWN: usize = 20;

impl Instance {
    /// Returns when the last VP that goes to sleep, or the timekeeper, should check again, if at
    /// all. Called while all VPs are idle.
    pub(crate) fn next_deadlock_look(&self) -> Option<Duration> {
        if self.settings.on_deadlock == OnDeadlock::Ignore
            || self.deadlock_seen.load(Ordering::Relaxed)
            // Sticky microprocesses that wait in the runtime, on their kernel threads, count as
            // waiting.
            || self.kernel.bound() != self.sticky.waiting.load(Ordering::Relaxed)
            || self.living() == 0
        {
            return None;
        }
        // The state must be observed twice, a second apart, without a switch in between. The number
        // of switches is the mark.
        let mark = self
            .vps
            .iter()
            .map(|v| v.counters.switches.load(Ordering::Relaxed))
            .fold(1, u64::wrapping_add);
        let now = self.now();
        // Acquire: a reader that finds the mark also finds its time.
        if self.deadlock_mark.load(Ordering::Acquire) != mark {
            self.deadlock_since.store(now, Ordering::Relaxed);
            self.deadlock_mark.store(mark, Ordering::Release);
            return Some(QUIET_PERIOD);
        }
        let waited =
            Duration::from_nanos(now.saturating_sub(self.deadlock_since.load(Ordering::Relaxed)));
        if waited < QUIET_PERIOD {
            return Some(QUIET_PERIOD - waited);
        }
        // The scan of all microprocesses comes last, once per silence: its result changes only
        // after a switch, which starts another silence.
        if somebody_may_wake() {
            return None;
        }
        // A kernel thread can begin to wait without a switch: the next look doubles the silence.
        if other_threads::may_wake(|tid| self.is_in_pool(tid)) {
            return Some(waited.min(LONGEST_PERIOD));
        }
        if !self.deadlock_seen.swap(true, Ordering::Relaxed) {
            report(self);
        }
        None
    }

    /// Whether the kernel thread `tid` belongs to the runtime's pool.
    pub(crate) fn is_in_pool(&self, tid: u32) -> bool {
        self.kernel.slots().any(|slot| slot.tid.load(Ordering::Relaxed) == tid)
    }
}

/// Whether any microprocess waits for the clock, a descriptor or a future, on any VP, or is
/// runnable but not yet collected by a VP that was woken.
///
/// Does not query timers and descriptors, since most of those may be left over from waits that
/// ended otherwise.
fn somebody_may_wake() -> bool {
    let mut found = false;
    pool::for_each(|mp| {
        found |= match mp.state.phase() {
            // A suspended microprocess is resumed by another thread.
            Phase::Live | Phase::Suspended => true,
            Phase::Parked if mp.state.is_suspended() => true,
            Phase::Parked => {
                mp.wait_kind.load(Ordering::Relaxed) & Wait::TIMED != 0
                    || matches!(mp.waits_for(), Some(Wait::Io(_) | Wait::Future | Wait::Gate(_)))
            }
            _ => false,
        };
    });
    found
}

fn report(instance: &Instance) {
    let Some(seen) = Snapshot::take() else { return };
    let total = seen.waiting().len();
    if total == 0 {
        return;
    }
    let line = |one: &Waiting| {
        let (id, name) = (Printed(one.who.id()), one.who.mp.name_text());
        let holder = seen.holder(one.wait);
        let held = holder.map_or_else(String::new, |held| format!(", {}", held.describe()));
        (one.who, format!("  microprocess {id} {name} waits for {}{held}", one.wait))
    };
    let waiting: Vec<_> = seen.waiting().iter().take(SHOWN).map(line).collect();
    let more = if total > waiting.len() {
        format!("\n  ... and {} more", total - waiting.len())
    } else {
        String::new()
    };
    let lines: Vec<_> = waiting.iter().map(|(_, line)| &**line).collect();
    eprintln!(
        "kumihimo: deadlock: all {total} living microprocesses wait, and no timer, descriptor or blocking call can wake one \
         (every kernel thread of the program waits as well):\n{}{more}",
        lines.join("\n")
    );
    let cycles: Vec<_> = seen.cycles().take(SHOWN).map(|cycle| format!("  {cycle}")).collect();
    if !cycles.is_empty() {
        eprintln!("kumihimo: these wait for each other in a circle:\n{}", cycles.join("\n"));
    }
    // Printed separately, because backtraces take time and memory: the lines above are printed in
    // any case.
    let traces = dump::backtraces(&waiting.iter().map(|(who, _)| *who).collect::<Vec<_>>());
    let mut text = String::from("kumihimo: where they wait:\n");
    for ((_, line), trace) in waiting.iter().zip(&traces).filter(|(_, trace)| !trace.is_empty()) {
        let _ = writeln!(text, "{line}");
        text.push_str(trace);
    }
    eprint!("{text}");
    if instance.settings.on_deadlock == OnDeadlock::Abort {
        std::process::abort();
    }
}
