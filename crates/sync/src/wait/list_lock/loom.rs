//! The list lock as a mutex of loom: the models explore the code under the lock, not the spinning.

use crate::wait::lockrank::Rank;
use ::loom::sync::{Mutex, MutexGuard};

pub(crate) struct ListLock<T>(Mutex<T>);
pub(crate) type ListLockGuard<'a, T> = MutexGuard<'a, T>;

impl<T> ListLock<T> {
    pub(crate) fn new(_: Rank, value: T) -> ListLock<T> {
        ListLock(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> ListLockGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

impl<T> std::panic::UnwindSafe for ListLock<T> {}
impl<T> std::panic::RefUnwindSafe for ListLock<T> {}
