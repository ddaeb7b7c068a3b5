//! Address spaces with one VP each share a core, exactly or not, and the checker must distinguish
//! the two.

use proptest::prelude::*;

use super::*;
use crate::capture::record::{self, Kind, Record, Slot};
use crate::check::priority_order::BOUND;
use crate::format::perfetto::SLICE_BEGIN;
use crate::read::Reader;
use crate::tests::{Script, events};

const CORE: u32 = 3;

/// Returns the mark of a microprocess of this level.
fn mark(level: u8) -> u8 {
    level + 2
}

#[test]
fn serial_number_has_thirty_bits() {
    let mut core = super::Core::default();
    let first = core.whole(0, u64::MAX);
    assert_eq!(core.whole(0, 0), first + 1);
    assert_eq!(core.whole(1, BITS - 1), first - 1);
}

#[derive(Default)]
struct Space {
    script: Script,
    waits: Option<u8>,
    level: Option<u8>,
    /// Whether the VP runs on its core, or is about to find that another VP has the core.
    runs: bool,
    /// Number of steps for which the VP has continued to run since then.
    late: u64,
}

/// A core with its slot, and its VPs. Row and VP are the space's number.
struct Machine {
    spaces: Vec<Space>,
    slot: Slot,
}

impl Machine {
    fn new(spaces: usize) -> Machine {
        let mut all: Vec<Space> = (0..spaces).map(|_| Space::default()).collect();
        // The clocks of the spaces are unrelated.
        all.iter_mut()
            .enumerate()
            .for_each(|(i, space)| space.script.time = (spaces - i) as u64 * 10_000_000);
        Machine { spaces: all, slot: Slot { serial: 0, holder: None, given: false } }
    }

    fn holder(&self) -> Option<usize> {
        self.slot.holder.map(|holder| usize::from(holder.row))
    }

    fn note(&mut self, who: usize, kind: Kind, (level, wants): (u8, u8), cause: u8) {
        let (id, wait) = (self.slot.bits(), wants);
        self.spaces[who]
            .script
            .add(0, Record { id, level, wait, cause, arg: CORE, ..Record::new(kind) });
    }

    /// Changes the slot as VP `by`.
    fn change(&mut self, by: usize, to: Option<(usize, u8)>, given: bool) {
        let serial = (self.slot.serial + 1) & ((1 << 30) - 1);
        let holder = to.map(|(row, mark)| Holder { row: row as u16, vp: 0, mark });
        self.slot = Slot { serial, holder, given };
        self.note(by, Kind::Slot, (0, 0), 0);
    }

    /// Records a request of the VP.
    fn asked(&mut self, who: usize, level: u8, has: bool, runs: bool) {
        let bit = |is, bit| if is { bit } else { 0 };
        self.note(
            who,
            Kind::Asked,
            (level, mark(level)),
            bit(has, record::HAS) | bit(runs, record::RUNS),
        );
    }

    /// Gives the core to the highest waiter above the slot's mark.
    fn settle(&mut self, by: usize) {
        let above = self.slot.holder.map_or(0, |holder| holder.mark);
        let waiters =
            self.spaces.iter().enumerate().filter_map(|(row, space)| Some((space.waits?, row)));
        if let Some((mark, row)) = waiters.max().filter(|(mark, _)| *mark > above) {
            self.change(by, Some((row, mark)), true);
        }
    }

    /// Requests the core as the board's protocol does. Returns whether the VP has it.
    fn ask(&mut self, who: usize, level: u8) -> bool {
        let lower = self.slot.holder.is_none_or(|holder| holder.mark < mark(level));
        if lower || self.holder() == Some(who) {
            self.spaces[who].waits = None;
            self.change(who, Some((who, mark(level))), false);
            self.settle(who);
        }
        let has = self.holder() == Some(who);
        self.spaces[who].waits = (!has).then(|| mark(level));
        has
    }

    /// Performs a step of the VP, which yields `lag` steps after it lost its core. Returns true
    /// once it has continued to run for one step more than the bound.
    fn step(&mut self, who: usize, lag: u64) -> bool {
        let Some(level) = self.spaces[who].level else {
            self.note(who, Kind::Leaves, (0, 0), 0);
            (self.spaces[who].waits, self.spaces[who].runs, self.spaces[who].late) =
                (None, false, 0);
            if self.holder() == Some(who) {
                self.change(who, None, false);
                self.settle(who);
            }
            return false;
        };
        let has = self.ask(who, level);
        let runs = self.spaces[who].runs;
        self.asked(who, level, has, runs);
        let space = &mut self.spaces[who];
        space.late = if runs && !has { space.late + 1 } else { 0 };
        space.runs = has || space.late > 0 && space.late < lag;
        space.late == BOUND + 1
    }

