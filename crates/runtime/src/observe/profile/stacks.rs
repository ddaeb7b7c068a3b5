//! The stacks of all microprocesses at one moment, or rather one after another.

use std::sync::atomic::Ordering;

use kumihimo_backtrace::{Trace, Walker};
use kumihimo_machine::handler::Refused;
use kumihimo_machine::profile::ProfileStack;

use super::waits::state_of;
use super::{Session, name_of, visit};
use crate::memory::pool;
use crate::microprocess::protocol::state::Phase;
use crate::microprocess::record::Ref;
use crate::observe::dump;
use crate::scheduler::instance::Instance;
use crate::scheduler::thread_place;

/// Reads all stacks once. Each microprocess counts as one sample, with the time for which its wait
/// has lasted.
pub(super) fn run(mut session: Session<'_>, mut walker: Walker) -> Result<(), Refused> {
    session.send(true)?;
    let mut all = Vec::new();
    pool::for_each(|mp| all.push(mp.reference()));
    for who in all {
        // Visited separately for each one, because the runtime may end meanwhile.
        let Some((state, trace, ns)) = visit(|instance| see(instance, who, &mut walker))? else {
            continue;
        };
        let trace = trace.unwrap_or_default();
        let stack = ProfileStack {
            is_cut: trace.cut || trace.frames.is_empty(),
            frames: if trace.frames.is_empty() {
                trace.begins_with.into_iter().collect()
            } else {
                trace.frames
            },
            name: name_of(who.mp),
            state,
        };
        if !who.is_current() {
            continue;
        }
        let number = session.table.number(stack);
        session.table.add(number, 1, ns);
        session.send(false)?;
        if !session.wait(std::time::Duration::ZERO) {
            break;
        }
    }
    session.send(true)
}

/// Returns the state of a living microprocess, its stack, and how long its wait has lasted.
fn see(instance: &Instance, who: Ref, walker: &mut Walker) -> Option<(String, Option<Trace>, u64)> {
    let mp = who.mp;
    match mp.state.phase() {
        Phase::Parked => {
            let ns = instance.now().saturating_sub(mp.waits_since.load(Ordering::Relaxed));
            let place =
                if mp.sticky.reason().is_some() { thread_place::on(instance, who) } else { None };
            let trace = match place {
                Some(place) => place.trace(instance, who, walker),
                None => dump::still(who, walker),
            };
            Some((state_of(mp), trace, ns))
        }
        Phase::Suspended => Some(("suspended".into(), dump::still(who, walker), 0)),
        Phase::Live => Some(match thread_place::on(instance, who) {
            Some(place) => {
                let state = if place.call.is_some() { "in a system call" } else { "running" };
                (state.into(), place.trace(instance, who, walker), 0)
            }
            None if dump::waits_for_its_turn(mp) => ("back from the kernel".into(), None, 0),
            None => ("runnable".into(), dump::still(who, walker), 0),
        }),
        Phase::Free | Phase::Done | Phase::Abandoned => None,
    }
}
