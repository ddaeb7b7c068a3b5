//! Inputs that once violated a requirement of their target.

use std::collections::HashMap;

use kumihimo_fuzzed::target;
use kumihimo_trace::check::Checker;
use kumihimo_trace::read::{Event, Of, Track};
use kumihimo_trace::spool::{CLOCK, Header, write};

/// Processes a spool with these chunks as the target does.
fn spool(header: &Header, chunks: &[(u32, Vec<[u64; 3]>)]) {
    let mut input = vec![0];
    write(&mut input, header, chunks).expect("memory takes the bytes");
    (target("spool").run)(&input);
}

/// Kinds of records: see `kumihimo_trace::record::Kind`.
const SPAWN: u64 = 3;
const NAME: u64 = 4;
const IDLE: u64 = 6;
const LOST: u64 = 14;

#[test]
fn spool_beyond_the_end_of_any_file_is_refused() {
    spool(&Header { offset: u64::MAX, ..Header::default() }, &[(0, vec![[1, 1, IDLE]])]);
}

#[test]
fn clock_readings_far_apart_are_scaled() {
    let clock = |ticks, ns| (CLOCK, vec![[ticks, ns, 0]]);
    let record = (0, vec![[u64::MAX, 1, IDLE]]);
    let header = Header { vps: 1, ..Header::default() };
    spool(&header, &[clock(0, 0), record, clock(1, u64::MAX)]);
}

#[test]
fn sum_of_lost_records_is_limited() {
    let lost = |writer| (writer, vec![[1, u64::MAX, LOST]]);
    spool(&Header { vps: 2, ..Header::default() }, &[lost(0), lost(1)]);
}

/// Each writer once read the list of all chunks: 20,000 writers took 400 million steps.
#[test]
fn each_chunk_is_read_by_its_writer_alone() {
    let chunks: Vec<_> = (0..20_000).map(|writer| (writer, vec![[1, 1, IDLE]])).collect();
    spool(&Header { vps: 2, ..Header::default() }, &chunks);
}

/// Every later event names its microprocess: one name of 48 KB made 100 MB of 96 KB.
#[test]
fn long_name_in_a_spool_is_cut() {
    let mut records = vec![[1, 256, SPAWN]];
    let letters = u64::from_le_bytes([b'U'; 8]);
    records.extend((0..2_000).map(|_| [letters, letters, (letters << 8) | NAME]));
    records.extend((0..2_000).map(|n| [n, 256, 10]));
    spool(&Header { vps: 1, ..Header::default() }, &[(0, records)]);
}

/// The checker once had a table of the square of the VPs: 5,000 tracks took 200 MB.
#[test]
fn run_with_more_vps_than_a_runtime_has_is_refused() {
    let track = |of| Track { name: "VP".into(), of, run: 1 };
    let event = Event { at: 0, track: 1, kind: 3, name: "x".into(), arguments: Vec::new() };
    for (vps, fits) in [(1024, true), (1025, false)] {
        let of_vps = (2..2 + vps).map(|uuid| (uuid, track(Of::Vp)));
        let tracks: HashMap<u64, Track> = of_vps.chain([(1, track(Of::Process))]).collect();
        let taken = Checker::new(None).take(&event, &tracks);
        assert_eq!(taken.is_ok(), fits, "{taken:?}");
    }
}

/// A read of 4 GiB once took as much memory for its reply.
#[test]
fn reply_to_a_read_is_limited() {
    // Settings; opcode 15 (read) of node 1, with its arguments: file, offset, size, and zeros.
    (target("fuse").run)(&fuse_read(u32::MAX));
}

/// The input of the target for a read of the root.
fn fuse_read(size: u32) -> Vec<u8> {
    let arguments = [&[0; 16][..], &size.to_le_bytes(), &[0; 20]].concat();
    let length = u32::try_from(40 + arguments.len()).expect("short");
    let mut header = vec![0; 40];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4] = 15;
    header[8] = 7;
    header[16] = 1;
    // The target sends the input itself, too, behind the byte with the settings.
    [&[0][..], &header, &arguments].concat()
}
