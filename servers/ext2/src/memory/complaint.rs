//! Reports about a damaged image, each once.

use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};

use kumihimo::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kumihimo::sync::{Arc, Mutex, PoisonError};

/// Maximum number of different reports, after which nothing is reported: a badly damaged image
/// would cause more reports than a user can read.
const MOST: usize = 200;

/// Receiver of reports of damage. Each report is a line without a newline.
pub type Listener = Arc<dyn Fn(&str) + Send + Sync>;

/// Reports about one image.
pub struct Complaints {
    image: String,
    listener: Option<Listener>,
    said: Mutex<HashSet<String>>,
    heard: AtomicU64,
}

impl Complaints {
    /// Creates the reports about `image`, which go to standard error unless there is a listener.
    pub fn new(image: String, listener: Option<Listener>) -> Complaints {
        Complaints { image, listener, said: Mutex::default(), heard: AtomicU64::new(0) }
    }

    /// Reports `what`, unless it was reported before.
    pub fn say(&self, what: impl Display) {
        self.heard.fetch_add(1, Relaxed);
        let line = format!("ext2: {}: {what}", self.image);
        {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            if said.len() >= MOST || !said.insert(line.clone()) {
                return;
            }
        }
        match &self.listener {
            Some(listener) => listener(&line),
            None => eprintln!("{line}"),
        }
    }

    /// Reports like [`say`](Complaints::say), for damage that e2fsck repairs.
    pub fn damage(&self, what: impl Display) {
        self.say(format_args!("{what}; run e2fsck"));
    }

    /// Returns the number of reports, including repeated ones.
    pub fn count(&self) -> u64 {
        self.heard.load(Relaxed)
    }
}

impl fmt::Debug for Complaints {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Complaints").field("image", &self.image).finish_non_exhaustive()
    }
}
