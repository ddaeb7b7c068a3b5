//! Open files and sockets as resources: each handle of this crate has its row in the usage table as
//! long as it lives.
//!
//! Reading and writing through the table is for callers with no more than an id; a handle's own
//! read and write never come by here.

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

/// So much is read through the table at once.
const AT_ONCE: usize = 64 << 10;

/// A handle's place in the table.
#[derive(Debug)]
pub(crate) struct Handle {
    of: &'static Entries<RawFd>,
    /// None where the table is full: it is a handle all the same, which nobody finds.
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

/// Before the descriptor is closed: no thread in the table's procedures has it then.
impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(serial) = self.serial {
            let _ = self.of.close(serial);
        }
    }
}

/// A pipe that is not ready would be waited for.
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

    /// Runs `f` with a descriptor of its own, so that the handle may go meanwhile.
    fn at<R>(
        &self,
        serial: Serial,
        f: impl FnOnce(BorrowedFd<'_>) -> Result<R, Errno>,
    ) -> Result<R, Error> {
        let copied = self.entries().with(serial, |fd| {
            // SAFETY: open as long as its entry is there, and that is ours meanwhile.
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

    /// What is there at once, 64 KiB at most: it does not wait.
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

    /// As much as there is room for at once.
    fn write(&self, serial: Serial, from: &[u8]) -> Result<usize, Error> {
        self.at(serial, |fd| match self {
            Handles::Sockets => {
                let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
                rustix::net::send(fd, from, flags)
            }
            Handles::Files => when(fd, PollFlags::OUT, |fd| rustix::io::write(fd, from)),
        })
    }

    /// `shutdown` of a socket: a reader or writer there finds its end.
    fn control(&self, serial: Serial, command: &Command<'_>) -> Result<(), Error> {
        match (self, command) {
            (Handles::Sockets, Command::Cancel | Command::Own("shutdown")) => {
                self.at(serial, |fd| rustix::net::shutdown(fd, rustix::net::Shutdown::Both))
            }
            (_, other) => Err(Error::Invalid(format!("a {} knows no {other:?}", self.kind()))),
        }
    }

    fn usage(&self, each: &mut dyn FnMut(Usage)) {
        // Looked up after the entries were left: the descriptor may be another's by then, which a
        // picture may show.
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
