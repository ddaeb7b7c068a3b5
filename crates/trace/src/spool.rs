//! Spool: the unconverted records of a run, in a file.
//!
//! A program that dies leaves its spool behind, complete up to the start of the writer's last whole
//! round. Bytes after the last whole chunk are ignored.
//! ```text
//!   header: MAGIC, version, VPs, process id, length of the text, offset in the output;
//!           text: lines "key=value"
//!   chunk:  writer, number of records, records of 24 bytes
//! ```
//! All numbers are little-endian. Readers skip unknown kinds of records and unknown lines of the
//! text, so adding these needs no new version.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

use crate::capture::clock::Scale;
use crate::capture::record::{Kind, NAME_MAX, Record, Words, add_piece};

const MAGIC: [u8; 8] = *b"kumispl1";
const VERSION: u32 = 1;
const HEADER: usize = 32;
const RECORD: usize = 24;
/// Most VPs of a runtime.
pub(crate) const MOST_VPS: u32 = 1024;
/// Number of records read from the file at a time.
const BLOCK: usize = 512;
/// Number of records that are searched for the earliest one. Writers without a VP read the time
/// before they reserve a place in the buffer, so their records may be out of order.
const LOOK_AHEAD: usize = 4096;

/// Writer number of threads that carry no VP.
pub const OUTSIDE: u32 = u32::MAX;
/// Writer number of clock readings: ticks and nanoseconds. Each round ends with one, which was read
/// before its first buffer.
pub const CLOCK: u32 = u32::MAX - 1;

/// Data known before the first record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Number of virtual processors.
    pub vps: u32,
    /// ID of the traced process.
    pub pid: u32,
    /// Offset in the output at which this run starts.
    pub offset: u64,
    /// Lines about the run: program, policy, queue design.
    pub about: Vec<(String, String)>,
}

impl Header {
    /// Returns the header as bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let clean = |text: &str| text.replace(['\n', '='], " ");
        let text: String =
            self.about.iter().map(|(k, v)| format!("{}={}\n", clean(k), clean(v))).collect();
        let mut bytes = MAGIC.to_vec();
        for word in [VERSION, self.vps, self.pid, text.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    }

    fn read(file: &mut File) -> io::Result<(Header, u64)> {
        let mut head = [0u8; HEADER];
        file.read_exact(&mut head)?;
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        if head[..8] != MAGIC {
            return refused("not a spool of a Kumihimo trace".to_owned());
        }
        if word(8) != VERSION {
            return refused(format!(
                "a spool of version {}, and this version of Kumihimo reads version {VERSION}; use \
                 the kumi of the traced program's version",
                word(8)
            ));
        }
        let mut text = String::new();
        file.take(word(20).into()).read_to_string(&mut text)?;
        let about = text.lines().filter_map(|line| line.split_once('='));
        let offset = u64::from_le_bytes(head[24..32].try_into().expect("eight bytes"));
        // Tracks are numbered from the offset on.
        if i64::try_from(offset).is_err() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the spool belongs at byte {offset} of its trace, beyond the end of any file"
                ),
            ));
        }
        let header = Header {
            vps: word(12),
            pid: word(16),
            offset,
            about: about.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        };
        Ok((header, (HEADER + text.len()) as u64))
    }
}

/// Starts a chunk in `out`, and returns its position for [`end_chunk`].
pub fn begin_chunk(out: &mut Vec<u8>, writer: u32) -> usize {
    out.extend(writer.to_le_bytes());
    out.extend(0u32.to_le_bytes());
    out.len()
}

/// Adds a record to the current chunk.
#[inline]
pub fn add(out: &mut Vec<u8>, words: Words) {
    for word in words {
        out.extend(word.to_le_bytes());
    }
}

/// Ends the chunk whose position `from` was returned by `begin_chunk`. Returns its number of
/// records; removes an empty chunk.
pub fn end_chunk(out: &mut Vec<u8>, from: usize) -> u64 {
    let records = (out.len() - from) / RECORD;
    if records == 0 {
        out.truncate(from - 8);
    } else {
        out[from - 4..from].copy_from_slice(&(records as u32).to_le_bytes());
    }
    records as u64
}

