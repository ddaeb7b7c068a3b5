//! Reader of the files that [`crate::export`] writes.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use prost::Message;

use crate::format::names::{
    ARGUMENTS, CORES_GROUP, FIRST_SUM, MICROS_GROUP, NAMES, SUMMARY, Summary, THREADS_GROUP,
    VPS_GROUP,
};
use crate::format::perfetto::{STATE_CLEARED, TracePacket};

/// Size above which a packet cannot come from this crate.
const PACKET_MAX: u64 = 1 << 20;

/// The object of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Of {
    /// A run as a whole.
    Process,
    /// A heading of a group of tracks.
    Group,
    /// A virtual processor.
    Vp,
    /// A kernel thread.
    Thread,
    /// A microprocess.
    Micro,
    /// A core and its successive holders.
    Core,
}

/// A track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// Name of the track.
    pub name: Rc<str>,
    /// Kind of the track's object.
    pub of: Of,
    /// Track of the run that this track belongs to.
    pub run: u64,
}

/// An argument's value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Argument {
    Number(u64),
    Text(String),
}

/// An event on a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the start of the run.
    pub at: u64,
    /// The track that the event belongs to.
    pub track: u64,
    /// One of [`crate::format::perfetto::SLICE_BEGIN`], `SLICE_END`, `INSTANT`.
    pub kind: i32,
    /// Name of the event; empty at the end of a slice.
    pub name: Rc<str>,
    /// Arguments by name.
    pub arguments: Vec<(Rc<str>, Argument)>,
}

impl Event {
    /// Returns the argument `name` if it is a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.arguments.iter().find_map(|(key, value)| match value {
            Argument::Number(n) if &**key == name => Some(*n),
            _ => None,
        })
    }

    /// Returns the argument `name` if it is a text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.arguments.iter().find_map(|(key, value)| match value {
            Argument::Text(text) if &**key == name => Some(text.as_str()),
            _ => None,
        })
    }

    /// Returns the counts of a run if this is the event that ends it.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        (&*self.name == NAMES[SUMMARY]).then(|| {
            let sum = |i: usize| self.number(ARGUMENTS[FIRST_SUM + i]).unwrap_or_default();
            Summary::from_numbers(std::array::from_fn(sum))
        })
    }
}

/// Strings by their number, in one sequence.
#[derive(Debug, Default)]
struct Interned {
    names: HashMap<u64, Rc<str>>,
    arguments: HashMap<u64, Rc<str>>,
}

/// Returns a file's events, in the order of the file.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    at: u64,
    packet: Vec<u8>,
    interned: HashMap<u32, Interned>,
    /// All tracks described so far.
    pub tracks: HashMap<u64, Track>,
    /// IDs of the processes whose runs are described so far.
    pub pids: BTreeSet<u32>,
}

fn invalid(at: u64, why: impl std::fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("at byte {at}: {why}; the file is not a complete trace"),
    )
}

impl Reader<BufReader<File>> {
    /// Opens the trace in `path`.
    ///
    /// # Errors
    /// Returns the error of opening the file, with its name.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        Ok(Reader::new(BufReader::with_capacity(1 << 18, file)))
    }
}

impl<R: BufRead> Reader<R> {
    /// Creates a reader of any input.
    pub fn new(input: R) -> Self {
        Reader {
            input,
            at: 0,
            packet: Vec::new(),
            interned: HashMap::new(),
            tracks: HashMap::new(),
            pids: BTreeSet::new(),
        }
    }

