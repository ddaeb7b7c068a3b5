//! Synchronous messages (P0): `send_recv` sends a request and waits for the reply. The other side
//! calls `receive` and `reply`, or combines both in `reply_and_receive`.
//!
//! A message is copied from the stack of one microprocess to the stack of the other, without
//! allocation. The VP switches with the message: the woken microprocess runs next on the VP of its
//! peer. Requests are received by the priority of their senders, then in order of arrival.
//!
//! All waits block the microprocess, or the kernel thread if the caller is not a microprocess, and
//! are *cancellation points*. A client that gives up, by deadline or cancellation, withdraws its
//! request if no server has received it. If a server has received it, the later reply is returned
//! to that server. Sending *happens before* receiving, and replying *happens before* the return of
//! `send_recv`.
//!
//! # Examples
//!
//! ```
//! use kumihimo::sync::msg::{self, Request};
//! use kumihimo::thread;
//!
//! let (address, mailbox) = msg::mailbox::<u32, String>();
//! let server = thread::spawn(move || {
//!     let mut next = msg::receive(&mailbox);
//!     while let Ok(Request { message, from }) = next {
//!         next = msg::reply_and_receive(&mailbox, from, format!("{}", message * 2));
//!     }
//! });
//! assert_eq!(msg::send_recv(&address, 21).unwrap(), "42");
//! drop(address);
//! server.join().unwrap();
//! ```

mod errors;
mod functions;
mod mailbox_core;
mod mailbox_table;
mod reply;
#[cfg(not(loom))]
mod resource_entry;
#[cfg(loom)]
#[path = "msg/resource_entry/loom.rs"]
mod resource_entry;
mod timed;

pub use errors::{ReceiveError, SendRecvError};
pub use functions::{receive, reply, reply_and_receive, send_recv};
pub use mailbox_core::{Caller, Request};
pub use std::sync::mpsc::RecvError;

use self::mailbox_core::{
    CLOSED, ClientSlot, DELIVERED, MailboxCore, ServerSlot, UNANSWERED, Withdrawal, take,
};
use self::resource_entry::TableEntry;
use crate::loom::{Wait, current, park, point};
use crate::wait::deadline;
use crate::wait::unwind::OnUnwind;
use crate::wait::waitlist::{self, Node, Signal};
use std::cell::Cell;
use std::fmt;
use std::mem::MaybeUninit;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::time::{Duration, Instant};

/// Creates a mailbox and its first address.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::msg;
/// use kumihimo::thread;
///
/// let (address, mailbox) = msg::mailbox::<&str, usize>();
/// thread::scope(|s| {
///     s.spawn(|| {
///         let request = mailbox.receive().unwrap();
///         request.from.reply(request.message.len()).unwrap();
///     });
///     assert_eq!(address.send_recv("loom").unwrap(), 4);
/// });
/// ```
#[must_use]
pub fn mailbox<Q, R>() -> (Address<Q, R>, Mailbox<Q, R>) {
    let core = Arc::new(MailboxCore::new());
    let mailbox = Mailbox {
        // SAFETY: `count_waiters` belongs to this `MailboxCore` type. The mailbox drops its entry
        // before its reference to the core.
        entry: unsafe {
            TableEntry::open(Arc::as_ptr(&core).cast(), MailboxCore::<Q, R>::count_waiters)
        },
        core: core.clone(),
    };
    (Address { core }, mailbox)
}

/// Address to which clients send. Clones send to the same mailbox; `receive` fails once all are
/// dropped.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::msg;
/// use kumihimo::thread;
///
/// let (address, mailbox) = msg::mailbox::<u32, ()>();
/// for n in [1, 10, 100] {
///     let address = address.clone();
///     thread::spawn(move || address.send_recv(n).unwrap());
/// }
/// drop(address);
/// let mut sum = 0;
/// while let Ok(request) = mailbox.receive() {
///     sum += request.message;
///     request.from.reply(()).unwrap();
/// }
/// assert_eq!(sum, 111);
/// ```
pub struct Address<Q, R> {
    core: Arc<MailboxCore<Q, R>>,
}

