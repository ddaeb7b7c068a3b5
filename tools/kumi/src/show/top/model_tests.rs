//! Tests of the model: effects of query results and keys.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use kumihimo_machine::handler::{Action, Metric, State};
use kumihimo_machine::top::{TopGroupSort, TopGrouping, TopPart, TopSort};

use super::keys::Wish;
use super::known::Item;
use super::message::{Find, List, Listed, Look, Order, Rows, Sight};
use super::model::{Mode, Model, Panel, Row};
use super::simulated::{Program, answer, look, model, press};
use crate::show::ps::example;
use crate::text::short;

/// Presses keys, and answers what the model wants then.
fn press_and_answer(model: &mut Model, keys: &str, programs: &[Program]) {
    press(model, keys);
    answer(model, programs);
}

fn shown(model: &Model) -> Vec<String> {
    let row = |at| match model.row(at).expect("a row") {
        Row::Space(at) => format!("space {}", model.known[at].number),
        Row::Summary(at) => format!("summary {}", model.known[at].number),
        Row::Item(space, at) => match model.item(space, at) {
            Item::Microprocess(row) => short(row.microprocess.id).to_string(),
            Item::Group(group) => format!("{} {}", group.what, group.count),
            Item::Resource(resource) => resource.id.to_string(),
            Item::Unknown => "...".to_owned(),
        },
    };
    (0..model.len()).map(row).collect()
}

fn two() -> Vec<Program> {
    let three = [(1, State::Running), (2, State::Waiting), (7, State::Suspended)];
    vec![Program::new(3, 3, &three), Program::new(5, 1000, &[])]
}

fn two_spaces() -> (Model, Vec<Program>) {
    let (mut model, programs) = (model(), two());
    look(&mut model, 1, &programs);
    (model, programs)
}

/// An address space with this many waiting microprocesses.
fn many(n: u32) -> Program {
    let rows: Vec<(u32, State)> = (0..n).map(|slot| (slot, State::Waiting)).collect();
    Program::new(3, u64::from(n), &rows)
}

fn selected(model: &Model) -> String {
    shown(model)[model.selected].clone()
}

fn numbers(model: &Model) -> Vec<u16> {
    model.wanted().iter().map(|list| list.number).collect()
}

#[test]
fn large_address_spaces_start_folded() {
    let (model, _) = two_spaces();
    assert_eq!(shown(&model), ["space 3", "summary 3", "3.1.1", "3.2.1", "3.7.1", "space 5"]);
    let (_, answer) = model.known[0].answer.as_ref().expect("answered");
    assert_eq!(answer.totals.states, [1, 0, 1, 0, 1]);
    assert_eq!(numbers(&model), [3]);
    // One that was named on the command line starts unfolded.
    let mut model = self::model();
    model.is_narrow = true;
    look(&mut model, 1, &[Program::new(5, 1000, &[(1, State::Running)])]);
    assert_eq!(shown(&model), ["space 5", "summary 5", "5.1.1"]);
}

#[test]
fn folding_from_a_row_within_chooses_the_address_space() {
    let (mut model, mut programs) = two_spaces();
    press(&mut model, "<down><down><down><left>");
    assert_eq!((model.len(), model.selected), (2, 0));
    assert_eq!(model.wanted(), []);
    press_and_answer(&mut model, "<down><enter>", &programs);
    assert_eq!(shown(&model), ["space 3", "space 5", "summary 5"]);
    assert_eq!((model.selected, numbers(&model)), (1, vec![5]));
    // Manual folding and unfolding persists over the next query.
    programs[1].rows = vec![example("5.4.1", State::Blocked)];
    look(&mut model, 2, &programs);
    assert_eq!(shown(&model), ["space 3", "space 5", "summary 5", "5.4.1"]);
}

