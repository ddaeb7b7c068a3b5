//! Starts and stops a server of Kumihimo with its mount.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use kumihimo_tests::process::send_signal;
use rustix::process::Signal;

use crate::image::{run, told};
use crate::place::Scratch;

/// Organisation of the server, as in `--organisation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Organisation {
    /// One thread that handles one request at a time.
    Sequential,
    /// User-level threads without kernel support.
    UserThreads,
    /// One process for the files and one for the clock.
    Processes,
    /// Kernel threads.
    KernelThreads,
    /// Microprocesses.
    Microprocesses,
}

impl Organisation {
    /// All organisations.
    pub const ALL: [Organisation; 5] = [
        Organisation::Sequential,
        Organisation::UserThreads,
        Organisation::Processes,
        Organisation::KernelThreads,
        Organisation::Microprocesses,
    ];
}

impl fmt::Display for Organisation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Organisation::Sequential => "sequential",
            Organisation::UserThreads => "user-threads",
            Organisation::Processes => "processes",
            Organisation::KernelThreads => "kernel-threads",
            Organisation::Microprocesses => "microprocesses",
        })
    }
}

/// Arguments of a server.
#[derive(Clone, Debug)]
pub struct Options {
    organisation: Organisation,
    more: Vec<String>,
}

impl Options {
    /// Selects an organisation, with defaults for everything else.
    #[must_use]
    pub fn new(organisation: Organisation) -> Options {
        Options { organisation, more: Vec::new() }
    }

    /// Adds command-line arguments.
    #[must_use]
    pub fn with(mut self, arguments: &[&str]) -> Options {
        self.more.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }
}

/// Timeout of the server's start and end. A longer wait means a hang.
const LIMIT: Duration = Duration::from_secs(60);

/// A server in the foreground with its mount. Dropping this value kills the server and unmounts.
#[derive(Debug)]
pub struct Mounted {
    kumi: PathBuf,
    server: Child,
    point: PathBuf,
    scratch: Scratch,
    /// Thread that drains the server's standard output, so that the server never blocks on a full
    /// pipe.
    output: Option<std::thread::JoinHandle<String>>,
}

impl Mounted {
    /// Starts `kumi mount -f` and waits until the file system is served.
    ///
    /// # Panics
    /// If the server does not start.
    #[must_use]
    pub fn start(kumi: &Path, options: &Options, store: &Path) -> Mounted {
        let (mut begun, served) = Mounted::begin(kumi, options, store);
        if served {
            return begun;
        }
        let status = begun.wait();
        panic!("kumi mount {options:?} {}: {status}\n{}", store.display(), begun.errors());
    }

    /// As [`start`](Mounted::start), if the server may refuse to start.
    ///
    /// # Errors
    /// The server's standard error and exit status if it refuses.
    pub fn try_start(
        kumi: &Path,
        options: &Options,
        store: &Path,
    ) -> Result<Mounted, (ExitStatus, String)> {
        let (mut begun, served) = Mounted::begin(kumi, options, store);
        if served { Ok(begun) } else { Err((begun.wait(), begun.errors())) }
    }

    fn begin(kumi: &Path, options: &Options, store: &Path) -> (Mounted, bool) {
        let scratch = Scratch::new("mount");
        let point = scratch.directory("point");
        let errors = std::fs::File::create(scratch.path().join("errors")).expect("a file");
        let mut server = Command::new(kumi)
            .args(["mount", "-f", "--organisation", &options.organisation.to_string()])
            .args(&options.more)
            .arg(store)
            .arg(&point)
            .env("KUMI_DIR", scratch.directory("run"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", kumi.display()));
        let mut said = BufReader::new(server.stdout.take().expect("a pipe"));
        let (sender, receiver) = std::sync::mpsc::channel();
        let output = std::thread::spawn(move || {
            let mut all = String::new();
            let _ = said.read_line(&mut all);
            let _ = sender.send(all.starts_with("mounted "));
            let _ = said.read_to_string(&mut all);
            all
        });
        let mounted =
            Mounted { kumi: kumi.to_owned(), server, point, scratch, output: Some(output) };
        let served = receiver
            .recv_timeout(LIMIT)
            .unwrap_or_else(|_| panic!("no output within the time limit: {}", mounted.errors()));
        (mounted, served)
    }

    /// The mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Process ID of the server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// Standard error of the server so far.
    #[must_use]
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("errors")).unwrap_or_default()
    }

    /// Returns whether something is mounted at the mount point.
    fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        mounts
            .lines()
            .any(|line| line.split(' ').nth(1).is_some_and(|point| Path::new(point) == self.point))
    }

    fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.server.try_wait().expect("it is a child") {
                return status;
            }
            assert!(begun.elapsed() < LIMIT, "the server does not end: {}", self.errors());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn expect_good_end(&mut self) {
        let status = self.wait();
        let errors = self.errors();
        assert!(status.success() && errors.is_empty(), "the server ended with {status}\n{errors}");
        assert!(!self.is_mounted(), "still mounted");
    }

    /// Unmounts with `kumi umount` and asserts that the server exits with status 0 and without
    /// messages.
    ///
    /// # Panics
    /// If one of these fails.
    pub fn unmount(mut self) {
        let ended = run(
            self.kumi.to_str().expect("UTF-8"),
            &["umount", self.point.to_str().expect("UTF-8")],
        );
        assert!(ended.status.success(), "kumi umount: {}\n{}", told(&ended), self.errors());
        self.expect_good_end();
    }

    /// As [`unmount`](Mounted::unmount), by SIGTERM.
    ///
    /// # Panics
    /// If the server does not exit in this way.
    pub fn terminate(mut self) {
        send_signal(self.server.id(), Signal::TERM).expect("it is a child");
        self.expect_good_end();
    }

    /// Asserts that the server exits with status 0 after its mount was removed by another program.
    ///
    /// # Panics
    /// If the server does not exit in this way.
    pub fn expect_end(mut self) {
        self.expect_good_end();
    }

    /// Kills the server and removes its stale mount with `kumi umount`.
    ///
    /// # Panics
    /// If the mount is still there.
    pub fn kill(mut self) {
        self.server.kill().expect("it is a child");
        self.wait();
        self.clear();
    }

    /// Removes the stale mount of a dead server with `kumi umount`.
    ///
    /// # Panics
    /// If the mount is still there.
    pub fn clear(self) {
        if self.is_mounted() {
            let cleared = run(
                self.kumi.to_str().expect("UTF-8"),
                &["umount", self.point.to_str().expect("UTF-8")],
            );
            assert!(
                cleared.status.success() && !self.is_mounted(),
                "kumi umount: {}",
                told(&cleared)
            );
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = run("umount", &["-l", self.point.to_str().expect("UTF-8")]);
            if self.is_mounted() {
                let _ = run("fusermount3", &["-uz", self.point.to_str().expect("UTF-8")]);
            }
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
        if let Some(output) = self.output.take() {
            let _ = output.join();
        }
    }
}
