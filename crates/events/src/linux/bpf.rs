//! Events by BPF: a BPF program in the kernel reports when a kernel thread with a VP goes to sleep,
//! and when it is back.
//!
//! When an attached kernel thread goes to sleep unmasked, with a VP in its slot, the program marks
//! the VP [`LENT`], writes a record into a buffer and wakes a waiting spare: **Blocked**. If the
//! slot requests it, the thread gets a SIGTRAP ([`SIG_DATA`]), which is delivered on its way back
//! to user mode. It arrives before the interrupted call returns, and without EINTR: **Unblocked**.
//!
//! The program runs in one of two ways:
//!
//! - As the filter of a software perf event that counts the switches of one thread
//!   (`bpf/events.bpf.c`, Linux 5.15). The SIGTRAP is filtered from 6.10 on ([`Bpf::traps`]). The
//!   event costs the thread half a microsecond each time that it leaves its core or comes back,
//!   whether its VP is lent or not.
//! - On request and experimental: at the scheduler's tracepoint ([`Way::Switch`],
//!   `bpf/switch.bpf.c`, Linux 6.9; SIGTRAP from 6.18 on), with one program for all processes of
//!   the machine ([`tracepoint`]). It costs every thread of the machine some tens of nanoseconds at
//!   each switch (`examples/bystander.rs`).
//!
//! A process loads the program (CAP_BPF and CAP_PERFMON), or takes a *seat* of an object that root
//! has pinned ([`pinned`], `kumi events install`). A pinned object is always a filter.
//!
//! A forked child shares the memory and the buffer with its parent. It keeps a seat taken as long
//! as it lives.
//!
//! Offsets in a slot of 256 bytes (slot 0 is the [`Header`]):
//!
//! - 0: `this` u64, for the user scheduler.
//! - 8: `vp` u64: 0 for none; otherwise the VP's number + 1 in bits 2.., [`CLAIMING`], [`LENT`].
//! - 16, 20: `masked` u32, above 0: no event; `wanted` u32: [`WANTS_BLOCKED`], [`WANTS_UNBLOCKED`].
//! - 24, 28, 32, 40, 44: `pending` u32, `priority` i32, `microprocess` u64, `tid` u32, `state` u32:
//!   the program does not read them.
//! - 48, 56, 64: u64 counters of the program: VPs lent; SIGTRAPs sent; records for which the buffer
//!   had no room (the VP then stays).
//! - 72: u64, CLOCK_MONOTONIC in ns, when the VP was last lent.
//! - 128..256: for the user scheduler.

mod abi;
mod btf;
mod file_lock;
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
use std::os::fd::{AsFd, BorrowedFd};

use kumihimo_arch::descriptor::Descriptor;

pub use abi::{MOST_SLOTS, SIG_DATA, SLOT_SIZE};
pub use status::{Seat, Status};

pub use crate::handoff::page::{Header, MAGIC, VERSION};
pub use crate::handoff::slot::{
    CLAIMING, LENT, WANT_BLOCKED as WANTS_BLOCKED, WANT_UNBLOCKED as WANTS_UNBLOCKED,
};

use crate::report::unavailable::Unavailable;
use file_lock::FileLock;
pub(crate) use follow::Followed;
use follow::Follower;
use load::{OWNER_PRIVATE, Object, SeatMaps, check, unavailable};
use pinned::Store;
use ring::Ring;
use sys::{Mapping, errno};

/// A loaded object and one seat of it. Drop frees the seat. The program is unloaded once no thread
/// is attached.
#[derive(Debug)]
pub struct Bpf {
    program: Loaded,
    memory: Mapping,
    ring: Ring,
    seat: u32,
    slots: u32,
    traps: bool,
    /// The lock of the seat's directory. `None` for an object of this process. Dropped last: the
    /// next owner finds nothing of this one.
    lock: Option<FileLock>,
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As the filter of an event of each thread.
    Thread,
    /// At the scheduler's tracepoint. Experimental: the book lists its limits.
    Switch,
}

