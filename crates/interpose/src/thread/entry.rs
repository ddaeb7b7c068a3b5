//! The first and the last step of a thread on its stack.

use std::ffi::c_void;

use crate::signal;
use crate::thread::attributes::Plan;
use crate::thread::last;
use crate::thread::record::{CANCELED, RECORD, Routine, Value};

/// What a new thread runs.
#[repr(C)]
pub(crate) struct Start {
    /// Room for glibc's `__pthread_unwind_buf_t`, where the end by pthread_exit(3) or by
    /// cancellation leads.
    unwind: [u64; 32],
    routine: Routine,
    argument: *mut c_void,
    /// Top of the stack that the program gave the thread, or null.
    stack: *mut u8,
    value: *mut c_void,
    floating_point: FloatingPoint,
}

// SAFETY: the creator passes it to the thread.
unsafe impl Send for Start {}

impl Start {
    pub(crate) fn new(routine: Routine, argument: *mut c_void, plan: &Plan) -> Start {
        Start {
            unwind: [0; 32],
            routine,
            argument,
            stack: plan.stack_top(),
            value: std::ptr::null_mut(),
            floating_point: FloatingPoint::current(),
        }
    }

    pub(crate) fn run(mut self) -> Value {
        self.floating_point.apply();
        // An end without pthread_exit(3) is a cancellation.
        RECORD.with(|record| record.exit_value.set(CANCELED));
        signal::process::begin_thread();
        // SAFETY: the structure lives until the call returns.
        let has_exited = unsafe { run_routine(&mut self) };
        last::microprocess_ends();
        signal::process::end_thread();
        Value(if has_exited { RECORD.with(|record| record.exit_value.get()) } else { self.value })
    }
}

/// The control words of SSE and x87, which a thread inherits from its creator.
struct FloatingPoint {
    mxcsr: u32,
    control: u16,
}

impl FloatingPoint {
    fn current() -> FloatingPoint {
        let mut here = FloatingPoint { mxcsr: 0, control: 0 };
        // SAFETY: both instructions store to live memory.
        unsafe {
            std::arch::asm!(
                "stmxcsr [{0}]",
                "fnstcw [{1}]",
                in(reg) &raw mut here.mxcsr,
                in(reg) &raw mut here.control,
                options(nostack, preserves_flags)
            );
        }
        here
    }

    fn apply(&self) {
        // SAFETY: both words were stored by the instructions above.
        unsafe {
            std::arch::asm!(
                "ldmxcsr [{0}]",
                "fldcw [{1}]",
                in(reg) &raw const self.mxcsr,
                in(reg) &raw const self.control,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Calls the routine, as `start_thread` of glibc does (nptl/pthread_create.c), on the thread's own
/// stack or on the program's. Returns whether the thread has ended otherwise than by the return of
/// the routine: pthread_exit(3) and cancellation unwind the stack up to here, by `longjmp`.
///
/// No unwind information: to unwinders, a thread's stack ends here. An exception that nobody
/// catches terminates the program.
///
/// # Safety
/// `start` is live until the call returns, and the caller runs as the thread.
#[unsafe(naked)]
unsafe extern "C" fn run_routine(start: &mut Start) -> bool {
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rbx",
        "push r12",
        "mov rbx, rdi",
        "mov rax, [rbx + {stack}]",
        "test rax, rax",
        "je 2f",
        "mov rsp, rax",
        "2:",
        "lea rdi, [rbx + {unwind}]",
        "xor esi, esi",
        "call [rip + __sigsetjmp@GOTPCREL]",
        "test eax, eax",
        "jne 3f",
        "lea rdi, [rbx + {unwind}]",
        "call [rip + __pthread_register_cancel@GOTPCREL]",
        "mov rdi, [rbx + {argument}]",
        "call [rbx + {routine}]",
        "mov [rbx + {value}], rax",
        "lea rdi, [rbx + {unwind}]",
        "call [rip + __pthread_unregister_cancel@GOTPCREL]",
        "xor eax, eax",
        "jmp 4f",
        "3:",
        "mov eax, 1",
        "4:",
        "lea rsp, [rbp - 16]",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        stack = const std::mem::offset_of!(Start, stack),
        unwind = const std::mem::offset_of!(Start, unwind),
        argument = const std::mem::offset_of!(Start, argument),
        routine = const std::mem::offset_of!(Start, routine),
        value = const std::mem::offset_of!(Start, value),
    )
}
