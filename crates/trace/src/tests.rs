//! From records to a file, and back to a verdict.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::check::{Checker, Report, Verdict, default_bound};
use crate::export::convert;
use crate::perfetto::{INSTANT, SLICE_BEGIN, SLICE_END};
use crate::read::{Event, Of, Reader};
use crate::record::{Cause, Kind, Record, Words, name_words};
use crate::spool::{CLOCK, Header, OUTSIDE, Spool, tests::file, write};
use crate::words::Summary;

/// Records with the time at which they are written: one more than the one before.
#[derive(Default)]
struct Script {
    time: u64,
    writers: HashMap<u32, Vec<Words>>,
}

impl Script {
    fn add(&mut self, writer: u32, record: Record) -> &mut Self {
        self.time += 1_000;
        self.writers.entry(writer).or_default().push(record.words(self.time));
        self
    }

    fn spawn(&mut self, vp: u32, id: u64, level: u8, name: &str) -> &mut Self {
        self.add(vp, Record { id, level, ..Record::new(Kind::Spawn) });
        self.writers.entry(vp).or_default().extend(name_words(name.as_bytes()));
        self.ready(vp, id, level)
    }

    fn ready(&mut self, vp: u32, id: u64, level: u8) -> &mut Self {
        self.add(vp, Record { id, level, cause: Cause::Woken as u8, arg: vp, ..Record::new(Kind::Ready) })
    }

    fn switch(&mut self, vp: u32, id: u64, level: u8, cause: Cause) -> &mut Self {
        self.add(vp, Record { id, level, cause: cause as u8, wait: 4, ..Record::new(Kind::Switch) })
    }

    fn trace(&self, vps: u32) -> (Vec<u8>, Summary) {
        let mut chunks: Vec<_> = self.writers.iter().map(|(writer, records)| (*writer, records.clone())).collect();
        chunks.push((CLOCK, vec![[0, 0, 0], [1_000_000, 1_000_000, 0]]));
        let header = Header { vps, pid: 5, offset: 0, about: vec![("program".into(), "test".into())] };
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
        checker.take(&event, &reader.tracks[&event.track]);
    }
    checker.report(&reader.tracks)
}

