//! Results of comparisons.

use kumihimo_store::Node;

/// Description of a difference.
pub type Difference = String;

/// Result of a comparison.
pub(super) type Checked<T = ()> = std::result::Result<T, Difference>;

/// The same inode in the model and in the store under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Both {
    pub(super) model: Node,
    pub(super) subject: Node,
}
