//! The user's run-time directory: the registry of living address spaces, without a daemon.
//!
//! ```text
//! 12          address space 12: locked (flock) while it lives; contains the generation below which
//!             its IDs may have been used
//! 12.socket   its control socket
//! 12.ear      its core listener, at which neighbours notify it of changes on the board
//! 12.gates    the socket at which callers of its gates connect
//! 12.*.new    a socket that does not listen yet, and gets its own name when it does
//! gate.NAME   a symbolic link to 12: address space 12 serves this gate ([`crate::gates`])
//! border.*    those of the border, beside the `epoch` of this directory ([`crate::border`])
//! next        the number to try next
//! ```
//! A lock proves that its holder is alive: the kernel releases it when the process ends in any way.
//! Process IDs are not compared, because they are reused. Only the holder of a number's lock
//! creates and removes its sockets and names. File `12` is never removed. The next holder starts
//! above the generation in the file, so IDs of dead address spaces remain invalid.
//!
//! All operations are relative to the open directory and follow no links. Entries of another user,
//! or with write permission for others, are refused.

mod core_notifier;
pub(crate) mod gate_names;
pub(crate) mod locked;
mod retry;
pub(crate) mod socket;

pub(crate) use core_notifier::CoreNotifier;
use locked::Locked;
pub(crate) use retry::retry_within;

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kumihimo_config::MachineDir;
use kumihimo_resource::id::{GENERATIONS, SPACES};
use kumihimo_resource::serials::CLAIMED_AT_ONCE;
use rustix::fs::{self, Access, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use rustix::process;

use crate::error::Error;
use crate::socket::descriptors::{Descriptors, Kept};

/// What follows an address space's number and a dot in the names of its sockets. A process that
/// was killed may leave any of them.
const SOCKETS: [&str; 5] = ["socket", "socket.new", "ear", "gates", "gates.new"];
/// Mode bits that entries must not have.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Limit for waiting on the lock of `next`. A process holds it while it tests all numbers; only a
/// process that is stopped meanwhile holds it longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Length of a note: ten digits and a newline.
const NOTE: usize = 11;

/// An open run-time directory.
#[derive(Debug)]
pub struct Directory {
    pub(crate) fd: Kept,
    /// All descriptors that are kept open for this directory.
    descriptors: Arc<Descriptors>,
    path: PathBuf,
    owner: u32,
    /// Why places that come first in the order are not used.
    passed_over: Vec<String>,
}

/// A number and its lock.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) number: u16,
    /// The first generation that was never used.
    pub(crate) first: u32,
    /// Locked until its last descriptor is closed.
    pub(crate) lock: Kept,
}

/// Reasons why a directory is not used.
enum Unusable {
    /// The directory does not work here; another place may.
    Other(String),
    /// The entry is another user's, or has a form or mode that is not safe; another place may work.
    Planted(Error),
    /// The failure would affect every other place as well.
    Failed(Error),
}

impl Unusable {
    fn into_error(self) -> Error {
        match self {
            Unusable::Planted(error) | Unusable::Failed(error) => error,
            Unusable::Other(reason) => Error::Directory(format!("run-time directory {reason}")),
        }
    }
}

impl Directory {
    /// Opens the caller's directory: `$KUMI_DIR` if that is set. Otherwise it is the first of these
    /// that exists, or else the first that can be created: `$XDG_RUNTIME_DIR/kumihimo`,
    /// `/run/user/UID/kumihimo`, `/dev/shm/kumihimo-UID` and `/tmp/kumihimo-UID`. UID is the
    /// effective user. A [privileged program](kumihimo_config::is_privileged) ignores both
    /// variables. A place that is a symbolic link, belongs to another user or is writable by others
    /// is [passed over](Directory::passed_over); all processes of a user do so alike.
    ///
    /// # Errors
    /// Returns [`Error::Directory`] if no directory can be created, if that of `KUMI_DIR` is a
    /// symbolic link, belongs to another user or is writable by others, or if `KUMI_DIR=off`.
    /// Returns [`Error::Invalid`] if a `KUMI_` variable has an invalid value.
    pub fn mine() -> Result<Directory, Error> {
        let config = kumihimo_config::check().map_err(|e| Error::Invalid(e.to_string()))?;
        match &config.dir {
            MachineDir::Off => Err(Error::Directory(
                "KUMI_DIR=off: this process uses no run-time directory; unset it, or name one"
                    .to_owned(),
            )),
            MachineDir::At(chosen) => Directory::own(chosen),
            MachineDir::Default => {
                let session = kumihimo_config::trusted_variable("XDG_RUNTIME_DIR");
                Directory::first_of(&places(process::geteuid().as_raw(), session))
            }
        }
    }

