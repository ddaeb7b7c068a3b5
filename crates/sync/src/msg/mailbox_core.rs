//! State that the two sides of a mailbox share: the waiting threads, and the client of each
//! request.

use super::errors::ReceiveError;
use super::mailbox_table::{self, MailboxState};
use crate::loom::{AtomicUsize, Wait, Waiter, current};
use crate::wait::unwind::OnUnwind;
use crate::wait::waitlist::{self, Node, Queue, Signal};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Instant;

/// The waiter's slot holds a reply, or for a server a request.
pub(super) const DELIVERED: u32 = 1;
pub(super) const CLOSED: u32 = 2;
pub(super) const UNANSWERED: u32 = 3;

/// Request that a server has received.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::msg::{self, Request};
/// use kumihimo::thread;
///
/// let (address, mailbox) = msg::mailbox::<(u32, u32), u32>();
/// let client = thread::spawn(move || address.send_recv((6, 7)).unwrap());
/// let Request { message: (a, b), from } = mailbox.receive().unwrap();
/// from.reply(a * b).unwrap();
/// assert_eq!(client.join().unwrap(), 42);
/// ```
#[derive(Debug)]
pub struct Request<'a, Q, R> {
    /// The client's message.
    pub message: Q,
    /// The client, to which the reply goes.
    pub from: Caller<'a, Q, R>,
}

/// Client that waits for a reply. Dropping it without a reply ends the client's wait with
/// [`SendRecvError::Unanswered`](super::errors::SendRecvError::Unanswered).
///
/// # Examples
///
/// ```
/// use kumihimo::sync::msg;
/// use kumihimo::thread;
///
/// // A server can receive several requests before it replies, and in any order.
/// let (address, mailbox) = msg::mailbox::<(), u32>();
/// let call = || {
///     let address = address.clone();
///     thread::spawn(move || address.send_recv(()).unwrap())
/// };
/// let clients = [call(), call()];
/// let (one, two) = (mailbox.receive().unwrap().from, mailbox.receive().unwrap().from);
/// two.reply(2).unwrap();
/// one.reply(1).unwrap();
/// assert_eq!(clients.map(|client| client.join().unwrap()).iter().sum::<u32>(), 3);
/// ```
#[must_use = "the client waits for a reply"]
pub struct Caller<'a, Q, R> {
    pub(super) core: &'a MailboxCore<Q, R>,
    pub(super) node: *const Node,
    pub(super) serial: u64,
}

pub(super) struct MailboxCore<Q, R> {
    pub(super) state: MailboxState<MailboxQueues<Q, R>>,
    pub(super) addresses: AtomicUsize,
}

pub(super) struct MailboxQueues<Q, R> {
    /// Clients whose request no server has received yet.
    pub(super) clients: Queue,
    /// Clients whose request a server has received. A [`Caller`] is valid while its client is in
    /// this queue.
    pub(super) taken: Queue,
    /// Servers that wait for a request.
    pub(super) servers: Queue,
    pub(super) no_clients: bool,
    pub(super) no_servers: bool,
    pub(super) types: std::marker::PhantomData<fn(Q) -> R>,
}

/// Data of a waiting client, on its stack. The slot of the client's node points to it.
pub(super) struct ClientSlot<Q, R> {
    pub(super) request: MaybeUninit<Q>,
    pub(super) reply: MaybeUninit<R>,
    /// Whether the node is in `taken` or in `clients`. Accessed under the lock.
    pub(super) taken: Cell<bool>,
}

/// Data of a waiting server, on its stack. The slot of the server's node points to it.
pub(super) struct ServerSlot<Q> {
    pub(super) request: MaybeUninit<Q>,
    pub(super) from: *const Node,
    pub(super) serial: u64,
}

#[derive(PartialEq, Eq)]
pub(super) enum Withdrawal {
    Unreceived,
    Received,
    Ended,
}

impl<Q, R> MailboxCore<Q, R> {
    /// Creates a mailbox with one address and no waiter.
    pub(super) fn new() -> MailboxCore<Q, R> {
        let state = MailboxQueues {
            clients: Queue::new(),
            taken: Queue::new(),
            servers: Queue::new(),
            no_clients: false,
            no_servers: false,
            types: std::marker::PhantomData,
        };
        MailboxCore { state: mailbox_table::state(state), addresses: AtomicUsize::new(1) }
    }

