//! A serving contender: its process, its mounts, and its load generators.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kumihimo_bench_files::Outcome;
use rustix::mount::{UnmountFlags, unmount};

use super::Bench;
use super::serving::{self, Setting};
use crate::bench::contender::program::Program;
use crate::bench::contender::{Contender, Runtime, Trouble, cores_for, output_on};

/// Time limit of a slice and of a mount.
const PATIENCE: Duration = Duration::from_secs(90);
/// Interval between checks of a mount.
const LOOK: Duration = Duration::from_millis(2);
const READY: &str = "ready=1";

/// A served mount. The server is ended when this is dropped.
pub struct Mounted {
    /// The server's process; `None` if the kernel serves.
    server: Option<Program>,
    files: MountPoint,
    clock: MountPoint,
    cores: usize,
    loader: PathBuf,
    /// Directory in which the load generator finds the server's gates.
    directory: PathBuf,
}

/// A mount point, possibly mounted.
struct MountPoint(PathBuf);

impl MountPoint {
    fn is_mounted(&self) -> bool {
        let device = |path: &Path| path.metadata().map(|metadata| metadata.dev());
        match (device(&self.0), self.0.parent().map(device)) {
            (Ok(own), Some(Ok(above))) => own != above,
            _ => false,
        }
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        // A server that ended on its own has unmounted (EINVAL). Without privileges, fusermount3
        // must unmount.
        if unmount(&self.0, UnmountFlags::DETACH) == Err(rustix::io::Errno::PERM) {
            let mut fusermount = Command::new("fusermount3");
            let _ = fusermount.args(["-u", "-z", "-q"]).arg(&self.0).stderr(Stdio::null()).status();
        }
    }
}

impl Mounted {
    /// Starts a contender on `cores` cores, and waits until it serves.
    pub fn start(
        bench: &Bench,
        contender: &Contender,
        setting: Setting,
        cores: usize,
    ) -> Result<Mounted, Trouble> {
        let loader = bench
            .programs
            .get(&Runtime::Kumihimo)
            .ok_or("not asked for")?
            .as_ref()
            .map_err(String::clone)?;
        let files = MountPoint(bench.stores.mount_point("mnt")?);
        // A rival's clock, if it has one, is one of its files.
        let ours = contender.runtime == Runtime::Kumihimo;
        let clock =
            MountPoint(if ours { bench.stores.mount_point("clock")? } else { files.0.clone() });
        let mut mounted = Mounted {
            server: None,
            files,
            clock,
            cores,
            loader: loader.clone(),
            directory: bench.stores.directory().to_owned(),
        };
        if contender.value("server") == Some("kernel") {
            mounted.by_the_kernel(&bench.stores.image("kernel")?)?;
            return Ok(mounted);
        }
        let command =
            serving::command(bench, contender, setting, &mounted.files.0, &mounted.clock.0, cores)?;
        let mut server = Program::start(&cores_for(cores), command)?;
        if ours || contender.value("server") == Some("memory") {
            let said = server.hear_within(PATIENCE).map_err(|e| format!("the server: {e}"))?;
            match (said.strip_prefix("refused: "), said.starts_with("mounted ")) {
                (Some(why), _) => return Err(Trouble::Refused(why.to_owned())),
                (_, true) => {}
                _ => return Err(format!("the server printed {said:?}").into()),
            }
        }
        mounted.server = Some(server);
        mounted.wait()?;
        Ok(mounted)
    }

    fn by_the_kernel(&self, image: &Path) -> Result<(), Trouble> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext2", "-o", "loop"]).arg(image).arg(&self.files.0);
        let done = mount.output().map_err(|e| format!("mount: {e}"))?;
        let complaint = String::from_utf8_lossy(&done.stderr);
        if done.status.success() {
            Ok(())
        } else {
            Err(Trouble::Refused(format!("the kernel's ext2: {}", complaint.trim())))
        }
    }

    /// Waits for servers that do not report their start.
    fn wait(&mut self) -> Result<(), Trouble> {
        let end = Instant::now() + PATIENCE;
        while !self.files.is_mounted() {
            if self.server.as_mut().is_some_and(Program::has_ended) {
                return Err("the server ended before it served".into());
            }
            if Instant::now() > end {
                return Err(format!("not mounted within {PATIENCE:?}").into());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Process ID of the server, unless it is the kernel.
    pub fn server(&self) -> Option<u32> {
        self.server.as_ref().map(Program::id)
    }

    fn loading(&self) -> Command {
        let mut command = Command::new(&self.loader);
        command
            .arg("bench-files")
            .arg(&self.files.0)
            .arg(&self.clock.0)
            .env("KUMI_DIR", &self.directory);
        command
    }

    /// Makes calls to one of its gates, on the same cores.
    pub fn caller(&self, gate: &str, calls: u32) -> Result<Outcome, Trouble> {
        let mut command = self.loading();
        let said =
            output_on(&cores_for(self.cores), command.args(["--gate", gate, &calls.to_string()]))?;
        Ok(said.trim().parse::<Outcome>()?)
    }

    /// Starts a load generator on the same cores.
    pub fn load(&self) -> Result<Load, Trouble> {
        let mut program = Program::start(&cores_for(self.cores), self.loading())?;
        match program.hear_within(PATIENCE)?.as_str() {
            "ready" => Ok(Load(program)),
            other => Err(format!("the load printed {other:?}").into()),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The server unmounts and closes its store cleanly. Remaining mounts are removed with the
        // mount points.
        if let Some(server) = &self.server {
            server.terminate();
        }
        self.server = None;
    }
}

/// A process that executes commands on the files.
pub struct Load(Program);

impl Load {
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Executes a command completely.
    pub fn ask(&mut self, line: &str) -> Result<Outcome, Trouble> {
        self.0.tell(line)?;
        self.hear(line)
    }

    /// Prepares a command, which the next [`go`](Load::go) starts.
    pub fn prepare(&mut self, line: &str) -> Result<(), Trouble> {
        self.0.tell(line)?;
        match self.0.hear_within(PATIENCE)?.as_str() {
            READY => Ok(()),
            other => Err(format!("{line}: {other}").into()),
        }
    }

    pub fn go(&mut self) -> Result<(), Trouble> {
        Ok(self.0.tell("go")?)
    }

    /// Result of the command.
    pub fn hear(&mut self, line: &str) -> Result<Outcome, Trouble> {
        let said = self.0.hear_within(PATIENCE).map_err(|e| format!("{line}: {e}"))?;
        Ok(said.parse().map_err(|e| format!("{line}: {e}"))?)
    }
}
