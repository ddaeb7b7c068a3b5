//! The system calls: bpf(2), perf_event_open(2), and a few more, each as a safe function.
//!
//! Source: the manual pages and linux/bpf.h. Every struct here is a prefix of the kernel's
//! `union bpf_attr`; what is left out counts as zero.

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::ptr;

use kumihimo_arch::descriptor::Descriptor;

use super::abi::SIG_DATA;
use kumihimo_arch::signal_mask;

use crate::linux::perf_event::{self, Software};

const BPF_MAP_CREATE: i64 = 0;
const BPF_MAP_LOOKUP_ELEM: i64 = 1;
const BPF_MAP_UPDATE_ELEM: i64 = 2;
const BPF_MAP_DELETE_ELEM: i64 = 3;
const BPF_MAP_GET_NEXT_KEY: i64 = 4;
const BPF_PROG_LOAD: i64 = 5;
const BPF_OBJ_PIN: i64 = 6;
const BPF_OBJ_GET: i64 = 7;
const BPF_OBJ_GET_INFO_BY_FD: i64 = 15;
const BPF_RAW_TRACEPOINT_OPEN: i64 = 17;
const BPF_BTF_LOAD: i64 = 18;
const BPF_LINK_CREATE: i64 = 28;

pub(super) const MAP_ARRAY: u32 = 2;
pub(super) const MAP_ARRAY_OF_MAPS: u32 = 12;
pub(super) const MAP_HASH_OF_MAPS: u32 = 13;
pub(super) const MAP_RINGBUF: u32 = 27;
pub(super) const MAP_TASK_STORAGE: u32 = 29;
pub(super) const NO_PREALLOC: u32 = 1;
pub(super) const MMAPABLE: u32 = 1 << 10;
/// As an inner map, an array may be larger or smaller than the template.
pub(super) const INNER_MAP: u32 = 1 << 12;
const PROG_PERF_EVENT: u32 = 7;
pub(super) const PROG_TRACING: u32 = 26;
const ATTACH_RAW_TRACEPOINT: u32 = 23;
const ATTACH_PERF_EVENT: u32 = 41;