#[test]
fn selection_follows_its_row() {
    let (mut model, mut programs) = two_spaces();
    press(&mut model, "<down><down><down>");
    assert_eq!(selected(&model), "3.2.1");
    let more = [(0, State::Running), (1, State::Running), (2, State::Blocked)];
    programs[0] = Program::new(3, 3, &more);
    programs.insert(0, Program::new(1, 0, &[]));
    look(&mut model, 2, &programs);
    assert_eq!(selected(&model), "3.2.1");
    // The microprocess ends: the row at its place within the address space is selected, or the
    // last one.
    look(&mut model, 3, &[Program::new(3, 1, &[(0, State::Running)])]);
    assert_eq!((model.len(), model.selected), (3, 2));
    look(&mut model, 4, &[]);
    assert_eq!((model.len(), model.selected, model.microprocess()), (0, 0, None));
    assert_eq!(press(&mut model, "<down><enter><left>s"), None);
}

#[test]
fn only_the_window_on_the_screen_is_requested() {
    let mut model = model();
    let programs = [many(1000)];
    look(&mut model, 1, &programs);
    press_and_answer(&mut model, "<right>", &programs);
    let window = |model: &Model| {
        let list = model.wanted().remove(0);
        (list.skip, list.limit)
    };
    assert_eq!((model.len(), window(&model)), (1002, (0, 80)));
    assert_eq!(shown(&model)[1], "summary 3");
    assert_eq!(shown(&model)[81..83], ["3.79.1", "..."]);
    // Within a page of the window nothing is requested.
    press(&mut model, "<page>");
    assert_eq!((model.offset, window(&model)), (0, (0, 80)));
    press(&mut model, "<page><page><page>");
    assert_eq!((model.offset, window(&model)), (57, (20, 80)));
    press(&mut model, "<end>");
    let (skip, limit) = window(&model);
    assert!(skip as usize + HEADS <= model.offset && limit == 80, "{skip}");
    assert_eq!(selected(&model), "...", "not loaded yet");
    assert_eq!(model.microprocess(), None);
    answer(&mut model, &programs);
    assert_eq!(selected(&model), "3.999.1");
    // A row that leaves the window is not followed.
    press_and_answer(&mut model, "i", &programs);
    assert_eq!((model.selected, selected(&model)), (1001, "3.0.1".to_owned()));
}

/// Rows of an address space before its items.
const HEADS: usize = 2;

#[test]
fn address_spaces_outside_the_screen_are_not_requested() {
    let mut model = model();
    model.fit(4);
    let some: Vec<(u32, State)> = (0..10).map(|slot| (slot, State::Waiting)).collect();
    let programs = [Program::new(3, 10, &some), Program::new(5, 10, &some)];
    look(&mut model, 1, &programs);
    assert_eq!((model.offset, numbers(&model)), (0, vec![3]));
    // Number 5 has no rows while it was never on the screen.
    press_and_answer(&mut model, "<end>", &programs);
    press_and_answer(&mut model, "<end>", &programs);
    assert_eq!((model.selected, model.offset, numbers(&model)), (23, 20, vec![5]));
    press(&mut model, "<up><up><up>");
    assert_eq!((model.selected, model.offset), (20, 20));
    press(&mut model, "g<page>");
    assert_eq!((model.selected, model.offset), (3, 0));
    // A larger screen is filled with rows.
    press(&mut model, "G");
    model.fit(30);
    assert_eq!(model.offset, 0);
    model.fit(0);
    assert_eq!(model.offset, model.selected);
}

#[test]
fn groups_have_an_order_of_their_own() {
    let (mut model, programs) = two_spaces();
    press_and_answer(&mut model, "t", &programs);
    assert_eq!(model.wanted()[0].group_sort, TopGroupSort::Count);
    press(&mut model, ">>i");
    let list = model.wanted().remove(0);
    assert_eq!((list.group_sort, list.backwards), (TopGroupSort::WaitTime, true));
    assert_eq!(list.query(1, false).group_sort, TopGroupSort::WaitTime);
    assert_eq!(model.settings.sort, TopSort::Id, "that of microprocesses is kept");
    press(&mut model, "<<<");
    assert_eq!(model.settings.group_sort, TopGroupSort::What);
}

