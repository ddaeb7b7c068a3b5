//! Names of gates in the run-time directory: symbolic links whose texts are numbers of address
//! spaces. See [`crate::gates`] for the protocol.

use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, FileType};
use rustix::io::Errno;
use rustix::net::SocketType;

use super::locked::Locked;
use super::socket::{self, Reached};
use super::{Directory, parse_number};
use crate::error::Error;

/// Length of the longest gate name in bytes. With its prefix, it is below the limit for file names.
pub const LONGEST_NAME: usize = 200;

const PREFIX: &str = "gate.";
/// If a holder's queue of callers stays full for this long, the holder is alive and stopped.
const FULL: Duration = Duration::from_secs(1);

/// Checks the name of a gate: 1 to 200 bytes, without `/` and control characters, and not starting
/// with a dot.
///
/// # Errors
/// Returns [`Error::Invalid`] with the reason.
pub fn check_name(name: &str) -> Result<(), Error> {
    let wrong =
        |why: &str| Err(Error::Invalid(format!("{name:?} is not a valid gate name: {why}")));
    match name.as_bytes() {
        [] => wrong("it is empty"),
        [b'.', ..] => wrong("it starts with a dot"),
        bytes if bytes.len() > LONGEST_NAME => {
            wrong(&format!("it is longer than {LONGEST_NAME} bytes"))
        }
        bytes if bytes.contains(&b'/') => wrong("it contains a slash"),
        _ if name.chars().any(char::is_control) => {
            wrong("it contains a NUL or another control character")
        }
        _ => Ok(()),
    }
}

pub(crate) fn link_name(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Returns the name of the socket for callers of the gates of address space `number`.
pub(crate) fn gates_name(number: u16) -> String {
    format!("{number}.gates")
}

impl Directory {
    /// Returns the holder of a name, or `None`. Fails if the link has another form than
    /// [`crate::gates`] creates.
    pub(crate) fn holder(&self, link: &str) -> Result<Option<u16>, Error> {
        if !self.exists_as(link, FileType::Symlink, "is not a symbolic link")? {
            return Ok(None);
        }
        let text = match fs::readlinkat(&self.fd, link, Vec::new()) {
            Ok(text) => text,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::INVAL) => return Err(self.planted(link, "is not a symbolic link")),
            Err(e) => return Err(self.failed(link, e)),
        };
        let number = text.to_str().ok().and_then(parse_number);
        number
            .map(Some)
            .ok_or_else(|| self.planted(link, "does not contain the number of an address space"))
    }

    pub(crate) fn gate_names(&self) -> Result<Vec<String>, Error> {
        let io = |e: Errno| Error::io(self.path().display().to_string())(e);
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name().to_str().ok().and_then(|name| name.strip_prefix(PREFIX));
            names.extend(name.filter(|name| check_name(name).is_ok()).map(str::to_owned));
        }
        Ok(names)
    }

    /// Removes the names of `number`, and then its socket. Names are only searched while the socket
    /// exists. The caller holds the lock of the number.
    pub(crate) fn sweep_gates(&self, number: u16) -> Result<(), Error> {
        let socket = gates_name(number);
        if !self.socket(&socket)? {
            return Ok(());
        }
        for name in self.gate_names()? {
            let link = link_name(&name);
            // A foreign entry stays until a process requests that name.
            if matches!(self.holder(&link), Ok(Some(holder)) if holder == number) {
                fs::unlinkat(&self.fd, &link, AtFlags::empty())
                    .map_err(|e| self.failed(&link, e))?;
            }
        }
        self.remove_socket(&socket)
    }

    /// Tries to register a name. Returns `None` if another process is changing it, and the caller
    /// must retry.
    pub(crate) fn try_bind(&self, name: &str, mine: u16) -> Result<Option<()>, Error> {
        let link = link_name(name);
        match fs::symlinkat(mine.to_string(), &self.fd, &link) {
            Ok(()) => return Ok(Some(())),
            Err(Errno::EXIST) => {}
            Err(Errno::NOSPC | Errno::DQUOT) => {
                return Err(Error::Exhausted(format!(
                    "no room for gate {name:?} in {}: the file system has no inodes or blocks left; close gates, make room, \
                     or set KUMI_DIR to another one",
                    self.path().display()
                )));
            }
            Err(e) => return Err(self.failed(&link, e)),
        }
        let Some(holder) = self.holder(&link)? else { return Ok(None) };
        if holder == mine {
            return Err(Error::InUse(format!("this address space already serves gate {name:?}")));
        }
        // Created if it does not exist, so that no process starts with this number meanwhile.
        let file = holder.to_string();
        let lock = self.open(&file, true)?.ok_or_else(|| self.failed(&file, Errno::NOENT))?;
        let _lock = match Locked::alone(lock) {
            Ok(lock) => lock,
            Err(Errno::WOULDBLOCK) => return self.living(name, holder).map_or(Ok(None), Err),
            Err(e) => return Err(self.failed(&file, e)),
        };
        // Another process may have taken the name over before this one acquired the lock.
        if self.holder(&link)? == Some(holder) {
            fs::unlinkat(&self.fd, &link, AtFlags::empty()).map_err(|e| self.failed(&link, e))?;
        }
        Ok(None)
    }

    /// Returns an error if `holder` is alive and serves its gates. The lock is no proof, because a
    /// process that removes or tests entries holds it too. The socket is: the kernel closes it with
    /// the process.
    pub(crate) fn living(&self, name: &str, holder: u16) -> Option<Error> {
        let by = match socket::reach(
            self,
            &socket::space(holder),
            &gates_name(holder),
            SocketType::SEQPACKET,
            Instant::now() + FULL,
        ) {
            Ok(Reached { pid, .. }) if pid > 0 => format!(" (process {pid})"),
            Ok(_) | Err(Error::Timeout(_)) => String::new(),
            Err(_) => return None,
        };
        Some(Error::InUse(format!(
            "gate {name:?} is served by address space {holder}{by}: end it, or use another name"
        )))
    }
}
