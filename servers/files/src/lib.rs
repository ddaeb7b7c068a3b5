//! The file server: implements `kumi mount`, `kumi umount` and `kumi serve clock`.
//!
//! ```text
//! options    command-line options
//! backing    the store to be served: an ext2 image, or a directory of the host
//! server     a mount from its start to its end
//! background `kumi mount` without -f: a child process; the command waits until it serves
//! clock      the time server in a separate process
//! ```
//! `kumihimo_fuse` dispatches requests, and the stores execute them.
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
/// A message for the user.
pub fn mount(options: MountOptions) -> Result<(), String> {
    if options.foreground { server::run(options) } else { background::run(&options) }
}

/// `kumi umount`.
///
/// # Errors
/// A message for the user.
pub fn unmount(options: &UnmountOptions) -> Result<(), String> {
    kumihimo_fuse::mount::unmount(&options.mountpoint, options.lazy).map_err(|e| e.to_string())
}

/// `kumi serve clock`.
///
/// # Errors
/// A message for the user.
pub fn serve_clock(options: ClockOptions) -> Result<(), String> {
    clock::run(options)
}

/// Returns whether this process can mount, with a message: by which means, or why not and what
/// would enable it.
#[must_use]
pub fn can_mount() -> (bool, String) {
    kumihimo_fuse::mount::is_possible()
}
