//! All switches of the machine followed at the scheduler's tracepoint (`bpf/switch.bpf.c`), for
//! kernel threads that have no event of their own.
//!
//! A thread with a perf event pays for it at every switch: half a microsecond to take its events
//! off the core, and as much to put them on, whatever they are. Here it does not. The kernel has to
//! let a program send a signal by task work (Linux 6.18), and us load it. Seats cannot be had so:
//! any process could claim any thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use super::load::{SeatMaps, create, map, number, unavailable};
use super::program::Symbol;
use super::sys::{self, Map, Use};
use super::{btf, object};
use crate::report::unavailable::Unavailable;

/// Attached while it lives.
#[derive(Debug)]
pub(super) struct Follower {
    /// Which slot a thread has.
    threads: Arc<OwnedFd>,
    /// The kernel schedules no task work from a map that nobody has open.
    _works: OwnedFd,
    _switch: OwnedFd,
    _exec: OwnedFd,
}

/// A kernel thread with a slot, until it is dropped.
#[derive(Debug)]
pub(crate) struct Followed {
    threads: Arc<OwnedFd>,
    thread: OwnedFd,
}

impl Follower {
    pub(super) fn load(maps: &SeatMaps, slots: u32) -> Result<Follower, Unavailable> {
        let kernel = btf::traced()?;
        let types = sys::types_load(&types::blob())
            .map_err(|e| unavailable("loading type information", &e))?;
        let storage = map(sys::MAP_TASK_STORAGE, "kumi_threads", 4, 4, 0);
        let described = Some((types.as_fd(), [types::U32, types::U32]));
        let threads =
            create("the threads", &Map { flags: sys::NO_PREALLOC, types: described, ..storage })?;
        let described = Some((types.as_fd(), [types::U32, types::WORK]));
        let works = create(
            "the traps",
            &Map { types: described, ..map(sys::MAP_ARRAY, "kumi_works", 4, 8, slots + 1) },
        )?;
        let callback = object::SWITCH.instructions.len() as u32;
        let find = |symbol: &str| match symbol {
            "threads" => Symbol::Map(number(&threads)),
            "works" => Symbol::Map(number(&works)),
            "page" => Symbol::Map(number(&maps.page)),
            "buffer" => Symbol::Map(number(&maps.buffer)),
            "came_back" => Symbol::Own(callback),
            "bpf_task_work_schedule_resume_impl" => Symbol::Function(kernel.schedule),
            "bpf_send_signal_task" => Symbol::Function(kernel.send),
            _ => unreachable!(
                "bpf/object.rs has the symbol {symbol}, which the loader does not know"
            ),
        };
        let attach = |instructions: &[u64], program: &str, of: &Use<'_>| {
            let program = sys::program_load(instructions, program, of)?;
            sys::trace(program.as_fd())
        };
        let functions = [[0, types::SWITCHED], [callback, types::CAME_BACK]];
        let instructions = [object::SWITCH.with(find), object::BACK.with(find)].concat();
        let of =
            Use::Tracepoint { id: kernel.sched_switch, types: Some((types.as_fd(), &functions)) };
        let switch = attach(&instructions, object::SWITCH.name, &of)
            .map_err(|e| unavailable("attaching the BPF program to sched_switch", &e))?;
        let of = Use::Tracepoint { id: kernel.sched_process_exec, types: None };
        let exec = attach(&object::EXEC.with(find), object::EXEC.name, &of)
            .map_err(|e| unavailable("attaching the BPF program to sched_process_exec", &e))?;
        Ok(Follower { threads: Arc::new(threads), _works: works, _switch: switch, _exec: exec })
    }

    /// The calling kernel thread has `slot` from here on.
    pub(super) fn follow(&self, slot: u32) -> Result<Followed, (&'static str, io::Error)> {
        let thread = sys::this_thread().map_err(|e| ("pidfd_open", e))?;
        sys::map_set(self.threads.as_fd(), thread.as_raw_fd() as u32, slot)
            .map_err(|e| ("BPF_MAP_UPDATE_ELEM", e))?;
        Ok(Followed { threads: self.threads.clone(), thread })
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        // It fails if the thread has ended, or runs another program: then it is gone already.
        let _ = sys::map_remove(self.threads.as_fd(), self.thread.as_raw_fd() as u32);
    }
}

/// What the kernel wants to know of the functions and of the map's values
/// (Documentation/bpf/btf.rst).
mod types {
    pub(super) const U32: u32 = 1;
    const U64: u32 = 2;
    const OPAQUE: u32 = 3;
    /// The value of `works`.
    pub(super) const WORK: u32 = 4;
    const FUNCTION: u32 = 5;
    pub(super) const SWITCHED: u32 = 6;
    pub(super) const CAME_BACK: u32 = 7;

    const NAMES: &[u8] = b"\0u32\0u64\0bpf_task_work\0opaque\0work\0switched\0came_back\0";

    fn name(text: &str) -> u32 {
        let text = format!("\0{text}\0");
        NAMES.windows(text.len()).position(|at| at == text.as_bytes()).expect("a name of these")
            as u32
            + 1
    }

    pub(super) fn blob() -> Vec<u8> {
        const INT: u32 = 1 << 24;
        const STRUCT: u32 = 4 << 24;
        const FUNC: u32 = 12 << 24;
        const FUNC_PROTO: u32 = 13 << 24;
        let types = [
            // Name, kind, bytes; for an int, bits.
            &[name("u32"), INT, 4, 32][..],
            &[name("u64"), INT, 8, 64],
            // The kernel knows it by its name. One member: name, type, place.
            &[name("bpf_task_work"), STRUCT | 1, 8, name("opaque"), U64, 0],
            &[name("work"), STRUCT | 1, 8, name("work"), OPAQUE, 0],
            // What it returns.
            &[0, FUNC_PROTO, U32],
            // Static functions.
            &[name("switched"), FUNC, FUNCTION],
            &[name("came_back"), FUNC, FUNCTION],
        ]
        .concat();
        let length = types.len() as u32 * 4;
        // magic u16, version u8, flags u8, hdr_len, type_off, type_len, str_off, str_len.
        let header = [0x1_eb9f, 24, 0, length, length, NAMES.len() as u32];
        header
            .iter()
            .chain(&types)
            .flat_map(|word| word.to_le_bytes())
            .chain(NAMES.iter().copied())
            .collect()
    }
}
