//! The spin lock as loom's mutex: the models are about what is done under it.

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
