//! A ring of entries in shared memory, from many producers of one side to the consumers of the
//! other side.
//!
//! Only the entries are shared; the producers' tail and the consumers' head are private to their
//! sides. The top bit of an entry is the parity of the lap in which it was written, so that zeroed
//! memory is an empty ring and entries are never cleared.
//!
//! # A ring never overflows
//! Requests: a cell's entries are request, perhaps cancel, request, perhaps cancel, and so on. A
//! request is pushed only after the reply to the one before was popped, which was pushed after that
//! request was popped. So among any 4 entries of a cell that follow one another are two requests,
//! the first of which was popped before the second was pushed. With 4 K entries for K cells, any 4
//! K + 1 places that follow one another have more than 4 of some cell: so the claimer of a place
//! knows that what stood there a lap ago has been popped. Replies: the same with K entries, since a
//! cell's next reply comes only after its last one was popped.
//!
//! In terms of happens-before: the claim of a place acquires all claims before it (the
//! read-modify-writes of `tail` are a release sequence), among them that of the cell's second
//! entry; that one follows the pop of its first, and a pop follows all pops of places before it
//! (`busy`). The model `ring_place_is_popped_before_its_reuse` fails without.
//!
//! All this holds if the other side keeps to the protocol. If not, entries are overwritten, and the
//! consumer finds nonsense or nothing.

use super::padded::Padded;
use crate::loom::{AtomicBool, AtomicU32, Ordering};

/// The bit of an entry for the lap in which it was written.
pub(super) const LAP: u32 = 1 << 31;

/// The lap bit of what is written at this position; 1 in the first lap. Positions wrap at 2^32, a
/// multiple of two laps.
#[inline]
fn lap(position: u32, entries: usize) -> u32 {
    if position & entries as u32 == 0 { LAP } else { 0 }
}

/// The producing side.
pub(super) struct Producer {
    tail: Padded<AtomicU32>,
}

impl Producer {
    pub(super) fn new() -> Producer {
        Producer { tail: Padded(AtomicU32::new(0)) }
    }

    /// Appends an entry (without its lap bit). Wait-free. The number of `entries` is a power of
    /// two.
    #[inline]
    pub(super) fn push(&self, entries: &[AtomicU32], entry: u32) {
        // AcqRel: see above.
        let position = self.tail.fetch_add(1, Ordering::AcqRel);
        let at = position as usize & (entries.len() - 1);
        // Release: what was written into the cell before.
        entries[at].store(entry | lap(position, entries.len()), Ordering::Release);
    }
}

/// The consuming side.
pub(super) struct Consumer {
    head: Padded<AtomicU32>,
    /// A thread consumes.
    busy: Padded<AtomicBool>,
}

impl Consumer {
    pub(super) fn new() -> Consumer {
        Consumer { head: Padded(AtomicU32::new(0)), busy: Padded(AtomicBool::new(false)) }
    }

    /// Whether there is an entry. The answer may be wrong while another thread consumes, which
    /// checks again before it sleeps.
    #[inline]
    pub(super) fn has_some(&self, entries: &[AtomicU32]) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        let entry = entries[head as usize & (entries.len() - 1)].load(Ordering::Relaxed);
        entry & LAP == lap(head, entries.len())
    }

    /// Passes up to `most` entries on, without their lap bits, in order; stops behind the entry of
    /// an error. Returns the number, 0 if another thread consumes. An entry that is claimed and not
    /// yet written delays those behind it.
    #[inline]
    pub(super) fn drain<E>(
        &self,
        entries: &[AtomicU32],
        most: usize,
        mut f: impl FnMut(u32) -> Result<(), E>,
    ) -> Result<usize, E> {
        let Some(_turn) = ConsumerGuard::take(&self.busy) else { return Ok(0) };
        // Relaxed: only written by the thread that has the turn.
        let mut head = self.head.load(Ordering::Relaxed);
        for n in 0..most {
            // Acquire: pairs with the push; what is in the cell is then seen, too.
            let entry = entries[head as usize & (entries.len() - 1)].load(Ordering::Acquire);
            if entry & LAP != lap(head, entries.len()) {
                return Ok(n);
            }
            head = head.wrapping_add(1);
            self.head.store(head, Ordering::Relaxed);
            f(entry & !LAP)?;
        }
        Ok(most)
    }
}

/// The right to consume, until it is dropped.
struct ConsumerGuard<'a>(&'a AtomicBool);

impl ConsumerGuard<'_> {
    #[inline]
    fn take(busy: &AtomicBool) -> Option<ConsumerGuard<'_>> {
        // Acquire: the head, and all pops before, of the thread that had it last.
        let free = !busy.load(Ordering::Relaxed);
        (free && busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok())
            .then(|| ConsumerGuard(busy))
    }
}

impl Drop for ConsumerGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
