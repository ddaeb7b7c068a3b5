//! Replays the append log at start.

use std::io;
use std::path::{Path, PathBuf};

use kumihimo::fs::File;
use kumihimo::sync::Arc;

use crate::protocol::request::{Found, Requests};
use crate::server::Server;
use crate::session::Session;

/// Result of replaying a log.
#[derive(Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Number of replayed commands.
    pub commands: u64,
    /// Bytes of the file that the replayed commands occupy.
    pub good: u64,
    /// Bytes after them that are not a complete command. The file was truncated there.
    pub dropped: u64,
    /// File in which the dropped bytes are saved, if they are not the beginning of a command.
    pub kept: Option<PathBuf>,
}

/// Runs the commands in `file` and truncates the file after the last complete one.
///
/// # Errors
/// As read(2) and ftruncate(2).
pub fn replay(server: &Arc<Server>, file: &File, path: &Path) -> io::Result<Replayed> {
    let mut session = Session::replaying(server);
    let mut requests = Requests::default();
    let (mut read, mut good, mut commands) = (0, 0, 0);
    let mut malformed = false;
    'reading: loop {
        let before = requests.unfinished();
        let more = requests.fill(file)?;
        read += (requests.unfinished() - before) as u64;
        loop {
            match requests.next() {
                Found::Command => {
                    // A server writes no inline command and no command that fails.
                    malformed = requests.is_inline() || !session.replay(requests.args());
                    if malformed {
                        break 'reading;
                    }
                    requests.done();
                    commands += 1;
                    good = read - requests.unfinished() as u64;
                }
                Found::Unfinished => break,
                Found::Malformed(_) => {
                    malformed = true;
                    break 'reading;
                }
            }
        }
        if !more {
            break;
        }
    }
    let length = file.metadata()?.len();
    let mut kept = None;
    if malformed {
        // A crash leaves an incomplete command only. Other contents may be valuable to the
        // operator.
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".dropped-{good}"));
        io::copy(&mut At(file, good), &mut File::create(&name)?)?;
        kept = Some(name.into());
    }
    if length > good {
        file.set_len(good)?;
        file.sync_data()?;
    }
    Ok(Replayed { commands, good, dropped: length - good, kept })
}

/// A reader of a file from a position on.
struct At<'a>(&'a File, u64);

impl io::Read for At<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = std::os::unix::fs::FileExt::read_at(self.0, buf, self.1)?;
        self.1 += n as u64;
        Ok(n)
    }
}
