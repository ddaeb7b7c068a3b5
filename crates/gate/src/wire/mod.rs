//! What two processes of a link send each other.

pub mod codec;
pub(crate) mod error_record;
pub(crate) mod message;
pub(crate) mod packet;
pub(crate) mod peer;
pub(crate) mod type_hash;
