//! Replies: what a server does with the [`Caller`] of a request.

use std::fmt;
use std::mem::ManuallyDrop;

use super::mailbox_core::Caller;

// SAFETY: a thread dereferences the node only under the lock and after it has found the node in the
// list.
unsafe impl<Q: Send, R: Send> Send for Caller<'_, Q, R> {}
// SAFETY: no method of `Caller` takes `&self`, except `Debug`, which reads no field.
unsafe impl<Q: Send, R: Send> Sync for Caller<'_, Q, R> {}

impl<Q, R> Caller<'_, Q, R> {
    /// Sends the reply and ends the client's wait. Does not block.
    ///
    /// # Errors
    /// Returns the reply if the client has given up.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::msg;
    /// use kumihimo::thread;
    ///
    /// let (address, mailbox) = msg::mailbox::<(), &str>();
    /// let client = thread::spawn(move || address.send_recv(()));
    /// let request = mailbox.receive().unwrap();
    /// client.cancel();
    /// assert!(client.join().is_err(), "the client has given up");
    /// assert_eq!(request.from.reply("too late"), Err("too late"));
    /// ```
    #[inline]
    pub fn reply(self, reply: R) -> Result<(), R> {
        let this = ManuallyDrop::new(self);
        let result = this.core.state.lock().answer(this.node, this.serial, Ok(reply));
        match result {
            Ok(client) => {
                client.wake();
                Ok(())
            }
            Err(Some(reply)) => Err(reply),
            Err(None) => unreachable!("a reply was given"),
        }
    }
}

impl<Q, R> Drop for Caller<'_, Q, R> {
    fn drop(&mut self) {
        let result = self.core.state.lock().answer(self.node, self.serial, Err(()));
        if let Ok(client) = result {
            client.wake();
        }
    }
}

impl<Q, R> fmt::Debug for Caller<'_, Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}
