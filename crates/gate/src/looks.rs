//! All links of this address space, as its virtual processors look at them: which have something
//! for us, and which we have not told yet.
//!
//! A link stands in one of 64 buckets, by the bit that the other side posts in our row. So a look
//! costs one load as long as nothing came, and else a walk over those few links that share the bit.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};

use kumihimo_arbiter::row::Caller;
use kumihimo_runtime::remote_wake::{self, KeepToCores, RemoteWakeHandler};
use kumihimo_runtime::{Locked, lock};

const BUCKETS: usize = 64;
/// So many links are asked whether they expect something; of more it is not worth to know.
const ASKED: usize = 8;

/// One end of a link.
pub(crate) trait Looked: Send + Sync {
    /// Takes in what came: see [`RemoteWakeHandler::take_in`].
    fn look(&self);
    /// Rings, if there is anything of which the other side was not told.
    fn tell(&self, caller: Caller);
    /// See [`RemoteWakeHandler::expects`].
    fn expects(&self, core: u32) -> Option<u64>;
}

type Bucket = Vec<Arc<dyn Looked>>;

static LOOKED: [Mutex<Bucket>; BUCKETS] = [const { Mutex::new(Vec::new()) }; BUCKETS];
/// Buckets in which somebody has not told yet.
static UNTOLD: AtomicU64 = AtomicU64::new(0);
/// The bucket in which something came last.
static LAST: AtomicU32 = AtomicU32::new(0);

fn bucket(bit: u32) -> Locked<'static, Bucket> {
    lock(&LOOKED[bit as usize % BUCKETS])
}

/// Looks at a link as long as this exists.
pub(crate) struct Place {
    bit: u32,
    of: Arc<dyn Looked>,
    _kept: Option<KeepToCores>,
}

/// A bit for a link that is about to be made: others post it.
pub(crate) fn next_bit() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) % BUCKETS as u32
}

impl Place {
    /// From now on virtual processors look at it, when `bit` is posted, and stay on cores of their
    /// own if they are to.
    pub(crate) fn take(bit: u32, of: Arc<dyn Looked>, keeps_to_cores: bool) -> Place {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let installed = remote_wake::install(&Links);
            debug_assert!(installed, "gates are the only ones");
        });
        bucket(bit).push(of.clone());
        // What was put there before now was posted for nobody.
        remote_wake::notify(bit);
        Place { bit, of, _kept: keeps_to_cores.then(KeepToCores::new) }
    }
}

impl Place {
    /// Something came by the socket: a virtual processor looks.
    pub(crate) fn knock(&self) {
        remote_wake::notify(self.bit);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let gone = {
            let mut links = bucket(self.bit);
            let at = links.iter().position(|one| Arc::ptr_eq(one, &self.of));
            at.map(|at| links.swap_remove(at))
        };
        // Not under the lock: it may have been the last but one.
        drop(gone);
    }
}

/// The link in bucket `bit` has put something before the other side without telling it.
pub(crate) fn note_untold(bit: u32) {
    let bit = 1 << (bit % BUCKETS as u32);
    if UNTOLD.load(Ordering::Relaxed) & bit == 0 {
        UNTOLD.fetch_or(bit, Ordering::Release);
    }
}

/// Notifies all links that have not been notified yet. Anywhere.
pub(crate) fn tell(caller: Caller) {
    if UNTOLD.load(Ordering::Relaxed) != 0 {
        each(UNTOLD.swap(0, Ordering::AcqRel), |link| link.tell(caller));
    }
}

fn each(mut bits: u64, mut f: impl FnMut(&dyn Looked)) {
    while bits != 0 {
        let bit = bits.trailing_zeros();
        bits &= bits - 1;
        for link in bucket(bit).iter() {
            f(&**link);
        }
    }
}

struct Links;

impl RemoteWakeHandler for Links {
    fn take_in(&self, posts: u64) {
        LAST.store(posts.trailing_zeros(), Ordering::Relaxed);
        each(posts, |link| link.look());
    }

    fn flush(&self, caller: Caller) {
        tell(caller);
    }

    fn expects(&self, core: u32) -> Option<u64> {
        let links = bucket(LAST.load(Ordering::Relaxed));
        links.iter().take(ASKED).filter_map(|link| link.expects(core)).max()
    }
}