impl Way {
    /// Returns the way that `KUMI_LAB=bpf=...` requests: `thread` (the default) or `switch`.
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
    Filter(Descriptor),
    Tracepoint(Box<Follower>),
}

/// Keeps a kernel thread attached until it is dropped or the thread ends. Any thread may drop it.
#[derive(Debug)]
pub struct Attached {
    kept: Kept,
}

/// The resource that keeps the thread attached.
#[derive(Debug)]
pub(crate) enum Kept {
    /// The link of the program to its event.
    Event(Descriptor),
    Followed(Followed),
}

impl Attached {
    pub(crate) fn into_kept(self) -> Kept {
        self.kept
    }
}

impl Bpf {
    /// Loads the object if the calling thread may; otherwise takes a seat of the installed one
    /// ([`pinned`]). `slots` is the highest slot that will be used, at least 1. Loading reads the
    /// kernel's types and takes some milliseconds. A seat takes a fraction of one.
    ///
    /// # Errors
    /// The step that the kernel refused, and the setting that would allow it.
    pub fn open(slots: u32) -> Result<Bpf, Unavailable> {
        if sys::may_load() { Bpf::load(slots) } else { Bpf::take(&Store::system(), slots) }
    }

    /// Loads the object for this process alone.
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

    /// Opens events at the scheduler's tracepoint ([`Way::Switch`]), with the programs of another
    /// process if there are any; otherwise loads them.
    ///
    /// # Errors
    /// As for [`Bpf::open`]; also if the kernel is older than Linux 6.9.
    pub fn load_switch(slots: u32) -> Result<Bpf, Unavailable> {
        Bpf::load_switch_with(slots, &tracepoint::Options::default())
    }

