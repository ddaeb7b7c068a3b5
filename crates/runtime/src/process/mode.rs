//! The mode of the process: microprocesses are user-level threads, or kernel threads 1:1.

use std::{fmt, io};

use kumihimo_arch::{HAS_MICROPROCESSES, tls};

/// The mode of the process. See [`mode`].
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{Mode, mode};
///
/// match mode() {
///     Mode::Microprocesses => assert_eq!(mode().to_string(), "microprocesses"),
///     Mode::KernelThreads { why } => assert!(!why.is_empty()),
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// User-level threads with stacks and thread-local storage of their own.
    #[default]
    Microprocesses,
    /// Kernel threads, one per microprocess: the same API, at the cost of kernel threads.
    KernelThreads {
        /// The reason.
        why: &'static str,
    },
}

/// One word: `microprocesses` or `kernel-threads`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mode::Microprocesses => "microprocesses",
            Mode::KernelThreads { .. } => "kernel-threads",
        })
    }
}

/// Returns whether microprocesses are user-level threads here, and if not, why. The result is final
/// once a runtime has begun.
///
/// Kernel threads are used on every architecture but x86_64 and aarch64, with a C library other
/// than glibc, in static executables, with `KUMI_LAB=tls=kernel`, and where the self-test of TLS
/// blocks fails. The first call examines the C library [0.3-1 ms].
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{self, Mode, mode};
///
/// // A server that adapts its limits: kernel threads cost more than microprocesses.
/// let connections = match mode() {
///     Mode::Microprocesses => 1_000_000,
///     Mode::KernelThreads { .. } => 10_000,
/// };
/// assert!(connections >= 10_000);
/// assert_eq!(runtime::run(|| runtime::metrics().unwrap().mode)?, mode());
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn mode() -> Mode {
    let tls = tls::get();
    match tls.kind() {
        tls::Kind::Kernel => Mode::KernelThreads { why: tls.why() },
        tls::Kind::Clone | tls::Kind::Donor => Mode::Microprocesses,
    }
}

/// Decides the mode for the lifetime of the process, at the start of the first runtime. A fallback
/// that was not requested is reported on standard error.
///
/// # Errors
/// `WouldBlock` if kernel threads or memory were short for half a second. Nothing is decided then.
pub(crate) fn decide() -> io::Result<()> {
    let tls = tls::get_anew();
    if tls.is_short() {
        let text = format!(
            "the runtime cannot start: {}; raise the limit of threads (ulimit -u, pids.max) or of memory, or try again",
            tls.why()
        );
        return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
    }
    if tls.is_degraded() {
        eprintln!("kumihimo: microprocesses are kernel threads 1:1 in this process: {}", tls.why());
    }
    Ok(())
}

/// Checks whether a feature that requires microprocesses (gates and mounts) is available.
///
/// # Errors
/// `Unsupported`, with the name of the feature and the reason.
pub fn supports(what: &str) -> io::Result<()> {
    if HAS_MICROPROCESSES {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("{what}: {}", tls::get().why())))
}

#[cfg(test)]
mod tests;
