//! A server of ours with its mount.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use kumihimo_tests::process::send_signal;
use rustix::process::Signal;

use crate::image::{run, told};
use crate::place::Scratch;

/// How the server is organised, as `--organisation` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Organisation {
    /// One loop.
    Sequential,
    /// User-level threads of which the kernel knows nothing.
    UserThreads,
    /// A process each.
    Processes,
    /// Kernel threads.
    KernelThreads,
    /// Microprocesses.
    Microprocesses,
}

impl Organisation {
    /// All five.
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

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Options {
    organisation: Organisation,
    more: Vec<String>,
}

impl Options {
    /// An organisation, and all else by default.
    #[must_use]
    pub fn new(organisation: Organisation) -> Options {
        Options { organisation, more: Vec::new() }
    }

    /// With more arguments.
    #[must_use]
    pub fn with(mut self, arguments: &[&str]) -> Options {
        self.more.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }
}

/// Longer means a hang. Not a measure of speed.
const LIMIT: Duration = Duration::from_secs(60);

/// A server in the foreground, with its mount. Whatever happens, neither is left behind.
#[derive(Debug)]
pub struct Mounted {
    kumi: PathBuf,
    server: Child,
    point: PathBuf,
    scratch: Scratch,
    /// Its standard output goes on being read, so that it never waits there.
    output: Option<std::thread::JoinHandle<String>>,
}

impl Mounted {
    /// Starts `kumi mount -f` and waits until it serves.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn start(kumi: &Path, options: &Options, store: &Path) -> Mounted {
        let (mut begun, served) = Mounted::begin(kumi, options, store);
        if served {
            return begun;
        }
        let status = begun.wait();
        panic!("kumi mount {options:?} {}: {status}\n{}", store.display(), begun.errors());
    }

    /// As [`start`](Mounted::start), where it may refuse: then, what it said on standard error, and
    /// how it ended.
    ///
    /// # Errors
    /// That it refused.
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
            .unwrap_or_else(|_| panic!("it says nothing: {}", mounted.errors()));
        (mounted, served)
    }

    /// The mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// The server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// What it said on standard error so far.
    #[must_use]
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("errors")).unwrap_or_default()
    }

    /// Whether something is mounted at the mount point.
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
        assert!(status.success() && errors.is_empty(), "the server: {status}\n{errors}");
        assert!(!self.is_mounted(), "still mounted");
    }

    /// Unmounts by `kumi umount` and expects that the server ends well, without a word of
    /// complaint.
    ///
    /// # Panics
    /// If not.
    pub fn unmount(mut self) {
        let ended = run(
            self.kumi.to_str().expect("UTF-8"),
            &["umount", self.point.to_str().expect("UTF-8")],
        );
        assert!(ended.status.success(), "kumi umount: {}\n{}", told(&ended), self.errors());
        self.expect_good_end();
    }

    /// Ends the server by SIGTERM, and expects the same.
    ///
    /// # Panics
    /// If not.
    pub fn terminate(mut self) {
        send_signal(self.server.id(), Signal::TERM).expect("it is a child");
        self.expect_good_end();
    }

    /// Expects that the server ends by itself, and well: its mount was taken away.
    ///
    /// # Panics
    /// If not.
    pub fn expect_end(mut self) {
        self.expect_good_end();
    }

    /// Kills the server, and clears what it leaves by `kumi umount`.
    ///
    /// # Panics
    /// If that does not clear it.
    pub fn kill(mut self) {
        self.server.kill().expect("it is a child");
        self.wait();
        self.clear();
    }

    /// Clears what a dead server left by `kumi umount`.
    ///
    /// # Panics
    /// If that does not clear it.
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
