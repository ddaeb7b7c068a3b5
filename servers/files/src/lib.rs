//! The file server: what `kumi mount`, `kumi umount` and `kumi serve clock` do.
//!
//! ```text
//! options    what the command line says
//! backing    the store that is to be served: an ext2 image, or a directory of this machine
//! server     the way of a mount from its begin to its end
//! background `kumi mount` without -f: a process of its own; the command waits until it serves
//! clock      the time server as a process of its own
//! ```
//! How requests are handled is `kumihimo_fuse`'s, what they do the stores'.
#![forbid(unsafe_code)]

mod background;
mod backing;
mod clock;
mod options;
mod server;
mod signals;

pub use clock::ClockOptions;
pub use options::{MountOptions, UnmountOptions};

/// `kumi mount`.
///
/// # Errors
/// What is wrong, in words.
pub fn mount(options: MountOptions) -> Result<(), String> {
    if options.foreground { server::run(options) } else { background::run(&options) }
}

/// `kumi umount`.
///
/// # Errors
/// What is wrong, in words.
pub fn unmount(options: &UnmountOptions) -> Result<(), String> {
    kumihimo_fuse::mount::unmount(&options.mountpoint, options.lazy).map_err(|e| e.to_string())
}

/// `kumi serve clock`.
///
/// # Errors
/// What is wrong, in words.
pub fn serve_clock(options: ClockOptions) -> Result<(), String> {
    clock::run(options)
}

/// Whether this process can mount, and how, or why not and what would enable it; in words.
#[must_use]
pub fn can_mount() -> (bool, String) {
    kumihimo_fuse::mount::is_possible()
}
