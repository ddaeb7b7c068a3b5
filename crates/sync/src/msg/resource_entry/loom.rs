//! Stand-in for the resource table under loom: registers nothing and has no lock around all
//! mailboxes.

pub(crate) type CountWaiters = unsafe fn(*const ()) -> [usize; 3];

pub(crate) type KindGuard = ();

pub(crate) fn enter_kind() {}

pub(crate) struct TableEntry;

impl TableEntry {
    /// # Safety
    /// None needed.
    pub(crate) unsafe fn open(_: *const (), _: CountWaiters) -> TableEntry {
        TableEntry
    }
}
