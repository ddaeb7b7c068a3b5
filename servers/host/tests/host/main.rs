//! A host directory as a store: containment, files, descriptors and owners.

mod contained;
mod descriptors;
mod files;
mod others;
mod tree;
