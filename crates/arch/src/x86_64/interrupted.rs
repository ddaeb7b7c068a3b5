//! The register state that a signal handler receives.

use libc::ucontext_t;

/// The position of an interrupted thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// RSP.
    pub stack_pointer: usize,
    /// RBP.
    pub frame_pointer: usize,
    /// RIP.
    pub program_counter: usize,
}

/// Bytes of the SYSCALL instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Returns the position of the interrupted code. Async-signal-safe.
///
/// # Safety
/// `context` is the context that the kernel passed to the running signal handler.
pub unsafe fn position(context: *const ucontext_t) -> Position {
    // SAFETY: upheld by the caller.
    let registers = unsafe { &(*context).uc_mcontext.gregs };
    let get = |register: libc::c_int| registers[register as usize] as usize;
    Position {
        stack_pointer: get(libc::REG_RSP),
        frame_pointer: get(libc::REG_RBP),
        program_counter: get(libc::REG_RIP),
    }
}

/// Returns whether the registers belong to an interrupted system call that the kernel is about to
/// restart. SYSCALL leaves the address of the next instruction in RCX and the flags in R11.
///
/// The registers before a first execution of the call match only by accident. The pending signal
/// then counts as one that arrived just after the call.
///
/// # Safety
/// Same requirements as [`position`].
pub unsafe fn restarts_call(context: *const ucontext_t) -> bool {
    // SAFETY: upheld by the caller.
    let registers = unsafe { &(*context).uc_mcontext.gregs };
    let [next, behind, flags, kept] = [libc::REG_RIP, libc::REG_RCX, libc::REG_EFL, libc::REG_R11]
        .map(|register| registers[register as usize]);
    behind == next + SYSCALL.len() as i64 && kept == flags
}

/// Returns whether the next instruction is a SYSCALL that does not cross a page boundary.
///
/// # Safety
/// Same requirements as [`position`].
pub unsafe fn is_at_call(context: *const ucontext_t) -> bool {
    // SAFETY: upheld by the caller.
    let at = unsafe { position(context) }.program_counter;
    let byte = |address: usize| std::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: the thread continues at `at`, so this byte is mapped. The next byte may be on another
    // page; the second comparison excludes that case.
    let first = unsafe { byte(at).read_volatile() };
    if first != SYSCALL[0] || at & 0xfff == 0xfff {
        return false;
    }
    // SAFETY: the byte is on the same page.
    let second = unsafe { byte(at + 1).read_volatile() };
    second == SYSCALL[1]
}

/// Makes the system call found by [`is_at_call`] return EINTR instead of being restarted.
///
/// # Safety
/// Same requirements as [`position`]; [`is_at_call`] returned true for this context.
pub unsafe fn fail_call(context: *mut ucontext_t) {
    // SAFETY: upheld by the caller.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    registers[libc::REG_RAX as usize] = -i64::from(libc::EINTR);
    registers[libc::REG_RIP as usize] += SYSCALL.len() as i64;
}
