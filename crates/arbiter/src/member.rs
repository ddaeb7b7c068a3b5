//! An address space at a board: its row, the number of other members, and its CPU time budget.
//!
//! Each process that joins, leaves, or finds a dead row counts the locked rows. It writes the
//! number to the board's header, where every process reads it with one load. The word also holds a
//! serial. A process that counts while the serial changes counts again. Each process takes or
//! releases its lock before it reads the word, so the last count that is written includes every
//! row.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::board::Board;
use crate::board::Error;
use crate::board::overrides::{self, Reason};
use crate::clock::monotonic;
use crate::core_notify::{CoreNotify, Receiver};
use crate::row::{Reach, Row, SleepMode};
use crate::rules::feedback::{Depth, Rule};
use crate::rules::share::{Account, Share};
use crate::slot::{CELLS, Mark, ROWS, VpId};

/// Membership of this address space at a board, or a private row without a board.
#[derive(Debug)]
pub struct Member {
    row: Row,
    joined: Option<Joined>,
    /// Private values that no other process can write: the allowed share, the CPU time charged to
    /// it, and the feedback depth.
    share: AtomicU64,
    account: AtomicU64,
    depth: AtomicU64,
}

#[derive(Debug)]
struct Joined {
    board: &'static Board,
    number: u16,
    /// Set in the child of a fork, which is no longer a member.
    forgotten: AtomicBool,
}

impl Member {
    /// Creates an address space without a board: it never waits for other address spaces and is
    /// invisible to them. Its share still applies.
    #[must_use]
    pub fn private(row: Row) -> Member {
        Member::new(row, None)
    }

    /// Takes a row of the board, for an address space named `name` (of which 32 bytes are kept)
    /// with `vps` VPs. The board stays mapped permanently. All other members are woken or notified,
    /// so that they observe the new member.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if all rows are taken, or if there are more VPs than a row has cells;
    /// [`Error::Io`] if the file system does not support the locks.
    pub fn join(
        board: Board,
        name: &str,
        vps: usize,
        now: u64,
        notifier: &dyn CoreNotify,
    ) -> Result<Member, Error> {
        let no_room = |what: String| Error::NoRoom(board.path().to_owned(), what);
        let few = u8::try_from(vps).ok().filter(|&vps| usize::from(vps) <= CELLS);
        let Some(vps) = few else {
            return Err(no_room(format!(
                "{vps} virtual processors, but a row has room for {CELLS}"
            )));
        };
        let mut number = None;
        for row in 0..ROWS as u16 {
            if board.locks.claim(row).map_err(Error::io(board.path()))? {
                number = Some(row);
                break;
            }
        }
        let Some(number) = number else {
            return Err(no_room(format!("all {ROWS} rows are taken")));
        };
        let board: &'static Board = Box::leak(Box::new(board));
        board.layout().clear(number);
        let record = &board.layout().records[usize::from(number)];
        record.name.set(name);
        record.started.store(now, Ordering::Relaxed);
        let row =
            Row { head: &record.head, cells: &record.cells[..vps.into()], reach: Reach::Shared };
        let member =
            Member::new(row, Some(Joined { board, number, forgotten: AtomicBool::new(false) }));
        // No VP of this member waits for a core yet, so no other process had to find the row before
        // this.
        member.recount();
        if member.others() == 0 {
            board.clear_canary();
        }
        member.wake_others(notifier);
        Ok(member)
    }

    fn new(row: Row, joined: Option<Joined>) -> Member {
        Member {
            row,
            joined,
            share: AtomicU64::new(0),
            account: AtomicU64::new(0),
            depth: AtomicU64::new(0),
        }
    }

    /// Returns the address space's row.
    #[must_use]
    pub fn row(&self) -> Row {
        self.row
    }

    /// Returns the board and the number of the address space's row there. `None` without a board.
    #[inline]
    #[must_use]
    pub fn board(&self) -> Option<(&'static Board, u16)> {
        self.joined.as_ref().map(|joined| (joined.board, joined.number))
    }

