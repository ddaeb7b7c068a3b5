//! The synchronous message of the papers (P0): `send_recv` sends a request and waits for the reply;
//! the other side `receive`s, `reply`s, or does both in one call, `reply_and_receive`.
//!
//! A message goes from the stack of one microprocess to the stack of the other: nothing is
//! allocated, and the processor goes over with it (the woken one runs next where its peer ran).
//! Requests are received by the priority of their senders, then first come first served.
//!
//! All waits block the microprocess (or the kernel thread, if a caller is one) and
//! are *cancellation points*. A client that gives up (deadline, cancellation) takes its request
//! back if it was not received yet; otherwise the reply will find nobody and is returned to the
//! server. Sending *happens before* receiving, replying before the return of `send_recv`.
//!
//! ```
//! use kumihimo_sync::msg::{self, Request};
//! let (address, mailbox) = msg::mailbox::<u32, String>();
//! let server = std::thread::spawn(move || {
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
mod mailbox_core;
mod mailbox_table;
#[cfg(not(loom))]
mod resource_entry;
#[cfg(loom)]
#[path = "msg/resource_entry/loom.rs"]
mod resource_entry;
mod timed;

pub use errors::{ReceiveError, SendRecvError};
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
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::time::{Duration, Instant};

/// Makes a mailbox, and the first address under which it can be reached.
#[must_use]
pub fn mailbox<Q, R>() -> (Address<Q, R>, Mailbox<Q, R>) {
    let core = Arc::new(MailboxCore::new());
    let mailbox = Mailbox {
        // SAFETY: `count_waiters` is of this type; the mailbox drops its entry before its count of
        // the core.
        entry: unsafe {
            TableEntry::open(Arc::as_ptr(&core).cast(), MailboxCore::<Q, R>::count_waiters)
        },
        core: core.clone(),
    };
    (Address { core }, mailbox)
}

/// Sends `message` and waits for the reply. See [`Address::send_recv`].
///
/// # Errors
/// If there is nobody to receive it, or it was received and never answered.
#[inline]
pub fn send_recv<Q, R>(to: &Address<Q, R>, message: Q) -> Result<R, SendRecvError<Q>> {
    to.send_recv(message)
}

/// Waits for a request. See [`Mailbox::receive`].
///
/// # Errors
/// If there is none and all addresses are gone.
#[inline]
pub fn receive<Q, R>(mailbox: &Mailbox<Q, R>) -> Result<Request<'_, Q, R>, RecvError> {
    mailbox.receive()
}

/// Answers a request. See [`Caller::reply`].
///
/// # Errors
/// The reply comes back if the client has given up.
#[inline]
pub fn reply<Q, R>(to: Caller<'_, Q, R>, reply: R) -> Result<(), R> {
    to.reply(reply)
}

/// Answers a request and waits for the next in one step. See [`Mailbox::reply_and_receive`].
///
/// # Errors
/// As [`receive`]. A reply to a client that has given up is dropped.
#[inline]
pub fn reply_and_receive<'a, Q, R>(
    mailbox: &'a Mailbox<Q, R>,
    to: Caller<'a, Q, R>,
    reply: R,
) -> Result<Request<'a, Q, R>, RecvError> {
    mailbox.reply_and_receive(to, reply)
}

/// Where clients send to. Clone it for more clients; when all are gone, `receive` says so.
pub struct Address<Q, R> {
    core: Arc<MailboxCore<Q, R>>,
}

/// Where a server receives. Several may, each request going to one of them. A resource of kind
/// `mailbox`.
pub struct Mailbox<Q, R> {
    /// Dropped before the core.
    #[cfg_attr(loom, allow(dead_code))]
    entry: TableEntry,
    core: Arc<MailboxCore<Q, R>>,
}

// SAFETY: requests and replies go from thread to thread, which their being `Send` allows; the state
// is under a lock.
unsafe impl<Q: Send, R: Send> Send for Address<Q, R> {}
// SAFETY: as above.
unsafe impl<Q: Send, R: Send> Sync for Address<Q, R> {}
// SAFETY: as above.
unsafe impl<Q: Send, R: Send> Send for Mailbox<Q, R> {}
// SAFETY: as above.
unsafe impl<Q: Send, R: Send> Sync for Mailbox<Q, R> {}
// SAFETY: the node is only touched under the lock and after it was found in the list, by whichever
// thread.
unsafe impl<Q: Send, R: Send> Send for Caller<'_, Q, R> {}
// SAFETY: a shared `Caller` does nothing.
unsafe impl<Q: Send, R: Send> Sync for Caller<'_, Q, R> {}
impl<Q, R> UnwindSafe for Address<Q, R> {}
impl<Q, R> RefUnwindSafe for Address<Q, R> {}
impl<Q, R> UnwindSafe for Mailbox<Q, R> {}
impl<Q, R> RefUnwindSafe for Mailbox<Q, R> {}

