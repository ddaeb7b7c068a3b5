//! What is said about a damaged image: each thing once.

use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};

use kumihimo::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kumihimo::sync::{Arc, Mutex, PoisonError};

/// Different complaints that are said; after these there is silence, for an image can be damaged in
/// more places than anyone reads about.
const MOST: usize = 200;

/// The receiver of reports of damage: a line without its end.
pub type Listener = Arc<dyn Fn(&str) + Send + Sync>;

/// The complaints about one image.
pub struct Complaints {
    image: String,
    listener: Option<Listener>,
    said: Mutex<HashSet<String>>,
    heard: AtomicU64,
}

impl Complaints {
    /// About `image`; to standard error unless there is a listener.
    pub fn new(image: String, listener: Option<Listener>) -> Complaints {
        Complaints { image, listener, said: Mutex::default(), heard: AtomicU64::new(0) }
    }

    /// Says it, unless it was said before.
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

    /// As [`say`](Complaints::say), for what e2fsck repairs.
    pub fn damage(&self, what: impl Display) {
        self.say(format_args!("{what}; run e2fsck"));
    }

    /// How often there was reason to complain.
    pub fn count(&self) -> u64 {
        self.heard.load(Relaxed)
    }
}

impl fmt::Debug for Complaints {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Complaints").field("image", &self.image).finish_non_exhaustive()
    }
}
