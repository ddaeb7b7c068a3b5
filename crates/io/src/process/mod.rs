//! Child processes: `std::process`, with `use std` changed to `use kumihimo`.
//!
//! - **Spawning** holds a kernel thread up until the child has begun its program (vfork); the
//!   virtual processor goes on.
//! - **Waiting** for a child's end and for its standard streams is waiting for readiness (a
//!   pidfd, pipes): it blocks the microprocess only, ends with `TimedOut` at the deadline of a
//!   scope, and by cancellation. Where the kernel gives no pidfd (before Linux 5.3, no descriptor
//!   left), a kernel thread waits, and neither ends it.
//! - **Dropping** a [`Child`] neither ends nor awaits the process, as in std: without a wait a
//!   zombie is left. Only [`Command::status`] and [`Command::output`], cut short by a deadline or
//!   cancellation, leave none: that child goes on, and is reaped at a later spawn.
//!
//! Source: the manual pages pidfd_open(2), waitpid(2), vfork(2).

mod child;
pub mod unix;

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::Path;

use kumihimo_runtime::cancel;
use kumihimo_runtime::thread::blocking;

pub use child::{Child, ChildStderr, ChildStdin, ChildStdout};
pub use std::process::{
    CommandArgs, CommandEnvs, ExitCode, ExitStatus, Output, Stdio, Termination, abort, exit, id,
};

/// How a child is begun, as [`std::process::Command`]. What Unix has besides is in
/// [`unix::CommandExt`].
pub struct Command {
    inner: std::process::Command,
    /// Which of the standard streams have been chosen: the others depend on the call.
    chosen: [bool; 3],
}

impl Command {
    /// A program without arguments; in the directories of PATH, if there is no `/` in it.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        Command::from(std::process::Command::new(program))
    }

    /// One more argument.
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.inner.arg(arg);
        self
    }

    /// More arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.inner.args(args);
        self
    }

    /// Sets a variable of the child's environment.
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut Command {
        self.inner.env(key, value);
        self
    }

    /// Sets several.
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.inner.envs(vars);
        self
    }

    /// Takes a variable out of the child's environment.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.inner.env_remove(key);
        self
    }

    /// Takes all out.
    pub fn env_clear(&mut self) -> &mut Command {
        self.inner.env_clear();
        self
    }

    /// The child's working directory.
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.inner.current_dir(dir);
        self
    }

    /// The child's standard input. Not chosen: inherited; null with [`output`](Command::output).
    pub fn stdin<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Command {
        self.inner.stdin(stdio);
        self.chosen[0] = true;
        self
    }

    /// The child's standard output. Not chosen: inherited; collected with
    /// [`output`](Command::output).
    pub fn stdout<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Command {
        self.inner.stdout(stdio);
        self.chosen[1] = true;
        self
    }

    /// The child's standard error. Not chosen: inherited; collected with
    /// [`output`](Command::output).
    pub fn stderr<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Command {
        self.inner.stderr(stdio);
        self.chosen[2] = true;
        self
    }

    /// Begins the child. A cancellation point before that.
    ///
    /// # Errors
    /// As fork(2) and execve(2): `NotFound`, no descriptor left.
    pub fn spawn(&mut self) -> io::Result<Child> {
        cancel::point();
        child::reap_left();
        blocking(|| self.inner.spawn()).map(Child::from)
    }

    /// Begins the child and waits for its end. A cancellation point.
    ///
    /// # Errors
    /// As [`spawn`](Command::spawn) and [`Child::wait`].
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.left_if_cut_short(Child::wait)
    }

    /// Begins the child, collects its output and waits for its end. A cancellation point.
    ///
    /// # Errors
    /// As [`spawn`](Command::spawn) and [`Child::wait_with_output`].
    pub fn output(&mut self) -> io::Result<Output> {
        self.choose_others([Stdio::null(), Stdio::piped(), Stdio::piped()]);
        let child = self.spawn();
        self.choose_others([Stdio::inherit(), Stdio::inherit(), Stdio::inherit()]);
        child?.left_if_cut_short(Child::collect)
    }

    /// For the standard streams that nobody has chosen.
    fn choose_others(&mut self, [stdin, stdout, stderr]: [Stdio; 3]) {
        if !self.chosen[0] {
            self.inner.stdin(stdin);
        }
        if !self.chosen[1] {
            self.inner.stdout(stdout);
        }
        if !self.chosen[2] {
            self.inner.stderr(stderr);
        }
    }

    /// The program.
    #[must_use]
    pub fn get_program(&self) -> &OsStr {
        self.inner.get_program()
    }

    /// The arguments.
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.inner.get_args()
    }

    /// The variables that are set or taken out.
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.inner.get_envs()
    }

    /// The working directory, if it was chosen.
    #[must_use]
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.inner.get_current_dir()
    }
}

impl From<std::process::Command> for Command {
    /// Standard streams that were chosen before count as not chosen for
    /// [`output`](Command::output).
    fn from(inner: std::process::Command) -> Command {
        Command { inner, chosen: [false; 3] }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