/// bpf(2). `A` is a `repr(C)` struct without padding that `command` takes.
///
/// # Safety
/// Every address in `attr` is valid for what `command` does with it.
pub(super) unsafe fn bpf<A>(command: i64, attr: &mut A) -> io::Result<i64> {
    // SAFETY: `attr` lives through the call, and its size is told; its addresses are the caller's
    // promise.
    let done = unsafe {
        kumihimo_arch::call!(libc::SYS_bpf, command, ptr::from_mut(attr), size_of::<A>())
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// # Safety
/// `number` is a descriptor that was just made and belongs to nobody.
pub(super) unsafe fn owned(number: i64) -> Descriptor {
    // SAFETY: the caller's promise. Descriptors fit into an int.
    unsafe { Descriptor::from_raw_fd(number as i32) }
}

pub(super) fn number(fd: BorrowedFd<'_>) -> u32 {
    // A BorrowedFd is never negative.
    fd.as_raw_fd() as u32
}

/// The name of a map or program, as the kernel has it.
pub(super) fn name(text: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    // One byte stays zero: the kernel wants it terminated.
    let length = text.len().min(15);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

/// What a map is made of. `inner`: the template of a map of maps. `types`: type information, and
/// which of it describes keys and values.
pub(super) struct Map<'a> {
    pub(super) kind: u32,
    pub(super) name: &'a str,
    pub(super) key: u32,
    pub(super) value: u32,
    pub(super) entries: u32,
    pub(super) flags: u32,
    pub(super) inner: Option<BorrowedFd<'a>>,
    pub(super) types: Option<(BorrowedFd<'a>, [u32; 2])>,
}

pub(super) fn map_create(map: &Map<'_>) -> io::Result<Descriptor> {
    #[repr(C)]
    struct Attr {
        sizes: [u32; 5],
        inner: u32,
        numa_node: u32,
        name: [u8; 16],
        device: u32,
        types: u32,
        key_and_value: [u32; 2],
    }
    let mut attr = Attr {
        sizes: [map.kind, map.key, map.value, map.entries, map.flags],
        inner: map.inner.map_or(0, number),
        numa_node: 0,
        name: name(map.name),
        device: 0,
        types: map.types.map_or(0, |(types, _)| number(types)),
        key_and_value: map.types.map_or([0; 2], |(_, which)| which),
    };
    // SAFETY: no addresses in it; the result is a new descriptor.
    unsafe { bpf(BPF_MAP_CREATE, &mut attr).map(|fd| owned(fd)) }
}

#[repr(C)]
struct Element {
    map: u32,
    zero: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Sets an entry of a map whose keys and values are 4 bytes.
pub(super) fn map_set(map: BorrowedFd<'_>, key: u32, value: u32) -> io::Result<()> {
    map_set_words(map, key, [value])
}

/// Sets an entry of a map whose keys are 4 bytes and whose values are `N` times as many.
pub(super) fn map_set_words<const N: usize>(
    map: BorrowedFd<'_>,
    key: u32,
    value: [u32; N],
) -> io::Result<()> {
    let mut attr = Element {
        map: number(map),
        zero: 0,
        key: ptr::from_ref(&key) as u64,
        value: value.as_ptr() as u64,
        flags: 0,
    };
    let info = map_info(map)?;
    assert_eq!((info.key, info.value as usize), (4, 4 * N), "a map of other keys or values");
    // SAFETY: both live through the call and are as long as the map's keys and values (just
    // asserted).
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attr).map(|_| ()) }
}

/// The keys of a hash map whose keys are 4 bytes. Other processes may change the map meanwhile: a
/// key may be missing or come twice.
pub(super) fn map_keys(map: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let info = map_info(map)?;
    assert_eq!(info.key, 4, "a map of other keys");
    let mut keys = Vec::new();
    // After a deletion of `key` by others the kernel begins anew: so there is a bound.
    for _ in 0..2 * info.entries {
        let mut next = 0u32;
        let mut attr = Element {
            map: number(map),
            zero: 0,
            key: keys.last().map_or(0, |key| ptr::from_ref::<u32>(key) as u64),
            value: ptr::from_mut(&mut next) as u64,
            flags: 0,
        };
        // SAFETY: the last key lives in `keys`; the kernel writes 4 bytes to `next` (just
        // asserted), whose address was taken mutably.
        match unsafe { bpf(BPF_MAP_GET_NEXT_KEY, &mut attr) } {
            Ok(_) => keys.push(next),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
            Err(error) => return Err(error),
        }
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// Reads an entry of a map as for [`map_set`].
pub(super) fn map_get(map: BorrowedFd<'_>, key: u32) -> io::Result<u32> {
    let mut value = 0u32;
    let mut attr = Element {
        map: number(map),
        zero: 0,
        key: ptr::from_ref(&key) as u64,
        value: ptr::from_mut(&mut value) as u64,
        flags: 0,
    };
    let info = map_info(map)?;
    assert_eq!((info.key, info.value), (4, 4), "not a map of 4 byte values");
    // SAFETY: as in `map_set`; the kernel writes 4 bytes to `value`, whose address was taken
    // mutably.
    unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &mut attr)? };
    Ok(value)
}

/// Removes an entry of a map whose keys are 4 bytes.
pub(super) fn map_remove(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    let mut attr =
        Element { map: number(map), zero: 0, key: ptr::from_ref(&key) as u64, value: 0, flags: 0 };
    // SAFETY: the key lives through the call; no map of ours has larger ones.
    unsafe { bpf(BPF_MAP_DELETE_ELEM, &mut attr).map(|_| ()) }
}

/// Loads type information (Documentation/bpf/btf.rst).
pub(super) fn types_load(types: &[u8]) -> io::Result<Descriptor> {
    #[repr(C)]
    struct Attr {
        types: u64,
        log: u64,
        length: u32,
        log_size: u32,
    }
    let mut attr =
        Attr { types: types.as_ptr() as u64, log: 0, length: types.len() as u32, log_size: 0 };
    // SAFETY: `types` lives through the call, its length is told; the result is a new descriptor.
    unsafe { bpf(BPF_BTF_LOAD, &mut attr).map(|fd| owned(fd)) }
}

/// What a program is for.
pub(super) enum Use<'a> {
    /// Filter of a perf event.
    Event,
    /// At the tracepoint whose type has this id in the kernel. `types`: type information, and which
    /// of it describes the function that begins at which instruction.
    Tracepoint { id: u32, types: Option<(BorrowedFd<'a>, &'a [[u32; 2]])> },
}

/// Loads a program. On refusal by the verifier, the end of its log is in the error's text.
pub(super) fn program_load(
    instructions: &[u64],
    program: &str,
    of: &Use<'_>,
) -> io::Result<Descriptor> {
    #[repr(C)]
    struct Attr {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel: u32,
        flags: u32,
        name: [u8; 16],
        device: u32,
        attach: u32,
        types: u32,
        function_size: u32,
        functions: u64,
        function_count: u32,
        line_size: u32,
        lines: u64,
        line_count: u32,
        attach_id: u32,
    }
    let (kind, attach, attach_id, types) = match of {
        Use::Event => (PROG_PERF_EVENT, 0, 0, None),
        Use::Tracepoint { id, types } => (PROG_TRACING, ATTACH_RAW_TRACEPOINT, *id, *types),
    };
    let load = |log: &mut [u8]| {
        let mut attr = Attr {
            kind,
            count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            kernel: 0,
            flags: 0,
            name: name(program),
            device: 0,
            attach,
            types: types.map_or(0, |(types, _)| number(types)),
            function_size: types.map_or(0, |_| size_of::<[u32; 2]>() as u32),
            functions: types.map_or(0, |(_, functions)| functions.as_ptr() as u64),
            function_count: types.map_or(0, |(_, functions)| functions.len() as u32),
            line_size: 0,
            lines: 0,
            line_count: 0,
            attach_id,
        };
        // Without signals, because the verifier gives up with EAGAIN while one is pending
        // (`do_check` in kernel/bpf/verifier.c). In a storm of signals a retry may never succeed.
        // SAFETY: instructions, licence, functions and log live through the call, their lengths are
        // told; the result is new.
        signal_mask::while_blocked(|| unsafe { bpf(BPF_PROG_LOAD, &mut attr).map(|fd| owned(fd)) })
    };
    // The verifier's answers; the first try goes without a log because writing one makes loading
    // several times slower.
    match load(&mut []) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) => {}
        done => return done,
    }
    let mut log = vec![0; 64 << 10];
    let error = match load(&mut log) {
        Err(error) => error,
        done => return done,
    };
    let text = CStr::from_bytes_until_nul(&log)
        .map(|text| text.to_string_lossy().into_owned())
        .unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(4)..].join(" | ");
    Err(io::Error::new(error.kind(), format!("{}: the verifier says: {last}", errno(&error))))
}