    /// Counts the waiters, for the usage table of the resource kind.
    ///
    /// # Safety
    /// `core` points to a live `MailboxCore<Q, R>`.
    pub(super) unsafe fn count_waiters(core: *const ()) -> [usize; 3] {
        // SAFETY: the caller's contract.
        let state = unsafe { &*core.cast::<MailboxCore<Q, R>>() }.state.lock();
        [&state.clients, &state.taken, &state.servers].map(|queue| queue.iter().count())
    }

    /// Withdraws the node of a client that gives up. Returns how far its request got.
    pub(super) fn withdraw(&self, node: &Node) -> Withdrawal {
        let mut state = self.state.lock();
        // SAFETY: the slot of a client's node is its `ClientSlot`, on our caller's stack.
        let taken = unsafe { &*node.slot.cast::<ClientSlot<Q, R>>() }.taken.get();
        match (taken, if taken { state.taken.remove(node) } else { state.clients.remove(node) }) {
            (_, false) => Withdrawal::Ended,
            (false, true) => Withdrawal::Unreceived,
            (true, true) => Withdrawal::Received,
        }
    }

    /// Sends the reply in `answer`, if there is one, and waits for the next request.
    pub(super) fn serve(
        &self,
        answer: Option<(*const Node, u64, R)>,
        deadline: Option<Instant>,
    ) -> Result<Request<'_, Q, R>, ReceiveError> {
        let mut unsent = None;
        let mut client = None;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some((node, serial, reply)) = answer {
            match state.answer(node, serial, Ok(reply)) {
                Ok(waiter) => client = Some(waiter),
                Err(reply) => unsent = reply,
            }
        }
        let next = state.next(self);
        if next.is_some() || state.no_clients {
            drop(guard);
            if let Some(client) = &client {
                client.wake();
            }
            drop(unsent);
            return next.ok_or(ReceiveError::Closed);
        }

        let signal = Signal::new();
        let mut letter = MaybeUninit::<ServerSlot<Q>>::uninit();
        let node = Node::with(current(), &signal, letter.as_mut_ptr().cast(), 0);
        // SAFETY: a client unlinks the node, or `on_unwind` below, or the code after the deadline.
        unsafe { state.servers.insert(&node) };
        drop(guard);
        if let Some(client) = &client {
            client.wake_sync();
        }
        drop(unsent);

        let on_unwind = OnUnwind(|| {
            if !self.state.lock().servers.remove(&node) && signal.get() == Some(DELIVERED) {
                // SAFETY: `DELIVERED` means that the slot holds a request.
                self.put_back(unsafe { node.slot.cast::<ServerSlot<Q>>().read() });
            }
        });
        let outcome = waitlist::wait_cancellable(
            &signal,
            Wait::Message(ptr::from_ref(self).addr()),
            deadline,
        );
        std::mem::forget(on_unwind);
        let outcome = outcome.or_else(|| {
            let queued = self.state.lock().servers.remove(&node);
            if queued { None } else { signal.get() }
        });
        match outcome {
            Some(DELIVERED) => {
                // SAFETY: `DELIVERED` means that the slot holds a request.
                let (letter, message) = unsafe {
                    let letter = letter.assume_init();
                    let message = letter.request.assume_init_read();
                    (letter, message)
                };
                Ok(Request {
                    message,
                    from: Caller { core: self, node: letter.from, serial: letter.serial },
                })
            }
            Some(_) => Err(ReceiveError::Closed),
            None => Err(ReceiveError::Empty),
        }
    }

    /// Returns the request that an unwinding server had received, so that another server receives
    /// it.
    pub(super) fn put_back(&self, letter: ServerSlot<Q>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        // SAFETY: the slot still holds its request.
        let request = unsafe { letter.request.assume_init() };
        let Some(node) = state.find(letter.from, letter.serial) else {
            drop(guard);
            drop(request);
            return;
        };
        let server = state.servers.pop();
        if let Some(server) = server {
            let again = ServerSlot {
                request: MaybeUninit::new(request),
                from: letter.from,
                serial: letter.serial,
            };
            // SAFETY: the slot of a waiting server is a `ServerSlot`, ours by the claim.
            unsafe { server.node.slot.cast::<ServerSlot<Q>>().write(again) };
            let server = server.finish(DELIVERED);
            drop(guard);
            server.wake();
            return;
        }
        state.taken.remove(node);
        let call = node.slot.cast::<ClientSlot<Q, R>>();
        // SAFETY: the node is in `taken`, so the client is alive, and we hold the lock. The request
        // was moved out of the slot.
        unsafe {
            ptr::addr_of_mut!((*call).request).write(MaybeUninit::new(request));
            (*call).taken.set(false);
            // The node's turn was given out by `taken`. It is mostly smaller than the turns in
            // `clients`, which puts the request near the front of its priority.
            state.clients.insert(node);
        }
    }

    pub(super) fn close(&self, queue: impl Fn(&mut MailboxQueues<Q, R>) -> &mut Queue) {
        loop {
            let mut state = self.state.lock();
            let waiter = queue(&mut state).pop().map(|claimed| claimed.finish(CLOSED));
            drop(state);
            match waiter {
                Some(waiter) => waiter.wake(),
                None => return,
            }
        }
    }
}

