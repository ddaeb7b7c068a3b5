//! `kumi mount` as its users meet it: POSIX beside the kernel's own file systems, real work,
//! crashes, what is refused.
//!
//! All five organisations do the same suite. The heavy jobs of real work (`git`, `tar`, `rsync`,
//! sqlite3 with its many commits) are done by all of them on ext2; the host store, whose way
//! through the server is the same, does them in two.

mod crash;
mod full;
mod ground;
mod lives;
mod organisations;
mod posix;
mod refused;
mod work;
