//! The register state that a signal handler receives.

use libc::ucontext_t;

/// The position of an interrupted thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// SP.
    pub stack_pointer: usize,
    /// x29.
    pub frame_pointer: usize,
    /// PC.
    pub program_counter: usize,
}

/// The instruction `svc #0`.
const SVC: u32 = 0xd400_0001;

/// Returns the position of the interrupted code. Async-signal-safe.
///
/// # Safety
/// `context` is the context that the kernel passed to the running signal handler.
pub unsafe fn position(context: *const ucontext_t) -> Position {
    // SAFETY: upheld by the caller.
    let registers = unsafe { &(*context).uc_mcontext };
    Position {
        stack_pointer: registers.sp as usize,
        frame_pointer: registers.regs[29] as usize,
        program_counter: registers.pc as usize,
    }
}

/// Returns whether the registers belong to an interrupted system call that the kernel is about to
/// restart, or to one that may as well have been interrupted.
///
/// The kernel sets PC back to the SVC instruction and x0 back to the first argument. A call that
/// has not begun yet has the same registers: SVC leaves no trace, as SYSCALL does in RCX and R11.
/// So the proof is the call's number.
///
/// The calls of [`RESTARTED`] may end with EINTR whenever a signal has been handled since the
/// program decided to call them, and then they have had no effect. For one of these it makes no
/// difference to the program whether the signal came just before the call or just after.
///
/// Of every other call this function returns false. It is then restarted although a pending signal
/// has a handler without SA_RESTART, and ends after the next signal.
///
/// # Safety
/// Same requirements as [`position`].
pub unsafe fn restarts_call(context: *const ucontext_t) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { is_at_call(context) && RESTARTED.contains(&((*context).uc_mcontext.regs[8] as i64)) }
}

/// The system calls that the kernel restarts (signal(7), "Interruption of system calls"), and that
/// have changed nothing when they end with EINTR. connect(2) is not among them: it goes on.
const RESTARTED: [libc::c_long; 20] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_futex,
    libc::SYS_flock,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
];

/// Returns whether the next instruction is an SVC.
///
/// # Safety
/// Same requirements as [`position`].
pub unsafe fn is_at_call(context: *const ucontext_t) -> bool {
    // SAFETY: upheld by the caller.
    let at = unsafe { position(context) }.program_counter;
    // SAFETY: the thread continues at `at`, so this instruction is mapped.
    at.is_multiple_of(4)
        && unsafe { std::ptr::with_exposed_provenance::<u32>(at).read_volatile() } == SVC
}

/// Makes the system call found by [`is_at_call`] return EINTR instead of being restarted.
///
/// # Safety
/// Same requirements as [`position`]; [`is_at_call`] returned true for this context.
pub unsafe fn fail_call(context: *mut ucontext_t) {
    // SAFETY: upheld by the caller.
    let registers = unsafe { &mut (*context).uc_mcontext };
    registers.regs[0] = (-i64::from(libc::EINTR)).cast_unsigned();
    registers.pc += 4;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context at the first of these instructions, with `number` in x8.
    fn context(code: &[u32; 2], number: libc::c_long) -> ucontext_t {
        // SAFETY: all zeros is a valid context.
        let mut context: ucontext_t = unsafe { std::mem::zeroed() };
        context.uc_mcontext.pc = code.as_ptr().expose_provenance() as u64;
        context.uc_mcontext.regs[8] = number.cast_unsigned();
        context
    }

    #[test]
    fn only_calls_that_may_end_with_eintr_count_as_restarted() {
        const NOP: u32 = 0xd503_201f;
        let (at_call, before) = ([SVC, NOP], [NOP, SVC]);
        // SAFETY: the contexts have a readable program counter.
        unsafe {
            assert!(restarts_call(&context(&at_call, libc::SYS_read)));
            assert!(!restarts_call(&context(&at_call, libc::SYS_connect)));
            assert!(!restarts_call(&context(&at_call, libc::SYS_getpid)));
            assert!(!restarts_call(&context(&before, libc::SYS_read)));
            assert!(is_at_call(&context(&at_call, libc::SYS_getpid)));
        }
    }

    #[test]
    fn failed_call_returns_eintr_behind_the_instruction() {
        let code = [SVC, SVC];
        let mut context = context(&code, libc::SYS_read);
        // SAFETY: the context is at a call.
        unsafe { fail_call(&mut context) };
        assert_eq!(context.uc_mcontext.regs[0] as i64, -i64::from(libc::EINTR));
        assert_eq!(context.uc_mcontext.pc as usize, code.as_ptr().addr() + 4);
    }
}
