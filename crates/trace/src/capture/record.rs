//! One record: three words, whatever happened.

/// A record as it lies in a buffer and in the spool.
pub type Words = [u64; 3];

/// What happened. The comments say which fields of [`Record`] carry something, beside `time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    /// The VP leaves the running microprocess (`cause`, `wait`) and runs `id` at `level`; 0: none.
    Switch = 1,
    /// `id` is queued on VP `arg` at `level`, because of `cause`.
    Ready = 2,
    /// `id` begins with priority `level`; [`Kind::Name`] records follow if it has one.
    Spawn = 3,
    /// 23 more bytes of the name of the one before.
    Name = 4,
    /// Kernel thread `arg` carries the VP from here. `cause` Woken: the kernel's half told Resumed.
    Carried = 5,
    IdleBegin = 6,
    IdleEnd = 7,
    /// The running microprocess has left the VP for the kernel; `wait` as in [`WAITS`].
    Blocked = 8,
    /// `id` is back from the kernel, on kernel thread `arg`, without a VP.
    Unblocked = 9,
    /// `id` runs on the VP at `level`, without a switch: it got the VP, or got it back, where it
    /// was.
    Runs = 10,
    /// `id` has the effective priority `cause` from here, which is queue level `level` (255: that
    /// depends).
    Priority = 11,
    /// The kernel's half told Preempted (bit 0 of `arg`) or Changed (bit 1) on the VP.
    Told = 12,
    /// Kernel thread `arg` carries no VP any more: it waits in the pool, or ends.
    Pooled = 13,
    /// `id` records of this writer were lost before this one.
    Lost = 14,
    /// `id`, which waited for a VP on kernel thread `arg`, went on without.
    WentOn = 15,
    /// Where levels differ: the VP takes a step. What was told of it until now may not be so any
    /// more; it may lose its core right here.
    Settles = 16,
    /// It has taken the step: `id` runs there at `level` ([`NO_LEVEL`]: nothing); `wait` is one
    /// more than the highest level of what waits there (0: nothing), `cause` has [`GIVEN`] and
    /// [`ASKED`].
    Settled = 17,
    /// Where levels differ: `id` is about to come to VP `arg`, at `level`, through its injector.
    Sent = 18,
    /// `id` is in there.
    Put = 19,
    /// `id` was taken out of the VP's queue, and waits as `wait` says.
    Held = 20,
    /// The VP has asked at the board for core `arg`, which it wants at `level`, and counts as
    /// `wait` (a mark, see [`Holder`]; 0: it may not run); `cause` has [`HAS`] and [`RUNS`], and
    /// `id` is the [`Slot`] right after that.
    Asked = 21,
    /// The VP has nothing to run, and leaves core `arg`; `id` is the [`Slot`] right before that.
    Leaves = 22,
    /// The VP has changed the slot of core `arg`: it is `id` from here.
    Slot = 23,
    /// VP `arg` takes no steps from here on, and the scheduler goes on without it: its kernel
    /// thread is held up inside the scheduler, and the watchdog has written the VP off.
    Overridden = 24,
    /// `id`, on kernel thread `arg`, keeps that from here and has no VP: it blocks often in calls
    /// that the runtime does not know.
    StickyBegin = 25,
    /// Not any more: it waits for a VP, or in the runtime.
    StickyEnd = 26,
}

impl Kind {
    const ALL: [Kind; 26] = [
        Kind::Switch,
        Kind::Ready,
        Kind::Spawn,
        Kind::Name,
        Kind::Carried,
        Kind::IdleBegin,
        Kind::IdleEnd,
        Kind::Blocked,
        Kind::Unblocked,
        Kind::Runs,
        Kind::Priority,
        Kind::Told,
        Kind::Pooled,
        Kind::Lost,
        Kind::WentOn,
        Kind::Settles,
        Kind::Settled,
        Kind::Sent,
        Kind::Put,
        Kind::Held,
        Kind::Asked,
        Kind::Leaves,
        Kind::Slot,
        Kind::Overridden,
        Kind::StickyBegin,
        Kind::StickyEnd,
    ];
}