    /// Prefers an existing directory to a new one, so that processes with different environments
    /// find each other.
    fn first_of(places: &[PathBuf]) -> Result<Directory, Error> {
        let mut reasons = Vec::new();
        for open in [Directory::usable, Directory::made] {
            let mut passed_over = Vec::new();
            reasons.clear();
            for place in places {
                match open(place) {
                    Ok(directory) => return Ok(Directory { passed_over, ..directory }),
                    Err(Unusable::Planted(error)) => {
                        passed_over.push(error.to_string());
                        reasons.push(error.to_string());
                    }
                    Err(Unusable::Failed(error)) => return Err(error),
                    Err(Unusable::Other(reason)) => reasons.push(reason),
                }
            }
        }
        Err(Error::Directory(format!(
            "no run-time directory ({}): set KUMI_DIR to a writable one",
            reasons.join("; ")
        )))
    }

    /// Opens the caller's directory at `path`, and creates it if necessary.
    ///
    /// # Errors
    /// Returns the errors of [`mine`](Directory::mine), and an error if the path is not absolute.
    pub fn own(path: &Path) -> Result<Directory, Error> {
        if !path.is_absolute() {
            let path = path.display();
            return Err(Error::Directory(format!(
                "run-time directory {path}: the path must be absolute; change KUMI_DIR"
            )));
        }
        Directory::made(path).map_err(Unusable::into_error)
    }

    /// Opens the directory at `path`, of any user. If it is another user's, it can only be read.
    ///
    /// # Errors
    /// Returns [`Error::Directory`] if there is none, or if it is a symbolic link or writable by
    /// others than its owner.
    pub fn at(path: &Path) -> Result<Directory, Error> {
        Directory::existing(path).map_err(Unusable::into_error)
    }

