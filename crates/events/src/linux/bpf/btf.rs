//! Where the running kernel keeps what the programs read, and which of its types is which: a look
//! into its type information.
//!
//! Source: Documentation/bpf/btf.rst. Only what it takes to find a member of a struct, and types,
//! by name.

use std::fs;
use std::sync::OnceLock;

use crate::report::unavailable::Unavailable;

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const STRUCT: u32 = 4;
const TYPEDEF: u32 = 8;
const FUNC: u32 = 12;

/// What it takes to follow switches at the tracepoint: ids of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traced {
    pub(super) sched_switch: u32,
    pub(super) sched_process_exec: u32,
    /// None: the kernel has no task work for programs.
    pub(super) task_work: Option<TaskWork>,
}

/// The kernel's functions that send a signal by task work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskWork {
    pub(super) schedule: u32,
    pub(super) send: u32,
}

/// The offset in bytes of `task_struct.__state`. The first call that finds it reads about 5 MB,
/// some milliseconds.
pub(super) fn state_offset() -> Result<u32, Unavailable> {
    static FOUND: OnceLock<u32> = OnceLock::new();
    if let Some(offset) = FOUND.get() {
        return Ok(*offset);
    }
    let offset = member_offset(&vmlinux()?, b"task_struct", b"__state").ok_or_else(|| {
        Unavailable::new(
            format!("no task_struct.__state in {VMLINUX}"),
            "Linux 5.15 or newer with CONFIG_DEBUG_INFO_BTF=y",
        )
    })?;
    Ok(*FOUND.get_or_init(|| offset))
}

/// The first call that finds them reads as much.
pub(super) fn traced() -> Result<Traced, Unavailable> {
    static FOUND: OnceLock<Traced> = OnceLock::new();
    if let Some(traced) = FOUND.get() {
        return Ok(*traced);
    }
    let traced = find_traced(&vmlinux()?).ok_or_else(|| {
        Unavailable::new(
            format!("no tracepoint sched_switch or sched_process_exec in {VMLINUX}"),
            "a kernel with CONFIG_DEBUG_INFO_BTF=y and CONFIG_TRACEPOINTS=y, or KUMI_LAB=bpf=thread",
        )
    })?;
    Ok(*FOUND.get_or_init(|| traced))
}

fn vmlinux() -> Result<Vec<u8>, Unavailable> {
    fs::read(VMLINUX).map_err(|error| {
        Unavailable::new(
            format!("the kernel's type information cannot be read: {VMLINUX}: {}", super::sys::errno(&error)),
            "a kernel with CONFIG_DEBUG_INFO_BTF=y (Debian 11, Ubuntu 20.10, Fedora 31 and newer have it), and /sys mounted",
        )
    })
}

fn find_traced(bytes: &[u8]) -> Option<Traced> {
    let wanted: [(u32, &[&[u8]]); 4] = [
        (TYPEDEF, &[b"btf_trace_sched_switch"]),
        (TYPEDEF, &[b"btf_trace_sched_process_exec"]),
        // Linux 6.18; and 7.0, which adds the program's own context by itself, and ignores the
        // argument for it.
        (FUNC, &[b"bpf_task_work_schedule_resume_impl", b"bpf_task_work_schedule_resume"]),
        (FUNC, &[b"bpf_send_signal_task"]),
    ];
    let mut found = [0; 4];
    each_type(bytes, |one| {
        let is = |(kind, names): &(u32, &[&[u8]])| {
            one.kind == *kind && names.iter().any(|name| one.is(one.name, name))
        };
        let at = wanted.iter().position(is);
        if let Some(at) = at {
            found[at] = one.id;
        }
        (!found.contains(&0)).then_some(())
    });
    let [sched_switch, sched_process_exec, schedule, send] = found;
    let task_work = (schedule != 0 && send != 0).then_some(TaskWork { schedule, send });
    let traced = Traced { sched_switch, sched_process_exec, task_work };
    (sched_switch != 0 && sched_process_exec != 0).then_some(traced)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// One type of the kernel's.
struct Type<'a> {
    id: u32,
    kind: u32,
    /// Members have sizes, too.
    has_bit_fields: bool,
    name: u32,
    /// What follows the three words that all have.
    rest: &'a [u8],
    names: &'a [u8],
}

impl Type<'_> {
    fn is(&self, name: u32, wanted: &[u8]) -> bool {
        let text = self.names.get(name as usize..).unwrap_or_default();
        text.starts_with(wanted) && text.get(wanted.len()) == Some(&0)
    }
}

/// Shows all types in turn until `look` has found what it looks for.
fn each_type<T>(bytes: &[u8], mut look: impl FnMut(&Type<'_>) -> Option<T>) -> Option<T> {
    const MAGIC: u32 = 0xeb9f;
    // magic u16, version u8, flags u8, hdr_len, type_off, type_len, str_off, str_len.
    if word(bytes, 0)? & 0xffff != MAGIC {
        return None;
    }
    let header = word(bytes, 4)? as usize;
    let section = |at: usize| {
        let start = header.checked_add(word(bytes, at)? as usize)?;
        bytes.get(start..start.checked_add(word(bytes, at + 4)? as usize)?)
    };
    let (types, names) = (section(8)?, section(16)?);
    let (mut at, mut id) = (0, 0);
    while at < types.len() {
        let (name, info) = (word(types, at)?, word(types, at + 4)?);
        at += 12;
        id += 1;
        let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        let length = match kind {
            // INT, VAR, DECL_TAG
            1 | 14 | 17 => 4,
            // ARRAY
            3 => 12,
            // STRUCT, UNION, DATASEC, ENUM64
            STRUCT | 5 | 15 | 19 => 12 * count,
            // ENUM, FUNC_PROTO
            6 | 13 => 8 * count,
            // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
            2 | 7..=FUNC | 16 | 18 => 0,
            // A kind of the future: its length is not known, so what follows cannot be found.
            _ => return None,
        };
        let rest = types.get(at..at + length)?;
        let found = look(&Type { id, kind, has_bit_fields: info >> 31 == 1, name, rest, names });
        if found.is_some() {
            return found;
        }
        at += length;
    }
    None
}

/// The first struct of that name that has such a member, in whole bytes.
fn member_offset(bytes: &[u8], structure: &[u8], member: &[u8]) -> Option<u32> {
    let bits = each_type(bytes, |one| {
        if one.kind != STRUCT || !one.is(one.name, structure) {
            return None;
        }
        let entry = one
            .rest
            .chunks_exact(12)
            .find(|entry| word(entry, 0).is_some_and(|name| one.is(name, member)))?;
        // With bit fields, one's size shares the word.
        word(entry, 8).map(|at| at & if one.has_bit_fields { 0x00ff_ffff } else { u32::MAX })
    })?;
    bits.is_multiple_of(8).then_some(bits / 8)
}

#[cfg(test)]
mod tests;
