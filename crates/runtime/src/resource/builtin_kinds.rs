//! The runtime's rows of the resource table: the address space, its VPs, and microprocesses.
//!
//! A microprocess is three resources, as a process of paper P3 is six: the microprocess itself, its
//! stack with the TLS block, and its share of the processor. A timer is a fourth while one is
//! armed.
//!
//! All these kinds share the management table of the records (`pool.rs`, `identity.rs`): parts have
//! the serial of their microprocess.

use std::any::Any;
use std::sync::Once;
use std::sync::atomic::Ordering;

use kumihimo_policy::Priority;
use kumihimo_resource::id::{Kind, Serial};
use kumihimo_resource::table::{Command, Error, Row, Table, Usage};

use crate::lifecycle::suspend;
use crate::lifecycle::thread_builder::Builder;
use crate::memory::pool;
use crate::microprocess::protocol::state::Phase;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::wait_reason::Wait;
use crate::microprocess::waiter::Waiter;
use crate::microprocess::{id_prefix, identity};
use crate::scheduler::{instance, reprioritise};
use crate::wait::cancel;

/// Order to `open` a microprocess: its closure and its settings, which `open` takes out.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Begin, Kind, table};
/// use kumihimo::thread;
/// use std::sync::mpsc;
///
/// let (sender, name) = mpsc::channel();
/// let mut order = Begin {
///     builder: Some(thread::Builder::new().name("opened".to_owned())),
///     run: Some(Box::new(move || {
///         sender.send(thread::current().name().map(str::to_owned)).unwrap();
///     })),
/// };
/// table().open(Kind::MICROPROCESS, &mut order)?;
/// assert_eq!(name.recv()?.as_deref(), Some("opened"));
/// assert!(order.run.is_none(), "`open` has taken it");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Begin {
    /// The settings.
    pub builder: Option<Builder>,
    /// The closure. The handle of the microprocess is dropped, so it is detached.
    pub run: Option<Box<dyn FnOnce() + Send>>,
}

/// Defines the kinds, once per process.
pub(crate) fn define(table: &Table) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let rows: [&'static dyn Row; 6] =
            [&Space, &Microprocesses, &Part::Stack, &Part::Share, &Part::Timer, &Vps];
        for row in rows {
            // Kind numbers are unique. A kind that was defined before has taken its place.
            let _ = table.define(row);
        }
    });
}

fn find(kind: Kind, serial: Serial) -> Result<Ref, Error> {
    let stale = || Error::Stale(kumihimo_resource::table::table().id(kind, serial));
    let found = identity::find(id_prefix::id(serial.bits())).map(Mp::reference);
    found.filter(|who| who.generation == serial.bits() && who.is_alive()).ok_or_else(stale)
}

/// Visits all living microprocesses.
fn living(mut each: impl FnMut(Ref)) {
    pool::for_each(|mp| {
        let who = mp.reference();
        if who.is_alive() {
            each(who);
        }
    });
}

fn said(what: &str, into: &mut Vec<u8>) -> usize {
    into.extend_from_slice(what.as_bytes());
    what.len()
}

struct Microprocesses;

impl Microprocesses {
    fn state(who: Ref) -> String {
        let suspended = if who.mp.state.is_suspended() { ", suspended" } else { "" };
        match who.mp.state.phase() {
            Phase::Suspended => "suspended".into(),
            Phase::Parked => {
                let what = who
                    .mp
                    .waits_for()
                    .map_or_else(|| "nothing known".into(), |wait| wait.to_string());
                format!("waits for {what}{suspended}")
            }
            _ => format!("runs or is queued{suspended}"),
        }
    }
}

impl Row for Microprocesses {
    fn kind(&self) -> Kind {
        Kind::MICROPROCESS
    }

    fn open(&self, order: &mut dyn Any) -> Result<Serial, Error> {
        let wanted =
            || Error::Invalid("a microprocess is opened with a kumihimo::resource::Begin".into());
        let Begin { builder, run } = order.downcast_mut::<Begin>().ok_or_else(wanted)?;
        let run = run.take().ok_or_else(wanted)?;
        let handle = builder.take().unwrap_or_default().spawn(run)?;
        match handle.thread().id().resource() {
            Some(id) => Ok(id.serial()),
            None => Err(Error::Invalid(
                "microprocesses are kernel threads here (1:1), not resources".into(),
            )),
        }
    }

    /// Requests the cancellation: see [`crate::api::thread::Thread::cancel`].
    fn close(&self, serial: Serial) -> Result<(), Error> {
        cancel::request(&Waiter::of(find(Kind::MICROPROCESS, serial)?));
        Ok(())
    }

    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        let who = find(Kind::MICROPROCESS, serial)?;
        Ok(said(&format!("{} {}", who.mp.name_text(), Self::state(who)), into))
    }

    fn control(&self, serial: Serial, command: &Command<'_>) -> Result<(), Error> {
        let who = find(Kind::MICROPROCESS, serial)?;
        match command {
            Command::Suspend => drop(suspend::ask(who)),
            Command::Resume => drop(suspend::resume(who)),
            Command::Cancel => cancel::request(&Waiter::of(who)),
            Command::Priority(_) => return Part::Share.control(serial, command),
            other => {
                return Err(Error::Invalid(format!("a microprocess does not support {other:?}")));
            }
        }
        Ok(())
    }

    fn usage(&self, each: &mut dyn FnMut(Usage)) {
        living(|who| {
            let owner =
                Some((Kind::VP, Serial::new(u32::from(who.mp.home.load(Ordering::Relaxed)), 0)));
            each(Usage {
                serial: Serial::from_bits(who.generation),
                owner,
                state: Self::state(who),
            });
        });
    }
}