    fn made(path: &Path) -> Result<Directory, Unusable> {
        match fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => {
                let reason = format!("{}: {}", path.display(), std::io::Error::from(e));
                return Directory::usable(path).map_err(|unusable| match unusable {
                    Unusable::Other(_) => Unusable::Other(reason),
                    unusable => unusable,
                });
            }
        }
        Directory::usable(path)
    }

    /// Opens the caller's own directory, if the caller may write there.
    fn usable(path: &Path) -> Result<Directory, Unusable> {
        let me = process::geteuid().as_raw();
        let others = |owner: u32| {
            let shown = path.display();
            Unusable::Planted(Error::Directory(format!(
                "run-time directory {shown} belongs to user {owner} and not to user {me}: have it removed, or set KUMI_DIR to another directory"
            )))
        };
        let directory = match Directory::existing(path) {
            Ok(directory) if directory.owner == me => directory,
            Ok(directory) => return Err(others(directory.owner)),
            Err(Unusable::Other(reason)) => {
                // The owner has denied access to others.
                let stat = fs::lstat(path).ok().filter(|stat| stat.st_uid != me);
                return Err(stat.map_or(Unusable::Other(reason), |stat| others(stat.st_uid)));
            }
            Err(unusable) => return Err(unusable),
        };
        let may = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        match fs::accessat(&directory.fd, ".", may, AtFlags::EACCESS) {
            Ok(()) => Ok(directory),
            Err(e) => {
                Err(Unusable::Other(format!("{}: {}", path.display(), std::io::Error::from(e))))
            }
        }
    }

    fn existing(path: &Path) -> Result<Directory, Unusable> {
        let shown = path.display();
        let planted = |what: &str| {
            Unusable::Planted(Error::Directory(format!(
                "run-time directory {shown} {what} and is not used: remove it, or set KUMI_DIR to another directory"
            )))
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match fs::open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            // With both flags, Linux returns the same errors for symbolic links and for files;
            // open(2).
            Err(Errno::NOTDIR | Errno::LOOP) if fs::lstat(path).is_ok() => {
                return Err(planted("is a symbolic link or not a directory"));
            }
            Err(e @ (Errno::MFILE | Errno::NFILE)) => {
                return Err(Unusable::Failed(Error::io(format!("run-time directory {shown}"))(e)));
            }
            Err(e) => return Err(Unusable::Other(format!("{shown}: {}", std::io::Error::from(e)))),
        };
        let stat = fs::fstat(&fd)
            .map_err(|e| Unusable::Other(format!("{shown}: {}", std::io::Error::from(e))))?;
        if stat.st_mode & WRITABLE_BY_OTHERS != 0 {
            return Err(planted("is writable by others than its owner"));
        }
        let descriptors = Descriptors::new();
        Ok(Directory {
            fd: Kept::new(fd, &descriptors),
            descriptors,
            path: path.to_owned(),
            owner: stat.st_uid,
            passed_over: Vec::new(),
        })
    }

    /// Returns why places that come before this one in the order of [`mine`](Directory::mine) are
    /// not used, although something is there.
    #[must_use]
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the owner (user ID) of the directory.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns whether the caller may change the directory.
    pub(crate) fn is_mine(&self) -> bool {
        self.owner == process::geteuid().as_raw()
    }

    /// Adds `fd` to the descriptors of this directory, which a fork's child closes together.
    pub(crate) fn keep(&self, fd: OwnedFd) -> Kept {
        Kept::new(fd, &self.descriptors)
    }

    /// See [`Descriptors::forget_in_child`].
    pub(crate) fn forget_in_child(&self) {
        self.descriptors.forget_in_child();
    }

    pub(crate) fn planted(&self, name: &str, what: &str) -> Error {
        Error::Directory(format!(
            "{} {what} and is not used: Kumihimo did not create it in this form; remove it",
            self.path.join(name).display()
        ))
    }

    /// Returns an error if this directory is no longer at its path.
    fn lost(&self) -> Option<Error> {
        let why = match fs::fstat(&self.fd) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                (stat.st_nlink == 0).then_some("this run-time directory was removed")
            }
            _ => Some(
                "the descriptor of this run-time directory was closed by other code in this process",
            ),
        };
        let told = "new processes cannot find this one; restart it";
        why.map(|why| Error::Directory(format!("{}: {why}; {told}", self.path.display())))
    }

    fn io(&self, name: &str, e: Errno) -> Error {
        Error::io(self.path.join(name).display().to_string())(e)
    }

    pub(crate) fn failed(&self, name: &str, e: Errno) -> Error {
        let what = match e {
            Errno::NOSPC | Errno::DQUOT => "the run-time directory is full",
            Errno::ROFS => "the run-time directory is read-only",
            Errno::NOENT | Errno::BADF | Errno::NOTDIR => {
                return self.lost().unwrap_or_else(|| self.io(name, e));
            }
            _ => return self.io(name, e),
        };
        Error::Directory(format!(
            "{}: {what}; make room, or set KUMI_DIR to another directory",
            self.path.join(name).display()
        ))
    }

    /// Opens a file of this directory; `None` if there is none and `create` is false.
    pub(crate) fn open(&self, name: &str, create: bool) -> Result<Option<OwnedFd>, Error> {
        let flags =
            OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = if create { flags | OFlags::CREATE } else { flags };
        let fd = match fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => fd,
            Err(Errno::NOENT) if !create => return Ok(None),
            Err(Errno::LOOP) => return Err(self.planted(name, "is a symbolic link")),
            Err(Errno::ISDIR | Errno::NXIO) => {
                return Err(self.planted(name, "is not a regular file"));
            }
            Err(Errno::ACCESS) => {
                return Err(self.planted(name, "belongs to another user, or has a wrong mode"));
            }
            Err(e) => return Err(self.failed(name, e)),
        };
        let stat = fs::fstat(&fd).map_err(|e| self.failed(name, e))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(self.planted(name, "is not a regular file"));
        }
        if stat.st_uid != self.owner {
            return Err(self.planted(
                name,
                &format!("belongs to user {} and not to user {}", stat.st_uid, self.owner),
            ));
        }
        if stat.st_mode & WRITABLE_BY_OTHERS != 0 {
            return Err(self.planted(name, "is writable by others than its owner"));
        }
        Ok(Some(fd))
    }

    /// Reads the number in a file. Returns 0 for an empty file, whose creator died before it wrote
    /// the number.
    fn note(&self, name: &str, file: &OwnedFd, most: u32) -> Result<u32, Error> {
        let mut text = [0; NOTE + 1];
        let length = rustix::io::pread(file, &mut text, 0).map_err(|e| self.failed(name, e))?;
        match &text[..length] {
            [] => Ok(0),
            [digits @ .., b'\n']
                if digits.len() == NOTE - 1 && digits.iter().all(u8::is_ascii_digit) =>
            {
                let said = digits.iter().fold(0_u64, |n, digit| 10 * n + u64::from(digit - b'0'));
                match u32::try_from(said) {
                    Ok(said) if said <= most => Ok(said),
                    _ => Err(self.planted(name, "contains a number that is out of range")),
                }
            }
            _ => Err(self.planted(name, "does not contain a number in the expected form")),
        }
    }

    /// Claims a free number: the one that was unused for the longest time.
    ///
    /// # Errors
    /// Returns [`Error::Directory`] if all numbers are taken or used up, if the directory is full
    /// or read-only, or if it contains a foreign entry.
    pub(crate) fn claim(&self) -> Result<Claimed, Error> {
        // systemd-tmpfiles does not remove old files from a locked directory.
        let _ = fs::flock(&self.fd, FlockOperation::NonBlockingLockShared);
        let next = self.open("next", true)?.ok_or_else(|| self.failed("next", Errno::NOENT))?;
        // If this lock is not available in time, the process continues without it. The lock only
        // orders the numbers; the locks of the numbers decide on their ownership.
        let mut ordered = None;
        retry_within(PATIENCE, || {
            ordered = Locked::alone(&next).ok();
            ordered.is_some()
        });
        let first = self.note("next", &next, u32::from(SPACES))?.max(1) as u16;
        let (mut taken, mut used_up) = (0, 0);
        for number in (first..SPACES).chain(1..first) {
            let name = number.to_string();
            let lock = self.open(&name, true)?.ok_or_else(|| self.failed(&name, Errno::NOENT))?;
            let lock = match Locked::alone(lock) {
                Ok(lock) => lock,
                Err(Errno::WOULDBLOCK) => {
                    taken += 1;
                    continue;
                }
                Err(e) => return Err(self.failed(&name, e)),
            };
            let generation = self.note(&name, &lock, GENERATIONS)?;
            if generation > GENERATIONS - CLAIMED_AT_ONCE {
                used_up += 1;
                continue;
            }
            write_generation(&*lock, generation + CLAIMED_AT_ONCE)
                .map_err(|e| self.failed(&name, e))?;
            // If this write fails, the next process only tests more numbers.
            let _ = write_generation(&next, u32::from(number) + 1);
            // Otherwise the names of the number's last holder would count as this one's. If a
            // foreign entry makes this fail, the first gate reports it.
            let _ = self.sweep_gates(number);
            return Ok(Claimed { number, first: generation, lock: self.keep(lock.stay()) });
        }
        Err(Error::Directory(format!(
            "all {} numbers of address spaces in {} are taken ({taken}) or used up ({used_up}): end some, or remove the directory when no \
             program uses it",
            SPACES - 1,
            self.path.display()
        )))
    }

    /// Returns the numbers that have a socket of any kind, in order. Their address spaces may be
    /// starting, alive, ending or dead.
    pub(crate) fn numbers(&self) -> Result<Vec<u16>, Error> {
        let shown = || self.path.display().to_string();
        let mut numbers = Vec::new();
        for entry in fs::Dir::read_from(&self.fd).map_err(Error::io(shown()))? {
            let entry = entry.map_err(Error::io(shown()))?;
            let name = entry.file_name().to_str().ok().and_then(|name| name.split_once('.'));
            let number = name.filter(|(_, kind)| SOCKETS.contains(kind));
            numbers.extend(number.and_then(|(number, _)| parse_number(number)));
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    /// Returns whether a process holds the number, and removes the files of a dead one. Meaningful
    /// only for the owner of the directory.
    pub(crate) fn is_living(&self, number: u16) -> Result<bool, Error> {
        if let Some(lock) = self.open(&number.to_string(), false)? {
            // A shared lock, so that concurrent tests do not see each other's locks.
            let lock = match Locked::shared(lock) {
                Ok(lock) => lock,
                Err(Errno::WOULDBLOCK) => return Ok(true),
                Err(e) => return Err(self.failed(&number.to_string(), e)),
            };
            // A new address space acquires the lock before it creates a socket, so no socket of a
            // living one is removed.
            if lock.excludes_others() {
                // Before the sockets: names of gates are only searched while their socket exists.
                self.sweep_gates(number)?;
                for kind in SOCKETS {
                    self.remove_socket(&format!("{number}.{kind}"))?;
                }
            }
        }
        Ok(false)
    }

    /// Removes a socket. The caller holds the lock of the number.
    pub(crate) fn remove_socket(&self, name: &str) -> Result<(), Error> {
        if self.socket(name)? {
            match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(self.failed(name, e)),
            }
        }
        Ok(())
    }

    /// Gives an entry another name, which is free. The caller holds the lock of the number.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        fs::renameat(&self.fd, from, &self.fd, to).map_err(|e| self.failed(to, e))
    }

    /// Returns whether the socket exists; fails if the entry is of another type or another user's.
    pub(crate) fn socket(&self, name: &str) -> Result<bool, Error> {
        self.exists_as(name, FileType::Socket, "is not a socket")
    }

    /// Returns whether an entry of this type exists; fails if the entry is of another type or
    /// another user's.
    pub(crate) fn exists_as(
        &self,
        name: &str,
        wanted: FileType,
        otherwise: &str,
    ) -> Result<bool, Error> {
        let stat = match fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(false),
            Err(e) => return Err(self.failed(name, e)),
        };
        if FileType::from_raw_mode(stat.st_mode) != wanted {
            return Err(self.planted(name, otherwise));
        }
        if stat.st_uid != self.owner {
            return Err(self.planted(
                name,
                &format!("belongs to user {} and not to user {}", stat.st_uid, self.owner),
            ));
        }
        Ok(true)
    }

    /// Returns the address for bind and connect. The path through the open directory is short for
    /// any length of the directory's path, and cannot lead elsewhere.
    pub(crate) fn address(&self, name: &str) -> Result<SocketAddrUnix, Error> {
        let through = PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_fd().as_raw_fd()));
        let whole =
            if fs::stat(&through).is_ok() { through.join(name) } else { self.path.join(name) };
        SocketAddrUnix::new(&whole).map_err(|_| {
            Error::Directory(format!(
                "{}: too long for a socket's path (107 bytes), and there is no /proc: set KUMI_DIR to a shorter path",
                whole.display()
            ))
        })
    }

    /// Permits other users to search the directory, and to see its numbers.
    pub(crate) fn open_to_others(&self) -> Result<(), Error> {
        fs::fchmod(&self.fd, Mode::from_raw_mode(0o755))
            .map_err(Error::io(self.path.display().to_string()))
    }

    /// Sets whether the socket's mode permits other users to connect.
    pub(crate) fn set_socket_mode(&self, name: &str, others: bool) -> Result<(), Error> {
        let mode = if others { 0o666 } else { 0o600 };
        self.socket(name)?;
        fs::chmodat(&self.fd, name, Mode::from_raw_mode(mode), AtFlags::empty())
            .map_err(|e| self.failed(name, e))
    }
}

