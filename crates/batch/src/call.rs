//! A call that is part of a batch.

use crate::op::{Op, Outcome};

/// The maximum number of calls in a batch. Further calls wait for the next batch.
pub const LARGEST: usize = kumihimo_config::LARGEST_BATCH;

/// A system call that waits for its batch.
#[derive(Debug)]
pub struct Call<'a> {
    /// The system call.
    pub op: Op<'a>,
    /// The priority of the waiting microprocess.
    pub level: u8,
    /// The outcome, once the batch has run.
    pub outcome: Option<Outcome>,
}

impl<'a> Call<'a> {
    /// Creates a call without an outcome.
    pub fn new(op: Op<'a>, level: u8) -> Call<'a> {
        Call { op, level, outcome: None }
    }
}
