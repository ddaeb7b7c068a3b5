//! A virtual processor at the board: whether it may run, when it has to leave its core, and what it
//! does about those that do not leave.
//!
//! ```text
//!        runs(level)                      higher one takes the core, or turn_over
//!  away ────────────▶ Go: it has the core ─────▶ runs: Wait ──▶ it sleeps on its cell
//!    ▲                   │ idle()                                │ at most nap()
//!    │                   │                                       ▼
//!    └───────────────────┴──────────────── idle() ◀────────── look(): Go or Wait
//! ```
//! A waiter looks from time to time at the holder of the core. A holder whose process is dead,
//! which is stopped, or which slept in the kernel from one look to the next loses the core at once.
//! Any other one is *asked* once its quantum is over: its next step answers; it is told if it does
//! not at once; and if it does not answer within the bound it loses the core too, whatever its
//! level. One that has answered is left alone for twice as long, up to four quanta: a look at /proc
//! costs as much as some switches. So what a holder says, or what another process wrote in its
//! name, counts for four quanta and the bound, and no longer.

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

/// What a virtual processor that wants to run is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// It has the core.
    Go,
    /// It puts back what it wanted to run, lies down in its cell, looks once more whether [the core
    /// is its own](Seat::is_mine), and sleeps for [`Seat::nap`] at most. Up again, it calls
    /// [`Seat::look`] or, if something else is to run, [`Seat::runs`].
    Wait,
}

/// A VP that has used its share up looks no oftener than this.
const SPENT_CHECK: u64 = 10_000_000;

/// The owner's half of a core's slot, one per virtual processor. Where the address space is alone,
/// or at no board, all of it is one load.
///
/// All times are CLOCK_MONOTONIC in nanoseconds. Nothing here blocks.
pub struct Seat {
    member: Arc<Member>,
    at: Option<Position>,
    vp: u8,
    notifier: Arc<dyn CoreNotify>,
    bounds: Bounds,
    /// Where it is at home, and where else it may go.
    home: u16,
    cores: Box<[u16]>,
    /// Its core, for [`SeatStatus`].
    shown: Arc<AtomicU16>,
    /// Its slot's word, while it holds the core.
    held: Option<Tenure>,
    /// The level at which it waits.
    wanted: Option<u8>,
    /// It may not run at all before the next period, even on a free core.
    throttled: bool,
    holder_watch: HolderWatch,
    displaced: cell::Cell<Option<Displaced>>,
    /// As what it counted when it last asked.
    counted: Mark,
    note: Option<SlotObserver>,
}

/// Told of each change of the slot that the seat makes: for a trace.
pub type SlotObserver = Box<dyn Fn(SlotSnapshot) + Send + Sync>;

struct Tenure {
    identity: u64,
    mark: Mark,
    since: u64,
}

/// The previous holder of the core, which has to leave.
#[derive(Clone, Copy)]
struct Displaced {
    place: VpId,
    since: Option<u64>,
    used: Option<u64>,
}

impl Seat {
    /// The seat of a VP at the core of this number. `only_one`: no other VP of its address space is
    /// ever at that core. Of a member without a board, or at a core that the board has no slot for,
    /// it always goes.
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

    /// `note` is told of each change that it makes.
    #[must_use]
    pub fn noted(mut self, note: SlotObserver) -> Seat {
        self.note = Some(note);
        self
    }

    /// For a trace, after it has asked for its core: what the slot says now, and as what the VP
    /// counts ([`Mark::NONE`]: it may not run at all). None: nobody else is there.
    #[must_use]
    pub fn sees(&self) -> Option<(SlotSnapshot, Mark)> {
        self.contended().map(|at| (at.slot().load().snapshot(at.core), self.counted))
    }

    /// Where the board, its slot, and others matter: nowhere else than there is anything done.
    #[inline]
    fn contended(&self) -> Option<Position> {
        self.at.filter(|_| self.member.others() != 0)
    }

    /// Whether the core is this VP's. One load where it is alone, else two.
    #[inline]
    #[must_use]
    pub fn is_mine(&self) -> bool {
        !self.throttled
            && self.contended().is_none_or(|at| at.slot().load().holder() == Some(at.me))
    }

