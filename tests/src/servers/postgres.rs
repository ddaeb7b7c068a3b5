//! PostgreSQL.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Running;

/// A PostgreSQL server that listens on a socket in its directory. Its user is `tester`.
pub struct Postgres(Running);

impl Postgres {
    /// Starts a server with these parameters, such as `max_connections=200`. `None` if PostgreSQL
    /// is not installed.
    ///
    /// # Panics
    /// If the server does not start.
    #[must_use]
    pub fn start(parameters: &[&str]) -> Option<Postgres> {
        let programs = programs()?;
        let folder = super::folder("postgres");
        if own_uid() == 0 {
            let passwd = std::fs::read_to_string("/etc/passwd").expect("users");
            let user = passwd.lines().find(|line| line.starts_with("postgres:")).expect("its user");
            let ids: Vec<u32> = user.split(':').filter_map(|field| field.parse().ok()).collect();
            chown(&folder, Some(ids[0]), Some(ids[1])).expect("root may");
        }
        let initdb = command(&programs.join("initdb"), &folder)
            .args(["-D", "data", "-A", "trust", "-U", "tester", "--no-sync"])
            .output()
            .expect("setpriv is installed");
        assert!(initdb.status.success(), "{}", String::from_utf8_lossy(&initdb.stderr));
        let (stdout, stderr) = super::log(&folder);
        let child = command(&programs.join("postgres"), &folder)
            .args(["-D", "data", "-h", "", "-F", "-k"])
            .arg(&folder)
            .args(parameters.iter().flat_map(|parameter| ["-c", parameter]))
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .expect("setpriv is installed");
        let mut running = Running { child, folder };
        while !running.log().contains("ready to accept connections") {
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Postgres(running))
    }

    /// The URL of its database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://tester@localhost/postgres?host={}", self.0.folder.display())
    }
}

/// The directory of PostgreSQL's programs: on Debian they are not in the search path.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok().into_iter().flatten();
    let folders = versions.flatten().map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders
        .chain(std::env::split_paths(&path))
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
}

/// A command that runs as the user `postgres` if the test is root's: the server refuses root.
fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if std::fs::metadata(folder).expect("it exists").uid() != own_uid() {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    command.arg(program).current_dir(folder).stdin(Stdio::null());
    command
}

fn own_uid() -> u32 {
    std::fs::metadata("/proc/self").expect("proc").uid()
}
