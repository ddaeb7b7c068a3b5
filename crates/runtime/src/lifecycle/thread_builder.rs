//! The settings for a new microprocess; its `spawn` is in `api/thread.rs`.

use std::time::Instant;

use kumihimo_policy::Priority;

/// Settings for a new microprocess: those of `std::thread::Builder`, and more.
///
/// # Examples
///
/// ```
/// use kumihimo::thread::{Builder, Priority};
///
/// let builder = Builder::new().name("log".into()).stack_size(64 << 10).priority(Priority::LOWEST);
/// let handle = builder.spawn(|| "written")?;
/// assert_eq!(handle.thread().name(), Some("log"));
/// assert_eq!(handle.join().unwrap(), "written");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "a builder begins nothing until `spawn`"]
pub struct Builder {
    pub(crate) name: Option<String>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) priority: Option<Priority>,
    pub(crate) lean: bool,
    pub(crate) child_first: bool,
    pub(crate) bound: bool,
    pub(crate) deadline: Option<Instant>,
}

impl Builder {
    /// Creates a builder with the defaults: no name, the runtime's stack size, priority 32, own
    /// thread-local storage, parent first.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the microprocess. Reports, panics and the overflow message show the name. `kumi` and
    /// reports show its first 47 bytes.
    ///
    /// # Panics
    /// At `spawn`, if the name holds a NUL byte, as in std.
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// Sets the minimum usable stack size in bytes. It is raised to the machine's minimum and
    /// rounded up to the next slot size (about 32 KiB, 64 KiB, ... 1 GiB, including guard, record
    /// and thread-local storage). `spawn` fails if it exceeds the largest slot.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::Builder;
    /// use std::hint::black_box;
    ///
    /// let large = || black_box(&[7u8; 4 << 20]).len();
    /// let handle = Builder::new().stack_size(8 << 20).spawn(large)?;
    /// assert_eq!(handle.join().unwrap(), 4 << 20);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets the priority. Default 32.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::{self, Builder, Priority};
    ///
    /// let handle = Builder::new().priority(Priority::new(40)?).spawn(thread::current_priority)?;
    /// assert_eq!(handle.join().unwrap().get(), 40);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn priority(mut self, priority: Priority) -> Builder {
        self.priority = Some(priority);
        self
    }

    /// Runs the child at once and puts the parent into the queue, in front of the others of its
    /// level. For fork-join trees: few microprocesses live at a time. Default: parent first, as in
    /// std.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::{self, Builder};
    ///
    /// fn sum(numbers: &[u64]) -> u64 {
    ///     let (left, right) = numbers.split_at(numbers.len() / 2);
    ///     if left.is_empty() {
    ///         return right.iter().sum();
    ///     }
    ///     thread::scope(|s| {
    ///         let left = Builder::new().child_first(true).spawn_scoped(s, || sum(left)).unwrap();
    ///         sum(right) + left.join().unwrap()
    ///     })
    /// }
    ///
    /// let numbers: Vec<u64> = (1..=100).collect();
    /// assert_eq!(sum(&numbers), 5050);
    /// ```
    pub fn child_first(mut self, yes: bool) -> Builder {
        self.child_first = yes;
        self
    }

    /// Gives the microprocess a kernel thread of its own from its start, as
    /// [`bind`](crate::thread::bind) does. The kernel thread ends with it.
    ///
    /// `spawn` fails with `WouldBlock` if the limit on kernel threads leaves none.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::Builder;
    ///
    /// // What the closure changes on its kernel thread concerns no other microprocess.
    /// let handle = Builder::new().bound(true).spawn(|| "sandboxed")?;
    /// assert_eq!(handle.join().unwrap(), "sandboxed");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bound(mut self, yes: bool) -> Builder {
        self.bound = yes;
        self
    }

    /// Sets the deadline by which deadline policies order microprocesses. Nothing happens when it
    /// passes.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::Builder;
    /// use std::time::Instant;
    ///
    /// // `kumihimo::policy::Policy` shows a policy that orders by deadlines.
    /// let handle = Builder::new().due(Instant::now()).spawn(|| "late, but complete")?;
    /// assert_eq!(handle.join().unwrap(), "late, but complete");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn due(mut self, deadline: Instant) -> Builder {
        self.deadline = Some(deadline);
        self
    }

    /// Shares the kernel thread's thread-local storage instead of giving the microprocess its own.
    /// Needs half the memory, and makes switches between lean microprocesses faster.
    ///
    /// # Safety
    /// The closure, and everything that it calls, must keep no thread-local state across a switch
    /// point: no `thread_local!` with a changing value, no `errno`, no C++ exception, no panic in
    /// flight, no lock of std or pthreads held, no `RefCell`-like borrow counted in thread-local
    /// storage. Another microprocess, or the kernel thread itself, could read or overwrite it.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::Builder;
    ///
    /// // SAFETY: the closure uses no thread-local storage.
    /// let builder = unsafe { Builder::new().lean(true) };
    /// let handle = builder.spawn(|| (1..=100).sum::<u32>())?;
    /// assert_eq!(handle.join().unwrap(), 5050);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub unsafe fn lean(mut self, yes: bool) -> Builder {
        self.lean = yes;
        self
    }
}
