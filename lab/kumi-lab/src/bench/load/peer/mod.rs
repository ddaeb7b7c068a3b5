//! Peer of `unwrapped`, a separate process and the same for every contender.

mod delayed;
mod http;

use std::io::{self, Write};

use kumihimo_bench_kit::raise_descriptors;

use crate::bench::contender::redis::Redis;
use crate::bench::contender::{Trouble, own_cores};

#[derive(clap::Args)]
pub struct Args {
    /// redis: a Redis server; http: clients of the contender's server; long: a server with delayed
    /// replies
    #[arg(value_parser = ["redis", "http", "long"])]
    kind: String,
}

/// Prints `ready port=PORT`, or `refused: WHY`, and serves until its standard input ends.
pub fn run(args: Args) -> Result<(), String> {
    raise_descriptors();
    let said = |e: io::Error| format!("bench-peer {}: {e}", args.kind);
    let mut redis = None;
    let port = match args.kind.as_str() {
        "redis" => match Redis::start(&own_cores()) {
            Ok(server) => redis.insert(server).port,
            Err(Trouble::Refused(why)) => {
                println!("refused: {why}");
                return Ok(());
            }
            Err(Trouble::Failed(why)) => return Err(why),
        },
        "http" => http::listen().map_err(said)?,
        "long" => delayed::listen().map_err(said)?,
        other => return Err(format!("{other}: unknown peer")),
    };
    println!("ready port={port}");
    io::stdout().flush().map_err(said)?;
    io::copy(&mut io::stdin(), &mut io::sink()).map_err(said)?;
    Ok(())
}
