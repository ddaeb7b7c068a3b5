//! The names of the C library that `kumi run` replaces.
//!
//! `kumi run` preloads two shared libraries. This one defines the names and nothing else: each
//! function jumps to `kumi_interpose_NAME` of the other one (`crates/interpose`), which contains
//! the runtime. If one library did both, its own calls of these functions, those of std included,
//! would meet its own definitions once link-time optimisation has joined them.
//!
//! The dynamic linker searches this library first (`LD_PRELOAD`, ld.so(8)), so the program calls
//! these functions instead of the C library's.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

include!("../../interpose/names.rs");

macro_rules! define {
    ($($name:ident)*) => {
        $(
            /// Continues in `crates/interpose` with the caller's registers and stack.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub extern "C" fn $name() {
                std::arch::naked_asm!(concat!(
                    "jmp [rip + kumi_interpose_", stringify!($name), "@GOTPCREL]"
                ))
            }
        )*
    };
}

names!(define);

// `arch` defines these, too, for every program with microprocesses. Under `kumi run` they do more,
// and then call those of `arch`.
define! {
    pthread_create pthread_getattr_np pthread_getcpuclockid pthread_setschedparam
    pthread_setaffinity_np pthread_getaffinity_np syscall clock_gettime pthread_sigmask sigprocmask
    sigaltstack
}
