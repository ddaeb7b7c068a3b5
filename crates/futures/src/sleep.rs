//! Futures that sleep.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::service;
use crate::timers;

/// The longest sleep, as that of microprocesses.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// A future that is ready at a deadline; made by [`sleep`] and [`sleep_until`].
///
/// Drop it to cancel it. Polled again after its end, it is ready at once.
///
/// # Panics
/// `poll` panics if no thread can begin to serve timers, neither a microprocess nor a kernel
/// thread.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    at: Instant,
    number: u64,
    /// Whether the timer was entered; it may have fired since.
    is_entered: bool,
}

/// Returns a future that is ready after `time`. More than 30 years count as 30 years; zero is ready
/// at the first poll.
///
/// # Examples
///
/// ```
/// use futures_lite::future::or;
/// use kumihimo::future::block_on;
/// use kumihimo::futures::sleep;
/// use std::time::Duration;
///
/// let slow = async { sleep(Duration::from_secs(60)).await; "slow" };
/// let fast = async { sleep(Duration::from_millis(1)).await; "fast" };
/// assert_eq!(block_on(or(slow, fast)), "fast");
/// ```
pub fn sleep(time: Duration) -> Sleep {
    let now = Instant::now();
    sleep_until(now.checked_add(time.min(LONGEST)).unwrap_or(now))
}

/// Returns a future that is ready at `deadline`; at the first poll if that has passed.
///
/// # Examples
///
/// ```
/// use kumihimo::future::block_on;
/// use kumihimo::futures::sleep_until;
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(2);
/// block_on(sleep_until(deadline));
/// assert!(Instant::now() >= deadline);
/// ```
pub fn sleep_until(deadline: Instant) -> Sleep {
    let at = deadline.min(Instant::now() + LONGEST);
    Sleep { at, number: timers::unique_number(), is_entered: false }
}

impl Sleep {
    /// Returns the time at which the future is ready.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::futures::sleep_until;
    /// use std::time::{Duration, Instant};
    ///
    /// let deadline = Instant::now() + Duration::from_secs(1);
    /// assert_eq!(sleep_until(deadline).deadline(), deadline);
    /// ```
    pub fn deadline(&self) -> Instant {
        self.at
    }

    /// Moves the deadline, also after the end. A future that waits is woken at the new deadline
    /// without being polled before.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::future::block_on;
    /// use kumihimo::futures::sleep;
    /// use std::time::{Duration, Instant};
    ///
    /// let mut sleep = sleep(Duration::from_secs(60));
    /// sleep.reset(Instant::now() + Duration::from_millis(1));
    /// block_on(&mut sleep);
    /// ```
    pub fn reset(&mut self, deadline: Instant) {
        let waker = self.leave();
        self.at = deadline.min(Instant::now() + LONGEST);
        if let Some(waker) = waker {
            self.enter(&waker);
        }
    }

    fn enter(&mut self, waker: &std::task::Waker) {
        self.is_entered = true;
        if let Err(error) = service::enter_timer((self.at, self.number), waker) {
            panic!("no thread for the timers of futures: {error}");
        }
    }

    fn leave(&mut self) -> Option<std::task::Waker> {
        if !std::mem::take(&mut self.is_entered) {
            return None;
        }
        service::remove_timer((self.at, self.number))
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.at {
            drop(self.leave());
            return Poll::Ready(());
        }
        self.enter(cx.waker());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        drop(self.leave());
    }
}
