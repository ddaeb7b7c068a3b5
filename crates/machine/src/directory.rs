//! The user's run-time directory: which address spaces live, without a daemon that is asked.
//!
//! ```text
//! 12          address space 12: locked (flock) while it lives; the generation below which its
//!             ids may have been used
//! 12.socket   its control socket
//! 12.ear      where neighbours tell it that something on the board concerns it (its core listener)
//! 12.gates    where callers of its gates are let in, and
//! gate.NAME   a symbolic link to 12: the gate of that name is one of its ([`crate::gates`])
//! next        the number that is tried next
//! ```
//! A lock is the kernel's word that its holder lives: it goes with the process however that ends,
//! and no process id is compared, which might be another's by now. Only the holder of the lock of a
//! number makes and removes its sockets and names. File `12` stays: a successor begins above what
//! it says, so that ids of the dead lead to nothing.
//!
//! All is done relative to the open directory, and nothing in it is followed: what is not ours, or
//! could be written by others, is refused.

mod core_notifier;
pub(crate) mod gate_names;
pub(crate) mod socket;

pub(crate) use core_notifier::CoreNotifier;

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumihimo_config::MachineDir;
use kumihimo_resource::id::{GENERATIONS, SPACES};
use kumihimo_resource::serials::CLAIMED_AT_ONCE;
use rustix::fs::{self, Access, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use rustix::process;
use rustix::thread::Timespec;

use crate::descriptors::{Descriptors, Kept};
use crate::error::Error;

/// What others must not be able to do to anything here.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Nobody holds the lock of `next` for longer than it takes to look through all numbers, unless it
/// is stopped just there.
const PATIENCE: Duration = Duration::from_secs(1);
/// Ten digits and the end of the line.
const NOTE: usize = 11;

/// A run-time directory, open.
#[derive(Debug)]
pub struct Directory {
    pub(crate) fd: Kept,
    /// Of this one and of all that is kept open in it.
    descriptors: Arc<Descriptors>,
    path: PathBuf,
    owner: u32,
}

/// A number and its lock.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) number: u16,
    /// The first generation that was never used.
    pub(crate) first: u32,
    /// Locked until the last descriptor of it is closed.
    pub(crate) lock: Kept,
}

/// Why a directory is not used.
enum Unusable {
    /// Another one may serve.
    Other(String),
    /// Somebody put it there, or no other one would be of more use.
    Planted(Error),
}

impl Directory {
    /// The caller's: `$KUMI_DIR` if that is set. Else the first that is there already, or can be
    /// made, of `$XDG_RUNTIME_DIR/kumihimo`, `/run/user/UID/kumihimo`, `/dev/shm/kumihimo-UID` and
    /// `/tmp/kumihimo-UID`. UID is the effective user's; a [privileged
    /// program](kumihimo_config::is_privileged) ignores both variables.
    ///
    /// # Errors
    /// [`Error::Directory`]: none can be made; the one that is to be made is a symbolic link,
    /// another user's, or can be written by others; or `KUMI_DIR=off`. [`Error::Invalid`]: a
    /// `KUMI_` variable has a value that is not allowed.
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

    /// One that is there counts before one that has to be made: processes that are told of
    /// different places meet.
    fn first_of(places: &[PathBuf]) -> Result<Directory, Error> {
        if let Some(found) = places.iter().find_map(|place| Directory::usable(place).ok()) {
            return Ok(found);
        }
        let mut reasons = Vec::new();
        for place in places {
            match Directory::made(place) {
                Ok(directory) => return Ok(directory),
                Err(Unusable::Planted(error)) => return Err(error),
                Err(Unusable::Other(reason)) => reasons.push(reason),
            }
        }
        Err(Error::Directory(format!(
            "no run-time directory ({}): set KUMI_DIR to one that can be written",
            reasons.join("; ")
        )))
    }

    /// The caller's at `path`, which is made if need be.
    ///
    /// # Errors
    /// As [`mine`](Directory::mine); a path that is not absolute.
    pub fn own(path: &Path) -> Result<Directory, Error> {
        if !path.is_absolute() {
            let path = path.display();
            return Err(Error::Directory(format!(
                "run-time directory {path}: an absolute path is wanted (KUMI_DIR)"
            )));
        }
        Directory::made(path).map_err(|unusable| match unusable {
            Unusable::Planted(error) => error,
            Unusable::Other(reason) => Error::Directory(format!("run-time directory {reason}")),
        })
    }

