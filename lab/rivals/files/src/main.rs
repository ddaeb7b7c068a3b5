//! Lower bound for `servers`: files in memory, served by kernel threads that read the FUSE device
//! and do nothing else. `rival-files servers server=memory threads=N from=DIRECTORY at=MOUNTPOINT`
//! copies the directory's files, prints `mounted MOUNTPOINT`, and ends with SIGTERM or an unmount.
//! Its last line is `served OPCODE=REQUESTS ...`.

mod answer;
mod connection;
mod tree;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use kumihimo_bench_kit::Request;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use connection::Connection;
use tree::Tree;

fn main() {
    if let Err(why) = run() {
        if let Some(why) = why.strip_prefix("refused: ") {
            println!("refused: {why}");
        }
        eprintln!("rival-files: {why}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let request = Request::parse(std::env::args().skip(1)).map_err(|e| e.to_string())?;
    if request.bench != "servers" || request.get("server") != Some("memory") {
        return Err(format!("{}: unknown benchmark; only `servers server=memory` is supported", request.bench));
    }
    let path = |key| request.get(key).map(PathBuf::from).ok_or(format!("{key}= is missing"));
    let (from, at) = (path("from")?, path("at")?);
    let threads = request.value("threads", 1usize).max(1);
    let tree = Arc::new(Tree::of(&from).map_err(|e| format!("{}: {e}", from.display()))?);
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|e| format!("signals: {e}"))?;
    let connection = Connection::mount(&at)?;
    // Open all descriptors before the first request: a clone needs an initialised connection, which
    // the first reader provides.
    connection.begin(&tree).map_err(|e| format!("{}: {e}", at.display()))?;
    let mut readers = Vec::new();
    for n in 0..threads {
        let device = if n == 0 { connection.device() } else { connection.another()? };
        let tree = tree.clone();
        readers.push(thread::spawn(move || answer::serve(&device, &tree)));
    }
    println!("mounted {}", at.display());
    let end = connection.ending();
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            end();
        }
    });
    let mut served: BTreeMap<u32, u64> = BTreeMap::new();
    for reader in readers {
        for (opcode, requests) in reader.join().map_err(|_| "a reader panicked")? {
            *served.entry(opcode).or_default() += requests;
        }
    }
    let words: Vec<String> = served.iter().map(|(opcode, requests)| format!(" {opcode}={requests}")).collect();
    println!("served{}", words.concat());
    Ok(())
}
