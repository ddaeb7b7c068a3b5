//! The border's place in the run-time directory: its lock, its socket and the epoch.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::SocketType;

use super::name::Epoch;
use crate::directory::Directory;
use crate::directory::locked::Locked;
use crate::directory::socket;
use crate::error::Error;
use crate::socket::descriptors::Kept;

/// Name of the border's socket.
pub(crate) const SOCKET: &str = "border.socket";
/// Name of the file that the border locks.
const LOCK: &str = "border.lock";
/// Name of the file with the epoch.
const EPOCH: &str = "epoch";
/// Number of clients that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Length of an epoch's text: 16 digits and a newline.
const LENGTH: usize = 17;

/// The place of this user's border. Dropping it removes the socket and releases the lock.
#[derive(Debug)]
pub struct Place {
    directory: Directory,
    _lock: Kept,
    epoch: Epoch,
}

impl Place {
    /// Takes the place. If the directory has no epoch, it is `random` from now on.
    ///
    /// # Errors
    /// Returns [`Error::InUse`] if another border runs, and [`Error::Directory`] if the directory
    /// is full, read-only or another user's, or has a foreign entry with one of these names.
    pub fn take(directory: Directory, random: u64) -> Result<Place, Error> {
        if !directory.is_mine() {
            return Err(Error::Directory(format!(
                "{}: the run-time directory belongs to user {}, and only that user can run its border",
                directory.path().display(),
                directory.owner()
            )));
        }
        let lock =
            directory.open(LOCK, true)?.ok_or_else(|| directory.failed(LOCK, Errno::NOENT))?;
        let lock = match Locked::alone(lock) {
            Ok(lock) => directory.keep(lock.stay()),
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::InUse(format!(
                    "a border runs in {} already: a user has one a machine",
                    directory.path().display()
                )));
            }
            Err(e) => return Err(directory.failed(LOCK, e)),
        };
        let epoch = epoch(&directory, random)?;
        Ok(Place { directory, _lock: lock, epoch })
    }

    /// Returns the epoch of the directory.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Listens at the socket, which only the own user and root can reach. It is non-blocking.
    ///
    /// # Errors
    /// Returns [`Error::Directory`] if a foreign entry has the name, or the directory is full.
    pub fn listen(&self) -> Result<OwnedFd, Error> {
        socket::listen(&self.directory, SOCKET, SocketType::STREAM, BACKLOG)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.directory.remove_socket(SOCKET);
    }
}

/// Reads the epoch, or writes it if there is none. The caller has the border's lock.
fn epoch(directory: &Directory, random: u64) -> Result<Epoch, Error> {
    if let Some(file) = directory.open(EPOCH, false)? {
        let mut text = [0; LENGTH + 1];
        let length =
            rustix::io::pread(&file, &mut text, 0).map_err(|e| directory.failed(EPOCH, e))?;
        let text = std::str::from_utf8(&text[..length]).ok();
        let epoch = text.and_then(|text| text.strip_suffix('\n')?.parse().ok());
        return epoch.ok_or_else(|| directory.planted(EPOCH, "does not contain an epoch"));
    }
    // A border that dies while it writes leaves no half of an epoch under the name.
    let (first, epoch) = (format!("{EPOCH}.new"), Epoch(random));
    let file =
        directory.open(&first, true)?.ok_or_else(|| directory.failed(&first, Errno::NOENT))?;
    match rustix::io::pwrite(&file, format!("{epoch}\n").as_bytes(), 0) {
        Ok(LENGTH) => {}
        Ok(_) => return Err(directory.failed(&first, Errno::NOSPC)),
        Err(e) => return Err(directory.failed(&first, e)),
    }
    directory.rename(&first, EPOCH)?;
    Ok(epoch)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn folder(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("kumihimo-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn epoch_stays_until_the_directory_is_new() {
        let path = folder("epoch");
        let take = |random| Place::take(Directory::own(&path).expect("a directory"), random);
        assert_eq!(take(1).expect("a place").epoch(), Epoch(1));
        assert_eq!(take(2).expect("a place").epoch(), Epoch(1));
        fs::remove_dir_all(&path).expect("its own folder");
        assert_eq!(take(3).expect("a place").epoch(), Epoch(3));
        fs::write(path.join(EPOCH), "nonsense").expect("writable");
        let error = take(4).expect_err("a foreign entry");
        assert!(error.to_string().contains("does not contain an epoch"), "{error}");
        fs::remove_dir_all(&path).expect("its own folder");
    }

    #[test]
    fn second_border_is_refused() {
        let path = folder("second-border");
        let take = || Place::take(Directory::own(&path).expect("a directory"), 1);
        let place = take().expect("a place");
        let listener = place.listen().expect("a socket");
        assert!(matches!(take(), Err(Error::InUse(_))));
        assert!(path.join(SOCKET).exists());
        drop((place, listener));
        assert!(!path.join(SOCKET).exists());
        drop(take().expect("the place is free"));
        fs::remove_dir_all(&path).expect("its own folder");
    }
}
