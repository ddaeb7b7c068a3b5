//! Channel that `mpsc`, `mpmc` and `select!` share: a buffer and two wait lists under one
//! [`ChannelLock`]. The lock's word holds the only waiter of an otherwise idle channel.
//!
//! A sender that finds a waiting receiver writes the message to the receiver's stack and wakes it.
//! A receiver that finds a waiting sender takes the message from the sender's stack. The buffer is
//! used only while no thread waits at the other end. Therefore messages stay in order, no thread
//! overtakes a waiter, and a rendezvous channel needs no buffer.
//!
//! Memory ordering: every transfer goes through the lock or the waiter's signal, so sending happens
//! before receiving.

use crate::channel::buffer::{Block, Buffer};
use crate::channel::channel_lock::{ChannelLock, ChannelLockGuard, LockedState, Side};
use crate::loom::{AtomicUsize, NoEvents, Wait, Waiter, current, point};
use crate::wait::unwind::OnUnwind;
use crate::wait::waitlist::{self, Claimed, Node, Queue, Signal};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::time::Instant;

/// Outcomes of a wait at a channel, in the low `TAG_SHIFT` bits of the signal. The bits above hold
/// the waiter's tag, which for a `select!` is the number of its arm.
pub(crate) const DONE: u32 = 1;
pub(crate) const CLOSED: u32 = 2;
pub(crate) const TAG_SHIFT: u32 = 2;

pub(crate) fn outcome(node: &Node, code: u32) -> u32 {
    (node.tag as u32) << TAG_SHIFT | code
}

pub(crate) struct Chan<T> {
    state: ChannelLock<ChannelState<T>>,
    /// Maximum number of messages in the buffer; `usize::MAX` means unbounded.
    capacity: usize,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

struct ChannelState<T> {
    buffer: Buffer<T>,
    /// Maximum number of messages in the buffer; `usize::MAX` means unbounded.
    capacity: usize,
    sending: Queue,
    receiving: Queue,
    no_senders: bool,
    no_receivers: bool,
}

/// Error of an attempt that does not wait. Returns the message to the sender.
pub(crate) enum TryError<T> {
    WouldBlock(T),
    Closed(T),
}

/// Error of a wait. Returns the message to the sender.
pub(crate) enum WaitError<T> {
    TimedOut(T),
    Closed(T),
}

impl<T> Chan<T> {
    /// Creates a channel with one sender and one receiver.
    pub(crate) fn new(capacity: usize) -> Chan<T> {
        let state = ChannelState {
            buffer: Buffer::new(),
            capacity,
            sending: Queue::new(),
            receiving: Queue::new(),
            no_senders: false,
            no_receivers: false,
        };
        Chan {
            state: ChannelLock::new(state),
            capacity,
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
        }
    }

    pub(crate) fn add_sender(&self) {
        let old = self.senders.fetch_add(1, Relaxed);
        assert!(old < usize::MAX / 2, "too many senders");
    }

    pub(crate) fn add_receiver(&self) {
        let old = self.receivers.fetch_add(1, Relaxed);
        assert!(old < usize::MAX / 2, "too many receivers");
    }

    pub(crate) fn drop_sender(&self) {
        if self.senders.fetch_sub(1, AcqRel) == 1 {
            self.state.lock().no_senders = true;
            self.close(|state| &mut state.receiving);
        }
    }

    pub(crate) fn drop_receiver(&self) {
        if self.receivers.fetch_sub(1, AcqRel) == 1 {
            let mut state = self.state.lock();
            state.no_receivers = true;
            let buffer = std::mem::replace(&mut state.buffer, Buffer::new());
            drop(state);
            self.close(|state| &mut state.sending);
            // Dropped without the lock: the drop of a message may run user code.
            drop(buffer);
        }
    }

    /// Ends the waits of all threads in one of the queues. The caller has set the flag that keeps
    /// further threads from joining the queue.
    fn close(&self, queue: impl Fn(&mut ChannelState<T>) -> &mut Queue) {
        loop {
            let mut batch = [const { None }; 16];
            let mut state = self.state.lock();
            for place in &mut batch {
                *place = queue(&mut state).pop().map(|claimed| {
                    let outcome = outcome(claimed.node, CLOSED);
                    claimed.finish(outcome)
                });
            }
            drop(state);
            let more = batch.last().is_some_and(Option::is_some);
            // Without events no woken waiter runs on this VP before the whole batch is awake.
            let _quiet = NoEvents::new();
            batch.into_iter().flatten().for_each(|waiter: Waiter| waiter.wake());
            if !more {
                return;
            }
        }
    }

