//! Gates and links as resources: each has its row in the usage table as long as it lives, a gate
//! under its name (`/gate/clock`).

use std::sync::{Arc, Once};

use kumihimo_resource::id::{Id, Kind, Serial};
use kumihimo_resource::names::Name;
use kumihimo_resource::table::{Command, Error, Row, Usage};
use kumihimo_runtime::kind_table::Entries;
use kumihimo_runtime::membership;

/// Shows the state of a gate or link, and ends it, for the resource table. The table keeps it, so
/// it does not own its [`ResourceEntry`].
pub(crate) trait Inspect: Send + Sync {
    /// Its state, in a line: the peer, and the number of calls. Called while all of its kind are
    /// locked: it takes no lock, and does not block.
    fn state(&self) -> String;
    /// Begins the end of the gate or link, for a thread that has its id. It ends later, on another
    /// kernel thread or microprocess. Locking design `kind` locks all resources of the kind
    /// meanwhile, so this makes and drops no [`ResourceEntry`];
    /// [`Link::close`](crate::link::socket::Link::close) is allowed.
    fn cancel(&self);
}

static GATES: Entries<Arc<dyn Inspect>> = Entries::new(Kind::GATE);
static LINKS: Entries<Arc<dyn Inspect>> = Entries::new(Kind::LINK);

/// An entry in the resource table, until it is dropped.
pub(crate) struct ResourceEntry {
    of: &'static Entries<Arc<dyn Inspect>>,
    /// `None` where the table is full: the gate or link works, without an id.
    serial: Option<Serial>,
}

/// A gate called `name`.
pub(crate) fn gate(name: &str, resource: Arc<dyn Inspect>) -> ResourceEntry {
    let entry = ResourceEntry::open(&GATES, resource);
    if let (Some(id), Ok(name)) = (entry.id(), Name::new(Kind::GATE, name)) {
        // The application may have given that name to another gate: this one is then found by its
        // id alone.
        let _ = membership::table().name(&name, id);
    }
    entry
}

/// One side of a link.
pub(crate) fn link(resource: Arc<dyn Inspect>) -> ResourceEntry {
    ResourceEntry::open(&LINKS, resource)
}

impl ResourceEntry {
    fn open(of: &'static Entries<Arc<dyn Inspect>>, resource: Arc<dyn Inspect>) -> ResourceEntry {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let table = membership::table();
            let _ = table.define(&GateRow::Gates);
            let _ = table.define(&GateRow::Links);
        });
        ResourceEntry { of, serial: of.open(resource).ok() }
    }

    pub(crate) fn id(&self) -> Option<Id> {
        self.serial.map(|serial| self.of.id(serial))
    }
}

impl std::fmt::Debug for ResourceEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceEntry").field("id", &self.id()).finish()
    }
}

impl Drop for ResourceEntry {
    fn drop(&mut self) {
        if let Some(serial) = self.serial {
            let _ = self.of.close(serial);
        }
    }
}

enum GateRow {
    Gates,
    Links,
}

impl GateRow {
    fn entries(&self) -> &'static Entries<Arc<dyn Inspect>> {
        match self {
            GateRow::Gates => &GATES,
            GateRow::Links => &LINKS,
        }
    }
}

impl Row for GateRow {
    fn kind(&self) -> Kind {
        match self {
            GateRow::Gates => Kind::GATE,
            GateRow::Links => Kind::LINK,
        }
    }

    /// How it is.
    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        let state = self.entries().with(serial, |resource| resource.state())?;
        into.extend_from_slice(state.as_bytes());
        Ok(state.len())
    }

    /// `Cancel` ends it.
    fn control(&self, serial: Serial, command: &Command<'_>) -> Result<(), Error> {
        match command {
            Command::Cancel => {
                // `cancel` is called without the lock of the entry.
                let resource = self.entries().with(serial, |resource| resource.clone())?;
                resource.cancel();
                Ok(())
            }
            other => Err(Error::Invalid(format!("a {} knows no {other:?}", self.kind()))),
        }
    }

    fn usage(&self, each: &mut dyn FnMut(Usage)) {
        self.entries().usage(each, |resource| resource.state());
    }
}

#[cfg(test)]
mod tests;
