//! The lock of a mailbox, as the locking design of the resource table wants it.

use std::ops::{Deref, DerefMut};

use super::resource_entry::{KindGuard, enter_kind};
use crate::wait::list_lock::{ListLock, ListLockGuard};
use crate::wait::lockrank::Rank;

/// The state of a mailbox. Its spin lock is the resource's own (`id`; what `vp` calls a claim);
/// with `kind` there is one lock for all mailboxes around it.
pub(crate) struct MailboxState<T> {
    state: ListLock<T>,
}

pub(crate) struct MailboxGuard<'a, T> {
    guard: ListLockGuard<'a, T>,
    /// After it.
    _kind: KindGuard,
}

impl<T> MailboxState<T> {
    #[inline(always)]
    pub(crate) fn lock(&self) -> MailboxGuard<'_, T> {
        let kind = enter_kind();
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
