//! This address space's membership of its user's board (`kumihimo_arbiter`). Its VPs sleep in its
//! cells on the board, so that other address spaces can wake them and share the cores with them.
//!
//! An address space joins with its first runtime, and stays for the lifetime of the process. If it
//! cannot join, or must not (`KUMI_ARBITER=none`), it has a private row instead. Gates then wake
//! each other through their sockets.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kumihimo_arbiter::board::Board;
use kumihimo_arbiter::core_notify::{CoreNotify, Receiver};
use kumihimo_arbiter::member::Member;
use kumihimo_arbiter::row::{Cell, Reach, Row};
use kumihimo_arbiter::seat::{Bounds, Seat};
use kumihimo_arbiter::share::Share;
use kumihimo_config::Arbiter;

use crate::process::{clock, cores};

/// Number of cells in a row.
const CELLS: usize = 64;

/// Interval at which all sleeping VPs rescan the board while other address spaces are present.
pub const RESCAN_INTERVAL: Duration = Duration::from_secs(1);

/// The membership of this address space.
#[derive(Debug)]
pub(crate) struct BoardMembership {
    pub(crate) member: Arc<Member>,
    /// The board, by device and inode, and the row on it.
    seat: Option<(u128, u32)>,
    /// Why the address space is at no board, if so.
    alone: Option<String>,
}

static BOARD: OnceLock<BoardMembership> = OnceLock::new();

/// The functions by which the board reaches other address spaces of the machine.
pub(crate) struct Machine {
    /// Returns the run-time directory, or why there is none.
    pub(crate) directory: fn() -> Result<PathBuf, String>,
    /// Notifies the address space with that number. Never blocks, allocates nothing.
    pub(crate) tell: fn(u16),
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// Registers the functions. Called before the board is used.
pub(crate) fn register(machine: Machine) {
    let _ = MACHINE.set(machine);
}

/// Returns the membership. The first call joins the board, for a runtime with `vps` virtual
/// processors, and blocks the kernel thread for some hundred microseconds.
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

/// Returns the path of the board for users of the run-time directory `directory`: inside that
/// directory, unless `KUMI_ARBITER` specifies another path.
///
/// # Errors
/// Why there is no board for them.
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

/// Whether the cores are shared by priority with other address spaces at the board. True unless
/// `KUMI_ARBITER` is `off` or `none`.
#[must_use]
pub fn arbitrates() -> bool {
    matches!(kumihimo_config::get().arbiter, Arbiter::On | Arbiter::BoardAt(_))
}

/// Whether there are other address spaces to share the cores with. Two loads.
pub(crate) fn shares_cores() -> bool {
    others() != 0 && arbitrates()
}

/// One more than the number by which other address spaces notify this one, or 0 if they cannot.
static CORE_LISTENER: AtomicU32 = AtomicU32::new(0);

/// Sets the number by which other address spaces notify this one. Notifications lead to
/// [`Instance::told`].
pub(crate) fn listens(number: u16) {
    CORE_LISTENER.store(u32::from(number) + 1, Ordering::Relaxed);
    if let Some(membership) = BOARD.get() {
        membership.publish_listener();
    }
}

impl BoardMembership {
    /// Publishes the listener's number. Repeated from time to time, because another process may
    /// have overwritten it.
    fn publish_listener(&self) {
        self.member.set_listener(CORE_LISTENER.load(Ordering::Relaxed));
    }

