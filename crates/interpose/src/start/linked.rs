//! The functions of this crate in the program itself: `kumihimo::interpose!`.
//!
//! The program defines the names, each as a jump to the function here. What differs from the
//! preloaded library:
//!
//! - Program and runtime share one std, so the runtime's own calls come here as well, where they
//!   are not system calls. A caller in a section without events, or on a kernel thread of the
//!   runtime, gets the C library's function ([`creates_for_runtime`]).
//! - The runtime is any that the program starts, or one that starts at the first thread.
//! - The names that `arch` defines for every program stay its own, and jump to this crate by hooks.

use std::ffi::CStr;

use kumihimo_arch::{program, signal_mask, thread_start};
use kumihimo_runtime::linked::{Linked, register};
use kumihimo_runtime::park::is_in_runtime;
use kumihimo_runtime::runtime::{Mode, mode};

use crate::real::{self, libc};
use crate::start;
use crate::start::phase::{self, Phase};

/// Whether the caller is the runtime: a thread that it creates is no thread of the program.
pub(crate) fn creates_for_runtime() -> bool {
    phase::is_linked()
        && (signal_mask::is_blocked() || thread_start::is_captured() || is_in_runtime())
}

/// The names that `arch` defines, and what they jump to in the program.
fn set_hooks() {
    macro_rules! set {
        ($($hook:ident $name:ident)*) => {
            $({
                unsafe extern "C" {
                    fn $name();
                }
                // SAFETY: the replacement of the function, which calls that of `arch`.
                unsafe { program::$hook.set($name as *const ()) };
            })*
        };
    }
    set! {
        PTHREAD_CREATE kumi_interpose_pthread_create
        PTHREAD_GETATTR_NP kumi_interpose_pthread_getattr_np
        PTHREAD_GETCPUCLOCKID kumi_interpose_pthread_getcpuclockid
        PTHREAD_SETSCHEDPARAM kumi_interpose_pthread_setschedparam
        PTHREAD_SETAFFINITY_NP kumi_interpose_pthread_setaffinity_np
        PTHREAD_GETAFFINITY_NP kumi_interpose_pthread_getaffinity_np
        SYSCALL kumi_interpose_syscall
        CLOCK_GETTIME kumi_interpose_clock_gettime
        PTHREAD_SIGMASK kumi_interpose_pthread_sigmask
        SIGPROCMASK kumi_interpose_sigprocmask
        SIGALTSTACK kumi_interpose_sigaltstack
    }
}

/// Exit code of `kumi run` for a program that it cannot run.
const UNUSABLE: i32 = 125;

/// Begins in a program. `kumihimo::interpose!` has it called before `main`.
pub extern "C" fn begin_linked() {
    phase::set_linked();
    // SAFETY: a string, terminated by NUL.
    let preloaded =
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"KUMIHIMO_INTERPOSE_VERSION".as_ptr()) };
    if !preloaded.is_null() {
        say(c"kumihimo: the program has kumihimo::interpose!() in it: run it without `kumi run`\n");
        // SAFETY: an integer. No code of the program has run.
        unsafe { libc::_exit(UNUSABLE) };
    }
    real::find_all();
    if let Some((name, file)) = real::of_other_library() {
        eprintln!(
            "kumihimo: {file} has {name}, too: threads call it only where they wait in the kernel"
        );
    }
    set_hooks();
    register(Linked {
        before_start: start::prepare,
        after_start: || {
            start::begin(match mode() {
                Mode::Microprocesses => Phase::Started,
                Mode::KernelThreads { .. } => Phase::Off,
            });
        },
    });
    debug_assert_eq!(phase::get(), Phase::NotYet);
}

fn say(text: &CStr) {
    let text = text.to_bytes();
    // SAFETY: live bytes.
    unsafe { kumihimo_arch::kernel::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// A note of the program (elf(5)), by which `kumi run` recognises it.
#[derive(Debug)]
#[repr(C, align(4))]
pub struct Note {
    name_bytes: u32,
    bytes: u32,
    kind: u32,
    name: [u8; 12],
}

impl Note {
    /// The note.
    pub const NEW: Note = Note { name_bytes: 9, bytes: 0, kind: 1, name: *b"Kumihimo\0\0\0\0" };
}

/// Defines the names of the C library in the program, and begins before its `main`. The book has a
/// guide.
#[macro_export]
macro_rules! interpose {
    () => {
        #[doc(hidden)]
        mod kumihimo_interpose_is_used_once {
            #[cfg(target_feature = "crt-static")]
            compile_error!("kumihimo::interpose!() needs a dynamic C library: remove `crt-static`");

            // Cargo names programs and their tests, and rustdoc its examples.
            const _: () = assert!(
                cfg!(test)
                    || option_env!("UNSTABLE_RUSTDOC_TEST_LINE").is_some()
                    || option_env!("CARGO_CRATE_NAME").is_none()
                    || option_env!("CARGO_BIN_NAME").is_some(),
                "kumihimo::interpose!() belongs in the program, not in a library"
            );

            /// Two definitions are an error: the macro is used more than once.
            #[used]
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".note.kumihimo")]
            static KUMIHIMO_INTERPOSE_IS_USED_MORE_THAN_ONCE: $crate::Note = $crate::Note::NEW;

            #[used]
            #[unsafe(link_section = ".init_array")]
            static BEGIN: extern "C" fn() = $crate::begin_linked;

            $crate::__names!();
        }
    };
}
