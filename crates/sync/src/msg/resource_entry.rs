//! Rows of mailboxes in the resource table, and the lock around all mailboxes under locking design
//! `kind`.

use std::sync::{MutexGuard, Once};

use kumihimo_resource::id::{Id, Kind, Serial};
use kumihimo_resource::table::{Error, Row, Usage, has_whole_kinds, table};
use kumihimo_runtime::NoEvents;
use kumihimo_runtime::kind_table::Entries;

/// Counts the waiters of a mailbox: clients whose request was not received, clients whose request
/// was received, and waiting servers.
pub(crate) type CountWaiters = unsafe fn(*const ()) -> [usize; 3];

/// The lock around all mailboxes, and the guard that keeps events off. Boxed, so that without that
/// lock the guard is only a null pointer.
pub(crate) struct KindGuard(Option<Box<(MutexGuard<'static, ()>, NoEvents)>>);

#[inline(always)]
pub(crate) fn enter_kind() -> KindGuard {
    KindGuard(if has_whole_kinds() { wait() } else { None })
}

#[cold]
#[inline(never)]
fn wait() -> Option<Box<(MutexGuard<'static, ()>, NoEvents)>> {
    // Events are off before the lock is taken: the holder must keep its VP.
    let quiet = NoEvents::new();
    table().enter(Kind::MAILBOX).map(|held| Box::new((held, quiet)))
}

impl Drop for KindGuard {
    // Part of each operation on a mailbox: without this the compiler calls a function that finds
    // the null pointer.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            leave(held);
        }
    }
}

#[cold]
#[inline(never)]
fn leave(held: Box<(MutexGuard<'static, ()>, NoEvents)>) {
    drop(held);
}

/// Pointer to a mailbox. The mailbox closes its entry before it is dropped.
#[derive(Clone, Copy)]
struct MailboxRef(*const (), CountWaiters);

// SAFETY: dereferenced only while its entry is held, which keeps the mailbox alive; `CountWaiters`
// takes the mailbox's lock.
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

/// Entry of a mailbox in the resource table; closed on drop.
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
