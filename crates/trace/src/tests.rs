//! From records to a file, and back to a verdict.

use std::collections::HashMap;

use kumihimo_resource::id::{self as resource, Id, Location, Serial};
use proptest::prelude::*;

use crate::check::{Checker, Report, Verdict};
use crate::exact::{BOUND, Fault, Inversion};
use crate::export::convert;
use crate::perfetto::{INSTANT, SLICE_BEGIN, SLICE_END};
use crate::read::{Event, Of, Reader};
use crate::record::{ASKED, Cause, GIVEN, Kind, NO_LEVEL, Record, WAIT_RESUME, Words, name_words};
use crate::spool::{CLOCK, Header, OUTSIDE, Spool, tests::file, write};
use crate::words::Summary;

/// Records with the time at which they are written: one more than the one before.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) time: u64,
    writers: HashMap<u32, Vec<Words>>,
}

/// The id of the first life in slot `id`; of the second one with bit 32.
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
            // The number of those that were lost; a slot.
            Kind::Lost | Kind::Asked | Kind::Leaves | Kind::Slot => record.id,
            _ => real(record.id),
        };
        let record = Record { id, ..record };
        self.writers.entry(writer).or_default().push(record.words(self.time));
        self
    }

    /// Only so many records of each writer are there.
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

    /// A whole step of `vp`: it runs `id` at a level, if anything, and something waits there.
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

#[test]
fn a_life_is_drawn() {
    let mut script = Script::default();
    let told = |kind, arg| Record { arg, ..Record::new(kind) };
    script
        .add(0, Record { cause: Cause::Woken as u8, ..told(Kind::Carried, 77) })
        .spawn(0, 1, 32, "one")
        .switch(0, 1, 32, Cause::None)
        .switch(0, 0, 0, Cause::Parked)
        .add(0, Record::new(Kind::IdleBegin))
        .add(0, Record::new(Kind::IdleEnd))
        .ready(OUTSIDE, 1, 32)
        .switch(0, 1, 32, Cause::None)
        .add(0, Record { wait: 16, ..Record::new(Kind::Blocked) })
        .add(0, told(Kind::Carried, 78))
        .add(OUTSIDE, Record { id: 1, ..told(Kind::Unblocked, 77) })
        .ready(OUTSIDE, 1, 32)
        .add(0, told(Kind::Carried, 77))
        .add(0, Record { id: 1, level: 32, ..Record::new(Kind::Runs) })
        .add(0, told(Kind::Told, 3))
        .switch(0, 0, 0, Cause::Ended);
    let (trace, summary) = script.trace(1);
    let all = events(&trace);
    let on = |of: Of| -> Vec<String> {
        let here = all.iter().filter(|(event, _, is)| *is == of && event.kind != SLICE_END);
        here.map(|(event, _, _)| event.name.to_string()).collect()
    };
    let life = "Spawned Ready Running Parked Ready Running Blocked Unblocked Ready Running Ended";
    assert_eq!(on(Of::Micro).join(" "), life);
    let vp = [
        "Resumed",
        "one #0.microprocess.1.1",
        "Idle",
        "one #0.microprocess.1.1",
        "Blocked",
        "one #0.microprocess.1.1",
        "Preempted",
        "Changed",
    ];
    assert_eq!(on(Of::Vp), vp);
    let threads = ["Carries a VP", "Blocked", "Carries a VP", "Waits for a VP", "Carries a VP"];
    assert_eq!(on(Of::Thread), threads);
    let parked = all
        .iter()
        .find(|(event, ..)| &*event.name == "Parked")
        .map(|(event, ..)| event.text("for"));
    assert_eq!(parked, Some(Some("mutex")));
    assert_eq!((summary.spawned, summary.ended, summary.blocked, summary.unblocked), (1, 1, 1, 1));
    let said = all.iter().filter_map(|(event, ..)| event.summary()).collect::<Vec<_>>();
    assert_eq!(said, [summary]);
    assert_eq!(script.report(1).verdict(), Verdict::Holds);
}

