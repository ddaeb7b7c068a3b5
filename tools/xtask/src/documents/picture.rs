//! `cargo xtask picture`: the picture of `kumi top` in README and book, from a real run.
//!
//! Builds `kumi` and the example `busy`, runs both in a run-time directory of their own, `kumi top`
//! in a pseudo-terminal, and draws the screen as an SVG. With `--session`, it presses some keys
//! then, and writes what the terminal received as an asciicast.

mod asciicast;
mod svg;
mod terminal;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::workspace;
use terminal::Terminal;

/// Columns and rows of the screen.
const SIZE: (u16, u16) = (120, 22);

/// Screen contents when both programs run and rates are available.
const COMPLETE: [&str; 3] = ["connection", "suspended", "blocked"];

/// Time for the programs to show all of that. Not a measure of speed: reaching it is a failure.
const LIMIT: Duration = Duration::from_secs(60);

/// `kumi top` counts rates from its second look on, a second after the first.
const LOOKS: Duration = Duration::from_secs(4);

#[derive(clap::Args)]
pub struct Args {
    /// The file that is written
    #[arg(long, default_value = "docs/src/images/kumi-top.svg")]
    output: PathBuf,
    /// A folder that has `kumi` and `busy` already; without it both are built
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Record a session with some keys, too, into this file (asciicast, version 2)
    #[arg(long, value_name = "FILE")]
    session: Option<PathBuf>,
}

/// Keys of the recorded session, each with a text that the screen shows thereafter.
const SESSION: [(&str, &str); 9] = [
    ("fclock\r", "is in row"),
    ("b", "stack of"),
    ("x", "kumi top"),
    ("tt", "tree"),
    ("t", "by wait"),
    ("tgjj", "at this place"),
    ("t", "WAITS-FOR"),
    ("v", "time from wake-up to run"),
    ("x", "WAITS-FOR"),
];

/// Time for which the recorded session shows the effect of a key.
const SHOWN: Duration = Duration::from_millis(1_500);

/// Draws the picture. Blocks the kernel thread.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let programs = args.programs.clone().map_or_else(build, Ok)?;
    let place = Place::new()?;
    let _busy = start(&programs.join("busy"), &place.0)?;
    let mut kumi = Command::new(programs.join("kumi"));
    // Without the settings of the user.
    kumi.arg("top").env("KUMI_DIR", &place.0).env("XDG_CONFIG_HOME", place.0.join("config"));
    let mut terminal = Terminal::start(kumi, SIZE)?;
    let begun = Instant::now();
    let is_complete = |screen: &str| COMPLETE.iter().all(|text| screen.contains(text));
    while begun.elapsed() < LOOKS || !is_complete(&terminal.screen().contents()) {
        terminal.read()?;
        if begun.elapsed() > LIMIT {
            return Err(format!("not all is shown:\n{}", terminal.screen().contents()).into());
        }
    }
    let output = workspace::root().join(&args.output);
    std::fs::write(&output, svg::draw(terminal.screen()))?;
    println!("{}", output.display());
    if let Some(session) = &args.session {
        record(&mut terminal)?;
        std::fs::write(session, asciicast::draw(SIZE, "kumi top", terminal.written()))?;
        println!("{}", session.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Presses the keys of the session, one after the effect of the other.
fn record(terminal: &mut Terminal) -> Result<(), Failure> {
    for (keys, text) in SESSION {
        let begun = Instant::now();
        terminal.send(keys)?;
        while begun.elapsed() < SHOWN || !terminal.screen().contents().contains(text) {
            terminal.read()?;
            if begun.elapsed() > LIMIT {
                let screen = terminal.screen().contents();
                return Err(format!("no {text:?} after the keys {keys:?}:\n{screen}").into());
            }
        }
    }
    Ok(())
}

/// Builds both programs, and returns the folder that has them.
fn build() -> Result<PathBuf, Failure> {
    let mut build = workspace::cargo();
    // The picture shows no speed: the build need not be a release.
    build.args(["build", "-p", "kumi", "-p", "kumihimo-examples"]);
    build.args(["--bin", "kumi", "--bin", "busy"]);
    if !build.status()?.success() {
        return Err("kumi and the example `busy` do not build".into());
    }
    Ok(workspace::target().join("debug"))
}

/// A child that ends with this program's interest in it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &Path, place: &Path) -> Result<Ended, Failure> {
    let mut command = Command::new(program);
    command.arg("300").env("KUMI_DIR", place).stdin(Stdio::null());
    Ok(Ended(command.spawn().map_err(|e| format!("{}: {e}", program.display()))?))
}

/// A run-time directory, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Place, Failure> {
        let path = std::env::temp_dir().join(format!("kumihimo-picture-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        Ok(Place(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
