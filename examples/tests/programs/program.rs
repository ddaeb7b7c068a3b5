//! Helpers that run programs.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use kumihimo_tests::process::{Ended, finish};

/// A running server, killed when dropped.
pub struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts `program`. The kernel kills it when the calling thread ends.
    pub fn start(program: &str, arguments: &[&str]) -> Server {
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", program])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{program}: {e}"));
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Server { child, stdout }
    }

    /// The next line of the server's standard output, without its line feed. Empty if the server
    /// has ended.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Its process ID. `setpriv` and `sh` execute the program, so it is the program's own.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the server is still running.
    pub fn is_up(&mut self) -> bool {
        self.child.try_wait().expect("our child").is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `program` to completion.
pub fn run(program: &str, arguments: &[&str]) -> Ended {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(program, command.spawn().unwrap_or_else(|e| panic!("{program}: {e}")))
}

/// As [`run`]; returns the standard output.
pub fn output(program: &str, arguments: &[&str]) -> String {
    let Ended { status, stdout, stderr } = run(program, arguments);
    assert!(status.success(), "{program} {arguments:?}: {status}\n{stdout}\n{stderr}");
    stdout
}

/// A temporary directory, removed when dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("kumihimo-{test}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Folder(path)
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Reads to the end.
pub fn rest(mut from: impl Read) -> String {
    let mut all = String::new();
    from.read_to_string(&mut all).expect("text");
    all
}
