//! The replaced functions that a library of the program replaces once more.
//!
//! `crates/interpose` puts its own definitions in front of those of this crate. Where it is linked
//! into the program, a name can have one definition only, so each of these names jumps to the
//! function that its [`Hook`] has: the one of this crate, until [`Hook::set`].

use std::sync::atomic::{AtomicPtr, Ordering};

pub use super::interpose::{
    CLOCK_GETTIME, PTHREAD_SIGMASK, SIGALTSTACK, SIGPROCMASK, SYSCALL, clock_gettime,
    pthread_sigmask, sigaltstack, sigprocmask, syscall,
};
pub use super::thread_start::{PTHREAD_CREATE, create as pthread_create};
pub use super::tls::interpose::attr::{
    PTHREAD_GETAFFINITY_NP, PTHREAD_GETATTR_NP, PTHREAD_GETCPUCLOCKID, PTHREAD_SETAFFINITY_NP,
    PTHREAD_SETSCHEDPARAM, pthread_getaffinity_np, pthread_getattr_np, pthread_getcpuclockid,
    pthread_setaffinity_np, pthread_setschedparam,
};

/// The function that a replaced name jumps to.
#[derive(Debug)]
#[repr(transparent)]
pub struct Hook(AtomicPtr<()>);

impl Hook {
    pub(crate) const fn new(own: *const ()) -> Hook {
        Hook(AtomicPtr::new(own.cast_mut()))
    }

    /// Has the name jump to `to`.
    ///
    /// # Safety
    /// `to` is a function with the behaviour of the name, and calls this crate's own definition
    /// where it leaves a call to it.
    pub unsafe fn set(&self, to: *const ()) {
        self.0.store(to.cast_mut(), Ordering::Release);
    }
}

/// Defines a name for the whole program as a jump through a hook, whose first target is `own`.
macro_rules! hooked {
    ($hook:ident, $name:ident, $own:path) => {
        /// What the function of this name jumps to.
        pub static $hook: $crate::machine::program::Hook =
            $crate::machine::program::Hook::new($own as *const ());

        const _: () = {
            /// Jumps to the function of the hook with the caller's registers and stack.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                std::arch::naked_asm!("jmp [rip + {hook}]", hook = sym $hook)
            }
        };
    };
    (weak $hook:ident, $name:literal, $own:path) => {
        /// What the function of this name jumps to.
        pub static $hook: $crate::machine::program::Hook =
            $crate::machine::program::Hook::new($own as *const ());

        std::arch::global_asm!(
            concat!(".pushsection .text.", $name, ", \"ax\", @progbits"),
            concat!(".weak ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "jmp [rip + {hook}]",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            hook = sym $hook,
        );
    };
}
pub(crate) use hooked;
