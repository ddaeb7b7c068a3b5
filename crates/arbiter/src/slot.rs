//! A core's slot: which virtual processor of which address space holds the core, at what level, and
//! which ones wait for it.
//!
//! - wants the core, and it is free or held at a lower level: takes it; then: tells the displaced
//!   VP; looks for a higher waiter.
//! - wants it, and it is held at its level or a higher one: says in its cell that it waits; then:
//!   looks at the slot once more.
//! - holds it and leaves, or sinks: frees the slot, or lowers its mark; then: gives it to the
//!   highest waiter, and calls that one.
//! - is given it: accepts, by writing the slot anew; then: or, if it wants it no longer, leaves.
//!
//! No wake-up is lost: a waiter says that it waits and then looks at the slot; a VP that lowers a
//! slot does so and then looks for waiters; a full fence stands between the two on both sides, so
//! one of them sees the other. In the same way a waiter that goes away and one that just then is
//! given the slot: it clears what it said and looks at the slot; the giver writes the slot and
//! looks whether the waiter still waits. Modelled in loom below.
//!
//! All of this stands on a board, where other processes may write anything at any time: a word that
//! makes no sense counts as a free slot, every loop has an end, and a waiter looks again from time
//! to time ([`crate::seat`]).

use crate::loom::{AtomicU64, Ordering, fence};
use crate::row::Cell;

/// How many address spaces have room on a board.
pub const ROWS: usize = 256;
/// How many virtual processors of one address space have room on a board.
pub const CELLS: usize = 64;
/// How many cores a board has slots for.
pub const CORES: usize = 1024;

/// Fewer in a model: each atomic word multiplies the executions to explore.
const WORDS: usize = if cfg!(loom) { 1 } else { ROWS / 64 };
/// How often a protocol tries again before it believes that somebody writes nonsense all the time,
/// and waits.
const TRIES: u32 = 64;

/// At what level a core is held or waited for, as it stands on the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u8);

impl Mark {
    /// Nobody.
    pub const NONE: Mark = Mark(0);
    /// Below all levels: of an address space that has used up its share.
    pub const SPENT: Mark = Mark(1);

    /// Of a level, 0 to 63; a higher one counts as 63.
    #[must_use]
    pub fn of(level: u8) -> Mark {
        Mark(level.min(63) + 2)
    }

    /// The level, unless it is below all of them.
    #[must_use]
    pub fn level(self) -> Option<u8> {
        self.0.checked_sub(2)
    }

    /// As a number, in their order: 0 is [`NONE`](Mark::NONE), 1 [`SPENT`](Mark::SPENT).
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    fn checked(raw: u8) -> Option<Mark> {
        (1..=65).contains(&raw).then_some(Mark(raw))
    }
}

/// A virtual processor of an address space on the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VpId {
    /// The row of its address space.
    pub row: u16,
    /// Its number there.
    pub vp: u8,
}

/// What the slot of a core said at some moment: for a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotSnapshot {
    /// The core's number.
    pub core: u16,
    /// Rises by one with every change, 30 bits: what several processes saw of one slot is in order
    /// by it.
    pub serial: u32,
    /// The previous holder of the core; none: it was free.
    pub holder: Option<(VpId, Mark)>,
    /// Given, and not yet accepted.
    pub given: bool,
}

/// What a slot says: row + 1 (16 bits), VP (8), mark (8), two flags, serial (30).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

/// Given, and not yet accepted.
const GIVEN: u64 = 1 << 32;
/// Somebody wants to know whether the holder is still there.
const ASKED: u64 = 1 << 33;
const SERIAL: u32 = 34;

impl Word {
    /// None, where it is free or makes no sense.
    pub(crate) fn held(self) -> Option<(VpId, Mark)> {
        let (row, vp) = ((self.0 as u16).checked_sub(1)?, (self.0 >> 16) as u8);
        let mark = Mark::checked((self.0 >> 24) as u8)?;
        (usize::from(row) < ROWS && usize::from(vp) < CELLS).then_some((VpId { row, vp }, mark))
    }

    pub(crate) fn holder(self) -> Option<VpId> {
        self.held().map(|(place, _)| place)
    }

    pub(crate) fn mark(self) -> Mark {
        self.held().map_or(Mark::NONE, |(_, mark)| mark)
    }

    pub(crate) fn is_given(self) -> bool {
        self.0 & GIVEN != 0
    }

    pub(crate) fn is_asked(self) -> bool {
        self.0 & ASKED != 0
    }

    /// The same for as long as the same one holds it and does not answer.
    pub(crate) fn identity(self) -> u64 {
        self.0 & !ASKED
    }

