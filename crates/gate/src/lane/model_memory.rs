//! Stands for the memory of a lane in the models.

use super::cell::CellHead;
use super::geometry::Geometry;
use crate::loom::{AtomicU32, Ordering};

/// Clones are the same lane.
#[derive(Clone)]
pub(super) struct LaneMemory(std::sync::Arc<Parts>);

struct Parts {
    geometry: Geometry,
    requests: Box<[AtomicU32]>,
    replies: Box<[AtomicU32]>,
    heads: Box<[CellHead]>,
}

impl LaneMemory {
    pub(super) fn new(geometry: Geometry) -> LaneMemory {
        let ring = |n| (0..n).map(|_| AtomicU32::new(0)).collect();
        let heads = (0..geometry.cells()).map(|_| CellHead::default()).collect();
        let (requests, replies) = (ring(geometry.requests()), ring(geometry.replies()));
        LaneMemory(std::sync::Arc::new(Parts { geometry, requests, replies, heads }))
    }
    pub(super) fn geometry(&self) -> Geometry {
        self.0.geometry
    }
    pub(super) fn requests(&self) -> &[AtomicU32] {
        &self.0.requests
    }
    pub(super) fn replies(&self) -> &[AtomicU32] {
        &self.0.replies
    }
    pub(super) fn head(&self, cell: u32) -> &CellHead {
        &self.0.heads[cell as usize]
    }
    pub(super) fn write_payload(&self, cell: u32, payload: &[u8]) {
        let Some(byte) = payload.first() else { return };
        self.head(cell).payload[0].store(u64::from(*byte), Ordering::Relaxed);
    }
    pub(super) fn read_payload(&self, cell: u32, len: usize, to: &mut Vec<u8>) {
        *to = vec![self.head(cell).payload[0].load(Ordering::Relaxed) as u8; len.min(1)];
    }
}
