//! The operations of P0 by their names there.

use super::{Address, Caller, Mailbox, RecvError, Request, SendRecvError};

/// Sends `message` and waits for the reply. Blocks the microprocess meanwhile. See
/// [`Address::send_recv`].
///
/// # Errors
/// Fails if the mailbox is gone, or if the request is dropped without a reply.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::msg;
/// use kumihimo::thread;
///
/// let (address, mailbox) = msg::mailbox::<f64, f64>();
/// thread::scope(|s| {
///     s.spawn(|| {
///         let request = msg::receive(&mailbox).unwrap();
///         msg::reply(request.from, request.message.sqrt()).unwrap();
///     });
///     assert_eq!(msg::send_recv(&address, 81.0).unwrap(), 9.0);
/// });
/// ```
#[inline]
pub fn send_recv<Q, R>(to: &Address<Q, R>, message: Q) -> Result<R, SendRecvError<Q>> {
    to.send_recv(message)
}

/// Waits for a request. Blocks the microprocess meanwhile. See [`Mailbox::receive`].
///
/// # Errors
/// Fails if there is no request and all addresses are dropped.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::msg::{self, RecvError};
///
/// let (address, mailbox) = msg::mailbox::<(), ()>();
/// drop(address);
/// assert_eq!(msg::receive(&mailbox).unwrap_err(), RecvError);
/// ```
#[inline]
pub fn receive<Q, R>(mailbox: &Mailbox<Q, R>) -> Result<Request<'_, Q, R>, RecvError> {
    mailbox.receive()
}

/// Replies to a request. Does not block. See [`Caller::reply`].
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
/// let (address, mailbox) = msg::mailbox::<char, char>();
/// let client = thread::spawn(move || address.send_recv('ß').unwrap());
/// let request = msg::receive(&mailbox).unwrap();
/// assert_eq!(msg::reply(request.from, 'ẞ'), Ok(()));
/// assert_eq!(client.join().unwrap(), 'ẞ');
/// ```
#[inline]
pub fn reply<Q, R>(to: Caller<'_, Q, R>, reply: R) -> Result<(), R> {
    to.reply(reply)
}

/// Replies to a request and waits for the next request. Blocks the microprocess meanwhile. See
/// [`Mailbox::reply_and_receive`].
///
/// # Errors
/// As [`receive`]. A reply to a client that has given up is dropped.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::msg;
/// use kumihimo::thread;
///
/// let (address, mailbox) = msg::mailbox::<u32, u32>();
/// let server = thread::spawn(move || {
///     let (mut sum, mut next) = (0, msg::receive(&mailbox));
///     while let Ok(request) = next {
///         sum += request.message;
///         next = msg::reply_and_receive(&mailbox, request.from, sum);
///     }
///     sum
/// });
/// assert_eq!(msg::send_recv(&address, 2), Ok(2));
/// assert_eq!(msg::send_recv(&address, 3), Ok(5));
/// drop(address);
/// assert_eq!(server.join().unwrap(), 5);
/// ```
#[inline]
pub fn reply_and_receive<'a, Q, R>(
    mailbox: &'a Mailbox<Q, R>,
    to: Caller<'a, Q, R>,
    reply: R,
) -> Result<Request<'a, Q, R>, RecvError> {
    mailbox.reply_and_receive(to, reply)
}
