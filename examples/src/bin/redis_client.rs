//! The crate `redis` on Kumihimo's connections: its commands, conversions and parser are used
//! unchanged, with another stream.
//!
//! `cargo run --release -p kumihimo-examples --bin redis_client [ADDRESS]`: counts words in a
//! server from many microprocesses concurrently. (The crate's own `Client` works as well. It reads
//! through `std::net`, so each wait blocks a kernel thread and hands the virtual processor over.)

use kumihimo::{net::TcpStream, thread};
use redis::{Commands, ConnectionLike, Parser, RedisResult, Value};
use std::io::{BufReader, Write};

/// A connection to a server, usable wherever the crate expects one.
struct Connection {
    stream: BufReader<TcpStream>,
    parser: Parser,
}

impl Connection {
    fn open(address: &str) -> RedisResult<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream: BufReader::new(stream), parser: Parser::new() })
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.stream.get_mut().write_all(command)?;
        self.parser.parse_value(&mut self.stream)
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.stream.get_mut().write_all(commands)?;
        let replies = (0..offset + count).map(|_| self.parser.parse_value(&mut self.stream));
        Ok(replies.collect::<RedisResult<Vec<_>>>()?.split_off(offset))
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").query::<String>(self).is_ok()
    }

    fn is_open(&self) -> bool {
        self.stream.get_ref().take_error().is_ok_and(|e| e.is_none())
    }
}

const KEY: &str = "kumihimo:words";
const WRITERS: usize = 50;
const WORDS: [&str; 4] = ["many", "words", "many", "times"];

fn main() -> RedisResult<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:6379".to_owned());
    let mut connection = Connection::open(&address)?;
    let _: () = connection.del(KEY)?;
    thread::scope(|s| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                s.spawn(|| {
                    let mut connection = Connection::open(&address)?;
                    WORDS.iter().try_for_each(|word| connection.hincr(KEY, word, 1))
                })
            })
            .collect();
        writers.into_iter().try_for_each(|w| w.join().expect("no panic"))
    })?;
    // A pipeline: one write and one transaction.
    let mut pipe = redis::pipe();
    let (mut words, _): (Vec<(String, u64)>, bool) =
        pipe.atomic().hgetall(KEY).del(KEY).query(&mut connection)?;
    words.sort();
    words.iter().for_each(|(word, n)| println!("{word} {n}"));
    Ok(())
}
