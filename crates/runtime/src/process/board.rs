//! This address space at its user's board (`kumihimo_arbiter`). Its VPs sleep in its cells, so that
//! other address spaces can call them and share the cores with them.
//!
//! It joins with its first runtime, and stays as long as the process lives. Where it cannot, or is
//! told not to (`KUMI_ARBITER=none`), it has a row of its own, which nobody else sees: gates then
//! wake each other through their sockets.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kumihimo_arbiter::board::Board;
use kumihimo_arbiter::member::Member;
use kumihimo_arbiter::row::{Cell, Reach, Row};
use kumihimo_arbiter::seat::{Bounds, Seat};
use kumihimo_arbiter::share::Share;
use kumihimo_arbiter::tell::{Receiver, Tell};
use kumihimo_config::Arbiter;

use crate::process::{clock, cores};

/// Cells of a row.
const CELLS: usize = 64;

/// How often all that sleep look around while others are at the board.
pub const RESCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Where this address space lies.
#[derive(Debug)]
pub(crate) struct BoardMembership {
    pub(crate) member: Arc<Member>,
    /// The board, by device and inode, and the row there.
    seat: Option<(u128, u32)>,
    /// Why it is at no board.
    alone: Option<String>,
}

static BOARD: OnceLock<BoardMembership> = OnceLock::new();

/// What the board needs of this address space's place on the machine.
pub(crate) struct Machine {
    /// The run-time directory, or why there is none.
    pub(crate) directory: fn() -> Result<PathBuf, String>,
    /// Notifies the address space of that number. Never blocks, allocates nothing.
    pub(crate) tell: fn(u16),
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// Before the board is used: how it reaches the machine.
pub(crate) fn register(machine: Machine) {
    let _ = MACHINE.set(machine);
}

/// Joins, the first time, for a runtime with so many virtual processors. Blocks the kernel thread:
/// some hundred microseconds.
fn membership_of(vps: usize) -> &'static BoardMembership {
    BOARD.get_or_init(|| {
        let cells = vps.max(cores::cores().len()).clamp(1, CELLS);
        joined(cells).unwrap_or_else(|why| BoardMembership {
            member: Arc::new(Member::private(Row::private(CELLS))),
            seat: None,
            alone: Some(why),
        })
    })
}

/// Where the board of those is whose run-time directory is `directory`: there, unless
/// `KUMI_ARBITER` names another place.
///
/// # Errors
/// Why they are at none.
pub fn path_in(directory: impl FnOnce() -> Result<PathBuf, String>) -> Result<PathBuf, String> {
    match &kumihimo_config::get().arbiter {
        Arbiter::NoBoard => Err("KUMI_ARBITER=none".into()),
        Arbiter::BoardAt(path) => Ok(path.clone()),
        Arbiter::On | Arbiter::Off => Ok(directory()?.join("board")),
    }
}

fn joined(cells: usize) -> Result<BoardMembership, String> {
    let machine = MACHINE.get().ok_or("no runtime has begun in this process")?;
    let path = path_in(machine.directory)?;
    let board = Board::open(&path).map_err(|e| e.to_string())?;
    let found = std::fs::metadata(&path).map_err(|e| format!("board {}: {e}", path.display()))?;
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let member = Member::join(board, name.trim_end(), cells, clock::monotonic(), &ToControl)
        .map_err(|e| e.to_string())?;
    let seat = member
        .board()
        .map(|(_, row)| (u128::from(found.dev()) << 64 | u128::from(found.ino()), row.into()));
    Ok(BoardMembership { member: Arc::new(member), seat, alone: None })
}

/// Whether the cores are shared by priority with others at the board: unless `KUMI_ARBITER` is
/// `off` or `none`.
#[must_use]
pub fn arbitrates() -> bool {
    matches!(kumihimo_config::get().arbiter, Arbiter::On | Arbiter::BoardAt(_))
}

/// Whether there is anybody to share them with. Two loads.
pub(crate) fn shares_cores() -> bool {
    others() != 0 && arbitrates()
}

/// By which number of its run-time directory this address space hears what others tell it, and one;
/// 0: it does not.
static CORE_LISTENER: AtomicU32 = AtomicU32::new(0);

/// From now on it hears by that number: what is told leads to [`Instance::told`].
pub(crate) fn listens(number: u16) {
    CORE_LISTENER.store(u32::from(number) + 1, Ordering::Relaxed);
    if let Some(membership) = BOARD.get() {
        membership.publish_listener();
    }
}

impl BoardMembership {
    /// Again from time to time: somebody may have written over it.
    fn publish_listener(&self) {
        self.member.listens(CORE_LISTENER.load(Ordering::Relaxed));
    }
}

/// To the kernel thread of its control socket: a signal to the one that carries the VP would end a
/// system call there.
struct ToControl;

impl Tell for ToControl {
    fn tell(&self, receiver: Receiver) {
        if let Some(number) =
            receiver.ear.checked_sub(1).and_then(|number| u16::try_from(number).ok())
            && let Some(machine) = MACHINE.get()
        {
            (machine.tell)(number);
        }
    }
}

/// How much CPU time this address space may use from now on. After [`BoardSeats::new`].
pub(crate) fn set_share(share: Option<Share>) {
    if let Some(membership) = BOARD.get() {
        membership.member.set_share(share);
    }
}

/// Whether a virtual processor has to ask before it runs: there are others, or the address space's
/// CPU time is bounded. Two loads.
pub(crate) fn has_to_ask() -> bool {
    BOARD
        .get()
        .is_some_and(|membership| membership.member.others() != 0 || membership.member.has_share())
}

