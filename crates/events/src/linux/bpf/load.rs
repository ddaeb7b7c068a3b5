//! The filter of thread events and its maps, into the kernel. ([`super::tracepoint`] does so with
//! the programs at tracepoints.)
//!
//! The object is checked in as instructions (`object.rs`), which need two things that only the
//! running kernel has: the descriptors of the maps, and the offset of a thread's state. Both are
//! put in here. bpftool's light skeleton would do the same with a program of its own inside the
//! kernel, but relocates types from Linux 5.17 on only.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use kumihimo_arch::descriptor::Descriptor;

use super::abi::{MOST_SLOTS, SLOT_SIZE};
use super::program::Symbol;
use super::sys::{self, Map, Use, errno};
use super::{btf, object};
use crate::report::unavailable::Unavailable;

/// In `owners`: no seat there.
pub(super) const OWNER_NONE: u32 = u32::MAX;
/// In `owners`: a seat that only its maker can reach, so that nobody need be checked.
pub(super) const OWNER_PRIVATE: u32 = u32::MAX - 1;

/// What one process needs: memory for slots, and a buffer for records.
pub(super) struct SeatMaps {
    pub(super) page: Descriptor,
    pub(super) buffer: Descriptor,
}

impl SeatMaps {
    pub(super) fn new(slots: u32) -> Result<SeatMaps, Unavailable> {
        SeatMaps::with(&page(slots + 1), slots)
    }

    /// For an outer map whose inner maps differ in size.
    pub(super) fn of_any_size(slots: u32) -> Result<SeatMaps, Unavailable> {
        let page = page(slots + 1);
        SeatMaps::with(&Map { flags: page.flags | sys::INNER_MAP, ..page }, slots)
    }

    fn with(page: &Map<'_>, slots: u32) -> Result<SeatMaps, Unavailable> {
        let page = create("the slots", page)?;
        // A slot has at most one record that was not read, unless its thread reclaims its VP and
        // sleeps again meanwhile: room for two of 16 bytes each.
        let bytes = (slots.saturating_mul(32))
            .next_power_of_two()
            .max(kumihimo_arch::cpu::page_size() as u32);
        let buffer = create("the buffer", &map(sys::MAP_RINGBUF, "kumi_buffer", 0, 0, bytes))?;
        Ok(SeatMaps { page, buffer })
    }
}

/// The program with its outer maps.
pub(super) struct Object {
    pub(super) program: Descriptor,
    pub(super) pages: Descriptor,
    pub(super) buffers: Descriptor,
    pub(super) owners: Descriptor,
}

impl Object {
    /// For up to `seats` processes, each with maps like `template`'s. No seat has an owner yet.
    pub(super) fn load(seats: u32, template: &SeatMaps) -> Result<Object, Unavailable> {
        let of = |name, inner: &Descriptor| {
            let outer = map(sys::MAP_ARRAY_OF_MAPS, name, 4, 4, seats);
            create("the map of maps", &Map { inner: Some(inner.as_fd()), ..outer })
        };
        let pages = of("kumi_pages", &template.page)?;
        let buffers = of("kumi_buffers", &template.buffer)?;
        let owners = create("the owners", &map(sys::MAP_ARRAY, "kumi_owners", 4, 4, seats))?;
        for seat in 0..seats {
            sys::map_set(owners.as_fd(), seat, OWNER_NONE)
                .map_err(|e| unavailable("setting an owner", &e))?;
        }
        let state = btf::state_offset()?;
        let instructions = object::FILTER.with(|symbol| match symbol {
            "state" => Symbol::Value(state),
            "pages" => Symbol::Map(number(&pages)),
            "buffers" => Symbol::Map(number(&buffers)),
            "owners" => Symbol::Map(number(&owners)),
            _ => unreachable!(
                "bpf/object.rs has the symbol {symbol}, which the loader does not know"
            ),
        });
        let program = sys::program_load(&instructions, object::FILTER.name, &Use::Event)
            .map_err(|e| unavailable("loading the BPF program", &e))?;
        Ok(Object { program, pages, buffers, owners })
    }