#[repr(C)]
struct ObjectAttr {
    path: u64,
    fd: u32,
    flags: u32,
}

/// Gives a map or program a path on a bpffs; it lives as long as the path.
pub(super) fn pin(object: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    let mut attr = ObjectAttr { path: path.as_ptr() as u64, fd: number(object), flags: 0 };
    // SAFETY: `path` is terminated and lives through the call.
    unsafe { bpf(BPF_OBJ_PIN, &mut attr).map(|_| ()) }
}

/// Opens what was pinned. Needs the right to read and write the file, no capability (since
/// Linux 6.0).
pub(super) fn pinned(path: &CStr) -> io::Result<Descriptor> {
    let mut attr = ObjectAttr { path: path.as_ptr() as u64, fd: 0, flags: 0 };
    // SAFETY: as above; the result is a new descriptor.
    unsafe { bpf(BPF_OBJ_GET, &mut attr).map(|fd| owned(fd)) }
}

#[repr(C)]
struct Info {
    fd: u32,
    length: u32,
    info: u64,
}

/// What a map says about itself.
pub(super) struct MapInfo {
    pub(super) kind: u32,
    pub(super) key: u32,
    pub(super) value: u32,
    pub(super) entries: u32,
    pub(super) flags: u32,
}

pub(super) fn map_info(map: BorrowedFd<'_>) -> io::Result<MapInfo> {
    // struct bpf_map_info up to its name: type, id, key_size, value_size, max_entries, map_flags.
    let mut info = [0u32; 6];
    let mut attr =
        Info { fd: number(map), length: size_of_val(&info) as u32, info: info.as_mut_ptr() as u64 };
    // SAFETY: the kernel writes no more than `length` bytes to `info`.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr)? };
    let [kind, _, key, value, entries, flags] = info;
    Ok(MapInfo { kind, key, value, entries, flags })
}

/// The name that a program was loaded under. Errors for what is no program of the perf_event type.
pub(super) fn program_name(program: BorrowedFd<'_>) -> io::Result<String> {
    // struct bpf_prog_info up to its name, which is at offset 64.
    let mut info = [0u32; 20];
    let mut attr = Info {
        fd: number(program),
        length: size_of_val(&info) as u32,
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: the kernel writes no more than `length` bytes to `info`.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr)? };
    if info[0] != PROG_PERF_EVENT {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a program of type perf_event"));
    }
    let bytes: Vec<u8> =
        info[16..].iter().flat_map(|word| word.to_ne_bytes()).take_while(|b| *b != 0).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Makes `program` the filter of `event`, for as long as the descriptor lives. It keeps the event
