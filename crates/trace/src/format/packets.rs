//! Writer of the packets of one run.

use std::io::{self, Write};

use prost::Message;
use prost::encoding::message;

use crate::format::names::{ARGUMENTS, NAMES, Name};
use crate::format::perfetto::{
    BY_RANK, DebugAnnotation, Interned, InternedData, NEEDS_STATE, ProcessDescriptor,
    STATE_CLEARED, TracePacket, TrackDescriptor, TrackEvent,
};

/// Number of bytes that are collected before they are written.
const BATCH: usize = 1 << 20;

/// The value of an argument.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Number(u64),
    Text(String),
}

impl From<u64> for Value {
    fn from(n: u64) -> Value {
        Value::Number(n)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

/// The name of an event on a track: a number in the table, or a text.
pub(crate) enum NameRef<'a> {
    Nothing,
    By(Name),
    Text(&'a str),
}

/// Writes the packets of one sequence. Times never decrease.
pub(crate) struct Packets<W> {
    out: W,
    buffer: Vec<u8>,
    sequence: u32,
    next_track: u64,
    pub(crate) now: u64,
}

impl<W: Write> Packets<W> {
    /// Creates a writer. `offset` is the position in the file at which the run starts. Numbers of
    /// tracks and sequences start at `offset`. Every track takes more than one byte, so no two runs
    /// in a file share a number, and the numbers are short.
    pub(crate) fn new(out: W, offset: u64) -> Packets<W> {
        let mut packets = Packets {
            out,
            buffer: Vec::new(),
            sequence: (offset >> 4) as u32 + 1,
            next_track: offset,
            now: 0,
        };
        let table = |names: &[&str]| -> Vec<Interned> {
            let named = |(i, name): (usize, &&str)| Interned {
                iid: Some(i as u64 + 1),
                name: Some((*name).into()),
            };
            names.iter().enumerate().map(named).collect()
        };
        packets.add(TracePacket {
            sequence_flags: Some(STATE_CLEARED | NEEDS_STATE),
            interned_data: Some(InternedData {
                event_names: table(&NAMES),
                debug_annotation_names: table(&ARGUMENTS),
            }),
            ..TracePacket::default()
        });
        packets
    }

    fn add(&mut self, packet: TracePacket) {
        let packet = TracePacket { trusted_packet_sequence_id: Some(self.sequence), ..packet };
        message::encode(1, &packet, &mut self.buffer);
        debug_assert!(packet.encoded_len() < BATCH);
    }

    /// Creates a track below `parent`, at place `rank` among its siblings.
    pub(crate) fn track(&mut self, name: &str, parent: Option<u64>, rank: i32) -> u64 {
        self.next_track += 1;
        let uuid = self.next_track;
        self.describe(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.to_owned()),
            parent_uuid: parent,
            child_ordering: Some(BY_RANK),
            sibling_order_rank: Some(rank),
            ..TrackDescriptor::default()
        });
        uuid
    }

    /// Creates the track of the process itself.
    pub(crate) fn process(&mut self, pid: u32, name: &str) -> u64 {
        self.next_track += 1;
        let uuid = self.next_track;
        let process =
            ProcessDescriptor { pid: Some(pid.cast_signed()), process_name: Some(name.to_owned()) };
        self.describe(TrackDescriptor {
            uuid: Some(uuid),
            process: Some(process),
            child_ordering: Some(BY_RANK),
            ..TrackDescriptor::default()
        });
        uuid
    }

    fn describe(&mut self, track: TrackDescriptor) {
        self.add(TracePacket { track_descriptor: Some(track), ..TracePacket::default() });
    }

    /// Writes the start or end of a slice, or an instant, with the current time.
    pub(crate) fn event(
        &mut self,
        track: u64,
        kind: i32,
        called: NameRef<'_>,
        arguments: &[(Name, Value)],
    ) {
        let (name_iid, name) = match called {
            NameRef::Nothing => (None, None),
            NameRef::By(name) => (Some(name as u64 + 1), None),
            NameRef::Text(text) => (None, Some(text.to_owned())),
        };
        let argument = |(name, value): &(Name, Value)| {
            let (uint_value, string_value) = match value {
                Value::Number(n) => (Some(*n), None),
                Value::Text(text) => (None, Some(text.clone())),
            };
            DebugAnnotation {
                name_iid: Some(*name as u64 + 1),
                uint_value,
                string_value,
                name: None,
            }
        };
        let event = TrackEvent {
            kind: Some(kind),
            name_iid,
            name,
            track_uuid: Some(track),
            debug_annotations: arguments.iter().map(argument).collect(),
        };
        self.add(TracePacket {
            timestamp: Some(self.now),
            sequence_flags: Some(NEEDS_STATE),
            track_event: Some(event),
            ..TracePacket::default()
        });
    }

    /// Writes the collected bytes if there are enough.
    pub(crate) fn pass_on(&mut self) -> io::Result<()> {
        if self.buffer.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    /// Writes the collected bytes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        self.out.flush()
    }
}