/// Every slice that begins ends, on its track, and nothing else does.
#[test]
fn one_that_is_left_over_is_closed() {
    let mut script = Script::default();
    script.spawn(0, 1, 1, "").switch(0, 1, 1, Cause::None).spawn(0, 2, 1, "two");
    let all = events(&script.trace(1).0);
    let count = |kind| all.iter().filter(|(event, ..)| event.kind == kind).count();
    assert_eq!(count(SLICE_BEGIN), count(SLICE_END));
    assert!(all.iter().any(|(event, ..)| event.kind == INSTANT));
}

#[test]
fn one_that_runs_before_it_is_resumed_is_found() {
    let held = |script: &mut Script, id| {
        script.add(0, Record { id, wait: WAIT_RESUME, ..Record::new(Kind::Held) });
    };
    let mut script = Script::default();
    script.spawn(0, 1, 9, "held");
    held(&mut script, 1);
    script.ready(OUTSIDE, 1, 9).switch(0, 1, 9, Cause::None);
    script.add(
        0,
        Record { cause: Cause::Parked as u8, wait: WAIT_RESUME, ..Record::new(Kind::Switch) },
    );
    script.ready(OUTSIDE, 1, 9).switch(0, 1, 9, Cause::None);
    assert_eq!(script.report(1).verdict(), Verdict::Holds);
    script.add(
        0,
        Record { cause: Cause::Parked as u8, wait: WAIT_RESUME, ..Record::new(Kind::Switch) },
    );
    script.switch(0, 1, 9, Cause::None);
    let report = script.report(1);
    assert_eq!(report.verdict(), Verdict::Violated);
    assert!(
        report
            .to_string()
            .contains("held #0.microprocess.1.1: runs although nobody has resumed it"),
        "{report}"
    );
}

#[test]
fn one_on_two_vps_is_found() {
    let mut script = Script::default();
    script.spawn(0, 1, 9, "double").switch(0, 1, 9, Cause::None).switch(1, 1, 9, Cause::None);
    let report = script.report(2);
    assert_eq!((report.overlap_count, report.verdict()), (1, Verdict::Violated));
    let text = report.to_string();
    assert!(text.contains("double #0.microprocess.1.1: Running begins inside Running"), "{text}");
    // One that runs and is queued.
    let mut script = Script::default();
    script.spawn(0, 1, 9, "x").switch(0, 1, 9, Cause::None).ready(1, 1, 9);
    assert_eq!(script.report(2).verdict(), Verdict::Violated);
}

fn steps(inversion: &Option<Inversion>) -> u64 {
    inversion.as_ref().map_or(0, |inversion| inversion.steps)
}

/// A low one on VP 1, and a high one that waits on VP 0.
fn inverted() -> Script {
    let mut script = Script::default();
    script.spawn(1, 1, 3, "low").switch(1, 1, 3, Cause::None).step(1, Some((1, 3)), None, 0);
    script.spawn(0, 2, 9, "other").switch(0, 2, 9, Cause::None).spawn(0, 3, 9, "high");
    script
}

#[test]
fn what_a_vp_was_asked_for_and_keeps_is_counted_in_its_steps() {
    let mut script = inverted();
    for _ in 0..=BOUND {
        script.step(0, Some((2, 9)), Some(9), ASKED);
    }
    let report = script.report(2);
    let kept = report.kept.clone().unwrap();
    assert_eq!(
        (kept.fault, kept.steps, &*kept.vp, kept.level),
        (Fault::Kept, BOUND + 1, "VP 0", 9)
    );
    assert_eq!(kept.behind, ("low #0.microprocess.1.1".to_owned(), "VP 1".to_owned(), 3));
    assert_eq!((report.bound, report.beyond, report.verdict()), (BOUND, 1, Verdict::Violated));
    assert_eq!((report.steps, report.inverted, report.missed), (BOUND + 2, BOUND + 1, None));
    // The low one begins at 1 us, and each record is written 1 us after the one before: the first
    // of these steps ends at 12.
    assert_eq!((kept.from, kept.to), (12_000, 12_000 + BOUND * 2_000));
    // With a bound of its own it holds.
    let trace = script.trace(2).0;
    let verdict = |bound| super::tests::report(&trace, Some(bound)).verdict();
    assert_eq!((verdict(BOUND), verdict(BOUND + 1)), (Verdict::Violated, Verdict::Holds));
}