    /// Returns the number of other members at the last count. Costs one load.
    #[inline]
    #[must_use]
    pub fn others(&self) -> u32 {
        let Some(joined) = &self.joined else { return 0 };
        (joined.board.layout().header.living.load(Ordering::Relaxed) as u32).saturating_sub(1)
    }

    /// Returns whether another address space holds one of `cores` at a level other than `level`.
    /// Costs one load per core; the result may change at any time.
    #[must_use]
    pub fn is_another_level_there(
        &self,
        level: u8,
        mut cores: impl Iterator<Item = usize>,
    ) -> bool {
        let Some(joined) = &self.joined else { return false };
        let own = Mark::of(level);
        cores.any(|core| {
            let held = joined.board.layout().slots.get(core).and_then(|slot| slot.load().held());
            held.is_some_and(|(place, mark)| place.row != joined.number && mark != own)
        })
    }

    /// Returns another row of the board, through which the caller can post to its VPs and wake
    /// them. `None` if `row` is out of range or there is no board.
    #[must_use]
    pub fn other_row(&self, row: u16) -> Option<Row> {
        let (board, _) = self.board()?;
        let record = board.layout().records.get(usize::from(row))?;
        Some(Row {
            head: &record.head,
            cells: &record.cells[..record.vps().into()],
            reach: Reach::Shared,
        })
    }

    /// Counts the live rows by their locks, and reclaims cores of dead rows. Takes some
    /// microseconds or more. Called about once a second, it also repairs the count after a process
    /// has overwritten it.
    pub fn recount(&self) {
        if let Some((board, number)) = self.board() {
            self.rewrite_identity();
            board.layout().header.rewrite_identity();
            let held = board.locks.held();
            for (row, record) in (0..).zip(&board.layout().records) {
                if record.pid.load(Ordering::Relaxed) != 0
                    && row != number
                    && held.binary_search(&row).is_err()
                {
                    self.reclaim_row(board, row);
                }
            }
            self.count(board, 1);
        }
    }

    /// Reclaims a dead row. Holds the row's lock meanwhile, so that no process joins in it.
    fn reclaim_row(&self, board: &Board, row: u16) {
        if board.locks.claim(row).unwrap_or(false) {
            if board
                .layout()
                .slots
                .iter()
                .any(|slot| slot.load().holder().is_some_and(|holder| holder.row == row))
            {
                self.record_override(row, Reason::Dead);
            }
            board.layout().clear(row);
            board.locks.release(row);
        }
    }

    /// Writes the row's identity again, in case that it was overwritten: other members find its
    /// waiting VPs by it.
    pub(crate) fn rewrite_identity(&self) {
        if let Some(record) = self.record() {
            record.vps.store(self.row.cells.len() as u32, Ordering::Relaxed);
            record.pid.store(std::process::id(), Ordering::Relaxed);
        }
    }

