//! Open files and directories.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Result as IoResult};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use kumihimo::sync::{Mutex, PoisonError};
use kumihimo_store::{Errno, Handle, Kind, Listed, Node, Result};
use rustix::fs::{FileType, RawDir, SeekFrom};

/// Buffer size of a getdents(2) call. A client that reads less than this at a time makes the server
/// read the rest again, so the buffer is no larger than common client buffers.
const LISTING: usize = 8 << 10;

#[derive(Debug)]
pub enum Opened {
    /// Accessed with plain system calls.
    Plain(File),
    /// Accessed like a file of a microprocess.
    Kumihimo(kumihimo::fs::File),
    /// The mutex protects the position of the descriptor and the buffer.
    Directory(OwnedFd, Mutex<Vec<u8>>),
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Opened::Plain(file) => file.as_fd(),
            Opened::Kumihimo(file) => file.as_fd(),
            Opened::Directory(descriptor, _) => descriptor.as_fd(),
        }
    }
}

impl Opened {
    pub fn directory(descriptor: OwnedFd) -> Opened {
        Opened::Directory(descriptor, Mutex::new(Vec::with_capacity(LISTING)))
    }

    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            let (rest, at) = (&mut into[done..], offset + done as u64);
            match self.read_some(at, rest) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // Report the bytes read so far. The next read reports the error.
                Err(_) if done > 0 => break,
                Err(e) => return Err(Errno::from_io_error(&e).unwrap_or(Errno::IO)),
            }
        }
        Ok(done)
    }

    pub fn write(&self, offset: u64, from: &[u8]) -> Result<usize> {
        let mut done = 0;
        while done < from.len() {
            match self.write_some(offset + done as u64, &from[done..]) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) if done > 0 => break,
                Err(e) => return Err(Errno::from_io_error(&e).unwrap_or(Errno::IO)),
            }
        }
        Ok(done)
    }

    fn read_some(&self, offset: u64, into: &mut [u8]) -> IoResult<usize> {
        match self {
            Opened::Plain(file) => file.read_at(into, offset),
            Opened::Kumihimo(file) => file.read_at(into, offset),
            Opened::Directory(..) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    fn write_some(&self, offset: u64, from: &[u8]) -> IoResult<usize> {
        match self {
            Opened::Plain(file) => file.write_at(from, offset),
            Opened::Kumihimo(file) => file.write_at(from, offset),
            Opened::Directory(..) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    pub fn sync(&self, data: bool) -> Result<()> {
        let done = match (self, data) {
            (Opened::Plain(file), false) => file.sync_all(),
            (Opened::Plain(file), true) => file.sync_data(),
            (Opened::Kumihimo(file), false) => file.sync_all(),
            (Opened::Kumihimo(file), true) => file.sync_data(),
            (Opened::Directory(descriptor, _), _) => return rustix::fs::fsync(descriptor),
        };
        done.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
    }

    /// Lists entries from `offset`, a position of the host's file system. `above` replaces the
    /// inode number of `..`.
    pub fn list(
        &self,
        offset: u64,
        above: Option<Node>,
        take: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<()> {
        let Opened::Directory(descriptor, buffer) = self else { return Err(Errno::NOTDIR) };
        let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(errno) = rustix::fs::seek(descriptor, SeekFrom::Start(offset)) {
            // After a directory has been removed, ext4 rejects positions in it (ext4_dir_llseek).
            // Such a directory has no entries.
            return if rustix::fs::fstat(descriptor)?.st_nlink == 0 { Ok(()) } else { Err(errno) };
        }
        let mut listing = RawDir::new(descriptor, buffer.spare_capacity_mut());
        while let Some(listed) = listing.next() {
            let listed = listed?;
            let name = listed.file_name().to_bytes();
            let node = above.filter(|_| name == b"..").unwrap_or(Node(listed.ino()));
            let kind = kind(listed.file_type());
            if !take(Listed { node, next: listed.next_entry_cookie(), kind, name }) {
                break;
            }
        }
        Ok(())
    }
}

fn kind(of: FileType) -> Option<Kind> {
    Some(match of {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Unknown => return None,
    })
}

/// All open files and directories by number.
#[derive(Default)]
pub struct Handles(Mutex<(HashMap<Handle, Arc<Opened>>, u64)>);

impl Handles {
    pub fn add(&self, opened: Opened) -> Handle {
        let (handles, last) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last += 1;
        handles.insert(Handle(*last), Arc::new(opened));
        Handle(*last)
    }

    pub fn get(&self, handle: Handle) -> Result<Arc<Opened>> {
        let (handles, _) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner);
        handles.get(&handle).cloned().ok_or(Errno::BADF)
    }

    /// Removes a handle. The file is closed when no other thread uses it.
    pub fn remove(&self, handle: Handle) {
        let removed = self.0.lock().unwrap_or_else(PoisonError::into_inner).0.remove(&handle);
        drop(removed);
    }
}
