//! The porter, with other processes at the other end: this test program again, told by the
//! environment what to be.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use kumihimo_machine::directory::Directory;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SocketFlags, accept_with};

use super::*;
use crate::hello::{Welcome, refusal};
use crate::options::Placement;
use crate::packet::{LONGEST, Packet, receive, send};

mod hostile;
mod processes;

/// Only fails what hangs.
const LONG: Duration = Duration::from_secs(30);
const LANE: &[u8] = b"the lane";

/// A run-time directory of one test's.
struct Room(PathBuf);

impl Room {
    fn new() -> Room {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("kumi-gate-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a directory for the test");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).expect("it is ours");
        Room(path)
    }

    fn number(&self) -> Arc<Number> {
        Arc::new(Number::take_in(Directory::own(&self.0).expect("a directory")).expect("a number"))
    }

    fn machine(&self) -> Machine {
        Machine::at(&self.0).expect("a directory")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What one is told of a link.
#[derive(Debug)]
#[allow(dead_code, reason = "the other process says what Debug makes of them")]
enum Told {
    Opened(Link),
    Rang,
    Region(u64, u64, Vec<u8>),
    Forgotten(u64),
    Gone(Error),
}

struct Ear(Sender<Told>);

impl End for Ear {
    fn rang(&self) {
        let _ = self.0.send(Told::Rang);
    }

    fn region(&self, id: u64, fd: OwnedFd, length: u64) {
        let mut bytes = vec![0; usize::try_from(length.min(64)).unwrap()];
        fs::File::from(fd).read_exact_at(&mut bytes, 0).unwrap();
        let _ = self.0.send(Told::Region(id, length, bytes));
    }

    fn forgotten(&self, id: u64) {
        let _ = self.0.send(Told::Forgotten(id));
    }

    fn gone(&self, why: Error) {
        let _ = self.0.send(Told::Gone(why));
    }
}

/// A door that admits all clients with the right to come in.
struct Desk(Mutex<Sender<Told>>);

impl Door for Desk {
    fn admits(&self, _: Peer, hello: &Hello) -> Result<Admitted, Error> {
        match hello.types {
            Some(0) => return Err(Error::new(ErrorKind::Version, "other types")),
            Some(1) => panic!("as it was told"),
            _ => {}
        }
        let told = self.0.lock().unwrap().clone();
        Ok(Admitted {
            size: Size { cells: 8, inline: hello.size.inline },
            seat: Some(Seat { board: 1, row: 2, bit: 3 }),
            lane: memory(LANE),
            opened: Box::new(move |link| {
                let _ = told.send(Told::Opened(link));
                Arc::new(Ear(told))
            }),
        })
    }
}

fn memory(bytes: &[u8]) -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    assert_eq!(rustix::io::pwrite(&fd, bytes, 0).unwrap(), bytes.len());
    fd
}

fn desk() -> (Arc<Desk>, Receiver<Told>) {
    let (tells, told) = channel();
    (Arc::new(Desk(Mutex::new(tells))), told)
}

fn hello(name: &str) -> Hello {
    Hello {
        name: name.into(),
        types: None,
        size: Size { cells: 0, inline: 64 },
        seat: None,
        placement: Placement::default(),
    }
}

/// Connects and begins the link.
fn linked(porter: &Arc<Porter>, room: &Room, name: &str) -> (Link, Receiver<Told>) {
    let knocked = porter.knock(&room.machine(), &hello(name), LONG).unwrap();
    let (tells, told) = channel();
    let mut link = None;
    porter
        .link(knocked, |its| {
            link = Some(its);
            Arc::new(Ear(tells))
        })
        .unwrap();
    (link.unwrap(), told)
}

fn next(told: &Receiver<Told>) -> Told {
    told.recv_timeout(LONG).expect("it is told something")
}

fn opened(told: &Receiver<Told>) -> Link {
    match next(told) {
        Told::Opened(link) => link,
        other => panic!("{other:?}"),
    }
}

/// Past rings.
fn gone(told: &Receiver<Told>) -> Error {
    loop {
        match next(told) {
            Told::Rang => {}
            Told::Gone(why) => {
                assert!(told.try_recv().is_err(), "it is told once, and last");
                return why;
            }
            other => panic!("{other:?}"),
        }
    }
}

fn until(done: impl Fn() -> bool, what: impl Fn() -> String) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "{}", what());
        std::thread::yield_now();
    }
}
