//! The row of a mailbox in the resource table, and the lock of all mailboxes, where there is one.

use std::sync::{MutexGuard, Once};

use kumihimo_resource::id::{Id, Kind, Serial};
use kumihimo_resource::table::{Error, Row, Usage, has_whole_kinds, table};
use kumihimo_runtime::NoEvents;
use kumihimo_runtime::kind_table::Entries;

/// How a mailbox is seen: clients whose request was not received, those whose request was, servers
/// that wait.
pub(crate) type CountWaiters = unsafe fn(*const ()) -> [usize; 3];

/// The lock, and then the events. Boxed, so that where there is none nothing is carried about
/// but a null.
pub(crate) type KindGuard = Option<Box<(MutexGuard<'static, ()>, NoEvents)>>;

#[inline(always)]
pub(crate) fn enter_kind() -> KindGuard {
    if has_whole_kinds() { wait() } else { None }
}

#[cold]
#[inline(never)]
fn wait() -> KindGuard {
    // First: the holder keeps its virtual processor.
    let quiet = NoEvents::new();
    table().enter(Kind::MAILBOX).map(|held| Box::new((held, quiet)))
}

/// A mailbox that is there: it is taken out before it goes.
#[derive(Clone, Copy)]
struct MailboxRef(*const (), CountWaiters);

// SAFETY: followed only while its entry is held, which keeps the mailbox from going;
// `CountWaiters` takes the mailbox's lock.
unsafe impl Send for MailboxRef {}

static MAILBOXES: Entries<MailboxRef> = Entries::new(Kind::MAILBOX);

struct Mailboxes;

impl MailboxRef {
    fn text(&self) -> String {
        // SAFETY: the entry is held.
        let [waiting, taken, servers] = unsafe { (self.1)(self.0) };
        format!("{waiting} requests wait, {taken} are being served, {servers} servers wait")
    }
}

impl Row for Mailboxes {
    fn kind(&self) -> Kind {
        Kind::MAILBOX
    }

    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        let text = MAILBOXES.with(serial, |there| there.text())?;
        into.extend_from_slice(text.as_bytes());
        Ok(text.len())
    }

    fn usage(&self, each: &mut dyn FnMut(Usage)) {
        MAILBOXES.usage(each, MailboxRef::text);
    }
}

/// A mailbox's place in the table.
#[derive(Debug)]
pub(crate) struct TableEntry(Option<Serial>);

impl TableEntry {
    /// # Safety
    /// `count_waiters` can be called with `core` until the entry is dropped.
    pub(crate) unsafe fn open(core: *const (), count_waiters: CountWaiters) -> TableEntry {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| drop(kumihimo_runtime::membership::table().define(&Mailboxes)));
        TableEntry(MAILBOXES.open(MailboxRef(core, count_waiters)).ok())
    }

    pub(crate) fn id(&self) -> Option<Id> {
        self.0.map(|serial| MAILBOXES.id(serial))
    }
}

impl Drop for TableEntry {
    fn drop(&mut self) {
        if let Some(serial) = self.0 {
            let _ = MAILBOXES.close(serial);
        }
    }
}
