//! The stores under test and their surroundings.
//!
//! `ext2` opens the ext2 store on one of the `disks` (in memory, recording, or failing), whose
//! image `images` makes and checks by e2fsprogs. `paths` calls a store by path, as a kernel would.
//! `clock` is the time that stores under test use. Nothing here uses the model, the operations or
//! the comparison: they stand above, and drive what is opened here.

pub mod clock;
pub mod disks;
pub mod ext2;
pub mod images;
pub mod paths;