/// Returns the name of the control socket of address space `number`.
pub(crate) fn socket_name(number: u16) -> String {
    format!("{number}.socket")
}

/// Suffix of the names of sockets for notifications. Other versions of the library rely on it.
pub(crate) const LISTENER_SUFFIX: &str = ".ear";

/// Returns the name of the socket for notifications of address space `number`.
pub(crate) fn listener_name(number: u16) -> String {
    format!("{number}{LISTENER_SUFFIX}")
}

/// Parses the number of an address space, only in canonical form: no sign, no leading zeros.
pub(crate) fn parse_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|n: &u16| (1..SPACES).contains(n) && n.to_string() == text)
}

/// Overwrites the number in the file in place, so that only the first write needs space on the
/// device.
pub(crate) fn write_generation(file: impl AsFd, number: u32) -> Result<(), Errno> {
    let text = format!("{number:010}\n");
    match rustix::io::pwrite(file, text.as_bytes(), 0) {
        Ok(NOTE) => Ok(()),
        Ok(_) => Err(Errno::NOSPC),
        Err(e) => Err(e),
    }
}

/// Returns the possible places of a user's run-time directory, the preferred one first.
fn places(uid: u32, session: Option<OsString>) -> Vec<PathBuf> {
    // A variable inherited from another user's session (su, sudo) names a directory of that user,
    // which is excluded.
    let is_own = |path: &Path| fs::stat(path).is_ok_and(|stat| stat.st_uid == uid);
    let session = session.map(PathBuf::from).filter(|path| path.is_absolute());
    let mut places: Vec<PathBuf> = [session, Some(PathBuf::from(format!("/run/user/{uid}")))]
        .into_iter()
        .flatten()
        .filter(|path| is_own(path))
        .map(|path| path.join("kumihimo"))
        .collect();
    places
        .extend([format!("/dev/shm/kumihimo-{uid}").into(), format!("/tmp/kumihimo-{uid}").into()]);
    places.dedup();
    places
}
