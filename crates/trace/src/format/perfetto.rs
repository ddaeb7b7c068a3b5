//! The messages of Perfetto's trace format that this crate uses, with names and numbers as in
//! `protos/perfetto/trace`.

use crate::format::messages::messages;

messages! {
    /// The file, a sequence of packets.
    Trace {
        ; packet: TracePacket = 1,
    }
    /// One packet of the file.
    TracePacket {
        timestamp: u64 as uint64 = 8,
        trusted_packet_sequence_id: u32 as uint32 = 10,
        track_event: TrackEvent as message = 11,
        interned_data: InternedData as message = 12,
        sequence_flags: u32 as uint32 = 13,
        track_descriptor: TrackDescriptor as message = 60,
    }
    /// The start or end of a slice, or an instant.
    TrackEvent {
        kind: i32 as int32 = 9,
        name_iid: u64 as uint64 = 10,
        track_uuid: u64 as uint64 = 11,
        name: String as string = 23,
        ; debug_annotations: DebugAnnotation = 4,
    }
    /// An argument.
    DebugAnnotation {
        name_iid: u64 as uint64 = 1,
        uint_value: u64 as uint64 = 3,
        string_value: String as string = 6,
        name: String as string = 10,
    }
    /// A track.
    TrackDescriptor {
        uuid: u64 as uint64 = 1,
        name: String as string = 2,
        process: ProcessDescriptor as message = 3,
        parent_uuid: u64 as uint64 = 5,
        child_ordering: i32 as int32 = 11,
        sibling_order_rank: i32 as int32 = 12,
    }
    /// The process that a track represents.
    ProcessDescriptor {
        pid: i32 as int32 = 1,
        process_name: String as string = 6,
    }
    /// Strings with their numbers.
    InternedData {
        ; event_names: Interned = 2,
        ; debug_annotation_names: Interned = 3,
    }
    /// One string with its number.
    Interned {
        iid: u64 as uint64 = 1,
        name: String as string = 2,
    }
}

/// Values of [`TrackEvent::kind`].
pub const SLICE_BEGIN: i32 = 1;
/// See [`SLICE_BEGIN`].
pub const SLICE_END: i32 = 2;
/// See [`SLICE_BEGIN`].
pub const INSTANT: i32 = 3;

/// Bit of [`TracePacket::sequence_flags`]: the numbers of strings start anew.
pub const STATE_CLEARED: u32 = 1;
/// Bit of [`TracePacket::sequence_flags`]: the packet depends on earlier ones.
pub const NEEDS_STATE: u32 = 2;

/// Value of [`TrackDescriptor::child_ordering`]: by rank.
pub const BY_RANK: i32 = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    #[test]
    fn encoding_matches_the_format() {
        let event =
            TrackEvent { kind: Some(INSTANT), name: Some("x".into()), ..TrackEvent::default() };
        let packet =
            TracePacket { timestamp: Some(5), track_event: Some(event), ..TracePacket::default() };
        let trace = Trace { packet: vec![packet] };
        // 1: packet { 8: 5, 11: event { 9: 3, 23: "x" } }
        let bytes = [0x0a, 10, 0x40, 5, 0x5a, 6, 0x48, 3, 0xba, 1, 1, b'x'];
        assert_eq!(trace.encode_to_vec(), bytes);
        assert_eq!(Trace::decode(&bytes[..]).unwrap(), trace);
        // Unknown fields are skipped: field 99, a string.
        assert_eq!(Trace::decode(&[0x9a, 6, 1, b'y'][..]).unwrap(), Trace::default());
    }

    proptest! {
        #[test]
        fn packet_survives_a_round_trip(timestamp: u64, kind in 1i32..4, name: String, value: u64, n in 0usize..4) {
            let note = DebugAnnotation { name: Some(name.clone()), uint_value: Some(value), ..Default::default() };
            let event = TrackEvent { kind: Some(kind), debug_annotations: vec![note; n], ..Default::default() };
            let packet = TracePacket { timestamp: Some(timestamp), track_event: Some(event), ..Default::default() };
            prop_assert_eq!(TracePacket::decode(&packet.encode_to_vec()[..]).unwrap(), packet);
        }

        #[test]
        fn garbage_does_not_panic(bytes: Vec<u8>) {
            let _ = Trace::decode(&bytes[..]);
        }
    }
}
