//! Fallback for every Linux target without a folder of its own: one kernel thread per microprocess.
//!
//! The modules mirror those of `x86_64/` and `glibc/`. Functions that only microprocesses need are
//! unreachable, because no TLS block can be built on these targets. They abort with a message.

pub mod copy;
pub mod cpu;
pub mod thread_start;
pub mod tls;

/// Whether microprocesses can have stacks and TLS blocks of their own on this architecture.
pub const HAS_MICROPROCESSES: bool = false;

/// Makes a system call and returns the kernel's result: a value, or a negated error number.
///
/// # Safety
/// The requirements of the system call.
pub unsafe fn system_call(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller's promise; errno belongs to the calling thread.
    unsafe {
        match libc::syscall(number, a, b, c, d, e, f) {
            -1 => -(*libc::__errno_location() as isize),
            done => done as isize,
        }
    }
}

/// Returns false: the place of system calls is not known.
#[must_use]
pub fn is_in_system_call(_pc: usize) -> bool {
    false
}

/// Calls the C library's sigaction.
///
/// # Safety
/// Same requirements as sigaction(2).
pub(crate) unsafe fn next_sigaction(
    signal: libc::c_int,
    new: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> libc::c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::sigaction(signal, new, before) }
}

/// Calls injected from signal handlers: not available.
pub mod inject {
    use libc::ucontext_t;

    /// Why a call was not injected.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum Refusal {
        /// This architecture has no trampoline.
        Unsupported,
    }

    impl std::fmt::Display for Refusal {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("no call injected: not available on this architecture")
        }
    }

    impl std::error::Error for Refusal {}

    /// Does nothing.
    pub fn prepare() {}

    /// Leaves the context unchanged.
    ///
    /// # Errors
    /// Always returns [`Refusal::Unsupported`].
    ///
    /// # Safety
    /// No requirements; `unsafe` because the common interface is.
    pub unsafe fn inject(_: *mut ucontext_t, _: extern "C" fn(), _: usize) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }
}

/// The register state that a signal handler receives: not examined on this architecture.
pub mod interrupted {
    use libc::ucontext_t;

    /// The position of an interrupted thread. All fields are 0.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Position {
        /// The stack pointer.
        pub stack_pointer: usize,
        /// The frame pointer.
        pub frame_pointer: usize,
        /// The program counter.
        pub program_counter: usize,
    }

    /// Returns zeros, because the position is unknown.
    ///
    /// # Safety
    /// None needed, as for all functions of this module.
    pub unsafe fn position(_: *const ucontext_t) -> Position {
        Position { stack_pointer: 0, frame_pointer: 0, program_counter: 0 }
    }

    /// Returns false, because the state is unknown.
    ///
    /// # Safety
    /// No requirements.
    pub unsafe fn restarts_call(_: *const ucontext_t) -> bool {
        false
    }

    /// Returns false, because the state is unknown.
    ///
    /// # Safety
    /// No requirements.
    pub unsafe fn is_at_call(_: *const ucontext_t) -> bool {
        false
    }

    /// Leaves the context unchanged.
    ///
    /// # Safety
    /// No requirements.
    pub unsafe fn fail_call(_: *mut ucontext_t) {}
}

/// Code into which no call is injected: all code.
pub mod regions {
    /// Does nothing.
    pub fn prepare() {}

    /// Returns true for every address.
    #[must_use]
    pub fn is_closed(_: usize) -> bool {
        true
    }
}

/// The processor's cycle counter: not used on this architecture.
pub mod time {
    /// Returns false; callers use the C library's clock instead.
    #[must_use]
    pub fn has_steady_counter() -> bool {
        false
    }

    /// Returns 0. Never called, since [`has_steady_counter`] returns false.
    #[inline(always)]
    #[must_use]
    pub fn counter() -> u64 {
        0
    }
}

/// Does nothing: on this architecture no trap can be pending when a process calls exec.
pub fn while_executing(_: fn(bool)) {}
