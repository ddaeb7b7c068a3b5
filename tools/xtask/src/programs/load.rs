//! Clients of a server under test. Each checks every byte of every reply.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Failure;

/// Exchanges on a connection before the client opens a new one.
const EXCHANGES: u64 = 50;
/// Keys of each client.
const KEYS: usize = 16;

/// Sends requests from many clients and checks the replies.
#[derive(clap::Args)]
pub struct Load {
    protocol: Protocol,
    port: u16,
    /// Number of clients, each with a connection
    #[arg(long, default_value_t = 50)]
    connections: usize,
    #[arg(long, env = "LOAD_SECONDS", default_value_t = 5)]
    seconds: u64,
    /// What the server sends for `path` (http)
    #[arg(long)]
    file: Option<PathBuf>,
    #[arg(long, default_value = "/")]
    path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Protocol {
    /// The server sends back what it receives.
    Echo,
    Http,
    Memcached,
    Redis,
}

impl Load {
    /// Runs all clients. Prints whether all replies were right.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let file = self.file.as_ref().map(std::fs::read).transpose()?.unwrap_or_default();
        let exchanges = AtomicU64::new(0);
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let clients = |number| Client {
            load: self,
            file: &file,
            exchanges: &exchanges,
            random: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1),
            number,
            values: vec![Vec::new(); KEYS],
            increments: 0,
        };
        let ended: Vec<Result<u64, Failure>> = std::thread::scope(|scope| {
            let start = |number| {
                let mut client = clients(number);
                let builder = std::thread::Builder::new().stack_size(256 << 10);
                builder.spawn_scoped(scope, move || client.run(end)).expect("a thread")
            };
            let threads: Vec<_> = (0..self.connections).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("no client panics")).collect()
        });
        let mut increments = 0;
        let mut failures = Vec::new();
        for (number, outcome) in ended.into_iter().enumerate() {
            match outcome {
                Ok(own) => increments += own,
                Err(why) => failures.push(format!("client {number}: {why}")),
            }
        }
        if failures.is_empty() && increments > 0 {
            let counted = self.counted()?;
            if counted != increments {
                failures.push(format!("the counter is {counted} instead of {increments}"));
            }
        }
        let exchanges = exchanges.into_inner();
        eprintln!("load: {exchanges} exchanges of {} clients", self.connections);
        for failure in failures.iter().take(5) {
            println!("{failure}");
        }
        if failures.is_empty() && exchanges > 0 {
            println!("all replies were right");
            return Ok(ExitCode::SUCCESS);
        }
        println!("{} of {} clients failed", failures.len(), self.connections);
        Ok(ExitCode::FAILURE)
    }

    /// The counter that all clients have incremented.
    fn counted(&self) -> Result<u64, Failure> {
        let mut connection = self.connect()?;
        let value = match self.protocol {
            Protocol::Memcached => memcached_get(&mut connection, "count")?,
            _ => redis_get(&mut connection, "count")?,
        };
        Ok(String::from_utf8(value)?.trim().parse()?)
    }

    fn connect(&self) -> Result<BufReader<TcpStream>, Failure> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
            .map_err(|e| format!("connect: {e}"))?;
        stream.set_nodelay(true)?;
        Ok(BufReader::new(stream))
    }
}

struct Client<'a> {
    load: &'a Load,
    file: &'a [u8],
    exchanges: &'a AtomicU64,
    random: u64,
    number: usize,
    /// What is stored under each of its keys.
    values: Vec<Vec<u8>>,
    increments: u64,
}

type Connection = BufReader<TcpStream>;

