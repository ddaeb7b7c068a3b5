//! Traces with a known content, for tests and benchmarks of what reads traces.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};

use kumihimo_config::named_file;
use kumihimo_resource::id::{Id, Kind as ResourceKind, Location, Serial};

use crate::capture::record::{Cause, Kind, Record, Words, name_words};
use crate::export::convert;
use crate::format::names::Summary;
use crate::spool::{CLOCK, Header, OUTSIDE, Spool, write};

/// A name that tries to end a script, a string and a line of a page.
pub const HOSTILE: &str = "</script><b id=x>\u{2028}'\"&amp;<!--";

/// Records that a test writes in place of a runtime. A time is in nanoseconds since the start.
#[derive(Clone, Debug, Default)]
pub struct Script {
    header: Header,
    writers: BTreeMap<u32, Vec<Words>>,
    /// Number of records.
    pub records: usize,
}

/// Returns the ID of the microprocess with these numbers, as a record contains it.
#[must_use]
pub fn id(slot: u32, generation: u32) -> u64 {
    let serial = Serial::new(slot, generation);
    Id::new(Location::NOWHERE, ResourceKind::MICROPROCESS, serial).bits().get()
}

impl Script {
    /// Creates an empty trace of a program with `vps` VPs.
    #[must_use]
    pub fn new(program: &str, vps: u32) -> Script {
        let about = vec![("program".to_owned(), program.to_owned())];
        Script { header: Header { vps, pid: 1, offset: 0, about }, ..Script::default() }
    }

    /// Adds a record of `writer`, whose times must not decrease.
    pub fn add(&mut self, writer: u32, time: u64, record: Record) {
        self.records += 1;
        self.writers.entry(writer).or_default().push(record.words(time));
    }

    /// Adds the start of microprocess `id` with priority `level`, by VP `vp`, where it is runnable
    /// from then on.
    pub fn spawn(&mut self, vp: u32, time: u64, id: u64, level: u8, name: &str) {
        self.add(vp, time, Record { id, level, ..Record::new(Kind::Spawn) });
        self.writers.entry(vp).or_default().extend(name_words(name.as_bytes()));
        self.ready(vp, time, id, level, Cause::Spawned);
    }

    /// Adds that `id` is runnable on VP `vp`, which writes the record itself.
    pub fn ready(&mut self, vp: u32, time: u64, id: u64, level: u8, cause: Cause) {
        let record = Record { id, level, cause: cause as u8, arg: vp, ..Record::new(Kind::Ready) };
        self.add(vp, time, record);
    }

    /// Adds that VP `vp` leaves what it runs, because of `cause`, for microprocess `id`; 0: for
    /// none. `wait` is an index into [`WAITS`](crate::record::WAITS).
    pub fn switch(&mut self, vp: u32, time: u64, id: u64, level: u8, (cause, wait): (Cause, u8)) {
        let record = Record { id, level, cause: cause as u8, wait, ..Record::new(Kind::Switch) };
        self.add(vp, time, record);
    }

    /// Adds that the microprocess on VP `vp` is about to wait for the lock at `lock`, held by
    /// `holder`.
    pub fn waits_for(&mut self, vp: u32, time: u64, wait: u8, lock: u64, holder: u64) {
        self.add(vp, time, Record { id: lock, wait, ..Record::new(Kind::WaitsFor) });
        self.add(vp, time, Record { id: holder, ..Record::new(Kind::HeldBy) });
    }

    /// Writes a trace with these records.
    ///
    /// # Errors
    /// As writing to `out`, or to a temporary file.
    pub fn write(&self, out: impl Write) -> io::Result<Summary> {
        self.write_at(0, out)
    }

