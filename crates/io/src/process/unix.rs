//! What Unix has besides: `std::os::unix::process`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;

use super::Command;

pub use std::os::unix::process::{ExitStatusExt, parent_id};

/// Extensions of [`Command`], as [`std::os::unix::process::CommandExt`], which is for std's own
/// type only.
pub trait CommandExt {
    /// The child's user id.
    fn uid(&mut self, id: u32) -> &mut Command;

    /// The child's group id.
    fn gid(&mut self, id: u32) -> &mut Command;

    /// Runs `f` in the child, before its program; an error of it is that of `spawn`.
    ///
    /// # Safety
    /// As std's: between fork and exec, where only what signal-safety(7) lists may be called.
    /// Nothing of Kumihimo's.
    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static;

    /// Replaces this process, all its microprocesses included. Returns only an error.
    fn exec(&mut self) -> io::Error;

    /// What the child gets as the name of its program.
    fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command;

    /// The child's process group; 0: one of its own.
    fn process_group(&mut self, group: i32) -> &mut Command;
}

impl CommandExt for Command {
    fn uid(&mut self, id: u32) -> &mut Command {
        self.inner.uid(id);
        self
    }

    fn gid(&mut self, id: u32) -> &mut Command {
        self.inner.gid(id);
        self
    }

    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: the caller's promise.
        unsafe { self.inner.pre_exec(f) };
        self
    }

    fn exec(&mut self) -> io::Error {
        self.inner.exec()
    }

    fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.inner.arg0(arg);
        self
    }

    fn process_group(&mut self, group: i32) -> &mut Command {
        self.inner.process_group(group);
        self
    }
}
