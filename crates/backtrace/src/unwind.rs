//! Backtraces from copies of stacks.
//!
//! No thread is stopped: a waiting microprocess may be woken, run and even end while its stack is
//! read. So the stack is never read by reference. The kernel copies it (process_vm_readv(2), or
//! /proc/self/mem if that is refused), which neither changes nor unmapped pages can make fault.
//!
//! The stack is copied twice, and unwound only if both copies are equal and the stack pointer and
//! state word did not change. A stack that changes and changes back during one copy may still slip
//! through. The result is then wrong frames at worst: the walk reads only the copy, and its length
//! is bounded.

use std::ffi::{CStr, OsStr, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::slice;

use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use kumihimo_arch::cpu::{FIRST_STEP, SAVED};

use crate::memory;
use crate::registers::{Cache, IS_AVAILABLE, Registers, Rules};

/// The maximum number of frames of a backtrace.
const MOST_FRAMES: usize = 128;
/// The maximum number of bytes of a stack that are copied, innermost first.
const MOST_BYTES: usize = 256 << 10;
/// The number of attempts to copy a stack that changes meanwhile.
const TRIES: usize = 4;
/// FIRST_STEP is a naked function without unwind information. An address in these bytes after its
/// start belongs to it.
const FIRST_STEP_BYTES: usize = 16;

/// The registers from which a walk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The stack pointer of a saved context.
    Saved(usize),
    /// A system call, as shown by proc_pid_syscall(5), which omits the frame pointer.
    Call {
        /// The stack pointer in user mode.
        stack_pointer: usize,
        /// The address after the call instruction.
        pc: usize,
    },
    /// The registers of code that was interrupted in user mode.
    Interrupted {
        /// RSP, or SP.
        stack_pointer: usize,
        /// RBP, or x29.
        frame_pointer: usize,
        /// RIP, or PC.
        pc: usize,
    },
}

impl From {
    /// Returns the stack pointer: the beginning of the used part of the stack.
    #[must_use]
    pub fn stack_pointer(self) -> usize {
        match self {
            From::Saved(sp)
            | From::Call { stack_pointer: sp, .. }
            | From::Interrupted { stack_pointer: sp, .. } => sp,
        }
    }
}

/// A backtrace, innermost frame first.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Addresses inside the calls, at most 128.
    pub frames: Vec<u64>,
    /// The function that the microprocess will call, if it has not begun yet.
    pub begins_with: Option<u64>,
    /// Whether the trace ends before the stack does, at unknown code or at the maximum length.
    pub cut: bool,
}

/// A file whose code is loaded in this process.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The file's path. Empty for the vDSO, which has no file.
    pub path: PathBuf,
    /// The difference between addresses in memory and addresses in the file.
    pub bias: u64,
    /// The range of its segments, from first to last.
    pub addresses: Range<u64>,
}

/// Walks stacks by the unwind tables of all files that are loaded now.
pub struct Walker {
    unwinder: Rules<Vec<u8>>,
    cache: Cache,
    /// The loaded files at the time when the walker was created.
    pub modules: Vec<Loaded>,
    copy: Vec<u8>,
    again: Vec<u8>,
}

impl Walker {
    /// Copies the unwind tables of all loaded files. Takes the dynamic linker's lock, and as much
    /// memory as the tables have.
    #[must_use]
    pub fn of_all_loaded() -> Walker {
        let mut found = Found::new();
        // SAFETY: the callback receives this vector, and no other thread accesses it.
        unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
        Walker::of(found)
    }

    fn of(found: Found) -> Walker {
        let mut unwinder = Rules::new();
        let mut modules = Vec::with_capacity(found.len());
        for (module, tables) in found {
            if let Some(tables) = tables {
                let name = module.path.to_string_lossy().into_owned();
                unwinder.add_module(Module::new(
                    name,
                    module.addresses.clone(),
                    module.bias,
                    tables,
                ));
            }
            modules.push(module);
        }
        Walker { unwinder, cache: Cache::new(), modules, copy: Vec::new(), again: Vec::new() }
    }

