//! Bounded buffers of records between the recording threads and the one that writes them out.
//!
//! [`Ring`] has one writer at a time (a VP's carrier), [`SharedRing`] any number. Neither ever
//! waits, allocates or makes a system call: what finds no room is counted as lost. Both may be
//! written in a signal handler, a `Ring` under the rule of its one writer.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::capture::clock::Clock;
use crate::capture::record::{Kind, Record, Words, name_words};

type Cell = [AtomicU64; 3];

fn cells(records: usize) -> Box<[Cell]> {
    (0..records.max(8).next_power_of_two()).map(|_| Default::default()).collect()
}

/// For its writer alone.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Writer {
    head: AtomicU64,
    /// `tail` as last looked at: the consumer's line is read only when the ring seems full.
    seen: AtomicU64,
    lost: AtomicU64,
    /// As `lost`, since the begin.
    lost_ever: AtomicU64,
    /// A cause that the next record takes up.
    note: AtomicU64,
}

/// For the consumer.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Reader {
    tail: AtomicU64,
}

/// A buffer with one writer at a time. Which one that is must be settled by something that orders
/// memory, as the hand-over of a VP does.
#[derive(Debug)]
pub struct Ring {
    writer: Writer,
    reader: Reader,
    cells: Box<[Cell]>,
    clock: Clock,
}

impl Ring {
    /// Room for `records`, rounded up to a power of two.
    #[must_use]
    pub fn new(records: usize, clock: Clock) -> Ring {
        Ring { writer: Writer::default(), reader: Reader::default(), cells: cells(records), clock }
    }

    /// Notes `record`, with the time of now. By the writer.
    #[inline]
    pub fn put(&self, record: Record) {
        if self.has_room(1) {
            self.store(record.words(self.clock.ticks()));
        }
    }

    /// As [`put`](Ring::put), with the name of the microprocess that it is about.
    pub fn put_named(&self, record: Record, name: &[u8]) {
        if self.has_room(1 + name_words(name).count() as u64) {
            self.store(record.words(self.clock.ticks()));
            name_words(name).for_each(|words| self.store(words));
        }
    }

    /// Leaves a word for the next record of the same writer: see [`take_note`](Ring::take_note). By
    /// the writer.
    #[inline]
    pub fn note(&self, word: u8) {
        self.writer.note.store(u64::from(word), Ordering::Relaxed);
    }

    /// What [`note`](Ring::note) left, once; else 0. By the writer.
    #[inline]
    pub fn take_note(&self) -> u8 {
        let note = self.writer.note.load(Ordering::Relaxed);
        if note != 0 {
            self.writer.note.store(0, Ordering::Relaxed);
        }
        note as u8
    }

    /// Whether `n` records fit; if not they are counted as lost. What was lost before is said
    /// first.
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
        // Acquire: the consumer has read what stood there.
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

    /// Takes all there is. By the one consumer.
    pub fn drain(&self, mut each: impl FnMut(Words)) {
        let (tail, head) =
            (self.reader.tail.load(Ordering::Relaxed), self.writer.head.load(Ordering::Acquire));
        for at in tail..head {
            let cell = &self.cells[at as usize & (self.cells.len() - 1)];
            each([0, 1, 2].map(|i| cell[i].load(Ordering::Relaxed)));
        }
        self.reader.tail.store(head, Ordering::Release);
    }

    /// Records lost that no record in the buffer tells of.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.writer.lost.load(Ordering::Acquire)
    }

    /// Records lost since the begin.
    #[must_use]
    pub fn lost_ever(&self) -> u64 {
        self.writer.lost_ever.load(Ordering::Relaxed)
    }
}

/// A buffer with any number of writers: threads that carry no VP. Lock-free; a writer that is
/// stopped in the middle holds up the reading.
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
    /// Room for `records`, rounded up to a power of two.
    #[must_use]
    pub fn new(records: usize, clock: Clock) -> SharedRing {
        let (head, tail, lost, lost_ever) = Default::default();
        SharedRing { head, tail, lost, lost_ever, cells: cells(records), clock }
    }

    /// Notes `record`, with the time of now.
    pub fn put(&self, record: Record) {
        self.put_named(record, &[]);
    }

    /// As [`put`](SharedRing::put), with the name of the microprocess that it is about.
    pub fn put_named(&self, record: Record, name: &[u8]) {
        let n = 1 + name_words(name).count() as u64;
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // Acquire: the consumer has emptied the cells.
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
            // Never 0 (it has the kind), which is how the consumer knows that the cell is complete.
            cell[2].store(last, Ordering::Release);
        }
    }

    /// Records lost since the begin.
    #[must_use]
    pub fn lost_ever(&self) -> u64 {
        self.lost_ever.load(Ordering::Relaxed)
    }

    fn cell(&self, at: u64) -> &Cell {
        &self.cells[at as usize & (self.cells.len() - 1)]
    }

    /// Takes all there is, up to the first that is not complete: false if there is one. By the one
    /// consumer.
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
    fn what_does_not_fit_is_counted_and_said_before_the_next() {
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
    fn a_note_is_taken_once() {
        let ring = Ring::new(8, Clock::new());
        ring.note(4);
        assert_eq!((ring.take_note(), ring.take_note()), (4, 0));
    }

    #[test]
    fn a_name_comes_whole_or_not_at_all() {
        let crowd = SharedRing::new(8, Clock::new());
        let name = [b'x'; 40];
        (0..3).for_each(|i| crowd.put_named(numbered(i), &name));
        let all = taken(|each| assert!(crowd.drain(each)));
        let kinds: Vec<_> = all.iter().map(|r| r.kind).collect();
        let one = [Kind::Ready, Kind::Name, Kind::Name];
        assert_eq!(kinds, [&one[..], &one[..], &[Kind::Lost]].concat());
    }

    /// What comes out, and what is lost, is what went in, in each writer's order.
    #[test]
    fn nothing_is_lost_without_being_counted() {
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
    fn a_ring_hands_over_all_it_takes() {
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
