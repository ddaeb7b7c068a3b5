//! Record: an event in three words.

/// A record as stored in a buffer and in the spool.
pub type Words = [u64; 3];

/// The kind of event. The comments name the fields of [`Record`] that are used, besides `time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    /// The VP leaves the running microprocess (`cause`, `wait`) and runs `id` at `level`; 0: none.
    Switch = 1,
    /// `id` is queued on VP `arg` at `level`, because of `cause`.
    Ready = 2,
    /// `id` starts with priority `level`; [`Kind::Name`] records follow if it has a name.
    Spawn = 3,
    /// 23 further bytes of the name in the previous record.
    Name = 4,
    /// Kernel thread `arg` carries the VP from now on. `cause` Woken: the event source reported
    /// Resumed.
    Carried = 5,
    IdleBegin = 6,
    IdleEnd = 7,
    /// The running microprocess has left the VP for the kernel; `wait` is an index into [`WAITS`].
    Blocked = 8,
    /// `id` has returned from the kernel, on kernel thread `arg`, without a VP.
    Unblocked = 9,
    /// `id` runs on the VP at `level`, without a switch: it received the VP, or received it back,
    /// on its current kernel thread.
    Runs = 10,
    /// `id` has the effective priority `cause` from now on, at queue level `level` (255: not
    /// fixed).
    Priority = 11,
    /// The event source reported Preempted (bit 0 of `arg`) or Changed (bit 1) for the VP.
    Told = 12,
    /// Kernel thread `arg` carries no VP from now on: it waits in the pool, or ends.
    Pooled = 13,
    /// `id` records of this writer were lost before this one.
    Lost = 14,
    /// `id`, which waited for a VP on kernel thread `arg`, continued without one.
    WentOn = 15,
    /// The VP starts a scheduling step; recorded only where levels differ. Earlier information
    /// about the VP may be outdated from now on. The VP may lose its core at this point.
    Settles = 16,
    /// The VP has finished the step and runs `id` at `level` ([`NO_LEVEL`]: nothing). `wait` is one
    /// more than the highest waiting level on this VP (0: none). `cause` contains [`GIVEN`] and
    /// [`ASKED`].
    Settled = 17,
    /// `id` is about to move to VP `arg`, at `level`, through its injector; recorded only where
    /// levels differ.
    Sent = 18,
    /// `id` is in the injector of VP `arg`.
    Put = 19,
    /// `id` was removed from the VP's queue, and waits for `wait`.
    Held = 20,
    /// The VP has requested core `arg` at the board, at `level`. `wait` is its mark (see
    /// [`Holder`]; 0: it may not run). `cause` contains [`HAS`] and [`RUNS`]. `id` is the [`Slot`]
    /// immediately after the request.
    Asked = 21,
    /// The VP has nothing to run, and leaves core `arg`; `id` is the [`Slot`] immediately before
    /// that.
    Leaves = 22,
    /// The VP has changed the slot of core `arg` to `id`.
    Slot = 23,
    /// VP `arg` takes no steps from now on, and the scheduler continues without it. Its kernel
    /// thread is delayed inside the scheduler, and the watchdog has overridden the VP.
    Overridden = 24,
    /// `id`, on kernel thread `arg`, keeps that thread from now on and has no VP, because it often
    /// blocks in calls that bypass the runtime.
    StickyBegin = 25,
    /// The sticky state of `id` ends: it waits for a VP, or in the runtime.
    StickyEnd = 26,
    /// The running microprocess is about to wait for the lock at address `id`; `wait` is an index
    /// into [`WAITS`]. [`Kind::Switch`] follows.
    WaitsFor = 27,
    /// The lock of the preceding [`Kind::WaitsFor`] is held by microprocess `id`, or by kernel
    /// thread `arg` if `id` is 0.
    HeldBy = 28,
}

impl Kind {
    const ALL: [Kind; 28] = [
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
        Kind::WaitsFor,
        Kind::HeldBy,
    ];
}

/// Why a microprocess left its VP, or became runnable.
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
    /// The child of the microprocess runs first.
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

    /// Returns the word for the cause in the trace.
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

/// Reasons for a wait, by number: the runtime's kinds of waits, and at the end the one that the
/// event source reports.
pub const WAITS: [&str; 25] = [
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
    "signal",
    "mutex",
    "rwlock",
    "spinlock",
];

/// Value of `wait`: suspended until it is resumed.
pub const WAIT_RESUME: u8 = 18;

/// Value of `wait`: blocked in the kernel without a prior announcement.
pub const WAIT_KERNEL: u8 = 19;

/// The level is not known.
pub const NO_LEVEL: u8 = 0xff;

