//! Access to glibc: where it keeps a thread's state, and its private entry points.
//!
//! - `layout`: offsets in a thread's block, and functions that the public headers do not declare.
//! - `keys`: destructors of pthread keys.
//! - `modules`: the loaded modules' thread-local variables.
//! - `next_symbol`: glibc's own definitions of functions that this crate replaces.
//!
//! The rest of `tls` calls into this folder. The modules use `layout` and `next_symbol`, and
//! nothing of the other parts of `tls`.

mod keys;
mod layout;
pub(super) mod modules;
pub(super) mod next_symbol;

pub(super) use keys::Keys;
pub(super) use layout::{Calls, KEY_TABLES, KEYS_A_TABLE, Layout, set_word, word};