    fn files(&self) -> Vec<Vec<u8>> {
        (0..self.spaces.len()).map(|i| self.file(i, i as u32 + 100, "b")).collect()
    }

    fn file(&self, i: usize, pid: u32, board: &str) -> Vec<u8> {
        let (name, row) = (format!("space{i}"), i.to_string());
        self.spaces[i]
            .script
            .trace_of(1, pid, &[("program", &name), ("board", board), ("row", &row)])
            .0
    }

    fn report(&self) -> BoardReport {
        together(&self.files()).unwrap().expect("the spaces share a core")
    }
}

/// Two spaces; space 0 runs at level 10.
fn two() -> Machine {
    let mut machine = Machine::new(2);
    (machine.spaces[0].level, machine.spaces[1].level) = (Some(10), Some(50));
    (0..2).for_each(|_| _ = machine.step(0, 1));
    machine
}

fn together(files: &[Vec<u8>]) -> io::Result<Option<BoardReport>> {
    let mut merge = Merge::new(BOUND);
    for (i, file) in files.iter().enumerate() {
        merge.begin(Path::new(&format!("file{i}")));
        let mut reader = Reader::new(&file[..]);
        while let Some(event) = reader.next_event()? {
            merge.take(&event, &reader.tracks[&event.track])?;
        }
    }
    merge.report()
}

fn steps(inversion: &Option<BoardInversion>) -> u64 {
    inversion.as_ref().map_or(0, |inversion| inversion.steps)
}

#[test]
fn vp_that_continues_to_run_is_blamed_for_each_step() {
    let mut machine = two();
    machine.step(1, 1);
    for _ in 0..BOUND {
        machine.step(0, u64::MAX);
    }
    let report = machine.report();
    assert_eq!(
        (steps(&report.kept), report.beyond, report.verdict()),
        (BOUND, 0, Verdict::Holds),
        "{report}"
    );
    assert_eq!((report.runs, report.cores, report.looks, report.unseen), (2, 1, 3 + BOUND, 0));
    machine.step(0, u64::MAX);
    let report = machine.report();
    assert_eq!(
        (report.beyond, report.gave_way, report.verdict()),
        (1, 0, Verdict::Violated),
        "{report}"
    );
    let said = format!(
        "{} step(s) of VP 0 of space0 (process 100): it ran on at level 10, from ",
        BOUND + 1
    );
    let text = report.to_string();
    assert!(text.contains(&said), "{text}");
    assert!(text.contains("while VP 0 of space1 (process 101) had core 3 at level 50"), "{text}");
}

#[test]
fn vp_that_yields_is_not_blamed_again() {
    let mut machine = two();
    for _ in 0..5 {
        machine.spaces[1].level = Some(50);
        machine.step(1, 1);
        // The step in which the VP finds out, and the following ones on its own stack.
        (0..20).for_each(|_| _ = machine.step(0, 1));
        machine.spaces[1].level = None;
        machine.step(1, 1);
        (0..3).for_each(|_| _ = machine.step(0, 1));
    }
    let report = machine.report();
    assert_eq!(
        (steps(&report.kept), report.gave_way, report.missed.clone()),
        (1, 5, None),
        "{report}"
    );
    assert_eq!(report.verdict(), Verdict::Holds);
}

/// Space 0 takes the core although space 1 waits for it at level 50.
fn passed_over() -> Machine {
    let mut machine = Machine::new(3);
    for (space, level) in machine.spaces.iter_mut().zip([10, 50, 60]) {
        space.level = Some(level);
    }
    [0, 2, 0, 0, 1].into_iter().for_each(|who| _ = machine.step(who, 1));
    machine.change(2, None, false);
    machine.change(0, Some((0, mark(10))), false);
    (0..BOUND + 1).for_each(|_| machine.asked(0, 10, true, true));
    machine
}

#[test]
fn passed_over_waiter_is_a_violation() {
    let mut machine = passed_over();
    // This becomes known when space 1 records that it still waits.
    let report = machine.report();
    assert_eq!((steps(&report.kept), report.beyond), (1, 0), "{report}");
    machine.asked(1, 50, false, false);
    let report = machine.report();
    assert_eq!((steps(&report.kept), report.beyond), (BOUND + 1, 1), "{report}");
    let other = report.kept.clone().and_then(|kept| kept.other);
    assert_eq!(other, Some(("VP 0 of space1 (process 101)".into(), mark(50), true)));
    // From some time on, space 1 waited at level 5 only.
    let mut machine = passed_over();
    machine.asked(1, 5, false, false);
    assert_eq!(steps(&machine.report().kept), 1);
}

