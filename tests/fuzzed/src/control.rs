//! The control socket: a server with a hostile client, and a client with a hostile server.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use kumihimo_machine::Machine;
use kumihimo_machine::directory::Directory;
use kumihimo_machine::handler::{
    Action, ControlHandler, Done, Metric, Microprocess, Refused, Resource, Space, State,
};
use kumihimo_machine::protocol::{ActionResult, Line, Request, Text};
use kumihimo_machine::space::{Control, Number};
use kumihimo_resource::id::{Id, Kind, Location, Serial};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Longest input: below the length of a request, so that no line is too long.
const LONGEST: usize = 32 << 10;
const GREETING: &[u8] = b"{\"protocol\":1,\"version\":\"0\",\"space\":";

/// A run-time directory of this process, removed by the next process that finds it unused.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("kumi-fuzzed-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).expect("a new directory in the temporary directory");
    path
}

/// An address space with three microprocesses.
struct Double(Location);

impl Double {
    fn one(&self, slot: u32) -> Microprocess {
        Microprocess {
            id: Id::new(self.0, Kind::MICROPROCESS, Serial::new(slot, 1)),
            name: Some(format!("worker \"{slot}\"\n")),
            state: State::Waiting,
            stopping: false,
            waits_for: Some("a message".into()),
            holder: None,
            priority: 3,
            inherited: None,
            vp: 0,
            kernel_thread: None,
            sticky: None,
        }
    }
}

impl ControlHandler for Double {
    fn space(&self) -> Space {
        let id = Id::new(self.0, Kind::SPACE, Serial::new(0, 0));
        serde_json::from_value(serde_json::json!({
            "id": id, "pid": 1, "program": "double", "version": "0", "vps": 2, "living": 3,
            "queue": "ring", "policy": "fifo", "events": "off", "locking": "vp",
        }))
        .expect("all fields without a default")
    }

    fn microprocesses(&self, each: &mut dyn FnMut(Microprocess)) {
        (0..3).for_each(|slot| each(self.one(slot)));
    }

    fn microprocess(&self, id: Id) -> Result<Microprocess, Refused> {
        let found = (0..3).map(|slot| self.one(slot)).find(|one| one.id == id);
        found.ok_or_else(|| Refused::Stale(format!("{id} has ended")))
    }

    fn resources(&self, _: Option<Kind>, each: &mut dyn FnMut(Resource)) {
        let id = Id::new(self.0, Kind::TIMER, Serial::new(0, 1));
        each(Resource { id, owner: None, state: "armed".into(), names: Vec::new() });
    }

    fn act(&self, id: Id, _: Action) -> Result<Done, Refused> {
        self.microprocess(id).map(|_| Done::Now)
    }

    fn backtrace(&self, id: Id) -> Result<String, Refused> {
        self.microprocess(id).map(|_| "main\n".to_owned())
    }

    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }

    fn trace(&self, _: &mut dyn Write) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The control socket of this process's double, which lives as long as the process.
fn socket() -> &'static PathBuf {
    static SERVED: OnceLock<(PathBuf, Mutex<Control>, Arc<dyn ControlHandler>)> = OnceLock::new();
    let (path, ..) = SERVED.get_or_init(|| {
        let path = directory("server");
        let directory = Directory::own(&path).expect("a run-time directory");
        let number = Arc::new(Number::take_in(directory).expect("a number"));
        let answer: Arc<dyn ControlHandler> = Arc::new(Double(number.location()));
        let control = Control::start(number.clone(), Arc::downgrade(&answer));
        let socket = path.join(format!("{}.socket", number.location().space()));
        (socket, Mutex::new(control.expect("a control socket")), answer)
    });
    path
}

/// Request lines of a client. Each has one answer, in order, until one asks for a trace.
pub(crate) fn requests(data: &[u8]) {
    if data.len() > LONGEST {
        return;
    }
    let mut lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    lines.pop();
    let mut answers = 0;
    for line in &lines {
        answers += 1;
        if let Ok(Request::Trace) = parsed(line) {
            break;
        }
    }
    let mut client = UnixStream::connect(socket()).expect("the server listens");
    // The server may have ended the connection before all is written.
    let _ = client.write_all(data).and_then(|()| client.shutdown(Shutdown::Write));
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("the server ends in order");
    let mut got = 0;
    let mut items = 0;
    for line in all.strip_suffix(b"\n").expect("whole lines").split(|byte| *byte == b'\n').skip(1) {
        match Line::<Value>::parse(line) {
            Ok(Line::Item(Value::Object(fields))) if fields.contains_key("error") => {
                (got, items) = (got + 1, 0);
            }
            Ok(Line::Item(Value::Object(fields))) if fields.contains_key("end") => {
                assert_eq!(fields["end"], items, "the count of items");
                (got, items) = (got + 1, 0);
            }
            Ok(Line::Item(Value::Object(_))) => items += 1,
            other => panic!("{other:?}: {}", line.escape_ascii()),
        }
    }
    assert_eq!((got, items), (answers, 0), "{}", all.escape_ascii());
}

