//! Backtraces from copies of stacks.
//!
//! Nothing is held still: one that waits may be woken, run, and even end, while its stack is read.
//! So the stack is never read by reference but copied by the kernel (process_vm_readv(2);
//! /proc/self/mem where that is refused), which no change and no unmapped page can make fault; it
//! is copied twice, and only what was the same both times, under the same stack pointer and state
//! word, is unwound. What may still slip through, a stack that changed and changed back while one
//! copy was under way, gives wrong frames at worst: the walk reads the copy only, and its length is
//! bounded.

use std::ffi::{CStr, OsStr, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::slice;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use kumihimo_arch::cpu::{FIRST_STEP, SAVED};

use crate::memory;

/// Frames of one backtrace, at most.
const MOST_FRAMES: usize = 128;
/// Bytes of a stack that are copied, at most: the innermost ones.
const MOST_BYTES: usize = 256 << 10;
/// Whether stacks can be walked: only the rules of x86_64 are here. Elsewhere every trace is empty
/// and cut.
const IS_AVAILABLE: bool = cfg!(target_arch = "x86_64");
/// So often a stack is copied that changes meanwhile.
const TRIES: usize = 4;
/// Naked, so without unwind information: whatever lies in these bytes after its address is it.
const FIRST_STEP_BYTES: usize = 16;

/// Where the registers stand from which a walk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// A saved context: its stack pointer.
    Saved(usize),
    /// A system call, as proc_pid_syscall(5) shows it; the frame pointer is not told.
    Call {
        /// As the kernel has it.
        stack_pointer: usize,
        /// After the instruction that called.
        pc: usize,
    },
    /// Anywhere in user mode: its registers.
    Interrupted {
        /// RSP.
        stack_pointer: usize,
        /// RBP.
        frame_pointer: usize,
        /// RIP.
        pc: usize,
    },
}

impl From {
    /// Where the stack begins that is in use.
    #[must_use]
    pub fn stack_pointer(self) -> usize {
        match self {
            From::Saved(sp)
            | From::Call { stack_pointer: sp, .. }
            | From::Interrupted { stack_pointer: sp, .. } => sp,
        }
    }
}

/// A backtrace, innermost first: addresses inside the calls.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// At most 128.
    pub frames: Vec<u64>,
    /// It has not begun: what it will call.
    pub begins_with: Option<u64>,
    /// It ends before the stack does: unknown code, or too long.
    pub cut: bool,
}

/// A file of code in this process.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Empty: made by the kernel (vDSO).
    pub path: PathBuf,
    /// What is added to the file's addresses.
    pub bias: u64,
    /// Where its segments lie, first to last.
    pub addresses: Range<u64>,
}

/// What walks stacks: the unwind tables of all that is loaded now.
pub struct Walker {
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64,
    /// What is loaded: as it was when this one was made.
    pub modules: Vec<Loaded>,
    copy: Vec<u8>,
    again: Vec<u8>,
}

impl Walker {
    /// Copies the unwind tables: takes the dynamic linker's lock, and memory as large as they are.
    #[must_use]
    pub fn of_all_loaded() -> Walker {
        let mut found: Vec<(Loaded, Option<ExplicitModuleSectionInfo<Vec<u8>>>)> = Vec::new();
        // SAFETY: the callback gets the vector that it is given here, and no other thread does.
        unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
        let mut unwinder = UnwinderX86_64::new();
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
        Walker { unwinder, cache: CacheX86_64::new(), modules, copy: Vec::new(), again: Vec::new() }
    }

    /// The backtrace of one whose stack is `stack`. `now` says where it stands: asked before and
    /// after each copy, and nothing if it does not stand still. None: it does not, or runs.
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