    /// Creates a walker for one file, whose code lies at `code`, and whose only other segment has
    /// these bytes at `at`, the search table first. For the fuzzers.
    #[cfg(feature = "fuzzing")]
    #[doc(hidden)]
    #[must_use]
    pub fn of_file(code: Range<u64>, segment: &[u8], at: u64, table: usize) -> Walker {
        let range = at..at + segment.len() as u64;
        let read = |part: Range<u64>| {
            let begin = usize::try_from(part.start.checked_sub(at)?).ok()?;
            let end = usize::try_from(part.end.checked_sub(at)?).ok()?;
            segment.get(begin..end).map(<[u8]>::to_vec)
        };
        let segment_of = |address| range.contains(&address).then(|| range.clone());
        let tables = tables(at..at + table as u64, segment_of, read);
        let addresses = code.start..code.end.max(range.end);
        Walker::of(vec![(Loaded { path: PathBuf::new(), bias: 0, addresses }, tables)])
    }

    /// Walks a stack whose bounds are `stack`. `now` returns the registers of the waiting code, or
    /// `None` if it does not wait; it is called before and after each copy. Returns `None` if the
    /// code does not wait, or the stack keeps changing.
    pub fn walk(
        &mut self,
        stack: Range<usize>,
        mut now: impl FnMut() -> Option<From>,
    ) -> Option<Trace> {
        for _ in 0..TRIES {
            let from = now()?;
            let sp = from.stack_pointer();
            if !stack.contains(&sp) || sp % 8 != 0 || stack.end - sp < SAVED {
                return None;
            }
            let bytes = (stack.end - sp).min(MOST_BYTES);
            self.copy.resize(bytes, 0);
            self.again.resize(bytes, 0);
            let is_whole = memory::copy(sp, &mut self.copy) == bytes
                && memory::copy(sp, &mut self.again) == bytes;
            if is_whole && self.copy == self.again && now() == Some(from) {
                return Some(self.unwind(from));
            }
        }
        None
    }

    /// Walks the stack of code that was interrupted at `from`. `copy` contains the stack from the
    /// stack pointer on.
    #[must_use]
    pub fn walk_copy(&mut self, from: From, copy: &[u8]) -> Trace {
        self.copy.clear();
        self.copy.extend_from_slice(copy);
        self.unwind(from)
    }

    fn unwind(&mut self, from: From) -> Trace {
        if !IS_AVAILABLE {
            return Trace { cut: true, ..Trace::default() };
        }
        let sp = from.stack_pointer();
        let copy = &self.copy;
        let mut word = |address: u64| -> Result<u64, ()> {
            let at = usize::try_from(address).ok().and_then(|a| a.checked_sub(sp)).ok_or(())?;
            let bytes = copy.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| ())?))
        };
        let base = sp as u64;
        let first = FIRST_STEP as usize as u64;
        let at_first = |pc: u64| (first..first + FIRST_STEP_BYTES as u64).contains(&pc);
        // The saved words are the control words, a register, the frame pointer and the address, on
        // every architecture: see `Context::prepare`.
        let (pc, regs) = match from {
            From::Saved(_) => {
                let (Ok(bp), Ok(pc)) = (word(base + 16), word(base + 24)) else {
                    return Trace::default();
                };
                // The stack was read between two uses: the slot has a new owner, and the stack is
                // empty.
                if pc == 0 {
                    return Trace { cut: true, ..Trace::default() };
                }
                if at_first(pc) {
                    return Trace { begins_with: Some(bp), ..Trace::default() };
                }
                (pc, Registers::new(pc, base + SAVED as u64, bp))
            }
            From::Call { pc, .. } => (pc as u64, Registers::new(pc as u64, base, 0)),
            From::Interrupted { pc, frame_pointer, .. } => {
                (pc as u64, Registers::new(pc as u64, base, frame_pointer as u64))
            }
        };
        let mut trace = Trace::default();
        let mut frames = self.unwinder.iter_frames(pc, regs, &mut self.cache, &mut word);
        loop {
            let address = match frames.next() {
                Ok(Some(frame)) => frame.address_for_lookup(),
                Ok(None) => break,
                Err(_) => {
                    trace.cut = true;
                    break;
                }
            };
            if at_first(address) {
                break;
            }
            if trace.frames.len() == MOST_FRAMES {
                trace.cut = true;
                break;
            }
            // The saved address follows the switch: the jump before it belongs to the inlined calls
            // that lead there.
            trace.frames.push(if trace.frames.is_empty() && matches!(from, From::Saved(_)) {
                address - 1
            } else {
                address
            });
        }
        trace
    }
}