    /// Anybody's at `path`: to look and ask, never to join or sweep unless it is the caller's own.
    ///
    /// # Errors
    /// [`Error::Directory`]: none is there; a symbolic link; one that others than its owner can
    /// write.
    pub fn at(path: &Path) -> Result<Directory, Error> {
        match Directory::existing(path) {
            Ok(directory) => Ok(directory),
            Err(Unusable::Planted(error)) => Err(error),
            Err(Unusable::Other(reason)) => {
                Err(Error::Directory(format!("run-time directory {reason}")))
            }
        }
    }

    fn made(path: &Path) -> Result<Directory, Unusable> {
        match fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => {
                let reason = format!("{}: {}", path.display(), std::io::Error::from(e));
                return Directory::usable(path).map_err(|_| Unusable::Other(reason));
            }
        }
        Directory::usable(path)
    }

    /// The caller's own, where it may write.
    fn usable(path: &Path) -> Result<Directory, Unusable> {
        let me = process::geteuid().as_raw();
        let others = |owner: u32| {
            let shown = path.display();
            Unusable::Planted(Error::Directory(format!(
                "run-time directory {shown} belongs to user {owner} and not to user {me}: have it removed, or set KUMI_DIR to another one"
            )))
        };
        let directory = match Directory::existing(path) {
            Ok(directory) if directory.owner == me => directory,
            Ok(directory) => return Err(others(directory.owner)),
            Err(Unusable::Other(reason)) => {
                // One that its owner keeps shut.
                let stat = fs::lstat(path).ok().filter(|stat| stat.st_uid != me);
                return Err(stat.map_or(Unusable::Other(reason), |stat| others(stat.st_uid)));
            }
            Err(planted) => return Err(planted),
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
                "run-time directory {shown} {what}, and is not used: remove it, or set KUMI_DIR to another one"
            )))
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match fs::open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            // Both flags together: one error for symbolic links and for files.
            Err(Errno::NOTDIR | Errno::LOOP) if fs::lstat(path).is_ok() => {
                return Err(planted("is a symbolic link, or no directory"));
            }
            Err(e @ (Errno::MFILE | Errno::NFILE)) => {
                return Err(Unusable::Planted(Error::io(format!("run-time directory {shown}"))(e)));
            }
            Err(e) => return Err(Unusable::Other(format!("{shown}: {}", std::io::Error::from(e)))),
        };
        let stat = fs::fstat(&fd)
            .map_err(|e| Unusable::Other(format!("{shown}: {}", std::io::Error::from(e))))?;
        if stat.st_mode & WRITABLE_BY_OTHERS != 0 {
            return Err(planted("can be written by others than its owner"));
        }
        let descriptors = Descriptors::new();
        Ok(Directory {
            fd: Kept::new(fd, &descriptors),
            descriptors,
            path: path.to_owned(),
            owner: stat.st_uid,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Whether the caller may change things here.
    pub(crate) fn is_mine(&self) -> bool {
        self.owner == process::geteuid().as_raw()
    }

    /// As a descriptor of this directory, which a fork's child forgets with it.
    pub(crate) fn keep(&self, fd: OwnedFd) -> Kept {
        Kept::new(fd, &self.descriptors)
    }

    /// See [`Descriptors::forget_in_child`].
    pub(crate) fn forget_in_child(&self) {
        self.descriptors.forget_in_child();
    }

    pub(crate) fn planted(&self, name: &str, what: &str) -> Error {
        Error::Directory(format!(
            "{} {what}, and is not used: Kumihimo did not make it so; remove it",
            self.path.join(name).display()
        ))
    }

    /// That nobody finds anything here any more, if so.
    fn lost(&self) -> Option<Error> {
        let why = match fs::fstat(&self.fd) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                (stat.st_nlink == 0).then_some("this run-time directory was removed")
            }
            _ => Some(
                "the descriptor of this run-time directory was closed by somebody in this process",
            ),
        };
        let told = "what begins from now on cannot be found by others: start this process again";
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
            "{}: {what}; make room, or set KUMI_DIR to another one",
            self.path.join(name).display()
        ))
    }

    /// A file of ours; `None`: there is none.
    pub(crate) fn open(&self, name: &str, create: bool) -> Result<Option<OwnedFd>, Error> {
        let flags =
            OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = if create { flags | OFlags::CREATE } else { flags };
        let fd = match fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => fd,
            Err(Errno::NOENT) if !create => return Ok(None),
            Err(Errno::LOOP) => return Err(self.planted(name, "is a symbolic link")),
            Err(Errno::ISDIR | Errno::NXIO) => return Err(self.planted(name, "is no file")),
            Err(Errno::ACCESS) => {
                return Err(self.planted(name, "is another user's, or of a wrong mode"));
            }
            Err(e) => return Err(self.failed(name, e)),
        };
        let stat = fs::fstat(&fd).map_err(|e| self.failed(name, e))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(self.planted(name, "is no file"));
        }
        if stat.st_uid != self.owner {
            return Err(self.planted(
                name,
                &format!("belongs to user {} and not to user {}", stat.st_uid, self.owner),
            ));
        }
        if stat.st_mode & WRITABLE_BY_OTHERS != 0 {
            return Err(self.planted(name, "can be written by others than its owner"));
        }
        Ok(Some(fd))
    }

    /// What a file of ours says; 0 where it says nothing yet, since its maker died before it wrote.
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
                    _ => Err(self.planted(name, "says a number that is out of range")),
                }
            }
            _ => Err(self.planted(name, "does not say what it should")),
        }
    }

    /// A number that nobody has, the one that was not used for longest.
    ///
    /// # Errors
    /// [`Error::Directory`]: all are taken, or used up; full; read-only; something that was
    /// planted.
    pub(crate) fn claim(&self) -> Result<Claimed, Error> {
        // systemd-tmpfiles leaves old files alone where the directory is locked.
        let _ = fs::flock(&self.fd, FlockOperation::NonBlockingLockShared);
        let next = self.open("next", true)?.ok_or_else(|| self.failed("next", Errno::NOENT))?;
        // A process that does not get this lock goes on without: it orders the numbers, and the
        // locks of these decide whose they are.
        let _ = retry_within(PATIENCE, || {
            fs::flock(&next, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
        let first = self.note("next", &next, u32::from(SPACES))?.max(1) as u16;
        let (mut taken, mut used_up) = (0, 0);
        for number in (first..SPACES).chain(1..first) {
            let name = number.to_string();
            let lock = self.open(&name, true)?.ok_or_else(|| self.failed(&name, Errno::NOENT))?;
            match fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    taken += 1;
                    continue;
                }
                Err(e) => return Err(self.failed(&name, e)),
            }
            let generation = self.note(&name, &lock, GENERATIONS)?;
            if generation > GENERATIONS - CLAIMED_AT_ONCE {
                used_up += 1;
                continue;
            }
            write_generation(&lock, generation + CLAIMED_AT_ONCE)
                .map_err(|e| self.failed(&name, e))?;
            // If it cannot be written, the next one looks at more numbers.
            let _ = write_generation(&next, u32::from(number) + 1);
            // A predecessor's names would else be taken for this one's. What somebody planted is
            // the first gate's to report.
            let _ = self.sweep_gates(number);
            return Ok(Claimed { number, first: generation, lock: self.keep(lock) });
        }
        Err(Error::Directory(format!(
            "all {} numbers of address spaces in {} are taken ({taken}) or used up ({used_up}): end some, or remove the directory when no \
             program uses it",
            SPACES - 1,
            self.path.display()
        )))
    }

    /// The numbers that have a socket, in order: of the living, of the dead, and of those that are
    /// just ending.
    pub(crate) fn numbers(&self) -> Result<Vec<u16>, Error> {
        let shown = || self.path.display().to_string();
        let mut numbers = Vec::new();
        for entry in fs::Dir::read_from(&self.fd).map_err(Error::io(shown()))? {
            let entry = entry.map_err(Error::io(shown()))?;
            let name =
                entry.file_name().to_str().ok().and_then(|name| name.strip_suffix(".socket"));
            numbers.extend(name.and_then(parse_number));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Whether somebody holds a number; removes what a dead one left. Only the owner can tell.
    pub(crate) fn is_living(&self, number: u16) -> Result<bool, Error> {
        if let Some(lock) = self.open(&number.to_string(), false)? {
            // Shared, so that of many that look none sees another one's lock.
            match fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(true),
                Err(e) => return Err(self.failed(&number.to_string(), e)),
            }
            // One that is just beginning has the lock before it has a socket, so nobody's is
            // removed that lives.
            if fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                self.remove_socket(&socket_name(number))?;
                self.remove_socket(&listener_name(number))?;
                self.sweep_gates(number)?;
            }
        }
        Ok(false)
    }

    /// For the holder of the lock.
    pub(crate) fn remove_socket(&self, name: &str) -> Result<(), Error> {
        if self.socket(name)? {
            match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(self.failed(name, e)),
            }
        }
        Ok(())
    }

    /// Whether there is a socket; an error if it is something else, or another user's.
    pub(crate) fn socket(&self, name: &str) -> Result<bool, Error> {
        self.exists_as(name, FileType::Socket, "is no socket")
    }

    /// Whether there is such a thing of ours; an error if it is something else, or another user's.
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

    /// What bind and connect take: a path through the open directory is short, however long its own
    /// is, and leads nowhere else.
    pub(crate) fn address(&self, name: &str) -> Result<SocketAddrUnix, Error> {
        let through = PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_fd().as_raw_fd()));
        let whole =
            if fs::stat(&through).is_ok() { through.join(name) } else { self.path.join(name) };
        SocketAddrUnix::new(&whole).map_err(|_| {
            Error::Directory(format!(
                "{}: too long for a socket's path (107 bytes), and there is no /proc: set KUMI_DIR to a shorter one",
                whole.display()
            ))
        })
    }

    /// Others may pass through it, and see which numbers there are.
    pub(crate) fn open_to_others(&self) -> Result<(), Error> {
        fs::fchmod(&self.fd, Mode::from_raw_mode(0o755))
            .map_err(Error::io(self.path.display().to_string()))
    }

    /// Whether others may connect to a socket, as far as its mode goes.
    pub(crate) fn set_socket_mode(&self, name: &str, others: bool) -> Result<(), Error> {
        let mode = if others { 0o666 } else { 0o600 };
        self.socket(name)?;
        fs::chmodat(&self.fd, name, Mode::from_raw_mode(mode), AtFlags::empty())
            .map_err(|e| self.failed(name, e))
    }
}

