//! Events by BPF: the kernel itself says when a kernel thread with a VP goes to sleep, and when it
//! is back.
//!
//! When an attached kernel thread goes to sleep unmasked, with a VP in its slot, a BPF program
//! marks the VP [`LENT`], writes a record into a buffer and wakes a waiting spare: **Blocked**. If
//! the slot wants it, the thread gets a SIGTRAP ([`SIG_DATA`]) that is delivered on its way back to
//! user mode, before the interrupted call returns and without EINTR: **Unblocked**.
//!
//! The program runs as the filter of a software perf event that each thread has and that counts its
//! switches (`bpf/events.bpf.c`, Linux 5.15; the SIGTRAP is filtered from 6.10 on, [`Bpf::traps`]).
//! Or, asked for and experimental, at the scheduler's tracepoint ([`Way::Switch`],
//! `bpf/switch.bpf.c`, Linux 6.9; SIGTRAP from 6.18 on), with one program for all processes of the
//! machine ([`tracepoint`]). The event costs the thread half a microsecond each time that it leaves
//! its core or comes back, lent or not; the tracepoint costs every thread of the machine some tens
//! of nanoseconds at each switch (`examples/bystander.rs`).
//!
//! Two ways to have it: load the program (CAP_BPF and CAP_PERFMON), or take a *seat* of an object
//! that root has pinned ([`pinned`], `kumi events install`), which is always of the first kind.
//!
//! A forked child shares the memory and the buffer with its parent, and keeps a seat taken as long
//! as it lives.
//!
//! Offsets in a slot of 256 bytes (slot 0 is the [`Header`]):
//!
//! - 0: `this` u64, the user scheduler's own.
//! - 8: `vp` u64: 0 none; VP's number + 1 in bits 2.., [`CLAIMING`], [`LENT`].
//! - 16, 20: `masked` u32, above 0: no event; `wanted` u32: [`WANTS_BLOCKED`], [`WANTS_UNBLOCKED`].
//! - 24, 28, 32, 40, 44: `pending` u32, `priority` i32, `microprocess` u64, `tid` u32, `state` u32:
//!   the program does not read them.
//! - 48, 56, 64: u64 counts by the program: VPs lent; SIGTRAPs let through; records that found no
//!   room (the VP then stays).
//! - 72: u64, CLOCK_MONOTONIC in ns, when the VP was last lent.
//! - 128..256: the user scheduler's own.

mod abi;
mod btf;
mod follow;
mod identity;
mod ids;
mod load;
mod object;
pub mod pinned;
mod program;
mod ring;
mod status;
mod sys;
pub mod tracepoint;
mod types;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub use abi::{MOST_SLOTS, SIG_DATA, SLOT_SIZE};
pub use status::{Seat, Status};

pub use crate::handoff::page::{Header, MAGIC, VERSION};
pub use crate::handoff::slot::{
    CLAIMING, LENT, WANT_BLOCKED as WANTS_BLOCKED, WANT_UNBLOCKED as WANTS_UNBLOCKED,
};

use crate::report::unavailable::Unavailable;
pub(crate) use follow::Followed;
use follow::Follower;
use load::{OWNER_PRIVATE, Object, SeatMaps, check, unavailable};
use pinned::Store;
use ring::Ring;
use sys::{Mapping, errno};

/// A loaded object and one seat of it. Dropped: the seat is free, and the program goes once no
/// thread is attached.
#[derive(Debug)]
pub struct Bpf {
    program: Loaded,
    memory: Mapping,
    ring: Ring,
    seat: u32,
    slots: u32,
    traps: bool,
    /// The seat's directory, locked for as long as it is open. None: our own object.
    lock: Option<OwnedFd>,
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As the filter of an event of each thread.
    Thread,
    /// At the scheduler's tracepoint. Experimental: what is known of it is in CAVEATS.md.
    Switch,
}

impl Way {
    /// As `KUMI_LAB=bpf=...` asks for: `thread` (also where it is not set) or `switch`.
    #[must_use]
    pub fn asked() -> Way {
        match kumihimo_config::get().lab.bpf {
            None | Some(kumihimo_config::Bpf::Thread) => Way::Thread,
            Some(kumihimo_config::Bpf::Switch) => Way::Switch,
        }
    }
}

#[derive(Debug)]
enum Loaded {
    Filter(OwnedFd),
    Tracepoint(Follower),
}

/// A kernel thread is attached until this is dropped, by whomever, or the thread ends.
#[derive(Debug)]
pub struct Attached {
    kept: Kept,
}

/// What keeps it attached.
#[derive(Debug)]
pub(crate) enum Kept {
    /// The link of the program to its event.
    Event(OwnedFd),
    Followed(Followed),
}

impl Attached {
    pub(crate) fn into_kept(self) -> Kept {
        self.kept
    }
}