type Found = Vec<(Loaded, Option<ExplicitModuleSectionInfo<Vec<u8>>>)>;

/// The callback of dl_iterate_phdr(3): records a loaded file with a copy of its unwind tables,
/// since the file may be unloaded once the lock is released.
unsafe extern "C" fn each(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    found: *mut c_void,
) -> i32 {
    // SAFETY: dl_iterate_phdr passes a live structure, and the pointer that it received.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Found>()) };
    // SAFETY: as many headers as the count; a NUL-terminated name, or null.
    let (headers, name) = unsafe {
        let name = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
        (slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)), name)
    };
    let bias = info.dlpi_addr;
    let loads = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let (Some(start), Some(end)) =
        (loads().map(|h| h.p_vaddr).min(), loads().map(|h| h.p_vaddr + h.p_memsz).max())
    else {
        return 0;
    };
    // The program itself has an empty name, and comes first.
    let path = match name.to_bytes() {
        b"" if found.is_empty() => "/proc/self/exe".into(),
        bytes if bytes.starts_with(b"/") => OsStr::from_bytes(bytes).into(),
        _ => PathBuf::new(),
    };
    let segment_of = |address: u64| {
        loads().map(|h| h.p_vaddr..h.p_vaddr + h.p_filesz).find(|range| range.contains(&address))
    };
    // SAFETY: the header and the segments are parts of a loaded file, which stays mapped while this
    // callback runs.
    let read =
        |range: Range<u64>| Some(unsafe { bytes(bias + range.start, range.end - range.start) });
    let header = headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME);
    let tables = header.and_then(|h| tables(h.p_vaddr..h.p_vaddr + h.p_memsz, segment_of, read));
    found.push((Loaded { path, bias, addresses: bias + start..bias + end }, tables));
    0
}

/// Returns the unwind tables of a file: the search table at `header`, and the frames to which it
/// refers. `segment_of` returns the segment that contains an address, and `read` copies parts.
fn tables(
    header: Range<u64>,
    segment_of: impl Fn(u64) -> Option<Range<u64>>,
    read: impl Fn(Range<u64>) -> Option<Vec<u8>>,
) -> Option<ExplicitModuleSectionInfo<Vec<u8>>> {
    let table = read(header.clone())?;
    // Version 1, and the address of the section as four bytes relative to this field: the format
    // that linkers produce (LSB, "The .eh_frame_hdr section").
    let [1, 0x1b, _, _, at @ ..] = table.as_slice() else { return None };
    let relative = i32::from_le_bytes(at.get(..4)?.try_into().ok()?);
    let frames = (header.start + 4).checked_add_signed(i64::from(relative))?;
    // The section's length is not in memory. The unwinder reads only the entries to which the table
    // points.
    let frames = frames..segment_of(frames)?.end;
    // An entry that points elsewhere would overflow the unwinder's arithmetic.
    if !points_into(&table, header.start, &frames) {
        return None;
    }
    Some(ExplicitModuleSectionInfo {
        base_svma: 0,
        eh_frame_svma: Some(frames.clone()),
        eh_frame: Some(read(frames)?),
        eh_frame_hdr_svma: Some(header),
        eh_frame_hdr: Some(table),
        ..Default::default()
    })
}

