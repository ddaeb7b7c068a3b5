//! Runs a body in each mixture of microprocesses and kernel threads.

use std::panic::resume_unwind;

/// Where a body starts what runs beside it.
#[derive(Clone, Copy)]
pub enum Beside {
    Microprocesses,
    KernelThreads,
}

/// Something that a body started.
pub enum Started<T> {
    Microprocess(kumihimo::thread::JoinHandle<T>),
    KernelThread(std::thread::JoinHandle<T>),
}

impl Beside {
    pub fn spawn<T: Send + 'static>(self, f: impl FnOnce() -> T + Send + 'static) -> Started<T> {
        match self {
            Beside::Microprocesses => Started::Microprocess(kumihimo::thread::spawn(f)),
            Beside::KernelThreads => Started::KernelThread(std::thread::spawn(f)),
        }
    }
}

impl<T> Started<T> {
    /// Waits for the end. A std thread is waited for outside of the virtual processor.
    pub fn join(self) -> std::thread::Result<T> {
        match self {
            Started::Microprocess(started) => started.join(),
            Started::KernelThread(started) => kumihimo::thread::blocking(|| started.join()),
        }
    }

    /// Waits for the end, and returns the result.
    pub fn result(self) -> T {
        self.join().unwrap_or_else(|payload| resume_unwind(payload))
    }
}

/// Runs a body in a microprocess.
pub fn inside(body: fn(Beside), beside: Beside) {
    if let Err(payload) = kumihimo::thread::spawn(move || body(beside)).join() {
        resume_unwind(payload);
    }
}

/// Makes three tests of each body.
macro_rules! behaviours {
    ($($body:ident),* $(,)?) => {
        mod in_microprocesses {
            $(#[test] fn $body() {
                crate::beside::inside(super::$body, crate::Beside::Microprocesses);
            })*
        }
        mod beside_kernel_threads {
            $(#[test] fn $body() {
                crate::beside::inside(super::$body, crate::Beside::KernelThreads);
            })*
        }
        mod on_a_kernel_thread {
            $(#[test] fn $body() {
                super::$body(crate::Beside::Microprocesses);
            })*
        }
    };
}

pub(crate) use behaviours;
