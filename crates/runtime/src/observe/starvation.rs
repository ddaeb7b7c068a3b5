//! Starvation reports: kernel threads that sleep in calls outside of the runtime keep their VPs,
//! while runnable microprocesses or expired timers wait for a VP.
//!
//! They keep them because the limit on kernel threads is reached, or because the event source is
//! `off`. The kernel's half detects the state ([`kumihimo_events::sched::Starved`]). If every
//! thread waits on a futex without a timeout, those of the program outside of the runtime included,
//! the report calls it a deadlock and [`OnDeadlock::Abort`] ends the process. Otherwise a call may
//! still return, and scheduling resumes when it does.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kumihimo_events::sched::{Starved, StarvedCause, StarvedReply};
use kumihimo_events::{Kernel, Slot};
use kumihimo_resource::id::Printed;

use crate::config::OnDeadlock;
use crate::kernel_thread::gs_record::ANNOUNCED;
use crate::memory::pool;
use crate::microprocess::identity;
use crate::microprocess::protocol::state::Phase;
use crate::observe::other_threads;
use crate::scheduler::instance::Instance;
use crate::scheduler::thread_place;

/// Minimum duration before a report if a call may still return.
const LONG: Duration = Duration::from_secs(5);
/// Maximum number of threads in a report.
const SHOWN: usize = 20;

impl Instance {
    /// Reports starvation, on the watchdog's thread.
    pub(crate) fn report_starvation(&self, starved: Starved) -> StarvedReply {
        if self.settings.on_deadlock == OnDeadlock::Ignore {
            return StarvedReply::Done;
        }
        let (runnable, due) = (self.could_run(), self.timers_due());
        if runnable + due == 0 {
            return StarvedReply::NothingWaits;
        }
        let for_good = starved.for_good && !other_threads::may_wake(|tid| self.is_in_pool(tid));
        if !for_good && starved.since < LONG {
            return StarvedReply::Later;
        }
        let what = if for_good { "deadlock" } else { "starvation" };
        let since = starved.since.as_secs_f64();
        let why = match starved.cause {
            StarvedCause::ThreadLimit => format!(
                "the limit of {} is reached and all of them have slept for {since:.1} s in calls outside of the runtime",
                self.kernel.limit()
            ),
            StarvedCause::NoSource => format!(
                "calls outside of the runtime have held virtual processors for {since:.1} s, which the event source `off` does \
                 not see"
            ),
        };
        let mut text = format!(
            "kumihimo: {what}: {why}, while {runnable} microprocesses are runnable and timers of {due} virtual processors have \
             expired:\n"
        );
        let all: Vec<_> =
            self.kernel.slots().filter(|slot| slot.tid.load(Ordering::Relaxed) != 0).collect();
        let (holders, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|slot| self.vp_in(slot).is_some());
        let mut lines = holders.iter().chain(&others).filter_map(|slot| self.sleeper(slot));
        text.extend(lines.by_ref().take(SHOWN));
        let more = lines.count();
        if more != 0 {
            let _ = writeln!(text, "  ... and {more} more");
        }
        text.push_str(match starved.cause {
            StarvedCause::ThreadLimit => {
                "  raise the limit, or block fewer microprocesses at a time: locks of kumihimo::sync need no kernel thread to wait\n"
            }
            StarvedCause::NoSource => {
                "  use another event source (KUMI_EVENTS), announce such calls by thread::blocking, or use locks of kumihimo::sync\n"
            }
        });
        eprint!("{text}");
        if for_good && self.settings.on_deadlock == OnDeadlock::Abort {
            std::process::abort();
        }
        StarvedReply::Done
    }

    /// The number of runnable microprocesses, including new ones.
    fn could_run(&self) -> usize {
        let mut live = 0;
        pool::for_each(|mp| live += usize::from(mp.state.phase() == Phase::Live));
        let on_kernel_threads =
            self.kernel.slots().filter(|slot| thread_place::has_microprocess(slot)).count();
        live.saturating_sub(on_kernel_threads)
    }

    fn timers_due(&self) -> usize {
        let now = self.now();
        self.vps.iter().filter(|vp| vp.turn_clock.is_timer_due(now)).count()
    }

    /// The VP that the thread of `slot` carries.
    fn vp_in(&self, slot: &Slot) -> Option<u32> {
        (0..self.vps.len() as u32)
            .find(|vp| self.kernel.carrier(*vp).is_some_and(|carrier| std::ptr::eq(carrier, slot)))
    }

    fn sleeper(&self, slot: &Slot) -> Option<String> {
        let id = slot.microprocess.load(Ordering::Relaxed);
        let mp = identity::find(id & !ANNOUNCED)?;
        let place = Kernel::wait_site(slot)
            .map_or_else(|| "no longer asleep".to_owned(), |place| place.to_string());
        let holds = self
            .vp_in(slot)
            .map_or_else(String::new, |vp| format!(", and holds virtual processor {vp}"));
        let (id, name, tid) = (Printed(mp.id()), mp.name_text(), slot.tid.load(Ordering::Relaxed));
        Some(format!("  microprocess {id} {name} on kernel thread {tid}: {place}{holds}\n"))
    }
}
