//! The two kinds of thread, so that a chapter can run a program on either.

/// A kind of thread.
pub trait Kind: 'static {
    type Handle<T: Send + 'static>: Send;

    fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Self::Handle<T>;

    /// # Panics
    /// If the thread panicked.
    fn join<T: Send + 'static>(one: Self::Handle<T>) -> T;
}

/// Kernel threads: `std::thread`.
pub struct Kernel;
/// Microprocesses: `kumihimo::thread`.
pub struct Micro;

impl Kind for Kernel {
    type Handle<T: Send + 'static> = std::thread::JoinHandle<T>;

    fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Self::Handle<T> {
        std::thread::spawn(body)
    }

    fn join<T: Send + 'static>(one: Self::Handle<T>) -> T {
        one.join().expect("no panic")
    }
}

impl Kind for Micro {
    type Handle<T: Send + 'static> = kumihimo::thread::JoinHandle<T>;

    fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Self::Handle<T> {
        kumihimo::thread::spawn(body)
    }

    fn join<T: Send + 'static>(one: Self::Handle<T>) -> T {
        one.join().expect("no panic")
    }
}
