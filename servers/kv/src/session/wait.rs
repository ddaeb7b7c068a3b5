//! A command that waits.

use std::time::Instant;

use kumihimo::sync::Arc;

use crate::budget::Share;
use crate::data::waiter::Waiter;
use crate::server::Server;

/// A `BLPOP` or `BRPOP` that has found no item yet. Stays in the queues of all its keys until it is
/// dropped.
pub struct Wait {
    /// The server.
    pub server: Arc<Server>,
    /// The database.
    pub number: usize,
    /// The keys.
    pub keys: Vec<Box<[u8]>>,
    /// The waiter.
    pub waiter: Arc<Waiter>,
    /// Time at which the wait ends without an item.
    pub deadline: Option<Instant>,
    /// Counted memory of the keys.
    #[expect(dead_code, reason = "its drop returns the memory")]
    pub share: Share,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.waiter.over();
        for name in &self.keys {
            let key = self.server.databases.key(name);
            self.server.databases.lock(self.number, &key).leave(&key, &self.waiter);
        }
    }
}
