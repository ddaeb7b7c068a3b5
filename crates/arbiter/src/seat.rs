//! Seat of a VP at the board. Decides whether the VP may run and when it must leave its core, and
//! overrides holders that do not leave a core for which the VP waits.
//!
//! ```text
//!        runs(level)                      higher one takes the core, or turn_over
//!  away ────────────▶ Go: it has the core ─────▶ runs: Wait ──▶ it sleeps on its cell
//!    ▲                   │ idle()                                │ at most nap()
//!    │                   │                                       ▼
//!    └───────────────────┴──────────────── idle() ◀────────── look(): Go or Wait
//! ```
//!
//! A waiter periodically checks the holder of the core. A holder loses the core at once if it is
//! dead or stopped, or if it slept in the kernel from one check to the next. Any other holder is
//! *asked* for an acknowledgement once its quantum is over, and its next step acknowledges. A
//! holder that does not acknowledge at once is notified. If it does not acknowledge within the
//! bound, it loses the core regardless of its level.
//!
//! Each acknowledgement doubles the time until the next check, up to four quanta, because a check
//! of /proc costs as much as several switches. Thus a holder's word on the board, whichever process
//! wrote it, counts for at most four quanta and the bound.

use std::cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::board::overrides::Reason;
use crate::clock::nanoseconds;
use crate::core_notify::CoreNotify;
pub use crate::holder::holder_watch::Bounds;
use crate::holder::holder_watch::{FIRST_CHECK, HolderWatch, WatchAction};
use crate::member::Member;
use status::Position;
pub use status::SeatStatus;

mod status;
use crate::holder::thread_status::{self, ThreadStatus};
use crate::row::{Cell, Reach, SleepMode};
use crate::slot::{BoardAccess, CORES, Mark, SlotProtocol, SlotSnapshot, VpId};

/// Next action of a VP that requests a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The VP has the core.
    Go,
    /// The VP must wait. It puts back the microprocess that it was about to run, and prepares to
    /// sleep in its cell. It then checks once more whether [the core is its own](Seat::is_mine),
    /// and sleeps for at most [`Seat::nap`]. After waking up it calls [`Seat::look`], or
    /// [`Seat::runs`] if it is to run something else.
    Wait,
}

/// Minimum interval between checks of a VP whose share is used up.
const SPENT_CHECK: u64 = 10_000_000;

/// A VP's side of a core's slot. If the address space is the only one, or has no board, each
/// operation costs one load.
///
/// All times are CLOCK_MONOTONIC in nanoseconds. No method blocks.
pub struct Seat {
    member: Arc<Member>,
    at: Option<Position>,
    vp: u8,
    notifier: Arc<dyn CoreNotify>,
    bounds: Bounds,
    /// The VP's home core, and in `cores` all cores to which it may move.
    home: u16,
    cores: Box<[u16]>,
    /// Current core of the VP, for [`SeatStatus`].
    shown: Arc<AtomicU16>,
    /// The slot's word while the VP holds the core.
    held: Option<Tenure>,
    /// Level at which the VP waits.
    wanted: Option<u8>,
    /// Whether the VP must not run before the next period, even on a free core.
    throttled: bool,
    holder_watch: HolderWatch,
    displaced: cell::Cell<Option<Displaced>>,
    /// Mark at which the VP last requested a core.
    counted: Mark,
    note: Option<SlotObserver>,
}

/// Callback for each change of the slot that the seat makes, for a trace.
pub type SlotObserver = Box<dyn Fn(SlotSnapshot) + Send + Sync>;

struct Tenure {
    identity: u64,
    mark: Mark,
    since: u64,
}

/// Previous holder of the core, which must leave it.
#[derive(Clone, Copy)]
struct Displaced {
    place: VpId,
    since: Option<u64>,
    used: Option<u64>,
}

impl Seat {
    /// Creates the seat of VP `vp` at core `core`. `only_one` means that no other VP of the address
    /// space ever uses that core. Without a board, or if the board has no slot for the core, the VP
    /// always has the core.
    #[must_use]
    pub fn new(
        member: Arc<Member>,
        vp: usize,
        core: usize,
        only_one: bool,
        notifier: Arc<dyn CoreNotify>,
        bounds: Bounds,
    ) -> Seat {
        let number = u8::try_from(vp).unwrap_or(u8::MAX);
        let at = member.board().filter(|_| core < CORES && vp < member.row().cells.len()).map(
            |(board, row)| Position {
                board,
                me: VpId { row, vp: number },
                core: core as u16,
                only_one,
            },
        );
        Seat {
            member,
            at,
            vp: number,
            notifier,
            bounds,
            home: core as u16,
            cores: Box::default(),
            shown: Arc::new(AtomicU16::new(core as u16)),
            held: None,
            wanted: None,
            throttled: false,
            holder_watch: HolderWatch::default(),
            displaced: cell::Cell::new(None),
            counted: Mark::NONE,
            note: None,
        }
    }

