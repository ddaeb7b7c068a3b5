//! Owners of the blocks of indexed directories.
//!
//! A block of a valid disk belongs to one directory. On a hostile disk a thousand directories may
//! share the same blocks, and a thousand indexes of the same names would need a thousand times the
//! memory. Each index claims its blocks, and a block that is claimed already cannot be indexed.

use std::collections::HashSet;

use kumihimo::sync::{Arc, Mutex, PoisonError};

/// Blocks that belong to an index.
#[derive(Default)]
pub struct Claims(Mutex<HashSet<u32, foldhash::fast::FixedState>>);

/// Blocks that one index has claimed. Released on drop.
pub struct Claimed {
    claims: Arc<Claims>,
    blocks: Vec<u32>,
}

impl Claimed {
    /// Claims nothing yet.
    pub fn new(claims: &Arc<Claims>) -> Claimed {
        Claimed { claims: Arc::clone(claims), blocks: Vec::new() }
    }

    /// Claims a block. Returns false if an index has claimed it already.
    pub fn claim(&mut self, block: u32) -> bool {
        let is_new = self.claims.0.lock().unwrap_or_else(PoisonError::into_inner).insert(block);
        if is_new {
            self.blocks.push(block);
        }
        is_new
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let mut claims = self.claims.0.lock().unwrap_or_else(PoisonError::into_inner);
        for block in &self.blocks {
            claims.remove(block);
        }
    }
}
