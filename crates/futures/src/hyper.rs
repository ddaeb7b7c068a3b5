//! hyper's `rt` traits.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{self, ReadBufCursor};
use kumihimo_io::polled::PolledStream;

use crate::{Executor, Polled, Sleep, sleep, sleep_until};

impl<S: PolledStream> rt::Read for Polled<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // SAFETY: nothing in it is made uninitialised: the kernel writes bytes there.
        let room = unsafe { buf.as_mut() };
        let n = ready!(self.receive_uninit(cx, room))?;
        // SAFETY: the first `n` bytes are initialised.
        unsafe { buf.advance(n) };
        Poll::Ready(Ok(()))
    }
}

impl<S: PolledStream> rt::Write for Polled<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.send(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end_writing()
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.send_vectored(cx, bufs)
    }
}

/// hyper's timers by [`sleep`]: give it to a builder's `timer`.
///
/// # Examples
///
/// ```
/// use kumihimo::futures::{Executor, Timer};
///
/// let mut builder = hyper::server::conn::http2::Builder::new(Executor::new());
/// builder.timer(Timer);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer;

impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(sleep(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(sleep_until(deadline))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(mut sleep) => sleep.reset(new_deadline),
            None => *sleep = self.sleep_until(new_deadline),
        }
    }
}

impl rt::Sleep for Sleep {}

impl<F> rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    /// Runs `future` in a new microprocess. Drops it if none can begin: hyper has no way to hear of
    /// that.
    fn execute(&self, future: F) {
        let _ = self.spawn(future);
    }
}
