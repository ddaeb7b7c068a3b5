//! Every Linux without a folder of its own: the API on kernel threads 1:1.
//!
//! The modules mirror those of `x86_64/`. Functions that only microprocesses need are unreachable,
//! because no TLS block can be built here; they abort with a message instead of misbehaving.

pub mod cpu;
pub mod tls;

/// Whether microprocesses can have stacks and TLS blocks of their own on this architecture.
pub const HAS_MICROPROCESSES: bool = false;

/// Calls injected from signal handlers: none here.
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

    /// Prepares nothing.
    pub fn prepare() {}

    /// Changes nothing.
    ///
    /// # Errors
    /// Always [`Refusal::Unsupported`].
    ///
    /// # Safety
    /// None needed; `unsafe` for the sake of the common interface.
    pub unsafe fn inject(_: *mut ucontext_t, _: extern "C" fn(), _: usize) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }
}

/// The register state that a signal handler receives: not examined here.
pub mod interrupted {
    use libc::ucontext_t;

    /// Where an interrupted thread stands. All fields are 0.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Position {
        /// The stack pointer.
        pub stack_pointer: usize,
        /// The frame pointer.
        pub frame_pointer: usize,
        /// The program counter.
        pub program_counter: usize,
    }

    /// Unknown: all zeros.
    ///
    /// # Safety
    /// None needed, as for all functions of this module.
    pub unsafe fn position(_: *const ucontext_t) -> Position {
        Position { stack_pointer: 0, frame_pointer: 0, program_counter: 0 }
    }

    /// Unknown: false.
    ///
    /// # Safety
    /// None needed.
    pub unsafe fn restarts_call(_: *const ucontext_t) -> bool {
        false
    }

    /// Unknown: false.
    ///
    /// # Safety
    /// None needed.
    pub unsafe fn is_at_call(_: *const ucontext_t) -> bool {
        false
    }

    /// Changes nothing.
    ///
    /// # Safety
    /// None needed.
    pub unsafe fn fail_call(_: *mut ucontext_t) {}
}

/// Code into which no call is injected: all of it.
pub mod regions {
    /// Looks for nothing.
    pub fn prepare() {}

    /// True for every address.
    #[must_use]
    pub fn is_closed(_: usize) -> bool {
        true
    }
}

/// The processor's cycle counter: not used here.
pub mod time {
    /// False: callers use the clock of the C library.
    #[must_use]
    pub fn has_steady_counter() -> bool {
        false
    }

    /// 0; never called, since [`has_steady_counter`] is false.
    #[inline(always)]
    #[must_use]
    pub fn counter() -> u64 {
        0
    }
}

/// Registers no hook: no trap is under way when a process executes another program.
pub fn while_executing(_: fn(bool)) {}