/// Adds a client that is in no queue to `taken`, the queue of clients whose request was received.
///
/// # Safety
/// As [`Queue::insert`]; `call` is the node's slot.
#[inline]
pub(super) unsafe fn take<Q, R>(
    taken: &mut Queue,
    node: &Node,
    call: *const ClientSlot<Q, R>,
) -> u64 {
    // SAFETY: the caller's contract.
    unsafe {
        (*call).taken.set(true);
        taken.insert_last(node)
    }
}

impl<Q, R> MailboxQueues<Q, R> {
    /// Receives the next request if one is queued.
    #[inline]
    pub(super) fn next<'a>(&mut self, core: &'a MailboxCore<Q, R>) -> Option<Request<'a, Q, R>> {
        let node: *const Node = self.clients.pop()?.node;
        // SAFETY: the node was popped but its wait has not ended, so the client stays until its
        // node is no longer in `taken`. Its slot is a `ClientSlot` that holds the request.
        unsafe {
            let call: *const ClientSlot<Q, R> = (*node).slot.cast();
            let serial = take(&mut self.taken, &*node, call);
            let message = (*call).request.assume_init_read();
            Some(Request { message, from: Caller { core, node, serial } })
        }
    }

    /// Finds the waiting client that a [`Caller`] refers to. Returns `None` if that call has ended.
    #[inline]
    pub(super) fn find<'n>(&self, node: *const Node, serial: u64) -> Option<&'n Node> {
        // The pointer alone does not identify the call: the client may have returned, or be waiting
        // in a later call. The pointer is dereferenced only once the node is found in `taken`.
        let found = self.taken.iter().find(|n| ptr::eq(*n, node))?;
        // SAFETY: a linked node is alive while the lock is held, and our callers hold it.
        (found.turn() == serial).then_some(unsafe { &*node })
    }

    /// Ends the wait of a client with a reply, or without a reply for `Err`. Returns the reply if
    /// the client is gone.
    #[inline]
    pub(super) fn answer(
        &mut self,
        node: *const Node,
        serial: u64,
        reply: Result<R, ()>,
    ) -> Result<Waiter, Option<R>> {
        let Some(node) = self.find(node, serial) else { return Err(reply.ok()) };
        let client = self.taken.take(node);
        let outcome = match reply {
            Ok(reply) => {
                let call = node.slot.cast::<ClientSlot<Q, R>>();
                // SAFETY: the slot of a client's node is its `ClientSlot`; the client is in
                // `taken`, hence alive, and we hold the lock.
                unsafe { ptr::addr_of_mut!((*call).reply).write(MaybeUninit::new(reply)) };
                DELIVERED
            }
            Err(()) => UNANSWERED,
        };
        Ok(client.finish(outcome))
    }
}