    /// Locks the state, with a spare block in the buffer if the next push needs one.
    fn lock_to_push(&self) -> ChannelLockGuard<'_, ChannelState<T>> {
        loop {
            let state = self.state.lock();
            if self.capacity == 0 || !state.buffer.wants_block() {
                return state;
            }
            drop(state);
            let block = Block::new();
            let back = self.state.lock().buffer.bring(block);
            drop(back);
        }
    }

    #[inline]
    pub(crate) fn try_send(&self, value: T) -> Result<(), TryError<T>> {
        if let Some(receiver) = self.state.take_waiter(Side::Receiver) {
            deliver(receiver, value).wake();
            return Ok(());
        }
        self.try_send_locked(value)
    }

    fn try_send_locked(&self, value: T) -> Result<(), TryError<T>> {
        let mut state = self.state.lock();
        if state.must_push() {
            drop(state);
            state = self.lock_to_push();
        }
        let (result, waiter) = state.send(value);
        drop(state);
        if let Some(waiter) = &waiter {
            waiter.wake();
        }
        result
    }

    /// Sends `value`, waiting while the channel is full. A cancellation point if it waits.
    #[inline]
    pub(crate) fn send(&self, value: T, deadline: Option<Instant>) -> Result<(), WaitError<T>> {
        if let Some(receiver) = self.state.take_waiter(Side::Receiver) {
            deliver(receiver, value).wake();
            return Ok(());
        }
        // A bounded channel may have room in its buffer, in which case the sender does not wait.
        let value = if self.capacity == 0 {
            value
        } else {
            match self.try_send_locked(value) {
                Ok(()) => return Ok(()),
                Err(TryError::Closed(value)) => return Err(WaitError::Closed(value)),
                Err(TryError::WouldBlock(value)) => value,
            }
        };
        self.send_waiting(value, deadline)
    }

    fn send_waiting(&self, value: T, deadline: Option<Instant>) -> Result<(), WaitError<T>> {
        point();
        let signal = Signal::new();
        let slot = UnsafeCell::new(MaybeUninit::new(value));
        let node = Node::with(current(), &signal, slot.get().cast(), 0);
        // SAFETY: the node leaves the word by an outcome, by the `OnUnwind` or by `withdraw` below;
        // the slot holds the value.
        let stands = self.capacity == 0 && unsafe { self.state.place_waiter(Side::Sender, &node) };
        if !stands {
            let mut state = self.lock_to_push();
            // SAFETY: the slot holds the value, and the node is in no queue, so no other thread has
            // the slot.
            let (result, waiter) = state.send(unsafe { (*slot.get()).assume_init_read() });
            match result {
                Ok(()) => {
                    drop(state);
                    if let Some(waiter) = &waiter {
                        waiter.wake();
                    }
                    return Ok(());
                }
                Err(TryError::Closed(value)) => return Err(WaitError::Closed(value)),
                // SAFETY: as above; the node is unlinked in the same ways as after `place_waiter`.
                Err(TryError::WouldBlock(value)) => unsafe {
                    (*slot.get()).write(value);
                    state.sending.insert(&node);
                },
            }
        }
        let withdraw = OnUnwind(|| {
            if self.withdraw(Side::Sender, &node) || signal.get() == Some(CLOSED) {
                // SAFETY: no receiver has taken the value, and none can: the node is in no queue.
                drop(unsafe { ptr::read(node.slot.cast::<T>()) });
            }
        });
        let outcome = waitlist::wait_cancellable(&signal, Wait::Channel(self.address()), deadline);
        std::mem::forget(withdraw);
        let outcome = outcome
            .or_else(|| if self.withdraw(Side::Sender, &node) { None } else { signal.get() });
        match outcome {
            Some(DONE) => Ok(()),
            // SAFETY: no receiver has taken the value, and none can: the node is in no queue.
            Some(_) => Err(WaitError::Closed(unsafe { slot.into_inner().assume_init() })),
            // SAFETY: as above.
            None => Err(WaitError::TimedOut(unsafe { slot.into_inner().assume_init() })),
        }
    }

    #[inline]
    pub(crate) fn try_recv(&self) -> Result<T, TryError<()>> {
        if let Some(sender) = self.state.take_waiter(Side::Sender) {
            let (value, waiter) = collect(sender);
            waiter.wake();
            return Ok(value);
        }
        self.try_recv_locked()
    }

