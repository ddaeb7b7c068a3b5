//! The append log: a file with the command of each change, in the order of the changes. Running the
//! file's commands reproduces the data. One microprocess writes the file. All records that
//! accumulate during a write go into the next write.

use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use kumihimo::fs::{File, TryLockError};
use kumihimo::sync::atomic::{AtomicBool, Ordering::Relaxed};
use kumihimo::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use kumihimo_config::named_file;

use crate::protocol::reply::Reply;

/// When a change is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sync {
    /// Before the client receives the reply. Changes of many clients share one fdatasync(2).
    Always,
    /// Within a second or two of the reply
    #[default]
    Everysec,
    /// Whenever the kernel writes it back
    No,
}

/// Limit on the bytes that wait to be written. At the limit, commands that change data wait.
const MOST_PENDING: usize = 64 << 20;
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Interval between attempts after a failed write.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// The error for a command that changes data while the log cannot be written.
pub const REFUSED: &str = "MISCONF Errors writing to the append log";

/// A log that is open for writing.
pub struct Log {
    sync: Sync,
    path: PathBuf,
    state: Mutex<State>,
    /// Signalled when there is something to write or the log is to end.
    more: Condvar,
    /// Signalled when more has been written, or when a write has failed.
    advanced: Condvar,
    failing: AtomicBool,
}

struct State {
    /// Records that the writer has not taken yet.
    pending: Reply,
    /// Database in which the next command in the file would run.
    database: u8,
    /// Bytes appended since the start, and the part of them that is as durable as `sync` requires.
    appended: u64,
    safe: u64,
    failed: Option<String>,
    ending: bool,
    ended: bool,
}

impl Log {
    /// Creates the log for `path`, whose file is locked and has been replayed up to `length`.
    /// [`write`](Log::write) does the writing.
    pub fn new(path: &Path, sync: Sync) -> Log {
        let state = State {
            pending: Reply::default(),
            // The last `SELECT` in the file is not recorded: the first change begins with one.
            database: u8::MAX,
            appended: 0,
            safe: 0,
            failed: None,
            ending: false,
            ended: false,
        };
        Log {
            sync,
            path: path.to_owned(),
            state: Mutex::new(state),
            more: Condvar::new(),
            advanced: Condvar::new(),
            failing: AtomicBool::new(false),
        }
    }

    /// Opens `path` and locks it against other servers.
    ///
    /// # Errors
    /// As open(2); `PermissionDenied` if the file is another user's, has further names, or is
    /// reached through another user's symbolic link; `AddrInUse` if another process holds the lock.
    pub fn open(path: &Path) -> io::Result<File> {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        Log::lock_file(named_file::open(path, &options)?.into())
    }

