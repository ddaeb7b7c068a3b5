//! Open files and sockets as resources: each handle of this crate has an entry in the resource
//! table for as long as it lives.
//!
//! Callers that have only an ID read and write through the table. A handle's own reads and writes
//! do not pass through here.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Once;

use kumihimo_resource::id::{Id, Kind, Serial};
use kumihimo_resource::table::{Command, Error, Row, Usage};
use kumihimo_runtime::kind_table::Entries;
use kumihimo_runtime::membership;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

static FILES: Entries<RawFd> = Entries::new(Kind::FILE);
static SOCKETS: Entries<RawFd> = Entries::new(Kind::SOCKET);

/// Most bytes of one read through the table.
const AT_ONCE: usize = 64 << 10;

/// The table entry of a handle.
#[derive(Debug)]
pub(crate) struct Handle {
    of: &'static Entries<RawFd>,
    /// None if the table was full: the handle works, but has no ID.
    serial: Option<Serial>,
}

impl Handle {
    pub(crate) fn file(fd: RawFd) -> Handle {
        Handle::open(&FILES, fd)
    }

    pub(crate) fn socket(fd: RawFd) -> Handle {
        Handle::open(&SOCKETS, fd)
    }

    fn open(of: &'static Entries<RawFd>, fd: RawFd) -> Handle {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let table = membership::table();
            let _ = table.define(&Handles::Files);
            let _ = table.define(&Handles::Sockets);
        });
        Handle { of, serial: of.open(fd).ok() }
    }

    pub(crate) fn id(&self) -> Option<Id> {
        self.serial.map(|serial| self.of.id(serial))
    }
}

/// Runs before the descriptor is closed, so no table operation uses it afterwards.
impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(serial) = self.serial {
            let _ = self.of.close(serial);
        }
    }
}

/// Calls `f` if the descriptor is ready; otherwise the call would block.
fn when<R>(
    fd: BorrowedFd<'_>,
    ready: PollFlags,
    f: impl FnOnce(BorrowedFd<'_>) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let mut polled = [PollFd::new(&fd, ready)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut polled, Some(&now))? == 0 { Err(Errno::AGAIN) } else { f(fd) }
}

enum Handles {
    Files,
    Sockets,
}

impl Handles {
    fn entries(&self) -> &'static Entries<RawFd> {
        match self {
            Handles::Files => &FILES,
            Handles::Sockets => &SOCKETS,
        }
    }

    /// Runs `f` with a duplicate of the descriptor, so that the handle may be dropped meanwhile.
    fn at<R>(
        &self,
        serial: Serial,
        f: impl FnOnce(BorrowedFd<'_>) -> Result<R, Errno>,
    ) -> Result<R, Error> {
        let copied = self.entries().with(serial, |fd| {
            // SAFETY: the descriptor is open while its entry exists, and the entry is locked here.
            rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(*fd) }, 0)
        })?;
        let copy = copied.map_err(|e| Error::Io(e.into()))?;
        f(std::os::fd::AsFd::as_fd(&copy)).map_err(|e| Error::Io(e.into()))
    }
}

impl Row for Handles {
    fn kind(&self) -> Kind {
        match self {
            Handles::Files => Kind::FILE,
            Handles::Sockets => Kind::SOCKET,
        }
    }

    /// Reads the available bytes, 64 KiB at most. Never waits.
    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        let mut room = vec![0; AT_ONCE];
        let n = self.at(serial, |fd| match self {
            Handles::Sockets => {
                rustix::net::recv(fd, &mut room[..], rustix::net::RecvFlags::DONTWAIT)
                    .map(|(n, _)| n)
            }
            Handles::Files => when(fd, PollFlags::IN, |fd| rustix::io::read(fd, &mut room[..])),
        })?;
        into.extend_from_slice(&room[..n]);
        Ok(n)
    }

    /// Writes as much as there is room for. Never waits.
    fn write(&self, serial: Serial, from: &[u8]) -> Result<usize, Error> {
        self.at(serial, |fd| match self {
            Handles::Sockets => {
                let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
                rustix::net::send(fd, from, flags)
            }
            Handles::Files => when(fd, PollFlags::OUT, |fd| rustix::io::write(fd, from)),
        })
    }

    /// Shuts a socket down, which ends its readers and writers.
    fn control(&self, serial: Serial, command: &Command<'_>) -> Result<(), Error> {
        match (self, command) {
            (Handles::Sockets, Command::Cancel | Command::Own("shutdown")) => {
                self.at(serial, |fd| rustix::net::shutdown(fd, rustix::net::Shutdown::Both))
            }
            (_, other) => Err(Error::Invalid(format!("a {} knows no {other:?}", self.kind()))),
        }
    }

    fn usage(&self, each: &mut dyn FnMut(Usage)) {
        // The link is read without the entry's lock: the number may have been reused by then, which
        // is acceptable in a snapshot.
        let named = |mut usage: Usage| {
            let fd = usage.state;
            let what = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
            usage.state = format!("descriptor {fd}, {}", what.display());
            each(usage);
        };
        let mut named = named;
        self.entries().usage(&mut named, ToString::to_string);
    }
}