/// Mailbox from which servers receive. If several servers receive, each request goes to one of
/// them. A resource of kind `mailbox`.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::msg;
/// use kumihimo::thread;
///
/// let (address, mailbox) = msg::mailbox::<u64, u64>();
/// thread::scope(|s| {
///     // Two servers of one mailbox.
///     for _ in 0..2 {
///         s.spawn(|| {
///             while let Ok(request) = mailbox.receive() {
///                 request.from.reply(request.message + 1).unwrap();
///             }
///         });
///     }
///     assert_eq!(address.send_recv(1), Ok(2));
///     assert_eq!(address.send_recv(2), Ok(3));
///     drop(address);
/// });
/// ```
pub struct Mailbox<Q, R> {
    /// Dropped before the core, to which the entry holds a pointer.
    #[cfg_attr(loom, allow(dead_code))]
    entry: TableEntry,
    core: Arc<MailboxCore<Q, R>>,
}

// SAFETY: requests and replies move from thread to thread, which `Q: Send` and `R: Send` allow; a
// lock guards the state.
unsafe impl<Q: Send, R: Send> Send for Address<Q, R> {}
// SAFETY: as above.
unsafe impl<Q: Send, R: Send> Sync for Address<Q, R> {}
// SAFETY: as above.
unsafe impl<Q: Send, R: Send> Send for Mailbox<Q, R> {}
// SAFETY: as above.
unsafe impl<Q: Send, R: Send> Sync for Mailbox<Q, R> {}
impl<Q, R> UnwindSafe for Address<Q, R> {}
impl<Q, R> RefUnwindSafe for Address<Q, R> {}
impl<Q, R> UnwindSafe for Mailbox<Q, R> {}
impl<Q, R> RefUnwindSafe for Mailbox<Q, R> {}

impl<Q, R> Address<Q, R> {
    /// Sends `message` and waits for the reply. Blocks the microprocess, or the kernel thread if
    /// the caller is not a microprocess. A cancellation point.
    ///
    /// # Errors
    /// [`SendRecvError::Closed`] if the mailbox is gone; [`SendRecvError::Unanswered`] if the
    /// server drops the request without a reply.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::msg::{self, SendRecvError};
    ///
    /// let (address, mailbox) = msg::mailbox::<&str, ()>();
    /// drop(mailbox);
    /// assert_eq!(address.send_recv("hello"), Err(SendRecvError::Closed("hello")));
    /// ```
    #[inline]
    pub fn send_recv(&self, message: Q) -> Result<R, SendRecvError<Q>> {
        self.call(message, None)
    }

    /// Sends like [`send_recv`](Address::send_recv), but gives up after `timeout`, whether or not a
    /// server has received the request. Blocks the microprocess, at most until then.
    ///
    /// # Errors
    /// As [`send_recv`](Address::send_recv), and [`SendRecvError::Timeout`].
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::msg::{self, SendRecvError};
    /// use std::time::Duration;
    ///
    /// let (address, _mailbox) = msg::mailbox::<u8, ()>();
    /// let outcome = address.send_recv_timeout(7, Duration::from_millis(5));
    /// assert_eq!(outcome, Err(SendRecvError::Timeout(Some(7))), "no server had received it");
    /// ```
    pub fn send_recv_timeout(&self, message: Q, timeout: Duration) -> Result<R, SendRecvError<Q>> {
        self.call(message, deadline::after(timeout))
    }

    /// Sends like [`send_recv`](Address::send_recv), but gives up at `deadline`, whether or not a
    /// server has received the request. Blocks the microprocess, at most until then.
    ///
    /// # Errors
    /// As [`send_recv`](Address::send_recv), and [`SendRecvError::Timeout`].
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::msg;
    /// use kumihimo::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// let (address, mailbox) = msg::mailbox::<i32, i32>();
    /// thread::scope(|s| {
    ///     s.spawn(|| {
    ///         let request = mailbox.receive().unwrap();
    ///         request.from.reply(-request.message).unwrap();
    ///     });
    ///     let deadline = Instant::now() + Duration::from_secs(60);
    ///     assert_eq!(address.send_recv_until(5, deadline), Ok(-5));
    /// });
    /// ```
    pub fn send_recv_until(&self, message: Q, deadline: Instant) -> Result<R, SendRecvError<Q>> {
        self.call(message, Some(deadline))
    }