    fn try_recv_locked(&self) -> Result<T, TryError<()>> {
        let mut state = self.state.lock();
        if !state.sending.is_empty() && state.must_push() {
            drop(state);
            state = self.lock_to_push();
        }
        let (result, waiter, freed) = state.recv();
        drop(state);
        drop(freed);
        if let Some(waiter) = &waiter {
            waiter.wake();
        }
        result
    }

    /// Receives a message, waiting while the channel is empty. A cancellation point if it waits.
    #[inline]
    pub(crate) fn recv(&self, deadline: Option<Instant>) -> Result<T, WaitError<()>> {
        if let Some(sender) = self.state.take_waiter(Side::Sender) {
            let (value, waiter) = collect(sender);
            waiter.wake();
            return Ok(value);
        }
        if !self.state.seems_idle() {
            match self.try_recv_locked() {
                Ok(value) => return Ok(value),
                Err(TryError::Closed(())) => return Err(WaitError::Closed(())),
                Err(TryError::WouldBlock(())) => {}
            }
        }
        self.recv_waiting(deadline)
    }

    fn recv_waiting(&self, deadline: Option<Instant>) -> Result<T, WaitError<()>> {
        point();
        let signal = Signal::new();
        let slot = UnsafeCell::new(MaybeUninit::<T>::uninit());
        let node = Node::with(current(), &signal, slot.get().cast(), 0);
        // SAFETY: the node leaves the word by an outcome, by the `OnUnwind` or by `withdraw` below;
        // the slot has room for a `T`.
        if !unsafe { self.state.place_waiter(Side::Receiver, &node) } {
            let mut state = self.lock_to_push();
            let (result, waiter, freed) = state.recv();
            match result {
                Ok(value) => {
                    drop(state);
                    drop(freed);
                    if let Some(waiter) = &waiter {
                        waiter.wake();
                    }
                    return Ok(value);
                }
                Err(TryError::Closed(())) => return Err(WaitError::Closed(())),
                Err(TryError::WouldBlock(())) => {}
            }
            // SAFETY: the node is unlinked in the same ways as after `place_waiter`.
            unsafe { state.receiving.insert(&node) };
        }
        let withdraw = OnUnwind(|| {
            if !self.withdraw(Side::Receiver, &node) && signal.get() == Some(DONE) {
                // SAFETY: `DONE` means that a sender filled the slot.
                self.put_back(unsafe { ptr::read(node.slot.cast::<T>()) });
            }
        });
        let outcome = waitlist::wait_cancellable(&signal, Wait::Channel(self.address()), deadline);
        std::mem::forget(withdraw);
        let outcome = outcome
            .or_else(|| if self.withdraw(Side::Receiver, &node) { None } else { signal.get() });
        match outcome {
            // SAFETY: `DONE` means that a sender filled the slot.
            Some(DONE) => Ok(unsafe { slot.into_inner().assume_init() }),
            Some(_) => Err(WaitError::Closed(())),
            None => Err(WaitError::TimedOut(())),
        }
    }

    /// Takes the caller's node out of the word or out of the state's queue. Returns false if
    /// another thread took the node first; its outcome is then stored.
    #[cold]
    fn withdraw(&self, side: Side, node: &Node) -> bool {
        if self.state.withdraw(side, node) {
            return true;
        }
        let mut state = self.state.lock();
        let queued = match side {
            Side::Receiver => state.receiving.remove(node),
            Side::Sender => state.sending.remove(node),
        };
        drop(state);
        if !queued {
            // A thread that claims a node from the word stores the outcome without the lock.
            node.await_outcome();
        }
        queued
    }

