//! The links of this address space, indexed by the bit that their other side posts.
//!
//! A link is in one of 64 buckets. A poll by a VP costs one load while no bit is posted, and
//! otherwise a walk over the few links that share the bit.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};

use kumihimo_arbiter::row::Caller;
use kumihimo_runtime::remote_wake::{self, KeepToCores, RemoteWakeHandler};
use kumihimo_runtime::{Locked, lock};

const BUCKETS: usize = 64;
/// Most links that are asked whether they expect something.
const MOST_ASKED: usize = 8;

/// One side of a link, as VPs poll it.
pub(crate) trait IndexedLink: Send + Sync {
    /// Takes in what has come: see [`RemoteWakeHandler::take_in`].
    fn poll(&self);
    /// Rings the other side if entries are unannounced.
    fn flush(&self, caller: Caller);
    /// See [`RemoteWakeHandler::expects`].
    fn expects(&self, core: u32) -> Option<u64>;
}

type Bucket = Vec<Arc<dyn IndexedLink>>;

static INDEX: [Mutex<Bucket>; BUCKETS] = [const { Mutex::new(Vec::new()) }; BUCKETS];
/// Buckets with links that have not announced their entries yet.
static PENDING: AtomicU64 = AtomicU64::new(0);
/// The bucket that was posted last.
static LAST_POLLED: AtomicU32 = AtomicU32::new(0);

fn bucket(bit: u32) -> Locked<'static, Bucket> {
    lock(&INDEX[bit as usize % BUCKETS])
}

/// Keeps a link in the index until it is dropped.
pub(crate) struct IndexEntry {
    bit: u32,
    of: Arc<dyn IndexedLink>,
    _kept: Option<KeepToCores>,
}

/// The bit for a new link, which its other side posts.
pub(crate) fn next_bit() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) % BUCKETS as u32
}

impl IndexEntry {
    /// Adds a link: VPs poll it when `bit` is posted. `keeps_to_cores`: VPs stay on cores of their
    /// own while it exists.
    pub(crate) fn insert(bit: u32, of: Arc<dyn IndexedLink>, keeps_to_cores: bool) -> IndexEntry {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let installed = remote_wake::install(&LinkIntake);
            debug_assert!(installed, "gates are the only ones");
        });
        bucket(bit).push(of.clone());
        // Posts from before now were seen by no VP.
        remote_wake::notify(bit);
        IndexEntry { bit, of, _kept: keeps_to_cores.then(KeepToCores::new) }
    }
}

impl IndexEntry {
    /// Has a VP poll the link after a ring over its socket.
    pub(crate) fn wake(&self) {
        remote_wake::notify(self.bit);
    }
}

impl Drop for IndexEntry {
    fn drop(&mut self) {
        let gone = {
            let mut links = bucket(self.bit);
            let at = links.iter().position(|one| Arc::ptr_eq(one, &self.of));
            at.map(|at| links.swap_remove(at))
        };
        // Dropped without the lock: it may be the last reference but one.
        drop(gone);
    }
}

/// Records that a link of this bucket has unannounced entries.
pub(crate) fn mark_pending(bit: u32) {
    let bit = 1 << (bit % BUCKETS as u32);
    if PENDING.load(Ordering::Relaxed) & bit == 0 {
        PENDING.fetch_or(bit, Ordering::Release);
    }
}

/// Rings for all links with unannounced entries. Callable from any thread.
pub(crate) fn flush(caller: Caller) {
    if PENDING.load(Ordering::Relaxed) != 0 {
        each(PENDING.swap(0, Ordering::AcqRel), |link| link.flush(caller));
    }
}

fn each(mut bits: u64, mut f: impl FnMut(&dyn IndexedLink)) {
    while bits != 0 {
        let bit = bits.trailing_zeros();
        bits &= bits - 1;
        for link in bucket(bit).iter() {
            f(&**link);
        }
    }
}

struct LinkIntake;

impl RemoteWakeHandler for LinkIntake {
    fn take_in(&self, posts: u64) {
        LAST_POLLED.store(posts.trailing_zeros(), Ordering::Relaxed);
        each(posts, |link| link.poll());
    }

    fn flush(&self, caller: Caller) {
        flush(caller);
    }

    fn expects(&self, core: u32) -> Option<u64> {
        let links = bucket(LAST_POLLED.load(Ordering::Relaxed));
        links.iter().take(MOST_ASKED).filter_map(|link| link.expects(core)).max()
    }
}
