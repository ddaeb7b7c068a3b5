//! How a microprocess begins: the builder's settings. `api/thread.rs` has its `spawn`.

use std::time::Instant;

use kumihimo_policy::Priority;

/// How a microprocess begins. As `std::thread::Builder`, and more.
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
    /// The defaults: no name, the runtime's stack size, priority 32, own TLS, parent first.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names it. Shown by reports, panics and the overflow message.
    ///
    /// # Panics
    /// At `spawn`, if the name holds a NUL byte, as in std.
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// Usable stack in bytes, at least. Below the machine's minimum, the minimum; rounded up to
    /// what the slot gives (about 32 KiB, 64 KiB, ... 1 GiB, with guard, record and thread-local
    /// storage in it); more than the largest gives is an error of `spawn`.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Its priority. Default 32.
    pub fn priority(mut self, priority: Priority) -> Builder {
        self.priority = Some(priority);
        self
    }

    /// The child runs at once and the parent goes back into the queue, before the others of its
    /// level. For trees of forks and joins: few are alive at a time. Default: parent first, as in
    /// std.
    pub fn child_first(mut self, yes: bool) -> Builder {
        self.child_first = yes;
        self
    }

    /// When its work is due: what a deadline policy orders by. Nothing happens when it passes.
    pub fn due(mut self, deadline: Instant) -> Builder {
        self.deadline = Some(deadline);
        self
    }

    /// Shares the kernel thread's thread-local storage instead of having its own: half the memory,
    /// and a faster switch between lean ones.
    ///
    /// # Safety
    /// The closure, and all that it calls, keeps no thread-local state across a switch point: no
    /// `thread_local!` with a changing value, no `errno`, no C++ exception, no panic in flight, no
    /// lock of std or pthreads held, no `RefCell`-like borrow counted in thread-local storage.
    /// Another microprocess, or the kernel thread itself, would see or destroy it.
    pub unsafe fn lean(mut self, yes: bool) -> Builder {
        self.lean = yes;
        self
    }
}