#[test]
fn waiter_that_did_not_take_its_core_is_not_passed_over() {
    let mut machine = Machine::new(2);
    (machine.spaces[0].level, machine.spaces[1].level) = (Some(10), Some(50));
    machine.change(0, Some((0, mark(60))), false);
    machine.step(1, 1);
    machine.change(0, Some((1, mark(50))), true);
    // Space 1 did not take the core in time. Space 0 took it back after the bound, and the request
    // of space 1 was withdrawn.
    machine.change(0, None, false);
    machine.change(0, Some((0, mark(10))), false);
    (0..BOUND + 1).for_each(|_| machine.asked(0, 10, true, true));
    machine.asked(1, 50, false, false);
    let report = machine.report();
    assert_eq!((report.kept.clone(), report.beyond), (None, 0), "{report}");
}

#[test]
fn waiter_for_a_lower_holder_is_blamed_for_each_step() {
    let mut machine = two();
    (0..BOUND + 1).for_each(|_| machine.asked(1, 50, false, false));
    let report = machine.report();
    assert_eq!(
        (steps(&report.missed), report.beyond, report.verdict()),
        (BOUND + 1, 1, Verdict::Violated),
        "{report}"
    );
    let text = report.to_string();
    assert!(text.contains("VP 0 of space1 (process 101): it waited at level 50"), "{text}");
    assert!(text.contains("while VP 0 of space0 (process 100) had core 3 at level 10"), "{text}");
    // The same for a free core: the VP does not have it, even though its record claims so.
    let mut machine = two();
    machine.change(0, None, false);
    (0..BOUND + 1).for_each(|_| machine.asked(1, 50, true, true));
    let report = machine.report();
    assert_eq!((steps(&report.kept), report.missed.clone(), report.beyond), (BOUND + 1, None, 1));
    assert!(report.to_string().contains("while no VP had core 3"), "{report}");
}

/// Both at level 10: the holder keeps the core until its quantum ends, and the other VP does not
/// run.
#[test]
fn equal_levels_do_not_outrank_each_other() {
    let mut machine = two();
    machine.spaces[1].level = Some(10);
    (0..20).for_each(|_| _ = machine.step(1, 1));
    (0..20).for_each(|_| _ = machine.step(0, 1));
    assert_eq!((machine.report().kept, machine.report().missed), (None, None));
    (0..2).for_each(|_| machine.asked(1, 10, false, true));
    assert_eq!(steps(&machine.report().kept), 2);
}

#[test]
fn serial_numbers_wrap_around() {
    let mut machine = two();
    machine.spaces = Machine::new(2).spaces;
    (machine.spaces[0].level, machine.spaces[1].level) = (Some(10), Some(50));
    machine.slot = Slot { serial: (1 << 30) - 3, holder: None, given: false };
    for turn in 0..8 {
        machine.spaces[1].level = (turn % 2 == 0).then_some(50);
        machine.step(1, 1);
        machine.step(0, 1);
    }
    let report = machine.report();
    assert_eq!(
        (report.unseen, report.beyond, report.verdict()),
        (0, 0, Verdict::Holds),
        "{report}"
    );
    assert!(machine.slot.serial < 1 << 20 && report.looks == 16);
}

#[test]
fn holder_of_the_core_is_drawn() {
    let mut machine = two();
    machine.step(1, 1);
    machine.step(0, 1);
    let all = events(&machine.file(0, 100, "b"));
    let on_core = all.iter().filter(|(event, name, of)| {
        *of == Of::Core && name == "core 3" && event.kind == SLICE_BEGIN
    });
    let slices: Vec<_> =
        on_core.map(|(event, ..)| (event.name.to_string(), event.number("level"))).collect();
    assert_eq!(slices, [("VP 0".into(), Some(10)), ("row 1 VP 0".into(), Some(50))]);
    let on_vp: Vec<_> =
        all.iter().filter(|(_, _, of)| *of == Of::Vp).map(|(event, ..)| &*event.name).collect();
    assert_eq!(on_vp, ["Asked for a core"; 3]);
}

