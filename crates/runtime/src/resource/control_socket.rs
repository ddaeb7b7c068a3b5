//! Handler of requests at this address space's control socket ([`kumihimo_machine::handler`]).
//!
//! It runs on the control kernel thread, which does not belong to the runtime, and visits the
//! instance that runs at that moment, if any. It reads what carriers and wakers write, with plain
//! loads. It stops no thread, except one whose backtrace is requested while it runs.

use std::io;
use std::sync::OnceLock;

use kumihimo_machine::handler::{
    Action, ControlHandler, Done, Metric, Microprocess, ProfileClient, Refused, Resource, Space,
};
use kumihimo_machine::locks::{LockItem, Locks, MOST_LOCKS};
use kumihimo_machine::profile::ProfileQuery;
use kumihimo_machine::top::{TopItem, TopQuery};
use kumihimo_resource::id::{Id, Kind, Serial};
use kumihimo_resource::table::{Command, Error, table};

use crate::kernel_thread::{affinity, kernel_slice};
use crate::lifecycle::suspend::{self, Suspended};
use crate::memory::pool;
use crate::microprocess::identity;
use crate::microprocess::record::{Mp, Ref};
use crate::observe::holders::{self, Holders, Waiting};
use crate::observe::locks::Snapshot;
use crate::observe::{dump, exact, metrics, profile};
use crate::process::board;
use crate::process::mode::{Mode, mode};
use crate::resource::threads::Threads;
use crate::resource::top;
use crate::scheduler::instance::{self, Instance};

/// The control socket's view of the process, whichever runtime runs.
#[derive(Debug)]
pub(crate) struct ControlSocket;

/// Reads the metrics of gates, which are a crate above this one.
pub(crate) static GATE_METRICS: OnceLock<fn() -> Vec<Metric>> = OnceLock::new();

/// Finds the living microprocess with that ID.
fn find(id: Id) -> Result<Ref, Refused> {
    if id.location() != table().location() {
        return Err(Refused::Wrong(format!(
            "{id} is in another address space; this one is number {}",
            table().location().space()
        )));
    }
    if id.kind() != Kind::MICROPROCESS {
        return Err(Refused::Wrong(format!("{id} is a {}, not a microprocess", id.kind())));
    }
    let found = identity::find(id.bits().get())
        .map(Mp::reference)
        .filter(|who| who.id() == id.bits().get() && who.is_alive());
    found.ok_or_else(|| stale(id))
}

fn stale(id: Id) -> Refused {
    Refused::Stale(format!("microprocess {id} has ended, or never was"))
}

/// Converts an error of the table for the requesting process.
fn refused(e: Error) -> Refused {
    let text = e.to_string();
    match e {
        Error::Stale(_) => Refused::Stale(text),
        Error::Elsewhere(_) => Refused::Wrong(text),
        Error::Unsupported(..) | Error::NoKind(_) => Refused::Unsupported(text),
        Error::Invalid(_) | Error::Name(_) => Refused::Invalid(text),
        _ => Refused::Failed(text),
    }
}

fn no_microprocesses() -> Refused {
    Refused::Unsupported(
        "microprocesses are kernel threads in that address space (1:1): use the system's tools for those".into(),
    )
}

impl ControlHandler for ControlSocket {
    fn on_listening(&self, number: u16) {
        // Shortened, because a VP that must leave a core has to be notified before the thread that
        // computes there has used up its slice.
        kernel_slice::shorten();
        board::listens(number);
    }

    fn on_notification(&self, from: u32) {
        instance::visit(|instance| instance.map(Instance::told));
        affinity::keep_off(from);
    }

    fn space(&self) -> Space {
        let m = metrics::metrics();
        let text = |of: fn(&metrics::Metrics) -> &str| {
            m.as_ref().map_or(String::new(), |m| of(m).to_owned())
        };
        Space {
            id: table().id(Kind::SPACE, Serial::new(0, 0)),
            pid: std::process::id(),
            program: std::env::current_exe()
                .map_or_else(|_| "?".into(), |path| path.display().to_string()),
            version: env!("CARGO_PKG_VERSION").into(),
            vps: m.as_ref().map_or(0, |m| m.open_vps as u16),
            living: m.as_ref().map_or(0, |m| m.living),
            queue: text(|m| m.queue),
            policy: text(|m| &m.policy),
            events: m.as_ref().map_or(String::new(), metrics::Metrics::sources),
            locking: table().locking().to_string(),
            mode: mode().to_string(),
            why: match mode() {
                Mode::Microprocesses => None,
                Mode::KernelThreads { why } => Some(why.to_owned()),
            },
            kernel_threads: m.as_ref().map_or(0, |m| m.kernel_threads as u32),
            most_kernel_threads: m.as_ref().map_or(0, |m| m.kernel_thread_limit as u32),
        }
    }

