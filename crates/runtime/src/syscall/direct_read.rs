//! Reads that go to the disk whatever is in memory: by the [`Anchor`], on behalf of a microprocess
//! that waits meanwhile as it does for a socket.
//!
//! By a call of its own the microprocess would sleep in the kernel and its virtual processor be
//! given up: right too, and several times as dear as the read.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use kumihimo_batch::Anchor;

/// The instance's part. The anchor starts when it is needed first, and ends with the instance.
#[derive(Debug, Default)]
pub(crate) struct DirectRead {
    /// Somebody starts it, or has.
    pub(crate) begun: AtomicBool,
    /// Counted: one whose runtime has ended around it may still be waiting.
    pub(crate) anchor: OnceLock<Arc<Anchor>>,
    pub(crate) refused: OnceLock<String>,
}

impl DirectRead {
    pub(crate) fn metrics(&self) -> AnchorMetrics {
        let reads = self.anchor.get().map(|anchor| anchor.reads());
        AnchorMetrics {
            runs: reads.is_some(),
            reads: reads.unwrap_or(0),
            refused: self.refused.get().cloned(),
        }
    }
}

/// What the anchor has done: the kernel thread for reads of files that were opened for direct ones
/// (`O_DIRECT`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnchorMetrics {
    /// Whether there is one: it starts with the first such read.
    pub runs: bool,
    /// Reads that it has made.
    pub reads: u64,
    /// Why there is none, if one was wanted.
    pub refused: Option<String>,
}
