//! The frames on the calling microprocess's stack, as the unwinder finds them.
//!
//! A microprocess may run on a stack that the runtime did not make (makecontext(3), a library with
//! coroutines), and frames of other languages may be on its stack. Code that touches the stack
//! below the stack pointer, or unwinds, asks here first. A walk costs about a microsecond a frame.
//!
//! Sources: the interface of the Itanium C++ ABI, level I (`_Unwind_Backtrace`); the tables of an
//! exception handler ("LSDA") as LLVM writes them (`EHStreamer.cpp`) and std reads them
//! (`sys/personality/dwarf/eh.rs`).

use std::ffi::{c_int, c_void};
use std::hint::black_box;

use kumihimo_arch::cpu;

use crate::microprocess::record::Mp;

mod landing_pad;

use landing_pad::LandingPad;

/// `_Unwind_Reason_Code`: go on.
const NO_REASON: c_int = 0;
/// `_Unwind_Reason_Code`: any other value ends the walk.
const END_OF_STACK: c_int = 5;
/// Frames of a walk. A deeper stack counts as one that cannot be walked.
const MOST_FRAMES: usize = 10_000;

#[repr(C)]
struct Context {
    _private: [u8; 0],
}

type Visit = extern "C" fn(*mut Context, *mut c_void) -> c_int;

// Of the unwinder that std links (libgcc_s, or LLVM's libunwind on musl).
unsafe extern "C" {
    fn _Unwind_Backtrace(visit: Visit, argument: *mut c_void) -> c_int;
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
    fn _Unwind_GetIPInfo(context: *mut Context, before_instruction: *mut c_int) -> usize;
    fn _Unwind_GetRegionStart(context: *mut Context) -> usize;
    fn _Unwind_GetLanguageSpecificData(context: *mut Context) -> *const u8;
}

/// Visits a frame. Returns whether the walk goes on.
type Each<'a> = dyn FnMut(&Frame) -> bool + 'a;

/// Calls `each` for the frames from the caller's on, until it returns false. Blocks the kernel
/// thread if a library is being loaded meanwhile (dl_iterate_phdr(3), in older versions of libgcc).
fn walk(each: &mut Each<'_>) {
    struct Walk<'a, 'b> {
        each: &'a mut Each<'b>,
        rest: usize,
    }

    extern "C" fn visit(context: *mut Context, walk: *mut c_void) -> c_int {
        // SAFETY: the argument below, which outlives the walk.
        let walk = unsafe { &mut *walk.cast::<Walk<'_, '_>>() };
        let mut before = 0;
        // SAFETY: the unwinder's context of the present frame.
        let frame = unsafe {
            Frame {
                stack_pointer: _Unwind_GetCFA(context),
                instruction: _Unwind_GetIPInfo(context, &raw mut before)
                    .wrapping_sub(usize::from(before == 0)),
                context,
            }
        };
        let more = walk.rest > 0 && (walk.each)(&frame);
        walk.rest = walk.rest.saturating_sub(1);
        if more { NO_REASON } else { END_OF_STACK }
    }

    let mut walk = Walk { each, rest: MOST_FRAMES };
    // SAFETY: `visit` does not unwind: its closures are those of this file, which do not panic.
    unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
}

struct Frame {
    stack_pointer: usize,
    /// An address in the instruction that the frame executes: that of a call, mostly.
    instruction: usize,
    context: *mut Context,
}

impl Frame {
    /// Whether this is the frame in which a microprocess begins. It has no unwind table, so that a
    /// walk ends there.
    fn is_first_of_microprocess(&self) -> bool {
        /// Bytes of the function, rounded up to its alignment.
        const SIZE: usize = 16;
        let first = cpu::FIRST_STEP as *const () as usize;
        (first..first + SIZE).contains(&self.instruction)
    }

    fn landing_pad(&self) -> LandingPad {
        // SAFETY: the unwinder's context of the present frame; null or the table of its function.
        unsafe {
            let table = _Unwind_GetLanguageSpecificData(self.context);
            let function = _Unwind_GetRegionStart(self.context);
            landing_pad::find(table, function, self.instruction)
        }
    }
}

/// Whether everything below the caller's stack pointer is unused as far as `mp`'s slot reaches. Not
/// so if the caller, which is `mp`, runs on another stack, even one that is an array in a frame of
/// the slot: the chain of frames there does not end with the first one of `mp`.
pub(crate) fn are_all_in_slot(mp: &Mp) -> bool {
    let end = mp.slot_end().addr();
    let slot = end - mp.class.get().slot_size()..end;
    let (mut last, mut are) = (0, false);
    walk(&mut |frame| {
        let is_in_order = slot.contains(&frame.stack_pointer) && frame.stack_pointer >= last;
        last = frame.stack_pointer;
        are = is_in_order && frame.is_first_of_microprocess();
        is_in_order && !are
    });
    are
}

/// Whether a panic that starts here would be caught, at the latest by the first frame of the
/// calling microprocess or kernel thread: no frame on the way ends the process, and none lacks
/// unwind tables.
#[inline(never)]
pub(crate) fn can_unwind() -> bool {
    // An unknown function, so that the compiler takes this one for one that may panic. The table of
    // its caller would lack the call otherwise, which means the end of the process there.
    let walk: fn(&mut Each<'_>) = black_box(walk);
    let mut can = false;
    walk(&mut |frame| match frame.landing_pad() {
        LandingPad::None | LandingPad::Cleanup => true,
        LandingPad::Catch => {
            can = true;
            false
        }
        LandingPad::Terminate => false,
    });
    can
}
