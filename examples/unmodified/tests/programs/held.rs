//! Runs examples, and counts their kernel threads while all of their threads wait.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kumihimo_tests::process::{Ended, finish};

/// Kernel threads that an example may have while a thousand of its threads wait.
const AT_MOST: usize = 16;

/// Virtual processors of an example: a number that leaves the limit independent of the machine.
const VPS: &str = "2";

/// A running example that has not been told to go on. Killed by the kernel when the thread that
/// started it ends.
pub struct Held {
    child: Child,
    program: &'static str,
}

impl Held {
    /// Starts a program, with as many descriptors as this user may have.
    pub fn start(program: &'static str, arguments: &[&str]) -> Held {
        let script = "ulimit -n $(ulimit -Hn); exec setpriv --pdeathsig KILL \"$0\" \"$@\"";
        let child = Command::new("sh")
            .args(["-c", script, program])
            .args(arguments)
            .env("KUMI_DIR", "off")
            .env("KUMI_VPS", VPS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell is installed");
        Held { child, program }
    }

    /// The next line of the standard output, without its line feed. Reads no further.
    pub fn line(&mut self) -> String {
        let stdout = self.child.stdout.as_mut().expect("a pipe");
        let (mut line, mut byte) = (Vec::new(), [0]);
        while stdout.read(&mut byte).expect("the program's output") != 0 {
            match byte[0] {
                b'\n' => return String::from_utf8(line).expect("text"),
                byte => line.push(byte),
            }
        }
        let mut trouble = String::new();
        let _ = self.child.stderr.take().expect("a pipe").read_to_string(&mut trouble);
        panic!("{} ended early: {trouble}", self.program);
    }

    /// Checks the line in which the program counts its kernel threads while it waits, and counts
    /// them from outside.
    pub fn assert_waits(&mut self, expected: &str) {
        let said = self.line();
        let told = said.strip_prefix(expected).and_then(|rest| rest.strip_prefix(" on "));
        let told = told.and_then(|rest| rest.strip_suffix(" kernel threads")).expect(&said);
        self.assert_few_kernel_threads(told.parse().expect(&said));
    }

    /// Waits until the program, whose threads all wait, has few kernel threads. `told` is the
    /// number that it has counted: what page faults and the like took may not have ended by then.
    pub fn assert_few_kernel_threads(&mut self, told: usize) {
        let program = self.program.rsplit('/').next().expect("a name");
        println!("{program}: {told} kernel threads; from outside: {}", self.kernel_threads());
        self.wait_for_few_kernel_threads();
    }

    /// Waits until the program, whose threads all wait, has few kernel threads.
    pub fn wait_for_few_kernel_threads(&mut self) {
        let mut counted = self.kernel_threads();
        while counted > AT_MOST {
            std::thread::sleep(Duration::from_millis(1));
            counted = self.kernel_threads();
        }
    }

    fn kernel_threads(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it runs");
        let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
        threads.expect("a line of proc(5)").trim().parse().expect("a number")
    }

    /// Ends the standard input, for which the program waits, and returns the rest of its output.
    pub fn release(self) -> String {
        let Ended { status, stdout, stderr } = finish(self.program, self.child);
        assert!(status.success() && stderr.is_empty(), "{status}\n{stdout}\n{stderr}");
        stdout
    }

    /// Ends the program.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program that fails, and returns its standard error.
pub fn failure(program: &'static str, arguments: &[&str]) -> String {
    let Ended { status, stderr, .. } = finish(program, Held::start(program, arguments).child);
    assert!(!status.success(), "{stderr}");
    stderr
}
