//! The settings for a new microprocess; its `spawn` is in `api/thread.rs`.

use std::time::Instant;

use kumihimo_policy::Priority;

/// Settings for a new microprocess: those of `std::thread::Builder`, and more.
#[derive(Debug, Default)]
#[must_use = "a builder begins nothing until `spawn`"]
pub struct Builder {
    pub(crate) name: Option<String>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) priority: Option<Priority>,
    pub(crate) lean: bool,
    pub(crate) child_first: bool,
    pub(crate) deadline: Option<Instant>,
}

impl Builder {
    /// Creates a builder with the defaults: no name, the runtime's stack size, priority 32, own
    /// thread-local storage, parent first.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the microprocess. Reports, panics and the overflow message show the name.
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
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets the priority. Default 32.
    pub fn priority(mut self, priority: Priority) -> Builder {
        self.priority = Some(priority);
        self
    }

    /// Runs the child at once and puts the parent into the queue, in front of the others of its
    /// level. For fork-join trees: few microprocesses live at a time. Default: parent first, as in
    /// std.
    pub fn child_first(mut self, yes: bool) -> Builder {
        self.child_first = yes;
        self
    }

    /// Sets the deadline by which deadline policies order microprocesses. Nothing happens when it
    /// passes.
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
    pub unsafe fn lean(mut self, yes: bool) -> Builder {
        self.lean = yes;
        self
    }
}
