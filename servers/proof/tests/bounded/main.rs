//! Hostile images cost no more than they have: an operation on an image of N real bytes takes O(N)
//! steps and O(N) memory, whatever sizes the image claims. Bounds are counts of blocks and bytes.
//!
//! `KUMI_BOUNDED` is the number of randomly damaged images (100 by default).

mod crafted;
mod meter;
mod mutated;
