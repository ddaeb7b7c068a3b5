//! Resident memory of the process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// An open /proc/self/statm (proc_pid_statm(5)): kept open so that it can be read when no
/// descriptor is left.
pub(super) struct Resident {
    statm: File,
    page: u64,
}

impl Resident {
    pub(super) fn open() -> io::Result<Resident> {
        let statm = File::open("/proc/self/statm").map_err(|e| {
            let text = format!("a limit on memory (Server::memory) needs /proc/self/statm: {e}");
            io::Error::new(io::ErrorKind::Unsupported, text)
        })?;
        // SAFETY: no pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        Ok(Resident { statm, page: page as u64 })
    }

    /// Resident bytes; 0 if the file cannot be read, which refuses nothing.
    pub(super) fn bytes(&self) -> u64 {
        let mut text = [0; 128];
        let n = self.statm.read_at(&mut text, 0).unwrap_or(0);
        let pages = std::str::from_utf8(&text[..n])
            .ok()
            .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
        pages.unwrap_or(0) * self.page
    }
}
