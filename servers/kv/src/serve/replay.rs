//! Replays the append log at start, and repairs a damaged log on request.
//!
//! A crash leaves an incomplete command at the end of the file, or zeros in place of it. That tail
//! is cut off at start. All other damage stops the start and leaves the file unchanged, because
//! data would be lost: [`repair`] cuts the log there, and only on request.

use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use kumihimo::fs::{File, OpenOptions};
use kumihimo::sync::Arc;

use crate::commands::is_logged;
use crate::log::Log;
use crate::protocol::request::{Found, Requests, integer};
use crate::server::{Server, Settings};
use crate::session::Session;

/// Number of arguments that are checked before a place in the file counts as a record. Bounds the
/// search for records behind damage.
const ARGUMENTS_CHECKED: usize = 16;

/// Result of replaying a log.
#[derive(Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Number of replayed commands.
    pub commands: u64,
    /// Bytes of the file that the replayed commands occupy.
    pub good: u64,
    /// Bytes of an incomplete command after them. The file was truncated there.
    pub dropped: u64,
}

/// Result of [`repair`].
#[derive(Debug, PartialEq, Eq)]
pub struct Repaired {
    /// Number of commands that are left in the log.
    pub commands: u64,
    /// Length of the log.
    pub good: u64,
    /// Removed bytes.
    pub removed: u64,
    /// The damage and the file with the removed bytes, unless an incomplete command was removed.
    pub damage: Option<(String, PathBuf)>,
}

/// Contents of a log.
struct Contents {
    commands: u64,
    good: u64,
    length: u64,
    /// The damage at `good`; `None` if only an incomplete command follows, or nothing.
    damage: Option<String>,
}

/// Runs the commands in `file` and truncates the file after the last one if an incomplete command
/// follows it.
///
/// # Errors
/// `InvalidData` if the log is damaged; as read(2) and ftruncate(2).
pub fn replay(server: &Arc<Server>, file: &File, path: &Path) -> io::Result<Replayed> {
    let Contents { commands, good, length, damage } = run_all(server, file)?;
    if let Some(damage) = damage {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            format!(
                "damaged at byte {good}: {damage}. Nothing is changed. {commands} commands before it \
                 are intact, {} bytes are left. `kumi serve kv --repair {}` keeps the commands, and \
                 saves the bytes in a file of their own",
                length - good,
                path.display(),
            ),
        ));
    }
    truncate(file, length, good)?;
    Ok(Replayed { commands, good, dropped: length - good })
}

/// Truncates the log at `path` at its first damage, or at an incomplete command at its end. The
/// bytes from a damage on are saved beside the log.
///
/// # Errors
/// `AlreadyExists` if the file for the removed bytes exists; as open(2), read(2), write(2) and
/// ftruncate(2); `AddrInUse` if a server writes the log.
pub fn repair(path: &Path) -> io::Result<Repaired> {
    let file = Log::lock_file(OpenOptions::new().read(true).write(true).open(path)?)?;
    let server = Arc::new(Server::new(Settings::default()));
    let Contents { commands, good, length, damage } = run_all(&server, &file)?;
    let damage = damage.map(|damage| save(&file, path, good).map(|saved| (damage, saved)));
    let damage = damage.transpose()?;
    truncate(&file, length, good)?;
    Ok(Repaired { commands, good, removed: length - good, damage })
}

/// Saves the bytes of `file` from `good` on, durably. Returns the name of the new file.
fn save(file: &File, path: &Path, good: u64) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".dropped-{good}"));
    let saved = PathBuf::from(name);
    let about = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", saved.display()));
    let mut copy = OpenOptions::new().write(true).create_new(true).open(&saved).map_err(about)?;
    io::copy(&mut Part { file, at: good, end: u64::MAX }, &mut copy).map_err(about)?;
    copy.sync_all().map_err(about)?;
    let folder = saved.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(saved)
}

fn truncate(file: &File, length: u64, good: u64) -> io::Result<()> {
    if length > good {
        file.set_len(good)?;
        file.sync_data()?;
    }
    Ok(())
}

/// Runs the commands in `file` up to the first that is incomplete or damaged.
fn run_all(server: &Arc<Server>, file: &File) -> io::Result<Contents> {
    let length = file.metadata()?.len();
    // A log ends with a line end. Zeros behind that are blocks that a crash has left unwritten.
    let end = end_of_data(file, length)?;
    let mut part = Part { file, at: 0, end };
    let mut session = Session::replaying(server);
    let mut requests = Requests::default();
    let mut commands = 0;
    let damage = 'reading: loop {
        let more = requests.fill(&mut part)?;
        loop {
            match requests.next() {
                Found::Command => {
                    if let Err(why) = run(&mut session, &requests) {
                        break 'reading Some(why);
                    }
                    requests.done();
                    commands += 1;
                }
                Found::Unfinished => break,
                Found::Malformed(error) => break 'reading Some(error.into_owned()),
            }
        }
        if !more {
            break unfinished(requests.rest());
        }
    };
    let good = part.at - requests.rest().len() as u64;
    Ok(Contents { commands, good, length, damage })
}

fn run(session: &mut Session, requests: &Requests) -> Result<(), String> {
    if requests.is_inline() {
        return Err("no command begins here".to_owned());
    }
    if !requests.has_line_ends() {
        return Err("the length of an argument is wrong".to_owned());
    }
    session.replay(requests.args())
}

/// Checks the bytes after the last whole command. Returns why they are not the beginning of one
/// command that a crash has cut off.
fn unfinished(rest: &[u8]) -> Option<String> {
    if rest.first().is_some_and(|&first| first != b'*') {
        return Some("no command begins here".to_owned());
    }
    let line_ends = rest.windows(3).enumerate().filter(|(_, three)| three == b"\r\n*");
    let next = line_ends.map(|(at, _)| at + 2).find(|&at| is_record(&rest[at..]))?;
    Some(format!(
        "the command here has a length beyond the end of the file, but {next} bytes later a whole \
         command begins"
    ))
}

/// Returns whether a command that a server logs begins at the start of `bytes`.
fn is_record(mut bytes: &[u8]) -> bool {
    fn number(bytes: &mut &[u8], kind: u8) -> Option<usize> {
        let line = &bytes[..bytes.len().min(24)];
        let end = line.windows(2).position(|two| two == b"\r\n")?;
        let number = integer(line[..end].strip_prefix(&[kind])?)?;
        *bytes = &bytes[end + 2..];
        usize::try_from(number).ok()
    }
    fn argument<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
        let length = number(bytes, b'$')?;
        let (argument, rest) = bytes.split_at_checked(length)?;
        *bytes = rest.strip_prefix(b"\r\n")?;
        Some(argument)
    }
    let Some(count @ 1..) = number(&mut bytes, b'*') else { return false };
    argument(&mut bytes).is_some_and(is_logged)
        && (1..count.min(ARGUMENTS_CHECKED)).all(|_| argument(&mut bytes).is_some())
}

/// Length of `file` without the zeros at its end.
fn end_of_data(file: &File, length: u64) -> io::Result<u64> {
    let mut piece = [0; 64 << 10];
    let mut end = length;
    while end > 0 {
        let from = end.saturating_sub(piece.len() as u64);
        let piece = &mut piece[..(end - from) as usize];
        file.read_exact_at(piece, from)?;
        if let Some(last) = piece.iter().rposition(|&b| b != 0) {
            return Ok(from + last as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

/// A reader of a part of a file.
struct Part<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buf.len());
        let n = self.file.read_at(&mut buf[..most], self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}
