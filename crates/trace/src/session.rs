//! Session: one traced run, with its buffers, the kernel thread that writes them out, and the
//! conversion at the end.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::capture::clock::Clock;
use crate::capture::ring::{Ring, SharedRing};
use crate::export;
use crate::format::names::Summary;
use crate::spool::{CLOCK, Header, OUTSIDE, Spool, add, begin_chunk, end_chunk};
use kumihimo_arch::signal_mask;

/// Default size of a VP's buffer in records: 768 KiB, which is 80 ms at 400,000 records per second.
pub const DEFAULT_RECORDS: usize = 1 << 15;
/// Allowed sizes of a buffer, in records.
pub const RECORDS: std::ops::RangeInclusive<usize> = 8..=1 << 24;

/// Pause between two rounds of the writing thread while there are records.
const SHORT: Duration = Duration::from_millis(4);
/// Longest pause while there are none.
const LONG: Duration = Duration::from_millis(32);

/// Settings of [`Session::start`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// Path of the trace.
    pub output: PathBuf,
    /// Number of virtual processors.
    pub vps: usize,
    /// Size of each buffer in records.
    pub records: usize,
    /// Lines about the run: `program`, `policy`, ...
    pub about: Vec<(String, String)>,
}

/// Outputs that this process has already started. A second run is appended to the first.
static BEGUN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// One traced run.
#[derive(Debug)]
pub struct Session {
    buffers: Arc<Buffers>,
    output: PathBuf,
    spool: PathBuf,
    pid: u32,
    writer: Mutex<Option<Writer>>,
}

#[derive(Debug)]
struct Writer {
    /// Returns the error that stopped it from writing, if there was one.
    thread: JoinHandle<Option<io::Error>>,
    file: File,
    out: File,
}

#[derive(Debug)]
struct Buffers {
    vps: Vec<Arc<Ring>>,
    outside: SharedRing,
    clock: Clock,
    stop: AtomicBool,
    /// Records that were taken from a buffer but not written.
    unwritten: AtomicU64,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |e| io::Error::new(e.kind(), format!("trace {path}: {e}"))
}

/// Returns the path of the spool of process `pid` for `output`. It is in the output's folder if the
/// output is, or becomes, a regular file, and otherwise in the folder for temporary files.
#[must_use]
pub fn spool_path(output: &Path, pid: u32) -> PathBuf {
    if output.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return std::env::temp_dir().join(format!("kumihimo-trace.{pid}.spool"));
    }
    let mut name = output.as_os_str().to_owned();
    name.push(format!(".{pid}.spool"));
    name.into()
}

/// Opens the output, and returns the offset at which this run starts. Blocks on a pipe until it has
/// a reader.
fn open_output(path: &Path) -> io::Result<(File, u64)> {
    let mut begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    let again = begun.iter().any(|one| one == path);
    let mut options = OpenOptions::new();
    options.create(true);
    let file = if again {
        options.append(true).open(path)?
    } else {
        options.write(true).truncate(true).open(path)?
    };
    if !again {
        begun.push(path.to_owned());
    }
    let metadata = file.metadata()?;
    Ok((file, if metadata.is_file() { metadata.len() } else { 0 }))
}

