//! Direct reads, which bypass the page cache: performed by the [`DirectReader`] for a microprocess
//! that waits meanwhile as it does for a socket.
//!
//! In a call of its own the microprocess would sleep in the kernel and its VP would be handed over.
//! That is correct, too, but costs several times as much as the read.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use kumihimo_batch::DirectReader;

/// The direct reader of an instance, called the anchor. It starts when it is first needed, and ends
/// with the instance.
#[derive(Debug, Default)]
pub(crate) struct DirectRead {
    /// Whether the start of the anchor has begun.
    pub(crate) begun: AtomicBool,
    /// Reference-counted, because a microprocess whose runtime has ended may still wait in it.
    pub(crate) anchor: OnceLock<Arc<DirectReader>>,
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

/// Counters of the anchor: the kernel thread that reads files opened with `O_DIRECT`.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{self, AnchorMetrics};
///
/// let anchor: AnchorMetrics = runtime::run(|| runtime::metrics().unwrap().anchor)?;
/// // This program has opened no file with `O_DIRECT`.
/// assert!(!anchor.runs);
/// assert_eq!(anchor.reads, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnchorMetrics {
    /// Whether the anchor runs. It starts with the first such read.
    pub runs: bool,
    /// Number of reads.
    pub reads: u64,
    /// Why the anchor could not start, if it was needed.
    pub refused: Option<String>,
}
