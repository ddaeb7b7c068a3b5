//! `kv`: the key-value server of `kumi serve` on the first core. The load generator is this
//! process, on the last core: GET in a closed loop with several outstanding requests on each
//! connection.

#[cfg(test)]
mod tests;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::super::child::{Cores, PATIENCE, Running, Trouble};
use super::super::verdict::Better;
use super::{Sample, Scratch};

const CONNECTIONS: usize = 50;
/// Outstanding requests on each connection.
const PIPELINE: usize = 16;
const WARM_UP: Duration = Duration::from_millis(150);
const SLICE: Duration = Duration::from_millis(80);
const SLICES: usize = 8;
const SET: &str = "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n";
const GET: &str = "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";
const STORED: &str = "+OK\r\n";
const FOUND: &str = "$5\r\nvalue\r\n";

/// Measures several slices on a fresh server and returns the best.
pub fn measure(kumi: &Path) -> Result<Sample, Trouble> {
    let directory = Scratch::in_memory()?;
    let mut command = Command::new(kumi);
    command.args(["serve", "kv", "--listen", "127.0.0.1:0"]);
    command.env("KUMI_VPS", "1").env("KUMI_DIR", directory.path());
    let mut server = Running::start(command, Cores::First)?;
    let address = server.hear_word("listening ")?;
    let load = |length: Duration| -> Result<(f64, f64), String> {
        let address = address.clone();
        let loading = thread::spawn(move || {
            Cores::Last(1).enter()?;
            Load::connect(&address)?.run(length)
        });
        loading.join().map_err(|_| "the load of kv panicked".to_owned())?
    };
    let (mut requests, _) = load(WARM_UP)?;
    let mut sample = Sample::default();
    for _ in 0..SLICES {
        let before = server.cpu_time()?;
        let (done, seconds) = load(SLICE)?;
        let cpu = server.cpu_time()? - before;
        sample.note("rps", Better::Higher, done / seconds);
        sample.note("cpu", Better::Lower, cpu / done / 1e3);
        requests += done;
    }
    let sample = sample.counted(server.instructions(), requests);
    server.terminate()?;
    Ok(sample)
}

struct Load(Vec<TcpStream>);

impl Load {
    fn connect(address: &str) -> Result<Load, String> {
        let connect = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let streams: std::io::Result<Vec<_>> = (0..CONNECTIONS).map(|_| connect()).collect();
        let mut load = Load(streams.map_err(|e| format!("{address}: {e}"))?);
        exchange(&mut load.0[..1], SET, STORED, 1)?;
        Ok(load)
    }

    /// Runs for `length`. Returns the number of replies and the elapsed seconds.
    fn run(&mut self, length: Duration) -> Result<(f64, f64), String> {
        let (mut requests, begin) = (0, Instant::now());
        while begin.elapsed() < length {
            exchange(&mut self.0, GET, FOUND, PIPELINE)?;
            requests += CONNECTIONS * PIPELINE;
        }
        Ok((requests as f64, begin.elapsed().as_secs_f64()))
    }
}

/// Sends `request` several times on each stream, and then reads as many replies, which must equal
/// `reply`.
fn exchange<S: Read + Write>(
    streams: &mut [S],
    request: &str,
    reply: &str,
    times: usize,
) -> Result<(), String> {
    let (requests, replies) = (request.repeat(times), reply.repeat(times));
    let lost = |e: std::io::Error| format!("a connection to the server of kv: {e}");
    for stream in &mut *streams {
        stream.write_all(requests.as_bytes()).map_err(lost)?;
    }
    let mut answer = vec![0; replies.len()];
    for stream in streams {
        stream.read_exact(&mut answer).map_err(lost)?;
        if answer != replies.as_bytes() {
            let said = String::from_utf8_lossy(&answer);
            return Err(format!("the server of kv replied {said:?}, expected {replies:?}"));
        }
    }
    Ok(())
}
