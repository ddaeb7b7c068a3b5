//! Limits of a runtime: kernel threads, microprocesses, stacks.

use kumihimo_events::limit::Limit;

use super::Builder;

impl Builder {
    /// Sets the maximum number of kernel threads of this runtime, including those that carry VPs
    /// (at least one each).
    ///
    /// At the limit a blocked microprocess keeps its VP until its call returns; if no call can
    /// return, the runtime reports a deadlock. Default: the machine's limit, at most 10,000
    /// ([`kumihimo_events::limit`]; `kumi doctor` shows the limit that applies).
    /// `KUMI_KERNEL_THREADS` applies if the program does not call this.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{Runtime, metrics};
    ///
    /// let runtime = Runtime::builder().vps(1).max_kernel_threads(8).build()?;
    /// let metrics = runtime.run(|| metrics().unwrap());
    /// assert_eq!(metrics.kernel_thread_limit, 8);
    /// assert_eq!(metrics.kernel_thread_limit_by, "Builder::max_kernel_threads");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_kernel_threads(mut self, n: usize) -> Builder {
        self.settings.limit = Some(Limit::asked(n, "Builder::max_kernel_threads"));
        self
    }

    /// Sets the maximum number of living microprocesses; a further `spawn` fails. Counting costs a
    /// little at every spawn. Default: no limit.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::{runtime::Runtime, thread};
    ///
    /// let runtime = Runtime::builder().max_microprocesses(2).build()?;
    /// runtime.run(|| {
    ///     // This closure runs in the first microprocess.
    ///     let second = thread::spawn(thread::park);
    ///     assert!(thread::Builder::new().spawn(|| ()).is_err());
    ///     second.cancel();
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_microprocesses(mut self, n: u64) -> Builder {
        self.settings.max_microprocesses = n;
        self
    }

    /// Sets the maximum number of stacks of the whole process, in use or pooled. Default: no limit.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::{runtime::Runtime, thread};
    /// use std::io::ErrorKind;
    ///
    /// let runtime = Runtime::builder().vps(1).max_stacks(500).build()?;
    /// let (parked, error) = runtime.run(|| {
    ///     let mut parked = Vec::new();
    ///     loop {
    ///         match thread::Builder::new().spawn(thread::park) {
    ///             Ok(handle) => parked.push(handle),
    ///             Err(error) => break (parked.len(), error),
    ///         }
    ///     }
    /// });
    /// assert!(parked < 500, "the closure has a stack, too");
    /// assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_stacks(mut self, n: usize) -> Builder {
        self.settings.max_stacks = n;
        self
    }

    /// Sets the maximum address space for stacks of the whole process, in bytes. Default: no limit.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::{runtime::Runtime, thread::Builder};
    /// use std::io::ErrorKind;
    ///
    /// let runtime = Runtime::builder().vps(1).max_stack_memory(256 << 20).build()?;
    /// runtime.run(|| {
    ///     let error = Builder::new().stack_size(512 << 20).spawn(|| ()).unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_stack_memory(mut self, bytes: u64) -> Builder {
        self.settings.max_stack_memory = bytes;
        self
    }
}
