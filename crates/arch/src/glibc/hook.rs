//! Names that jump to this crate's own function, until another one is put in its place.

use std::sync::atomic::{AtomicPtr, Ordering};

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
        pub static $hook: $crate::glibc::hook::Hook =
            $crate::glibc::hook::Hook::new($own as *const ());

        const _: () = {
            /// Jumps to the function of the hook with the caller's registers and stack.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                std::arch::naked_asm!($crate::machine::thread_block::jump_through_hook!(), hook = sym $hook)
            }
        };
    };
    (weak $hook:ident, $name:literal, $own:path) => {
        /// What the function of this name jumps to.
        pub static $hook: $crate::glibc::hook::Hook =
            $crate::glibc::hook::Hook::new($own as *const ());

        std::arch::global_asm!(
            concat!(".pushsection .text.", $name, ", \"ax\", %progbits"),
            concat!(".weak ", $name),
            concat!(".type ", $name, ", %function"),
            concat!($name, ":"),
            $crate::machine::thread_block::jump_through_hook!(),
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            hook = sym $hook,
        );
    };
}
pub(crate) use hooked;
