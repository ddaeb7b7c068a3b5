//! Entry points for the fuzzers: the parser, whole connections, and the append log, each on bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use kumihimo::sync::Arc;

use crate::clients::stream::Stream;
use crate::data::databases::DATABASES;
use crate::data::key::{Time, now};
use crate::data::value::Value;
use crate::log::Log;
use crate::protocol::request::{Found, Requests};
use crate::serve::{connection, replay};
use crate::server::{Server, Settings};
use crate::{Replayed, Sync};

/// The commands in some bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The arguments of each command, and whether it was inline.
    pub commands: Vec<(bool, Vec<Vec<u8>>)>,
    /// The protocol error that ends them.
    pub error: Option<String>,
    /// Bytes of an incomplete command at the end.
    pub unfinished: usize,
}

/// Parses `input`, received in reads of at most `piece` bytes. Returns the largest memory in use,
/// too.
///
/// # Panics
/// If the input is not received whole.
#[must_use]
pub fn parse(input: &[u8], piece: usize, unauthenticated: bool) -> (Parsed, usize) {
    let mut requests = Requests::default();
    requests.unauthenticated = unauthenticated;
    let (mut parsed, mut rest, mut most) = (Parsed::default(), input, 0);
    loop {
        let n = rest.len().min(piece.max(1));
        let mut part = &rest[..n];
        let more = requests.fill(&mut part).expect("memory reads without errors");
        rest = &rest[n - part.len()..];
        if !more {
            break;
        }
        loop {
            most = most.max(requests.footprint());
            match requests.next() {
                Found::Command => {
                    let args = requests.args();
                    let words = args.from(0).map(<[u8]>::to_vec).collect();
                    parsed.commands.push((requests.is_inline(), words));
                    requests.done();
                }
                Found::Unfinished => break,
                Found::Malformed(error) => {
                    parsed.error = Some(error.into_owned());
                    return (parsed, most);
                }
            }
        }
    }
    parsed.unfinished = requests.unfinished();
    (parsed, most)
}

/// The data of a server: values and expiry, by database and key.
pub type Data = BTreeMap<(usize, Vec<u8>), (Vec<Vec<u8>>, &'static str, Time)>;

/// A server that listens nowhere.
pub struct Served(Arc<Server>);

impl Served {
    /// Creates a server without data. With `logs`, changes are recorded.
    #[must_use]
    pub fn new(settings: Settings, logs: bool) -> Served {
        let server = Arc::new(Server::new(settings));
        if logs {
            server
                .databases
                .shared
                .log
                .get_or_init(|| Log::new(Path::new("log of a fuzzer"), Sync::No));
        }
        Served(server)
    }

    /// Serves a client until its end, in the calling thread.
    ///
    /// # Panics
    /// If the server admits no client.
    pub fn serve(&self, socket: UnixStream) {
        let stream = Arc::new(Stream::Unix(socket.into()));
        let addresses = ("fuzzer:0".to_owned(), "/fuzzer".to_owned());
        let server = &self.0;
        let most = server.settings.max_connections;
        let here = server.clients.enter(most, &server.budget, &stream, addresses, now());
        connection::serve(server, &here.expect("the server admits a client").client);
    }

    /// The records of all changes.
    #[must_use]
    pub fn log(&self) -> Vec<u8> {
        self.0.databases.shared.log.get().map(Log::pending).unwrap_or_default()
    }

    /// Replays a log, as at the start of a server.
    ///
    /// # Errors
    /// Returns the damage of the log.
    pub fn replay(&self, log: File) -> io::Result<Replayed> {
        replay::replay(&self.0, &log.into(), Path::new("log of a fuzzer"))
    }

    /// All keys, expired ones included.
    #[must_use]
    pub fn data(&self) -> Data {
        let mut data = Data::new();
        for number in 0..DATABASES {
            let mut cursor = 0;
            loop {
                cursor = self.0.databases.scan(number, cursor, 1 << 20, 0, |entry| {
                    let parts = match &entry.value {
                        Value::Text(text) => vec![text.clone()],
                        Value::Large(text) => vec![text.to_vec()],
                        Value::List(list) => {
                            list.range(0, list.len()).map(<[u8]>::to_vec).collect()
                        }
                    };
                    let entry_of = (parts, entry.value.kind(), entry.expires);
                    data.insert((number, entry.key.to_vec()), entry_of);
                    true
                });
                if cursor == 0 {
                    break;
                }
            }
        }
        data
    }

    /// Bytes that the server counts for its data, and those for its clients.
    #[must_use]
    pub fn counted(&self) -> (usize, usize) {
        (self.0.databases.shared.memory(), self.0.budget.used())
    }
}
