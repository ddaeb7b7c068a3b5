//! Periodic work of a server.

use std::time::Duration;

use kumihimo::sync::Arc;

/// Periodic work besides requests, done by a thread of the organisation: the store writes back old
/// changes.
pub type Chore = Arc<dyn Fn() + Send + Sync>;

/// Period of the chore.
pub const CHORE_EVERY: Duration = Duration::from_secs(1);
