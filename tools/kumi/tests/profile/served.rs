//! Programs to profile, and `kumi` beside them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use kumihimo::thread;
use kumihimo_machine::directory::Directory;
use kumihimo_machine::handler::Microprocess;
use kumihimo_tests::process;
use kumihimo_trace::pprof;
use kumihimo_trace::profile::Profile;

/// A temporary run-time directory, which also holds the results.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(test: &str) -> Folder {
        let name = format!("kumi-profile-{}-{}", test.replace("::", "-"), std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Directory::own(&path).expect("a run-time directory");
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a result.
    pub fn file(&self, name: &str) -> String {
        let results = self.0.with_extension("results");
        std::fs::create_dir_all(&results).expect("a folder");
        results.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// A `kumi profile` command with this run-time directory.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kumi"));
        command.arg("profile").args(args).env("KUMI_DIR", &self.0);
        command
    }

    /// Runs `kumi profile` and returns its exit code, standard output and standard error.
    pub fn profile(&self, args: &[&str]) -> (i32, String, String) {
        told(&self.command(args).output().expect("kumi"))
    }

    /// Starts this test program as the child of `test`, and waits until `is` holds for its
    /// microprocesses.
    pub fn served(&self, test: &str, is: impl Fn(&[Microprocess]) -> bool) -> Served {
        let folder = self.0.to_str().expect("UTF-8");
        let child = process::start(test, &[("KUMI_DIR", folder)]);
        let served = Served(child);
        eventually("the program is ready", || {
            let output = Command::new(env!("CARGO_BIN_EXE_kumi"))
                .args(["ps", "--json"])
                .env("KUMI_DIR", &self.0)
                .output()
                .expect("kumi");
            let rows = String::from_utf8(output.stdout).expect("text");
            let rows: Vec<Microprocess> =
                rows.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            is(&rows)
        });
        served
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
        let _ = std::fs::remove_dir_all(self.0.with_extension("results"));
    }
}

/// A program that runs until this value is dropped.
pub struct Served(Child);

impl Served {
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Whether a profile of it is in progress: a kernel thread serves it. To ask for a profile
    /// would keep another client from beginning its own.
    pub fn is_profiled(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("it runs");
        let names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")));
        names.flatten().any(|name| name.trim_end() == "kumi-profile")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

/// Returns the profile in a file.
pub fn read(file: &str) -> Profile {
    pprof::read(&std::fs::read(file).expect("a file")).expect("a profile")
}

/// Returns the last value of each function of a profile, with the functions that it calls, by the
/// last part of its name; and the sum of all.
pub fn sums(profile: &Profile) -> (HashMap<String, i64>, i64) {
    let (mut sums, mut total) = (HashMap::new(), 0);
    let text = |at: Option<i64>| &profile.string_table[at.unwrap_or(0) as usize];
    for sample in &profile.sample {
        let value = *sample.value.last().expect("values");
        total += value;
        let lines = sample.location_id.iter().flat_map(|location| {
            &profile.location[usize::try_from(*location).expect("a number") - 1].line
        });
        let mut called: Vec<&str> = lines
            .map(|line| {
                let function = line.function_id.expect("a function") as usize - 1;
                let name = text(profile.function[function].name);
                name.rsplit("::").next().unwrap_or(name)
            })
            .collect();
        called.sort_unstable();
        called.dedup();
        for function in called {
            *sums.entry(function.to_owned()).or_default() += value;
        }
    }
    (sums, total)
}

/// Returns whether microprocesses are kernel threads, which cannot be profiled. Reports `test` as
/// skipped then.
pub fn one_to_one(test: &str) -> bool {
    let skip = process::is_one_to_one();
    if skip {
        kumihimo_tests::skip(test, "microprocesses are kernel threads here");
    }
    skip
}

/// Returns when `is` returns true.
pub fn eventually(what: &str, is: impl FnMut() -> bool) {
    kumihimo_tests::until(what, || (), is);
}

/// Runs a microprocess that waits, until the program is killed.
pub fn wait_for_ever() {
    let _ = thread::spawn(thread::park).join();
}