    fn call(&self, message: Q, deadline: Option<Instant>) -> Result<R, SendRecvError<Q>> {
        point();
        let core = &*self.core;
        let signal = Signal::new();
        let mut call = ClientSlot {
            request: MaybeUninit::new(message),
            reply: MaybeUninit::uninit(),
            taken: Cell::new(false),
        };
        let node =
            Node::with(current(), &signal, ptr::from_mut::<ClientSlot<Q, R>>(&mut call).cast(), 0);
        let call: *const ClientSlot<Q, R> = node.slot.cast();
        // SAFETY: called only while the slot holds the request and no server can take it.
        let take_request = || unsafe { (*call).request.assume_init_read() };

        let mut guard = core.state.lock();
        let state = &mut *guard;
        if state.no_servers {
            drop(guard);
            return Err(SendRecvError::Closed(take_request()));
        }
        let server = state.servers.pop().map(|server| {
            // SAFETY: the slot of a waiting server is a `ServerSlot`, ours by the claim; both nodes
            // stay until they are unlinked.
            unsafe {
                let serial = take(&mut state.taken, &node, call);
                server.node.slot.cast::<ServerSlot<Q>>().write(ServerSlot {
                    request: MaybeUninit::new(take_request()),
                    from: &node,
                    serial,
                });
            }
            server.finish(DELIVERED)
        });
        if server.is_none() {
            // SAFETY: a server unlinks the node, or `on_unwind` below, or `withdraw`.
            unsafe { state.clients.insert(&node) };
        }
        drop(guard);
        if let Some(server) = &server {
            server.wake_sync();
        }

        let on_unwind = OnUnwind(|| {
            // Drops the content of the slot: the request if no server took it, or the reply if one
            // arrived during the cancellation.
            if core.withdraw(&node) == Withdrawal::Unreceived || signal.get() == Some(CLOSED) {
                drop(take_request());
            } else if signal.get() == Some(DELIVERED) {
                // SAFETY: `DELIVERED` means that the slot holds the reply.
                drop(unsafe { (*call).reply.assume_init_read() });
            }
        });
        let why = Wait::Message(ptr::from_ref(core).addr());
        if deadline.is_none() && signal.get().is_none() {
            // Once more: a cancellation since the check above leaves one permit, which a nap on
            // the spin lock may have taken.
            point();
            park(why, None);
        }
        let mut outcome = waitlist::wait_cancellable(&signal, why, deadline);
        std::mem::forget(on_unwind);
        if outcome.is_none() {
            match core.withdraw(&node) {
                Withdrawal::Unreceived => return Err(SendRecvError::Timeout(Some(take_request()))),
                Withdrawal::Received => return Err(SendRecvError::Timeout(None)),
                Withdrawal::Ended => outcome = signal.get(),
            }
        }
        match outcome {
            // SAFETY: `DELIVERED` means that the slot holds the reply.
            Some(DELIVERED) => Ok(unsafe { (*call).reply.assume_init_read() }),
            Some(CLOSED) => Err(SendRecvError::Closed(take_request())),
            _ => Err(SendRecvError::Unanswered),
        }
    }
}

impl<Q, R> Mailbox<Q, R> {
    /// Returns the mailbox's id in the resource table, or `None` if the table was full when the
    /// mailbox was created.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Kind;
    /// use kumihimo::sync::msg;
    ///
    /// let (_address, mailbox) = msg::mailbox::<(), ()>();
    /// assert_eq!(mailbox.resource().unwrap().kind(), Kind::MAILBOX);
    /// ```
    #[cfg(not(loom))]
    #[must_use]
    pub fn resource(&self) -> Option<kumihimo_resource::id::Id> {
        self.entry.id()
    }

