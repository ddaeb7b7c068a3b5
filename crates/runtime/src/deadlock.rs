//! All microprocesses wait for each other: who waits for what.
//!
//! Nobody runs, nobody waits for the clock or a descriptor or is inside `blocking`, and yet some live: only a foreign kernel
//! thread could still wake one, which the runtime cannot know. So after a second of this it says once, on stderr, what it sees,
//! and does what `Builder::on_deadlock` asks for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::instance::Instance;
use crate::park::Wait;
use crate::pool;
use crate::record::Mp;
use crate::runtime::OnDeadlock;
use crate::state::Phase;
use crate::vp::Vp;

const PATIENCE: Duration = Duration::from_secs(1);
/// Lines of a report.
const SHOWN: usize = 20;

/// Whether the last VP that goes to sleep should look again, and when. Called with all VPs idle.
pub(crate) fn next_look(vp: &Vp) -> Option<Duration> {
    let instance = vp.instance();
    if instance.settings.on_deadlock == OnDeadlock::Ignore
        || instance.deadlock_seen.load(Ordering::Relaxed)
        || instance.kernel.bound() != 0
        || instance.living() == 0
    {
        return None;
    }
    // Seen twice, a second apart, with no switch in between: the number of switches is the mark.
    let mark = instance.vps.iter().map(|v| v.counters.switches.load(Ordering::Relaxed)).fold(1, u64::wrapping_add);
    let now = instance.now();
    // Acquire: whoever finds the mark finds its time, too.
    if instance.deadlock_mark.load(Ordering::Acquire) != mark {
        instance.deadlock_since.store(now, Ordering::Relaxed);
        instance.deadlock_mark.store(mark, Ordering::Release);
        return Some(PATIENCE);
    }
    let waited = Duration::from_nanos(now.saturating_sub(instance.deadlock_since.load(Ordering::Relaxed)));
    if waited < PATIENCE {
        return Some(PATIENCE - waited);
    }
    // The walk over all of them comes last, and once in each silence: nothing but a switch, and then another silence, changes its outcome.
    if !somebody_may_wake() && !instance.deadlock_seen.swap(true, Ordering::Relaxed) {
        report(instance);
    }
    None
}

/// Somebody waits for the clock or a descriptor, on whatever VP, or is runnable but not yet seen by a VP that was called.
///
/// Not asked of the timers and the descriptors, of which most may be left over from waits that ended otherwise.
fn somebody_may_wake() -> bool {
    let mut found = false;
    pool::for_each(|mp| {
        found |= match mp.state.phase() {
            Phase::Live => true,
            Phase::Parked => {
                mp.wait_kind.load(Ordering::Relaxed) & Wait::TIMED != 0 || matches!(waits_for(mp), Some(Wait::Io(_)))
            }
            _ => false,
        };
    });
    found
}

pub(crate) fn waits_for(mp: &Mp) -> Option<Wait> {
    Wait::decode(mp.wait_kind.load(Ordering::Relaxed), mp.wait_object.load(Ordering::Relaxed))
}

fn report(instance: &Instance) {
    let mut lines = Vec::new();
    let mut total = 0;
    pool::for_each(|mp| {
        if mp.state.phase() != Phase::Parked {
            return;
        }
        total += 1;
        if lines.len() < SHOWN {
            let mut label = [0; 47];
            let n = mp.label(&mut label);
            let name = if n == 0 { "(no name)".into() } else { String::from_utf8_lossy(&label[..n]).into_owned() };
            let what = waits_for(mp).map_or_else(|| "nothing known".into(), |w| w.to_string());
            lines.push(format!("  microprocess {:x} {name} waits for {what}", mp.id()));
        }
    });
    if total == 0 {
        return;
    }
    let more = if total > lines.len() { format!("\n  ... and {} more", total - lines.len()) } else { String::new() };
    eprintln!(
        "kumihimo: deadlock: all {total} living microprocesses wait, and no timer, descriptor or blocking call can wake one \
         (only a kernel thread of your own still could):\n{}{more}",
        lines.join("\n")
    );
    if instance.settings.on_deadlock == OnDeadlock::Abort {
        std::process::abort();
    }
}
