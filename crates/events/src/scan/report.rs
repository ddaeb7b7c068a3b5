//! What the watchdog says, and how the process ends if it is to.
//!
//! The first line is made and written without allocating: the accused may be stuck inside malloc,
//! or with stderr's lock in its hands.

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
            "it must leave its NoEvents guard, or its policy or scheduler a loop"
        }
        Violation::BlockedNeverAnswered => "UserScheduler::blocked must return",
        Violation::NoYield => {
            "something waits that goes before it: it must come to a switch point, or let itself be interrupted"
        }
        Violation::SchedulerBlocked => {
            "nothing may wait in the kernel inside a NoEvents guard, a policy or a scheduler (KernelThread::rest says that it means to)"
        }
    }
}

fn what_is_done(case: Violation, on: OnMisbehaviour) -> &'static str {
    match (on, case) {
        (OnMisbehaviour::End, _) => "the process ends",
        (OnMisbehaviour::Override, Violation::NoYield) => {
            "its virtual processor goes on under another kernel thread"
        }
        (OnMisbehaviour::Override, Violation::BlockedNeverAnswered) => {
            "another kernel thread takes its place, and what can goes to other virtual processors"
        }
        (OnMisbehaviour::Override, _) => {
            "nobody waits for its virtual processor, and what can goes to others"
        }
        _ => "nothing is done",
    }
}

/// The code that violates the event protocol.
enum Offender<'a> {
    Scheduler,
    Microprocess { id: Printed, name: &'a str },
}

/// Allocates nothing.
impl fmt::Display for Offender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduler => f.write_str("the user scheduler"),
            Self::Microprocess { id, name } => write!(f, "microprocess {id} '{name}'"),
        }
    }
}

impl Kernel {
    /// Says it; and ends the process, if that is wanted.
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
        // Last: a reader of the count has the whole report.
        self.watchdog
            .to_override
            .fetch_add(u64::from(on == OnMisbehaviour::Override), Ordering::Relaxed);
        self.watchdog.violations[case as usize].fetch_add(1, Ordering::Release);
    }

    /// Where the kernel thread is, in the kernel and in its program.
    fn say_where(&self, tid: Tid, index: u32) {
        if let Some(WaitSite { function, call, .. }) = WaitSite::of(tid) {
            print_signal_safe(format_args!(
                "  it sleeps in the kernel: {function}, system call {call}\n"
            ));
        }
        // A debugger shows it, and would stop at the signal.
        if index == 0 || is_debugged() {
            return;
        }
        match thread_sampler::sample(thread_sampler::TIMEOUT, |value| {
            self.doorbells.send_to(self.page.slot(index), tid, value)
        }) {
            Ok(stack) => {
                print_signal_safe(format_args!("  stack of kernel thread {tid}:\n"));
                write_signal_safe(stack.render().as_bytes());
            }
            Err(why) => print_signal_safe(format_args!("  its stack is not to be had: {why}\n")),
        }
    }
}