/// A spool opened for reading.
#[derive(Debug)]
pub struct Spool {
    /// The header.
    pub header: Header,
    /// Converts ticks to time.
    pub scale: Scale,
    /// The chunks: writer, offset, number of records.
    chunks: Vec<(u32, u64, u32)>,
    /// Time in ticks up to which all records of every writer are present. Later ones are skipped.
    until: u64,
    last: u64,
    file: File,
}

impl Spool {
    /// The first bytes of every spool.
    pub const MAGIC: [u8; 8] = MAGIC;

    /// Reads the header and the positions of all chunks.
    ///
    /// # Errors
    /// Returns an error if the file is not a spool or cannot be read.
    pub fn open(mut file: File) -> io::Result<Spool> {
        io::Seek::rewind(&mut file)?;
        let (header, mut at) = Header::read(&mut file)?;
        let end = file.metadata()?.len();
        let mut chunks = Vec::new();
        let mut pairs: Option<((u64, u64), (u64, u64))> = None;
        while at + 8 <= end {
            let mut head = [0u8; 8];
            file.read_exact_at(&mut head, at)?;
            let [writer, records] =
                [0, 4].map(|i| u32::from_le_bytes(head[i..i + 4].try_into().expect("four bytes")));
            let next = at + 8 + u64::from(records) * RECORD as u64;
            if next > end {
                break;
            }
            match writer {
                // Writers leave no empty chunks.
                _ if records == 0 => {}
                CLOCK => {
                    let mut pair = [0u8; 16];
                    file.read_exact_at(&mut pair, at + 8)?;
                    let [ticks, ns] = [0, 8].map(|i| {
                        u64::from_le_bytes(pair[i..i + 8].try_into().expect("eight bytes"))
                    });
                    pairs = Some((pairs.map_or((ticks, ns), |(first, _)| first), (ticks, ns)));
                }
                _ => chunks.push((writer, at + 8, records)),
            }
            at = next;
        }
        let (first, last) = pairs.unwrap_or_default();
        Ok(Spool {
            header,
            scale: Scale::new(first, last),
            chunks,
            until: u64::MAX,
            last: last.0,
            file,
        })
    }

    /// Limits a spool whose writer continues, or died, to its whole rounds.
    ///
    /// After the last whole round, records of one VP may be present while those of another are
    /// missing. What one VP did to the other's microprocesses would then contradict their known
    /// states.
    #[must_use]
    pub fn whole_rounds(self) -> Spool {
        Spool { until: self.last, ..self }
    }

    /// Returns whether any writer lost records. Reads every record.
    ///
    /// # Errors
    /// Returns the error of reading.
    pub fn has_losses(&self) -> io::Result<bool> {
        let mut bytes = vec![0u8; BLOCK * RECORD];
        for &(_, offset, records) in &self.chunks {
            for first in (0..u64::from(records)).step_by(BLOCK) {
                let n = (u64::from(records) - first).min(BLOCK as u64) as usize;
                let block = &mut bytes[..n * RECORD];
                self.file.read_exact_at(block, offset + first * RECORD as u64)?;
                // The kind is the lowest byte of the last word.
                if block.chunks_exact(RECORD).any(|record| record[16] == Kind::Lost as u8) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns all records, ordered by time.
    #[must_use]
    pub fn entries(&self) -> Entries<'_> {
        let mut chunks: BTreeMap<u32, VecDeque<(u64, u32)>> = BTreeMap::new();
        for &(writer, offset, records) in &self.chunks {
            chunks.entry(writer).or_default().push_back((offset, records));
        }
        let streams =
            chunks.into_iter().map(|(writer, chunks)| Stream::new(self, writer, chunks)).collect();
        let mut entries = Entries { streams, next: BinaryHeap::new(), until: self.until };
        for i in 0..entries.streams.len() {
            entries.advance(i);
        }
        entries
    }
}

/// A record with its writer, and the name that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The VP, or [`OUTSIDE`].
    pub writer: u32,
    /// The record; its time is in ticks.
    pub record: Record,
    /// The name, for a spawn.
    pub name: Option<String>,
}

/// The records of one writer, ordered by time.
struct Stream<'a> {
    spool: &'a Spool,
    writer: u32,
    /// The chunks that are not read yet: offset and number of records.
    chunks: VecDeque<(u64, u32)>,
    /// The unread part of the current chunk: offset and number of records.
    rest: (u64, u32),
    block: VecDeque<Words>,
    ahead: BinaryHeap<Reverse<(u64, u64, usize)>>,
    held: std::collections::HashMap<usize, Entry>,
    count: usize,
}