/// Whether what is booked makes a difference: to this address space's share, or, with feedback, to
/// others.
pub(crate) fn has_rules() -> bool {
    BOARD.get().is_some_and(|membership| {
        let member = &membership.member;
        member.has_share() || member.others() != 0 && member.feedback().is_some()
    })
}

/// This address space may not run at all now.
pub(crate) fn is_barred() -> bool {
    BOARD.get().is_some_and(|membership| {
        membership.member.has_share() && membership.member.is_barred(clock::monotonic())
    })
}

/// A virtual processor used so much CPU time, until `now` (CLOCK_MONOTONIC). True: this address
/// space's levels count otherwise from now on.
pub(crate) fn book(vp: usize, nanoseconds: u64, now: u64) -> bool {
    BOARD.get().is_some_and(|membership| membership.member.book(vp, nanoseconds, now))
}

/// Nothing of this address space is runnable. Whether its levels count otherwise by that matters to
/// nobody before something is.
pub(crate) fn waits() {
    if let Some(membership) = BOARD.get() {
        let _ = membership.member.waited();
    }
}

/// CPU time that a virtual processor has booked, by its number, nanoseconds.
pub(crate) fn booked(vp: usize) -> u64 {
    BOARD.get().and_then(|membership| membership.member.row().cells.get(vp)).map_or(0, Cell::used)
}

/// Whether a runtime lies in the cells of the row.
static OCCUPIED: AtomicBool = AtomicBool::new(false);

/// Where a runtime's virtual processors lie, until all its kernel threads have ended: one that was
/// left behind would get up in a cell where a successor's sleeps.
#[derive(Debug)]
pub(crate) struct BoardSeats {
    pub(crate) row: Row,
    vps: usize,
    is_shared: bool,
}

impl BoardSeats {
    /// For so many: the address space's, or some that nobody else sees if there are too few, or
    /// another runtime lies there.
    pub(crate) fn new(vps: usize) -> BoardSeats {
        let membership = membership_of(vps);
        membership.publish_listener();
        let row = membership.member.row();
        if vps <= row.cells.len() && !OCCUPIED.swap(true, Ordering::Acquire) {
            return BoardSeats { row, vps, is_shared: true };
        }
        let cells = Row::private(vps).cells;
        BoardSeats { row: Row { cells, reach: Reach::Private, ..row }, vps, is_shared: false }
    }

    /// The seat of virtual processor `vp`: on the core where it is at home. Where it takes no part
    /// in sharing the cores: on none if the address space has a share of CPU time, and else there
    /// is no seat.
    pub(crate) fn seat_of(&self, vp: usize) -> Option<Seat> {
        let membership = BOARD.get()?;
        let seat = |core, only_one| {
            Some(Seat::new(
                membership.member.clone(),
                vp,
                core,
                only_one,
                Arc::new(ToControl),
                Bounds::default(),
            ))
        };
        let takes_part = membership.seat.is_some() && self.is_shared && arbitrates();
        if !takes_part {
            return if membership.member.has_share() { seat(usize::MAX, true) } else { None };
        }
        let cores = cores::cores();
        let core = *cores.get(vp % cores.len().max(1))? as usize;
        let cores = cores.iter().map(|core| *core as usize);
        seat(core, self.vps <= cores.len()).map(|seat| seat.with_cores(cores))
    }
}

impl Drop for BoardSeats {
    fn drop(&mut self) {
        if self.is_shared {
            OCCUPIED.store(false, Ordering::Release);
        }
    }
}

/// This address space's row: there others post, and call its virtual processors.
#[must_use]
pub(crate) fn row() -> Row {
    membership_of(1).member.row()
}

/// The board that this address space is at, and its row there; `None`: it is at none.
#[must_use]
pub(crate) fn seat() -> Option<(u128, u32)> {
    membership_of(1).seat
}

/// The row of another address space, if it is at the same board.
#[must_use]
pub(crate) fn neighbour(board: u128, row: u32) -> Option<Row> {
    let membership = membership_of(1);
    let (own, _) = membership.seat?;
    if own == board { membership.member.neighbour(u16::try_from(row).ok()?) } else { None }
}

/// Why this address space is at no board; `None`: it is at one, or no runtime has begun.
#[must_use]
pub fn alone() -> Option<&'static str> {
    BOARD.get()?.alone.as_deref()
}

/// How many other address spaces are there. One load.
pub(crate) fn others() -> u32 {
    BOARD.get().map_or(0, |membership| membership.member.others())
}

/// Whether another address space has a core, and runs there what is not of this level. Out of date
/// at once.
pub(crate) fn is_another_level_there(level: u8) -> bool {
    let cores = cores::cores().iter().map(|core| *core as usize);
    BOARD.get().is_some_and(|membership| membership.member.is_another_level_there(level, cores))
}

/// All virtual processors that sleep look around: what lies on the board can have been overwritten,
/// and a call lost by that.
pub fn rescan() {
    let Some(membership) = BOARD.get() else { return };
    membership.member.recount();
    membership.publish_listener();
    let row = membership.member.row();
    row.cells.iter().for_each(|cell| cell.wake(row.reach));
}

/// In the child of a fork: the row is the parent's. Async-signal-safe.
pub(crate) fn forget() {
    if let Some(membership) = BOARD.get() {
        membership.member.forget_in_child();
    }
}