impl Bpf {
    /// Loads the object where the calling thread may; elsewhere takes a seat of the installed one
    /// ([`pinned`]). `slots`: the highest slot that will be used, 1 at least. Takes some
    /// milliseconds (reading the kernel's types) or a fraction of one (a seat).
    ///
    /// # Errors
    /// What was refused and how to allow it.
    pub fn open(slots: u32) -> Result<Bpf, Unavailable> {
        if sys::may_load() { Bpf::load(slots) } else { Bpf::take(&Store::system(), slots) }
    }

    /// Loads the object, for this process alone.
    ///
    /// # Errors
    /// As for [`Bpf::open`].
    pub fn load(slots: u32) -> Result<Bpf, Unavailable> {
        check(slots)?;
        let maps = SeatMaps::new(slots)?;
        let object = Object::load(1, &maps)?;
        object.give(0, &maps, OWNER_PRIVATE)?;
        Bpf::new(Loaded::Filter(object.program), maps, 0, slots, None)
    }

    /// Events at the scheduler's tracepoint ([`Way::Switch`]), by the programs of another process
    /// if there are any, else by ones that this process loads.
    ///
    /// # Errors
    /// As for [`Bpf::open`]; or the kernel cannot: Linux 6.9 is needed.
    pub fn load_switch(slots: u32) -> Result<Bpf, Unavailable> {
        Bpf::load_switch_with(slots, &tracepoint::Options::default())
    }

    /// As [`load_switch`](Bpf::load_switch), with options.
    ///
    /// # Errors
    /// As there.
    pub fn load_switch_with(slots: u32, options: &tracepoint::Options) -> Result<Bpf, Unavailable> {
        check(slots)?;
        let (major, minor) = sys::kernel();
        if (major, minor) < (6, 9) {
            return Err(Unavailable::new(
                format!(
                    "Linux {major}.{minor} has no descriptor of a single thread (PIDFD_THREAD)"
                ),
                "Linux 6.9 or newer, or KUMI_LAB=bpf=thread",
            ));
        }
        if !sys::may_load() {
            return Err(Unavailable::new(
                "KUMI_LAB=bpf=switch takes no seat, and this process has not CAP_BPF and CAP_PERFMON to load the program",
                format!("{}, the latter with KUMI_LAB=bpf=thread", load::capabilities()),
            ));
        }
        let (follower, maps) = Follower::open(slots, options)?;
        Bpf::new(Loaded::Tracepoint(follower), maps, 0, slots, None)
    }

    /// Takes a free seat of an installed object. Its memory is all zero but for the header, its
    /// buffer empty.
    ///
    /// # Errors
    /// As for [`Bpf::open`].
    pub fn take(store: &Store, slots: u32) -> Result<Bpf, Unavailable> {
        check(slots)?;
        let seat = store.take(slots)?;
        Bpf::new(Loaded::Filter(seat.program), seat.maps, seat.number, seat.slots, Some(seat.lock))
    }

    fn new(
        program: Loaded,
        maps: SeatMaps,
        seat: u32,
        slots: u32,
        lock: Option<OwnedFd>,
    ) -> Result<Bpf, Unavailable> {
        let length = (slots as usize + 1) * SLOT_SIZE;
        let memory = Mapping::new(maps.page.as_fd(), 0, length, true)
            .map_err(|e| unavailable("mapping the slots", &e))?;
        let ring =
            Ring::new(maps.buffer).map_err(|e| unavailable("mapping the BPF ring buffer", &e))?;
        let header = Header::new(slots, seat);
        // SAFETY: `length` writable bytes that only this process has mapped (the lock of the seat;
        // nobody else can reach a private map), and no reference to them exists yet. Page aligned.
        // The program reads words whole, whatever they are.
        unsafe {
            memory.start().write_bytes(0, length);
            memory.start().cast::<Header>().write(header);
        }
        let traps = match &program {
            // Before 6.10 the filter withholds the event's data but not its signal: each preemption
            // would trap.
            Loaded::Filter(_) => sys::kernel() >= (6, 10),
            Loaded::Tracepoint(follower) => follower.traps(),
        };
        let bpf = Bpf { program, memory, ring, seat, slots, traps, lock };
        // What is refused to this thread now would be refused to others later. Not enabled, so it
        // cannot trap.
        bpf.attach_if(slots, false)
            .map_err(|(step, error)| bpf.attach_unavailable(step, &error))?;
        Ok(bpf)
    }

    /// The slots: where, and how many bytes. Slot `n` starts at `n * SLOT_SIZE`; slot 0 is the
    /// [`Header`]. Valid as long as `self`. The BPF program and all threads of the process access
    /// it at once: atomics only.
    pub fn memory(&self) -> (*mut u8, usize) {
        (self.memory.start(), self.memory.length())
    }

