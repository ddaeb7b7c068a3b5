//! Runs the example with a real PostgreSQL.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kumihimo_tests::process::{Ended, finish};
use kumihimo_tests::skip;

const EXAMPLE: &str = env!("CARGO_BIN_EXE_sqlx_beside_tokio");
const NAME: &str = "microprocesses_query_a_real_server";

/// The folder of PostgreSQL's programs: on Debian they are not in the search path.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok().into_iter().flatten();
    let folders = versions.flatten().map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders
        .chain(std::env::split_paths(&path))
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
}

/// A server with its data in a temporary directory, where its socket is, too. Both go at the end.
struct Server {
    child: Child,
    folder: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
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

fn start(programs: &Path) -> Server {
    let folder = std::env::temp_dir().join(format!("kumihimo-postgres-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new folder");
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
    let log = std::fs::File::create(folder.join("log")).expect("a new file");
    let child = command(&programs.join("postgres"), &folder)
        .args(["-D", "data", "-h", "", "-F", "-k"])
        .arg(&folder)
        .stdout(log.try_clone().expect("a descriptor"))
        .stderr(log)
        .spawn()
        .expect("setpriv is installed");
    let mut server = Server { child, folder };
    loop {
        let log = std::fs::read_to_string(server.folder.join("log")).expect("text");
        if log.contains("ready to accept connections") {
            return server;
        }
        assert!(server.child.try_wait().expect("our child").is_none(), "{log}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn run(url: &str) -> Ended {
    let mut command = Command::new(EXAMPLE);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(EXAMPLE, command.spawn().expect("the example"))
}

#[test]
fn microprocesses_query_a_real_server() {
    let Some(programs) = programs() else {
        return skip(NAME, "no PostgreSQL: apt-get install postgresql");
    };
    let server = start(&programs);
    let url = format!("postgres://tester@localhost/postgres?host={}", server.folder.display());
    let Ended { status, stdout, stderr } = run(&url);
    assert!(status.success(), "{status}\n{stdout}\n{stderr}");
    // 200 rows, and the sums of 1..=200 and of its squares.
    assert_eq!(stdout, "rows 200, sum 20100, squares 2686700\n");
}

#[test]
fn missing_server_is_reported() {
    let ended = run("postgres://tester@localhost/postgres?host=/nonexistent");
    assert!(!ended.status.success() && ended.stderr.contains("No such file"), "{ended:?}");
}
