//! Error type of all subcommands.

/// An error that ends a subcommand, as text.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
