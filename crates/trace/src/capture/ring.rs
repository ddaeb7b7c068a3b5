//! Bounded buffers of records between the recording threads and the thread that writes the records
//! out.
//!
//! [`Ring`] has one writer at a time (a VP's carrier), [`SharedRing`] any number. Neither ever
//! blocks, allocates or makes a system call: a record that finds no room is counted as lost. Signal
//! handlers may write to both; for a `Ring`, the handler must run in place of its one writer.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::capture::clock::Clock;
use crate::capture::record::{Kind, Record, Words, name_words};

type Cell = [AtomicU64; 3];

fn cells(records: usize) -> Box<[Cell]> {
    (0..records.max(8).next_power_of_two()).map(|_| Default::default()).collect()
}

/// State of the writer.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Writer {
    head: AtomicU64,
    /// The last value read from `tail`. The consumer's cache line is read only if the ring seems
    /// full.
    seen: AtomicU64,
    lost: AtomicU64,
    /// Number of records lost since the start; `lost` counts those not yet reported.
    lost_ever: AtomicU64,
    /// A cause for the next record.
    note: AtomicU64,
}

/// State of the consumer.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Reader {
    tail: AtomicU64,
}

/// A buffer with one writer at a time. Changes of the writer require a happens-before edge, which
/// the hand-over of a VP provides.
#[derive(Debug)]
pub struct Ring {
    writer: Writer,
    reader: Reader,
    cells: Box<[Cell]>,
    clock: Clock,
}

impl Ring {
    /// Creates a buffer with room for `records`, rounded up to a power of two.
    #[must_use]
    pub fn new(records: usize, clock: Clock) -> Ring {
        Ring { writer: Writer::default(), reader: Reader::default(), cells: cells(records), clock }
    }

    /// Stores `record` with the current time. For the writer.
    #[inline]
    pub fn put(&self, record: Record) {
        if self.has_room(1) {
            self.store(record.words(self.clock.ticks()));
        }
    }

    /// Stores `record` with the name of its microprocess. For the writer.
    pub fn put_named(&self, record: Record, name: &[u8]) {
        if self.has_room(1 + name_words(name).count() as u64) {
            self.store(record.words(self.clock.ticks()));
            name_words(name).for_each(|words| self.store(words));
        }
    }

    /// Stores a word for the next record of the same writer; see [`take_note`](Ring::take_note).
    /// For the writer.
    #[inline]
    pub fn note(&self, word: u8) {
        self.writer.note.store(u64::from(word), Ordering::Relaxed);
    }

    /// Returns the word that [`note`](Ring::note) stored and clears it; 0 if there is none. For the
    /// writer.
    #[inline]
    pub fn take_note(&self) -> u8 {
        let note = self.writer.note.load(Ordering::Relaxed);
        if note != 0 {
            self.writer.note.store(0, Ordering::Relaxed);
        }
        note as u8
    }

    /// Returns whether `n` records fit, and counts a lost record if they do not. First stores a
    /// record about earlier losses, if there were any.
    #[inline]
    fn has_room(&self, n: u64) -> bool {
        let lost = self.writer.lost.load(Ordering::Relaxed);
        if lost == 0 && self.fits(n) {
            return true;
        }
        self.has_room_after_loss(n, lost)
    }

