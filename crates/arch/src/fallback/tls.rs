//! Thread-local storage where no block can be built: each microprocess uses its kernel thread's.

use std::io;
use std::sync::OnceLock;

use kumihimo_config::Tls as Asked;

pub use crate::kind::Kind;

/// The TLS support of this architecture: always [`Kind::Kernel`].
pub struct Tls {
    why: String,
}

/// Returns the TLS support, with the reason why blocks cannot be built. Never panics.
pub fn get() -> &'static Tls {
    static TLS: OnceLock<Tls> = OnceLock::new();
    TLS.get_or_init(|| Tls { why: why(kumihimo_config::get().lab.tls) })
}

/// Returns the same as [`get`]: the result never changes.
pub fn get_anew() -> &'static Tls {
    get()
}

fn why(asked: Option<Asked>) -> String {
    let here = match (cfg!(target_env = "musl"), std::env::consts::ARCH) {
        (true, arch) => format!("{arch} Linux with musl"),
        (false, arch) => format!("{arch} Linux"),
    };
    let reason = format!(
        "microprocesses with blocks of their own need x86_64 or aarch64 Linux with glibc; this is \
         {here}"
    );
    match asked {
        None => reason,
        Some(Asked::Kernel) => format!("KUMI_LAB=tls=kernel; and {reason}"),
        Some(asked) => format!("KUMI_LAB=tls={} cannot be had: {reason}", asked.name()),
    }
}

/// Returns `None`: there are no blocks.
pub fn block_of(_number: u32) -> Option<usize> {
    None
}

impl Tls {
    /// Returns [`Kind::Kernel`].
    pub fn kind(&self) -> Kind {
        Kind::Kernel
    }

    /// Returns 0: the layout of blocks is not known.
    pub fn number(&self) -> u32 {
        0
    }

    /// Returns 0, as [`Tls::number`].
    ///
    /// # Safety
    /// None of its own; the other architecture has requirements.
    pub unsafe fn number_of(&self, _fs: usize) -> u32 {
        0
    }

    /// Runs `f`.
    ///
    /// # Safety
    /// None of its own; the other architecture has requirements.
    pub unsafe fn with_number<R>(&self, _number: u32, f: impl FnOnce() -> R) -> R {
        f()
    }

    /// Returns the reason for [`Tls::kind`] as text.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Returns false: kernel threads are the intended mode of this architecture.
    pub fn is_degraded(&self) -> bool {
        false
    }

    /// Returns false; see [`get_anew`].
    pub fn is_short(&self) -> bool {
        false
    }

    /// Returns the size of a block in bytes: 0.
    pub fn bytes(&self) -> usize {
        0
    }

    /// Fails always.
    ///
    /// # Errors
    /// Always returns `Unsupported`, with the text of [`Tls::why`].
    ///
    /// # Safety
    /// No requirements.
    pub unsafe fn build(&self, _: *mut u8, _: *mut u8) -> io::Result<*mut u8> {
        Err(io::Error::new(io::ErrorKind::Unsupported, self.why.clone()))
    }

    /// Returns `fs` unchanged.
    ///
    /// # Safety
    /// No requirements.
    pub unsafe fn stack_top(&self, fs: *mut u8) -> *mut u8 {
        fs
    }

    /// Does nothing.
    ///
    /// # Safety
    /// No requirements.
    pub unsafe fn first_run(&self) {}

    /// Does nothing: the C library runs the destructors when the kernel thread ends.
    ///
    /// # Safety
    /// No requirements.
    pub unsafe fn exit_current(&self) {}

    /// Returns an empty list.
    pub fn lines(&self) -> Vec<isize> {
        Vec::new()
    }

    /// Does nothing.
    ///
    /// # Safety
    /// No requirements.
    pub unsafe fn recycle(&self, _: *mut u8, _: *mut u8, _: *mut u8) {}
}

/// Does nothing: no code is preempted on this architecture, so dlopen needs no protection.
pub fn while_linking(_: fn(), _: fn()) {}

/// set*id: the C library's own handler is sufficient, because FS always belongs to a kernel thread.
pub mod setxid {
    /// Does nothing.
    pub fn set_carrier_fs(_: fn() -> Option<usize>) {}

    /// Does nothing.
    pub fn set_renewed_mask(_: fn(u32, u64) -> Option<u64>) {}

    /// Returns 0.
    pub fn rounds() -> usize {
        0
    }

    /// Does nothing, because no kernel thread runs microprocesses.
    ///
    /// # Errors
    /// Always returns `Unsupported`.
    pub fn renew_mask(_: u32, _: u32) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_fails_and_names_the_architecture() {
        // SAFETY: builds nothing.
        let error = unsafe { get().build(std::ptr::null_mut(), std::ptr::null_mut()) }
            .expect_err("no blocks");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(get().why().contains(std::env::consts::ARCH), "{}", get().why());
    }

    #[test]
    fn reason_names_the_requested_kind() {
        assert!(why(Some(Asked::Clone)).starts_with("KUMI_LAB=tls=clone cannot be had"));
        assert!(why(Some(Asked::Kernel)).starts_with("KUMI_LAB=tls=kernel; and "));
    }
}