    /// Reads the next packet into `self.packet`; returns false at the end.
    fn packet(&mut self) -> io::Result<bool> {
        if self.input.fill_buf()?.is_empty() {
            return Ok(false);
        }
        let begin = self.at;
        // A packet is field 1 of the file, with a length.
        if self.varint()? != 0x0a {
            return Err(invalid(begin, "expected a packet"));
        }
        let length = self.varint()?;
        if length > PACKET_MAX {
            return Err(invalid(begin, format_args!("a packet of {length} bytes")));
        }
        self.packet.clear();
        let got = (&mut self.input).take(length).read_to_end(&mut self.packet)? as u64;
        self.at += got;
        if got == length { Ok(true) } else { Err(invalid(begin, "the file ends inside a packet")) }
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.input.read_exact(&mut byte).map_err(|e| invalid(self.at, e))?;
            self.at += 1;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] < 0x80 {
                return Ok(value);
            }
        }
        Err(invalid(self.at, "unterminated number"))
    }

    /// Returns the next event; None at the end of the file.
    ///
    /// # Errors
    /// Returns the error of reading, and `InvalidData` if the file is not a trace or is incomplete.
    pub fn next_event(&mut self) -> io::Result<Option<Event>> {
        while self.packet()? {
            let packet = TracePacket::decode(&self.packet[..]).map_err(|e| invalid(self.at, e))?;
            let sequence = packet.trusted_packet_sequence_id.unwrap_or_default();
            let interned = self.interned.entry(sequence).or_default();
            if packet.sequence_flags.unwrap_or_default() & STATE_CLEARED != 0 {
                *interned = Interned::default();
            }
            for (table, more) in packet
                .interned_data
                .into_iter()
                .flat_map(|data| [(false, data.event_names), (true, data.debug_annotation_names)])
            {
                let table = if table { &mut interned.arguments } else { &mut interned.names };
                table.extend(more.into_iter().filter_map(|one| Some((one.iid?, one.name?.into()))));
            }
            if let Some(track) = packet.track_descriptor {
                self.add_track(track);
            }
            let Some(event) = packet.track_event else { continue };
            let interned = &self.interned[&sequence];
            let name = |table: &HashMap<u64, Rc<str>>, iid: Option<u64>, name: Option<String>| {
                name.map(Into::into).or_else(|| table.get(&iid?).cloned()).unwrap_or_default()
            };
            let arguments = event.debug_annotations.into_iter().filter_map(|one| {
                let text = one.string_value.map(Argument::Text);
                let value = text.or_else(|| one.uint_value.map(Argument::Number))?;
                Some((name(&interned.arguments, one.name_iid, one.name), value))
            });
            return Ok(Some(Event {
                at: packet.timestamp.unwrap_or_default(),
                track: event.track_uuid.unwrap_or_default(),
                kind: event.kind.unwrap_or_default(),
                arguments: arguments.collect(),
                name: name(&interned.names, event.name_iid, event.name),
            }));
        }
        Ok(None)
    }

    fn add_track(&mut self, track: crate::format::perfetto::TrackDescriptor) {
        let uuid = track.uuid.unwrap_or_default();
        let parent = track.parent_uuid.and_then(|parent| self.tracks.get(&parent));
        let (of, run) = match parent {
            None => (Of::Process, uuid),
            Some(parent) => match (parent.of, &*parent.name) {
                (Of::Group, VPS_GROUP) => (Of::Vp, parent.run),
                (Of::Group, THREADS_GROUP) => (Of::Thread, parent.run),
                (Of::Group, MICROS_GROUP) => (Of::Micro, parent.run),
                (Of::Group, CORES_GROUP) => (Of::Core, parent.run),
                _ => (Of::Group, parent.run),
            },
        };
        let pid = track.process.as_ref().and_then(|process| process.pid);
        self.pids.extend(pid.map(i32::cast_unsigned));
        let name = track
            .process
            .and_then(|process| process.process_name)
            .or(track.name)
            .unwrap_or_default()
            .into();
        self.tracks.insert(uuid, Track { name, of, run });
    }
}

/// Returns the counts of every run in `path`, in order. An incomplete run is an error.
///
/// # Errors
/// Returns the errors of [`Reader::next_event`].
pub fn summaries(path: &Path) -> io::Result<Vec<Summary>> {
    let mut reader = Reader::open(path)?;
    let mut all = Vec::new();
    while let Some(event) = reader.next_event()? {
        all.extend(event.summary());
    }
    let runs = reader.tracks.values().filter(|track| track.of == Of::Process).count();
    if all.len() == runs { Ok(all) } else { Err(invalid(reader.at, "the end of a run is missing")) }
}
