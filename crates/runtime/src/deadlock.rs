//! All microprocesses wait for each other: who waits for what.
//!
//! Nobody runs, no timer is armed, nobody waits for a descriptor or is inside `blocking`, and yet some live: only a foreign kernel
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
    if instance.settings.on_deadlock == OnDeadlock::Ignore || instance.deadlock_seen.load(Ordering::Relaxed) > 1 {
        return None;
    }
    if instance.bound.load(Ordering::Acquire) != 0
        || instance.vps.iter().any(|v| v.poller.is_used())
        || instance.living() == 0
        || vp.timers().next().is_some()
        || pending_clock()
    {
        instance.deadlock_seen.store(0, Ordering::Relaxed);
        return None;
    }
    // Seen twice, a second apart, with no switch in between: the number of switches goes into the mark.
    let switches: u64 = instance.vps.iter().map(|v| v.counters.switches.load(Ordering::Relaxed)).sum();
    let mark = (switches as u32) << 1 | 1;
    let before = instance.deadlock_mark.swap(mark, Ordering::Relaxed);
    let now = instance.now();
    if before == mark {
        let since = instance.deadlock_since.load(Ordering::Relaxed);
        if now.saturating_sub(since) >= PATIENCE.as_nanos() as u64 {
            instance.deadlock_seen.store(2, Ordering::Relaxed);
            report(instance);
            return None;
        }
    } else {
        instance.deadlock_since.store(now, Ordering::Relaxed);
    }
    Some(PATIENCE)
}

/// Somebody waits for the clock or a descriptor, on whatever VP.
fn pending_clock() -> bool {
    let mut found = false;
    pool::for_each(|mp| {
        found |= mp.state.phase() == Phase::Parked && matches!(waits_for(mp), Some(Wait::Sleep | Wait::Io(_)));
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