#[test]
fn one_that_nobody_asks_for_is_counted_when_all_have_stepped() {
    // Steps of VP 0 alone prove nothing: VP 1 may not have seen it yet.
    let mut script = inverted();
    for _ in 0..50 {
        script.step(0, Some((2, 9)), Some(9), 0);
    }
    assert_eq!((steps(&script.report(2).kept), script.report(2).verdict()), (0, Verdict::Holds));
    for _ in 0..=BOUND {
        script.step(1, Some((1, 3)), None, 0);
    }
    script.step(0, Some((2, 9)), Some(9), 0);
    let report = script.report(2);
    assert_eq!(
        (steps(&report.kept), report.beyond, report.verdict()),
        (BOUND + 1, 1, Verdict::Violated),
        "{report}"
    );
    // Of a third VP nothing was heard in that time.
    assert_eq!((steps(&script.report(3).kept), script.report(3).verdict()), (0, Verdict::Holds));
}

#[test]
fn one_that_was_asked_once_is_to_blame_until_it_is_over() {
    let mut script = inverted();
    script.step(0, Some((2, 9)), Some(9), 0).step(0, Some((2, 9)), Some(9), ASKED);
    (0..BOUND).for_each(|_| _ = script.step(0, Some((2, 9)), Some(9), 0));
    let report = script.report(2);
    assert_eq!((steps(&report.kept), report.verdict()), (BOUND + 1, Verdict::Violated), "{report}");
}

#[test]
fn of_two_that_have_the_same_one_is_to_blame() {
    let mut script = inverted();
    for _ in 0..BOUND + 2 {
        (0..3).filter(|vp| *vp != 1).for_each(|vp| _ = script.step(vp, Some((2, 9)), Some(9), 0));
        script.step(1, Some((1, 3)), None, 0);
    }
    script.step(2, Some((2, 9)), Some(9), 0);
    let kept = script.report(3).kept.unwrap();
    assert_eq!((kept.steps, &*kept.vp), (BOUND + 1, "VP 2"));
}

#[test]
fn a_vp_in_the_middle_of_a_step_is_not_counted() {
    // VP 1 has no core: what was told of it is not so any more.
    let mut script = inverted();
    script.add(1, Record::new(Kind::Settles));
    for _ in 0..50 {
        script.step(0, Some((2, 9)), Some(9), ASKED);
    }
    let report = script.report(2);
    assert_eq!(
        (report.inverted, report.kept.clone(), report.verdict()),
        (0, None, Verdict::Holds),
        "{report}"
    );
    // As soon as it is known to run the low one still, it counts.
    script.add(1, Record { id: 1, level: 3, ..Record::new(Kind::Settled) });
    script.step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 1);
}

#[test]
fn a_vp_that_is_overridden_is_not_counted_until_its_next_step() {
    let mut script = inverted();
    script.add(OUTSIDE, Record { arg: 1, ..Record::new(Kind::Overridden) });
    for _ in 0..50 {
        script.step(0, Some((2, 9)), Some(9), ASKED);
    }
    let report = script.report(2);
    assert_eq!(
        (report.inverted, report.kept.clone(), report.verdict()),
        (0, None, Verdict::Holds),
        "{report}"
    );
    script.step(1, Some((1, 3)), None, 0).step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 1);
}

