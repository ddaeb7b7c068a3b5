//! Periodic work of a server besides requests.

use std::time::Duration;

use kumihimo::sync::Arc;

/// Periodic work besides requests, such as writing back old changes of the store. A thread of the
/// organisation executes it.
pub type Chore = Arc<dyn Fn() + Send + Sync>;

/// Period of the chore.
pub const CHORE_EVERY: Duration = Duration::from_secs(1);
