//! Shares of a gate's handlers, so that one client or user does not occupy all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::server::request_queue::{Request, RequestQueue};

/// How many requests are handled at once, and may be. Changed under the lock of the service alone.
#[derive(Debug)]
pub(crate) struct Share {
    handling: AtomicUsize,
    most: usize,
}

impl Share {
    pub(crate) fn new(most: usize) -> Share {
        Share { handling: AtomicUsize::new(0), most }
    }

    fn handling(&self) -> usize {
        self.handling.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.handling() >= self.most
    }

    fn add(&self) {
        // No atomic addition: the lock is held.
        self.handling.store(self.handling() + 1, Ordering::Relaxed);
    }

    fn remove(&self) {
        self.handling.store(self.handling() - 1, Ordering::Relaxed);
    }
}

/// The share of one link, and that of its user.
#[derive(Debug)]
pub(crate) struct HandlerShare {
    pub(crate) link: Share,
    pub(crate) user: Arc<Share>,
    pub(crate) uid: u32,
}

impl HandlerShare {
    /// Records that a request is no longer handled.
    pub(crate) fn finish(&self) {
        self.link.remove();
        self.user.remove();
    }
}

/// A link with a share.
pub(crate) trait HasShare {
    fn share(&self) -> &HandlerShare;
}

/// Requests that wait until fewer of their link or their user are handled. At most so many return
/// to the queue as their share has room for, so a request moves a bounded number of times for each
/// that ends.
pub(crate) struct HeldRequests<L> {
    by_link: HashMap<usize, RequestQueue<L>>,
    by_user: HashMap<u32, RequestQueue<L>>,
}

impl<L> Default for HeldRequests<L> {
    fn default() -> HeldRequests<L> {
        HeldRequests { by_link: HashMap::new(), by_user: HashMap::new() }
    }
}

fn key<L>(link: &Arc<L>) -> usize {
    Arc::as_ptr(link).addr()
}

impl<L: HasShare> HeldRequests<L> {
    /// Begins to handle a request if its shares have room, and holds it otherwise.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        request: Request<L>,
        incoming: &mut RequestQueue<L>,
    ) -> Option<Request<L>> {
        let share = request.link.share();
        if share.link.is_full() || share.user.is_full() {
            self.hold(request, incoming);
            return None;
        }
        share.link.add();
        share.user.add();
        Some(request)
    }

    #[cold]
    fn hold(&mut self, request: Request<L>, incoming: &mut RequestQueue<L>) {
        let link = request.link.clone();
        if link.share().link.is_full() {
            self.by_link.entry(key(&link)).or_default().push(request);
            // It may have been returned for room of the user that another link can use.
            self.release(&link, incoming);
        } else {
            self.by_user.entry(link.share().uid).or_default().push(request);
        }
    }

    /// Returns requests to the queue for which the shares of `link` have room.
    pub(crate) fn release(&mut self, link: &Arc<L>, incoming: &mut RequestQueue<L>) {
        if self.by_link.is_empty() && self.by_user.is_empty() {
            return;
        }
        let share = link.share();
        if let Some(held) = self.by_link.get_mut(&key(link)) {
            release(held, &share.link, incoming);
            if held.len() == 0 {
                self.by_link.remove(&key(link));
            }
        }
        if let Some(held) = self.by_user.get_mut(&share.uid) {
            release(held, &share.user, incoming);
            if held.len() == 0 {
                self.by_user.remove(&share.uid);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_link.values().chain(self.by_user.values()).map(RequestQueue::len).sum()
    }

    /// Removes the requests for which `is_gone` holds, and returns them.
    pub(crate) fn remove(&mut self, is_gone: impl Fn(&Request<L>) -> bool) -> Vec<Request<L>> {
        let mut gone = Vec::new();
        for held in self.by_link.values_mut().chain(self.by_user.values_mut()) {
            gone.extend(held.remove(&is_gone));
        }
        self.by_link.retain(|_, held| held.len() > 0);
        self.by_user.retain(|_, held| held.len() > 0);
        gone
    }
}

fn release<L>(held: &mut RequestQueue<L>, share: &Share, incoming: &mut RequestQueue<L>) {
    for _ in share.handling()..share.most {
        match held.pop() {
            Some(request) => incoming.push(request),
            None => break,
        }
    }
}
