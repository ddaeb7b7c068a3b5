//! What the sides of a mailbox have in common: the waiters there, and which request is whose.

use super::errors::ReceiveError;
use super::mailbox_table::{self, MailboxState};
use crate::loom::{AtomicUsize, Wait, Waiter, current};
use crate::wait::unwind::OnUnwind;
use crate::wait::waitlist::{self, Node, Queue, Signal};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Instant;

/// A reply, or to a server a request, lies in the waiter's slot.
pub(super) const DELIVERED: u32 = 1;
pub(super) const CLOSED: u32 = 2;
pub(super) const UNANSWERED: u32 = 3;

/// A request that was received.
#[derive(Debug)]
pub struct Request<'a, Q, R> {
    /// What the client sent.
    pub message: Q,
    /// The receiver of the reply.
    pub from: Caller<'a, Q, R>,
}

/// A client that waits for the reply. Dropping it without one ends the client's wait with
/// [`SendRecvError::Unanswered`](super::errors::SendRecvError::Unanswered).
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
    /// Clients whose request nobody has received yet.
    pub(super) clients: Queue,
    /// Clients whose request was received; a [`Caller`] is valid while its client is here.
    pub(super) taken: Queue,
    /// Servers that wait.
    pub(super) servers: Queue,
    pub(super) no_clients: bool,
    pub(super) no_servers: bool,
    pub(super) types: std::marker::PhantomData<fn(Q) -> R>,
}

/// On a client's stack, in its node's slot.
pub(super) struct ClientSlot<Q, R> {
    pub(super) request: MaybeUninit<Q>,
    pub(super) reply: MaybeUninit<R>,
    /// In which queue the node is. Under the lock.
    pub(super) taken: Cell<bool>,
}

/// On a waiting server's stack, in its node's slot.
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
    /// Nobody waits, and there is one address.
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

    /// For the usage table.
    ///
    /// # Safety
    /// `core` is one of this type, and alive.
    pub(super) unsafe fn count_waiters(core: *const ()) -> [usize; 3] {
        // SAFETY: the caller's promise.
        let state = unsafe { &*core.cast::<MailboxCore<Q, R>>() }.state.lock();
        [&state.clients, &state.taken, &state.servers].map(|queue| queue.iter().count())
    }

    /// A client gives up.
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

    /// Replies, if there is something to reply, and waits for the next request.
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
        // SAFETY: unlinked by a client, by the guard below on unwinding, or after the deadline.
        unsafe { state.servers.insert(&node) };
        drop(guard);
        if let Some(client) = &client {
            client.wake_sync();
        }
        drop(unsent);

        let on_unwind = OnUnwind(|| {
            if !self.state.lock().servers.remove(&node) && signal.get() == Some(DELIVERED) {
                // SAFETY: the outcome says that the letter is there.
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
                // SAFETY: the outcome says that the letter is there, with the request in it.
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

    /// A server that unwinds had been given a request: it goes back, to be received by another.
    pub(super) fn put_back(&self, letter: ServerSlot<Q>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        // SAFETY: the letter holds its request.
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
        // SAFETY: found in `taken`, so the client is still there, and we hold the lock. The request
        // was moved out of the slot.
        unsafe {
            ptr::addr_of_mut!((*call).request).write(MaybeUninit::new(request));
            (*call).taken.set(false);
            // Its turn is one of `taken`'s, small beside those that wait: it comes early among its
            // equals.
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

/// Moves a client that is in no queue to those whose request was received.
///
/// # Safety
/// As [`Queue::insert`]; `call` is the node's slot.
#[inline]
pub(super) unsafe fn take<Q, R>(
    taken: &mut Queue,
    node: &Node,
    call: *const ClientSlot<Q, R>,
) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        (*call).taken.set(true);
        taken.insert_last(node)
    }
}

impl<Q, R> MailboxQueues<Q, R> {
    /// The next request that is there already.
    #[inline]
    pub(super) fn next<'a>(&mut self, core: &'a MailboxCore<Q, R>) -> Option<Request<'a, Q, R>> {
        let node: *const Node = self.clients.pop()?.node;
        // SAFETY: popped and not ended: the client stays until it finds itself out of `taken`. Its
        // slot is a `ClientSlot` that holds the request.
        unsafe {
            let call: *const ClientSlot<Q, R> = (*node).slot.cast();
            let serial = take(&mut self.taken, &*node, call);
            let message = (*call).request.assume_init_read();
            Some(Request { message, from: Caller { core, node, serial } })
        }
    }

    /// The client that a [`Caller`] means, if it still waits.
    #[inline]
    pub(super) fn find<'n>(&self, node: *const Node, serial: u64) -> Option<&'n Node> {
        // The pointer alone says nothing: the client may be gone, or have come again. It is
        // followed only once found.
        let found = self.taken.iter().find(|n| ptr::eq(*n, node))?;
        // SAFETY: linked, hence alive, while the lock is held, which our callers see to.
        (found.turn() == serial).then_some(unsafe { &*node })
    }

    /// Ends the wait of a client, with a reply or (`Err`) without. Gives the reply back if the
    /// client is gone.
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
                // SAFETY: the slot of a client's node is its `ClientSlot`; the client is still
                // there, and we hold the lock.
                unsafe { ptr::addr_of_mut!((*call).reply).write(MaybeUninit::new(reply)) };
                DELIVERED
            }
            Err(()) => UNANSWERED,
        };
        Ok(client.finish(outcome))
    }
}