#[test]
fn sort_key_and_direction_are_part_of_the_request() {
    let (mut model, programs) = two_spaces();
    press(&mut model, ">>>i");
    let list = model.wanted().remove(0);
    assert_eq!((list.sort, list.backwards), (TopSort::State, true));
    answer(&mut model, &programs);
    assert_eq!(shown(&model)[2..5], ["3.7.1", "3.2.1", "3.1.1"]);
    press_and_answer(&mut model, "i<<<", &programs);
    assert_eq!((model.settings.sort, shown(&model)[2].as_str()), (TopSort::Id, "3.1.1"));
    press(&mut model, "<");
    assert_eq!(model.settings.sort, TopSort::WaitsFor);
    press(&mut model, ">>>>>>>>>>");
    assert_eq!(model.settings.sort, TopSort::WaitsFor);
}

#[test]
fn filter_shows_matching_rows() {
    let (mut model, programs) = two_spaces();
    press_and_answer(&mut model, "/WORKER-2q", &programs);
    assert_eq!(model.filter, "WORKER-2q", "keys are text while the filter is typed");
    assert_eq!(shown(&model), ["space 5"]);
    // It is still requested, so that new matches appear.
    assert_eq!(model.wanted().len(), 1);
    press_and_answer(&mut model, "<back>", &programs);
    assert_eq!(shown(&model), ["space 3", "summary 3", "3.2.1", "space 5"]);
    press(&mut model, "<enter>");
    assert_eq!((&model.mode, model.filter.as_str()), (&Mode::Normal, "WORKER-2"));
    // A discarded input changes nothing. A match of the program's name shows all of its rows.
    press(&mut model, "/x<esc>");
    assert_eq!(model.filter, "WORKER-2");
    press_and_answer(&mut model, "<esc>/prog3<enter>", &programs);
    assert_eq!(shown(&model)[..5], ["space 3", "summary 3", "3.1.1", "3.2.1", "3.7.1"]);
    press_and_answer(&mut model, "<esc>/suspended<enter>", &programs);
    assert_eq!(shown(&model)[2], "3.7.1");
    press_and_answer(&mut model, "<esc>", &programs);
    assert_eq!(shown(&model).len(), 6);
}

/// An address space with two kinds of names.
fn grouped() -> Program {
    let mut program = many(5);
    program.rows[1].name = Some("clock-1".to_owned());
    program.rows[4].name = Some("clock-2".to_owned());
    program
}

#[test]
fn members_of_a_group_are_shown_on_enter() {
    let mut model = model();
    let programs = [grouped()];
    look(&mut model, 1, &programs);
    press_and_answer(&mut model, "t", &programs);
    assert_eq!(shown(&model), ["space 3", "summary 3", "clock 2", "worker 3"]);
    press(&mut model, "<down><down><down><enter>");
    assert_eq!(model.wanted()[0].within, [TopPart::Name("worker".to_owned())]);
    answer(&mut model, &programs);
    assert_eq!(shown(&model)[2..], ["3.0.1", "3.2.1", "3.3.1"]);
    assert_eq!((model.selected, &*model.known[0].levels[0].title), (2, "worker"));
    // Members can be grouped again, in this address space only.
    press_and_answer(&mut model, "tttt", &programs);
    assert_eq!(model.settings.group, TopGrouping::Name);
    assert_eq!(model.wanted()[0].group, TopGrouping::Stack);
    press_and_answer(&mut model, "<enter>", &programs);
    let stack = TopPart::Stack(6);
    assert_eq!(model.wanted()[0].within, [TopPart::Name("worker".to_owned()), stack]);
    assert_eq!(model.known[0].levels[1].title, "worker::wait");
    assert_eq!(shown(&model)[2..], ["3.0.1", "3.2.1", "3.3.1"]);
    // Back to the group from which the members were shown.
    press_and_answer(&mut model, "<back><esc>", &programs);
    assert_eq!(shown(&model), ["space 3", "summary 3", "clock 2", "worker 3"]);
    assert_eq!(model.selected, 3);
    press_and_answer(&mut model, "T", &programs);
    assert_eq!((model.settings.group, model.len()), (TopGrouping::None, 7));
}

