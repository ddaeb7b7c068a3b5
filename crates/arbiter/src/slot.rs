//! Slot of a core: which VP of which address space holds the core, at what mark, and which VPs wait
//! for it.
//!
//! - A VP that needs the core, which is free or held at a lower mark, takes it. Afterwards it
//!   notifies the displaced VP and searches for a higher waiter.
//! - A VP that needs the core, which is held at its own or a higher mark, stores in its cell that
//!   it waits. Afterwards it checks the slot once more.
//! - A holder that leaves or sinks frees the slot or lowers its mark. Afterwards it gives the slot
//!   to the highest waiter and wakes it.
//! - A VP that was given the slot accepts it by writing the slot anew, or leaves it if it no longer
//!   needs the core.
//!
//! No wake-up is lost. A waiter stores that it waits and then loads the slot; a VP that lowers a
//! slot stores the slot and then searches for waiters. A full fence separates the two steps on both
//! sides, so at least one observes the other. The same holds for a waiter that withdraws while it
//! is given the slot. The waiter clears its wait and then loads the slot; the giver writes the slot
//! and then loads the wait. `slot/tests/loom.rs` models the protocol.
//!
//! The slots lie on a board, where other processes may write anything at any time. Therefore an
//! invalid word counts as a free slot, every loop is bounded, and a waiter checks again
//! periodically ([`crate::seat`]).

use crate::loom::{AtomicU64, Ordering, fence};
use crate::row::Cell;

/// Maximum number of address spaces on a board.
pub const ROWS: usize = 256;
/// Maximum number of VPs of one address space on a board.
pub const CELLS: usize = 64;
/// Number of cores for which a board has slots.
pub const CORES: usize = 1024;

/// Fewer words in a model: each atomic word multiplies the executions to explore.
const WORDS: usize = if cfg!(loom) { 1 } else { ROWS / 64 };
/// Number of attempts of a protocol step. After that the VP waits, because a process apparently
/// overwrites the slot continuously.
const TRIES: u32 = 64;

/// Level at which a core is held or waited for, as stored on the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u8);

impl Mark {
    /// No holder.
    pub const NONE: Mark = Mark(0);
    /// Below all levels: the address space has used up its share.
    pub const SPENT: Mark = Mark(1);

    /// Returns the mark of a level, 0 to 63; a higher level counts as 63.
    #[must_use]
    pub fn of(level: u8) -> Mark {
        Mark(level.min(63) + 2)
    }

    /// Returns the level, or `None` if the mark is below all levels.
    #[must_use]
    pub fn level(self) -> Option<u8> {
        self.0.checked_sub(2)
    }

    /// Returns the mark as a number, in order of marks: 0 is [`NONE`](Mark::NONE), 1
    /// [`SPENT`](Mark::SPENT).
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    fn checked(raw: u8) -> Option<Mark> {
        (1..=65).contains(&raw).then_some(Mark(raw))
    }
}

/// VP of an address space on the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VpId {
    /// Row of its address space.
    pub row: u16,
    /// Number of the VP within the row.
    pub vp: u8,
}

/// Content of a core's slot at some time, for a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotSnapshot {
    /// Number of the core.
    pub core: u16,
    /// Serial of 30 bits that increases by one with every change. It orders the snapshots of one
    /// slot that several processes took.
    pub serial: u32,
    /// Holder of the core; `None` if it is free.
    pub holder: Option<(VpId, Mark)>,
    /// Whether the holder was given the core and has not accepted it yet.
    pub given: bool,
}

/// Word of a slot: row + 1 (16 bits), VP (8), mark (8), two flags, serial (30).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

/// The holder was given the core and has not accepted it yet.
const GIVEN: u64 = 1 << 32;
/// A waiter requests an acknowledgement from the holder.
const ASKED: u64 = 1 << 33;
const SERIAL: u32 = 34;

impl Word {
    /// Returns the holder and its mark. `None` if the slot is free or the word is invalid.
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

    /// Returns the word without `ASKED`. It stays the same until the holder changes or
    /// acknowledges.
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

/// Access to the cells of all rows, and notification of the VPs in them.
pub(crate) trait BoardAccess {
    /// Returns the number of VPs of a row, at most [`CELLS`].
    fn vps(&self, row: u16) -> u8;
    /// Returns the cell of `place`, which must be in range.
    fn cell(&self, place: VpId) -> &Cell;
    /// Wakes a VP that was given the core.
    fn given(&self, place: VpId);
    /// Notifies a VP that lost the core.
    fn displaced(&self, place: VpId);
    /// Reports that the caller has changed the slot to this content.
    fn changed(&self, _: SlotSnapshot) {}
}

/// Slot of one core. All zeroes mean a free core without waiters.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Slot {
    word: AtomicU64,
    /// One bit per row: its VPs may wait for this core. Their cells hold whether and at which mark.
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

