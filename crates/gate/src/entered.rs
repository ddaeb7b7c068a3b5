//! Gates and links as resources: each has its row in the usage table as long as it lives, a gate
//! under its name (`/gate/clock`).

use std::sync::{Arc, Once};

use kumihimo_resource::id::{Id, Kind, Serial};
use kumihimo_resource::names::Name;
use kumihimo_resource::table::{Command, Error, Row, Usage};
use kumihimo_runtime::kind_table::Entries;
use kumihimo_runtime::membership;

/// How a gate or a link is seen and ended from outside. The table keeps it, so it does not own its
/// [`Entered`].
pub(crate) trait Shown: Send + Sync {
    /// Its state, in a line: the caller, and how often. Called while nothing else of the kind can
    /// be looked at: it takes no lock, and does not block.
    fn state(&self) -> String;
    /// It is asked to end, by a thread that has its id. It ends later, on another kernel thread or
    /// microprocess: with locking design `kind` all resources of its kind are locked meanwhile, so
    /// no [`Entered`] is made or dropped here. [`Link::close`](crate::link::Link::close) is right.
    fn cancel(&self);
}

static GATES: Entries<Arc<dyn Shown>> = Entries::new(Kind::GATE);
static LINKS: Entries<Arc<dyn Shown>> = Entries::new(Kind::LINK);

/// A place in the table, until it is dropped.
pub(crate) struct Entered {
    of: &'static Entries<Arc<dyn Shown>>,
    /// None where the table is full: it works all the same, and nobody finds it there.
    serial: Option<Serial>,
}

/// A gate called `name`.
pub(crate) fn gate(name: &str, shown: Arc<dyn Shown>) -> Entered {
    let entered = Entered::open(&GATES, shown);
    if let (Some(id), Ok(name)) = (entered.id(), Name::new(Kind::GATE, name)) {
        // An application may have given that name to another gate: this one is found by its id
        // then.
        let _ = membership::table().name(&name, id);
    }
    entered
}

/// One side of a link.
pub(crate) fn link(shown: Arc<dyn Shown>) -> Entered {
    Entered::open(&LINKS, shown)
}

impl Entered {
    fn open(of: &'static Entries<Arc<dyn Shown>>, shown: Arc<dyn Shown>) -> Entered {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let table = membership::table();
            let _ = table.define(&Kinds::Gates);
            let _ = table.define(&Kinds::Links);
        });
        Entered { of, serial: of.open(shown).ok() }
    }

    pub(crate) fn id(&self) -> Option<Id> {
        self.serial.map(|serial| self.of.id(serial))
    }
}

impl std::fmt::Debug for Entered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entered").field("id", &self.id()).finish()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(serial) = self.serial {
            let _ = self.of.close(serial);
        }
    }
}

enum Kinds {
    Gates,
    Links,
}

impl Kinds {
    fn entries(&self) -> &'static Entries<Arc<dyn Shown>> {
        match self {
            Kinds::Gates => &GATES,
            Kinds::Links => &LINKS,
        }
    }
}

impl Row for Kinds {
    fn kind(&self) -> Kind {
        match self {
            Kinds::Gates => Kind::GATE,
            Kinds::Links => Kind::LINK,
        }
    }

    /// How it is.
    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        let state = self.entries().with(serial, |shown| shown.state())?;
        into.extend_from_slice(state.as_bytes());
        Ok(state.len())
    }

    /// `Cancel` ends it.
    fn control(&self, serial: Serial, command: &Command<'_>) -> Result<(), Error> {
        match command {
            Command::Cancel => {
                // Its own lock is not held while it is told.
                let shown = self.entries().with(serial, |shown| shown.clone())?;
                shown.cancel();
                Ok(())
            }
            other => Err(Error::Invalid(format!("a {} knows no {other:?}", self.kind()))),
        }
    }

    fn usage(&self, each: &mut dyn FnMut(Usage)) {
        self.entries().usage(each, |shown| shown.state());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use kumihimo_resource::table::table;

    use super::*;

    #[derive(Default)]
    struct Clock(AtomicBool);

    impl Shown for Clock {
        fn state(&self) -> String {
            if self.0.load(Ordering::Relaxed) {
                "ending".into()
            } else {
                "3 callers, 7 calls".into()
            }
        }

        fn cancel(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_gate_is_found_by_name_read_and_ended() {
        let clock = Arc::new(Clock::default());
        let (gate, link) = (gate("a clock", clock.clone()), link(Arc::new(Clock::default())));
        let (id, other) = (gate.id().unwrap(), link.id().unwrap());
        assert_eq!((id.kind(), other.kind()), (Kind::GATE, Kind::LINK));
        assert_eq!(table().names().find(&Name::parse("/gate/a clock").unwrap()), Ok(id));
        let mut state = Vec::new();
        table().read(id, &mut state).unwrap();
        assert_eq!(String::from_utf8(state).unwrap(), "3 callers, 7 calls");
        assert!(matches!(table().control(other, &Command::Suspend), Err(Error::Invalid(_))));
        table().control(id, &Command::Cancel).unwrap();
        assert_eq!(clock.state(), "ending");
        drop((gate, link));
        assert!(matches!(table().control(id, &Command::Cancel), Err(Error::Stale(_))));
        assert!(table().names().find(&Name::parse("/gate/a clock").unwrap()).is_err());
        assert_eq!(Arc::strong_count(&clock), 1);
    }
}