/// Why one left its VP, or became runnable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Cause {
    #[default]
    None = 0,
    Spawned = 1,
    Woken = 2,
    Yielded = 3,
    QuantumOver = 4,
    Outranked = 5,
    Reprioritised = 6,
    /// Its child runs first.
    ChildFirst = 7,
    Parked = 8,
    Ended = 9,
}

impl Cause {
    const ALL: [Cause; 10] = [
        Cause::None,
        Cause::Spawned,
        Cause::Woken,
        Cause::Yielded,
        Cause::QuantumOver,
        Cause::Outranked,
        Cause::Reprioritised,
        Cause::ChildFirst,
        Cause::Parked,
        Cause::Ended,
    ];

    /// As a word in the trace.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::None => "-",
            Cause::Spawned => "spawned",
            Cause::Woken => "woken",
            Cause::Yielded => "yielded",
            Cause::QuantumOver => "quantum over",
            Cause::Outranked => "outranked",
            Cause::Reprioritised => "reprioritised",
            Cause::ChildFirst => "child first",
            Cause::Parked => "parked",
            Cause::Ended => "ended",
        }
    }

    pub(crate) fn from_number(n: u8) -> Cause {
        Cause::ALL.get(usize::from(n)).copied().unwrap_or_default()
    }
}

/// What one waits for, by number: the runtime's kinds of waits, and the last one for what the
/// kernel's half told.
pub const WAITS: [&str; 21] = [
    "-",
    "park",
    "sleep",
    "join",
    "mutex",
    "rwlock",
    "condvar",
    "barrier",
    "once",
    "semaphore",
    "channel",
    "select",
    "message",
    "io",
    "scope",
    "blocking",
    "batch",
    "future",
    "resume",
    "kernel",
    "gate",
];

/// In `wait`: suspended, until it is resumed.
pub const WAIT_RESUME: u8 = 18;

/// In `wait`: blocked in the kernel without having said so before.
pub const WAIT_KERNEL: u8 = 19;

/// The level is not known.
pub const NO_LEVEL: u8 = 0xff;

/// In [`Kind::Settled`]: the VP had been asked for what it has.
pub const ASKED: u8 = 1;
/// In [`Kind::Settled`]: what waits is given away, and only another VP can take it.
pub const GIVEN: u8 = 2;

/// In [`Kind::Asked`]: it has the core.
pub const HAS: u8 = 1;
/// In [`Kind::Asked`]: a microprocess runs there, or is the next to; else the VP waits for the core
/// on its kernel thread's own stack.
pub const RUNS: u8 = 2;

/// The holder of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The row of its address space on the board.
    pub row: u16,
    /// Its VP.
    pub vp: u8,
    /// As what it counts there: two more than its level, or 1, below all levels.
    pub mark: u8,
}

/// What the slot of a core said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Rises by one with every change, 30 bits.
    pub serial: u32,
    /// The previous holder of the core, if any.
    pub holder: Option<Holder>,
    /// Given to it, and not yet accepted.
    pub given: bool,
}

impl Slot {
    /// As it stands in a record: row + 1 (16 bits), VP (8), mark (8), given (1), nothing (1),
    /// serial (30).
    #[must_use]
    pub fn bits(self) -> u64 {
        let place = self.holder.map_or(0, |holder| {
            u64::from(holder.row).wrapping_add(1) & 0xffff
                | u64::from(holder.vp) << 16
                | u64::from(holder.mark) << 24
        });
        place | u64::from(self.given) << 32 | u64::from(self.serial) << 34
    }

    /// The reverse of [`bits`](Slot::bits).
    #[must_use]
    pub fn from_bits(bits: u64) -> Slot {
        let holder = |row| Holder { row, vp: (bits >> 16) as u8, mark: (bits >> 24) as u8 };
        Slot {
            serial: (bits >> 34) as u32,
            holder: (bits as u16).checked_sub(1).map(holder),
            given: bits >> 32 & 1 != 0,
        }
    }
}

