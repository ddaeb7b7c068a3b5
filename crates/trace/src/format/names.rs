//! Names of events, states and arguments in the file, for the writer and the reader.

/// The state of a microprocess. The states are the names of the slices on its track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The microprocess runs on a VP.
    Running,
    /// The microprocess is queued, or waits on its kernel thread for a VP.
    Ready,
    /// The microprocess waits, without a VP.
    Parked,
    /// The microprocess is in the kernel and has released its VP.
    Blocked,
    /// The microprocess runs on its kernel thread without a VP.
    Unbound,
    /// The microprocess keeps its kernel thread, on which the kernel alone schedules it.
    Sticky = 26,
}

impl State {
    pub(crate) const ALL: [State; 6] = [
        State::Running,
        State::Ready,
        State::Parked,
        State::Blocked,
        State::Unbound,
        State::Sticky,
    ];

    /// Returns the name of the slice.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Running => "Running",
            State::Ready => "Ready",
            State::Parked => "Parked",
            State::Blocked => "Blocked",
            State::Unbound => "Running without a VP",
            State::Sticky => "Sticky: a kernel thread without a VP",
        }
    }

    /// Returns the state with this slice name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A name that is stored in the file as a number: its index in the table, plus one.
pub(crate) type Name = usize;

pub(crate) const NAMES: [&str; 27] = [
    "Running",
    "Ready",
    "Parked",
    "Blocked",
    "Running without a VP",
    "Idle",
    "Unblocked",
    "Preempted",
    "Resumed",
    "Changed",
    "Spawned",
    "Ended",
    "Priority",
    "Lost",
    "Summary",
    "Waits for a VP",
    "Carries a VP",
    "Settles",
    "Settled",
    "Sent",
    "Put",
    "Asked for a core",
    "Leaves its core",
    "Slot",
    "Board",
    "Overridden",
    "Sticky: a kernel thread without a VP",
];
pub(crate) const IDLE: Name = 5;
pub(crate) const UNBLOCKED: Name = 6;
pub(crate) const PREEMPTED: Name = 7;
pub(crate) const RESUMED: Name = 8;
pub(crate) const CHANGED: Name = 9;
pub(crate) const SPAWNED: Name = 10;
pub(crate) const ENDED: Name = 11;
pub(crate) const PRIORITY: Name = 12;
pub(crate) const LOST: Name = 13;
pub(crate) const SUMMARY: Name = 14;
pub(crate) const WAITS_FOR_VP: Name = 15;
pub(crate) const CARRIES: Name = 16;
pub(crate) const SETTLES: Name = 17;
pub(crate) const SETTLED: Name = 18;
pub(crate) const SENT: Name = 19;
pub(crate) const PUT: Name = 20;
pub(crate) const ASKED_CORE: Name = 21;
pub(crate) const LEAVES: Name = 22;
pub(crate) const SLOT: Name = 23;
pub(crate) const BOARD: Name = 24;
pub(crate) const OVERRIDDEN: Name = 25;

/// The names of arguments, numbered like [`NAMES`].
pub(crate) const ARGUMENTS: [&str; 33] = [
    "vp",
    "level",
    "priority",
    "why",
    "for",
    "thread",
    "id",
    "count",
    "writer",
    "records",
    "lost",
    "spawned",
    "ended",
    "switches",
    "hand_overs",
    "blocked",
    "unblocked",
    "vps",
    "microprocess",
    "waits",
    "given",
    "asked",
    "core",
    "serial",
    "row",
    "mark",
    "wants",
    "has",
    "runs",
    "board",
    "process",
    "lock",
    "holder",
];
pub(crate) const VP: Name = 0;
pub(crate) const LEVEL: Name = 1;
pub(crate) const OWN_PRIORITY: Name = 2;
pub(crate) const WHY: Name = 3;
pub(crate) const FOR: Name = 4;
pub(crate) const THREAD: Name = 5;
pub(crate) const ID: Name = 6;
pub(crate) const COUNT: Name = 7;
pub(crate) const WRITER: Name = 8;
/// The first argument of a [`Summary`].
pub(crate) const FIRST_SUM: Name = 9;
pub(crate) const WHO: Name = 18;
/// The highest waiting level.
pub(crate) const WAITS: Name = 19;
pub(crate) const GIVEN: Name = 20;
pub(crate) const ASKED: Name = 21;
pub(crate) const CORE: Name = 22;
pub(crate) const SERIAL: Name = 23;
/// The row of a core's holder, or of the process itself.
pub(crate) const ROW: Name = 24;
/// The mark of a core's holder: two more than its level.
pub(crate) const MARK: Name = 25;
/// The mark of the requesting VP; see [`MARK`].
pub(crate) const WANTS: Name = 26;
pub(crate) const HAS: Name = 27;
pub(crate) const RUNS: Name = 28;
pub(crate) const BOARD_ID: Name = 29;
pub(crate) const PROCESS: Name = 30;
/// The address of the lock that a microprocess waits for.
pub(crate) const LOCK: Name = 31;
/// The holder of that lock.
pub(crate) const HOLDER: Name = 32;

