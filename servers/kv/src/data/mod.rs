//! The data: databases of shards, each a hash table behind one lock.
//!
//! A command asks the [`Databases`](databases::Databases) for the shard of a key, and reads or
//! changes entries there. `waiter.rs` is a client that waits for an item of a list: the shard gives
//! it one when a push arrives. `shared.rs` accounts for memory and has the append log, to which
//! every change goes while its shard is locked. `entry.rs`, `value.rs` and `key.rs` are the types;
//! `glob.rs` matches patterns, and `cleared.rs` frees the data that FLUSHALL has removed.
//!
//! Uses the append log; nothing here refers to clients or commands.

pub mod cleared;
pub mod databases;
pub mod entry;
pub mod glob;
pub mod key;
pub mod shard;
pub mod shared;
pub mod value;
pub mod waiter;
