//! `reply_and_receive` with a time limit.

use super::{Caller, Mailbox, ReceiveError, Request};
use crate::wait::deadline;
use std::mem::ManuallyDrop;
use std::ptr;
use std::time::{Duration, Instant};

impl<Q, R> Mailbox<Q, R> {
    /// Replies and receives like [`reply_and_receive`](Mailbox::reply_and_receive), but gives up
    /// the wait after `timeout`. The reply is sent in any case. Blocks the microprocess, at most
    /// until then.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] if the timeout expires; [`ReceiveError::Closed`] if there is no
    /// request and all addresses are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::msg::{self, ReceiveError};
    /// use kumihimo::thread;
    /// use std::time::Duration;
    ///
    /// let (address, mailbox) = msg::mailbox::<u32, u32>();
    /// let client = thread::spawn({
    ///     let address = address.clone();
    ///     move || address.send_recv(1).unwrap()
    /// });
    /// let request = mailbox.receive().unwrap();
    /// let idle = mailbox.reply_and_receive_timeout(request.from, 2, Duration::from_millis(5));
    /// assert_eq!(idle.unwrap_err(), ReceiveError::Empty);
    /// assert_eq!(client.join().unwrap(), 2, "the reply was sent");
    /// ```
    pub fn reply_and_receive_timeout<'a>(
        &'a self,
        to: Caller<'a, Q, R>,
        reply: R,
        timeout: Duration,
    ) -> Result<Request<'a, Q, R>, ReceiveError> {
        self.reply_and_receive_limited(to, reply, deadline::after(timeout))
    }

    /// Replies and receives like [`reply_and_receive`](Mailbox::reply_and_receive), but gives up
    /// the wait at `deadline`. The reply is sent in any case. Blocks the microprocess, at most
    /// until then.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] if the deadline passes; [`ReceiveError::Closed`] if there is no
    /// request and all addresses are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::msg::{self, ReceiveError};
    /// use kumihimo::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// let (address, mailbox) = msg::mailbox::<(), char>();
    /// let client = thread::spawn(move || address.send_recv(()).unwrap());
    /// let request = mailbox.receive().unwrap();
    /// let deadline = Instant::now() + Duration::from_secs(60);
    /// // The client drops the only address after its call.
    /// let outcome = mailbox.reply_and_receive_until(request.from, 'z', deadline);
    /// assert_eq!(outcome.unwrap_err(), ReceiveError::Closed);
    /// assert_eq!(client.join().unwrap(), 'z');
    /// ```
    pub fn reply_and_receive_until<'a>(
        &'a self,
        to: Caller<'a, Q, R>,
        reply: R,
        deadline: Instant,
    ) -> Result<Request<'a, Q, R>, ReceiveError> {
        self.reply_and_receive_limited(to, reply, Some(deadline))
    }

    #[inline]
    pub(super) fn reply_and_receive_limited<'a>(
        &'a self,
        to: Caller<'a, Q, R>,
        reply: R,
        deadline: Option<Instant>,
    ) -> Result<Request<'a, Q, R>, ReceiveError> {
        if !ptr::eq(to.core, &*self.core) {
            let _ = to.reply(reply);
            return self.core.serve(None, deadline);
        }
        let to = ManuallyDrop::new(to);
        self.core.serve(Some((to.node, to.serial, reply)), deadline)
    }
}
