//! Regions that the other side has passed. They come over the socket; requests and replies name
//! them by number.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kumihimo_runtime::lock;
use kumihimo_runtime::park::{self, Wait, Waiter};

use crate::error::{Error, ErrorKind};
use crate::region::sealed::Region;

/// Most regions of one link: each takes a mapping.
const MOST: usize = 1024;
/// Time to wait for a region. It is sent before the request that names it, so only the link
/// poller's turn is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct ReceivedRegions {
    state: Mutex<ReceivedState>,
}

#[derive(Default)]
struct ReceivedState {
    of: HashMap<u64, Result<Region, Error>>,
    waiting: Vec<Waiter>,
    ended: Option<Error>,
}

impl ReceivedRegions {
    /// Adds a region that has come. Called by the link poller.
    pub(crate) fn insert(&self, id: u64, fd: OwnedFd, length: u64) {
        let region = usize::try_from(length)
            .map_err(|_| Error::new(ErrorKind::TooLarge, format!("a region of {length} bytes")))
            .and_then(|length| Region::receive(fd, length));
        let mut state = lock(&self.state);
        let region = if state.of.len() >= MOST {
            Err(Error::new(
                ErrorKind::Exhausted,
                format!("more than {MOST} regions of one link at once: forget some"),
            ))
        } else {
            region
        };
        let before = state.of.insert(id, region);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.iter().for_each(Waiter::wake);
        drop(before);
    }

    pub(crate) fn forget(&self, id: u64) {
        let gone = lock(&self.state).of.remove(&id);
        drop(gone);
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

    /// A region that a request or reply names; it may come a moment later than that. `take`: it is
    /// not named again. Blocks the microprocess, for 10 s at most; a cancellation point.
    ///
    /// # Errors
    /// `Malformed`: it is no sealed memory of the stated size, or does not come. `Gone`.
    pub(crate) fn get(&self, id: u64, take: bool) -> Result<Region, Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            {
                let mut state = lock(&self.state);
                let found = if take { state.of.remove(&id) } else { state.of.get(&id).cloned() };
                if let Some(found) = found {
                    return found;
                }
                if let Some(why) = &state.ended {
                    return Err(why.clone());
                }
                let me = park::current();
                if !state.waiting.contains(&me) {
                    state.waiting.push(me);
                }
            }
            if Instant::now() >= deadline {
                let text =
                    format!("region {id} is named by the other side, which has not passed it");
                return Err(Error::new(ErrorKind::Malformed, text));
            }
            park::park(Wait::Gate(0), Some(deadline));
            kumihimo_runtime::cancel::point();
        }
    }
}
