//! The executor: a microprocess for each future.

use std::io;

use kumihimo_policy::Priority;
use kumihimo_runtime::future::block_on;
use kumihimo_runtime::thread::{self, JoinHandle};

/// An executor that runs each future in a microprocess of its own.
///
/// So a future may call blocking code, and may wait in it: only its own microprocess blocks. With
/// the feature `hyper` it implements `hyper::rt::Executor`.
///
/// # Examples
///
/// ```
/// use kumihimo::futures::Executor;
/// use kumihimo::{future::block_on, thread};
/// use std::time::Duration;
///
/// let executor = Executor::new();
/// let sleepers = (0..100).map(|n| {
///     executor.spawn(async move {
///         thread::sleep(Duration::from_millis(1)); // blocks this task only
///         n
///     })
/// });
/// let sleepers: Vec<_> = sleepers.collect::<Result<_, _>>()?;
/// let sum: u32 = sleepers.into_iter().map(|sleeper| sleeper.join().unwrap()).sum();
/// assert_eq!(sum, 4950);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Executor {
    stack_size: Option<usize>,
    priority: Option<Priority>,
}

impl Executor {
    /// Creates an executor whose microprocesses have the default stack and priority.
    pub fn new() -> Executor {
        Executor::default()
    }

    /// Sets the minimum stack size of the microprocesses, as `thread::Builder::stack_size`.
    #[must_use]
    pub fn stack_size(self, bytes: usize) -> Executor {
        Executor { stack_size: Some(bytes), ..self }
    }

    /// Sets the priority of the microprocesses.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Executor {
        Executor { priority: Some(priority), ..self }
    }

    /// Runs `future` in a new microprocess.
    ///
    /// # Errors
    /// As `thread::Builder::spawn`: a stack that is too large, no memory, or a runtime that is
    /// ending. The future is dropped.
    pub fn spawn<F>(&self, future: F) -> io::Result<JoinHandle<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let mut builder = thread::Builder::new();
        if let Some(bytes) = self.stack_size {
            builder = builder.stack_size(bytes);
        }
        if let Some(priority) = self.priority {
            builder = builder.priority(priority);
        }
        builder.spawn(move || block_on(future))
    }
}
