//! Memory of the clients: one limit for the requests, replies, messages and subscriptions of all
//! connections together.
//!
//! A connection has an [`Account`], and each of its buffers a [`Share`]. Small buffers are not
//! counted, so a client with small requests and replies goes on when the limit is reached.
//!
//! Uses no other module of the crate.

use kumihimo::sync::Arc;
use kumihimo::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The error for what does not fit.
pub const EXCEEDED: &str = "the memory for clients is exhausted (--client-memory)";

/// Size of a reply buffer up to which it is not counted.
pub const SMALL_REPLY: usize = 16 << 10;
/// Size of the buffers for requests of a connection up to which they are not counted.
pub const SMALL_REQUEST: usize = 24 << 10;
/// Bytes with which a subscription, or a key in `BLPOP`, is counted beside its name.
pub const PER_NAME: usize = 512;

/// The limit, and the counted bytes of all connections.
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
}

impl Budget {
    /// Creates a budget of `limit` bytes.
    pub fn new(limit: usize) -> Budget {
        Budget { limit, used: AtomicUsize::new(0) }
    }

    /// The counted bytes of all connections.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }
}

/// The counted bytes of one connection.
pub struct Account {
    budget: Arc<Budget>,
    held: AtomicUsize,
}

impl Account {
    /// Creates an account without counted bytes.
    pub fn new(budget: &Arc<Budget>) -> Account {
        Account { budget: Arc::clone(budget), held: AtomicUsize::new(0) }
    }

    /// The counted bytes of the connection.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// The limit of all connections.
    pub fn limit(&self) -> usize {
        self.budget.limit
    }

    /// Counts `bytes`. Returns false, and counts nothing, beyond the limit of all connections, or
    /// beyond three quarters of it for this one.
    fn take(&self, bytes: usize) -> bool {
        let limit = self.budget.limit;
        let all = self.budget.used.fetch_add(bytes, Relaxed).saturating_add(bytes);
        let own = self.held.fetch_add(bytes, Relaxed).saturating_add(bytes);
        let fits = all <= limit && own <= limit / 4 * 3;
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        self.budget.used.fetch_sub(bytes, Relaxed);
        self.held.fetch_sub(bytes, Relaxed);
    }
}

/// The counted bytes of one buffer. The default is not limited, for buffers of the server itself.
#[derive(Default)]
pub struct Share {
    account: Option<Arc<Account>>,
    bytes: usize,
}

impl Share {
    /// Creates a share of `account` without bytes.
    pub fn new(account: &Arc<Account>) -> Share {
        Share { account: Some(Arc::clone(account)), bytes: 0 }
    }

    /// Sets the size of the share. Returns false, and changes nothing, if a larger one does not
    /// fit.
    pub fn resize(&mut self, bytes: usize) -> bool {
        if let Some(account) = &self.account {
            if bytes > self.bytes {
                if !account.take(bytes - self.bytes) {
                    return false;
                }
            } else if bytes < self.bytes {
                account.give_back(self.bytes - bytes);
            }
        }
        self.bytes = bytes;
        true
    }

    /// Adds another share of the same connection to this one.
    pub fn absorb(&mut self, mut other: Share) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Size of the share.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests;
