//! Capture of a thread's start. Never used here: each microprocess is a kernel thread of std, which
//! knows its name.

/// A start routine and its argument; there is none on this architecture.
#[derive(Debug)]
pub enum ThreadStart {}

/// Runs `f`, whose threads are created.
pub fn capture<R>(f: impl FnOnce() -> R) -> (R, Option<ThreadStart>) {
    (f(), None)
}

impl ThreadStart {
    /// Cannot be called: there is no value of this type.
    ///
    /// # Safety
    /// No requirements.
    pub unsafe fn run(self) {
        match self {}
    }

    /// Cannot be called: there is no value of this type.
    pub fn run_on_kernel_thread(self) -> bool {
        match self {}
    }
}