#[test]
fn answer_about_other_members_is_dropped() {
    let mut model = model();
    let programs = [grouped()];
    look(&mut model, 1, &programs);
    press_and_answer(&mut model, "t<down><down>", &programs);
    let late = programs[0].listed(&model.wanted()[0]);
    press_and_answer(&mut model, "<enter>", &programs);
    let sight = Sight { number: 3, itself: None, listed: Some(late) };
    model.look(Look { at: Duration::ZERO, sights: Ok(vec![sight]), board: None, whole: false });
    assert_eq!(shown(&model)[2..], ["3.1.1", "3.4.1"]);
}

#[test]
fn older_version_shows_its_list_in_place_of_groups() {
    let mut model = model();
    let programs = [Program { has_counters: false, ..many(2) }];
    look(&mut model, 1, &programs);
    press_and_answer(&mut model, "tt", &programs);
    assert_eq!(shown(&model)[2..], ["3.0.1", "3.1.1"]);
    assert!(!model.shows_groups());
    press(&mut model, "<down><down><enter>");
    assert_eq!(model.len(), 1, "folded, as there is no group");
}

#[test]
fn search_begins_after_the_selected_row() {
    let mut model = model();
    let programs = [many(1000), Program::new(5, 200, &[])];
    look(&mut model, 1, &programs);
    assert_eq!(press(&mut model, "n"), None);
    assert!(model.said.as_ref().is_some_and(|(said, _)| said.contains("no text to search")));
    let wish = press(&mut model, "fR-9<back>90<enter>");
    let Some(Wish::Order(Order::Find(Find { text, lists, from }))) = wish else {
        panic!("{wish:?}")
    };
    assert_eq!((text.as_str(), from), ("R-90", 0));
    assert_eq!(lists.iter().map(|list| list.number).collect::<Vec<_>>(), [3, 5]);
    // The row is far away in a folded address space.
    model.found(Some((3, 900)));
    answer(&mut model, &programs);
    assert_eq!((model.selected, selected(&model).as_str()), (902, "3.900.1"));
    let Some(Wish::Order(Order::Find(find))) = press(&mut model, "n") else { panic!("a search") };
    assert_eq!((find.from, find.text.as_str()), (901, "R-90"));
    model.found(None);
    assert_eq!(model.said, Some(("no row contains \"R-90\"".to_owned(), true)));
    assert_eq!(model.selected, 902);
    // A discarded text leaves the previous one.
    press(&mut model, "fx<esc>");
    assert_eq!((model.search.as_str(), &model.mode), ("R-90", &Mode::Normal));
    // The row was found, and its address space has ended.
    model.found(Some((9, 1)));
    assert!(model.said.as_ref().is_some_and(|(_, refused)| *refused));
}

#[test]
fn commands_apply_to_the_selection() {
    let (mut model, _) = two_spaces();
    assert_eq!(press(&mut model, "s"), None);
    assert!(
        model.said.as_ref().is_some_and(|(_, refused)| *refused),
        "an address space is not a microprocess"
    );
    press(&mut model, "<down><down>");
    let id = model.microprocess().expect("one").id;
    let act = |action| Some(Wish::Order(Order::Act(id, action)));
    assert_eq!(press(&mut model, "s"), act(Action::Suspend));
    assert_eq!(press(&mut model, "r"), act(Action::Resume));
    assert_eq!(press(&mut model, "+"), act(Action::Priority(33)));
    assert_eq!(press(&mut model, "-"), act(Action::Priority(31)));
    assert_eq!(press(&mut model, "b"), Some(Wish::Order(Order::Backtrace(id))));
    assert_eq!(press(&mut model, "e"), Some(Wish::Order(Order::Exact(true))));
    assert_eq!(press(&mut model, "e"), Some(Wish::Order(Order::Exact(false))));
    assert_eq!(press(&mut model, "q"), Some(Wish::End));
}