    #[cold]
    fn has_room_after_loss(&self, n: u64, lost: u64) -> bool {
        let fits = self.fits(n + 1);
        if fits && lost != 0 {
            self.store(Record { id: lost, ..Record::new(Kind::Lost) }.words(self.clock.ticks()));
        }
        self.writer.lost.store(if fits { 0 } else { lost + 1 }, Ordering::Release);
        if !fits {
            self.writer
                .lost_ever
                .store(self.writer.lost_ever.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        fits
    }

    #[inline]
    fn fits(&self, n: u64) -> bool {
        let end = self.writer.head.load(Ordering::Relaxed) + n;
        let size = self.cells.len() as u64;
        if end - self.writer.seen.load(Ordering::Relaxed) <= size {
            return true;
        }
        // Acquire: the consumer has read the cells before `tail`.
        let tail = self.reader.tail.load(Ordering::Acquire);
        self.writer.seen.store(tail, Ordering::Relaxed);
        end - tail <= size
    }

    #[inline]
    fn store(&self, words: Words) {
        let head = self.writer.head.load(Ordering::Relaxed);
        let cell = &self.cells[head as usize & (self.cells.len() - 1)];
        for (to, from) in cell.iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
        // Release: the cell is complete.
        self.writer.head.store(head + 1, Ordering::Release);
    }

    /// Takes all records. For the one consumer.
    pub fn drain(&self, mut each: impl FnMut(Words)) {
        let (tail, head) =
            (self.reader.tail.load(Ordering::Relaxed), self.writer.head.load(Ordering::Acquire));
        for at in tail..head {
            let cell = &self.cells[at as usize & (self.cells.len() - 1)];
            each([0, 1, 2].map(|i| cell[i].load(Ordering::Relaxed)));
        }
        self.reader.tail.store(head, Ordering::Release);
    }

    /// Returns the number of lost records that no record in the buffer reports.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.writer.lost.load(Ordering::Acquire)
    }

    /// Returns the number of records lost since the start.
    #[must_use]
    pub fn lost_ever(&self) -> u64 {
        self.writer.lost_ever.load(Ordering::Relaxed)
    }
}

/// A buffer with any number of writers, for threads that carry no VP. Writers are lock-free. A
/// writer that is stopped in the middle of a record delays the consumer.
#[derive(Debug)]
pub struct SharedRing {
    head: AtomicU64,
    tail: AtomicU64,
    lost: AtomicU64,
    lost_ever: AtomicU64,
    cells: Box<[Cell]>,
    clock: Clock,
}

impl SharedRing {
    /// Creates a buffer with room for `records`, rounded up to a power of two.
    #[must_use]
    pub fn new(records: usize, clock: Clock) -> SharedRing {
        let (head, tail, lost, lost_ever) = Default::default();
        SharedRing { head, tail, lost, lost_ever, cells: cells(records), clock }
    }

    /// Stores `record` with the current time.
    pub fn put(&self, record: Record) {
        self.put_named(record, &[]);
    }