    pub(crate) fn snapshot(self, core: u16) -> SlotSnapshot {
        SlotSnapshot {
            core,
            serial: (self.0 >> SERIAL) as u32,
            holder: self.held(),
            given: self.is_given(),
        }
    }

    fn next(self, row: u64, place: u64) -> Word {
        let serial = (self.0 >> SERIAL).wrapping_add(1) << SERIAL;
        Word(serial | place | row)
    }

    fn free(self) -> Word {
        self.next(0, 0)
    }

    fn of(self, place: VpId, mark: Mark) -> Word {
        self.next(u64::from(place.row) + 1, u64::from(place.vp) << 16 | u64::from(mark.0) << 24)
    }

    fn given(self, place: VpId, mark: Mark) -> Word {
        Word(self.of(place, mark).0 | GIVEN)
    }
}

/// The cells of all rows, and what has to be done about those in them.
pub(crate) trait BoardAccess {
    /// How many VPs a row has, at most [`CELLS`].
    fn vps(&self, row: u16) -> u8;
    /// `row` and `vp` are in range.
    fn cell(&self, place: VpId) -> &Cell;
    /// It was given the core: it has to be called.
    fn given(&self, place: VpId);
    /// It lost the core: it has to be told.
    fn displaced(&self, place: VpId);
    /// The caller has changed the slot, to this.
    fn changed(&self, _: SlotSnapshot) {}
}

/// One core's. All zero: free, and nobody waits.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Slot {
    word: AtomicU64,
    /// One bit a row: VPs of it may wait here. Which, and how high, their cells say.
    waiting: [AtomicU64; WORDS],
}

