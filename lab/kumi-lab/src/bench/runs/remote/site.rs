//! Machines on loopback: each is a run-time directory with a border and certificates.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kumihimo_machine::border::MachineState;

use super::PATIENCE;
use super::relay::Relay;
use crate::bench::contender::place::Place;
use crate::bench::contender::program::Program;
use crate::bench::contender::{Trouble, cores_for, output_on};

/// Where `border init` has to be told that borders listen; `--listen` decides it.
const SOMEWHERE: &str = "127.0.0.1:1";
/// Time between two looks at whether the machines have found each other.
const PAUSE: Duration = Duration::from_millis(20);

/// A caller's machine and others that it reaches. The borders end before their directories are
/// removed.
pub struct Site {
    pub here: Machine,
    pub others: Vec<Machine>,
    _relays: Vec<Relay>,
}

/// A border and its run-time directory.
pub struct Machine {
    border: Program,
    place: Place,
}

impl Machine {
    /// The process ID of the border.
    pub fn id(&self) -> u32 {
        self.border.id()
    }

    /// The argument that makes a contender join this machine.
    pub fn argument(&self) -> String {
        format!("directory={}", self.place.directory().display())
    }

    pub fn directory(&self) -> &Path {
        self.place.directory()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.border.terminate();
    }
}

/// The folder of certificates of another machine, beside that of the caller's.
fn folder_of(own: &Path, name: &str) -> PathBuf {
    own.with_file_name(format!("border-{name}"))
}

/// Makes certificates of `build8` in the folder `border` below `place`, and of each of `others` in
/// a folder beside it, with its name behind `border-`. Returns the former.
pub fn certificates(kumi: &Path, place: &Path, others: &[String]) -> Result<PathBuf, Trouble> {
    let own = place.join("border");
    let mut init = Command::new(kumi);
    init.args(["border", "init", "--config"]).arg(&own);
    init.arg(format!("build8={SOMEWHERE}"));
    init.args(others.iter().map(|name| format!("{name}={SOMEWHERE}")));
    output_on(&cores_for(1), &mut init)?;
    Ok(own)
}

/// Starts a border, and returns where it listens.
fn start(
    kumi: &Path,
    cores: usize,
    place: Place,
    folder: &Path,
    listen: Option<&str>,
) -> Result<(Machine, String), Trouble> {
    let mut command = Command::new(kumi);
    command.args(["border", "--config"]).arg(folder).env("KUMI_DIR", place.directory());
    command.args(listen.into_iter().flat_map(|listen| ["--listen", listen]));
    let border = Program::start(&cores_for(cores), command)?;
    let mut machine = Machine { border, place };
    let mut line = || machine.border.hear_within(PATIENCE).map_err(|e| format!("kumi border: {e}"));
    let _epoch = line()?;
    let listening = if listen.is_some() { line()? } else { String::new() };
    Ok((machine, listening))
}

impl Site {
    /// Starts the border of `build8` and those of `others`, with `delay` on each way between them.
    pub fn start(
        kumi: &Path,
        cores: usize,
        delay: Duration,
        others: &[String],
    ) -> Result<Site, Trouble> {
        let place = Place::new("remote")?;
        let own = certificates(kumi, place.path(), others)?;
        let (mut machines, mut relays, mut peers) = (Vec::new(), Vec::new(), String::new());
        for name in others {
            let folder = folder_of(&own, name);
            let allow = "allow build8 observe steer call=* level=63 calls=1024 bytes=1048576\n";
            write(&folder, allow)?;
            let listen = Some("127.0.0.1:0");
            let (machine, said) = start(kumi, cores, Place::new("remote")?, &folder, listen)?;
            let mut at: SocketAddr = said
                .strip_prefix("listening ")
                .and_then(|at| at.parse().ok())
                .ok_or_else(|| format!("kumi border printed {said:?}"))?;
            if !delay.is_zero() {
                let relay = Relay::start(at, delay).map_err(|e| format!("the relay: {e}"))?;
                at = relay.at();
                relays.push(relay);
            }
            peers.push_str(&format!("peer {name} {at}\n"));
            machines.push(machine);
        }
        write(&own, &peers)?;
        let (here, _) = start(kumi, cores, place, &own, None)?;
        let site = Site { here, others: machines, _relays: relays };
        site.until_reachable()?;
        Ok(site)
    }

    /// Waits until the caller's border has reached all others.
    fn until_reachable(&self) -> Result<(), Trouble> {
        let failed = |e: kumihimo_machine::client::Error| e.to_string();
        let machine =
            kumihimo_machine::client::Machine::at(self.here.directory()).map_err(failed)?;
        let begun = Instant::now();
        loop {
            let rows = machine.machines().map_err(failed)?;
            let reached = rows.iter().filter(|row| row.state == MachineState::Reachable).count();
            if reached == self.others.len() {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let lost = rows.iter().find(|row| row.state == MachineState::Unreachable);
                let why =
                    lost.map_or_else(|| "some are not known".to_owned(), |row| row.unreachable());
                return Err(format!("the borders did not find each other: {why}").into());
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn write(folder: &Path, text: &str) -> Result<(), String> {
    let file = folder.join("border.conf");
    fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
}
