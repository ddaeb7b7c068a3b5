//! Reports of overflows on kernel threads.

use std::io;

use kumihimo_arch::overflow::{self, KernelThreadWatch};

/// Watch over the stack of a kernel thread that is not the runtime's. See [`StackWatch::begin`].
#[derive(Debug)]
#[must_use = "the watch ends when it is dropped"]
pub struct StackWatch {
    _watch: KernelThreadWatch,
}

impl StackWatch {
    /// Has an overflow of the calling kernel thread's own stack reported on standard error in one
    /// line with this name, of which 15 bytes are kept. The process then aborts, as after the
    /// overflow of a microprocess.
    ///
    /// For kernel threads of a library in a program whose `main` is not Rust's, where std reports
    /// no overflow. Does nothing on a thread with an alternate signal stack, which every thread of
    /// std has in a program of Rust. Has an effect once a runtime has started in the process.
    ///
    /// # Errors
    /// The kernel's error if memory is short.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::StackWatch;
    ///
    /// let worker = std::thread::spawn(|| {
    ///     let watch = StackWatch::begin("worker");
    ///     let sum: u32 = (1..=100).sum();
    ///     drop(watch);
    ///     sum
    /// });
    /// assert_eq!(worker.join().unwrap(), 5050);
    /// ```
    pub fn begin(name: &str) -> io::Result<StackWatch> {
        Ok(StackWatch { _watch: overflow::watch_this_kernel_thread(name)? })
    }
}