    /// Waits for a request. Blocks the microprocess, or the kernel thread if the caller is not a
    /// microprocess. A cancellation point.
    ///
    /// # Errors
    /// Fails if there is no request and all addresses are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::msg;
    /// use kumihimo::thread;
    ///
    /// let (address, mailbox) = msg::mailbox::<Vec<u8>, usize>();
    /// let client = thread::spawn(move || address.send_recv(vec![1, 2, 3]).unwrap());
    /// let request = mailbox.receive().unwrap();
    /// assert_eq!(request.message, [1, 2, 3]);
    /// request.from.reply(request.message.len()).unwrap();
    /// assert_eq!(client.join().unwrap(), 3);
    /// ```
    #[inline]
    pub fn receive(&self) -> Result<Request<'_, Q, R>, RecvError> {
        self.core.serve(None, None).map_err(|_| RecvError)
    }

    /// Receives a request if there is one. Never blocks.
    ///
    /// # Errors
    /// [`ReceiveError::Closed`] if there is no request and all addresses are dropped;
    /// [`ReceiveError::Empty`] if there is only no request.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::msg::{self, ReceiveError};
    ///
    /// let (address, mailbox) = msg::mailbox::<(), ()>();
    /// assert_eq!(mailbox.try_receive().unwrap_err(), ReceiveError::Empty);
    /// drop(address);
    /// assert_eq!(mailbox.try_receive().unwrap_err(), ReceiveError::Closed);
    /// ```
    pub fn try_receive(&self) -> Result<Request<'_, Q, R>, ReceiveError> {
        let mut state = self.core.state.lock();
        match state.next(&self.core) {
            Some(request) => Ok(request),
            None if state.no_clients => Err(ReceiveError::Closed),
            None => Err(ReceiveError::Empty),
        }
    }

    /// Receives like [`receive`](Mailbox::receive), but gives up after `timeout`. Blocks the
    /// microprocess, at most until then.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] if the timeout expires; [`ReceiveError::Closed`] if there is no
    /// request and all addresses are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::msg::{self, ReceiveError};
    /// use std::time::Duration;
    ///
    /// let (_address, mailbox) = msg::mailbox::<(), ()>();
    /// let outcome = mailbox.receive_timeout(Duration::from_millis(5));
    /// assert_eq!(outcome.unwrap_err(), ReceiveError::Empty);
    /// ```
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Request<'_, Q, R>, ReceiveError> {
        self.core.serve(None, deadline::after(timeout))
    }

    /// Receives like [`receive`](Mailbox::receive), but gives up at `deadline`. Blocks the
    /// microprocess, at most until then.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] if the deadline passes; [`ReceiveError::Closed`] if there is no
    /// request and all addresses are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::msg;
    /// use kumihimo::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// let (address, mailbox) = msg::mailbox::<u8, ()>();
    /// let client = thread::spawn(move || address.send_recv(9).unwrap());
    /// let request = mailbox.receive_until(Instant::now() + Duration::from_secs(60)).unwrap();
    /// assert_eq!(request.message, 9);
    /// request.from.reply(()).unwrap();
    /// client.join().unwrap();
    /// ```
    pub fn receive_until(&self, deadline: Instant) -> Result<Request<'_, Q, R>, ReceiveError> {
        self.core.serve(None, Some(deadline))
    }

    /// Replies to a request and waits for the next request, in one step. If no other request waits,
    /// the client runs next. `to` may belong to another mailbox of the same types. Blocks the
    /// microprocess until there is a request.
    ///
    /// # Errors
    /// As [`receive`](Mailbox::receive). A reply to a client that has given up is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::msg;
    /// use kumihimo::thread;
    ///
    /// let (address, mailbox) = msg::mailbox::<String, String>();
    /// thread::scope(|s| {
    ///     s.spawn(|| {
    ///         let mut next = mailbox.receive();
    ///         while let Ok(request) = next {
    ///             next = mailbox.reply_and_receive(request.from, request.message.to_uppercase());
    ///         }
    ///     });
    ///     assert_eq!(address.send_recv("silk".into()).unwrap(), "SILK");
    ///     assert_eq!(address.send_recv("cord".into()).unwrap(), "CORD");
    ///     drop(address);
    /// });
    /// ```
    #[inline]
    pub fn reply_and_receive<'a>(
        &'a self,
        to: Caller<'a, Q, R>,
        reply: R,
    ) -> Result<Request<'a, Q, R>, RecvError> {
        self.reply_and_receive_limited(to, reply, None).map_err(|_| RecvError)
    }
}

impl<Q, R> Clone for Address<Q, R> {
    fn clone(&self) -> Address<Q, R> {
        let old = self.core.addresses.fetch_add(1, Relaxed);
        assert!(old < usize::MAX / 2, "too many addresses");
        Address { core: self.core.clone() }
    }
}

impl<Q, R> Drop for Address<Q, R> {
    fn drop(&mut self) {
        if self.core.addresses.fetch_sub(1, AcqRel) == 1 {
            self.core.state.lock().no_clients = true;
            self.core.close(|state| &mut state.servers);
        }
    }
}

impl<Q, R> Drop for Mailbox<Q, R> {
    fn drop(&mut self) {
        self.core.state.lock().no_servers = true;
        self.core.close(|state| &mut state.clients);
        // Each `Caller` borrows the mailbox, so it was dropped before the mailbox or was forgotten.
        // A forgotten `Caller` leaves its client in `taken`: end its wait.
        loop {
            let waiter =
                self.core.state.lock().taken.pop().map(|claimed| claimed.finish(UNANSWERED));
            match waiter {
                Some(waiter) => waiter.wake(),
                None => break,
            }
        }
    }
}

impl<Q, R> fmt::Debug for Address<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").finish_non_exhaustive()
    }
}

impl<Q, R> fmt::Debug for Mailbox<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}