#[test]
fn one_that_outranks_the_running_one_at_the_same_vp_is_missed() {
    let missed = |flags, waits| {
        let mut script = Script::default();
        (1..=2).for_each(|id| _ = script.spawn(0, id, 1, "low"));
        script.switch(0, 1, 1, Cause::None).spawn(0, 3, 5, "high");
        for _ in 0..6 {
            for id in [2, 1] {
                script.switch(0, id, 1, Cause::Yielded).step(0, Some((id, 1)), Some(waits), flags);
            }
        }
        script.report(1)
    };
    let report = missed(0, 5);
    let found = report.missed.clone().unwrap();
    assert_eq!((found.fault, found.steps, found.level, found.behind.2), (Fault::Missed, 12, 5, 1));
    assert_eq!((report.beyond, report.verdict()), (1, Verdict::Violated), "{report}");
    // Equals wait in turn; what is given away is another VP's.
    for (flags, waits) in [(0, 1), (GIVEN, 5)] {
        let report = missed(flags, waits);
        assert_eq!((report.missed.clone(), report.verdict()), (None, Verdict::Holds), "{report}");
    }
}

#[test]
fn an_inversion_ends_when_nobody_below_runs() {
    let mut script = inverted();
    for _ in 0..6 {
        script.step(0, Some((2, 9)), Some(9), ASKED).step(0, Some((2, 9)), Some(9), ASKED);
        // VP 1 idles: nobody runs before the high one. Then the low one is back, and it is a new
        // inversion.
        script.step(1, None, None, 0).step(0, Some((2, 9)), Some(9), ASKED).step(
            1,
            Some((1, 3)),
            None,
            0,
        );
    }
    assert_eq!((steps(&script.report(2).kept), script.report(2).verdict()), (2, Verdict::Holds));
}

#[test]
fn what_is_on_its_way_counts_as_its_vp_s() {
    let mut script = inverted();
    script.sent(1, 3, 9);
    for _ in 0..50 {
        script.step(0, Some((2, 9)), Some(9), ASKED);
    }
    // VP 1 has not got it yet, however many steps it takes.
    (0..50).for_each(|_| _ = script.step(1, Some((1, 3)), None, 0));
    script.step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 0);
    // But two steps after it is in it runs there, or waits there, or is gone.
    script.put(1, 3).step(1, Some((1, 3)), None, 0).step(1, Some((1, 3)), None, 0);
    script.step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 1);
    // Sent on, it counts for the other VP.
    let mut script = inverted();
    script.sent(1, 3, 9).sent(0, 3, 9).step(0, Some((2, 9)), Some(9), ASKED);
    assert_eq!(steps(&script.report(2).kept), 1);
}

#[test]
fn steps_are_instants_on_the_vp_s_track() {
    let mut script = inverted();
    script
        .sent(1, 3, 9)
        .put(1, 3)
        .step(0, Some((2, 9)), Some(7), ASKED | GIVEN)
        .step(1, None, None, 0);
    // What is told of late does not take the place of the one that has the slot by then.
    let again = 1 << 32 | 3;
    script.spawn(0, again, 9, "again").put(1, 3).switch(0, again, 9, Cause::Yielded);
    // A VP that does not exist.
    script.sent(7, 3, 9);
    let (trace, _) = script.trace(2);
    let all: Vec<_> = events(&trace)
        .into_iter()
        .filter(|(event, _, of)| *of == Of::Vp && event.kind == INSTANT)
        .collect();
    let on = |vp: &str| {
        all.iter().filter(|(_, on, _)| on == vp).map(|(event, ..)| &*event.name).collect::<Vec<_>>()
    };
    assert_eq!(on("VP 0"), ["Settles", "Settled"]);
    assert_eq!(on("VP 1"), ["Settles", "Settled", "Sent", "Put", "Settles", "Settled", "Put"]);
    let of = |name: &str, nth: usize| {
        &all.iter().filter(|(event, ..)| &*event.name == name).nth(nth).unwrap().0
    };
    let settled = of("Settled", 1);
    assert_eq!(
        (settled.number("level"), settled.text("microprocess"), settled.number("waits")),
        (Some(9), Some("other #0.microprocess.2.1"), Some(7))
    );
    assert_eq!((settled.number("given"), settled.number("asked")), (Some(1), Some(1)));
    assert_eq!(of("Settled", 2).arguments, []);
    assert_eq!(
        (of("Sent", 0).text("microprocess"), of("Sent", 0).number("level")),
        (Some("high #0.microprocess.3.1"), Some(9))
    );
    assert_eq!(
        (of("Put", 0).text("microprocess"), of("Put", 0).number("id")),
        (Some("high #0.microprocess.3.1"), Some(real(3)))
    );
    assert_eq!(of("Put", 1).text("microprocess"), Some("#0.microprocess.3.1"));
    assert_eq!(script.report(2).overlaps, [""; 0]);
}