    /// As [`load_switch`](Bpf::load_switch), with options.
    ///
    /// # Errors
    /// As for [`load_switch`](Bpf::load_switch).
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
                "KUMI_LAB=bpf=switch takes no seat, and this process lacks CAP_BPF and CAP_PERFMON to load the program",
                format!("{}, the latter with KUMI_LAB=bpf=thread", load::capabilities()),
            ));
        }
        let (follower, maps) = Follower::open(slots, options)?;
        Bpf::new(Loaded::Tracepoint(Box::new(follower)), maps, 0, slots, None)
    }

    /// Takes a free seat of an installed object. Its memory is zero except for the header, and its
    /// buffer is empty.
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
        lock: Option<FileLock>,
    ) -> Result<Bpf, Unavailable> {
        let length = (slots as usize + 1) * SLOT_SIZE;
        let memory = Mapping::new(maps.page.as_fd(), 0, length, true)
            .map_err(|e| unavailable("mapping the slots", &e))?;
        let ring =
            Ring::new(maps.buffer).map_err(|e| unavailable("mapping the BPF ring buffer", &e))?;
        let header = Header::new(slots, seat);
        // SAFETY: `length` writable, page-aligned bytes that only this process has mapped: the seat
        // is locked, and no other process can reach a private map. No reference to them exists yet.
        // The program reads whole words and accepts any value.
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
        // Test an attachment now, since the kernel would refuse later threads what it refuses this
        // one. The event is not enabled, so it cannot trap.
        bpf.attach_if(slots, false)
            .map_err(|(step, error)| bpf.attach_unavailable(step, &error))?;
        Ok(bpf)
    }

    /// Returns the address and the size in bytes of the slots. Slot `n` starts at `n * SLOT_SIZE`;
    /// slot 0 is the [`Header`]. The memory is valid as long as `self`. The BPF program and all
    /// threads of the process access it concurrently, by atomics only.
    pub fn memory(&self) -> (*mut u8, usize) {
        (self.memory.start(), self.memory.length())
    }

    /// Attaches the calling kernel thread to a slot until the result is dropped or the thread ends.
    /// Events are reported from now on if the slot requests them, so the caller must fill the slot
    /// first. Each thread uses one slot, and each slot one thread.
    ///
    /// An attached thread that drops the result may get one more SIGTRAP, which reports nothing.
    ///
    /// # Errors
    /// `InvalidInput` for a slot out of range, otherwise the error of perf_event_open(2),
    /// pidfd_open(2) or bpf(2).
    pub fn attach(&self, slot: u32) -> io::Result<Attached> {
        self.attach_here(slot).map_err(|(step, error)| Bpf::not_attached(slot, step, &error))
    }

    /// As [`attach`](Bpf::attach), but returns the step that was refused. Allocates nothing if the
    /// way is [`Way::Thread`].
    pub(crate) fn attach_here(&self, slot: u32) -> Result<Attached, (&'static str, io::Error)> {
        self.attach_if(slot, true)
    }

    pub(crate) fn not_attached(slot: u32, step: &str, error: &io::Error) -> io::Error {
        let text = format!("attaching the kernel thread to slot {slot}: {step}: {}", errno(error));
        io::Error::new(error.kind(), text)
    }

    /// Attaches the calling thread. Without `enable`, no event is reported.
    fn attach_if(&self, slot: u32, enable: bool) -> Result<Attached, (&'static str, io::Error)> {
        if slot == 0 || slot > self.slots {
            return Err(("no such slot", io::ErrorKind::InvalidInput.into()));
        }
        let kept = match &self.program {
            // If the scheduler switches this thread out before the end of this call, its slot has
            // no VP yet, and nothing is reported.
            Loaded::Tracepoint(follower) => Kept::Followed(follower.follow(slot)?),
            Loaded::Filter(program) => {
                // Opened disabled: without its filter the event would trap at every switch. The
                // link keeps the event alive.
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

    /// Returns a descriptor for epoll(7) that is readable while there is a record. A sleeping
    /// waiter runs about 13 us after the record is written.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// Takes all records and passes the slot and the number of the lent VP to `told`. The slot is
    /// between 1 and `slots`. The VP's number comes from the slot, which user code can overwrite,
    /// so the caller must check it. A record may be out of date.
    ///
    /// One thread drains at a time: if another thread is draining, this returns at once, and that
    /// thread takes the records.
    pub fn drain(&self, mut told: impl FnMut(u32, u32)) {
        self.ring.drain(|slot, vp| {
            if (1..=self.slots).contains(&slot) {
                told(slot, vp);
            }
        });
    }

    /// Returns whether this is a seat of an installed object.
    pub fn is_pinned(&self) -> bool {
        self.lock.is_some()
    }

    /// Reports on the programs at the tracepoint. Returns `None` for a filter of thread events.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn tracepoint(&self) -> io::Result<Option<tracepoint::Report>> {
        match &self.program {
            Loaded::Filter(_) => Ok(None),
            Loaded::Tracepoint(follower) => follower.report().map(Some),
        }
    }

    /// Returns whether a returning thread gets a SIGTRAP: from Linux 6.10 on, at the tracepoint
    /// from 6.18 on. Older kernels report only Blocked.
    pub fn traps(&self) -> bool {
        self.traps
    }

    /// Returns whether that SIGTRAP arrives before the interrupted call returns. At the tracepoint
    /// it may arrive a moment later: the core that the thread left sends it from an interrupt
    /// (kernel/bpf/helpers.c, `bpf_task_work_irq`). By then the thread may already run on another
    /// core.
    pub fn traps_at_once(&self) -> bool {
        matches!(self.program, Loaded::Filter(_))
    }

    /// Disables the SIGTRAP for threads that are attached from now on, so that only Blocked is
    /// reported. Detaching may cause a spurious SIGTRAP ([`attach`](Bpf::attach)), at each of which
    /// a debugger stops the process.
    pub fn without_traps(&mut self) {
        self.traps = false;
    }
}
