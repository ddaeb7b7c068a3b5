//! The error type of all chores.

/// An error that ends a chore, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
