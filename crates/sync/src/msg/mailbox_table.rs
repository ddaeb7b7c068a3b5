//! Lock of a mailbox, in the form that the locking designs of the resource table require.

use std::ops::{Deref, DerefMut};

use super::resource_entry::{KindGuard, enter_kind};
use crate::wait::list_lock::{ListLock, ListLockGuard};
use crate::wait::lockrank::Rank;

/// State of a mailbox. Under locking design `id` its spin lock is the only lock; under `kind`, one
/// lock around all mailboxes is taken first.
pub(crate) struct MailboxState<T> {
    state: ListLock<T>,
}

pub(crate) struct MailboxGuard<'a, T> {
    guard: ListLockGuard<'a, T>,
    /// Released after `guard`.
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

/// Creates the state of a mailbox under an unlocked spin lock.
pub(crate) fn state<T>(value: T) -> MailboxState<T> {
    MailboxState { state: ListLock::new(Rank::List, value) }
}