    fn microprocesses(&self, each: &mut dyn FnMut(Microprocess)) {
        let Some(threads) = instance::visit(|instance| instance.map(Threads::of)) else { return };
        let holders = Holders::of(&holders::waiting_for_locks());
        // Records live for ever, so the runtime may end meanwhile.
        pool::for_each(|mp| {
            if let Some(seen) = threads.see(mp, &holders) {
                each(seen);
            }
        });
    }

    fn microprocess(&self, id: Id) -> Result<Microprocess, Refused> {
        let who = find(id)?;
        let threads =
            instance::visit(|instance| instance.map(Threads::of)).ok_or_else(|| stale(id))?;
        let holders = Holders::of(&Waiting::of(who.mp));
        threads.see(who.mp, &holders).filter(|seen| seen.id == id).ok_or_else(|| stale(id))
    }

    fn resources(&self, kind: Option<Kind>, each: &mut dyn FnMut(Resource)) {
        let table = table();
        table.usage(kind, &mut |id, usage| {
            let names =
                if table.has_names(id.kind()) { table.names().of_id(id) } else { Vec::new() };
            each(Resource {
                id,
                owner: usage.owner.map(|(kind, serial)| table.id(kind, serial)),
                state: usage.state,
                names: names.iter().map(ToString::to_string).collect(),
            });
        });
    }

    fn act(&self, id: Id, action: Action) -> Result<Done, Refused> {
        if matches!((id.kind(), action), (Kind::GATE | Kind::LINK, Action::Cancel)) {
            return table().control(id, &Command::Cancel).map(|()| Done::Asked).map_err(refused);
        }
        if Instance::one_to_one() {
            return Err(no_microprocesses());
        }
        let who = find(id)?;
        let was_suspended = who.mp.state.is_suspended();
        let command = match action {
            Action::Suspend => Command::Suspend,
            Action::Resume => Command::Resume,
            Action::Cancel => Command::Cancel,
            Action::Priority(level) => Command::Priority(level),
        };
        table().control(id, &command).map_err(refused)?;
        match action {
            Action::Suspend if was_suspended => Ok(Done::Already),
            Action::Resume if !was_suspended => Ok(Done::Already),
            Action::Suspend => match suspend::await_stop(who) {
                Suspended::Now => Ok(Done::Now),
                Suspended::Already => Ok(Done::Already),
                Suspended::OnReturn => Ok(Done::OnReturn),
                Suspended::Asked => Ok(Done::Asked),
                Suspended::Gone => Err(stale(id)),
            },
            Action::Cancel => Ok(Done::Asked),
            Action::Resume | Action::Priority(_) => Ok(Done::Now),
        }
    }

    fn backtrace(&self, id: Id) -> Result<String, Refused> {
        if Instance::one_to_one() {
            return Err(no_microprocesses());
        }
        let who = find(id)?;
        dump::one(who).ok_or_else(|| stale(id))
    }

    fn top(&self, query: &TopQuery, each: &mut dyn FnMut(TopItem)) -> Result<(), Refused> {
        if Instance::one_to_one() {
            return Err(no_microprocesses());
        }
        top::answer(query, each);
        Ok(())
    }

    fn end_top(&self, session: u64) {
        exact::set_by_session(session, false);
    }

    fn locks(&self, limit: u32, each: &mut dyn FnMut(LockItem)) -> Result<(), Refused> {
        if Instance::one_to_one() {
            return Err(no_microprocesses());
        }
        let most = limit.min(MOST_LOCKS) as usize;
        let report = Snapshot::take().map_or_else(Locks::default, |seen| seen.report(most));
        each(LockItem::Totals(report.totals));
        report.locks.into_iter().for_each(|lock| each(LockItem::Lock(Box::new(lock))));
        report.chains.into_iter().for_each(|chain| each(LockItem::Chain(chain)));
        Ok(())
    }

    fn profile(&self, query: &ProfileQuery, client: &mut dyn ProfileClient) -> Result<(), Refused> {
        profile::run(query, client)
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut all = metrics::metrics().map_or_else(Vec::new, |m| m.families());
        all.extend(GATE_METRICS.get().map_or_else(Vec::new, |read| read()));
        all
    }

    fn trace(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let session =
            instance::visit(|instance| instance.and_then(|instance| instance.trace.clone()));
        match session {
            Some(session) => session.so_far(out),
            None => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "nothing is traced in that address space: start it with `kumi trace`, KUMI_TRACE=FILE or Builder::trace",
            )),
        }
    }
}