impl Client<'_> {
    /// Runs until `end`, then checks all that it has stored. Returns how often it has incremented
    /// the counter.
    fn run(&mut self, end: Instant) -> Result<u64, Failure> {
        while Instant::now() < end {
            let mut connection = self.load.connect()?;
            for _ in 0..EXCHANGES {
                self.exchange(&mut connection)?;
                self.exchanges.fetch_add(1, Ordering::Relaxed);
                if Instant::now() >= end {
                    break;
                }
            }
        }
        let mut connection = self.load.connect()?;
        for key in 0..KEYS {
            self.check(&mut connection, key)?;
        }
        Ok(self.increments)
    }

    fn exchange(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        match self.load.protocol {
            Protocol::Echo => {
                let sent = self.bytes(8192);
                connection.get_mut().write_all(&sent)?;
                let mut received = vec![0; sent.len()];
                connection.read_exact(&mut received)?;
                same(&received, &sent)
            }
            Protocol::Http => {
                let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", self.load.path);
                connection.get_mut().write_all(request.as_bytes())?;
                same(&http_reply(connection)?, self.file)
            }
            Protocol::Memcached | Protocol::Redis => self.store(connection),
        }
    }

    /// Stores a value, reads one, or increments the counter.
    fn store(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let key = self.below(KEYS);
        if self.below(8) == 0 {
            self.increments += 1;
            return self.increment(connection);
        }
        if self.below(2) == 0 && !self.values[key].is_empty() {
            return self.check(connection, key);
        }
        let value = self.bytes(2000);
        let name = self.name(key);
        let mut request = match self.load.protocol {
            Protocol::Memcached => format!("set {name} 0 0 {}\r\n", value.len()).into_bytes(),
            _ => format!("*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n${}\r\n", name.len(), value.len())
                .into_bytes(),
        };
        request.extend_from_slice(&value);
        request.extend_from_slice(b"\r\n");
        connection.get_mut().write_all(&request)?;
        let wanted: &[u8] = match self.load.protocol {
            Protocol::Memcached => b"STORED\r\n",
            _ => b"+OK\r\n",
        };
        same(line(connection)?.as_bytes(), wanted)?;
        self.values[key] = value;
        Ok(())
    }

    fn increment(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        if self.load.protocol == Protocol::Redis {
            connection.get_mut().write_all(b"*2\r\n$4\r\nINCR\r\n$5\r\ncount\r\n")?;
            let reply = line(connection)?;
            return match reply.starts_with(':') {
                true => Ok(()),
                false => Err(format!("INCR: {reply}").into()),
            };
        }
        connection.get_mut().write_all(b"incr count 1\r\n")?;
        while line(connection)? == "NOT_FOUND\r\n" {
            // One client creates it; all others find it then.
            connection.get_mut().write_all(b"add count 0 0 1\r\n0\r\n")?;
            line(connection)?;
            connection.get_mut().write_all(b"incr count 1\r\n")?;
        }
        Ok(())
    }

    /// Checks that the server has the last value of the key.
    fn check(&self, connection: &mut Connection, key: usize) -> Result<(), Failure> {
        let stored = &self.values[key];
        if stored.is_empty() {
            return Ok(());
        }
        let name = self.name(key);
        let found = match self.load.protocol {
            Protocol::Memcached => memcached_get(connection, &name)?,
            _ => redis_get(connection, &name)?,
        };
        same(&found, stored)
    }

    fn name(&self, key: usize) -> String {
        format!("k{}-{key}", self.number)
    }

    /// Random bytes, at least one.
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = 1 + self.below(most);
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    /// xorshift64 (Marsaglia 2003).
    fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % n as u64) as usize
    }
}

fn same(found: &[u8], wanted: &[u8]) -> Result<(), Failure> {
    if found == wanted {
        return Ok(());
    }
    let at = found.iter().zip(wanted).position(|(a, b)| a != b);
    let (found, wanted) = (found.len(), wanted.len());
    Err(format!("{found} bytes instead of {wanted}, the first difference at {at:?}").into())
}

fn line(connection: &mut Connection) -> Result<String, Failure> {
    let mut line = String::new();
    match connection.read_line(&mut line)? {
        0 => Err("the server has closed the connection".into()),
        _ => Ok(line),
    }
}

/// The body of a reply that states its length.
fn http_reply(connection: &mut Connection) -> Result<Vec<u8>, Failure> {
    let status = line(connection)?;
    if !status.starts_with("HTTP/1.1 200 ") {
        return Err(format!("reply: {status}").into());
    }
    let mut length = None;
    loop {
        let header = line(connection)?.to_ascii_lowercase();
        if header == "\r\n" {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = Some(value.trim().parse::<usize>()?);
        }
    }
    let mut body = vec![0; length.ok_or("a reply without its length")?];
    connection.read_exact(&mut body)?;
    Ok(body)
}

fn memcached_get(connection: &mut Connection, name: &str) -> Result<Vec<u8>, Failure> {
    connection.get_mut().write_all(format!("get {name}\r\n").as_bytes())?;
    let head = line(connection)?;
    let length = head.strip_prefix(&format!("VALUE {name} 0 ")).ok_or_else(|| head.clone())?;
    let mut value = vec![0; length.trim().parse::<usize>()? + 2];
    connection.read_exact(&mut value)?;
    same(line(connection)?.as_bytes(), b"END\r\n")?;
    value.truncate(value.len() - 2);
    Ok(value)
}

fn redis_get(connection: &mut Connection, name: &str) -> Result<Vec<u8>, Failure> {
    let request = format!("*2\r\n$3\r\nGET\r\n${}\r\n{name}\r\n", name.len());
    connection.get_mut().write_all(request.as_bytes())?;
    let head = line(connection)?;
    let length = head.strip_prefix('$').ok_or_else(|| head.clone())?.trim().parse::<usize>();
    let mut value = vec![0; length.map_err(|_| format!("GET {name}: {head}"))? + 2];
    connection.read_exact(&mut value)?;
    value.truncate(value.len() - 2);
    Ok(value)
}