/// One thing that happened. Which field means what: see [`Kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Record {
    pub kind: Kind,
    /// In ticks of the session's clock; 0 until it is put into a buffer.
    pub time: u64,
    pub id: u64,
    pub level: u8,
    pub cause: u8,
    pub wait: u8,
    pub arg: u32,
}

impl Record {
    /// One of `kind` with nothing else in it.
    #[inline]
    #[must_use]
    pub const fn new(kind: Kind) -> Record {
        Record { kind, time: 0, id: 0, level: 0, cause: 0, wait: 0, arg: 0 }
    }

    #[inline]
    pub(crate) fn words(&self, time: u64) -> Words {
        let last = self.kind as u64
            | u64::from(self.level) << 8
            | u64::from(self.cause) << 16
            | u64::from(self.wait) << 24
            | u64::from(self.arg) << 32;
        [time, self.id, last]
    }

    /// None: no record of ours.
    #[must_use]
    pub fn from_words([time, id, last]: Words) -> Option<Record> {
        let kind = *Kind::ALL.get(usize::from(last as u8).checked_sub(1)?)?;
        let (level, cause, wait, arg) =
            ((last >> 8) as u8, (last >> 16) as u8, (last >> 24) as u8, (last >> 32) as u32);
        Some(Record { kind, time, id, level, cause, wait, arg })
    }
}

/// Bytes of a name in one [`Kind::Name`] record.
const PIECE: usize = 23;
/// Bytes of a name that are kept.
pub const NAME_MAX: usize = 2 * PIECE;

/// The pieces of `name`, at most [`NAME_MAX`] bytes of it.
pub(crate) fn name_words(name: &[u8]) -> impl Iterator<Item = Words> {
    name[..name.len().min(NAME_MAX)].chunks(PIECE).map(|piece| {
        let mut bytes = [0u8; 24];
        bytes[..piece.len()].copy_from_slice(piece);
        // The last byte makes room for the kind, which is the lowest of its word.
        let word =
            |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        [word(0), word(1), word(2) << 8 | Kind::Name as u64]
    })
}

/// Adds the piece in `words` to `name`.
pub(crate) fn add_piece(name: &mut Vec<u8>, [a, b, c]: Words) {
    let bytes = a.to_le_bytes().into_iter().chain(b.to_le_bytes()).chain((c >> 8).to_le_bytes());
    name.extend(bytes.take(PIECE).take_while(|&byte| byte != 0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_what_they_say() {
        for (kind, n) in Kind::ALL.into_iter().zip(1..) {
            assert_eq!(kind as u8, n);
        }
        for (cause, n) in Cause::ALL.into_iter().zip(0..) {
            assert_eq!((cause as u8, Cause::from_number(n)), (n, cause));
        }
        assert_eq!(WAITS[usize::from(WAIT_KERNEL)], "kernel");
        assert_eq!(Record::from_words([0; 3]), None);
        assert_eq!(Record::from_words([0, 0, 27]), None);
    }

    proptest! {
        #[test]
        fn a_record_comes_back(time: u64, id: u64, kind in 0usize..26, level: u8, cause: u8, wait: u8, arg: u32) {
            let record = Record { kind: Kind::ALL[kind], time, id, level, cause, wait, arg };
            prop_assert_eq!(Record::from_words(record.words(time)), Some(record));
        }

        #[test]
        fn a_slot_comes_back(row in 0u16..65535, vp: u8, mark: u8, held: bool, given: bool, serial in 0u32..1 << 30) {
            let slot = Slot { serial, holder: held.then_some(Holder { row, vp, mark }), given };
            prop_assert_eq!(Slot::from_bits(slot.bits()), slot);
        }

        #[test]
        fn a_name_comes_back(name in "[a-zA-Z0-9 äöü#-]{1,60}") {
            let mut back = Vec::new();
            for words in name_words(name.as_bytes()) {
                prop_assert_eq!(Record::from_words(words).map(|r| r.kind), Some(Kind::Name));
                add_piece(&mut back, words);
            }
            prop_assert_eq!(&back[..], &name.as_bytes()[..name.len().min(NAME_MAX)]);
        }
    }
}
