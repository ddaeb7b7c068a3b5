//! Spares: kernel threads without a VP, from their start to their end. Uses all rooms beside it.

mod life;
pub(crate) mod poll;
pub(crate) mod starter;
mod take_over;
mod tick;