/// Where address space `number` is asked.
pub(crate) fn socket_name(number: u16) -> String {
    format!("{number}.socket")
}

/// What the names of sockets for notifications end in. Other versions rely on it.
pub(crate) const LISTENER_SUFFIX: &str = ".ear";

/// The socket at which address space `number` is notified.
pub(crate) fn listener_name(number: u16) -> String {
    format!("{number}{LISTENER_SUFFIX}")
}

/// The number of an address space, only as we write them: no sign, no leading zeros.
pub(crate) fn parse_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|n: &u16| (1..SPACES).contains(n) && n.to_string() == text)
}

/// Over what is there, so it needs no room but the first time.
pub(crate) fn write_generation(file: impl AsFd, number: u32) -> Result<(), Errno> {
    let text = format!("{number:010}\n");
    match rustix::io::pwrite(file, text.as_bytes(), 0) {
        Ok(NOTE) => Ok(()),
        Ok(_) => Err(Errno::NOSPC),
        Err(e) => Err(e),
    }
}

pub(crate) fn retry_within(patience: Duration, mut done: impl FnMut() -> bool) -> bool {
    let (begun, mut pause) = (Instant::now(), Duration::from_micros(50));
    loop {
        if done() {
            return true;
        }
        if begun.elapsed() > patience {
            return false;
        }
        nap(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// Sleeps for `time`, or until a signal comes. std's goes on for the rest of it, to which the
/// kernel adds its timer slack again: where signals come more often than that, it never ends
/// (nanosleep(2), "can be problematic").
fn nap(time: Duration) {
    let _ = Timespec::try_from(time).map(|time| rustix::thread::nanosleep(&time));
}

/// Where a user's run-time directory may be, the best first.
fn places(uid: u32, session: Option<OsString>) -> Vec<PathBuf> {
    // A directory of the session of another user, whose variable came along (su, sudo), is none of
    // ours.
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
