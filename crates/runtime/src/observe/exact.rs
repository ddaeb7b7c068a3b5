//! Demand for exact accounting of CPU time: by the program, and by sessions of `kumi top`. It is on
//! while any of them wants it.

use std::sync::Mutex;

use crate::kernel_thread::no_events::lock;
use crate::scheduler::vp::measure;

/// The parties that want exact accounting.
struct Wanted {
    by_program: bool,
    /// Numbers of the sessions.
    by_sessions: Vec<u64>,
}

static WANTED: Mutex<Wanted> = Mutex::new(Wanted { by_program: false, by_sessions: Vec::new() });

impl Wanted {
    fn apply(&self) {
        measure::set_exact(self.by_program || !self.by_sessions.is_empty());
    }
}

/// Sets whether the program wants it. Returns the program's previous setting.
pub(crate) fn set_by_program(on: bool) -> bool {
    let mut wanted = lock(&WANTED);
    let before = std::mem::replace(&mut wanted.by_program, on);
    wanted.apply();
    before
}

/// Sets whether a session wants it. Returns whether the accounting was exact before.
pub(crate) fn set_by_session(session: u64, on: bool) -> bool {
    let mut wanted = lock(&WANTED);
    let before = measure::is_exact();
    wanted.by_sessions.retain(|one| *one != session);
    if on {
        wanted.by_sessions.push(session);
    }
    wanted.apply();
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounting_is_exact_while_any_party_wants_it() {
        assert!(!set_by_session(1, true), "it was off");
        assert!(set_by_session(1, true), "renewed");
        assert!(!set_by_program(true), "the program had not asked");
        set_by_session(2, true);
        set_by_session(1, false);
        assert!(set_by_program(false));
        assert!(measure::is_exact(), "session 2 wants it");
        assert!(set_by_session(3, false), "a session that wants nothing changes nothing");
        set_by_session(2, false);
        assert!(!measure::is_exact());
    }
}