/// alive, too.
pub(super) fn link(
    program: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
    cookie: u64,
) -> io::Result<Descriptor> {
    #[repr(C)]
    struct Attr {
        program: u32,
        event: u32,
        attach: u32,
        flags: u32,
        cookie: u64,
    }
    let mut attr = Attr {
        program: number(program),
        event: number(event),
        attach: ATTACH_PERF_EVENT,
        flags: 0,
        cookie,
    };
    // SAFETY: no addresses in it; the result is a new descriptor.
    unsafe { bpf(BPF_LINK_CREATE, &mut attr).map(|fd| owned(fd)) }
}

/// Attaches a program to its tracepoint for as long as the descriptor lives.
pub(super) fn trace(program: BorrowedFd<'_>) -> io::Result<Descriptor> {
    #[repr(C)]
    struct Attr {
        name: u64,
        program: u32,
        padding: u32,
    }
    let mut attr = Attr { name: 0, program: number(program), padding: 0 };
    // SAFETY: without a name: no addresses in it; the result is a new descriptor.
    unsafe { bpf(BPF_RAW_TRACEPOINT_OPEN, &mut attr).map(|fd| owned(fd)) }
}

/// The calling kernel thread, as a descriptor (pidfd_open(2), Linux 6.9).
pub(super) fn this_thread() -> io::Result<Descriptor> {
    const PIDFD_THREAD: i64 = libc::O_EXCL as i64;
    // SAFETY: no pointers.
    let fd = unsafe {
        kumihimo_arch::call!(
            libc::SYS_pidfd_open,
            i64::from(kumihimo_arch::kernel::gettid()),
            PIDFD_THREAD
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made.
    Ok(unsafe { owned(fd) })
}

/// An event for every switch of the calling kernel thread away from its core, disabled.
pub(super) fn switch_event(sigtrap: bool) -> io::Result<Descriptor> {
    perf_event::open(
        Software {
            config: perf_event::CONTEXT_SWITCHES,
            period: 1,
            flags: perf_event::DISABLED
                | perf_event::REMOVE_ON_EXEC
                | if sigtrap { perf_event::SIGTRAP } else { 0 },
            sig_data: if sigtrap { SIG_DATA } else { 0 },
            ..Software::default()
        },
        0,
    )
}

/// Turns an event on.
pub(super) fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    const PERF_EVENT_IOC_ENABLE: libc::Ioctl = 0x2400;
    // SAFETY: this request takes an integer.
    let done = unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_ENABLE, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the calling kernel thread may load programs that see the kernel: CAP_BPF and
/// CAP_PERFMON, or CAP_SYS_ADMIN.
pub(super) fn may_load() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_PERFMON: u32 = 38;
    const CAP_BPF: u32 = 39;
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let mut header = Header { version: 0x2008_0522, pid: 0 };
    // Twice effective, permitted, inheritable.
    let mut sets = [0u32; 6];
    // SAFETY: version 3 writes two sets of three words.
    let done = unsafe {
        kumihimo_arch::call!(libc::SYS_capget, ptr::from_mut(&mut header), sets.as_mut_ptr())
    };
    let effective = u64::from(sets[0]) | u64::from(sets[3]) << 32;
    let has = |bit: u32| effective >> bit & 1 == 1;
    done == 0 && (has(CAP_SYS_ADMIN) || has(CAP_BPF) && has(CAP_PERFMON))
}

/// The running kernel's version, as far as it decides anything.
pub(super) fn kernel() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// A mapping of a descriptor's memory; unmapped on drop.
#[derive(Debug)]
pub(super) struct Mapping {
    start: *mut c_void,
    length: usize,
}

// SAFETY: it is an address range, the same for every thread; code that accesses its contents
// answers for the races.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Shared. `length` is rounded up to whole pages by the kernel.
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        offset: usize,
        length: usize,
        write: bool,
    ) -> io::Result<Mapping> {
        let access = libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping, where the kernel likes.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                access,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if start == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Mapping { start, length })
        }
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.start.cast()
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours, and nobody can reach it any more.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// An error's errno by name, as manuals have it.
pub(super) fn errno(error: &io::Error) -> String {
    let Some(number) = error.raw_os_error() else { return error.to_string() };
    let name = match number {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::E2BIG => "E2BIG",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::ENODEV => "ENODEV",
        libc::EINVAL => "EINVAL",
        libc::EMFILE => "EMFILE",
        libc::ENFILE => "ENFILE",
        libc::ENOSPC => "ENOSPC",
        libc::EROFS => "EROFS",
        libc::ENOSYS => "ENOSYS",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        _ => return error.to_string(),
    };
    let text = error.to_string();
    format!("{name} ({})", text.split(" (os error").next().unwrap_or(&text))
}