#[test]
fn panels_are_scrolled_and_closed() {
    let (mut model, programs) = two_spaces();
    press(&mut model, "<end>v");
    assert_eq!(model.mode, Mode::Panel(Panel::Histograms, 0));
    // The folded address space is queried for its histograms, without rows.
    let lists: Vec<_> = model.wanted().iter().map(|list| (list.number, list.limit)).collect();
    assert_eq!(lists, [(3, 80), (5, 0)]);
    press_and_answer(&mut model, "jj<page>", &programs);
    assert_eq!(model.mode, Mode::Panel(Panel::Histograms, 21));
    press(&mut model, "x");
    assert_eq!((&model.mode, model.selected), (&Mode::Normal, 5));
    press(&mut model, "!");
    assert_eq!(model.mode, Mode::Panel(Panel::Violations, 0));
    press(&mut model, "q");
    let id = example("3.1.1", State::Running).id;
    model.show_stack(id, "0: f".to_owned());
    let panel = Panel::Stack("stack of 3.1.1".to_owned(), "0: f".to_owned());
    assert_eq!(model.mode, Mode::Panel(panel, 0));
}

#[test]
fn cancellation_needs_confirmation() {
    let (mut model, _) = two_spaces();
    assert_eq!(press(&mut model, "c"), None);
    assert_eq!(model.mode, Mode::Normal);
    press(&mut model, "<down><down>");
    let id = model.microprocess().expect("one").id;
    for refusal in ["n", "q", "<enter>", "c"] {
        assert_eq!(press(&mut model, &format!("c{refusal}")), None);
        assert_eq!(model.mode, Mode::Normal);
    }
    // The request concerns the microprocess that was selected when the question appeared.
    press(&mut model, "c");
    look(&mut model, 2, &[Program::new(5, 1, &[(9, State::Running)])]);
    assert_eq!(press(&mut model, "y"), Some(Wish::Order(Order::Act(id, Action::Cancel))));
}

#[test]
fn priorities_stay_in_range() {
    for (priority, key, want) in [(63, "+", 63), (0, "-", 0)] {
        let (mut model, mut programs) = two_spaces();
        programs[0].rows[0].priority = priority;
        look(&mut model, 2, &programs);
        press(&mut model, "<down><down>");
        let Some(Wish::Order(Order::Act(_, action))) = press(&mut model, key) else {
            panic!("an action")
        };
        assert_eq!(action, Action::Priority(want));
    }
}

#[test]
fn controls_work_in_every_mode() {
    for before in ["", "/", "f", "?", "v", "<down><down>c"] {
        let (mut model, _) = two_spaces();
        press(&mut model, before);
        for (key, want) in [('c', Wish::End), ('z', Wish::Stop), ('l', Wish::Redraw)] {
            assert_eq!(
                model.key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL)),
                Some(want)
            );
        }
    }
}

