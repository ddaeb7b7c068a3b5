//! The poller of the process: readiness for futures that are polled on foreign kernel threads,
//! where no virtual processor has an epoll set.
//!
//! One kernel thread, which starts with the first such wait and stays.

use std::io;
use std::sync::{Mutex, OnceLock};

use kumihimo_arch::signal_mask;

use crate::idle::poller::Poller;
use crate::kernel_thread::no_events::lock;

/// Stack of the thread, which only calls wakers of `block_on`.
const STACK: usize = 64 << 10;
/// The index in the poller's `home`, which no VP has.
const INDEX: usize = 0x3ff;

struct ProcessPoller(Poller);

// SAFETY: other threads than its own call `add` and `remove` only, which take a shared reference to
// the descriptor of the set and to an atomic number.
unsafe impl Sync for ProcessPoller {}
// SAFETY: as above.
unsafe impl Send for ProcessPoller {}

static POLLER: OnceLock<ProcessPoller> = OnceLock::new();

/// Returns the poller, and starts its thread at the first call.
///
/// # Errors
/// No descriptor or kernel thread left.
pub(super) fn get() -> io::Result<&'static Poller> {
    static STARTING: Mutex<()> = Mutex::new(());
    if let Some(poller) = POLLER.get() {
        return Ok(&poller.0);
    }
    let _alone = lock(&STARTING);
    if let Some(poller) = POLLER.get() {
        return Ok(&poller.0);
    }
    let new = Poller::new(INDEX)?;
    let builder = std::thread::Builder::new().name("kumi-poller".into()).stack_size(STACK);
    signal_mask::spawn_blocked(builder, || {
        // Set below, while the caller holds the lock.
        let poller = POLLER.wait();
        loop {
            poller.0.sleep(None);
        }
    })?;
    Ok(&POLLER.get_or_init(|| ProcessPoller(new)).0)
}

/// Returns the poller, if it has that `home`.
pub(super) fn at(home: u32) -> Option<&'static Poller> {
    POLLER.get().map(|poller| &poller.0).filter(|poller| poller.home == home)
}