    fn count(&self, board: &Board, me: u64) {
        let living = &board.layout().header.living;
        for _ in 0..64 {
            let seen = living.load(Ordering::Acquire);
            let next = ((seen >> 32) + 1) << 32 | (board.locks.held().len() as u64 + me);
            if living.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Wakes or notifies all VPs of the other members.
    fn wake_others(&self, notifier: &dyn CoreNotify) {
        let Some((board, _)) = self.board() else { return };
        for row in board.locks.held() {
            for vp in 0..board.layout().records[usize::from(row)].vps() {
                let place = VpId { row, vp };
                let cell = board.layout().cell(place);
                match cell.claim_wake_remote() {
                    Some(SleepMode::Futex) => cell.wake(Reach::Shared),
                    Some(SleepMode::Descriptors) | None => self.notify(place, notifier),
                }
            }
        }
    }

    /// Notifies a VP of the board, if the pid of its process is known.
    pub(crate) fn notify(&self, place: VpId, notifier: &dyn CoreNotify) {
        if let (Some(pid), Some((board, _))) = (self.pid(place.row), self.board()) {
            let thread = board.layout().cell(place).thread().unwrap_or(0);
            let listener =
                board.layout().records[usize::from(place.row)].listener.load(Ordering::Relaxed);
            notifier.notify(Receiver { place, pid, thread, listener });
        }
    }

    /// Sets where this address space receives notifications; see
    /// [`Receiver::listener`](crate::core_notify::Receiver::listener).
    pub fn set_listener(&self, listener: u32) {
        if let Some(record) = self.record() {
            record.listener.store(listener, Ordering::Relaxed);
        }
    }

    fn pid(&self, row: u16) -> Option<u32> {
        let (board, number) = self.board()?;
        if row == number { Some(std::process::id()) } else { board.locks.pid(row) }
    }

    /// Returns the pid of a VP's process and the kernel thread that carries the VP.
    pub(crate) fn thread(&self, place: VpId) -> Option<(u32, u32)> {
        let (board, _) = self.board()?;
        Some((self.pid(place.row)?, board.layout().cell(place).thread()?))
    }

    /// Returns whether a row's process lives, by the row's lock.
    pub(crate) fn lives(&self, row: u16) -> bool {
        self.board().is_none_or(|(board, number)| row == number || board.locks.is_held(row))
    }

    /// Records that a holder of this row was overridden.
    pub(crate) fn record_override(&self, row: u16, reason: Reason) {
        let Some((board, _)) = self.board() else { return };
        let record = &board.layout().records[usize::from(row)];
        let pid = board.locks.pid(row).unwrap_or_else(|| record.pid.load(Ordering::Relaxed));
        record.overridden.fetch_add(1, Ordering::Relaxed);
        record.reason.store(reason.code(), Ordering::Relaxed);
        let all = &board.layout().header.overridden;
        let count = (all.load(Ordering::Relaxed) >> 32) as u32;
        all.store(u64::from(count.wrapping_add(1)) << 32 | u64::from(pid), Ordering::Relaxed);
        overrides::note(&board.layout().overrides, &record.name.get(), pid, reason, monotonic());
    }

    /// Returns how often a VP of this address space was overridden, and the last reason.
    #[must_use]
    pub fn overridden(&self) -> (u32, Option<Reason>) {
        let Some((board, number)) = self.board() else { return (0, None) };
        let record = &board.layout().records[usize::from(number)];
        (
            record.overridden.load(Ordering::Relaxed),
            Reason::decoded(record.reason.load(Ordering::Relaxed)),
        )
    }

    /// In the child of a fork: turns the member into a private one with a copy of the row, and
    /// leaves the parent's row to the parent. Async-signal-safe.
    pub fn forget_in_child(&self) {
        if let Some(joined) = &self.joined {
            joined.forgotten.store(true, Ordering::Relaxed);
            joined.board.forget_in_child();
        }
    }

    /// Sets the CPU time that this address space may use from now on; `None` means no bound.
    pub fn set_share(&self, share: Option<Share>) {
        self.share.store(share.map_or(0, Share::packed), Ordering::Relaxed);
        if let Some(record) = self.record() {
            record.share.store(share.map_or(0, Share::packed), Ordering::Relaxed);
        }
    }

    /// Returns the share; see [`set_share`](Member::set_share).
    #[inline]
    #[must_use]
    pub fn share(&self) -> Option<Share> {
        Share::unpacked(self.share.load(Ordering::Relaxed))
    }

    /// Sets the feedback rule for *all* address spaces at this board; `None` disables feedback.
    pub fn set_feedback(&self, rule: Option<Rule>) {
        if let Some((board, _)) = self.board() {
            board.set_feedback(rule);
        }
    }

    /// Returns the feedback rule; see [`set_feedback`](Member::set_feedback).
    #[must_use]
    pub fn feedback(&self) -> Option<Rule> {
        self.board().and_then(|(board, _)| board.feedback())
    }

    fn record(&self) -> Option<&crate::board::layout::Record> {
        self.board().map(|(board, number)| &board.layout().records[usize::from(number)])
    }

    /// Charges CPU time that VP `vp` used. Returns true if the address space's rank has changed,
    /// through its share or through feedback. All its VPs must then check again whether they [may
    /// run](crate::seat::Seat::runs).
    #[must_use]
    pub fn book(&self, vp: usize, nanoseconds: u64, now: u64) -> bool {
        if let Some(cell) = self.row.cells.get(vp) {
            cell.add_used(nanoseconds);
        }
        let mut changed = false;
        if let Some(share) = self.share() {
            let before =
                update(&self.account, |word| Account(word).booked(share, now, nanoseconds).0);
            changed = Account(before).is_spent(share, now) != self.is_spent(now);
        }
        self.feedback().is_some_and(|rule| self.update_depth(|depth| depth.ran(rule, nanoseconds)))
            || changed
    }

    /// Records that the address space has nothing to run and waits. Returns as
    /// [`book`](Member::book).
    #[must_use]
    pub fn waited(&self) -> bool {
        self.feedback().is_some_and(|rule| self.update_depth(|depth| depth.waited(rule)))
    }

    fn update_depth(&self, how: impl Fn(Depth) -> Depth) -> bool {
        let before = Depth(update(&self.depth, |word| how(Depth(word)).0)).levels();
        let after = Depth(self.depth.load(Ordering::Relaxed)).levels();
        if let Some(record) = self.record() {
            record.sunk.store(after.into(), Ordering::Relaxed);
        }
        before != after
    }

    fn is_spent(&self, now: u64) -> bool {
        self.share()
            .is_some_and(|share| Account(self.account.load(Ordering::Relaxed)).is_spent(share, now))
    }

    /// Returns the mark at which a VP that runs a microprocess of `level` ranks. `None` if it must
    /// not run now.
    #[inline]
    pub(crate) fn mark(&self, level: u8, now: u64) -> Option<Mark> {
        let rule = self
            .board()
            .map_or(0, |(board, _)| board.layout().header.feedback.load(Ordering::Relaxed));
        if rule == 0 && !self.has_share() {
            return Some(Mark::of(level));
        }
        self.mark_by_rules(level, now)
    }

    /// Returns whether the address space's CPU time is bounded. Costs one load.
    #[inline]
    #[must_use]
    pub fn has_share(&self) -> bool {
        self.share.load(Ordering::Relaxed) != 0
    }

    /// Returns whether the share is hard and used up, so that no VP may run.
    #[must_use]
    pub fn is_throttled(&self, now: u64) -> bool {
        self.share().is_some_and(Share::is_hard) && self.is_spent(now)
    }

    fn mark_by_rules(&self, level: u8, now: u64) -> Option<Mark> {
        if self.is_spent(now) {
            return (!self.is_throttled(now)).then_some(Mark::SPENT);
        }
        let sunk = if self.feedback().is_some() {
            Depth(self.depth.load(Ordering::Relaxed)).levels()
        } else {
            0
        };
        Some(Mark::of(level.min(63).saturating_sub(sunk)))
    }

    /// Returns the time until the next period of a used-up share, in nanoseconds.
    pub(crate) fn renewal(&self, now: u64) -> Option<u64> {
        let share = self.share().filter(|_| self.is_spent(now))?;
        Some(Account::renewal(share, now))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let Some(joined) =
            self.joined.as_ref().filter(|joined| !joined.forgotten.load(Ordering::Relaxed))
        else {
            return;
        };
        joined.board.layout().clear(joined.number);
        joined.board.locks.release(joined.number);
        self.count(joined.board, 0);
    }
}

/// Changes a word atomically; returns its previous value.
fn update(word: &AtomicU64, how: impl Fn(u64) -> u64) -> u64 {
    word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| Some(how(word)))
        .unwrap_or_else(|word| word)
}
