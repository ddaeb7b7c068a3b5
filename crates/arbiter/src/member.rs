//! An address space at a board: the row that it holds, how many others there are, and what it may
//! use.
//!
//! The number of live rows is counted from the locks of the rows by each process that comes, goes,
//! or finds one dead, and written into the board's header, where every process reads it with one
//! load. Two that count at once: the word holds a serial besides, and a counter that finds it
//! changed counts again; as each takes or gives up its lock before it reads the word, the last
//! count that is written misses no row.

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

/// This address space's place among others, or by itself.
#[derive(Debug)]
pub struct Member {
    row: Row,
    joined: Option<Joined>,
    /// Its own, which nobody else can write: the share that it may use, what it has used of it, how
    /// far it sank.
    share: AtomicU64,
    account: AtomicU64,
    depth: AtomicU64,
}

#[derive(Debug)]
struct Joined {
    board: &'static Board,
    number: u16,
    /// A fork's child is no member any more.
    forgotten: AtomicBool,
}

impl Member {
    /// By itself: it never waits for others, and nobody sees it. Its share counts all the same.
    #[must_use]
    pub fn private(row: Row) -> Member {
        Member::new(row, None)
    }

    /// Takes a row of the board, for an address space of this name (32 bytes of it are kept) with
    /// so many virtual processors. The board stays mapped for good. The others are woken, or told,
    /// so that they notice.
    ///
    /// # Errors
    /// [`Error::NoRoom`]: all rows are taken, or more virtual processors than a row has cells;
    /// [`Error::Io`]: no locks there.
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
                "{vps} virtual processors, and a row has room for {CELLS}"
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
        // Its VPs wait for nothing yet: nobody had to find them before this.
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

    /// Its row.
    #[must_use]
    pub fn row(&self) -> Row {
        self.row
    }

    /// The board that it is at, and its row's number there.
    #[inline]
    #[must_use]
    pub fn board(&self) -> Option<(&'static Board, u16)> {
        self.joined.as_ref().map(|joined| (joined.board, joined.number))
    }

    /// How many other address spaces live on the board, as last counted. One load.
    #[inline]
    #[must_use]
    pub fn others(&self) -> u32 {
        let Some(joined) = &self.joined else { return 0 };
        (joined.board.layout().header.living.load(Ordering::Relaxed) as u32).saturating_sub(1)
    }

    /// Whether another address space has one of these cores, and runs there what is not of this
    /// level. A load for each; out of date at once.
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

    /// Another row of the board: to post there and call its virtual processors. None: out of range,
    /// or no board.
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

    /// Counts the live rows, by the kernel's word, and gives back what dead ones held. Takes some
    /// microseconds and more; called once in a second or so, it keeps the count right even where a
    /// process wrote nonsense over it.
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

    /// Gives back what a dead row held. Its lock is taken meanwhile, so that nobody begins to live
    /// in it.
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

    /// Writes its identity once more, in case that it was overwritten: others look for its waiting
    /// VPs by it.
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

    /// All virtual processors of the others look around.
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

    /// Notifies a VP of the board, if its kernel thread is known.
    pub(crate) fn notify(&self, place: VpId, notifier: &dyn CoreNotify) {
        if let (Some(pid), Some((board, _))) = (self.pid(place.row), self.board()) {
            let thread = board.layout().cell(place).thread().unwrap_or(0);
            let listener =
                board.layout().records[usize::from(place.row)].listener.load(Ordering::Relaxed);
            notifier.notify(Receiver { place, pid, thread, listener });
        }
    }

    /// Sets where this address space receives notifications: see
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

    /// The kernel thread that carries a VP, and its process.
    pub(crate) fn thread(&self, place: VpId) -> Option<(u32, u32)> {
        let (board, _) = self.board()?;
        Some((self.pid(place.row)?, board.layout().cell(place).thread()?))
    }

    /// Whether a row's process lives, by its lock.
    pub(crate) fn lives(&self, row: u16) -> bool {
        self.board().is_none_or(|(board, number)| row == number || board.locks.is_held(row))
    }

    /// A holder of this row was overridden.
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

    /// How often a virtual processor of this address space was overridden, and why last.
    #[must_use]
    pub fn overridden(&self) -> (u32, Option<Reason>) {
        let Some((board, number)) = self.board() else { return (0, None) };
        let record = &board.layout().records[usize::from(number)];
        (
            record.overridden.load(Ordering::Relaxed),
            Reason::decoded(record.reason.load(Ordering::Relaxed)),
        )
    }

    /// In a fork's child: it is alone from now on, its row a copy of its own, and its parent's
    /// remains its parent's. Safe in a signal handler.
    pub fn forget_in_child(&self) {
        if let Some(joined) = &self.joined {
            joined.forgotten.store(true, Ordering::Relaxed);
            joined.board.forget_in_child();
        }
    }

    /// How much CPU time this address space may use from now on; None: as much as it gets.
    pub fn set_share(&self, share: Option<Share>) {
        self.share.store(share.map_or(0, Share::packed), Ordering::Relaxed);
        if let Some(record) = self.record() {
            record.share.store(share.map_or(0, Share::packed), Ordering::Relaxed);
        }
    }

    /// See [`set_share`](Member::set_share).
    #[inline]
    #[must_use]
    pub fn share(&self) -> Option<Share> {
        Share::unpacked(self.share.load(Ordering::Relaxed))
    }

    /// The rule of feedback for *all* address spaces at this board; None: none.
    pub fn set_feedback(&self, rule: Option<Rule>) {
        if let Some((board, _)) = self.board() {
            board.set_feedback(rule);
        }
    }

    /// See [`set_feedback`](Member::set_feedback).
    #[must_use]
    pub fn feedback(&self) -> Option<Rule> {
        self.board().and_then(|(board, _)| board.feedback())
    }

    fn record(&self) -> Option<&crate::board::layout::Record> {
        self.board().map(|(board, number)| &board.layout().records[usize::from(number)])
    }

    /// A VP used so much CPU time. True: its address space's levels count otherwise now (its share
    /// is used up, or feedback): all its VPs have to ask again whether they [may
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

    /// The address space has nothing to run, and waits for something. As [`book`](Member::book).
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

    /// As what a VP counts that runs a microprocess of this level; None: it may not run now.
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

    /// Whether its CPU time is bounded. One load.
    #[inline]
    #[must_use]
    pub fn has_share(&self) -> bool {
        self.share.load(Ordering::Relaxed) != 0
    }

    /// Whether its share is hard, and used up: it may not run at all.
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

    /// In how many nanoseconds a share that is used up is renewed.
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

/// Changes a word; returns what stood there before.
fn update(word: &AtomicU64, how: impl Fn(u64) -> u64) -> u64 {
    word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| Some(how(word)))
        .unwrap_or_else(|word| word)
}