impl<'a> Stream<'a> {
    fn new(spool: &'a Spool, writer: u32, chunks: VecDeque<(u64, u32)>) -> Stream<'a> {
        Stream {
            spool,
            writer,
            chunks,
            rest: (0, 0),
            block: VecDeque::new(),
            ahead: BinaryHeap::new(),
            held: Default::default(),
            count: 0,
        }
    }

    fn words(&mut self) -> io::Result<Option<Words>> {
        if let Some(words) = self.block.pop_front() {
            return Ok(Some(words));
        }
        while self.rest.1 == 0 {
            let Some(chunk) = self.chunks.pop_front() else { return Ok(None) };
            self.rest = chunk;
        }
        let (offset, records) = self.rest;
        let n = records.min(BLOCK as u32);
        let mut bytes = vec![0u8; n as usize * RECORD];
        self.spool.file.read_exact_at(&mut bytes, offset)?;
        self.rest = (offset + bytes.len() as u64, records - n);
        self.block.extend(bytes.chunks_exact(RECORD).map(|record| {
            [0, 8, 16]
                .map(|i| u64::from_le_bytes(record[i..i + 8].try_into().expect("eight bytes")))
        }));
        Ok(self.block.pop_front())
    }

    /// Returns the next record in the order of the file, with its name.
    fn assembled(&mut self) -> io::Result<Option<Entry>> {
        loop {
            let Some(words) = self.words()? else { return Ok(None) };
            // Skips a name piece without its record, and words that are not a record.
            let Some(record) = Record::from_words(words).filter(|record| record.kind != Kind::Name)
            else {
                continue;
            };
            let mut name = Vec::new();
            while record.kind == Kind::Spawn
                && let Some(words) = self.words()?
            {
                if Record::from_words(words).is_none_or(|record| record.kind != Kind::Name) {
                    self.block.push_front(words);
                    break;
                }
                // Writers keep no more than this.
                if name.len() < NAME_MAX {
                    add_piece(&mut name, words);
                }
            }
            let name = (!name.is_empty()).then(|| String::from_utf8_lossy(&name).into_owned());
            return Ok(Some(Entry { writer: self.writer, record, name }));
        }
    }

    fn next(&mut self) -> io::Result<Option<Entry>> {
        if self.writer != OUTSIDE {
            return self.assembled();
        }
        while self.ahead.len() < LOOK_AHEAD
            && let Some(entry) = self.assembled()?
        {
            self.ahead.push(Reverse((entry.record.time, self.count as u64, self.count)));
            self.held.insert(self.count, entry);
            self.count += 1;
        }
        Ok(self.ahead.pop().and_then(|Reverse((_, _, at))| self.held.remove(&at)))
    }
}

/// Iterator of [`Spool::entries`].
pub struct Entries<'a> {
    streams: Vec<Stream<'a>>,
    next: BinaryHeap<Next>,
    until: u64,
}

/// The first entry of a stream, or the error of reading it. Ordered with the earliest first.
struct Next {
    time: u64,
    stream: usize,
    entry: io::Result<Entry>,
}