impl Session {
    /// Opens output and spool, and starts the kernel thread that writes the records out. The output
    /// is complete after [`finish`](Session::finish).
    ///
    /// In the same process, a second session with the same output is appended to the first. Blocks
    /// on a named pipe until it has a reader.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the number of records is outside [`RECORDS`], or the kernel's
    /// error for the output, the spool or the kernel thread.
    pub fn start(settings: Settings) -> io::Result<Session> {
        if !RECORDS.contains(&settings.records) {
            let (least, most) = RECORDS.into_inner();
            let text = format!(
                "a trace buffer of {} records is not possible; use {least} to {most}",
                settings.records
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let output = settings.output;
        let (out, offset) = open_output(&output).map_err(at(&output))?;
        let pid = std::process::id();
        let spool = spool_path(&output, pid);
        let header = Header { vps: settings.vps as u32, pid, offset, about: settings.about };
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&spool)
            .map_err(at(&spool))?;
        file.write_all(&header.bytes()).map_err(at(&spool))?;
        let clock = Clock::new();
        let ring = || Arc::new(Ring::new(settings.records, clock));
        let buffers = Arc::new(Buffers {
            vps: (0..settings.vps).map(|_| ring()).collect(),
            outside: SharedRing::new(settings.records, clock),
            clock,
            stop: AtomicBool::new(false),
            unwritten: AtomicU64::new(0),
        });
        let (shared, to) = (buffers.clone(), file.try_clone().map_err(at(&spool))?);
        let builder = std::thread::Builder::new().name("kumi-trace".into());
        let thread = signal_mask::spawn_blocked(builder, move || shared.write_out(to))?;
        let writer = Mutex::new(Some(Writer { thread, file, out }));
        Ok(Session { buffers, output, spool, pid, writer })
    }

    /// Returns the buffer of VP `vp`.
    #[must_use]
    pub fn vp(&self, vp: usize) -> Arc<Ring> {
        self.buffers.vps[vp].clone()
    }

    /// Returns the buffer of threads that carry no VP.
    #[inline]
    #[must_use]
    pub fn outside(&self) -> &SharedRing {
        &self.buffers.outside
    }

    /// Returns the number of records lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let buffers = &self.buffers;
        let vps: u64 = buffers.vps.iter().map(|ring| ring.lost_ever()).sum();
        vps + buffers.outside.lost_ever() + buffers.unwritten.load(Ordering::Relaxed)
    }

    /// Returns the path of the trace.
    #[must_use]
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// Writes the trace to `out` in the output's format while the run continues. It lacks the last
    /// few milliseconds. Stops no other thread. Blocks the kernel thread.
    ///
    /// # Errors
    /// Returns an error if the trace has ended, or if reading the spool or writing to `out` fails.
    pub fn so_far(&self, out: &mut dyn Write) -> io::Result<()> {
        let spool = File::open(&self.spool).map_err(at(&self.spool))?;
        let lost = self.buffers.unwritten.load(Ordering::Relaxed);
        export::convert(&Spool::open(spool)?.whole_rounds(), out, lost).map(drop)
    }

    /// Writes the remaining records and converts the spool. Returns `None` if that is done already,
    /// or in another process after a fork. Later records are not in the trace. Blocks the kernel
    /// thread: about a second for a million records.
    ///
    /// # Errors
    /// Returns an error if reading the spool or writing the output fails; the spool is removed
    /// nevertheless.
    pub fn finish(&self) -> Option<io::Result<Summary>> {
        if self.pid != std::process::id() {
            return None;
        }
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        self.buffers.stop.store(true, Ordering::Release);
        writer.thread.thread().unpark();
        let written = writer.thread.join();
        let convert = |trouble: Option<io::Error>| {
            let lost = self.buffers.unwritten.load(Ordering::Relaxed);
            let summary = export::convert(&Spool::open(writer.file)?, &writer.out, lost);
            match trouble {
                Some(e) => Err(io::Error::new(e.kind(), format!("{}: {e}", self.spool.display()))),
                None => summary,
            }
        };
        let gone = |_| io::Error::other("the kernel thread that writes the trace panicked");
        let converted = written.map_err(gone).and_then(convert);
        let _ = std::fs::remove_file(&self.spool);
        Some(converted.map_err(at(&self.output)))
    }
}

/// Finishes the session of a runtime that never started to run.
impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

impl Buffers {
    /// Runs the loop of the writing thread.
    fn write_out(&self, mut file: File) -> Option<io::Error> {
        let mut trouble = None;
        let mut bytes = Vec::new();
        let mut pause = SHORT;
        loop {
            let over = self.stop.load(Ordering::Acquire);
            bytes.clear();
            // The clock is read before the buffers. At its end, the round contains all records from
            // before that time, and only some of the later ones.
            let (ticks, nanoseconds) = self.clock.pair();
            let (records, is_whole) = self.collect(&mut bytes, over);
            if records > 0 && is_whole || over {
                let from = begin_chunk(&mut bytes, CLOCK);
                add(&mut bytes, [ticks, nanoseconds, 0]);
                end_chunk(&mut bytes, from);
            }
            if trouble.is_none()
                && let Err(e) = file.write_all(&bytes)
            {
                trouble = Some(e);
            }
            if trouble.is_some() {
                // After an error, the buffers are emptied and their records counted, so the program
                // is not affected.
                self.unwritten.fetch_add(records, Ordering::Relaxed);
            }
            if over {
                return trouble;
            }
            pause = if records > 0 { SHORT } else { (pause * 2).min(LONG) };
            std::thread::park_timeout(pause);
        }
    }

