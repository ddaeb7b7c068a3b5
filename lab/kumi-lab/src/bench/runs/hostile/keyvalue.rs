//! Attacks on `kumi serve kv`, with one VP.

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use super::attack::{ATTACKS, Attack, Client, prepare};
use super::load::Load;
use super::{FEWEST, SLICE_MS, samples as rows, to_last_core};
use crate::bench::contender::program::Program;
use crate::bench::contender::{Programs, Runtime, Trouble, own_cores};
use crate::bench::plan::Options;
use crate::bench::plan::order::Order;
use crate::bench::report::row::Sample;

/// A server that is ended when dropped.
struct Server {
    program: Program,
    address: SocketAddr,
}

impl Server {
    fn start(programs: &Programs) -> Result<Server, Trouble> {
        let kumi = programs
            .get(&Runtime::Kumihimo)
            .ok_or("not asked for")?
            .as_ref()
            .map_err(String::clone)?;
        let mut command = Command::new(kumi);
        command.args(["serve", "kv", "--listen", "127.0.0.1:0"]).env("KUMI_VPS", "1");
        let mut program = Program::start(&own_cores()[..1], command)?;
        loop {
            let said = program.hear().map_err(|e| format!("the server: {e}"))?;
            if let Some(address) = said.strip_prefix("listening ") {
                let address = address.parse().map_err(|e| format!("{address}: {e}"))?;
                return Ok(Server { program, address });
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.program.terminate();
    }
}

/// Runs all rounds.
pub fn run(options: &Options, programs: &Programs) -> Result<Vec<Sample>, Trouble> {
    let server = Server::start(programs)?;
    let (options, address) = (options.clone(), server.address);
    // A thread of its own, which is confined to a core.
    let measured = std::thread::spawn(move || {
        to_last_core()?;
        slices(&options, address)
    });
    measured.join().map_err(|_| "the load panicked")?
}

fn slices(options: &Options, address: SocketAddr) -> Result<Vec<Sample>, Trouble> {
    let about = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    let mut load = Load::connect(address).map_err(about("the load"))?;
    let mut client = Client::connect(address).map_err(about("the preparation"))?;
    let mut order = Order::new(options.seed);
    let mut samples = Vec::new();
    for _ in 0..options.runs {
        for attack in ATTACKS {
            for under in order.round(2).into_iter().map(|n| n == 1) {
                prepare(&mut client, attack).map_err(about("the preparation"))?;
                load.run(Duration::from_millis(50)).map_err(about("the load"))?;
                let begun = under.then(|| Attack::begin(attack, address)).transpose();
                let begun = begun.map_err(about("the attack"))?;
                let late = load.run(Duration::from_millis(SLICE_MS)).map_err(about("the load"))?;
                if let Some(attack) = begun
                    && attack.end().map_err(about("the attack"))? == 0
                {
                    return Err("the attacker's first command was not answered".into());
                }
                if late.len() < FEWEST {
                    return Err(format!("{} replies in a slice", late.len()).into());
                }
                let delays = (late.us(0.99), Some(late.us(1.0)));
                samples.extend(rows(options, ("kv", attack), under, delays)?);
            }
        }
    }
    Ok(samples)
}
