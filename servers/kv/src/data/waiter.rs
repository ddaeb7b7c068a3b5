//! `BLPOP` and `BRPOP`: a microprocess waits for an item, for its timeout, or for the end of its
//! client's connection.

use std::time::Instant;

use kumihimo::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::budget::{Account, EXCEEDED, Share};
use crate::data::value::End;

/// A waiter for an item.
pub struct Waiter {
    /// The end of the list from which the item is taken.
    pub end: End,
    /// Memory of the connection.
    account: Arc<Account>,
    outcome: Mutex<Outcome>,
    changed: Condvar,
}

/// The key that had an item, the item, and the counted memory for the reply.
pub type Given = (Box<[u8]>, Box<[u8]>, Share);

enum Outcome {
    Waiting,
    Given(Given),
    /// The item did not fit into the memory for clients. It stays in the list.
    Refused,
    /// The wait has ended, or the item has been taken.
    Over,
}

impl Waiter {
    /// Creates a waiter for an item from `end`.
    pub fn new(end: End, account: &Arc<Account>) -> Waiter {
        let account = Arc::clone(account);
        Waiter { end, account, outcome: Mutex::new(Outcome::Waiting), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the right to deliver an item. Returns `None` if the wait has ended.
    pub fn claim(&self) -> Option<Claim<'_>> {
        let outcome = self.lock();
        matches!(*outcome, Outcome::Waiting).then_some(Claim { waiter: self, outcome })
    }

    /// Waits for an item until `deadline` or until [`over`](Waiter::over) is called. Returns the
    /// key and the item.
    ///
    /// # Errors
    /// If the item did not fit into the memory for clients.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<Option<Given>, &'static str> {
        let outcome = self.lock();
        let waiting = |outcome: &mut Outcome| matches!(outcome, Outcome::Waiting);
        let mut outcome = match deadline {
            None => {
                self.changed.wait_while(outcome, waiting).unwrap_or_else(PoisonError::into_inner)
            }
            Some(deadline) => {
                self.changed
                    .wait_while_until(outcome, deadline, waiting)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        match std::mem::replace(&mut *outcome, Outcome::Over) {
            Outcome::Given(given) => Ok(Some(given)),
            Outcome::Refused => Err(EXCEEDED),
            Outcome::Waiting | Outcome::Over => Ok(None),
        }
    }

    /// Ends the wait without an item, unless an item has been delivered.
    pub fn over(&self) {
        let mut outcome = self.lock();
        if matches!(*outcome, Outcome::Waiting) {
            *outcome = Outcome::Over;
            self.changed.notify_all();
        }
    }
}

/// The right to deliver an item to a [`Waiter`]. The wait cannot end while a claim exists.
pub struct Claim<'a> {
    waiter: &'a Waiter,
    outcome: MutexGuard<'a, Outcome>,
}

impl Claim<'_> {
    /// Counts the memory for an item whose reply has `bytes` bytes. Ends the wait with an error if
    /// it does not fit.
    pub fn reserve(mut self, bytes: usize) -> Option<(Self, Share)> {
        let mut share = Share::new(&self.waiter.account);
        if share.resize(bytes) {
            return Some((self, share));
        }
        *self.outcome = Outcome::Refused;
        self.waiter.changed.notify_all();
        None
    }

    /// Delivers `item` from the list under `key`.
    pub fn give(mut self, key: Box<[u8]>, item: Box<[u8]>, share: Share) {
        *self.outcome = Outcome::Given((key, item, share));
        self.waiter.changed.notify_all();
    }
}
