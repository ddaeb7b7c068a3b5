//! The interface between the kernel's half and a user scheduler. Its types refer to one another, as
//! in the paper (P0, 3.1). Uses `state`.

pub mod kernel;
pub mod kernel_thread;
pub mod sched;
