//! Kernel threads have run out, all of them sleep in calls that the runtime does not know, and there is something that could run: who sleeps
//! where, on what kernel thread, and what the limit is.
//!
//! The kernel's half notices ([`kumihimo_events::sched::Starved`]). It is a deadlock as far as anybody can tell if each of them waits on a futex
//! without a time; then [`OnDeadlock::Abort`] ends the process. Else one of them may come back, and things go on when it does.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kumihimo_events::sched::Starved;
use kumihimo_events::{Kernel, Slot};
use kumihimo_resource::id::Printed;

use crate::carrier::ANNOUNCED;
use crate::instance::Instance;
use crate::runtime::OnDeadlock;
use crate::state::Phase;
use crate::{dump, identity, pool};

/// Those that may come back are given this long before they are told of.
const LONG: Duration = Duration::from_secs(5);
/// Lines of a report.
const SHOWN: usize = 20;

impl Instance {
    /// By the watchdog. True: it need not be told again.
    pub(crate) fn report_starvation(&self, starved: Starved) -> bool {
        if self.settings.on_deadlock == OnDeadlock::Ignore {
            return true;
        }
        let (runnable, due) = (self.could_run(), self.timers_due());
        if runnable + due == 0 || !starved.for_good && starved.since < LONG {
            return false;
        }
        let what = if starved.for_good { "deadlock" } else { "starved" };
        let mut text = format!(
            "kumihimo: {what}: the limit of {} is reached, and all of them have slept for {:.1} s in calls that the runtime does not know, while \
             {runnable} microprocesses could run and the timers of {due} virtual processors are due:\n",
            self.kernel.limit(),
            starved.since.as_secs_f64()
        );
        let all: Vec<_> = self.kernel.slots().filter(|slot| slot.tid.load(Ordering::Relaxed) != 0).collect();
        let (holders, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|slot| self.vp_in(slot).is_some());
        let mut lines = holders.iter().chain(&others).filter_map(|slot| self.sleeper(slot));
        text.extend(lines.by_ref().take(SHOWN));
        let more = lines.count();
        if more != 0 {
            let _ = writeln!(text, "  ... and {more} more");
        }
        text.push_str(
            "  allow more of them, or let fewer wait so at a time: kumihimo::sync has locks that wait in the runtime\n",
        );
        eprint!("{text}");
        if starved.for_good && self.settings.on_deadlock == OnDeadlock::Abort {
            std::process::abort();
        }
        true
    }

    /// Microprocesses that are queued, those that have not begun included.
    fn could_run(&self) -> usize {
        let mut live = 0;
        pool::for_each(|mp| live += usize::from(mp.state.phase() == Phase::Live));
        let on_kernel_threads = self.kernel.slots().filter(|slot| dump::has_microprocess(slot)).count();
        live.saturating_sub(on_kernel_threads)
    }

    fn timers_due(&self) -> usize {
        let now = self.now();
        self.vps.iter().filter(|vp| vp.tick.is_timer_due(now)).count()
    }

    /// The virtual processor that a sleeping kernel thread holds.
    fn vp_in(&self, slot: &Slot) -> Option<u32> {
        (0..self.vps.len() as u32)
            .find(|vp| self.kernel.carrier(*vp).is_some_and(|carrier| std::ptr::eq(carrier, slot)))
    }

    fn sleeper(&self, slot: &Slot) -> Option<String> {
        let id = slot.microprocess.load(Ordering::Relaxed);
        let mp = identity::find(id & !ANNOUNCED)?;
        let place = Kernel::place_of(slot).map_or_else(|| "awake by now".to_owned(), |place| place.to_string());
        let holds = self.vp_in(slot).map_or_else(String::new, |vp| format!(", and holds virtual processor {vp}"));
        let (who, name, tid) = (Printed(mp.id()), dump::name(mp), slot.tid.load(Ordering::Relaxed));
        Some(format!("  microprocess {who} {name} on kernel thread {tid}: {place}{holds}\n"))
    }
}