/// Returns whether all entries of a search table at `base` point into `frames`. Tables of another
/// encoding than that of linkers (a count of four bytes; pairs of four bytes, relative to the
/// table) count as wrong.
fn points_into(table: &[u8], base: u64, frames: &Range<u64>) -> bool {
    let [_, _, 3, 0x3b, _, _, _, _, count @ ..] = table else { return false };
    let Some((count, entries)) = count.split_first_chunk() else { return false };
    let (pairs, _) = entries.as_chunks::<8>();
    pairs.iter().take(u32::from_le_bytes(*count) as usize).all(|pair| {
        let [.., a, b, c, d] = *pair;
        let relative = i64::from(i32::from_le_bytes([a, b, c, d]));
        base.checked_add_signed(relative).is_some_and(|at| frames.contains(&at))
    })
}

/// Copies memory into a vector.
///
/// # Safety
/// `length` readable bytes that no thread writes are at `address`.
unsafe fn bytes(address: u64, length: u64) -> Vec<u8> {
    // SAFETY: the caller guarantees the memory.
    unsafe {
        slice::from_raw_parts(
            std::ptr::with_exposed_provenance::<u8>(address as usize),
            length as usize,
        )
    }
    .to_vec()
}

/// Returns the user-mode registers of kernel thread `tid` of this process in its system call, and
/// the number of that call (proc_pid_syscall(5)). Returns `None` if the thread runs or has ended.
pub fn call_of(tid: u32) -> Option<(From, i64)> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).ok()?;
    parse_call(&text)
}

/// Parses a line of proc_pid_syscall(5), for the fuzzers.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[must_use]
pub fn call_in(text: &str) -> Option<(From, i64)> {
    parse_call(text)
}

/// Parses a line of proc_pid_syscall(5).
fn parse_call(text: &str) -> Option<(From, i64)> {
    let words: Vec<_> = text.split_whitespace().collect();
    let hex = |word: &str| usize::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    // A number, perhaps arguments, the stack pointer and the program counter.
    let [.., sp, pc] = words.as_slice() else { return None };
    Some((From::Call { stack_pointer: hex(sp)?, pc: hex(pc)? }, words.first()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_stack_has_no_frames() {
        let mut walker = Walker::of_all_loaded();
        let trace = walker.walk_copy(From::Saved(0x1000), &[0; 4096]);
        assert!(trace.cut && trace.frames.is_empty(), "{trace:?}");
    }

    #[test]
    fn table_that_points_outside_its_frames_is_refused() {
        // The frames follow the table at 0x2000 directly; the entry is for code at 0x1000.
        let table = |entry: i32| {
            let mut table = vec![1, 0x1b, 3, 0x3b];
            for word in [16, 1, 0x1000 - 0x2000, entry] {
                table.extend(i32::to_le_bytes(word));
            }
            table
        };
        let tables = |entry| {
            let bytes = [table(entry), vec![0; 64]].concat();
            let read = |part: Range<u64>| {
                bytes
                    .get(part.start as usize - 0x2000..part.end as usize - 0x2000)
                    .map(<[u8]>::to_vec)
            };
            super::tables(0x2000..0x2014, |_| Some(0x2000..0x2054), read)
        };
        assert!(tables(20).is_some() && tables(83).is_some());
        for outside in [19, -1, 84, i32::MIN, i32::MAX] {
            assert!(tables(outside).is_none(), "{outside}");
        }
    }

    /// The tables of this program and its libraries are in the form that is expected.
    #[test]
    fn tables_of_loaded_files_are_accepted() {
        let walker = Walker::of_all_loaded();
        assert!(walker.unwinder.max_known_code_address() > 0);
        let here = tables_of_loaded_files_are_accepted as *const () as u64;
        assert!(walker.modules.iter().any(|module| module.addresses.contains(&here)));
    }

    #[test]
    fn proc_syscall_line_is_parsed() {
        let text = "0 0x5 0x7f 0x2000 0x0 0x0 0x0 0x7ffc10 0x7f4c2e\n";
        assert_eq!(
            parse_call(text),
            Some((From::Call { stack_pointer: 0x7f_fc10, pc: 0x7f_4c2e }, 0))
        );
        assert_eq!(
            parse_call("-1 0x10 0x20"),
            Some((From::Call { stack_pointer: 0x10, pc: 0x20 }, -1))
        );
        for none in ["running\n", "", "0 1 2"] {
            assert_eq!(parse_call(none), None, "{none}");
        }
    }
}