    /// Adds a chunk for each buffer that has records. Returns their number, and whether no record
    /// was incomplete; a thread may be storing one.
    fn collect(&self, bytes: &mut Vec<u8>, last: bool) -> (u64, bool) {
        let mut records = 0;
        for (vp, ring) in self.vps.iter().enumerate() {
            let from = begin_chunk(bytes, vp as u32);
            ring.drain(|words| add(bytes, words));
            if last && ring.lost() > 0 {
                let lost = crate::capture::record::Record {
                    id: ring.lost(),
                    ..crate::capture::record::Record::new(crate::capture::record::Kind::Lost)
                };
                add(bytes, lost.words(self.clock.ticks()));
            }
            records += end_chunk(bytes, from);
        }
        let from = begin_chunk(bytes, OUTSIDE);
        let is_whole = self.outside.drain(|words| add(bytes, words));
        (records + end_chunk(bytes, from), is_whole)
    }
}

/// Converts the spool that process `pid` left when it died, and appends the run to the completed
/// ones in `output`. Returns `None` if there is no spool.
///
/// # Errors
/// Returns the error of reading the spool or writing the output.
pub fn recover(output: &Path, pid: u32) -> Option<io::Result<Summary>> {
    let path = spool_path(output, pid);
    let file = File::open(&path).ok()?;
    let convert = || {
        let spool = Spool::open(file)?.whole_rounds();
        let mut out = OpenOptions::new().create(true).truncate(false).write(true).open(output)?;
        if out.metadata()?.is_file() {
            // Removes the output of an unfinished conversion.
            out.set_len(spool.header.offset)?;
            io::Seek::seek(&mut out, io::SeekFrom::End(0))?;
        }
        export::convert(&spool, out, 0)
    };
    let converted = convert().map_err(at(output));
    let _ = std::fs::remove_file(&path);
    Some(converted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::record::{Kind, Record};

    /// If a thread writes to one buffer and then to another, the trace so far never contains only
    /// the second record.
    #[test]
    fn trace_so_far_is_consistent() {
        let output = std::env::temp_dir().join(format!("kumi-session-test-{}", std::process::id()));
        const RECORDS: u64 = 1 << 10;
        let settings = Settings {
            output: output.clone(),
            vps: 2,
            records: RECORDS as usize,
            about: Vec::new(),
        };
        let session = Session::start(settings).expect("a session");
        let (first, second, over) = (session.vp(0), session.vp(1), AtomicBool::new(false));
        let seen = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut noted = 0;
                while !over.load(Ordering::Relaxed) {
                    // Full buffers lose records, and the two counts then differ. So the writer may
                    // be only a limited number of records ahead of the reader.
                    if noted - seen.load(Ordering::Relaxed) > RECORDS / 2 {
                        std::thread::yield_now();
                        continue;
                    }
                    noted += 1;
                    for ring in [&first, &second] {
                        ring.put(Record::new(Kind::IdleBegin));
                        std::thread::yield_now();
                    }
                }
            });
            let mut rounds = 0;
            while rounds < 20 {
                let spool = Spool::open(File::open(&session.spool).expect("the spool exists"))
                    .expect("a spool");
                let mut written = [0u64; 2];
                for entry in spool.whole_rounds().entries() {
                    written[entry.expect("readable").writer as usize] += 1;
                }
                let [before, after] = written;
                if !(after..=after + 1).contains(&before) {
                    over.store(true, Ordering::Relaxed);
                    panic!("{before} and {after}");
                }
                rounds += u32::from(after > seen.swap(after, Ordering::Relaxed));
                std::thread::sleep(SHORT);
            }
            over.store(true, Ordering::Relaxed);
        });
        session.finish().expect("not yet").expect("written");
        std::fs::remove_file(output).expect("the output exists");
    }
}