fn events(trace: &[u8]) -> Vec<(Event, String, Of)> {
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
    let vp = ["Resumed", "one #1", "Idle", "one #1", "Blocked", "one #1", "Preempted", "Changed"];
    assert_eq!(on(Of::Vp), vp);
    let threads = ["Carries a VP", "Blocked", "Carries a VP", "Waits for a VP", "Carries a VP"];
    assert_eq!(on(Of::Thread), threads);
    let parked = all.iter().find(|(event, ..)| &*event.name == "Parked").map(|(event, ..)| event.text("for"));
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
fn one_on_two_vps_is_found() {
    let mut script = Script::default();
    script.spawn(0, 1, 9, "double").switch(0, 1, 9, Cause::None).switch(1, 1, 9, Cause::None);
    let report = script.report(2);
    assert_eq!((report.overlap_count, report.verdict()), (1, Verdict::Violated));
    let text = report.to_string();
    assert!(text.contains("double #1: Running begins inside Running"), "{text}");
    // One that runs and is queued.
    let mut script = Script::default();
    script.spawn(0, 1, 9, "x").switch(0, 1, 9, Cause::None).ready(1, 1, 9);
    assert_eq!(script.report(2).verdict(), Verdict::Violated);
}

#[test]
fn an_inversion_is_counted_in_steps() {
    // The high one waits on VP 1, where the low one stays, while VP 0 runs others.
    let mut script = Script::default();
    script.spawn(1, 1, 3, "low").switch(1, 1, 3, Cause::None);
    for id in 2..=3 {
        script.spawn(0, id, 9, "other");
    }
    script.spawn(1, 4, 9, "high").switch(0, 2, 9, Cause::None);
    for _ in 0..10 {
        script.switch(0, 3, 9, Cause::Yielded).switch(0, 2, 9, Cause::Yielded);
    }
    let report = script.report(2);
    let longest = report.longest.clone().unwrap();
    assert_eq!((longest.steps, longest.level, &*longest.who), (21, 9, "high #4"));
    assert_eq!(longest.behind, Some(("low #1".to_owned(), 3)));
    assert_eq!((report.bound, report.beyond, report.verdict()), (default_bound(2), 1, Verdict::Violated));
    // With a bound of its own it holds.
    let trace = script.trace(2).0;
    let verdict = |bound| super::tests::report(&trace, Some(bound)).verdict();
    assert_eq!((verdict(20), verdict(21)), (Verdict::Violated, Verdict::Holds));
}

#[test]
fn one_low_after_the_other_on_one_vp_is_one_inversion() {
    let mut script = Script::default();
    for id in 1..=2 {
        script.spawn(0, id, 1, "low");
    }
    script.switch(0, 1, 1, Cause::None).spawn(0, 3, 5, "high");
    for _ in 0..6 {
        script.switch(0, 2, 1, Cause::Yielded).switch(0, 1, 1, Cause::Yielded);
    }
    script.switch(0, 3, 5, Cause::Yielded);
    assert_eq!(script.report(1).longest.unwrap().steps, 12);
}

#[test]
fn an_inversion_ends_when_nobody_below_runs() {
    let mut script = Script::default();
    for id in 1..=2 {
        script.spawn(0, id, 1, "low");
    }
    script.switch(0, 1, 1, Cause::None).spawn(0, 3, 5, "high");
    for _ in 0..6 {
        // It parks and the VP idles: nobody runs before the high one; that it was not taken is no inversion.
        script.switch(0, 2, 1, Cause::Yielded).switch(0, 0, 0, Cause::Yielded).switch(0, 1, 1, Cause::None);
    }
    assert_eq!(script.report(1).longest.unwrap().steps, 2);
}

#[test]
fn a_new_priority_counts_from_its_moment() {
    let mut script = Script::default();
    script.spawn(0, 1, 1, "a").spawn(0, 2, 1, "b").switch(0, 1, 1, Cause::None).ready(0, 3, 1);
    script.switch(0, 2, 1, Cause::Yielded).switch(0, 1, 1, Cause::Yielded);
    script.add(OUTSIDE, Record { id: 3, cause: 7, level: 7, ..Record::new(Kind::Priority) });
    script.switch(0, 2, 1, Cause::Yielded);
    let longest = script.report(1).longest.unwrap();
    assert_eq!((longest.steps, longest.level), (1, 7));
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
    let lost: Vec<_> = events(&trace).into_iter().filter(|(event, ..)| &*event.name == "Lost").collect();
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

/// A scheduler of one queue for all VPs, which takes the first of the highest level: exact, so at most the others are behind by a step.
fn random_but_exact(choices: &[(u8, u8)], vps: u32) -> Script {
    let mut script = Script::default();
    let mut queue: Vec<(u8, u64)> = Vec::new();
    let mut on: Vec<Option<(u8, u64)>> = vec![None; vps as usize];
    let mut next = 0;
    for &(choice, level) in choices {
        let vp = u32::from(choice) % vps;
        let level = level % 4;
        if choice < 100 {
            next += 1;
            script.spawn(vp, next, level, "m");
            queue.push((level, next));
        }
        // Whoever is outranked gives way at once.
        loop {
            queue.sort_by_key(|&(level, id)| (std::cmp::Reverse(level), id));
            let Some(&(high, id)) = queue.first() else { break };
            let lowest = (0..on.len()).min_by_key(|&vp| on[vp].map_or(-1, |(level, _)| i32::from(level))).unwrap();
            if on[lowest].is_some_and(|(level, _)| level >= high) {
                break;
            }
            queue.remove(0);
            if let Some(left) = on[lowest].replace((high, id)) {
                queue.push(left);
            }
            script.switch(lowest as u32, id, high, Cause::Outranked);
        }
        if choice >= 100
            && let Some(_gone) = on[vp as usize].take()
        {
            queue.sort_by_key(|&(level, id)| (std::cmp::Reverse(level), id));
            let cause = if choice % 2 == 0 { Cause::Ended } else { Cause::Parked };
            let next = if queue.is_empty() { None } else { Some(queue.remove(0)) };
            on[vp as usize] = next;
            let (level, id) = next.unwrap_or((0, 0));
            script.switch(vp, id, level, cause);
        }
    }
    script
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_exact_scheduler_holds(choices in prop::collection::vec(any::<(u8, u8)>(), 0..200), vps in 1u32..5) {
        let script = random_but_exact(&choices, vps);
        let report = script.report(vps);
        prop_assert_eq!(report.verdict(), Verdict::Holds, "{}", report);
    }

    /// Whatever the records say: a file that can be read, in which what begins ends.
    #[test]
    fn any_records_make_a_readable_file(
        records in prop::collection::vec((0u32..3, 0u8..16, 0u64..4, any::<u8>(), any::<u8>(), 0u32..3), 0..200),
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
