//! Long commands of one client of `kv`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use rustix::process::setpriority_process;

use super::load::{KEYS, key, value};
use super::to_last_core;

/// Names of the attacks.
pub const ATTACKS: [&str; 5] = ["keys", "mget", "flushall", "del", "publish"];

/// Keys that exist beside those of the others, and their number in one command that sets them.
const MANY: usize = 100_000;
const AT_ONCE: usize = 1_000;
/// `MGET` of one value of this size, so many times.
const LARGE: usize = 1 << 20;
const TIMES: usize = 32;
/// Subscribers of the channel.
const SUBSCRIBERS: usize = 500;
/// Message of the attacker.
const MESSAGE: usize = 256;

/// A connection that waits for each reply.
pub struct Client(BufReader<TcpStream>);

impl Client {
    pub fn connect(to: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        Ok(Client(BufReader::new(stream)))
    }

    fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(request.as_bytes())
    }

    /// Sends a command, and reads its reply to the end. An error of the server is an error here.
    pub fn ask(&mut self, words: &[&str]) -> io::Result<()> {
        self.send(words)?;
        let mut left = 1_u64;
        while left > 0 {
            left -= 1;
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let number = line.get(1..).and_then(|rest| rest.trim_end().parse::<i64>().ok());
            match (line.as_bytes().first(), number) {
                (Some(b'$'), Some(bytes)) if bytes >= 0 => {
                    let bytes = bytes as u64 + 2;
                    let read = io::copy(&mut self.0.by_ref().take(bytes), &mut io::sink())?;
                    if read < bytes {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                (Some(b'*'), Some(items)) => left += items.max(0) as u64,
                (Some(b'-'), _) => return Err(io::Error::other(line.trim_end().to_owned())),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Sets the keys of the others, and those of the attack.
pub fn prepare(client: &mut Client, attack: &str) -> io::Result<()> {
    client.ask(&["FLUSHALL"])?;
    for n in 0..KEYS {
        client.ask(&["SET", &key(n), &value()])?;
    }
    match attack {
        "keys" | "flushall" | "del" => fill(client, &AtomicBool::new(false)),
        "mget" => client.ask(&["SET", "large", &"x".repeat(LARGE)]),
        _ => Ok(()),
    }
}

/// Name of a key of the attack.
fn many(n: usize) -> String {
    format!("many:{n:026}")
}

/// Sets many keys, until `over`.
fn fill(client: &mut Client, over: &AtomicBool) -> io::Result<()> {
    for from in (0..MANY).step_by(AT_ONCE).take_while(|_| !over.load(Relaxed)) {
        let names: Vec<_> = (from..from + AT_ONCE).map(many).collect();
        let pairs = names.iter().flat_map(|name| [name.as_str(), "value"]);
        client.ask(&["MSET"].into_iter().chain(pairs).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// An attack under way.
pub struct Attack {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<u64>>>,
    subscribers: Vec<TcpStream>,
}

impl Attack {
    /// Begins one of [`ATTACKS`], and returns after its first command was sent.
    pub fn begin(attack: &'static str, to: SocketAddr) -> io::Result<Attack> {
        let over = Arc::<AtomicBool>::default();
        let (mut threads, mut subscribers) = (Vec::new(), Vec::new());
        if attack == "publish" {
            for _ in 0..SUBSCRIBERS {
                let mut client = Client::connect(to)?;
                client.ask(&["SUBSCRIBE", "news"])?;
                subscribers.push(client.0.into_inner());
            }
            let theirs = subscribers.iter().map(TcpStream::try_clone).collect::<io::Result<_>>()?;
            threads.push(std::thread::spawn(|| drain(theirs)));
        }
        let mut client = Client::connect(to)?;
        let ends = Arc::clone(&over);
        threads.push(std::thread::spawn(move || {
            aside()?;
            // Each `a?` is tried at each position of a key.
            let pattern = format!("*{}b", "a?".repeat(500));
            let large: Vec<_> = ["MGET"].into_iter().chain(["large"; TIMES]).collect();
            let message = "m".repeat(MESSAGE);
            let names: Vec<_> = (0..MANY).map(many).collect();
            let del: Vec<_> = ["DEL"].into_iter().chain(names.iter().map(|n| &**n)).collect();
            let mut commands = 0;
            while !ends.load(Relaxed) {
                match attack {
                    "keys" => client.ask(&["KEYS", &pattern])?,
                    "mget" => client.ask(&large)?,
                    "publish" => client.ask(&["PUBLISH", "news", &message])?,
                    _ => {
                        client.ask(if attack == "del" { &del } else { &["FLUSHALL"] })?;
                        fill(&mut client, &ends)?;
                    }
                }
                commands += 1;
            }
            Ok(commands)
        }));
        Ok(Attack { over, threads, subscribers })
    }

    /// Ends the attack, and returns the number of its commands.
    pub fn end(self) -> io::Result<u64> {
        self.over.store(true, Relaxed);
        let mut commands = 0;
        // The last one is the attacker; the other one ends with its connections.
        for thread in self.threads.into_iter().rev() {
            commands += thread.join().map_err(|_| io::Error::other("the attacker panicked"))??;
            for subscriber in &self.subscribers {
                // Shut down already, if this is not the first thread.
                let _ = subscriber.shutdown(Shutdown::Both);
            }
        }
        Ok(commands)
    }
}

/// Runs the calling kernel thread after those that measure.
fn aside() -> io::Result<()> {
    to_last_core().map_err(io::Error::other)?;
    setpriority_process(None, 19)?;
    Ok(())
}

/// Reads everything that subscribers receive, until they are shut down.
fn drain(mut subscribers: Vec<TcpStream>) -> io::Result<u64> {
    aside()?;
    let mut room = vec![0; 1 << 16];
    while !subscribers.is_empty() {
        let mut ended = Vec::new();
        let mut fds: Vec<_> = subscribers
            .iter()
            .map(|one| rustix::event::PollFd::new(one, rustix::event::PollFlags::IN))
            .collect();
        rustix::event::poll(&mut fds, None)?;
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (at, mut subscriber) in subscribers.iter().enumerate().filter(|(at, _)| ready[*at]) {
            if subscriber.read(&mut room)? == 0 {
                ended.push(at);
            }
        }
        for at in ended.into_iter().rev() {
            subscribers.swap_remove(at);
        }
    }
    Ok(0)
}