    /// As [`write`](Script::write), for a further run in a file, which begins at byte `offset`.
    ///
    /// # Errors
    /// As [`write`](Script::write).
    pub fn write_at(&self, offset: u64, out: impl Write) -> io::Result<Summary> {
        let start = std::env::temp_dir().join(format!("kumi-script-{}", std::process::id()));
        let (mut file, path) = named_file::create_beside(&start, ".spool")?;
        std::fs::remove_file(path)?;
        self.put(offset, &mut file)?;
        convert(&Spool::open(file)?, out, 0)
    }

    /// Writes the spool that a program with these records leaves behind when it is killed.
    ///
    /// # Errors
    /// As writing to `file`.
    pub fn write_spool(&self, file: &mut File) -> io::Result<()> {
        self.put(0, file)
    }

    fn put(&self, offset: u64, file: &mut File) -> io::Result<()> {
        let last = self.writers.values().flatten().map(|words| words[0]).max().unwrap_or(0);
        let mut chunks: Vec<_> = self.writers.clone().into_iter().collect();
        // One reading at the end of the only round: a tick is a nanosecond.
        chunks.push((CLOCK, vec![[last, last, 0]]));
        write(file, &Header { offset, ..self.header.clone() }, &chunks)
    }

    /// Returns a trace of 40 ms with one of everything, of a program with hostile names.
    ///
    /// - Microprocess 1, `alpha`, has level 32 and runs on VP 0 from 2 to 5 ms, and from 26 to 30
    ///   ms. From 5 to 25 ms it waits for the mutex at 0x7f0000001000, which 2 holds.
    /// - Microprocess 2, [`HOSTILE`], has level 32, runs on VP 0 from 5 to 26 ms, and sleeps from
    ///   then on.
    /// - Microprocess 3, `low`, has level 10, and runs on VP 1 from 15 to 40 ms, although it is
    ///   runnable from 1 ms on: a stall. In eight steps, from 16 to 23 ms, level 40 waits there.
    ///
    /// VP 0 is idle from 30 to 40 ms. VP 1 is overridden at 35 ms.
    #[must_use]
    pub fn known() -> Script {
        const MS: u64 = 1_000_000;
        let mut script = Script::new("<b>server</b>", 2);
        let [alpha, hostile, low] = [1, 2, 3].map(|slot| id(slot, 1));
        script.spawn(0, MS, alpha, 32, "alpha");
        script.spawn(0, MS + MS / 10, hostile, 32, HOSTILE);
        script.switch(0, 2 * MS, alpha, 32, (Cause::None, 0));
        script.waits_for(0, 5 * MS, 4, 0x7f00_0000_1000, hostile);
        script.switch(0, 5 * MS, hostile, 32, (Cause::Parked, 4));
        script.ready(0, 25 * MS, alpha, 32, Cause::Woken);
        script.switch(0, 26 * MS, alpha, 32, (Cause::Parked, 2));
        script.switch(0, 30 * MS, 0, 0, (Cause::Ended, 0));
        script.add(0, 30 * MS, Record::new(Kind::IdleBegin));
        script.add(0, 40 * MS, Record::new(Kind::IdleEnd));
        script.spawn(1, MS, low, 10, "low");
        script.switch(1, 15 * MS, low, 10, (Cause::None, 0));
        for step in 16..24 {
            script.add(1, step * MS, Record::new(Kind::Settles));
            let settled = Record { id: low, level: 10, wait: 41, ..Record::new(Kind::Settled) };
            script.add(1, step * MS, settled);
        }
        script.add(OUTSIDE, 35 * MS, Record { arg: 1, ..Record::new(Kind::Overridden) });
        script.switch(1, 40 * MS, 0, 0, (Cause::Ended, 0));
        script
    }

