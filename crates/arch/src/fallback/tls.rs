//! Thread-local storage where no block can be built: each microprocess has its kernel thread's.

use std::io;
use std::sync::OnceLock;

use kumihimo_config::Tls as Asked;

pub use crate::kind::Kind;

/// The one answer of this architecture: [`Kind::Kernel`].
pub struct Tls {
    why: String,
}

/// Reports that blocks cannot be built here, and why. Never panics.
pub fn get() -> &'static Tls {
    static TLS: OnceLock<Tls> = OnceLock::new();
    TLS.get_or_init(|| Tls { why: why(kumihimo_config::get().lab.tls) })
}

/// As [`get`]: the answer never changes.
pub fn get_anew() -> &'static Tls {
    get()
}

fn why(asked: Option<Asked>) -> String {
    let here = match (cfg!(target_env = "musl"), std::env::consts::ARCH) {
        (true, arch) => format!("{arch} Linux with musl"),
        (false, arch) => format!("{arch} Linux"),
    };
    let reason =
        format!("microprocesses of their own need x86_64 Linux with glibc; this is {here}");
    match asked {
        None => reason,
        Some(Asked::Kernel) => format!("KUMI_LAB=tls=kernel; and {reason}"),
        Some(asked) => format!("KUMI_LAB=tls={} cannot be had: {reason}", asked.name()),
    }
}

impl Tls {
    /// [`Kind::Kernel`].
    pub fn kind(&self) -> Kind {
        Kind::Kernel
    }

    /// The reason for [`Tls::kind`], for people.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// False: kernel threads are what this architecture has.
    pub fn is_degraded(&self) -> bool {
        false
    }

    /// False: see [`get_anew`].
    pub fn is_short(&self) -> bool {
        false
    }

    /// Bytes of a block: 0.
    pub fn bytes(&self) -> usize {
        0
    }

    /// Builds nothing.
    ///
    /// # Errors
    /// Always `Unsupported`, with [`Tls::why`].
    ///
    /// # Safety
    /// None needed, as for all functions here.
    pub unsafe fn build(&self, _: *mut u8, _: *mut u8) -> io::Result<*mut u8> {
        Err(io::Error::new(io::ErrorKind::Unsupported, self.why.clone()))
    }

    /// `fs` itself.
    ///
    /// # Safety
    /// None needed.
    pub unsafe fn stack_top(&self, fs: *mut u8) -> *mut u8 {
        fs
    }

    /// Does nothing.
    ///
    /// # Safety
    /// None needed.
    pub unsafe fn first_run(&self) {}

    /// Does nothing: the end of the kernel thread runs the destructors.
    ///
    /// # Safety
    /// None needed.
    pub unsafe fn exit_current(&self) {}

    /// No lines.
    pub fn lines(&self) -> Vec<isize> {
        Vec::new()
    }

    /// Does nothing.
    ///
    /// # Safety
    /// None needed.
    pub unsafe fn recycle(&self, _: *mut u8, _: *mut u8, _: *mut u8) {}
}

/// Registers no hooks: nothing is preempted here, so no call of dlopen needs protection.
pub fn while_linking(_: fn(), _: fn()) {}

/// set*id: the C library's own handler is right here, because FS is always a kernel thread's.
pub mod setxid {
    /// Registers nothing.
    pub fn set_carrier_fs(_: fn() -> Option<usize>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_refused_with_a_reason() {
        // SAFETY: builds nothing.
        let error = unsafe { get().build(std::ptr::null_mut(), std::ptr::null_mut()) }
            .expect_err("no blocks");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(get().why().contains(std::env::consts::ARCH), "{}", get().why());
    }

    #[test]
    fn the_reason_names_the_requested_value() {
        assert!(why(Some(Asked::Clone)).starts_with("KUMI_LAB=tls=clone cannot be had"));
        assert!(why(Some(Asked::Kernel)).starts_with("KUMI_LAB=tls=kernel; and "));
    }
}