    /// Sets a callback for each change of the slot that this seat makes.
    #[must_use]
    pub fn noted(mut self, note: SlotObserver) -> Seat {
        self.note = Some(note);
        self
    }

    /// Returns the slot's content and the VP's mark after it requested its core, for a trace.
    /// [`Mark::NONE`] means that the VP must not run at all. `None` if there is no other member.
    #[must_use]
    pub fn sees(&self) -> Option<(SlotSnapshot, Mark)> {
        self.contended().map(|at| (at.slot().load().snapshot(at.core), self.counted))
    }

    /// Returns the position if there is a board with other members. All other cases need no work on
    /// the slot.
    #[inline]
    fn contended(&self) -> Option<Position> {
        self.at.filter(|_| self.member.others() != 0)
    }

    /// Returns whether the VP has the core. Costs one load without other members, and two
    /// otherwise.
    #[inline]
    #[must_use]
    pub fn is_mine(&self) -> bool {
        !self.throttled
            && self.contended().is_none_or(|at| at.slot().load().holder() == Some(at.me))
    }

    /// Returns whether the VP waits for its share's next period rather than for a holder.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        self.throttled
    }

    /// Requests the core for running something of level `level` (0 to 63), or confirms that the VP
    /// continues with it.
    #[inline]
    pub fn runs(&mut self, level: u8, now: u64) -> Outcome {
        let at = self.contended();
        if at.is_none() && !self.member.has_share() {
            self.wanted = None;
            self.throttled = false;
            return Outcome::Go;
        }
        self.runs_among(at, level, now)
    }

    fn runs_among(&mut self, at: Option<Position>, level: u8, now: u64) -> Outcome {
        let mark = self.member.mark(level, now);
        self.counted = mark.unwrap_or(Mark::NONE);
        self.throttled = mark.is_none();
        let Some(mark) = mark else {
            self.leave();
            self.wanted = Some(level);
            return Outcome::Wait;
        };
        let Some(at) = at else {
            self.wanted = None;
            return Outcome::Go;
        };
        let seen = at.slot().load();
        if let Some(held) = self.held.as_ref().filter(|held| held.identity == seen.identity()) {
            if held.mark == mark && !seen.is_asked() {
                return Outcome::Go;
            }
            let is_over = now.saturating_sub(held.since) >= nanoseconds(self.bounds.quantum);
            if is_over && self.core(&at).turn_over(at.me, mark) {
                self.held = None;
            }
        }
        self.enter(&at, level, mark, now)
    }

    fn enter(&mut self, at: &Position, level: u8, mark: Mark, now: u64) -> Outcome {
        let entered = self.core(at).enter(at.me, mark, at.only_one);
        match entered {
            Ok(word) => {
                let since = self.held.as_ref().map_or(now, |held| held.since);
                self.held = Some(Tenure { identity: word.identity(), mark, since });
                self.wanted = None;
                Outcome::Go
            }
            Err(word) => {
                self.held = None;
                self.wanted = Some(level);
                self.holder_watch.observe(word, now, &self.bounds);
                Outcome::Wait
            }
        }
    }

    /// Sets the cores to which the VP may move; see [`better_core`](Seat::better_core). Cores
    /// without a slot on the board are ignored.
    #[must_use]
    pub fn with_cores(mut self, cores: impl Iterator<Item = usize>) -> Seat {
        self.cores = cores.filter(|core| *core < CORES).map(|core| core as u16).collect();
        if let Some(at) = self.at.as_mut().filter(|_| self.cores.len() > 1) {
            at.only_one = false;
        }
        self
    }

    /// Returns the core that the VP should request instead of its current core. Without `roams`,
    /// that is its home core. With `roams`, it is a core that is free or held at a lower mark,
    /// unless the current core is free or its own. To be called before [`runs`](Seat::runs). Costs
    /// one load per core if another VP holds the current core.
    #[must_use]
    pub fn better_core(&self, level: u8, roams: bool, now: u64) -> Option<u16> {
        let at = self.contended()?;
        if !roams {
            return (at.core != self.home).then_some(self.home);
        }
        let holder = at.slot().load();
        if holder.holder().is_none_or(|holder| holder == at.me) {
            return None;
        }
        let least = self.member.mark(level, now)?.min(holder.mark());
        let mark = |core: u16| Position { core, ..at }.slot().load().mark();
        let lowest = self
            .cores
            .iter()
            .copied()
            .filter(|core| *core != at.core)
            .min_by_key(|core| mark(*core))?;
        (mark(lowest) < least).then_some(lowest)
    }

    /// Moves the VP to this core, which [`better_core`](Seat::better_core) returned.
    pub fn move_to(&mut self, core: u16) {
        self.leave();
        if let Some(at) = &mut self.at {
            at.core = core;
            self.shown.store(core, Ordering::Relaxed);
        }
    }

    /// Leaves the core, which goes to its highest waiter: the VP has nothing to run.
    pub fn idle(&mut self) {
        self.idle_after(|| ());
    }

    /// Leaves the core like [`idle`](Seat::idle), but calls `meanwhile` while the core is free, and
    /// only then gives it to the highest waiter. For a step that may wake a VP that needs the core.
    pub fn idle_after(&mut self, meanwhile: impl FnOnce()) {
        self.leave_after(meanwhile);
        self.wanted = None;
        self.throttled = false;
    }

    fn leave(&mut self) {
        self.leave_after(|| ());
    }

    fn leave_after(&mut self, meanwhile: impl FnOnce()) {
        // Another VP may have given this VP the core although this VP no longer waits.
        let has = |at: &Position| {
            self.held.is_some() || self.wanted.is_some() || at.slot().load().holder() == Some(at.me)
        };
        let Some(at) = self.at.filter(has) else { return meanwhile() };
        self.core(&at).leave(at.me, at.only_one, meanwhile);
        self.held = None;
    }

    /// Ends the quantum of the running microprocess; `level` is the level of the next one. Another
    /// address space that waits at the same or a higher level gets the core.
    pub fn turn_over(&mut self, level: u8, now: u64) -> Outcome {
        if let (Some(at), Some(mark)) = (self.contended(), self.member.mark(level, now)) {
            let turned = self.core(&at).turn_over(at.me, mark);
            match &mut self.held {
                Some(held) if !turned => held.since = now,
                held => *held = None,
            }
        }
        self.runs(level, now)
    }

    /// Requests the core again for a waiting VP that was woken or whose nap is over. Checks the
    /// holder of the core if a check is due, which takes about 20 us of system calls.
    pub fn look(&mut self, now: u64) -> Outcome {
        let Some(level) = self.wanted else { return Outcome::Go };
        if self.runs(level, now) == Outcome::Go {
            return Outcome::Go;
        }
        // A VP that waits for its share's next period waits for no holder.
        let Some(at) = self.contended().filter(|_| !self.throttled) else { return Outcome::Wait };
        let seen = at.slot().load();
        let Some(holder) = seen.holder() else { return self.runs(level, now) };
        self.holder_watch.observe(seen, now, &self.bounds);
        if self.holder_watch.is_within_grace(now, &self.bounds) {
            return Outcome::Wait;
        }
        self.member.rewrite_identity();
        let status = self.holder_status(holder);
        match self.holder_watch.next_action(status, seen.is_given(), now, &self.bounds) {
            WatchAction::Nothing => return Outcome::Wait,
            WatchAction::Ask => self.core(&at).ask(seen),
            WatchAction::Notify => self.member.notify(holder, &*self.notifier),
            WatchAction::Override(reason) => {
                let core = self.core(&at);
                if seen.is_given() {
                    // The holder never accepted the core. If the holder still counted as waiting,
                    // it would be given the core again at once.
                    at.board.layout().cell(holder).end_wait();
                }
                if core.evict(seen) {
                    self.member.record_override(holder.row, reason);
                    // The wake-up of a holder that was given the core may be lost. Any other holder
                    // must leave the core.
                    self.given(holder);
                    self.member.notify(holder, &*self.notifier);
                }
                if reason == Reason::Dead {
                    self.member.recount();
                }
            }
        }
        self.runs(level, now)
    }

    /// Returns the state of a holder's kernel thread.
    fn holder_status(&self, holder: VpId) -> ThreadStatus {
        if !self.member.lives(holder.row) {
            return ThreadStatus::Gone;
        }
        match self.member.thread(holder) {
            // If the process has no such thread, the word on the board is outdated or corrupt, and
            // the VP's present carrier can still acknowledge.
            Some((pid, thread)) => match thread_status::read(pid, thread) {
                ThreadStatus::Gone => ThreadStatus::Unknown,
                status => status,
            },
            None => ThreadStatus::Unknown,
        }
    }

    /// Returns how long a waiting VP may sleep before its next check.
    #[must_use]
    pub fn nap(&self, now: u64) -> Duration {
        let mut look = self.holder_watch.interval.max(FIRST_CHECK);
        if self.cores.len() > 1 {
            // Another core may become free without a notification.
            look = look.min(nanoseconds(self.bounds.quantum));
        }
        Duration::from_nanos(match self.member.renewal(now) {
            Some(renewal) if self.throttled => renewal,
            // The VP ranks below all levels, so other waiters check the holder too.
            Some(renewal) => renewal.min(look.max(SPENT_CHECK)),
            None => look,
        })
    }

    /// Checks periodically, on a tick of a running VP, whether the previous holder has left the
    /// core. Records an override on the board if it has not.
    pub fn tick(&mut self, now: u64) {
        let (Some(mut displaced), Some(at)) = (self.displaced.get(), self.contended()) else {
            return;
        };
        let bound = nanoseconds(self.bounds.watchdog);
        let since = *displaced.since.get_or_insert(now);
        let cell = at.board.layout().cell(displaced.place);
        let has_left = cell.is_sleeping() || cell.waits_for(at.core).is_some();
        if !has_left && now.saturating_sub(since) < bound {
            return self.displaced.set(Some(displaced));
        }
        let thread = self.member.thread(displaced.place).filter(|_| !has_left);
        let (Some((pid, thread)), true) = (thread, at.slot().load().holder() == Some(at.me)) else {
            return self.displaced.set(None);
        };
        match (thread_status::read(pid, thread), displaced.used) {
            (ThreadStatus::Running(used), None) => {
                displaced = Displaced { since: Some(now), used: Some(used), ..displaced };
                self.displaced.set(Some(displaced));
            }
            (ThreadStatus::Running(used), Some(before)) => {
                // A step needs far less CPU time than this, and acknowledges. Hence the thread has
                // taken no step.
                if used.saturating_sub(before) >= bound / 8 {
                    self.member.record_override(displaced.place.row, Reason::Unresponsive);
                }
                self.displaced.set(None);
            }
            _ => self.displaced.set(None),
        }
    }

    /// Records that the calling kernel thread carries the VP from now on.
    pub fn on_thread(&self) {
        if let Some(cell) = self.member.row().cells.get(usize::from(self.vp)) {
            cell.set_thread(kumihimo_arch::kernel::gettid() as u32);
        }
    }

    /// Returns the seat's state for other threads.
    #[must_use]
    pub fn holds(&self) -> SeatStatus {
        SeatStatus { member: self.member.clone(), at: self.at, core: self.shown.clone() }
    }

    /// Returns the member to which the seat belongs.
    #[must_use]
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    fn core<'a>(&'a self, at: &Position) -> SlotProtocol<'a, Seat> {
        SlotProtocol { slot: at.slot(), number: at.core, places: self }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let core = self.at.map(|at| at.core);
        f.debug_struct("Seat")
            .field("vp", &self.vp)
            .field("core", &core)
            .field("wanted", &self.wanted)
            .finish()
    }
}

impl BoardAccess for Seat {
    fn vps(&self, row: u16) -> u8 {
        self.at.map_or(0, |at| at.board.layout().records[usize::from(row)].vps())
    }

    fn cell(&self, place: VpId) -> &Cell {
        let at = self.at.expect("only seats at a board have a slot");
        at.board.layout().cell(place)
    }

    fn given(&self, place: VpId) {
        match self.cell(place).claim_wake_remote() {
            Some(SleepMode::Futex) => self.cell(place).wake(Reach::Shared),
            Some(SleepMode::Descriptors) => self.member.notify(place, &*self.notifier),
            None => {}
        }
    }

    fn displaced(&self, place: VpId) {
        if self.at.is_some_and(|at| at.me != place) {
            self.displaced.set(Some(Displaced { place, since: None, used: None }));
            self.member.notify(place, &*self.notifier);
        }
    }

    fn changed(&self, snapshot: SlotSnapshot) {
        if let Some(note) = &self.note {
            note(snapshot);
        }
    }
}
