//! Tests of the whole path: from records to a file, and back to a verdict.

mod priorities;
mod random;
mod states;

use std::collections::HashMap;

use kumihimo_resource::id::{self as resource, Id, Location, Serial};
use proptest::prelude::*;

use crate::capture::record::{
    ASKED, Cause, GIVEN, Kind, NO_LEVEL, Record, WAIT_RESUME, Words, name_words,
};
use crate::check::priority_order::{BOUND, Fault, Inversion};
use crate::check::{Checker, Report, Verdict};
use crate::export::convert;
use crate::format::names::Summary;
use crate::format::perfetto::{INSTANT, SLICE_BEGIN, SLICE_END};
use crate::read::{Event, Of, Reader};
use crate::spool::{CLOCK, Header, OUTSIDE, Spool, tests::file, write};

/// Records with their times; each is one unit later than the previous one.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) time: u64,
    writers: HashMap<u32, Vec<Words>>,
}

/// Returns the ID of the first microprocess in slot `id`, or of the second one with bit 32.
fn real(id: u64) -> u64 {
    match id {
        0 => 0,
        _ => Id::new(
            Location::NOWHERE,
            resource::Kind::MICROPROCESS,
            Serial::new(id as u32, 1 + (id >> 32) as u32),
        )
        .bits()
        .get(),
    }
}

impl Script {
    pub(crate) fn add(&mut self, writer: u32, record: Record) -> &mut Self {
        self.time += 1_000;
        let id = match record.kind {
            // These IDs are not microprocesses: a number of lost records, or a slot.
            Kind::Lost | Kind::Asked | Kind::Leaves | Kind::Slot => record.id,
            _ => real(record.id),
        };
        let record = Record { id, ..record };
        self.writers.entry(writer).or_default().push(record.words(self.time));
        self
    }

    /// Keeps only the first `records` of each writer.
    pub(crate) fn cut(&mut self, records: usize) {
        self.writers.values_mut().for_each(|words| words.truncate(records));
    }

    fn spawn(&mut self, vp: u32, id: u64, level: u8, name: &str) -> &mut Self {
        self.add(vp, Record { id, level, ..Record::new(Kind::Spawn) });
        self.writers.entry(vp).or_default().extend(name_words(name.as_bytes()));
        self.ready(vp, id, level)
    }

    fn ready(&mut self, vp: u32, id: u64, level: u8) -> &mut Self {
        self.add(
            vp,
            Record { id, level, cause: Cause::Woken as u8, arg: vp, ..Record::new(Kind::Ready) },
        )
    }

    fn switch(&mut self, vp: u32, id: u64, level: u8, cause: Cause) -> &mut Self {
        self.add(vp, Record { id, level, cause: cause as u8, wait: 4, ..Record::new(Kind::Switch) })
    }

    /// Adds a whole step of `vp`: it runs `id` at a level, if anything, and a level waits there.
    fn step(
        &mut self,
        vp: u32,
        runs: Option<(u64, u8)>,
        waits: Option<u8>,
        flags: u8,
    ) -> &mut Self {
        self.add(vp, Record::new(Kind::Settles));
        let (id, level) = runs.unwrap_or((0, NO_LEVEL));
        let wait = waits.map_or(0, |level| level + 1);
        self.add(vp, Record { id, level, wait, cause: flags, ..Record::new(Kind::Settled) })
    }

    fn sent(&mut self, vp: u32, id: u64, level: u8) -> &mut Self {
        self.add(OUTSIDE, Record { id, level, arg: vp, ..Record::new(Kind::Sent) })
    }

    fn put(&mut self, vp: u32, id: u64) -> &mut Self {
        self.add(OUTSIDE, Record { id, arg: vp, ..Record::new(Kind::Put) })
    }

    fn trace(&self, vps: u32) -> (Vec<u8>, Summary) {
        self.trace_of(vps, 5, &[("program", "test")])
    }

    pub(crate) fn trace_of(
        &self,
        vps: u32,
        pid: u32,
        about: &[(&str, &str)],
    ) -> (Vec<u8>, Summary) {
        let mut chunks: Vec<_> =
            self.writers.iter().map(|(writer, records)| (*writer, records.clone())).collect();
        chunks.push((CLOCK, vec![[0, 0, 0], [1_000_000, 1_000_000, 0]]));
        let about = about.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let header = Header { vps, pid, offset: 0, about };
        let mut bytes = Vec::new();
        write(&mut bytes, &header, &chunks).unwrap();
        let mut out = Vec::new();
        let summary = convert(&Spool::open(file(&bytes)).unwrap(), &mut out, 0).unwrap();
        (out, summary)
    }

    fn report(&self, vps: u32) -> Report {
        report(&self.trace(vps).0, None)
    }
}

fn report(trace: &[u8], bound: Option<u64>) -> Report {
    let mut checker = Checker::new(bound);
    let mut reader = Reader::new(trace);
    while let Some(event) = reader.next_event().unwrap() {
        checker.take(&event, &reader.tracks).unwrap();
    }
    checker.report()
}

pub(crate) fn events(trace: &[u8]) -> Vec<(Event, String, Of)> {
    let mut reader = Reader::new(trace);
    let mut all = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        let track = &reader.tracks[&event.track];
        all.push((event.clone(), track.name.to_string(), track.of));
    }
    all
}

fn steps(inversion: &Option<Inversion>) -> u64 {
    inversion.as_ref().map_or(0, |inversion| inversion.steps)
}

/// A low microprocess runs on VP 1 while a high one waits on VP 0.
fn inverted() -> Script {
    let mut script = Script::default();
    script.spawn(1, 1, 3, "low").switch(1, 1, 3, Cause::None).step(1, Some((1, 3)), None, 0);
    script.spawn(0, 2, 9, "other").switch(0, 2, 9, Cause::None).spawn(0, 3, 9, "high");
    script
}