    /// Returns a message that was delivered to an unwinding receiver: to the first waiting
    /// receiver, or else to the front of the buffer.
    pub(crate) fn put_back(&self, value: T) {
        let mut state = self.state.lock();
        let waiter = match state.receiving.pop() {
            Some(claimed) => Some(deliver(claimed, value)),
            None => {
                state.buffer.push_front(value);
                None
            }
        };
        drop(state);
        if let Some(waiter) = &waiter {
            waiter.wake();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().buffer.len()
    }

    pub(crate) fn capacity(&self) -> Option<usize> {
        (self.capacity != usize::MAX).then_some(self.capacity)
    }

    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Queues a receiving node of a `select!`. Returns false, without queueing it, if a receive can
    /// succeed at once.
    ///
    /// # Safety
    /// As [`Queue::insert`]; the node's slot has room for a `T`.
    pub(crate) unsafe fn watch_recv(&self, node: &Node) -> bool {
        let mut state = self.state.lock();
        let ready = state.buffer.len() != 0
            || state.no_senders
            || state.sending.iter().any(|other| !ptr::eq(other.signal(), node.signal()));
        if !ready {
            // SAFETY: the caller keeps the contract of `insert`.
            unsafe { state.receiving.insert(node) };
        }
        !ready
    }

    /// Queues a sending node of a `select!`. Returns false, without queueing it, if a send can
    /// succeed at once.
    ///
    /// # Safety
    /// As [`Queue::insert`]; the node's slot holds a `T`, which a receiver has moved out if the
    /// outcome is `DONE`.
    pub(crate) unsafe fn watch_send(&self, node: &Node) -> bool {
        let mut state = self.state.lock();
        let ready = state.buffer.len() < state.capacity
            || state.no_receivers
            || state.receiving.iter().any(|other| !ptr::eq(other.signal(), node.signal()));
        if !ready {
            // SAFETY: the caller keeps the contract of `insert`.
            unsafe { state.sending.insert(node) };
        }
        !ready
    }

    pub(crate) fn unwatch_recv(&self, node: &Node) {
        self.state.lock().receiving.remove(node);
    }

    pub(crate) fn unwatch_send(&self, node: &Node) {
        self.state.lock().sending.remove(node);
    }
}

/// Writes the message to the slot of the claimed receiver.
fn deliver<T>(receiver: Claimed<'_>, value: T) -> Waiter {
    // SAFETY: the slot of a receiving node has room for a `T`, and the claim makes it ours.
    unsafe { receiver.node.slot.cast::<T>().write(value) };
    let outcome = outcome(receiver.node, DONE);
    receiver.finish(outcome)
}

/// Takes the message out of the slot of the claimed sender.
fn collect<T>(sender: Claimed<'_>) -> (T, Waiter) {
    // SAFETY: the slot of a sending node holds a `T`, and the claim makes it ours; the outcome
    // `DONE` records that the value has been moved out.
    let value = unsafe { sender.node.slot.cast::<T>().read() };
    let outcome = outcome(sender.node, DONE);
    (value, sender.finish(outcome))
}

impl<T> LockedState for ChannelState<T> {
    #[inline]
    fn is_idle(&self) -> bool {
        self.buffer.len() == 0
            && self.sending.is_empty()
            && self.receiving.is_empty()
            && !self.no_senders
            && !self.no_receivers
    }

    unsafe fn enqueue_waiter(&mut self, side: Side, node: &Node) {
        let queue = match side {
            Side::Receiver => &mut self.receiving,
            Side::Sender => &mut self.sending,
        };
        // SAFETY: the caller keeps the contract of `insert`.
        unsafe { queue.insert(node) };
    }
}

impl<T> ChannelState<T> {
    /// Whether the next operation may push a message and lacks a block for it.
    #[inline]
    fn must_push(&self) -> bool {
        self.capacity != 0 && self.receiving.is_empty() && self.buffer.wants_block()
    }

    #[inline]
    fn send(&mut self, value: T) -> (Result<(), TryError<T>>, Option<Waiter>) {
        if self.no_receivers {
            return (Err(TryError::Closed(value)), None);
        }
        if let Some(receiver) = self.receiving.pop() {
            return (Ok(()), Some(deliver(receiver, value)));
        }
        if self.buffer.len() >= self.capacity {
            return (Err(TryError::WouldBlock(value)), None);
        }
        if self.buffer.wants_block() {
            // All waiting receivers belonged to selects that other threads had completed. This is
            // rare, so the block is allocated under the lock.
            let _ = self.buffer.bring(Block::new());
        }
        self.buffer.push(value);
        (Ok(()), None)
    }

    #[inline]
    #[allow(clippy::type_complexity)]
    fn recv(&mut self) -> (Result<T, TryError<()>>, Option<Waiter>, Option<Box<Block<T>>>) {
        if let Some((value, freed)) = self.buffer.pop() {
            // The pop made room for the first waiting sender, unless `put_back` has overfilled the
            // buffer.
            let sender = if self.buffer.len() < self.capacity { self.sending.pop() } else { None };
            let waiter = sender.map(|sender| {
                let (value, waiter) = collect(sender);
                if self.buffer.wants_block() {
                    let _ = self.buffer.bring(Block::new());
                }
                self.buffer.push(value);
                waiter
            });
            return (Ok(value), waiter, freed);
        }
        if let Some(sender) = self.sending.pop() {
            let (value, waiter) = collect(sender);
            return (Ok(value), Some(waiter), None);
        }
        if self.no_senders {
            return (Err(TryError::Closed(())), None, None);
        }
        (Err(TryError::WouldBlock(())), None, None)
    }
}
