use kumihimo_trace::script::{HOSTILE, Script};
use proptest::prelude::*;

use super::collect::Limits;
use super::lanes::{Lane, Runs, Span};
use super::*;

const MS: u64 = 1_000_000;

fn trace(script: &Script) -> Vec<u8> {
    let mut out = Vec::new();
    script.write(&mut out).expect("a temporary file");
    out
}

fn collected(bytes: &[u8]) -> Result<Collected, String> {
    collect(&mut Reader::new(bytes), 10 * MS, None, LIMITS)
}

#[test]
fn known_trace_is_accounted_exactly() {
    let all = collected(&trace(&Script::known())).expect("a trace");
    assert_eq!((all.runs.len(), all.resolution), (1, 0));
    let run = &all.runs[0];
    assert_eq!((&*run.name, run.end, run.lanes.len()), ("<b>server</b>", 40 * MS, 2));
    // In the order of their first records.
    let [alpha, low, hostile] = &run.micros[..] else { panic!("{:?}", run.micros) };
    assert!(alpha.label.starts_with("alpha #") && hostile.label.starts_with(HOSTILE));
    assert_eq!((alpha.running, alpha.runs, alpha.level), (7 * MS, 2, Some(32)));
    assert_eq!((alpha.parked, alpha.parks, alpha.outside), (20 * MS, 1, 0));
    // Runnable from 1 to 2 ms, and from 25 to 26 ms.
    assert_eq!((alpha.latency, alpha.latencies, alpha.longest_latency), (2 * MS, 2, MS));
    assert_eq!((hostile.running, hostile.longest_latency), (21 * MS, 39 * MS / 10));
    assert_eq!((hostile.parked, hostile.last), (14 * MS, 40 * MS));
    assert_eq!((low.running, low.longest_latency, low.level), (25 * MS, 14 * MS, Some(10)));
    assert_eq!(run.stalls, 1);
    let spans = |lane: usize| -> Vec<_> {
        run.lanes[lane].spans.iter().map(|span| (span.from / MS, span.to / MS, span.runs)).collect()
    };
    let micro = Runs::Micro;
    assert_eq!(
        spans(0),
        [(2, 5, micro(0)), (5, 26, micro(2)), (26, 30, micro(0)), (30, 40, Runs::Idle)]
    );
    assert_eq!(spans(1), [(15, 40, micro(1))]);
}

#[test]
fn waits_for_locks_have_address_and_holder() {
    let all = collected(&trace(&Script::known())).expect("a trace");
    let shown =
        serde_json::to_value(all.runs[0].contention.shown(&Stacks::default())).expect("JSON");
    let lock = &shown["locks"][0];
    assert_eq!((&lock["kind"], &lock["address"]), (&"mutex".into(), &"0x7f0000001000".into()));
    assert_eq!(lock["waits"]["total"], 20 * MS);
    assert!(lock["holders"][0][0].as_str().is_some_and(|name| name.starts_with(HOSTILE)));
    assert!(lock["waiters"][0][0].as_str().is_some_and(|name| name.starts_with("alpha #")));
    assert_eq!((&shown["all_locks"], &shown["lacks_addresses"]), (&1.into(), &false.into()));
    let reasons: Vec<_> = (0..2).map(|i| shown["reasons"][i][0].as_str().expect("text")).collect();
    assert_eq!(reasons, ["mutex", "sleep"]);
}

#[test]
fn other_files_are_refused_with_the_reason() {
    let refused = |bytes: &[u8]| collected(bytes).expect_err("no trace");
    assert!(refused(b"no trace").contains("expected a packet"));
    // A packet with a field that no trace of ours has.
    assert!(refused(&[0x0a, 0x02, 0x98, 0x06]).contains("not a complete trace"));
    assert!(refused(&[0x0a, 0x03, 0x98, 0x06, 0x01]).contains("not a trace of Kumihimo"));
    let good = trace(&Script::known());
    assert!(refused(&good[..good.len() / 2]).contains("the file ends inside a packet"));
    // A state of a later version.
    let at = good.windows(6).position(|six| six == b"Parked").expect("the table of names");
    let mut later = good;
    later[at..at + 6].copy_from_slice(b"Perked");
    let why = refused(&later);
    assert!(why.contains("\"Perked\"") && why.contains("another version"), "{why}");
}

#[test]
fn more_tracks_than_fit_are_refused() {
    let bytes = trace(&Script::busy(5000));
    // Groups, VPs and microprocesses.
    let limits = |tracks| Limits { tracks, ..LIMITS };
    let of = |tracks| collect(&mut Reader::new(&bytes[..]), MS, None, limits(tracks));
    assert!(of(2100).is_ok());
    let why = of(1000).expect_err("2000 microprocesses");
    assert!(why.starts_with("more than 1000 microprocesses, "), "{why}");
}

#[test]
fn long_timeline_loses_detail_and_no_time() {
    let bytes = trace(&Script::busy(40_000));
    let of = |spans| {
        let limits = Limits { spans, ..LIMITS };
        collect(&mut Reader::new(&bytes[..]), MS, None, limits).expect("a trace")
    };
    let (whole, coarse) = (of(1_000_000), of(1000));
    assert_eq!(whole.resolution, 0);
    assert!(coarse.resolution >= 1000, "{}", coarse.resolution);
    let lanes = |all: &Collected| -> Vec<(usize, u64, u64)> {
        let sum = |lane: &Lane, of: fn(&Span) -> u64| lane.spans.iter().map(of).sum();
        let one = |lane: &Lane| {
            (lane.spans.len(), sum(lane, |span| span.busy), sum(lane, |span| span.count.into()))
        };
        all.runs[0].lanes.iter().map(one).collect()
    };
    let count = |of: &[(usize, u64, u64)]| of.iter().map(|lane| lane.0).sum::<usize>();
    let (exact, merged) = (lanes(&whole), lanes(&coarse));
    assert!(count(&exact) > 10_000 && count(&merged) <= 1001, "{merged:?}");
    for (exact, merged) in exact.into_iter().zip(merged) {
        assert_eq!((exact.1, exact.2), (merged.1, merged.2));
    }
    // The table does not depend on it.
    let running = |all: &Collected| all.runs[0].micros.iter().map(|one| one.running).sum::<u64>();
    assert_eq!(running(&whole), running(&coarse));
}

proptest! {
    #[test]
    fn coarse_lane_keeps_its_sums(
        parts in prop::collection::vec((0u64..3000, 0u64..3000, any::<bool>()), 0..200),
        resolution in 1u64..20_000,
    ) {
        let mut lane = Lane::default();
        let mut now = 0;
        for (i, (gap, time, idle)) in parts.into_iter().enumerate() {
            let runs = if idle { Runs::Idle } else { Runs::Micro(i as u32) };
            lane.spans.push(Span::new(now + gap, now + gap + time, runs));
            now += gap + time;
        }
        let sums = |lane: &Lane| {
            let sum = |of: fn(&Span) -> u64| lane.spans.iter().map(of).sum::<u64>();
            (sum(|span| span.busy), sum(|span| span.count.into()))
        };
        let (before, count) = (sums(&lane), lane.spans.len());
        lane.coarsen(resolution);
        prop_assert_eq!(sums(&lane), before);
        prop_assert!(lane.spans.windows(2).all(|two| two[0].to <= two[1].from));
        // Two spans that follow each other begin and end further apart than the resolution.
        prop_assert!(lane.spans.windows(2).all(|two| two[1].to - two[0].from > resolution));
        prop_assert!(lane.spans.len() <= count);
    }
}