    /// Attaches the calling kernel thread to a slot until the result is dropped or the thread ends.
    /// An event is told from now on, if the slot says so: fill it first. One slot per thread, one
    /// thread per slot, once.
    ///
    /// The thread that drops it, if it is attached, may get one more SIGTRAP, which tells nothing.
    ///
    /// # Errors
    /// `InvalidInput` for a slot out of range, otherwise what perf_event_open(2), pidfd_open(2) or
    /// bpf(2) says.
    pub fn attach(&self, slot: u32) -> io::Result<Attached> {
        self.attach_here(slot).map_err(|(step, error)| Bpf::not_attached(slot, step, &error))
    }

    /// As [`attach`](Bpf::attach), with the step that was refused. Allocates nothing where the way
    /// is [`Way::Thread`].
    pub(crate) fn attach_here(&self, slot: u32) -> Result<Attached, (&'static str, io::Error)> {
        self.attach_if(slot, true)
    }

    pub(crate) fn not_attached(slot: u32, step: &str, error: &io::Error) -> io::Error {
        let text = format!("attaching the kernel thread to slot {slot}: {step}: {}", errno(error));
        io::Error::new(error.kind(), text)
    }

    /// `enable`: else nothing is told.
    fn attach_if(&self, slot: u32, enable: bool) -> Result<Attached, (&'static str, io::Error)> {
        if slot == 0 || slot > self.slots {
            return Err(("no such slot", io::ErrorKind::InvalidInput.into()));
        }
        let kept = match &self.program {
            // A thread that the scheduler meets on its way to here has no VP in its slot yet:
            // nothing is reported for it.
            Loaded::Tracepoint(follower) => Kept::Followed(follower.follow(slot)?),
            Loaded::Filter(program) => {
                // Disabled: without its filter it would trap at every switch. The link keeps it
                // alive.
                let event = sys::switch_event(self.traps).map_err(|e| ("perf_event_open", e))?;
                let cookie = u64::from(self.seat) << 32 | u64::from(slot);
                let link = sys::link(program.as_fd(), event.as_fd(), cookie)
                    .map_err(|e| ("BPF_LINK_CREATE", e))?;
                if enable {
                    sys::enable(event.as_fd()).map_err(|e| ("PERF_EVENT_IOC_ENABLE", e))?;
                }
                Kept::Event(link)
            }
        };
        Ok(Attached { kept })
    }

    fn attach_unavailable(&self, step: &str, error: &io::Error) -> Unavailable {
        let why = format!("{step} for a kernel thread: {}", errno(error));
        let remedy = match (step, error.raw_os_error()) {
            ("perf_event_open", Some(libc::EACCES | libc::EPERM)) if !sys::may_load() => format!(
                "`sudo sysctl kernel.perf_event_paranoid=1` (it is {}), or {}",
                pinned::paranoid(),
                load::capabilities()
            ),
            ("BPF_LINK_CREATE", Some(libc::EPERM)) if self.is_pinned() => {
                format!(
                    "Linux 6.0 or newer, or `sudo sysctl kernel.unprivileged_bpf_disabled=0`, or {}",
                    load::capabilities()
                )
            }
            _ => unavailable(step, error).remedy,
        };
        Unavailable { why, remedy }
    }

    /// Readable when there is a record: for epoll. Waking is prompt: about 13 us until a sleeping
    /// waiter runs.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// Takes all records: the slot, and the number of the VP that was lent there. The slot is
    /// between 1 and `slots`; the VP's number is what the slot said, which user code can scribble
    /// over: check it. The record may be out of date by now, too.
    ///
    /// One thread at a time: if another is draining, this returns at once, and that one takes the
    /// records.
    pub fn drain(&self, mut told: impl FnMut(u32, u32)) {
        self.ring.drain(|slot, vp| {
            if (1..=self.slots).contains(&slot) {
                told(slot, vp);
            }
        });
    }

    /// Whether this is a seat of an installed object.
    pub fn is_pinned(&self) -> bool {
        self.lock.is_some()
    }

    /// The programs at the tracepoint; None: this is a filter of thread events.
    ///
    /// # Errors
    /// The error of bpf(2).
    pub fn tracepoint(&self) -> io::Result<Option<tracepoint::Report>> {
        match &self.program {
            Loaded::Filter(_) => Ok(None),
            Loaded::Tracepoint(follower) => follower.report().map(Some),
        }
    }

    /// Whether a thread that is back gets a SIGTRAP: Linux 6.10 and later, at the tracepoint 6.18.
    /// Before that there is Blocked only.
    pub fn traps(&self) -> bool {
        self.traps
    }

    /// Whether that SIGTRAP comes before the call that slept returns. Followed at the tracepoint it
    /// may come a moment after: it is sent from an interrupt of the core that the thread left
    /// (kernel/bpf/helpers.c, bpf_task_work_irq), and the thread may be back by then, elsewhere.
    pub fn traps_at_once(&self) -> bool {
        matches!(self.program, Loaded::Filter(_))
    }

    /// Blocked only, and no SIGTRAP at all, for the threads attached from now on: detaching may
    /// give one that nobody wanted ([`attach`](Bpf::attach)), and a debugger stops the process at
    /// each.
    pub fn without_traps(&mut self) {
        self.traps = false;
    }
}