impl Slot {
    #[cfg(test)]
    pub(crate) fn new() -> Slot {
        Slot { word: AtomicU64::new(0), waiting: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    #[inline]
    pub(crate) fn load(&self) -> Word {
        Word(self.word.load(Ordering::Relaxed))
    }

    fn swap(&self, seen: Word, next: Word) -> bool {
        self.word.compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Nobody of this row waits here any more.
    pub(crate) fn forget(&self, row: u16) {
        self.bits(row).fetch_and(!bit(row), Ordering::Relaxed);
    }

    fn bits(&self, row: u16) -> &AtomicU64 {
        &self.waiting[usize::from(row) / 64 % WORDS]
    }
}

fn bit(row: u16) -> u64 {
    1 << (row % 64)
}

/// A slot, its core's number, and the VPs that may be there: the protocol.
pub(crate) struct SlotProtocol<'a, P> {
    pub(crate) slot: &'a Slot,
    pub(crate) number: u16,
    pub(crate) places: &'a P,
}

impl<P: BoardAccess> SlotProtocol<'_, P> {
    /// Makes the slot say `next`, if it still says `seen`.
    fn change(&self, seen: Word, next: Word) -> bool {
        let done = self.slot.swap(seen, next);
        if done {
            self.places.changed(next.snapshot(self.number));
        }
        done
    }

    /// `me` wants to run at `mark`. Ok: it holds the core, as this word says. Err: it waits for the
    /// holder of the core.
    ///
    /// `only_one`: no other VP of its row is ever at this core.
    pub(crate) fn enter(&self, me: VpId, mark: Mark, only_one: bool) -> Result<Word, Word> {
        for _ in 0..TRIES {
            let seen = self.slot.load();
            let next = seen.of(me, mark);
            let holder = seen.holder();
            if holder == Some(me) || seen.mark() < mark {
                if !self.change(seen, next) {
                    continue;
                }
                if let Some(other) = holder.filter(|&other| other != me) {
                    self.places.displaced(other);
                }
                self.withdraw(me, only_one);
                self.promote_waiter();
                let now = self.slot.load();
                if now.identity() == next.identity() {
                    return Ok(next);
                }
                continue;
            }
            self.wait(me, mark);
            let now = self.slot.load();
            if now.holder() != Some(me) && now.mark() >= mark {
                return Err(now);
            }
        }
        self.wait(me, mark);
        Err(self.slot.load())
    }

    /// `me` says that it waits; a look at the slot has to follow.
    fn wait(&self, me: VpId, mark: Mark) {
        self.places.cell(me).begin_wait(self.number, mark);
        self.slot.bits(me.row).fetch_or(bit(me.row), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// `me` does not wait any more.
    fn withdraw(&self, me: VpId, only_one: bool) {
        self.places.cell(me).end_wait();
        // Where there may be others of the row its bit stays: to clear it for one would lose
        // another.
        if only_one {
            self.slot.bits(me.row).fetch_and(!bit(me.row), Ordering::Relaxed);
        }
    }

    /// `me` does not want the core: if it has it, the highest waiter gets it, of those that are
    /// there after `meanwhile`.
    pub(crate) fn leave(&self, me: VpId, only_one: bool, meanwhile: impl FnOnce()) {
        self.withdraw(me, only_one);
        fence(Ordering::SeqCst);
        let is_free = (0..TRIES).find_map(|_| {
            let seen = self.slot.load();
            match seen.holder() == Some(me) {
                true => self.change(seen, seen.free()).then_some(true),
                false => Some(false),
            }
        });
        meanwhile();
        if is_free == Some(true) {
            self.promote_waiter();
        }
    }

    /// `me` holds the core at `mark` and has had its turn: a waiter at no lower a level gets it.
    /// False: there is none.
    pub(crate) fn turn_over(&self, me: VpId, mark: Mark) -> bool {
        let seen = self.slot.load();
        seen.holder() == Some(me) && self.give(seen, Mark(mark.0 - 1)) == Some(true)
    }

    /// The holder is not to have the core any more. False: it is not as `seen` says by now.
    pub(crate) fn evict(&self, seen: Word) -> bool {
        let done = self.change(seen, seen.free());
        if done {
            self.promote_waiter();
        }
        done
    }

    /// Asks the holder whether it is there: [`enter`](SlotProtocol::enter) answers, by another
    /// word.
    pub(crate) fn ask(&self, seen: Word) {
        self.slot.swap(seen, Word(seen.0 | ASKED));
    }

    /// After the slot was freed or lowered: if somebody waits at a higher level, it gets it.
    fn promote_waiter(&self) {
        fence(Ordering::SeqCst);
        for _ in 0..TRIES {
            let seen = self.slot.load();
            if self.give(seen, seen.mark()).is_some() {
                return;
            }
        }
    }

    /// The highest of the waiters above `above` gets the slot. Some(false): none waits so. None: it
    /// changed just now.
    fn give(&self, seen: Word, above: Mark) -> Option<bool> {
        let Some((place, mark)) = self.highest_waiter(seen, above) else { return Some(false) };
        let given = seen.given(place, mark);
        if !self.change(seen, given) {
            return None;
        }
        if let Some(other) = seen.holder() {
            self.places.displaced(other);
        }
        fence(Ordering::SeqCst);
        if self.places.cell(place).waits_for(self.number) == Some(mark) {
            self.places.given(place);
            return Some(true);
        }
        // It waits no longer, or otherwise. If it has not accepted meanwhile, it may be past its
        // last look at the slot.
        if self.change(given, given.free()) { None } else { Some(true) }
    }

    /// The highest waiter above `above`; of several the one whose row comes first after the
    /// holder's, so that all have their turn.
    fn highest_waiter(&self, seen: Word, above: Mark) -> Option<(VpId, Mark)> {
        let holder = seen.holder();
        let after = holder.map_or(0, |holder| usize::from(holder.row) + 1);
        // Of several of one row, any: by the serial, scattered since it rises by two from one
        // holder to the next.
        let any = (seen.0 >> SERIAL).wrapping_mul(0x9e37_79b9) >> 16;
        let mut best: Option<(VpId, Mark)> = None;
        for turn in 0..=WORDS {
            let word = (after / 64 + turn) % WORDS;
            let all = self.slot.waiting[word].load(Ordering::Relaxed);
            // The first word is looked at twice: the rows after the holder's, and in the end those
            // before.
            let first = u64::MAX.checked_shl(after as u32 % 64).unwrap_or(0);
            let mut rows = match turn {
                0 => all & first,
                WORDS => all & !first,
                _ => all,
            };
            while rows != 0 {
                let row = (word * 64) as u16 + rows.trailing_zeros() as u16;
                rows &= rows - 1;
                let vps = self.places.vps(row);
                for turn in 0..u64::from(vps) {
                    let place = VpId { row, vp: ((any + turn) % u64::from(vps)) as u8 };
                    let Some(mark) = self.places.cell(place).waits_for(self.number) else {
                        continue;
                    };
                    if mark > best.map_or(above, |(_, mark)| mark) && Some(place) != holder {
                        best = Some((place, mark));
                    }
                }
            }
        }
        best
    }
}

impl Cell {
    /// The owner waits for a core.
    pub(crate) fn begin_wait(&self, core: u16, mark: Mark) {
        self.set_waits((u32::from(core) + 1) << 8 | u32::from(mark.0));
    }

    pub(crate) fn end_wait(&self) {
        self.set_waits(0);
    }

    /// At what level the owner waits for this core.
    pub(crate) fn waits_for(&self, core: u16) -> Option<Mark> {
        let waits = self.waits();
        (waits >> 8 == u32::from(core) + 1).then(|| Mark::checked(waits as u8)).flatten()
    }
}

#[cfg(test)]
mod tests;