    /// Returns a trace with about `records` records of a busy server: 4 VPs, 2,000 microprocesses
    /// of one level, short and long turns, idle times, waits for 50 locks and others. The same
    /// on every call.
    #[must_use]
    pub fn busy(records: usize) -> Script {
        const VPS: u32 = 4;
        const MICROS: u32 = 2000;
        // Where levels differ, a runtime would record steps, too.
        const LEVEL: u8 = 32;
        let mut script = Script::new("busy", VPS);
        let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
        let mut now = [1000u64; VPS as usize];
        for slot in 1..=MICROS {
            let vp = slot % VPS;
            now[vp as usize] += 300;
            let name = format!("worker-{slot}");
            script.spawn(vp, now[vp as usize], id(slot, 1), LEVEL, &name);
        }
        // What each VP runs. A microprocess belongs to one VP, so none runs twice.
        let mut runs = [0u32; VPS as usize];
        while script.records < records {
            let vp = random.below(VPS.into()) as u32;
            let at = &mut now[vp as usize];
            let current = runs[vp as usize];
            let next = (random.below(u64::from(MICROS / VPS)) as u32) * VPS
                + if vp == 0 { VPS } else { vp };
            if next == current {
                continue;
            }
            let (next_id, next_level) = (id(next, 1), LEVEL);
            *at += 200 + random.below(2000);
            script.ready(vp, *at, next_id, next_level, Cause::Woken);
            let longest = if random.below(4) == 0 { 200_000 } else { 4000 };
            *at += 500 + random.below(longest);
            let left = match random.below(10) {
                _ if current == 0 => (Cause::None, 0),
                0..=2 => {
                    let lock = 0x7f00_0000_1000 + random.below(50) * 64;
                    script.waits_for(vp, *at, 4, lock, id(1 + lock as u32 / 64 % MICROS, 1));
                    (Cause::Parked, 4)
                }
                3 => (Cause::Parked, 2),
                4..=7 => (Cause::Parked, 13),
                _ => (Cause::Parked, 10),
            };
            if random.below(20) == 0 {
                script.switch(vp, *at, 0, 0, left);
                script.add(vp, *at, Record::new(Kind::IdleBegin));
                *at += random.below(300_000);
                script.add(vp, *at, Record::new(Kind::IdleEnd));
                script.switch(vp, *at, next_id, next_level, (Cause::None, 0));
            } else {
                script.switch(vp, *at, next_id, next_level, left);
            }
            runs[vp as usize] = next;
        }
        script
    }
}

/// A generator of numbers that look random.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Checker, FindingKind, Verdict};
    use crate::read::Reader;

    #[test]
    fn known_trace_has_its_faults_and_no_others() {
        let mut out = Vec::new();
        Script::known().write(&mut out).unwrap();
        let (mut reader, mut checker) = (Reader::new(&out[..]), Checker::new(None));
        while let Some(event) = reader.next_event().unwrap() {
            checker.take(&event, &reader.tracks).unwrap();
        }
        let report = checker.report();
        assert_eq!((report.verdict(), report.beyond), (Verdict::Violated, 1), "{report}");
        let found: Vec<_> =
            report.findings.iter().map(|one| (one.kind, one.from, one.to)).collect();
        let ms = |n: u64| n * 1_000_000;
        assert_eq!(
            found,
            [(FindingKind::Inversion, ms(16), ms(23)), (FindingKind::Stall, ms(35), ms(35)),]
        );
        assert!(report.findings[0].text.starts_with("8 step(s) of VP 1: "), "{report}");
        assert_eq!(reader.tracks[&report.findings[1].track].name.as_ref(), "VP 1");
    }

    #[test]
    fn busy_trace_contradicts_itself_nowhere() {
        let script = Script::busy(30_000);
        let mut out = Vec::new();
        let summary = script.write(&mut out).unwrap();
        assert_eq!((summary.lost, summary.spawned, summary.vps), (0, 2000, 4));
        assert!(summary.records >= 30_000);
        let (mut reader, mut checker) = (Reader::new(&out[..]), Checker::new(None));
        while let Some(event) = reader.next_event().unwrap() {
            checker.take(&event, &reader.tracks).unwrap();
        }
        let report = checker.report();
        assert_eq!(report.overlaps, [""; 0], "{report}");
        assert_eq!(report.verdict(), Verdict::Holds);
    }
}