    /// Whether it waits for its share's next period, and for nobody.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        self.throttled
    }

    /// The VP is about to run something of this level (0 to 63), or goes on with it.
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

    /// It may go to these cores too, see [`better_core`](Seat::better_core): those that the board
    /// has slots for.
    #[must_use]
    pub fn with_cores(mut self, cores: impl Iterator<Item = usize>) -> Seat {
        self.cores = cores.filter(|core| *core < CORES).map(|core| core as u16).collect();
        if let Some(at) = self.at.as_mut().filter(|_| self.cores.len() > 1) {
            at.only_one = false;
        }
        self
    }

    /// The core at which to ask rather than at its own: its home if it is not to `roam`; else,
    /// unless its own is its already, or free, one that is held by nobody, or by somebody lower. To
    /// be asked before [`runs`](Seat::runs). Some loads a core where its own is another's.
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

    /// From now on it asks for this core, which [`better_core`](Seat::better_core) named.
    pub fn move_to(&mut self, core: u16) {
        self.leave();
        if let Some(at) = &mut self.at {
            at.core = core;
            self.shown.store(core, Ordering::Relaxed);
        }
    }

    /// The VP has nothing to run: the highest one that waits for the core gets it.
    pub fn idle(&mut self) {
        self.idle_after(|| ());
    }

    /// As [`idle`](Seat::idle): the highest one of the waiters after `meanwhile`, which finds the
    /// core free. For a step that may wake a VP that wants it.
    pub fn idle_after(&mut self, meanwhile: impl FnOnce()) {
        self.leave_after(meanwhile);
        self.wanted = None;
        self.throttled = false;
    }

    fn leave(&mut self) {
        self.leave_after(|| ());
    }

    fn leave_after(&mut self, meanwhile: impl FnOnce()) {
        // Somebody may also have given it the core for nothing.
        let has = |at: &Position| {
            self.held.is_some() || self.wanted.is_some() || at.slot().load().holder() == Some(at.me)
        };
        let Some(at) = self.at.filter(has) else { return meanwhile() };
        self.core(&at).leave(at.me, at.only_one, meanwhile);
        self.held = None;
    }

    /// The quantum of what it runs is over, and `level` is what would run next: another address
    /// space that waits at no lower a level has its turn.
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

    /// For a waiting VP that was called, or whose nap is over: may it go? Looks at the holder of
    /// the core, if the time for that has come, which takes some 20 us of system calls.
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
                    // It never came for it; or it would be given the core again at once.
                    at.board.layout().cell(holder).end_wait();
                }
                if core.evict(seen) {
                    self.member.record_override(holder.row, reason);
                    // If it was given the core, its call may have been lost; if not, it has to
                    // leave.
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

    /// The kernel's word on a holder.
    fn holder_status(&self, holder: VpId) -> ThreadStatus {
        if !self.member.lives(holder.row) {
            return ThreadStatus::Gone;
        }
        match self.member.thread(holder) {
            // A thread that its process does not have is a wrong word on the board, or one that
            // ended: its present carrier will answer.
            Some((pid, thread)) => match thread_status::read(pid, thread) {
                ThreadStatus::Gone => ThreadStatus::Unknown,
                status => status,
            },
            None => ThreadStatus::Unknown,
        }
    }

    /// For how long one that waits may sleep before it looks again.
    #[must_use]
    pub fn nap(&self, now: u64) -> Duration {
        let mut look = self.holder_watch.interval.max(FIRST_CHECK);
        if self.cores.len() > 1 {
            // Another core may be free by then, of which nobody tells.
            look = look.min(nanoseconds(self.bounds.quantum));
        }
        Duration::from_nanos(match self.member.renewal(now) {
            Some(renewal) if self.throttled => renewal,
            // Below all levels: others look at the holder, too.
            Some(renewal) => renewal.min(look.max(SPENT_CHECK)),
            None => look,
        })
    }

    /// For a running VP, from time to time (a tick): whether the previous holder of the core has
    /// left; if not, that is noted on the board.
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
                // A step takes far less, and answers: it runs on without one.
                if used.saturating_sub(before) >= bound / 8 {
                    self.member.record_override(displaced.place.row, Reason::Unresponsive);
                }
                self.displaced.set(None);
            }
            _ => self.displaced.set(None),
        }
    }

    /// This kernel thread, which calls, carries the VP from now on.
    pub fn on_thread(&self) {
        if let Some(cell) = self.member.row().cells.get(usize::from(self.vp)) {
            // SAFETY: no arguments; cannot fail.
            cell.set_thread(unsafe { libc::gettid() } as u32);
        }
    }

    /// For observers from outside.
    #[must_use]
    pub fn holds(&self) -> SeatStatus {
        SeatStatus { member: self.member.clone(), at: self.at, core: self.shown.clone() }
    }

    /// The member that it belongs to.
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
