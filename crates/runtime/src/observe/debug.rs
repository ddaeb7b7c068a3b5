//! The interface for debuggers: addresses of the records, and offsets of their fields.
//!
//! [`KUMIHIMO_DEBUG`] is found by its symbol and needs no debug information. `gdb/kumihimo.py`
//! reads it, and is embedded into programs that are built with debug information
//! (`.debug_gdb_scripts`). The runtime itself reads nothing here.
#![debugger_visualizer(gdb_script_file = "../../gdb/kumihimo.py")]

use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use kumihimo_arch::cpu;
use kumihimo_arch::stack::Class;
use kumihimo_events::{Slot, slot};

use crate::kernel_thread::gs_record::KernelThread;
use crate::memory::pool::OLDEST;
use crate::microprocess::id_prefix::PREFIX;
use crate::microprocess::record::Mp;
use crate::scheduler::vp::Vp;

/// Layout version, for the script, which names the version that it supports. Incremented for
/// changes of [`Root`], of the fields that its offsets describe, of the phases in `state.rs`, of
/// the encoding of [`crate::microprocess::wait_reason::Wait`], and of the frame that a switch
/// leaves on the stack.
pub const VERSION: u32 = 4;

/// The root. Offsets are in bytes from the start of the structure that they are named after.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Root {
    /// `KUMIDBG` and a zero.
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// Size of this structure in bytes.
    pub size: u32,
    /// The prefix of every microprocess ID; the rest is the serial in its state word. Stored once,
    /// before the first microprocess exists.
    pub prefix: &'static AtomicU64,
    /// Address of the oldest record. Each record links to the next newer one.
    #[allow(private_interfaces)]
    pub(crate) oldest: &'static AtomicPtr<Mp>,
    /// First instruction of a microprocess that has not run yet.
    pub first_step: unsafe extern "C" fn(),
    /// Size of a stack slot in bytes, by class. Stored once, before the first microprocess exists,
    /// where pages are larger than 4 KiB.
    pub slot_sizes: [AtomicU64; Class::COUNT],
    /// Offsets in a record, `record.rs`.
    pub record: Record,
    /// Offsets in a kernel thread's record, to which GS points.
    pub thread: Thread,
    /// Offsets in a virtual processor.
    pub vp: VirtualProcessor,
    /// Offsets in a slot of the shared page.
    pub slot: SharedSlot,
}

/// See [`Root`]. `saved` is the size of the frame at a context's stack pointer.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Record {
    pub context: u32,
    pub fs: u32,
    pub state: u32,
    pub priority: u32,
    pub inherited: u32,
    pub level: u32,
    pub wait_kind: u32,
    pub wait_object: u32,
    pub home: u32,
    pub class: u32,
    pub slot_end: u32,
    pub label_len: u32,
    pub label: u32,
    pub waits_on: u32,
    pub newer: u32,
    pub saved: u32,
}

/// See [`Root`].
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Thread {
    pub this: u32,
    pub vp: u32,
    pub current: u32,
    pub token: u32,
    pub slot: u32,
    pub fs: u32,
}

/// See [`Root`].
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct VirtualProcessor {
    pub index: u32,
    pub left_by: u32,
}

/// See [`Root`].
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct SharedSlot {
    pub vp: u32,
    pub tid: u32,
    pub state: u32,
}

/// The page size for which the sizes of slots are computed at compile time.
const SMALL_PAGE: usize = 4096;

const fn slot_sizes() -> [AtomicU64; Class::COUNT] {
    let mut sizes = [const { AtomicU64::new(0) }; Class::COUNT];
    let mut i = 0;
    while let Some(class) = Class::from_index(i) {
        sizes[i] = AtomicU64::new(class.slot_size_with(SMALL_PAGE) as u64);
        i += 1;
    }
    sizes
}

/// Corrects the sizes of slots on a system with larger pages.
pub(crate) fn note_page_size() {
    if cpu::page_size() != SMALL_PAGE {
        for (i, size) in KUMIHIMO_DEBUG.slot_sizes.iter().enumerate() {
            let class = Class::from_index(i).expect("as many sizes as classes");
            size.store(class.slot_size() as u64, Ordering::Relaxed);
        }
    }
}

/// The root of this process. `used`: kept by the linker although no code refers to it.
#[used]
#[unsafe(no_mangle)]
pub static KUMIHIMO_DEBUG: Root = Root {
    magic: *b"KUMIDBG\0",
    version: VERSION,
    size: size_of::<Root>() as u32,
    prefix: &PREFIX,
    oldest: &OLDEST,
    first_step: cpu::FIRST_STEP,
    slot_sizes: slot_sizes(),
    record: Record {
        context: offset_of!(Mp, context) as u32,
        fs: offset_of!(Mp, fs) as u32,
        state: offset_of!(Mp, state) as u32,
        priority: offset_of!(Mp, priority) as u32,
        inherited: offset_of!(Mp, inherited) as u32,
        level: offset_of!(Mp, level) as u32,
        wait_kind: offset_of!(Mp, wait_kind) as u32,
        wait_object: offset_of!(Mp, wait_object) as u32,
        home: offset_of!(Mp, home) as u32,
        class: offset_of!(Mp, class) as u32,
        slot_end: offset_of!(Mp, slot_end) as u32,
        label_len: offset_of!(Mp, label_len) as u32,
        label: offset_of!(Mp, label) as u32,
        waits_on: offset_of!(Mp, waits_on) as u32,
        newer: offset_of!(Mp, newer) as u32,
        saved: cpu::SAVED as u32,
    },
    thread: Thread {
        this: offset_of!(KernelThread, this) as u32,
        vp: offset_of!(KernelThread, vp) as u32,
        current: offset_of!(KernelThread, current) as u32,
        token: offset_of!(KernelThread, token) as u32,
        slot: offset_of!(KernelThread, slot) as u32,
        fs: offset_of!(KernelThread, fs) as u32,
    },
    vp: VirtualProcessor {
        index: offset_of!(Vp, index) as u32,
        left_by: offset_of!(Vp, left_by) as u32,
    },
    slot: SharedSlot {
        vp: slot::VP_AT as u32,
        tid: offset_of!(Slot, tid) as u32,
        state: offset_of!(Slot, state) as u32,
    },
};
