//! Child processes: `std::process`, with `use std` changed to `use kumihimo`.
//!
//! - **Spawning** blocks a kernel thread until the child has executed its program (vfork(2)); the
//!   virtual processor runs others. A kernel thread that lives as long as the process starts the
//!   children of all microprocesses, so that `PR_SET_PDEATHSIG` (prctl(2)) in a child means the end
//!   of the process. A closure of `pre_exec` sees that thread's thread-locals.
//! - **Waiting** for the exit of a child and for its standard streams is waiting for readiness (a
//!   pidfd, pipes). It blocks the microprocess only, ends with `TimedOut` at the deadline of a
//!   scope, and by cancellation. Without a pidfd (before Linux 5.3, or no descriptor left) a kernel
//!   thread waits, and neither ends the wait.
//! - **Dropping** a [`Child`] neither kills nor awaits the process, as in std: without a wait a
//!   zombie remains. [`Command::status`] and [`Command::output`] leave none when a deadline or
//!   cancellation ends them: the child continues, and a later spawn reaps it.
//!
//! Source: the manual pages pidfd_open(2), waitpid(2), vfork(2).

mod child;
mod spawner;
pub mod unix;

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::Path;

use kumihimo_runtime::cancel;

pub use child::{Child, ChildStderr, ChildStdin, ChildStdout};
pub use std::process::{
    CommandArgs, CommandEnvs, ExitCode, ExitStatus, Output, Stdio, Termination, abort, exit, id,
};

/// Builder of a child process, as [`std::process::Command`]. Unix extensions are in
/// [`unix::CommandExt`].
///
/// # Examples
///
/// ```
/// use kumihimo::process::Command;
///
/// let output = Command::new("sh").args(["-c", "echo $FIBRE"]).env("FIBRE", "hemp").output()?;
/// assert!(output.status.success());
/// assert_eq!(output.stdout, b"hemp\n");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Command {
    inner: std::process::Command,
    /// Whether each standard stream was set: the defaults of the others depend on the call.
    chosen: [bool; 3],
}

impl Command {
    /// A program without arguments, searched in the directories of `PATH` if it contains no `/`.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        Command::from(std::process::Command::new(program))
    }

    /// Adds an argument.
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.inner.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.inner.args(args);
        self
    }

    /// Sets an environment variable of the child.
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut Command {
        self.inner.env(key, value);
        self
    }

    /// Sets environment variables of the child.
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.inner.envs(vars);
        self
    }

    /// Removes an environment variable of the child.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.inner.env_remove(key);
        self
    }

    /// Clears the child's environment.
    pub fn env_clear(&mut self) -> &mut Command {
        self.inner.env_clear();
        self
    }

    /// Sets the child's working directory.
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.inner.current_dir(dir);
        self
    }

    /// Sets the child's standard input. Default: inherited; null with [`output`](Command::output).
    pub fn stdin<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Command {
        self.inner.stdin(stdio);
        self.chosen[0] = true;
        self
    }

    /// Sets the child's standard output. Default: inherited; collected with
    /// [`output`](Command::output).
    pub fn stdout<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Command {
        self.inner.stdout(stdio);
        self.chosen[1] = true;
        self
    }

    /// Sets the child's standard error. Default: inherited; collected with
    /// [`output`](Command::output).
    pub fn stderr<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Command {
        self.inner.stderr(stdio);
        self.chosen[2] = true;
        self
    }

    /// Starts the child. Blocks the microprocess and its kernel thread until the child has executed
    /// its program; other microprocesses continue. A cancellation point before it starts.
    ///
    /// # Errors
    /// As fork(2) and execve(2): `NotFound`, no descriptor left.
    pub fn spawn(&mut self) -> io::Result<Child> {
        cancel::point();
        child::reap_left();
        spawner::run(|| self.inner.spawn()).map(Child::from)
    }

    /// Starts the child and waits for its exit. Blocks the microprocess until then. A cancellation
    /// point.
    ///
    /// # Errors
    /// As [`spawn`](Command::spawn) and [`Child::wait`].
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.left_if_cut_short(Child::wait)
    }

    /// Starts the child, collects its output and waits for its exit. Blocks the microprocess until
    /// then. A cancellation point.
    ///
    /// # Errors
    /// As [`spawn`](Command::spawn) and [`Child::wait_with_output`].
    pub fn output(&mut self) -> io::Result<Output> {
        self.choose_others([Stdio::null(), Stdio::piped(), Stdio::piped()]);
        let child = self.spawn();
        self.choose_others([Stdio::inherit(), Stdio::inherit(), Stdio::inherit()]);
        child?.left_if_cut_short(Child::collect)
    }

    /// Sets the standard streams that were not set explicitly.
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

    /// The environment variables that are set or removed.
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.inner.get_envs()
    }

    /// The working directory, if it was set.
    #[must_use]
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.inner.get_current_dir()
    }
}

impl From<std::process::Command> for Command {
    /// Standard streams that were set before count as not set for [`output`](Command::output).
    fn from(inner: std::process::Command) -> Command {
        Command { inner, chosen: [false; 3] }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
