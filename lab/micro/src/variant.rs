//! The variant of a request: full or lean.

use std::io;

use kumihimo::thread::{Builder, JoinHandle, Priority};
use kumihimo_bench_kit::Request;

/// Parameters of a benchmark's microprocesses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Variant {
    lean: bool,
    child_first: bool,
    stack: Option<usize>,
    priority: Option<Priority>,
    number: Option<usize>,
}

impl Variant {
    pub fn of(request: &Request) -> Self {
        Variant { lean: request.variant == "lean", ..Variant::default() }
    }

    pub fn lean(self, lean: bool) -> Self {
        Variant { lean, ..self }
    }

    pub fn child_first(self, child_first: bool) -> Self {
        Variant { child_first, ..self }
    }

    pub fn stack(self, stack: Option<usize>) -> Self {
        Variant { stack, ..self }
    }

    /// The same, at a level relative to the default.
    pub fn above(self, levels: i8) -> Self {
        let level = Priority::DEFAULT.get().saturating_add_signed(levels);
        Variant { priority: Some(Priority::new(level).expect("below 64")), ..self }
    }

    /// The same, with the name `worker-NUMBER`.
    pub fn numbered(self, number: usize) -> Self {
        Variant { number: Some(number), ..self }
    }

    #[inline]
    pub fn spawn<T: Send + 'static>(
        self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.try_spawn(body).expect("spawn")
    }

    #[inline]
    pub fn try_spawn<T: Send + 'static>(
        self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let mut builder = Builder::new();
        if self.child_first {
            builder = builder.child_first(true);
        }
        if let Some(stack) = self.stack {
            builder = builder.stack_size(stack);
        }
        if let Some(priority) = self.priority {
            builder = builder.priority(priority);
        }
        if let Some(number) = self.number {
            builder = builder.name(format!("worker-{number}"));
        }
        if self.lean {
            // SAFETY: the bodies of these benchmarks keep nothing in thread-local storage across a
            // switch.
            builder = unsafe { builder.lean(true) };
        }
        builder.spawn(body)
    }
}