#[test]
fn unrelated_files_are_refused() {
    let mut machine = two();
    machine.step(1, 1);
    let refused = |files: &[Vec<u8>]| together(files).expect_err("refused").to_string();
    let (first, second) = (machine.file(0, 100, "b"), machine.file(1, 101, "b"));
    assert!(together(&[first.clone(), second.clone()]).is_ok());
    let said = refused(&[first.clone(), machine.file(1, 101, "another")]);
    assert_eq!(
        said,
        "file0 and file1 do not belong together: their processes used different boards"
    );
    let said = refused(&[first.clone(), second.clone(), first.clone()]);
    assert_eq!(
        said,
        "file0 and file2 are traces of the same process (100): give each process's trace once"
    );
    let said = refused(&[first.clone(), Machine::new(2).file(1, 101, "b")]);
    assert!(said.starts_with("file1: its process requested no core"), "{said}");
    let said = refused(&[first.clone(), Script::default().trace_of(1, 7, &[("program", "x")]).0]);
    assert!(said.starts_with("file1: its process requested no core"), "{said}");
    // The same serial numbers from another time, when space 1 had the core at another level.
    let mut other = two();
    other.spaces[1].level = Some(40);
    other.step(1, 1);
    other.step(0, 1);
    machine.step(0, 1);
    let said = refused(&[machine.file(0, 100, "b"), other.file(1, 101, "b")]);
    assert!(
        said.contains("contradict each other") && said.contains("about one change of core 3"),
        "{said}"
    );
    assert!(
        said.contains("at level 50; file1: VP 0 of space1 (process 101) has it at level 40"),
        "{said}"
    );
    // A single trace is enough for its own process.
    assert!(
        together(&[first])
            .is_ok_and(|report| report.is_some_and(|report| report.verdict() == Verdict::Holds))
    );
}

/// One space runs after the other, so their steps have no order.
#[test]
fn runs_without_a_shared_core_are_incomplete() {
    let mut machine = two();
    machine.spaces[0].level = None;
    machine.step(0, 1);
    machine.change(0, None, false);
    machine.step(1, 1);
    let report = machine.report();
    assert_eq!(report.verdict(), Verdict::Incomplete, "{report}");
    assert_eq!(report.apart, ["space0 (process 100)", "space1 (process 101)"]);
    assert!(
        report.to_string().contains("space0 (process 100) shared no core with the others"),
        "{report}"
    );
}

/// Plays random events of the VPs at a core: each takes a step, or first gets or loses a level.
fn play(choices: &[(u8, u8, u8)], spaces: usize, lag: u64) -> (Machine, u64) {
    let (mut machine, mut beyond) = (Machine::new(spaces), 0);
    // All VPs read each other's requests.
    for who in (0..spaces).chain(0..spaces) {
        machine.spaces[who].level = Some(who as u8);
        machine.step(who, 1);
    }
    for (who, what, level) in choices {
        let who = usize::from(*who) % spaces;
        match what % 8 {
            0 => machine.spaces[who].level = None,
            1 | 2 => machine.spaces[who].level = Some(level % 4 * 10),
            _ => {}
        }
        beyond += u64::from(machine.step(who, lag));
    }
    (machine, beyond)
}

fn choices() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    prop::collection::vec(any::<(u8, u8, u8)>(), 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn exact_arbitration_holds(choices in choices(), spaces in 2usize..5, lag in 1..=BOUND) {
        let (machine, _) = play(&choices, spaces, lag);
        let report = machine.report();
        prop_assert_eq!((report.verdict(), report.unseen, report.missed.clone()), (Verdict::Holds, 0, None), "{}", report);
        prop_assert!(steps(&report.kept) <= lag);
    }

    /// The same arbitration, one step too late each time.
    #[test]
    fn late_arbitration_is_a_violation(choices in choices(), spaces in 2usize..5) {
        let (machine, beyond) = play(&choices, spaces, BOUND + 1);
        let report = machine.report();
        prop_assert_eq!(report.beyond, beyond, "{}", report);
    }

    /// With only some of the files, each truncated, unknown events must not count as violations.
    #[test]
    fn partial_traces_report_no_violation(choices in choices(), spaces in 2usize..5, kept in prop::collection::vec(0usize..400, 5)) {
        let (mut machine, _) = play(&choices, spaces, 1);
        for (space, kept) in machine.spaces.iter_mut().zip(&kept) {
            space.script.cut(*kept);
        }
        let files: Vec<_> = machine.files().into_iter().zip(kept).filter(|(_, kept)| *kept >= 20).map(|(file, _)| file).collect();
        if let Ok(Some(report)) = together(&files) {
            prop_assert_eq!((report.beyond, steps(&report.kept) <= 1, report.missed.clone()), (0, true, None), "{}", report);
        }
    }

    /// A truncated file results in an error or a report.
    #[test]
    fn truncated_file_is_an_error_or_a_report(choices in choices(), at in any::<prop::sample::Index>()) {
        let mut files = play(&choices, 2, 1).0.files();
        let end = at.index(files[1].len());
        files[1].truncate(end);
        if let Err(e) = together(&files) {
            prop_assert_eq!(e.kind(), io::ErrorKind::InvalidData);
        }
    }
}
