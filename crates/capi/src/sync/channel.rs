//! Channels: bounded queues of items of one size.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::PoisonError;
use std::time::Instant;

use kumihimo::sync::{Condvar, Mutex, MutexGuard};

use crate::error::{Failure, catch_failure};
use crate::gate::bytes::{self, cleared_out, non_null};
use crate::object::Users;
use crate::time;

/// Largest size of an item, `KUMI_CHANNEL_MAX_ITEM`.
pub const MAX_ITEM: usize = 65_536;
/// Largest number of items, `KUMI_CHANNEL_MAX_CAPACITY`.
pub const MAX_CAPACITY: usize = 1 << 24;

/// `kumi_channel`.
pub struct Channel {
    item_size: usize,
    capacity: usize,
    state: Mutex<State>,
    /// Signalled for each item that is added.
    filled: Condvar,
    /// Signalled for each item that is removed.
    drained: Condvar,
    users: Users,
}

struct State {
    /// The items one after the other.
    items: VecDeque<u8>,
    is_closed: bool,
    /// Number of threads that wait in a function.
    waiting: usize,
}

impl Channel {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change. `None`: the deadline has passed.
    fn wait<'a>(
        &'a self,
        changed: &Condvar,
        mut state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> Option<MutexGuard<'a, State>> {
        state.waiting += 1;
        let waiter = Waiter(self);
        let (mut state, in_time) = match deadline {
            None => (changed.wait(state).unwrap_or_else(PoisonError::into_inner), true),
            Some(deadline) => {
                let (state, result) =
                    changed.wait_until(state, deadline).unwrap_or_else(PoisonError::into_inner);
                (state, !result.timed_out())
            }
        };
        std::mem::forget(waiter);
        state.waiting -= 1;
        in_time.then_some(state)
    }

    fn send(&self, item: &[u8], deadline: Option<Instant>) -> Result<(), Failure> {
        let mut state = self.state();
        while !state.is_closed && state.items.len() == self.capacity * self.item_size {
            state = self.wait(&self.drained, state, deadline).ok_or_else(late)?;
        }
        if state.is_closed {
            return Err(closed());
        }
        state.items.extend(item);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    fn receive(&self, item: *mut u8, deadline: Option<Instant>) -> Result<(), Failure> {
        let mut state = self.state();
        while state.items.is_empty() {
            if state.is_closed {
                return Err(closed());
            }
            state = self.wait(&self.filled, state, deadline).ok_or_else(late)?;
        }
        let (first, second) = state.items.as_slices();
        let (first, second) = (
            &first[..first.len().min(self.item_size)],
            &second[..self.item_size.saturating_sub(first.len())],
        );
        // SAFETY: by the interface's contract `item` has room for an item, which is not in the
        // queue.
        unsafe {
            std::ptr::copy_nonoverlapping(first.as_ptr(), item, first.len());
            std::ptr::copy_nonoverlapping(second.as_ptr(), item.add(first.len()), second.len());
        }
        state.items.drain(..self.item_size);
        drop(state);
        self.drained.notify_one();
        Ok(())
    }
}

/// Removes a waiter whose wait unwinds from the count.
struct Waiter<'a>(&'a Channel);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

fn closed() -> Failure {
    Failure::constant(libc::EPIPE, c"the channel is closed")
}

fn late() -> Failure {
    Failure::constant(libc::ETIMEDOUT, c"the channel was not ready within the time limit")
}

/// Creates a channel. See kumihimo/channel.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_channel_create(
    out: *mut *mut Channel,
    item_size: usize,
    capacity: usize,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let out = unsafe { cleared_out(out) }?;
        if !(1..=MAX_ITEM).contains(&item_size) || !(1..=MAX_CAPACITY).contains(&capacity) {
            return Err(Failure::invalid(format!(
                "a channel for {capacity} items of {item_size} bytes: 1 to {MAX_CAPACITY} items of 1 to {MAX_ITEM} bytes are possible"
            )));
        }
        let state = State { items: VecDeque::new(), is_closed: false, waiting: 0 };
        let channel = Channel {
            item_size,
            capacity,
            state: Mutex::new(state),
            filled: Condvar::new(),
            drained: Condvar::new(),
            users: Users::default(),
        };
        *out = Box::into_raw(Box::new(channel));
        Ok(())
    })
}

/// Adds an item. See kumihimo/channel.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_channel_send(
    channel: *const Channel,
    item: *const c_void,
    timeout_ns: i64,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let channel = unsafe { non_null(channel, "channel") }?;
        let _user = channel.users.enter();
        // SAFETY: the interface's contract.
        let item = unsafe { bytes::slice(item, channel.item_size, "item") }?;
        channel.send(item, time::deadline(timeout_ns)?)
    })
}

/// Removes the oldest item. See kumihimo/channel.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_channel_receive(
    channel: *const Channel,
    item: *mut c_void,
    timeout_ns: i64,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let channel = unsafe { non_null(channel, "channel") }?;
        let _user = channel.users.enter();
        if item.is_null() {
            return Err(Failure::invalid("item is NULL"));
        }
        channel.receive(item.cast(), time::deadline(timeout_ns)?)
    })
}

/// Closes a channel. See kumihimo/channel.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_channel_close(channel: *const Channel) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let channel = unsafe { non_null(channel, "channel") }?;
        let _user = channel.users.enter();
        channel.state().is_closed = true;
        channel.filled.notify_all();
        channel.drained.notify_all();
        Ok(())
    })
}

/// Returns the number of items; 0 for NULL. See kumihimo/channel.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_channel_length(channel: *const Channel) -> usize {
    // SAFETY: the interface's contract.
    unsafe { non_null(channel, "channel") }
        .map_or(0, |channel| channel.state().items.len() / channel.item_size)
}

/// Returns the number of threads that wait in a channel; 0 for NULL. See kumihimo/channel.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_channel_waiting(channel: *const Channel) -> usize {
    // SAFETY: the interface's contract.
    unsafe { non_null(channel, "channel") }.map_or(0, |channel| channel.state().waiting)
}

/// Frees a channel. See kumihimo/channel.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_channel_destroy(channel: *mut Channel) -> c_int {
    catch_failure(|| {
        if channel.is_null() {
            return Ok(());
        }
        // SAFETY: the interface's contract.
        let in_use = unsafe { non_null(channel, "channel") }?;
        if in_use.state().waiting != 0 {
            return Err(Failure::new(
                libc::EBUSY,
                "threads wait in the channel: close it, and join them",
            ));
        }
        in_use.users.wait_while(|| true);
        // SAFETY: the interface's contract: from `kumi_channel_create`, and not used any more.
        drop(unsafe { Box::from_raw(channel) });
        Ok(())
    })
}