impl Ord for Next {
    fn cmp(&self, other: &Next) -> std::cmp::Ordering {
        (other.time, other.stream).cmp(&(self.time, self.stream))
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Next) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next {
    fn eq(&self, other: &Next) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Next {}

impl Entries<'_> {
    fn advance(&mut self, stream: usize) {
        if let Some(entry) = self.streams[stream].next().transpose() {
            let time = entry.as_ref().map_or(0, |entry| entry.record.time);
            self.next.push(Next { time, stream, entry });
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<io::Result<Entry>> {
        if self.next.peek()?.time > self.until {
            return None;
        }
        let next = self.next.pop()?;
        self.advance(next.stream);
        Some(next.entry)
    }
}

/// Writes a spool, for tests.
///
/// # Errors
/// Returns the error of writing.
pub fn write(
    out: &mut impl Write,
    header: &Header,
    chunks: &[(u32, Vec<Words>)],
) -> io::Result<()> {
    let mut bytes = header.bytes();
    for (writer, records) in chunks {
        let from = begin_chunk(&mut bytes, *writer);
        records.iter().for_each(|words| add(&mut bytes, *words));
        end_chunk(&mut bytes, from);
    }
    out.write_all(&bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::capture::record::name_words;
    use proptest::prelude::*;

    /// Creates an unlinked file.
    pub(crate) fn file(bytes: &[u8]) -> File {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kumi-spool-test-{}-{n}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn at(time: u64, kind: Kind) -> Words {
        Record::new(kind).words(time)
    }

    #[test]
    fn entries_are_ordered_by_time_with_their_names() {
        let header =
            Header { vps: 2, pid: 7, offset: 3, about: vec![("program".into(), "a=b\nc".into())] };
        let spawn: Vec<_> = [at(5, Kind::Spawn)].into_iter().chain(name_words(b"one")).collect();
        let chunks = [
            (0, vec![at(1, Kind::IdleBegin), at(4, Kind::IdleEnd)]),
            (CLOCK, vec![[10, 20, 0]]),
            (OUTSIDE, [&[at(6, Kind::Ready)][..], &spawn].concat()),
            (1, vec![at(2, Kind::IdleBegin)]),
            (0, vec![at(7, Kind::IdleBegin)]),
        ];
        let mut bytes = Vec::new();
        write(&mut bytes, &header, &chunks).unwrap();
        // The program died in the middle of a chunk.
        bytes.extend([0, 0, 0, 0, 9, 0, 0, 0, 1, 2, 3]);
        let spool = Spool::open(file(&bytes)).unwrap();
        assert_eq!((spool.header.vps, spool.header.pid, spool.header.offset), (2, 7, 3));
        assert_eq!(spool.header.about, [("program".to_owned(), "a b c".to_owned())]);
        let all: Vec<_> = spool.entries().map(Result::unwrap).collect();
        assert_eq!(all.iter().map(|e| e.record.time).collect::<Vec<_>>(), [1, 2, 4, 5, 6, 7]);
        assert_eq!(all.iter().filter_map(|e| e.name.as_deref()).collect::<Vec<_>>(), ["one"]);
    }

    #[test]
    fn incomplete_round_is_skipped() {
        let chunks = |ends: u64| {
            [
                (0, vec![at(1, Kind::IdleBegin)]),
                (1, vec![at(3, Kind::IdleBegin), at(6, Kind::IdleEnd)]),
                // The clock was read before the first buffer, which contained no record later than
                // 1 at that time.
                (CLOCK, vec![[ends, ends, 0]]),
                (0, vec![at(4, Kind::IdleEnd)]),
            ]
        };
        let times = |ends: u64, whole: bool| {
            let mut bytes = Vec::new();
            write(&mut bytes, &Header { vps: 2, ..Header::default() }, &chunks(ends)).unwrap();
            let spool = Spool::open(file(&bytes)).unwrap();
            let spool = if whole { spool.whole_rounds() } else { spool };
            spool.entries().map(|entry| entry.unwrap().record.time).collect::<Vec<_>>()
        };
        assert_eq!(times(3, true), [1, 3]);
        assert_eq!(times(9, true), [1, 3, 4, 6]);
        assert_eq!(times(3, false), [1, 3, 4, 6]);
        let empty = Spool::open(file(&Header::default().bytes())).unwrap().whole_rounds();
        assert_eq!(empty.entries().count(), 0);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(Spool::open(file(b"")).is_err());
        assert!(Spool::open(file(&[b'x'; 100])).is_err());
    }

    proptest! {
        /// For any content of the file, reading neither panics nor loops forever.
        #[test]
        fn any_content_ends_without_a_panic(bytes: Vec<u8>) {
            let mut all = Header::default().bytes();
            all.extend(bytes);
            let spool = Spool::open(file(&all)).unwrap();
            let _ = spool.entries().count();
        }
    }
}
