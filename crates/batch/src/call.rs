//! A call on its way into a batch.

use crate::op::{Op, Outcome};

/// Calls in one batch, at most: what comes meanwhile waits behind them.
pub const LARGEST: usize = kumihimo_config::LARGEST_BATCH;

/// A system call that waits for its batch.
#[derive(Debug)]
pub struct Call<'a> {
    /// What is asked.
    pub op: Op<'a>,
    /// Priority of its waiter.
    pub level: u8,
    /// What came of it, once its batch has run.
    pub outcome: Option<Outcome>,
}

impl<'a> Call<'a> {
    /// One without an outcome.
    pub fn new(op: Op<'a>, level: u8) -> Call<'a> {
        Call { op, level, outcome: None }
    }
}