#[test]
fn levels_without_steps_prove_nothing() {
    let mut script = Script::default();
    script.spawn(0, 1, 3, "low").switch(0, 1, 3, Cause::None).spawn(1, 2, 9, "high").switch(
        1,
        2,
        9,
        Cause::None,
    );
    assert_eq!((script.report(2).untold, script.report(2).verdict()), (true, Verdict::Incomplete));
    script.step(0, Some((1, 3)), None, 0);
    assert_eq!(script.report(2).verdict(), Verdict::Holds);
}

#[test]
fn what_is_lost_makes_it_incomplete() {
    let mut script = Script::default();
    script
        .spawn(0, 1, 9, "x")
        .switch(0, 1, 9, Cause::None)
        // A contradiction, but there was something in between: the loss is told of later.
        .switch(1, 1, 9, Cause::None)
        .add(0, Record { id: 7, ..Record::new(Kind::Lost) })
        .switch(0, 0, 0, Cause::None);
    let (trace, summary) = script.trace(2);
    assert_eq!(summary.lost, 7);
    let lost: Vec<_> =
        events(&trace).into_iter().filter(|(event, ..)| &*event.name == "Lost").collect();
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].0.number("count"), lost[0].0.text("writer")), (Some(7), Some("VP 0")));
    let report = report(&trace, None);
    assert_eq!((report.lost, report.verdict()), (7, Verdict::Incomplete));
    assert_eq!(report.overlaps, [""; 0]);
}

#[test]
fn a_trace_without_its_end_proves_nothing() {
    let mut script = Script::default();
    script.spawn(0, 1, 9, "x").switch(0, 1, 9, Cause::None);
    let trace = script.trace(1).0;
    let mut reader = Reader::new(&trace[..trace.len() - 3]);
    let error = std::iter::repeat_with(|| reader.next_event()).find_map(Result::err).unwrap();
    assert!(error.to_string().contains("the file ends inside a packet"), "{error}");
    assert_eq!(report(&[], None).verdict(), Verdict::Incomplete);
}

#[test]
fn runs_behind_one_another_are_kept_apart() {
    let mut script = Script::default();
    script.spawn(0, 1, 9, "x").switch(0, 1, 9, Cause::None);
    let (mut trace, _) = script.trace(1);
    let chunks: Vec<_> = script.writers.into_iter().collect();
    let header = Header { vps: 1, pid: 5, offset: trace.len() as u64, about: Vec::new() };
    let mut bytes = Vec::new();
    write(&mut bytes, &header, &chunks).unwrap();
    convert(&Spool::open(file(&bytes)).unwrap(), &mut trace, 0).unwrap();
    let report = report(&trace, None);
    assert_eq!((report.runs, report.microprocesses, report.verdict()), (2, 2, Verdict::Holds));
}

