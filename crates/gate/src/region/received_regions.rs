//! Regions that the other side has passed. They come over the socket; requests and replies name
//! them by number.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use kumihimo_runtime::lock;
use kumihimo_runtime::park::{self, Wait, Waiter};

use crate::error::{Error, ErrorKind};
use crate::quota::LinkAccount;
use crate::region::sealed::Region;

/// Most records that may have been sent before a region and not be received yet when a request
/// names it. A socket's buffer of the default size holds some 300.
const MOST_BEHIND: u64 = 1024;

pub(crate) struct ReceivedRegions {
    state: Mutex<ReceivedState>,
    account: Arc<LinkAccount>,
}

impl Default for ReceivedRegions {
    fn default() -> ReceivedRegions {
        ReceivedRegions::of(LinkAccount::default())
    }
}

#[derive(Default)]
struct ReceivedState {
    of: HashMap<u64, Region>,
    waiting: Vec<Waiter>,
    /// Regions that have come.
    passed: u64,
    /// How often all that had come was received.
    turns: u64,
    ended: Option<Error>,
}

impl ReceivedRegions {
    /// Of a link that charges this account.
    pub(crate) fn of(account: LinkAccount) -> ReceivedRegions {
        ReceivedRegions { state: Mutex::default(), account: Arc::new(account) }
    }

    /// Adds a region that has come. Called by the link poller.
    ///
    /// # Errors
    /// `Exhausted`: the quota that it exceeds; no address space. `Malformed`: it is no sealed
    /// memory of this size.
    pub(crate) fn insert(&self, id: u64, fd: OwnedFd, length: u64) -> Result<(), Error> {
        let length = usize::try_from(length)
            .map_err(|_| Error::new(ErrorKind::TooLarge, format!("a region of {length} bytes")))?;
        let charge = self.account.charge(length)?;
        let region = Region::receive_charged(fd, length, Some(charge))?;
        let mut state = lock(&self.state);
        let before = state.of.insert(id, region);
        state.passed += 1;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.iter().for_each(Waiter::wake);
        drop(before);
        Ok(())
    }

    pub(crate) fn forget(&self, id: u64) {
        let gone = lock(&self.state).of.remove(&id);
        drop(gone);
    }

    /// Records that all that had come was received.
    pub(crate) fn received_all(&self) {
        let waiting = {
            let mut state = lock(&self.state);
            state.turns += 1;
            std::mem::take(&mut state.waiting)
        };
        waiting.iter().for_each(Waiter::wake);
    }

    /// Ends all waits: the link has ended.
    pub(crate) fn end(&self, why: &Error) {
        let waiting = {
            let mut state = lock(&self.state);
            state.ended = Some(why.clone());
            std::mem::take(&mut state.waiting)
        };
        waiting.iter().for_each(Waiter::wake);
    }

    /// A region that a request or reply names. It was sent before that, so only the link poller's
    /// turn is waited for, which `look` asks for. `take`: it is not named again. Blocks the
    /// microprocess; a cancellation point.
    ///
    /// # Errors
    /// `Malformed`: the other side has not passed it. `Gone`.
    pub(crate) fn get(&self, id: u64, take: bool, look: impl Fn()) -> Result<Region, Error> {
        let mut since = None;
        loop {
            {
                let mut state = lock(&self.state);
                let found = if take { state.of.remove(&id) } else { state.of.get(&id).cloned() };
                if let Some(found) = found {
                    return Ok(found);
                }
                if let Some(why) = &state.ended {
                    return Err(why.clone());
                }
                let (turns, passed) = *since.get_or_insert((state.turns, state.passed));
                // The first turn may have begun before the region was sent.
                if state.turns >= turns + 2 || state.passed >= passed + MOST_BEHIND {
                    let text =
                        format!("region {id} is named by the other side, which has not passed it");
                    return Err(Error::new(ErrorKind::Malformed, text));
                }
                let me = park::current();
                if !state.waiting.contains(&me) {
                    state.waiting.push(me);
                }
            }
            look();
            // Before the park: a cancellation leaves one permit, which the call may have taken
            // together with its reply.
            kumihimo_runtime::cancel::point();
            park::park(Wait::Gate(0), None);
        }
    }
}

#[cfg(test)]
mod tests;