pub(crate) const VPS_GROUP: &str = "Virtual processors";
pub(crate) const THREADS_GROUP: &str = "Kernel threads";
pub(crate) const MICROS_GROUP: &str = "Microprocesses";
pub(crate) const CORES_GROUP: &str = "Cores, as the board says";

/// Counts of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of records in the trace.
    pub records: u64,
    /// Number of records for which a buffer or the disk had no room.
    pub lost: u64,
    /// Number of microprocesses started.
    pub spawned: u64,
    /// Number of microprocesses ended.
    pub ended: u64,
    /// Number of context switches, including those to a VP's own stack.
    pub switches: u64,
    /// Number of times that a kernel thread started to carry a VP.
    pub hand_overs: u64,
    /// Number of times that a microprocess left its VP for the kernel.
    pub blocked: u64,
    /// Number of returns from the kernel after the loss of the VP.
    pub unblocked: u64,
    /// Number of virtual processors.
    pub vps: u64,
}

impl Summary {
    pub(crate) fn numbers(&self) -> [u64; 9] {
        [
            self.records,
            self.lost,
            self.spawned,
            self.ended,
            self.switches,
            self.hand_overs,
            self.blocked,
            self.unblocked,
            self.vps,
        ]
    }

    pub(crate) fn from_numbers(n: [u64; 9]) -> Summary {
        let [records, lost, spawned, ended, switches, hand_overs, blocked, unblocked, vps] = n;
        Summary { records, lost, spawned, ended, switches, hand_overs, blocked, unblocked, vps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_match_the_table_of_names() {
        for (number, name) in [
            (IDLE, "Idle"),
            (UNBLOCKED, "Unblocked"),
            (PREEMPTED, "Preempted"),
            (RESUMED, "Resumed"),
            (CHANGED, "Changed"),
            (SPAWNED, "Spawned"),
            (ENDED, "Ended"),
            (PRIORITY, "Priority"),
            (LOST, "Lost"),
            (SUMMARY, "Summary"),
            (WAITS_FOR_VP, "Waits for a VP"),
            (CARRIES, "Carries a VP"),
            (SETTLES, "Settles"),
            (SETTLED, "Settled"),
            (SENT, "Sent"),
            (PUT, "Put"),
            (ASKED_CORE, "Asked for a core"),
            (LEAVES, "Leaves its core"),
            (SLOT, "Slot"),
            (BOARD, "Board"),
            (OVERRIDDEN, "Overridden"),
        ] {
            assert_eq!(NAMES[number], name);
        }
        for state in State::ALL {
            assert_eq!(NAMES[state as usize], state.name());
            assert_eq!(State::from_name(state.name()), Some(state));
        }
        let args = [
            (VP, "vp"),
            (LEVEL, "level"),
            (OWN_PRIORITY, "priority"),
            (WHY, "why"),
            (FOR, "for"),
            (THREAD, "thread"),
        ];
        let more = [
            (ID, "id"),
            (COUNT, "count"),
            (WRITER, "writer"),
            (FIRST_SUM, "records"),
            (WHO, "microprocess"),
        ];
        let steps = [(WAITS, "waits"), (GIVEN, "given"), (ASKED, "asked")];
        let slot = [
            (CORE, "core"),
            (SERIAL, "serial"),
            (ROW, "row"),
            (MARK, "mark"),
            (WANTS, "wants"),
            (HAS, "has"),
        ];
        let board = [(RUNS, "runs"), (BOARD_ID, "board"), (PROCESS, "process")];
        let locks = [(LOCK, "lock"), (HOLDER, "holder")];
        let all = args.into_iter().chain(more).chain(steps).chain(slot).chain(board).chain(locks);
        for (number, name) in all {
            assert_eq!(ARGUMENTS[number], name);
        }
    }
}