/// A scheduler of one queue for all VPs, which takes the first of the highest level. A thread that
/// makes one ready hands it over to the VP that runs the lowest, at its `late`th step after that if
/// it is outranked there. Returns how many were.
fn random_but_exact(choices: &[(u8, u8)], vps: u32, late: u64) -> (Script, u64) {
    let mut script = Script::default();
    let mut queue: Vec<(u8, u64)> = Vec::new();
    let mut on: Vec<Option<(u8, u64)>> = vec![None; vps as usize];
    let runs = |on: &[Option<(u8, u64)>], vp: u32| on[vp as usize].map(|(level, id)| (id, level));
    let highest = |queue: &[(u8, u64)]| queue.iter().map(|(level, _)| *level).max();
    let (mut next, mut handed) = (0, 0);
    for &(choice, level) in choices {
        let vp = u32::from(choice) % vps;
        let level = level % 4;
        if choice < 100 {
            next += 1;
            script.spawn(vp, next, level, "m");
            queue.push((level, next));
        }
        // An outranked one gives way at once.
        loop {
            queue.sort_by_key(|&(level, id)| (std::cmp::Reverse(level), id));
            let Some(&(high, id)) = queue.first() else { break };
            let lowest = (0..on.len())
                .min_by_key(|&vp| on[vp].map_or(-1, |(level, _)| i32::from(level)))
                .unwrap();
            if on[lowest].is_some_and(|(level, _)| level >= high) {
                break;
            }
            let there = lowest as u32;
            let hands =
                on[lowest].is_some() && on[vp as usize].is_some_and(|(level, _)| level >= high);
            if hands {
                handed += 1;
                (0..late).for_each(|_| _ = script.step(vp, runs(&on, vp), Some(high), ASKED));
                script.sent(there, id, high).put(there, id);
            }
            queue.remove(0);
            if hands {
                script.step(vp, runs(&on, vp), highest(&queue), 0);
            }
            if let Some(left) = on[lowest].replace((high, id)) {
                queue.push(left);
            }
            script.switch(there, id, high, Cause::Outranked).step(
                there,
                runs(&on, there),
                highest(&queue),
                ASKED,
            );
        }
        if choice >= 100
            && let Some(_gone) = on[vp as usize].take()
        {
            queue.sort_by_key(|&(level, id)| (std::cmp::Reverse(level), id));
            let cause = if choice % 2 == 0 { Cause::Ended } else { Cause::Parked };
            let next = if queue.is_empty() { None } else { Some(queue.remove(0)) };
            on[vp as usize] = next;
            let (level, id) = next.unwrap_or((0, 0));
            script.switch(vp, id, level, cause).step(vp, runs(&on, vp), highest(&queue), ASKED);
        }
    }
    (script, handed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_exact_scheduler_holds(choices in prop::collection::vec(any::<(u8, u8)>(), 0..200), vps in 1u32..5) {
        let (script, handed) = random_but_exact(&choices, vps, BOUND);
        let report = script.report(vps);
        prop_assert_eq!((report.verdict(), report.sent, report.inverted), (Verdict::Holds, handed, handed * BOUND), "{}", report);
    }

    /// The same, a step too late each time.
    #[test]
    fn a_late_scheduler_is_found(choices in prop::collection::vec(any::<(u8, u8)>(), 0..200), vps in 1u32..5) {
        let (script, handed) = random_but_exact(&choices, vps, BOUND + 1);
        let report = script.report(vps);
        prop_assert_eq!((report.beyond, steps(&report.kept)), (handed, handed.min(1) * (BOUND + 1)), "{}", report);
    }

    /// Whatever the records say: a file that can be read, in which what begins ends.
    #[test]
    fn any_records_make_a_readable_file(
        records in prop::collection::vec((0u32..3, 0u8..25, 0u64..4, any::<u8>(), any::<u8>(), 0u32..3), 0..200),
    ) {
        let mut script = Script::default();
        for (writer, kind, id, level, cause, arg) in records {
            let words = [0, id, u64::from(kind) | u64::from(level) << 8 | u64::from(cause) << 16 | u64::from(arg) << 32];
            if let Some(record) = Record::from_words(words) {
                script.add(if writer == 2 { OUTSIDE } else { writer }, record);
            }
        }
        let all = events(&script.trace(2).0);
        let mut open: HashMap<u64, i64> = HashMap::new();
        for (event, ..) in &all {
            *open.entry(event.track).or_default() += match event.kind { SLICE_BEGIN => 1, SLICE_END => -1, _ => 0 };
            prop_assert!(open[&event.track] >= 0);
        }
        prop_assert!(open.values().all(|&n| n == 0));
        let _ = script.report(2);
    }

    #[test]
    fn garbage_is_an_error(bytes: Vec<u8>) {
        let mut reader = Reader::new(&bytes[..]);
        while let Ok(Some(_)) = reader.next_event() {}
    }
}