    /// Locks an open log against other servers.
    ///
    /// # Errors
    /// As flock(2); `AddrInUse` if another process holds the lock.
    pub fn lock_file(file: File) -> io::Result<File> {
        file.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::AddrInUse, "another process writes it")
            }
            TryLockError::Error(e) => e,
        })?;
        Ok(file)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends `command`, which changed database `number`. The caller holds the locks of the
    /// changed shards, so records are in the order of the changes.
    pub fn append(&self, number: u8, command: &[&[u8]]) {
        let mut state = self.lock();
        let before = state.pending.bytes.len();
        if state.database != number {
            state.database = number;
            put(&mut state.pending, &[b"SELECT", itoa::Buffer::new().format(number).as_bytes()]);
        }
        put(&mut state.pending, command);
        state.appended += (state.pending.bytes.len() - before) as u64;
        if before == 0 {
            self.more.notify_one();
        }
    }

    /// Records that the writer has not taken yet.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn pending(&self) -> Vec<u8> {
        self.lock().pending.bytes.to_vec()
    }

    /// Returns whether changes are refused because the last write failed.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Relaxed)
    }

    /// Error message of the last write; `None` if it succeeded.
    pub fn failure(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    /// The sync policy.
    pub fn sync(&self) -> Sync {
        self.sync
    }

    /// Waits until the caller's changes are as durable as the sync policy promises to clients.
    ///
    /// # Errors
    /// If the changes could not be written. They remain in memory, and the writer tries again.
    pub fn settle(&self) -> Result<(), String> {
        let mut state = self.lock();
        let mine = state.appended;
        loop {
            let settled = match self.sync {
                Sync::Always => state.safe >= mine,
                _ => state.pending.bytes.len() <= MOST_PENDING,
            };
            if settled {
                return Ok(());
            }
            if let Some(why) = &state.failed {
                return Err(format!("{REFUSED}: {why}"));
            }
            state = self.advanced.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes appended records to `file`, after its first `good` bytes, until [`end`](Log::end).
    /// Runs in a dedicated microprocess.
    pub fn write(&self, file: &File, mut good: u64) {
        let mut synced = Instant::now();
        // True if bytes were written after the last fdatasync(2).
        let mut dirty = false;
        loop {
            let mut state = self.lock();
            while state.pending.bytes.is_empty() && !state.ending {
                if dirty && self.sync == Sync::Everysec {
                    let (again, waited) = self
                        .more
                        .wait_until(state, synced + SYNC_EVERY)
                        .unwrap_or_else(PoisonError::into_inner);
                    state = again;
                    if waited.timed_out() {
                        break;
                    }
                } else {
                    state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
            let ending = state.ending;
            let (batch, upto) = (state.pending.bytes.split(), state.appended);
            drop(state);
            let mut sync = match self.sync {
                Sync::Always => true,
                Sync::Everysec => ending || synced.elapsed() >= SYNC_EVERY,
                Sync::No => ending,
            };
            let trial = |sync| {
                file.write_all_at(&batch, good)?;
                if sync { file.sync_data() } else { Ok(()) }
            };
            let mut is_last = ending;
            let mut outcome = trial(sync);
            while let Err(e) = &outcome {
                // The partial write must not stay: a reader of the file stops at an incomplete
                // command.
                let cut = file.set_len(good);
                let again = self.failed(e, cut.err().as_ref());
                if is_last {
                    break;
                }
                // A shutdown ends the wait, not the attempts: there may be room again.
                is_last = !again;
                sync |= is_last;
                outcome = trial(sync);
            }
            if outcome.is_ok() {
                good += batch.len() as u64;
                dirty = !sync;
                if sync {
                    synced = Instant::now();
                }
            }
            let mut state = self.lock();
            if outcome.is_ok() {
                state.safe = upto;
                if state.failed.take().is_some() {
                    self.failing.store(false, Relaxed);
                    eprintln!("kv: {}: can be written again", self.path.display());
                }
            }
            let is_settled = state.pending.bytes.is_empty() && !dirty;
            state.ended = state.ending && (outcome.is_err() || is_settled);
            self.advanced.notify_all();
            if state.ended {
                return;
            }
        }
    }

    /// Handles a failed write: reports the first failure and waits for a while. Returns whether the
    /// log goes on; if it is to end, the next attempt is the last one.
    fn failed(&self, e: &io::Error, cut: Option<&io::Error>) -> bool {
        let mut state = self.lock();
        if state.failed.is_none() {
            eprintln!(
                "kv: {}: {e}: changes are refused until the log can be written again",
                self.path.display()
            );
            if let Some(cut) = cut {
                eprintln!(
                    "kv: {}: {cut}: the file may end with an incomplete command",
                    self.path.display()
                );
            }
        }
        state.failed = Some(e.to_string());
        self.failing.store(true, Relaxed);
        self.advanced.notify_all();
        let again = Instant::now() + TRY_AGAIN;
        let waited = self.more.wait_while_until(state, again, |state| !state.ending);
        !waited.unwrap_or_else(PoisonError::into_inner).0.ending
    }

    /// Waits until all records are durable and the writer has ended.
    ///
    /// # Errors
    /// If records could not be written. They are lost.
    pub fn end(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.ending = true;
        self.more.notify_all();
        let state = self
            .advanced
            .wait_while(state, |state| !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        match &state.failed {
            Some(why) => {
                let lost = state.appended - state.safe;
                Err(io::Error::other(format!(
                    "{}: {why}: the last {lost} bytes are lost",
                    self.path.display()
                )))
            }
            None => Ok(()),
        }
    }
}

fn put(to: &mut Reply, command: &[&[u8]]) {
    to.array(command.len());
    for word in command {
        to.bulk(word);
    }
}
