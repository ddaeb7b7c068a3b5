//! Unix extensions: `std::os::unix::process`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;

use super::Command;

pub use std::os::unix::process::{ExitStatusExt, parent_id};

/// Extensions of [`Command`], as [`std::os::unix::process::CommandExt`], which is
/// for std's own type only.
///
/// # Examples
///
/// ```
/// use kumihimo::process::Command;
/// use kumihimo::process::unix::CommandExt;
///
/// // The shell tests that a process group with its own number exists.
/// let mut shell = Command::new("sh");
/// shell.args(["-c", "kill -s 0 -- -$$"]).process_group(0);
/// assert!(shell.status()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait CommandExt {
    /// Sets the child's user ID.
    fn uid(&mut self, id: u32) -> &mut Command;

    /// Sets the child's group ID.
    fn gid(&mut self, id: u32) -> &mut Command;

    /// Runs `f` in the child before exec; `spawn` returns its error.
    ///
    /// # Safety
    /// As std's: between fork and exec only async-signal-safe functions may be called
    /// (signal-safety(7)), and none of Kumihimo's.
    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static;

    /// Replaces this process and all its microprocesses. Returns only on error.
    fn exec(&mut self) -> io::Error;

    /// Sets the zeroth argument, the name of the program.
    fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command;

    /// Sets the child's process group; 0 creates a new one.
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