    /// The backtrace of one that was interrupted at `from`, of whose stack `copy` is what lies at
    /// the stack pointer and after it.
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
        // Control words, rbx, rbp, address: see `Context::prepare`.
        let (pc, regs) = match from {
            From::Saved(_) => {
                let (Ok(bp), Ok(pc)) = (word(base + 16), word(base + 24)) else {
                    return Trace::default();
                };
                // Read in between: the slot is another one's by now, and as good as new.
                if pc == 0 {
                    return Trace { cut: true, ..Trace::default() };
                }
                if at_first(pc) {
                    return Trace { begins_with: Some(bp), ..Trace::default() };
                }
                (pc, UnwindRegsX86_64::new(pc, base + SAVED as u64, bp))
            }
            From::Call { pc, .. } => (pc as u64, UnwindRegsX86_64::new(pc as u64, base, 0)),
            From::Interrupted { pc, frame_pointer, .. } => {
                (pc as u64, UnwindRegsX86_64::new(pc as u64, base, frame_pointer as u64))
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
            // The saved address is that of what comes after the switch: the jump before it belongs
            // to the inlined calls that lead there.
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

/// For dl_iterate_phdr(3): notes one loaded file, with a copy of its unwind tables, since it may be
/// unloaded when the lock is released.
unsafe extern "C" fn each(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    found: *mut c_void,
) -> i32 {
    // SAFETY: dl_iterate_phdr gives a live structure, and what it was given.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Found>()) };
    // SAFETY: as many headers as it says; a terminated name, or none.
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
    // The program itself has no name there, and comes first.
    let path = match name.to_bytes() {
        b"" if found.is_empty() => "/proc/self/exe".into(),
        bytes if bytes.starts_with(b"/") => OsStr::from_bytes(bytes).into(),
        _ => PathBuf::new(),
    };
    let tables = headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME).and_then(|header| {
        // SAFETY: part of a loaded file, which stays as long as this function runs.
        let table = unsafe { bytes(bias + header.p_vaddr, header.p_memsz) };
        // Version 1; the table of the section's address, relative to itself, as four bytes: what
        // linkers make (LSB, "The .eh_frame_hdr section").
        let [1, 0x1b, _, _, at @ ..] = table.as_slice() else { return None };
        let relative = i32::from_le_bytes(at.get(..4)?.try_into().ok()?);
        let frames = (header.p_vaddr + 4).checked_add_signed(i64::from(relative))?;
        // Its length stands nowhere in memory; nobody reads beyond what the table points to.
        let segment = loads().find(|h| (h.p_vaddr..h.p_vaddr + h.p_filesz).contains(&frames))?;
        let frames_end = segment.p_vaddr + segment.p_filesz;
        Some(ExplicitModuleSectionInfo {
            base_svma: 0,
            eh_frame_svma: Some(frames..frames_end),
            // SAFETY: as above.
            eh_frame: Some(unsafe { bytes(bias + frames, frames_end - frames) }),
            eh_frame_hdr_svma: Some(header.p_vaddr..header.p_vaddr + header.p_memsz),
            eh_frame_hdr: Some(table),
            ..Default::default()
        })
    });
    found.push((Loaded { path, bias, addresses: bias + start..bias + end }, tables));
    0
}

/// # Safety
/// `length` readable bytes, which nobody writes, lie at `address`.
unsafe fn bytes(address: u64, length: u64) -> Vec<u8> {
    // SAFETY: the caller's promise.
    unsafe {
        slice::from_raw_parts(
            std::ptr::with_exposed_provenance::<u8>(address as usize),
            length as usize,
        )
    }
    .to_vec()
}

/// Where the kernel thread `tid` of this process stands in the kernel, and its system call:
/// proc_pid_syscall(5). None: it runs, or is gone.
pub fn call_of(tid: u32) -> Option<(From, i64)> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).ok()?;
    parse_call(&text)
}

fn parse_call(text: &str) -> Option<(From, i64)> {
    let words: Vec<_> = text.split_whitespace().collect();
    let hex = |word: &str| usize::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    // A number, perhaps arguments, stack pointer and program counter.
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
