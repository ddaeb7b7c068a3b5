//! Random schedules, records and bytes.

use super::*;

/// Simulates a scheduler with one queue for all VPs, which runs the highest level first. A thread
/// that makes a microprocess ready hands it to the VP with the lowest level if that is outranked,
/// after `late` further steps of its own. Returns the number of such hand-overs.
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
        // Outranked microprocesses yield at once.
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
    fn exact_schedules_hold(choices in prop::collection::vec(any::<(u8, u8)>(), 0..200), vps in 1u32..5) {
        let (script, handed) = random_but_exact(&choices, vps, BOUND);
        let report = script.report(vps);
        prop_assert_eq!((report.verdict(), report.sent, report.inverted), (Verdict::Holds, handed, handed * BOUND), "{}", report);
    }

    /// The same scheduler, one step too late each time.
    #[test]
    fn late_schedules_are_violations(choices in prop::collection::vec(any::<(u8, u8)>(), 0..200), vps in 1u32..5) {
        let (script, handed) = random_but_exact(&choices, vps, BOUND + 1);
        let report = script.report(vps);
        prop_assert_eq!((report.beyond, steps(&report.kept)), (handed, handed.min(1) * (BOUND + 1)), "{}", report);
    }

    /// Any records result in a readable file, in which every slice that starts also ends.
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
    fn garbage_does_not_panic_the_reader(bytes: Vec<u8>) {
        let mut reader = Reader::new(&bytes[..]);
        while let Ok(Some(_)) = reader.next_event() {}
    }
}
