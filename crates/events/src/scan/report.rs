//! The watchdog's reports, and the abort that may follow them.
//!
//! The first line is formatted and written without an allocation: the offending thread may be stuck
//! inside malloc, or may hold the lock of stderr.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kumihimo_resource::id::Printed;

use super::suspicion::Culprit;
use crate::linux::debugger::is_debugged;
use crate::linux::watch::{Tid, WaitSite};
use crate::pool::kernel::Kernel;
use crate::preempt::thread_sampler;
use crate::report::stderr_signal_safe::{print_signal_safe, write_signal_safe};
use crate::watchdog::config::{OnMisbehaviour, Violation};

fn what_to_do(case: Violation) -> &'static str {
    match case {
        Violation::MaskNeverCleared => {
            "leave the NoEvents guard, or end the loop in the policy or scheduler"
        }
        Violation::BlockedNeverAnswered => "make UserScheduler::blocked return",
        Violation::NoYield => {
            "a microprocess waits that should run instead: reach a switch point, or allow interruption"
        }
        Violation::SchedulerBlocked => {
            "do not block in a NoEvents guard, a policy or a scheduler (KernelThread::rest marks an intended sleep)"
        }
    }
}

fn what_is_done(case: Violation, on: OnMisbehaviour) -> &'static str {
    match (on, case) {
        (OnMisbehaviour::End, _) => "the process aborts",
        (OnMisbehaviour::Override, Violation::NoYield) => {
            "another kernel thread takes its virtual processor over"
        }
        (OnMisbehaviour::Override, Violation::BlockedNeverAnswered) => {
            "another kernel thread replaces it, and other virtual processors take over the work that can move"
        }
        (OnMisbehaviour::Override, _) => {
            "waiters give up on its virtual processor, and others take over the work that can move"
        }
        _ => "no action is taken",
    }
}

/// The code that violates the event protocol.
enum Offender<'a> {
    Scheduler,
    Microprocess { id: Printed, name: &'a str },
}

/// Formatting allocates nothing.
impl fmt::Display for Offender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduler => f.write_str("the user scheduler"),
            Self::Microprocess { id, name } => write!(f, "microprocess {id} '{name}'"),
        }
    }
}

impl Kernel {
    /// Reports a violation, and aborts the process if so configured.
    pub(super) fn report_violation(&self, case: Violation, culprit: &Culprit<'_>) {
        let on = self.watchdog.on();
        let Culprit { vp, tid, slot, age } = culprit;
        let (ran, slept) = (Duration::from_nanos(age.ran), Duration::from_nanos(age.slept));
        let index = slot.map_or(0, |(index, _)| index);
        let mut name = [0; 64];
        let id = slot.map_or(0, |(_, slot)| slot.microprocess.load(Ordering::Relaxed));
        let n = if id == 0 {
            0
        } else {
            self.user().map_or(0, |user| user.name_of(id, &mut name)).min(name.len())
        };
        let name =
            if n == 0 { "(no name)" } else { std::str::from_utf8(&name[..n]).unwrap_or("?") };
        let accused = if case == Violation::BlockedNeverAnswered || id == 0 {
            Offender::Scheduler
        } else {
            Offender::Microprocess { id: Printed(id), name }
        };
        print_signal_safe(format_args!(
            "kumihimo: watchdog: {case}: virtual processor {vp}: kernel thread {tid} (slot {index}), {accused}: for {ran:.3?} in user mode and {slept:.3?} \
             asleep; {}; {} (KUMI_WATCHDOG)\n",
            what_to_do(case),
            what_is_done(case, on)
        ));
        self.say_where(*tid, index);
        if on == OnMisbehaviour::End {
            std::process::abort();
        }
        // Counted last, so that a reader of the count finds the whole report.
        self.watchdog
            .to_override
            .fetch_add(u64::from(on == OnMisbehaviour::Override), Ordering::Relaxed);
        self.watchdog.violations[case as usize].fetch_add(1, Ordering::Release);
    }

    /// Prints where the kernel thread is, in the kernel and in its program.
    fn say_where(&self, tid: Tid, index: u32) {
        if let Some(WaitSite { function, call, .. }) = WaitSite::of(tid) {
            print_signal_safe(format_args!(
                "  it sleeps in the kernel: {function}, system call {call}\n"
            ));
        }
        // A debugger shows the stack, and would stop at the signal.
        if index == 0 || is_debugged() {
            return;
        }
        match thread_sampler::sample(thread_sampler::TIMEOUT, |value| {
            self.doorbells.send_to(index, self.page.slot(index), tid, value)
        }) {
            Ok(stack) => {
                print_signal_safe(format_args!("  stack of kernel thread {tid}:\n"));
                write_signal_safe(stack.render().as_bytes());
            }
            Err(why) => print_signal_safe(format_args!("  no stack is available: {why}\n")),
        }
    }
}
