//! Placement: converts the policy's decision into a place in a run queue.

use std::num::NonZeroU64;
use std::time::Duration;

use kumihimo_policy::{Info, Placement, Policy, Priority, Why};
use kumihimo_queue::Place;

use crate::microprocess::record::Mp;

/// The policy, with its decisions cached if they depend on the priority only.
pub(crate) struct Placer {
    policy: Box<dyn Policy>,
    table: Option<[Placement; Priority::LEVELS]>,
    has_short_turns: bool,
}

/// Shortest quantum that the timekeeper can enforce. The timekeeper shares a core with other
/// threads and would be too late for shorter ones. A timer of the kernel thread itself enforces
/// those, at this interval (10,000 per second).
pub(crate) const SHORT: Duration = Duration::from_micros(100);

impl Placer {
    pub(crate) fn new(policy: Box<dyn Policy>) -> Placer {
        let answers = || {
            std::array::from_fn(|level| {
                let priority = Priority::new(level as u8).unwrap_or(Priority::HIGHEST);
                let p = policy.place(&Info::new(0, priority), Why::Spawned);
                Placement { level: p.level.min(Priority::HIGHEST.get()), ..p }
            })
        };
        // Keys require a clock, which the fast path with the table does not read.
        let table = policy
            .is_static()
            .then(answers)
            .filter(|t: &[Placement; 64]| t.iter().all(|p| p.key.is_none()));
        let has_short_turns = table.as_ref().is_some_and(|t| t.iter().any(|p| p.quantum < SHORT));
        Placer { policy, table, has_short_turns }
    }

    pub(crate) fn name(&self) -> &str {
        self.policy.name()
    }

    /// Whether the policy depends on clock and history, so that the VP must account run time.
    #[inline]
    pub(crate) fn keeps_account(&self) -> bool {
        self.table.is_none()
    }

    /// Whether any quantum is shorter than [`SHORT`].
    pub(crate) fn has_short_turns(&self) -> bool {
        self.has_short_turns
    }

    /// Returns the quantum of `mp`, under a policy that depends on the priority only, if it is
    /// finite.
    pub(crate) fn turn_ns(&self, mp: &Mp) -> Option<u64> {
        let quantum = self.table.as_ref()?[usize::from(mp.effective()) % Priority::LEVELS].quantum;
        u64::try_from(quantum.as_nanos()).ok()
    }

    /// Returns the quantum of `level`, under a policy that depends on the priority only.
    pub(crate) fn quantum_of_ns(&self, level: i32) -> Option<u64> {
        let quantum =
            self.table.as_ref()?[level.clamp(0, Priority::LEVELS as i32 - 1) as usize].quantum;
        Some(u64::try_from(quantum.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the level of `mp`, under a policy that depends on the priority only.
    pub(crate) fn level_of(&self, mp: &Mp) -> Option<u8> {
        self.table.as_ref().map(|table| table[usize::from(mp.effective()) % Priority::LEVELS].level)
    }

    /// Obtains a place from the policy, and records level and quantum. Holder of `mp` only.
    #[inline]
    pub(crate) fn place(&self, mp: &Mp, why: Why, now: impl FnOnce() -> u64) -> Place {
        let effective = mp.effective();
        match &self.table {
            Some(table) => {
                let p = &table[usize::from(effective) % Priority::LEVELS];
                mp.level.set(p.level);
                // Without quanta, an outranked turn continues later. With quanta, the rest of the
                // turn is unknown here, and restarting it in front of the others would starve them.
                Place {
                    level: p.level,
                    key: p.key,
                    front: why == Why::Outranked && p.quantum == Duration::MAX,
                }
            }
            None => self.ask(mp, why, now()),
        }
    }

    /// Returns the level that [`place`](Placer::place) would choose, without recording it. Holder
    /// of `mp` only. Async-signal-safe for a microprocess that waits for its turn in a signal
    /// handler.
    pub(crate) fn level(&self, mp: &Mp, why: Why, now: impl FnOnce() -> u64) -> u8 {
        match self.static_level(mp) {
            Some(level) => level,
            None if mp.waits_elsewhere() => mp.level.get(),
            None => self.answer(mp, why, now()).level,
        }
    }

    /// Returns the level of `mp`, under a policy that depends on the priority only. Callable from
    /// any thread.
    #[inline]
    pub(crate) fn static_level(&self, mp: &Mp) -> Option<u8> {
        self.table.as_ref().map(|table| table[usize::from(mp.effective()) % Priority::LEVELS].level)
    }

    fn answer(&self, mp: &Mp, why: Why, now_ns: u64) -> Placement {
        let account = mp.account.get();
        let own = mp.priority.load(std::sync::atomic::Ordering::Relaxed);
        let mut info = Info::new(mp.id(), Priority::new(own).unwrap_or_default());
        info.inherited = mp.inherited().and_then(|p| Priority::new(p).ok());
        info.level = if why == Why::Spawned { info.priority.get() } else { mp.level.get() };
        info.quantum = Duration::from_nanos(account.quantum_ns);
        info.ran = Duration::from_nanos(account.ran_ns);
        info.now_ns = now_ns;
        info.deadline_ns = account.due_ns.map(NonZeroU64::get);
        // If the policy panicked, the microprocess would be in no queue, and there is no recovery.
        let guard = AbortOnPanic;
        let p = self.policy.place(&info, why);
        std::mem::forget(guard);
        Placement { level: p.level.min(Priority::HIGHEST.get()), ..p }
    }

    fn ask(&self, mp: &Mp, why: Why, now_ns: u64) -> Place {
        let p = self.answer(mp, why, now_ns);
        mp.level.set(p.level);
        let account = mp.account.get();
        let quantum_ns = u64::try_from(p.quantum.as_nanos()).unwrap_or(u64::MAX);
        // An outranked microprocess continues its turn at the place that it had, with the rest of
        // its quantum. Otherwise one that is outranked more often than once per quantum would never
        // use it up.
        let goes_on = why == Why::Outranked;
        let ran_ns = if goes_on { account.ran_ns } else { 0 };
        let key = p.key.map(|key| if goes_on { account.key } else { key });
        mp.account.set(crate::microprocess::record::Account {
            ran_ns,
            quantum_ns,
            key: key.unwrap_or(0),
            ..account
        });
        Place { level: p.level, key, front: goes_on }
    }
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        eprintln!(
            "kumihimo: the scheduling policy panicked; a microprocess would be lost: aborting"
        );
        std::process::abort();
    }
}
