//! The append log: each change as the command that makes it, in the order in which the changes were
//! made, so that running the file again makes the same data. One microprocess writes; all that
//! piles up while it does goes out together.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use kumihimo::fs::{File, OpenOptions, TryLockError};
use kumihimo::sync::atomic::{AtomicBool, Ordering::Relaxed};
use kumihimo::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::protocol::reply::Reply;

/// When a change is safe on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sync {
    /// Before the client hears of it. Changes of many clients share one fdatasync(2).
    Always,
    /// Within a second or two
    #[default]
    Everysec,
    /// When the kernel likes
    No,
}

/// More than this may not wait to be written; a change then waits.
const MOST_PENDING: usize = 64 << 20;
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How often a write that failed is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// What a client is told that wants to change something while the log cannot be written.
pub const REFUSED: &str = "MISCONF Errors writing to the append log";

/// A log that is being written.
pub struct Log {
    sync: Sync,
    path: PathBuf,
    state: Mutex<State>,
    /// There is something to write, or the end is wanted.
    more: Condvar,
    /// More is written, or it failed.
    advanced: Condvar,
    failing: AtomicBool,
}

struct State {
    /// Not yet taken by the writer.
    pending: Reply,
    /// In which database the next command in the file would act.
    database: u8,
    /// Bytes appended since the start; those of them that are as safe as `sync` wants.
    appended: u64,
    safe: u64,
    failed: Option<String>,
    ending: bool,
    ended: bool,
}

impl Log {
    /// For `path`, which is locked, and read up to `length`; [`write`](Log::write) does the work.
    pub fn new(path: &Path, sync: Sync) -> Log {
        let state = State {
            pending: Reply::default(),
            // Nobody knows what the file ends with: the first change says where it acts.
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

    /// Opens `path` for it alone.
    ///
    /// # Errors
    /// As open(2); `AddrInUse` if another process has it.
    pub fn open(path: &Path) -> io::Result<File> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
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

    /// Adds `command`, which changed database `number`. Called under the locks of what it changed,
    /// so that the order is right.
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

    /// Whether changes are refused, because the last ones could not be written.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Relaxed)
    }

    /// What is said of the last write: nothing if it went well.
    pub fn failure(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    /// The policy.
    pub fn sync(&self) -> Sync {
        self.sync
    }

    /// Waits until the caller's changes are as safe as a client that hears of them may expect.
    ///
    /// # Errors
    /// They could not be written. They still are, and will be tried again, in the memory of this
    /// process.
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

    /// Writes what is appended to `file`, behind its first `good` bytes, until [`end`](Log::end).
    /// Run by a microprocess of its own.
    pub fn write(&self, file: &File, mut good: u64) {
        let mut synced = Instant::now();
        // Written since then.
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
            let sync = match self.sync {
                Sync::Always => true,
                Sync::Everysec => ending || synced.elapsed() >= SYNC_EVERY,
                Sync::No => ending,
            };
            let trial = || {
                file.write_all_at(&batch, good)?;
                if sync { file.sync_data() } else { Ok(()) }
            };
            let mut outcome = trial();
            while let Err(e) = &outcome {
                // Nothing of it may stay: half a command would be the end for a reader of the file.
                let cut = file.set_len(good);
                if !self.failed(e, cut.err().as_ref()) {
                    break;
                }
                outcome = trial();
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
                    eprintln!("kv: {}: written again", self.path.display());
                }
            }
            state.ended = state.ending && (outcome.is_err() || state.pending.bytes.is_empty());
            self.advanced.notify_all();
            if state.ended {
                return;
            }
        }
    }

    /// A write failed: says so, once, and waits a while. Whether to try again.
    fn failed(&self, e: &io::Error, cut: Option<&io::Error>) -> bool {
        let mut state = self.lock();
        if state.failed.is_none() {
            eprintln!(
                "kv: {}: {e}: changes are refused until it can be written again",
                self.path.display()
            );
            if let Some(cut) = cut {
                eprintln!(
                    "kv: {}: {cut}: the end of a command may be missing in it",
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

    /// Everything is written and safe, and the writer has ended.
    ///
    /// # Errors
    /// What could not be written, which is lost.
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
