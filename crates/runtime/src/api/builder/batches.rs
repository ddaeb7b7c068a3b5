//! Batched system calls of a runtime: policy, back end and longest wait.

use std::sync::Arc;
use std::time::Duration;

use kumihimo_batch::{Backend, Policy as BatchPolicy};

use super::Builder;

impl Builder {
    /// Sets the policy by which system calls of several microprocesses enter the kernel as a batch:
    /// see [`syscall_batch`](crate::wait::syscall_batch). `KUMI_LAB=batch=...` applies if the
    /// program does not call this.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{BatchPolicy, Runtime, metrics};
    ///
    /// let runtime = Runtime::builder().batch(BatchPolicy::Off).build()?;
    /// assert_eq!(runtime.run(|| metrics().unwrap().batch.policy), "off");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn batch(mut self, policy: BatchPolicy) -> Builder {
        self.batch = Some(policy);
        self
    }

    /// Sets the back end that makes the system calls of a batch, one per VP. For tests and
    /// experiments. Default: io_uring if the kernel allows it, otherwise plain calls (always with
    /// `KUMI_LAB=uring=off`).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{BatchPolicy, Runtime};
    /// use kumihimo::{net::UnixStream, thread};
    /// use kumihimo_batch::Plain; // An internal crate.
    /// use std::io::{Read, Write};
    ///
    /// let builder = Runtime::builder().batch(BatchPolicy::Fixed(1));
    /// let runtime = builder.batch_back_end(|| Box::new(Plain)).build()?;
    /// let text = runtime.run(|| {
    ///     let (mut near, mut far) = UnixStream::pair()?;
    ///     thread::spawn(move || near.write_all(b"plain").unwrap());
    ///     let mut text = String::new();
    ///     far.read_to_string(&mut text).map(|_| text)
    /// })?;
    /// assert_eq!(text, "plain");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn batch_back_end(
        mut self,
        make: impl Fn() -> Box<dyn Backend> + Send + Sync + 'static,
    ) -> Builder {
        self.settings.batch_back_end = Some(Arc::new(make));
        self
    }

    /// Sets how long a call waits for its batch at most, while other microprocesses of its level
    /// run. Longer waits make larger batches and later replies. Default: 50 us.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{BatchPolicy, Runtime};
    /// use kumihimo::{net::UnixStream, thread};
    /// use std::io::{Read, Write};
    /// use std::time::Duration;
    ///
    /// let builder = Runtime::builder().batch(BatchPolicy::Fixed(16));
    /// let runtime = builder.batch_deadline(Duration::from_micros(200)).build()?;
    /// let text = runtime.run(|| {
    ///     let (mut near, mut far) = UnixStream::pair()?;
    ///     thread::spawn(move || near.write_all(b"together").unwrap());
    ///     let mut text = String::new();
    ///     far.read_to_string(&mut text).map(|_| text)
    /// })?;
    /// assert_eq!(text, "together");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn batch_deadline(mut self, longest: Duration) -> Builder {
        self.settings.batch_deadline = longest;
        self
    }
}
