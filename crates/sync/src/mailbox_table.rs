//! Mailboxes as resources: the resource table decides which lock guards one, and each has its row
//! in the usage table.

use std::ops::{Deref, DerefMut};

use crate::list_lock::{ListLock, ListLockGuard};
use crate::lockrank::Rank;

/// The state of a mailbox. Its spin lock is the resource's own (`id`; what `vp` calls a claim);
/// with `kind` there is one lock for all mailboxes around it.
pub(crate) struct MailboxState<T> {
    state: ListLock<T>,
}

pub(crate) struct MailboxGuard<'a, T> {
    guard: ListLockGuard<'a, T>,
    /// After it.
    _kind: whole_kind::KindGuard,
}

impl<T> MailboxState<T> {
    #[inline(always)]
    pub(crate) fn lock(&self) -> MailboxGuard<'_, T> {
        let kind = whole_kind::enter();
        MailboxGuard { guard: self.state.lock(), _kind: kind }
    }
}

impl<T> Deref for MailboxGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MailboxGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A spin lock for the state of a mailbox.
pub(crate) fn state<T>(value: T) -> MailboxState<T> {
    MailboxState { state: ListLock::new(Rank::List, value) }
}

/// How a mailbox is seen: clients whose request was not received, those whose request was, servers
/// that wait.
pub(crate) type CountWaiters = unsafe fn(*const ()) -> [usize; 3];

#[cfg(not(loom))]
mod whole_kind {
    use std::sync::MutexGuard;

    use kumihimo_resource::id::Kind;
    use kumihimo_resource::table::{has_whole_kinds, table};
    use kumihimo_runtime::NoEvents;

    /// The lock, and then the events. Boxed, so that where there is none nothing is carried about
    /// but a null.
    pub(crate) type KindGuard = Option<Box<(MutexGuard<'static, ()>, NoEvents)>>;

    #[inline(always)]
    pub(crate) fn enter() -> KindGuard {
        if has_whole_kinds() { wait() } else { None }
    }

    #[cold]
    #[inline(never)]
    fn wait() -> KindGuard {
        // First: the holder keeps its virtual processor.
        let quiet = NoEvents::new();
        table().enter(Kind::MAILBOX).map(|held| Box::new((held, quiet)))
    }
}

#[cfg(loom)]
mod whole_kind {
    pub(crate) type KindGuard = ();
    pub(crate) fn enter() {}
}

#[cfg(not(loom))]
mod entry {
    use std::sync::Once;

    use kumihimo_resource::id::{Id, Kind, Serial};
    use kumihimo_resource::table::{Error, Row, Usage};
    use kumihimo_runtime::entries::Entries;

    use super::CountWaiters;

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
}

#[cfg(not(loom))]
pub(crate) use entry::TableEntry;