    /// Puts maps into a seat; from then on the program serves it.
    pub(super) fn give(&self, seat: u32, maps: &SeatMaps, owner: u32) -> Result<(), Unavailable> {
        let set = |outer: &Descriptor, value| {
            sys::map_set(outer.as_fd(), seat, value)
                .map_err(|e| unavailable(&format!("filling seat {seat}"), &e))
        };
        set(&self.pages, number(&maps.page))?;
        set(&self.buffers, number(&maps.buffer))?;
        set(&self.owners, owner)
    }
}

pub(super) fn number(fd: &Descriptor) -> u32 {
    use std::os::fd::AsRawFd;
    fd.as_raw_fd() as u32
}

pub(super) fn map(kind: u32, name: &str, key: u32, value: u32, entries: u32) -> Map<'_> {
    Map { kind, name, key, value, entries, flags: 0, inner: None, types: None }
}

fn page(entries: u32) -> Map<'static> {
    Map { flags: sys::MMAPABLE, ..map(sys::MAP_ARRAY, "kumi_page", 4, SLOT_SIZE as u32, entries) }
}

pub(super) fn create(what: &str, map: &Map<'_>) -> Result<Descriptor, Unavailable> {
    sys::map_create(map).map_err(|e| unavailable(&format!("creating a BPF map for {what}"), &e))
}

/// Whether `fd` is a page map as we make them; if so, its highest slot.
pub(super) fn page_slots(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let info = sys::map_info(fd)?;
    let like = page(info.entries);
    if (info.kind, info.key, info.value, info.flags)
        != (like.kind, like.key, like.value, like.flags)
    {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a map of slots"));
    }
    Ok(info.entries - 1)
}

/// What to do about a step's errno.
pub(super) fn unavailable(step: &str, error: &io::Error) -> Unavailable {
    let why = format!("{step}: {}", errno(error));
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if !sys::may_load() => capabilities(),
        Some(libc::EPERM | libc::EACCES) => {
            "this thread has the capabilities, so a seccomp filter, a user namespace or kernel lockdown forbids it: run \
             outside of the container, or `docker run --cap-add BPF --cap-add PERFMON --security-opt seccomp=unconfined ...`; \
             for lockdown see /sys/kernel/security/lockdown"
                .to_owned()
        }
        Some(libc::ENOSYS) => {
            "a kernel with CONFIG_BPF_SYSCALL=y and CONFIG_PERF_EVENTS=y; in a container \
             `docker run --security-opt seccomp=unconfined ...`"
                .to_owned()
        }
        Some(libc::ENOMEM) => "more memory for this cgroup (memory.max), or fewer slots".to_owned(),
        Some(libc::EMFILE) => "a higher limit of open files: `ulimit -n 65536`".to_owned(),
        _ => "Linux 5.15 or newer; if it is, this is a defect of Kumihimo: report this line with `uname -r`".to_owned(),
    };
    Unavailable { why, remedy }
}

/// How this program comes to load, or to need not.
pub(super) fn capabilities() -> String {
    let program = std::env::current_exe()
        .map_or_else(|_| "PROGRAM".to_owned(), |path| path.display().to_string());
    // SAFETY: takes nothing, cannot fail.
    let user = unsafe { libc::getuid() };
    format!(
        "`sudo setcap cap_bpf,cap_perfmon+ep {program}`, or `sudo kumi events install --user {user}`"
    )
}

/// Refuses a number of slots out of range, and a kernel that cannot run the programs.
pub(super) fn check(slots: u32) -> Result<(), Unavailable> {
    if slots == 0 || slots > MOST_SLOTS {
        return Err(Unavailable::new(
            format!("{slots} slots"),
            format!("ask for 1 to {MOST_SLOTS} slots"),
        ));
    }
    if sys::kernel() < (5, 15) {
        let (major, minor) = sys::kernel();
        return Err(Unavailable::new(
            format!(
                "Linux {major}.{minor} cannot tell one thread's perf event from another's in BPF (bpf_cookie)"
            ),
            "Linux 5.15 or newer",
        ));
    }
    Ok(())
}
