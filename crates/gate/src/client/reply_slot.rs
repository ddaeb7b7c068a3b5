//! The client's record of a call under way, one for each cell: its waiter, and the header of its
//! reply.
//!
//! ```text
//! IDLE -> WAITING -> REPLIED -> IDLE       a call and its reply
//!         WAITING -> ABANDONED -> IDLE     its caller was cancelled, or its deadline has passed
//!         WAITING -> GONE                  the link has ended
//! IDLE -> ABANDONED -> IDLE                a request without a reply
//! IDLE -> STOPPING -> IDLE                 the end of a stream
//! ```

use crate::lane::ReplyHeader;
use crate::loom::{AtomicBool, AtomicU32, Ordering, UnsafeCell, Waiter};

/// No call is under way.
const IDLE: u32 = 0;
/// The taker of the cell waits for the reply.
const WAITING: u32 = 1;
/// The reply has come.
const REPLIED: u32 = 2;
/// No caller waits for the reply. The thread that pops it gives the cell back.
const ABANDONED: u32 = 3;
/// The link has ended, and no reply comes.
const GONE: u32 = 4;
/// As ABANDONED, and the server was asked to end a stream.
const STOPPING: u32 = 5;

/// The end of a wait.
pub(super) enum WaitEnd {
    /// The reply has come.
    Replied,
    /// The link has ended.
    Gone,
}

/// See the [module](self).
pub(super) struct ReplySlot {
    state: AtomicU32,
    /// The waiter, and the header of its reply. The taker of the cell owns both before WAITING; the
    /// thread that ends WAITING owns them until it has done so; then the taker again.
    contents: UnsafeCell<(Option<Waiter>, ReplyHeader)>,
    /// Whether the call names regions. Owned by the taker of the cell, then by the thread that
    /// gives the cell back.
    names_regions: AtomicBool,
}

// SAFETY: `state` determines which thread has `contents`; each change of it that hands `contents`
// over is a release, and read with acquire.
unsafe impl Sync for ReplySlot {}

impl ReplySlot {
    pub(super) fn new() -> ReplySlot {
        ReplySlot {
            state: AtomicU32::new(IDLE),
            contents: UnsafeCell::new((None, ReplyHeader::default())),
            names_regions: AtomicBool::new(false),
        }
    }

    /// The call names regions from now on.
    pub(super) fn set_names_regions(&self) {
        self.names_regions.store(true, Ordering::Relaxed);
    }

    /// Ends the call. Returns whether it has named regions.
    #[inline]
    pub(super) fn reset(&self) -> bool {
        // No swap, which would be a locked instruction: the cell is the caller's.
        let names_regions = self.names_regions.load(Ordering::Relaxed);
        if names_regions {
            self.names_regions.store(false, Ordering::Relaxed);
        }
        self.state.store(IDLE, Ordering::Relaxed);
        names_regions
    }

    /// No caller waits for the reply to the request that is about to be pushed.
    pub(super) fn begin_without_waiter(&self) {
        self.state.store(ABANDONED, Ordering::Relaxed);
    }

    /// The end of a stream is about to be requested.
    pub(super) fn begin_stop(&self) {
        self.state.store(STOPPING, Ordering::Relaxed);
    }

    /// `waiter` waits for the reply to the request that is about to be pushed.
    ///
    /// # Safety
    /// The caller has the cell, and no request of it is under way.
    #[inline]
    pub(super) unsafe fn begin_wait(&self, waiter: Waiter) {
        // SAFETY: no wait has begun: `contents` is the caller's.
        self.contents.with_mut(|contents| unsafe { (*contents).0 = Some(waiter) });
        // Release: the thread that ends the wait finds the waiter.
        self.state.store(WAITING, Ordering::Release);
    }

    /// Whether the wait has ended, and how.
    #[inline]
    pub(super) fn wait_end(&self) -> Option<WaitEnd> {
        match self.state.load(Ordering::Acquire) {
            REPLIED => Some(WaitEnd::Replied),
            GONE => Some(WaitEnd::Gone),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.state.load(Ordering::Acquire) == WAITING
    }

    /// Ends the wait of a caller that wants no reply any more. Returns the header of the reply if
    /// that has come: then the cell is the caller's to give back.
    pub(super) fn abandon(&self) -> Option<ReplyHeader> {
        // GONE: lent for ever, which is as long as the link's memory.
        let ended =
            self.state.compare_exchange(WAITING, ABANDONED, Ordering::AcqRel, Ordering::Acquire);
        // SAFETY: REPLIED: `contents` is the taker's again, which is the leaving thread.
        (ended == Err(REPLIED)).then(|| self.contents.with(|contents| unsafe { (*contents).1 }))
    }

    /// The header of the reply.
    ///
    /// # Safety
    /// The caller has the cell, and has seen the wait end with [`WaitEnd::Replied`].
    #[inline]
    pub(super) unsafe fn header(&self) -> ReplyHeader {
        debug_assert_eq!(self.state.load(Ordering::Relaxed), REPLIED);
        // SAFETY: REPLIED, seen with acquire: `contents` is the taker's again.
        self.contents.with(|contents| unsafe { (*contents).1 })
    }

    /// Delivers the reply, and wakes its waiter. Returns the header if no caller waits: the cell is
    /// then the calling thread's.
    ///
    /// # Safety
    /// The caller has popped the reply, and no other thread calls this or [`fail`](Self::fail)
    /// meanwhile.
    #[inline]
    pub(super) unsafe fn deliver(&self, header: ReplyHeader) -> Option<ReplyHeader> {
        if self.state.load(Ordering::Acquire) == WAITING {
            // SAFETY: this side's record of a cell whose reply is being taken in: only this thread
            // ends WAITING with a reply, and a leaving caller does not read `contents`. A waiting
            // one reads nothing before REPLIED.
            let waiter = self.contents.with_mut(|contents| unsafe {
                (*contents).1 = header;
                (*contents).0.clone()
            });
            if self
                .state
                .compare_exchange(WAITING, REPLIED, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                if let Some(waiter) = waiter {
                    waiter.wake();
                }
                return None;
            }
        }
        match self.state.load(Ordering::Acquire) {
            ABANDONED => Some(header),
            // Whatever its status: a server that answers this with an item is not asked again.
            STOPPING => Some(ReplyHeader::default()),
            // GONE: a reply behind the link's end. Its taker is still to see that, and the cell is
            // lost.
            _ => None,
        }
    }

    /// Ends the wait, if there is one, without a reply.
    ///
    /// # Safety
    /// No other thread calls this or [`deliver`](Self::deliver) meanwhile.
    pub(super) unsafe fn fail(&self) {
        if self.state.compare_exchange(WAITING, GONE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            // SAFETY: this thread has ended WAITING, and the caller keeps out threads that deliver;
            // the taker does not read `contents` any more.
            let waiter = self.contents.with(|contents| unsafe { (*contents).0.clone() });
            if let Some(waiter) = waiter {
                waiter.wake();
            }
        }
    }
}