    /// Removes a row from the waiters of this core.
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

/// Protocol on a slot: the slot, its core's number, and access to the VPs.
pub(crate) struct SlotProtocol<'a, P> {
    pub(crate) slot: &'a Slot,
    pub(crate) number: u16,
    pub(crate) places: &'a P,
}

impl<P: BoardAccess> SlotProtocol<'_, P> {
    /// Changes the slot from `seen` to `next`. Returns false if it no longer holds `seen`.
    fn change(&self, seen: Word, next: Word) -> bool {
        let done = self.slot.swap(seen, next);
        if done {
            self.places.changed(next.snapshot(self.number));
        }
        done
    }

    /// Requests the core for `me` at `mark`. Returns `Ok` with the slot's word if `me` holds the
    /// core, and `Err` with the holder's word if `me` waits.
    ///
    /// `only_one`: no other VP of its row ever uses this core.
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

    /// Stores that `me` waits. The caller must load the slot afterwards.
    fn wait(&self, me: VpId, mark: Mark) {
        self.places.cell(me).begin_wait(self.number, mark);
        self.slot.bits(me.row).fetch_or(bit(me.row), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Clears the wait of `me`.
    fn withdraw(&self, me: VpId, only_one: bool) {
        self.places.cell(me).end_wait();
        // Other VPs of the row may wait too, so the row's bit stays set: clearing it could lose one
        // of them.
        if only_one {
            self.slot.bits(me.row).fetch_and(!bit(me.row), Ordering::Relaxed);
        }
    }

    /// Releases the core if `me` holds it. The highest waiter after the call of `meanwhile` gets
    /// the core.
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

    /// Gives the core, which `me` holds at `mark`, to a waiter of the same or a higher mark.
    /// Returns false if there is none.
    pub(crate) fn turn_over(&self, me: VpId, mark: Mark) -> bool {
        let seen = self.slot.load();
        seen.holder() == Some(me) && self.give(seen, Mark(mark.0 - 1)) == Some(true)
    }

    /// Takes the core from its holder. Returns false if the slot no longer holds `seen`.
    pub(crate) fn evict(&self, seen: Word) -> bool {
        let done = self.change(seen, seen.free());
        if done {
            self.promote_waiter();
        }
        done
    }

    /// Requests an acknowledgement from the holder. [`enter`](SlotProtocol::enter) acknowledges by
    /// writing a new word.
    pub(crate) fn ask(&self, seen: Word) {
        self.slot.swap(seen, Word(seen.0 | ASKED));
    }

    /// Gives the slot to a waiter of a higher mark, if there is one. Called after the slot was
    /// freed or lowered.
    fn promote_waiter(&self) {
        fence(Ordering::SeqCst);
        for _ in 0..TRIES {
            let seen = self.slot.load();
            if self.give(seen, seen.mark()).is_some() {
                return;
            }
        }
    }

    /// Gives the slot to the highest waiter above `above`. Returns `Some(false)` if there is none,
    /// and `None` if the slot changed meanwhile.
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
        // The VP no longer waits, or waits at another mark. If it has not accepted the slot
        // meanwhile, it may already have loaded the slot for the last time: the slot must be freed.
        if self.change(given, given.free()) { None } else { Some(true) }
    }

    /// Finds the highest waiter above `above`. Among equals, the first row after the holder's row
    /// wins, so that all rows get a turn.
    fn highest_waiter(&self, seen: Word, above: Mark) -> Option<(VpId, Mark)> {
        let holder = seen.holder();
        let after = holder.map_or(0, |holder| usize::from(holder.row) + 1);
        // Among the VPs of one row the search starts at an arbitrary VP. It is derived from the
        // serial by multiplication, because the serial increases by two from one holder to the
        // next.
        let any = (seen.0 >> SERIAL).wrapping_mul(0x9e37_79b9) >> 16;
        let mut best: Option<(VpId, Mark)> = None;
        for turn in 0..=WORDS {
            let word = (after / 64 + turn) % WORDS;
            let all = self.slot.waiting[word].load(Ordering::Relaxed);
            // The first word is searched twice: at first the rows after the holder's, at last the
            // rows before.
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
    /// Stores that the owner waits for a core.
    pub(crate) fn begin_wait(&self, core: u16, mark: Mark) {
        self.set_waits((u32::from(core) + 1) << 8 | u32::from(mark.0));
    }

    pub(crate) fn end_wait(&self) {
        self.set_waits(0);
    }

    /// Returns the mark at which the owner waits for this core.
    pub(crate) fn waits_for(&self, core: u16) -> Option<Mark> {
        let waits = self.waits();
        (waits >> 8 == u32::from(core) + 1).then(|| Mark::checked(waits as u8)).flatten()
    }
}

#[cfg(test)]
mod tests;
