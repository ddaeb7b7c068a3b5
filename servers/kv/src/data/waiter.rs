//! `BLPOP` and `BRPOP`: a microprocess waits for an item, for its timeout, or for the end of its
//! client's connection.

use std::time::Instant;

use kumihimo::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::data::value::End;

/// A waiter for an item.
pub struct Waiter {
    /// The end of the list from which the item is taken.
    pub end: End,
    outcome: Mutex<Outcome>,
    changed: Condvar,
}

/// The key that had an item, and the item.
pub type Given = (Box<[u8]>, Box<[u8]>);

enum Outcome {
    Waiting,
    Given(Given),
    /// The wait has ended, or the item has been taken.
    Over,
}

impl Waiter {
    /// Creates a waiter for an item from `end`.
    pub fn new(end: End) -> Waiter {
        Waiter { end, outcome: Mutex::new(Outcome::Waiting), changed: Condvar::new() }
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
    pub fn wait(&self, deadline: Option<Instant>) -> Option<Given> {
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
            Outcome::Given(given) => Some(given),
            Outcome::Waiting | Outcome::Over => None,
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
    /// Delivers `item` from the list under `key`.
    pub fn give(mut self, key: Box<[u8]>, item: Box<[u8]>) {
        *self.outcome = Outcome::Given((key, item));
        self.waiter.changed.notify_all();
    }
}