/// A part of a microprocess, which exists as long as the microprocess lives, or waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Stack,
    Share,
    Timer,
}

impl Part {
    fn has(self, who: Ref) -> bool {
        self != Part::Timer
            || who.mp.state.phase() == Phase::Parked
                && who.mp.wait_kind.load(Ordering::Relaxed) & Wait::TIMED != 0
    }

    fn state(self, who: Ref) -> String {
        let mp = who.mp;
        match self {
            Part::Stack => {
                let (low, _) = pool::bounds(mp);
                let tls = if mp.fs.get() == 0 { "no TLS block" } else { "with TLS block" };
                format!("{} KiB, {tls}", (mp.stack_top().addr() - low.addr()) >> 10)
            }
            Part::Share => {
                let lent = mp.inherited().map_or_else(String::new, |lent| format!(", lent {lent}"));
                format!("priority {}{lent}", mp.priority.load(Ordering::Relaxed))
            }
            Part::Timer => instance::visit(|instance| {
                instance.map_or_else(String::new, |instance| {
                    let left = mp.timer_at.load(Ordering::Relaxed).saturating_sub(instance.now());
                    format!("due in {:?}", std::time::Duration::from_nanos(left))
                })
            }),
        }
    }

    fn find(self, serial: Serial) -> Result<Ref, Error> {
        let who = find(self.kind(), serial)?;
        if self.has(who) {
            Ok(who)
        } else {
            Err(Error::Stale(kumihimo_resource::table::table().id(self.kind(), serial)))
        }
    }
}

impl Row for Part {
    fn kind(&self) -> Kind {
        match self {
            Part::Stack => Kind::STACK,
            Part::Share => Kind::SHARE,
            Part::Timer => Kind::TIMER,
        }
    }

    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        Ok(said(&self.state(self.find(serial)?), into))
    }

    /// A share accepts a priority.
    fn control(&self, serial: Serial, command: &Command<'_>) -> Result<(), Error> {
        let who = self.find(serial)?;
        match (self, command) {
            (Part::Share, Command::Priority(level)) => {
                let level = Priority::new(*level).map_err(|e| Error::Invalid(e.to_string()))?;
                reprioritise::set(who, level);
                Ok(())
            }
            (_, other) => {
                Err(Error::Invalid(format!("a {} does not support {other:?}", self.kind())))
            }
        }
    }

    fn usage(&self, each: &mut dyn FnMut(Usage)) {
        living(|who| {
            if self.has(who) {
                let serial = Serial::from_bits(who.generation);
                each(Usage {
                    serial,
                    owner: Some((Kind::MICROPROCESS, serial)),
                    state: self.state(who),
                });
            }
        });
    }
}

struct Vps;

impl Vps {
    fn each(mut each: impl FnMut(Serial, String)) {
        instance::visit(|instance| {
            for vp in instance.iter().flat_map(|instance| &instance.vps) {
                let state = if vp.idle.is_parked() {
                    "retired"
                } else if vp.idle.cell.is_sleeping() {
                    "sleeps"
                } else {
                    "runs"
                };
                let switches = vp.counters.switches.load(Ordering::Relaxed);
                let queued = vp.instance().queues.shown(vp.index).0;
                each(
                    Serial::new(vp.index as u32, 0),
                    format!("{state}; {switches} switches, {queued} queued"),
                );
            }
        });
    }
}

impl Row for Vps {
    fn kind(&self) -> Kind {
        Kind::VP
    }

    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        let mut text = None;
        Vps::each(|at, state| {
            if at == serial {
                text = Some(state);
            }
        });
        let text = text
            .ok_or_else(|| Error::Stale(kumihimo_resource::table::table().id(Kind::VP, serial)))?;
        Ok(said(&text, into))
    }

    fn usage(&self, each: &mut dyn FnMut(Usage)) {
        Vps::each(|serial, state| {
            each(Usage { serial, owner: Some((Kind::SPACE, Serial::new(0, 0))), state })
        });
    }
}

struct Space;

impl Row for Space {
    fn kind(&self) -> Kind {
        Kind::SPACE
    }

    fn read(&self, _: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        Ok(said(&Self::state(), into))
    }

    fn usage(&self, each: &mut dyn FnMut(Usage)) {
        each(Usage { serial: Serial::new(0, 0), owner: None, state: Self::state() });
    }
}

impl Space {
    fn state() -> String {
        let living = instance::visit(|instance| instance.map(|instance| instance.living()));
        match living {
            Some(n) => format!("process {}, {n} microprocesses", std::process::id()),
            None => format!("process {}, no runtime runs", std::process::id()),
        }
    }
}
