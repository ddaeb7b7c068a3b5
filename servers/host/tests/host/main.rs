//! A directory of this machine as a store: what it keeps in, and what it serves.

mod contained;
mod descriptors;
mod files;
mod others;
mod tree;