    /// Reports on standard error that the board's file was truncated: once when it was repaired,
    /// and once when this process had to leave it.
    fn report_truncation(&self) {
        static REPAIRED: AtomicBool = AtomicBool::new(false);
        static LEFT: AtomicBool = AtomicBool::new(false);
        let Some((board, _)) = self.member.board() else { return };
        let path = board.path().display();
        let (repairs, has_left) = board.truncations();
        if has_left && !LEFT.swap(true, Ordering::Relaxed) {
            let _ = writeln!(
                io::stderr(),
                "kumihimo: board {path} was truncated by another process and cannot be repaired; this process continues without arbitration: end the programs that use the board, and remove it"
            );
        } else if repairs > 0 && !has_left && !REPAIRED.swap(true, Ordering::Relaxed) {
            let _ = writeln!(
                io::stderr(),
                "kumihimo: board {path} was truncated by another process and is in use again; priorities did not apply between address spaces meanwhile"
            );
        }
    }
}

/// Notifies the kernel thread of the control socket. A signal to the thread that carries the VP
/// would interrupt a system call there.
struct ToControl;

impl CoreNotify for ToControl {
    fn notify(&self, receiver: Receiver) {
        if let Some(number) =
            receiver.listener.checked_sub(1).and_then(|number| u16::try_from(number).ok())
            && let Some(machine) = MACHINE.get()
        {
            (machine.tell)(number);
        }
    }
}

/// Sets the share of CPU time of this address space. Called after [`BoardSeats::new`].
pub(crate) fn set_share(share: Option<Share>) {
    if let Some(membership) = BOARD.get() {
        membership.member.set_share(share);
    }
}

/// Whether a VP must request its core before it runs: other address spaces are present, or the CPU
/// time of this one is bounded. Two loads.
pub(crate) fn has_to_ask() -> bool {
    BOARD
        .get()
        .is_some_and(|membership| membership.member.others() != 0 || membership.member.has_share())
}

/// Whether booked CPU time has any effect: on this address space's share, or, with feedback, on
/// others.
pub(crate) fn has_rules() -> bool {
    BOARD.get().is_some_and(|membership| {
        let member = &membership.member;
        member.has_share() || member.others() != 0 && member.feedback().is_some()
    })
}

/// Whether this address space may not run at all now.
pub(crate) fn is_barred() -> bool {
    BOARD.get().is_some_and(|membership| {
        membership.member.has_share() && membership.member.is_throttled(clock::monotonic())
    })
}

/// Books CPU time that a VP has used until `now` (CLOCK_MONOTONIC). Returns whether this address
/// space's effective levels have changed.
pub(crate) fn book(vp: usize, nanoseconds: u64, now: u64) -> bool {
    BOARD.get().is_some_and(|membership| membership.member.book(vp, nanoseconds, now))
}

/// Records that nothing of this address space is runnable. A change of its effective levels is
/// ignored, because it has no effect before something becomes runnable.
pub(crate) fn waits() {
    if let Some(membership) = BOARD.get() {
        let _ = membership.member.waited();
    }
}

/// Returns the CPU time that a VP has booked, in nanoseconds.
pub(crate) fn booked(vp: usize) -> u64 {
    BOARD.get().and_then(|membership| membership.member.row().cells.get(vp)).map_or(0, Cell::used)
}

/// Whether a runtime uses the cells of the row.
static OCCUPIED: AtomicBool = AtomicBool::new(false);

/// The cells of a runtime's VPs, until all its kernel threads have ended. A thread that was left
/// behind would otherwise use a cell in which a VP of the next runtime sleeps.
#[derive(Debug)]
pub(crate) struct BoardSeats {
    pub(crate) row: Row,
    vps: usize,
    is_shared: bool,
}

impl BoardSeats {
    /// Takes cells for `vps` virtual processors: those of the address space's row, or private ones
    /// if the row has too few or another runtime uses it.
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

    /// Returns the seat of VP `vp`, on its home core. A VP that takes no part in sharing the cores
    /// has a seat only if the address space has a share of CPU time; that seat is on no core.
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

/// Returns this address space's row, where others post notifications and wake its VPs.
#[must_use]
pub(crate) fn row() -> Row {
    membership_of(1).member.row()
}

/// Returns the board of this address space and its row there, or `None` if it is at no board.
#[must_use]
pub(crate) fn seat() -> Option<(u128, u32)> {
    membership_of(1).seat
}

/// Returns the row of another address space, if it is at the same board.
#[must_use]
pub(crate) fn neighbour(board: u128, row: u32) -> Option<Row> {
    let membership = membership_of(1);
    let (own, _) = membership.seat?;
    if own == board { membership.member.other_row(u16::try_from(row).ok()?) } else { None }
}

/// Returns why this address space is at no board, or `None` if it is at one or no runtime has
/// begun.
#[must_use]
pub fn alone() -> Option<&'static str> {
    BOARD.get()?.alone.as_deref()
}

/// Returns the number of other address spaces at the board. One load.
pub(crate) fn others() -> u32 {
    BOARD.get().map_or(0, |membership| membership.member.others())
}

/// Whether another address space holds a core and runs a level other than `level` there. The result
/// may be out of date at once.
pub(crate) fn is_another_level_there(level: u8) -> bool {
    let cores = cores::cores().iter().map(|core| *core as usize);
    BOARD.get().is_some_and(|membership| membership.member.is_another_level_there(level, cores))
}

/// Wakes all sleeping VPs to check for work. The board's contents can have been overwritten, and a
/// notification lost with it.
pub fn rescan() {
    let Some(membership) = BOARD.get() else { return };
    membership.member.recount();
    membership.publish_listener();
    membership.report_truncation();
    let row = membership.member.row();
    row.cells.iter().for_each(|cell| cell.wake(row.reach));
}

/// Forgets the row in the child of a fork, where it belongs to the parent. Async-signal-safe.
pub(crate) fn forget() {
    if let Some(membership) = BOARD.get() {
        membership.member.forget_in_child();
    }
}
