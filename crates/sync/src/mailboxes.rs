//! Mailboxes as resources: what guards one is the resource table's to say, and each has its row in
//! the usage table.

use std::ops::{Deref, DerefMut};

use crate::lockrank::Rank;
use crate::spin::{Spin, SpinGuard};

/// The state of a mailbox. Its spin lock is the resource's own (`id`; what `vp` calls a claim);
/// with `kind` there is one lock for all mailboxes around it.
pub(crate) struct Claimed<T> {
    state: Spin<T>,
}

pub(crate) struct Claim<'a, T> {
    guard: SpinGuard<'a, T>,
    /// After it.
    _kind: whole_kind::Held,
}

impl<T> Claimed<T> {
    #[inline(always)]
    pub(crate) fn lock(&self) -> Claim<'_, T> {
        let kind = whole_kind::enter();
        Claim { guard: self.state.lock(), _kind: kind }
    }
}

impl<T> Deref for Claim<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Claim<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A spin lock for the state of a mailbox.
pub(crate) fn state<T>(value: T) -> Claimed<T> {
    Claimed { state: Spin::new(Rank::List, value) }
}

/// How a mailbox is seen: clients whose request was not received, those whose request was, servers
/// that wait.
pub(crate) type Look = unsafe fn(*const ()) -> [usize; 3];

#[cfg(not(loom))]
mod whole_kind {
    use std::sync::MutexGuard;

    use kumihimo_resource::id::Kind;
    use kumihimo_resource::table::{has_whole_kinds, table};
    use kumihimo_runtime::NoEvents;

    /// The lock, and then the events. Boxed, so that where there is none nothing is carried about
    /// but a null.
    pub(crate) type Held = Option<Box<(MutexGuard<'static, ()>, NoEvents)>>;

    #[inline(always)]
    pub(crate) fn enter() -> Held {
        if has_whole_kinds() { wait() } else { None }
    }

    #[cold]
    #[inline(never)]
    fn wait() -> Held {
        // First: the holder keeps its virtual processor.
        let quiet = NoEvents::new();
        table().enter(Kind::MAILBOX).map(|held| Box::new((held, quiet)))
    }
}

#[cfg(loom)]
mod whole_kind {
    pub(crate) type Held = ();
    pub(crate) fn enter() {}
}

#[cfg(not(loom))]
mod entry {
    use std::sync::Once;

    use kumihimo_resource::id::{Id, Kind, Serial};
    use kumihimo_resource::table::{Error, Row, Usage};
    use kumihimo_runtime::kind_table::Entries;

    use super::Look;

    /// A mailbox that is there: it is taken out before it goes.
    #[derive(Clone, Copy)]
    struct There(*const (), Look);

    // SAFETY: followed only while its entry is held, which keeps the mailbox from going; `Look`
    // takes the mailbox's lock.
    unsafe impl Send for There {}

    static MAILBOXES: Entries<There> = Entries::new(Kind::MAILBOX);

    struct Mailboxes;

    impl There {
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
            MAILBOXES.usage(each, There::text);
        }
    }

    /// A mailbox's place in the table.
    #[derive(Debug)]
    pub(crate) struct Entry(Option<Serial>);

    impl Entry {
        /// # Safety
        /// `look` can be called with `post` until the entry is dropped.
        pub(crate) unsafe fn open(post: *const (), look: Look) -> Entry {
            static ONCE: Once = Once::new();
            ONCE.call_once(|| drop(kumihimo_runtime::membership::table().define(&Mailboxes)));
            Entry(MAILBOXES.open(There(post, look)).ok())
        }

        pub(crate) fn id(&self) -> Option<Id> {
            self.0.map(|serial| MAILBOXES.id(serial))
        }
    }

    impl Drop for Entry {
        fn drop(&mut self) {
            if let Some(serial) = self.0 {
                let _ = MAILBOXES.close(serial);
            }
        }
    }
}

#[cfg(not(loom))]
pub(crate) use entry::Entry;
