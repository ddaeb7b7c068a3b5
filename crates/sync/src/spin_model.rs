//! The spin lock as loom's mutex: the models are about what is done under it.

use crate::lockrank::Rank;
use loom::sync::{Mutex, MutexGuard};

pub(crate) struct Spin<T>(Mutex<T>);
pub(crate) type SpinGuard<'a, T> = MutexGuard<'a, T>;

impl<T> Spin<T> {
    pub(crate) fn new(_: Rank, value: T) -> Spin<T> {
        Spin(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

impl<T> std::panic::UnwindSafe for Spin<T> {}
impl<T> std::panic::RefUnwindSafe for Spin<T> {}