/// Flag of [`Kind::Settled`]: another VP had asked this VP for waiting items.
pub const ASKED: u8 = 1;
/// Flag of [`Kind::Settled`]: the waiting items are given away, and only another VP can take them.
pub const GIVEN: u8 = 2;

/// Flag of [`Kind::Asked`]: the VP has the core.
pub const HAS: u8 = 1;
/// Flag of [`Kind::Asked`]: a microprocess runs on the core, or is the next to run. Otherwise the
/// VP waits for the core on its kernel thread's own stack.
pub const RUNS: u8 = 2;

/// The holder of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Row of the holder's address space on the board.
    pub row: u16,
    /// VP of the holder in that address space.
    pub vp: u8,
    /// Mark of the holder: two more than its level, or 1 below all levels.
    pub mark: u8,
}

/// The content of a core's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of the change, modulo 2^30; it increases by one with every change.
    pub serial: u32,
    /// The holder of the core, if any.
    pub holder: Option<Holder>,
    /// The core was given to the holder, which has not accepted it yet.
    pub given: bool,
}

impl Slot {
    /// Returns the slot as stored in a record: row + 1 (16 bits), VP (8), mark (8), given (1),
    /// unused (1), serial (30).
    #[must_use]
    pub fn bits(self) -> u64 {
        let place = self.holder.map_or(0, |holder| {
            u64::from(holder.row).wrapping_add(1) & 0xffff
                | u64::from(holder.vp) << 16
                | u64::from(holder.mark) << 24
        });
        place | u64::from(self.given) << 32 | u64::from(self.serial) << 34
    }

    /// Returns the slot with these [`bits`](Slot::bits).
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

/// One event. The meaning of the fields depends on the [`Kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Record {
    pub kind: Kind,
    /// In ticks of the session's clock; 0 until the record is put into a buffer.
    pub time: u64,
    pub id: u64,
    pub level: u8,
    pub cause: u8,
    pub wait: u8,
    pub arg: u32,
}

impl Record {
    /// Creates a record of `kind` whose other fields are empty.
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

    /// Returns the record, or None if the words are not a record.
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
/// Number of bytes of a name that are kept.
pub const NAME_MAX: usize = 2 * PIECE;

/// Returns the pieces of `name`, up to [`NAME_MAX`] bytes of it.
pub(crate) fn name_words(name: &[u8]) -> impl Iterator<Item = Words> {
    name[..name.len().min(NAME_MAX)].chunks(PIECE).map(|piece| {
        let mut bytes = [0u8; 24];
        bytes[..piece.len()].copy_from_slice(piece);
        // The kind is the lowest byte of the last word, so the piece is shifted by one byte.
        let word =
            |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        [word(0), word(1), word(2) << 8 | Kind::Name as u64]
    })
}

/// Appends the piece in `words` to `name`.
pub(crate) fn add_piece(name: &mut Vec<u8>, [a, b, c]: Words) {
    let bytes = a.to_le_bytes().into_iter().chain(b.to_le_bytes()).chain((c >> 8).to_le_bytes());
    name.extend(bytes.take(PIECE).take_while(|&byte| byte != 0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kinds_and_causes_match_their_numbers() {
        for (kind, n) in Kind::ALL.into_iter().zip(1..) {
            assert_eq!(kind as u8, n);
        }
        for (cause, n) in Cause::ALL.into_iter().zip(0..) {
            assert_eq!((cause as u8, Cause::from_number(n)), (n, cause));
        }
        assert_eq!(WAITS[usize::from(WAIT_KERNEL)], "kernel");
        assert_eq!(Record::from_words([0; 3]), None);
        assert_eq!(Record::from_words([0, 0, 29]), None);
    }

    proptest! {
        #[test]
        fn record_survives_a_round_trip(time: u64, id: u64, kind in 0usize..28, level: u8, cause: u8, wait: u8, arg: u32) {
            let record = Record { kind: Kind::ALL[kind], time, id, level, cause, wait, arg };
            prop_assert_eq!(Record::from_words(record.words(time)), Some(record));
        }

        #[test]
        fn slot_survives_a_round_trip(row in 0u16..65535, vp: u8, mark: u8, held: bool, given: bool, serial in 0u32..1 << 30) {
            let slot = Slot { serial, holder: held.then_some(Holder { row, vp, mark }), given };
            prop_assert_eq!(Slot::from_bits(slot.bits()), slot);
        }

        #[test]
        fn name_survives_a_round_trip(name in "[a-zA-Z0-9 äöü#-]{1,60}") {
            let mut back = Vec::new();
            for words in name_words(name.as_bytes()) {
                prop_assert_eq!(Record::from_words(words).map(|r| r.kind), Some(Kind::Name));
                add_piece(&mut back, words);
            }
            prop_assert_eq!(&back[..], &name.as_bytes()[..name.len().min(NAME_MAX)]);
        }
    }
}