    /// Stores `record` with the name of its microprocess.
    pub fn put_named(&self, record: Record, name: &[u8]) {
        let n = 1 + name_words(name).count() as u64;
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // Acquire: the consumer has emptied the cells before `tail`.
            if head + n > self.tail.load(Ordering::Acquire) + self.cells.len() as u64 {
                self.lost.fetch_add(1, Ordering::Relaxed);
                self.lost_ever.fetch_add(1, Ordering::Relaxed);
                return;
            }
            match self.head.compare_exchange_weak(
                head,
                head + n,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        let words = std::iter::once(record.words(self.clock.ticks())).chain(name_words(name));
        for (at, [time, id, last]) in (head..).zip(words) {
            let cell = self.cell(at);
            cell[0].store(time, Ordering::Relaxed);
            cell[1].store(id, Ordering::Relaxed);
            // The last word contains the kind and is never 0, so the consumer recognises a complete
            // cell.
            cell[2].store(last, Ordering::Release);
        }
    }

    /// Returns the number of records lost since the start.
    #[must_use]
    pub fn lost_ever(&self) -> u64 {
        self.lost_ever.load(Ordering::Relaxed)
    }

    fn cell(&self, at: u64) -> &Cell {
        &self.cells[at as usize & (self.cells.len() - 1)]
    }

    /// Takes all records up to the first incomplete one. Returns false if there is an incomplete
    /// one. For the one consumer.
    pub fn drain(&self, mut each: impl FnMut(Words)) -> bool {
        let mut tail = self.tail.load(Ordering::Relaxed);
        let head = self.head.load(Ordering::Relaxed);
        while tail < head {
            let cell = self.cell(tail);
            let last = cell[2].load(Ordering::Acquire);
            if last == 0 {
                break;
            }
            each([cell[0].load(Ordering::Relaxed), cell[1].load(Ordering::Relaxed), last]);
            cell[2].store(0, Ordering::Relaxed);
            tail += 1;
        }
        self.tail.store(tail, Ordering::Release);
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost != 0 {
            each(Record { id: lost, ..Record::new(Kind::Lost) }.words(self.clock.ticks()));
        }
        tail == head
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn taken(drain: impl FnOnce(&mut dyn FnMut(Words))) -> Vec<Record> {
        let mut all = Vec::new();
        drain(&mut |words| all.extend(Record::from_words(words)));
        all
    }

    fn numbered(id: u64) -> Record {
        Record { id, ..Record::new(Kind::Ready) }
    }

    #[test]
    fn losses_are_counted_and_reported_before_the_next_record() {
        let ring = Ring::new(8, Clock::new());
        (0..11).for_each(|i| ring.put(numbered(i)));
        assert_eq!(ring.lost(), 3);
        let first = taken(|each| ring.drain(each));
        assert_eq!(first.iter().map(|r| r.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
        ring.put(numbered(11));
        let rest = taken(|each| ring.drain(each));
        assert_eq!(
            rest.iter().map(|r| (r.kind, r.id)).collect::<Vec<_>>(),
            [(Kind::Lost, 3), (Kind::Ready, 11)]
        );
        assert_eq!(ring.lost(), 0);
    }

    #[test]
    fn note_is_taken_once() {
        let ring = Ring::new(8, Clock::new());
        ring.note(4);
        assert_eq!((ring.take_note(), ring.take_note()), (4, 0));
    }

    #[test]
    fn name_is_stored_whole_or_not_at_all() {
        let crowd = SharedRing::new(8, Clock::new());
        let name = [b'x'; 40];
        (0..3).for_each(|i| crowd.put_named(numbered(i), &name));
        let all = taken(|each| assert!(crowd.drain(each)));
        let kinds: Vec<_> = all.iter().map(|r| r.kind).collect();
        let one = [Kind::Ready, Kind::Name, Kind::Name];
        assert_eq!(kinds, [&one[..], &one[..], &[Kind::Lost]].concat());
    }

    /// The records taken and lost are the records put in, in each writer's order.
    #[test]
    fn shared_ring_counts_every_lost_record() {
        const EACH: u64 = 20_000;
        let crowd = Arc::new(SharedRing::new(64, Clock::new()));
        let done = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..3u32)
            .map(|w| {
                let crowd = crowd.clone();
                std::thread::spawn(move || {
                    (0..EACH).for_each(|id| crowd.put(Record { arg: w, ..numbered(id) }))
                })
            })
            .collect();
        let consumer = {
            let (crowd, done) = (crowd.clone(), done.clone());
            std::thread::spawn(move || {
                let (mut seen, mut lost, mut last) = (0, 0, [None; 3]);
                loop {
                    let over = done.load(Ordering::Acquire);
                    for record in taken(|each| _ = crowd.drain(each)) {
                        if record.kind == Kind::Lost {
                            lost += record.id;
                            continue;
                        }
                        assert!(last[record.arg as usize] < Some(record.id));
                        last[record.arg as usize] = Some(record.id);
                        seen += 1;
                    }
                    if over {
                        return seen + lost;
                    }
                }
            })
        };
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Release);
        assert_eq!(consumer.join().unwrap(), 3 * EACH);
    }

    #[test]
    fn ring_delivers_all_stored_records() {
        const ALL: u64 = 50_000;
        let ring = Arc::new(Ring::new(64, Clock::new()));
        let writer = {
            let ring = ring.clone();
            std::thread::spawn(move || (0..ALL).for_each(|id| ring.put(numbered(id))))
        };
        let mut count = 0;
        loop {
            let over = writer.is_finished();
            for record in taken(|each| ring.drain(each)) {
                count += if record.kind == Kind::Lost { record.id } else { 1 };
            }
            if over {
                break;
            }
        }
        assert_eq!(count + ring.lost(), ALL);
    }
}