#[test]
fn usage_table_replaces_the_microprocess_rows() {
    let (mut model, mut programs) = two_spaces();
    press(&mut model, "u");
    assert_eq!(shown(&model), ["space 3", "summary 3", "space 5"]);
    assert_eq!(model.wanted(), [List { number: 3, usage: true, ..List::default() }]);
    let rows = [
        r#"{"id":"3.vp.0.1","state":"running"}"#,
        r#"{"id":"3.mailbox.7.2","owner":"3.microprocess.4.1","state":"idle","names":["/mailbox/post"]}"#,
    ];
    programs[0].resources = rows.map(|row| serde_json::from_str(row).expect("a row")).into();
    answer(&mut model, &programs);
    assert_eq!(shown(&model), ["space 3", "summary 3", "3.vp.0.1", "3.mailbox.7.2", "space 5"]);
    assert_eq!(model.microprocess(), None);
    for text in ["POST", "3.4.1", "mailbox"] {
        press(&mut model, &format!("/{text}<enter>"));
        assert_eq!(shown(&model), ["space 3", "summary 3", "3.mailbox.7.2", "space 5"]);
        press(&mut model, "<esc>");
    }
    press(&mut model, "fpost<enter>");
    assert_eq!(selected(&model), "3.mailbox.7.2");
    press(&mut model, "n");
    assert_eq!(selected(&model), "3.mailbox.7.2");
    let said = "\"post\" is in row 2 of address space 3; n searches on".to_owned();
    assert_eq!(model.said, Some((said, false)));
    press(&mut model, "fno such<enter>");
    assert!(model.said.as_ref().is_some_and(|(said, _)| said.contains("no row contains")));
    press_and_answer(&mut model, "u", &programs);
    assert_eq!(shown(&model).len(), 6);
}

#[test]
fn silent_address_space_keeps_its_place_and_rows() {
    let (mut model, mut programs) = two_spaces();
    programs[0].trouble = Some("address space 3 is stopped".to_owned());
    look(&mut model, 2, &programs);
    assert_eq!(model.known[0].trouble.as_deref(), Some("address space 3 is stopped"));
    assert_eq!(shown(&model).len(), 6);
    programs[0].trouble = None;
    look(&mut model, 3, &programs);
    assert_eq!(model.known[0].trouble, None);
}

#[test]
fn unreadable_directory_is_reported() {
    let (mut model, _) = two_spaces();
    model.look(Look {
        at: Duration::ZERO,
        sights: Err("no directory".to_owned()),
        board: None,
        whole: true,
    });
    assert_eq!((model.blind.as_deref(), shown(&model).len()), (Some("no directory"), 6));
    look(&mut model, 2, &[]);
    assert_eq!((model.blind.as_deref(), shown(&model).len()), (None, 0));
}

#[test]
fn reused_id_starts_anew() {
    let (mut model, mut programs) = two_spaces();
    let counted = |n| Metric {
        name: "kumihimo_vp_switches_total".to_owned(),
        help: String::new(),
        counter: true,
        samples: vec![(Vec::new(), n)],
    };
    programs.truncate(1);
    for (seconds, switches) in [(2, 100.0), (4, 300.0)] {
        programs[0].metrics = vec![counted(switches)];
        look(&mut model, seconds, &programs);
    }
    assert_eq!((model.known[0].rates.switches, shown(&model).len()), (Some(100.0), 5));
    programs[0] = Program { generation: 2, ..Program::new(3, 0, &[]) };
    programs[0].metrics = vec![counted(900.0)];
    look(&mut model, 5, &programs);
    assert_eq!((model.known[0].rates.switches, shown(&model).len()), (None, 2));
}

#[test]
fn hostile_totals_do_not_overflow() {
    let mut model = model();
    let programs = [many(2)];
    look(&mut model, 1, &programs);
    let list = model.wanted().remove(0);
    let mut answer = programs[0].answer(&list.query(1, true));
    (answer.totals.matching, answer.totals.groups) = (u64::MAX, u64::MAX);
    let listed = Some(Listed { list, rows: Rows::Top(answer) });
    let sight = Sight { number: 3, itself: None, listed };
    model.look(Look { at: Duration::ZERO, sights: Ok(vec![sight]), board: None, whole: false });
    press(&mut model, "<end>");
    assert_eq!(model.selected, u32::MAX as usize + HEADS - 1);
    let list = model.wanted().remove(0);
    assert!(list.skip < u32::MAX && list.limit == 80, "{list:?}");
}
