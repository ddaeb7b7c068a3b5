//! A queue of microprocesses.

use super::microprocess::Mp;

/// A first-in, first-out queue, linked through the microprocesses.
#[derive(Clone, Copy, Default)]
pub(super) struct List {
    pub(super) first: Option<&'static Mp>,
    last: Option<&'static Mp>,
}

impl List {
    pub(super) fn push(&mut self, mp: &'static Mp) {
        mp.next.set(None);
        match self.last.replace(mp) {
            Some(last) => last.next.set(Some(mp)),
            None => self.first = Some(mp),
        }
    }

    pub(super) fn pop(&mut self) -> Option<&'static Mp> {
        let mp = self.first?;
        self.first = mp.next.take();
        self.last = self.last.filter(|_| self.first.is_some());
        Some(mp)
    }
}
