//! Tests of the link poller with other processes at the other end: this test program again, with
//! its role in the environment.

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
use crate::handshake::record::{LaneSize, WakeAddress};
use crate::handshake::record::{Welcome, refusal};
use crate::options::Placement;
use crate::wire::packet::{LONGEST, Packet, receive, send};
use crate::wire::peer::Peer;

mod hostile;
mod processes;

/// Only fails what hangs.
const LONG: Duration = Duration::from_secs(30);
const LANE: &[u8] = b"the lane";

/// A run-time directory of one test's.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new() -> TestDirectory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("kumi-gate-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a directory for the test");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).expect("it is ours");
        TestDirectory(path)
    }

    fn number(&self) -> Arc<Number> {
        Arc::new(Number::take_in(Directory::own(&self.0).expect("a directory")).expect("a number"))
    }

    fn machine(&self) -> Machine {
        Machine::at(&self.0).expect("a directory")
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What one is told of a link.
#[derive(Debug)]
#[allow(dead_code, reason = "the other process says what Debug makes of them")]
enum Notification {
    Opened(Link),
    Rang,
    Region(u64, u64, Vec<u8>),
    Forgotten(u64),
    Gone(Error),
}

struct Recorder(Sender<Notification>);

impl LinkHandler for Recorder {
    fn rung(&self) {
        let _ = self.0.send(Notification::Rang);
    }

    fn region_passed(&self, id: u64, fd: OwnedFd, length: u64) -> Result<(), Error> {
        let mut bytes = vec![0; usize::try_from(length.min(64)).unwrap()];
        fs::File::from(fd).read_exact_at(&mut bytes, 0).unwrap();
        let _ = self.0.send(Notification::Region(id, length, bytes));
        Ok(())
    }

    fn region_forgotten(&self, id: u64) {
        let _ = self.0.send(Notification::Forgotten(id));
    }

    fn closed(&self, why: Error) {
        let _ = self.0.send(Notification::Gone(why));
    }
}

/// Admits all clients that have access.
struct TestGate(Mutex<Sender<Notification>>);

impl Admission for TestGate {
    fn admits(&self, _: Peer, hello: &Hello) -> Result<Admitted, Error> {
        match hello.types {
            Some(0) => return Err(Error::new(ErrorKind::Version, "other types")),
            Some(1) => panic!("as it was told"),
            _ => {}
        }
        let told = self.0.lock().unwrap().clone();
        Ok(Admitted {
            size: LaneSize { cells: 8, inline: hello.size.inline },
            wake_address: Some(WakeAddress { board: 1, row: 2, bit: 3 }),
            lane: memory(LANE),
            opened: Box::new(move |link| {
                let _ = told.send(Notification::Opened(link));
                Arc::new(Recorder(told))
            }),
        })
    }
}

fn memory(bytes: &[u8]) -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    assert_eq!(rustix::io::pwrite(&fd, bytes, 0).unwrap(), bytes.len());
    fd
}

fn test_gate() -> (Arc<TestGate>, Receiver<Notification>) {
    let (tells, told) = channel();
    (Arc::new(TestGate(Mutex::new(tells))), told)
}

fn hello(name: &str) -> Hello {
    Hello {
        name: name.into(),
        types: None,
        size: LaneSize { cells: 0, inline: 64 },
        wake_address: None,
        placement: Placement::default(),
        origin: None,
    }
}

/// Connects and begins the link.
fn linked(
    poller: &Arc<LinkPoller>,
    room: &TestDirectory,
    name: &str,
) -> (Link, Receiver<Notification>) {
    let established = poller.connect(&room.machine(), &hello(name), LONG).unwrap();
    let (tells, told) = channel();
    let mut link = None;
    poller
        .attach(established, |its| {
            link = Some(its);
            Arc::new(Recorder(tells))
        })
        .unwrap();
    (link.unwrap(), told)
}

fn next(told: &Receiver<Notification>) -> Notification {
    told.recv_timeout(LONG).expect("it is told something")
}

fn opened(told: &Receiver<Notification>) -> Link {
    match next(told) {
        Notification::Opened(link) => link,
        other => panic!("{other:?}"),
    }
}

/// Past rings.
fn gone(told: &Receiver<Notification>) -> Error {
    loop {
        match next(told) {
            Notification::Rang => {}
            Notification::Gone(why) => {
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