impl<Q, R> Address<Q, R> {
    /// Sends `message` and waits for the reply.
    ///
    /// # Errors
    /// [`SendRecvError::Closed`] if there is no receiver, [`SendRecvError::Unanswered`] if the
    /// receiver dropped it.
    #[inline]
    pub fn send_recv(&self, message: Q) -> Result<R, SendRecvError<Q>> {
        self.call(message, None)
    }

    /// As [`send_recv`](Address::send_recv), but gives up after `timeout`, whether the request was
    /// received or not.
    ///
    /// # Errors
    /// As [`send_recv`](Address::send_recv), and [`SendRecvError::Timeout`].
    pub fn send_recv_timeout(&self, message: Q, timeout: Duration) -> Result<R, SendRecvError<Q>> {
        self.call(message, deadline::after(timeout))
    }

    /// As [`send_recv`](Address::send_recv), but gives up at `deadline`, whether the request was
    /// received or not.
    ///
    /// # Errors
    /// As [`send_recv`](Address::send_recv), and [`SendRecvError::Timeout`].
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
        // SAFETY: called where the request is in the slot and nobody else will take it.
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
            // SAFETY: unlinked by a server, by the guard below on unwinding, or by `withdraw`.
            unsafe { state.clients.insert(&node) };
        }
        drop(guard);
        if let Some(server) = &server {
            server.wake_sync();
        }

        let on_unwind = OnUnwind(|| {
            // What is in the slot at that time is dropped: our request, or a reply that came all
            // the same.
            if core.withdraw(&node) == Withdrawal::Unreceived || signal.get() == Some(CLOSED) {
                drop(take_request());
            } else if signal.get() == Some(DELIVERED) {
                // SAFETY: the outcome says that the reply is there.
                drop(unsafe { (*call).reply.assume_init_read() });
            }
        });
        let why = Wait::Message(ptr::from_ref(core).addr());
        if deadline.is_none() && signal.get().is_none() {
            // Cancellation was looked for on entry; a request since then has left a permit, which
            // ends this at once.
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
            // SAFETY: the outcome says that the reply is there.
            Some(DELIVERED) => Ok(unsafe { (*call).reply.assume_init_read() }),
            Some(CLOSED) => Err(SendRecvError::Closed(take_request())),
            _ => Err(SendRecvError::Unanswered),
        }
    }
}

impl<Q, R> Mailbox<Q, R> {
    /// Its id in the resource table. None where the table was full when it was made.
    #[cfg(not(loom))]
    #[must_use]
    pub fn resource(&self) -> Option<kumihimo_resource::id::Id> {
        self.entry.id()
    }

    /// Waits for a request.
    ///
    /// # Errors
    /// If there is none and all addresses are gone.
    #[inline]
    pub fn receive(&self) -> Result<Request<'_, Q, R>, RecvError> {
        self.core.serve(None, None).map_err(|_| RecvError)
    }

    /// Receives a request if there is one.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] if there is none; [`ReceiveError::Closed`] if all addresses are gone
    /// besides.
    pub fn try_receive(&self) -> Result<Request<'_, Q, R>, ReceiveError> {
        let mut state = self.core.state.lock();
        match state.next(&self.core) {
            Some(request) => Ok(request),
            None if state.no_clients => Err(ReceiveError::Closed),
            None => Err(ReceiveError::Empty),
        }
    }

    /// As [`receive`](Mailbox::receive), but gives up after `timeout`.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] if the time is over; [`ReceiveError::Closed`] if all addresses are
    /// gone.
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Request<'_, Q, R>, ReceiveError> {
        self.core.serve(None, deadline::after(timeout))
    }

    /// As [`receive`](Mailbox::receive), but gives up at `deadline`.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] if the time is over; [`ReceiveError::Closed`] if all addresses are
    /// gone.
    pub fn receive_until(&self, deadline: Instant) -> Result<Request<'_, Q, R>, ReceiveError> {
        self.core.serve(None, Some(deadline))
    }

    /// Answers a request and waits for the next, in one step: if no other request is there, the
    /// client runs next. `to` may have come from another mailbox of the same types.
    ///
    /// # Errors
    /// As [`receive`](Mailbox::receive). A reply to a client that has given up is dropped.
    #[inline]
    pub fn reply_and_receive<'a>(
        &'a self,
        to: Caller<'a, Q, R>,
        reply: R,
    ) -> Result<Request<'a, Q, R>, RecvError> {
        self.reply_and_receive_limited(to, reply, None).map_err(|_| RecvError)
    }
}

impl<Q, R> Caller<'_, Q, R> {
    /// Ends the client's wait with this reply. Does not block.
    ///
    /// # Errors
    /// The reply comes back if the client has given up.
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
        // Those whose request was received have a `Caller`, which borrows the mailbox and has been
        // dropped before it, or was forgotten: let nobody wait for ever.
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

impl<Q, R> fmt::Debug for Caller<'_, Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}