/// Parses a request, and compares the result with `serde_json`'s view of the line.
fn parsed(line: &[u8]) -> Result<Request, Refused> {
    let parsed = Request::parse(line);
    if let Ok(request) = &parsed {
        let value: Value = serde_json::from_slice(line).expect("a request is JSON");
        assert_eq!(value["protocol"], 1);
        assert!(value["ask"].is_string());
        let encoded = request.line();
        assert!(encoded.len() <= 4 * line.len() + 128);
        assert_eq!(Request::parse(encoded.trim_ascii_end()).as_ref(), Ok(request));
    }
    parsed
}

/// A server that sends these bytes to each client. The client gets the lines of all connections.
struct Hostile {
    machine: Machine,
    number: u16,
    _lock: Number,
    bytes: Arc<Mutex<Vec<u8>>>,
}

fn hostile() -> &'static Hostile {
    static HOSTILE: OnceLock<Hostile> = OnceLock::new();
    HOSTILE.get_or_init(|| {
        let path = directory("client");
        let directory = Directory::own(&path).expect("a run-time directory");
        let lock = Number::take_in(directory).expect("a number");
        let number = lock.location().space();
        let listener = UnixListener::bind(path.join(format!("{number}.socket"))).expect("a socket");
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sent = Arc::clone(&bytes);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(mut client) = client else { continue };
                let bytes = sent.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let _ = client.write_all(&bytes).and_then(|()| client.shutdown(Shutdown::Write));
                // Until the client has closed its end.
                let _ = io::copy(&mut client, &mut io::sink());
            }
        });
        let machine = Machine::at(&path).expect("the run-time directory");
        let machine = machine.time_limit(Duration::from_secs(60));
        Hostile { machine, number, _lock: lock, bytes }
    })
}

/// What a server sends. Byte 0: the request, and whether a correct greeting comes first.
pub(crate) fn answers(data: &[u8]) {
    let [how, answer @ ..] = data else { return };
    if answer.len() > LONGEST {
        return;
    }
    for line in answer.split(|byte| *byte == b'\n') {
        round_trip::<Space>(line);
        round_trip::<Microprocess>(line);
        round_trip::<Resource>(line);
        round_trip::<Metric>(line);
        round_trip::<ActionResult>(line);
        round_trip::<Text>(line);
    }
    let hostile = hostile();
    let greets = how & 1 == 0;
    let greeting = [GREETING, hostile.number.to_string().as_bytes(), b"}\n"].concat();
    let bytes = [if greets { &greeting[..] } else { &[] }, answer].concat();
    *hostile.bytes.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
    let Ok(mut neighbour) = hostile.machine.neighbour(hostile.number) else {
        assert!(!greets, "the greeting is correct");
        return;
    };
    let id = Id::new(Location::default(), Kind::MICROPROCESS, Serial::new(1, 1));
    // An item has two bytes or more, and its line an end.
    let most = answer.len() / 3 + 1;
    match how >> 1 & 7 {
        0 => drop(neighbour.space()),
        1 => assert!(neighbour.microprocesses().map_or(0, |all| all.len()) <= most),
        2 => drop(neighbour.microprocess(id)),
        3 => assert!(neighbour.resources(None).map_or(0, |all| all.len()) <= most),
        4 => drop(neighbour.act(id, Action::Suspend)),
        5 => drop(neighbour.backtrace(id)),
        6 => assert!(neighbour.metrics().map_or(0, |all| all.len()) <= most),
        _ => {
            let mut trace = Vec::new();
            let _ = neighbour.trace(&mut trace);
            assert!(trace.len() <= answer.len());
        }
    }
}

/// An item that is parsed survives its own encoding.
fn round_trip<T: DeserializeOwned + Serialize>(line: &[u8]) {
    let Ok(Line::Item(item)) = Line::<T>::parse(line) else { return };
    let encoded = serde_json::to_value(&item).expect("an item can be encoded");
    let text = encoded.to_string();
    let Ok(Line::Item(again)) = Line::<T>::parse(text.as_bytes()) else {
        panic!("{text} is not parsed again")
    };
    assert_eq!(serde_json::to_value(&again).ok(), Some(encoded));
}
