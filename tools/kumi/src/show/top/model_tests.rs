//! Tests of the model: effects of query results and keys.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use kumihimo_machine::handler::{Action, Metric, Microprocess, Resource, Space, State};

use super::model::{Look, Mode, Model, Row, Sight, Wanted, Wish};
use crate::show::ps::{Key as Sort, example};
use crate::text::short;

/// A reply of an address space with some microprocesses, each given by its slot and state.
pub fn sight(number: u16, living: u64, some: &[(u32, State)]) -> Sight {
    let text = format!(
        r#"{{"id":"{number}.space.0.1","pid":{number}00,"program":"/bin/prog{number}","version":"","vps":2,"living":{living},"queue":"","policy":"","events":"","locking":""}}"#
    );
    let space: Space = serde_json::from_str(&text).expect("a space");
    let rows = some.iter().map(|(slot, state)| Microprocess {
        name: Some(format!("worker-{slot}")),
        ..example(&format!("{number}.{slot}.1"), *state)
    });
    Sight {
        number,
        itself: Some(Ok((space, Vec::new()))),
        microprocesses: Some(rows.collect()),
        resources: None,
    }
}

/// A result of a query of all address spaces, some seconds after the start.
pub fn look(seconds: u64, sights: Vec<Sight>) -> Look {
    Look { at: Duration::from_secs(seconds), sights: Ok(sights), board: None, whole: true }
}

/// Presses keys: characters, and names of keys in angle brackets.
pub fn press(model: &mut Model, keys: &str) -> Option<Wish> {
    let mut wish = None;
    let mut rest = keys;
    while let Some(c) = rest.chars().next() {
        let named = [
            ("<up>", KeyCode::Up),
            ("<down>", KeyCode::Down),
            ("<left>", KeyCode::Left),
            ("<right>", KeyCode::Right),
            ("<enter>", KeyCode::Enter),
            ("<esc>", KeyCode::Esc),
            ("<back>", KeyCode::Backspace),
            ("<end>", KeyCode::End),
            ("<page>", KeyCode::PageDown),
        ];
        let (code, used) = match named.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, code)) => (*code, name.len()),
            None => (KeyCode::Char(c), c.len_utf8()),
        };
        rest = &rest[used..];
        wish = model.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    wish
}

fn shown(model: &Model) -> Vec<String> {
    let row = |row: &Row| match *row {
        Row::Space(at) => format!("space {}", model.known[at].number),
        Row::Summary(at) => format!("summary {}", model.known[at].number),
        Row::Microprocess(at, one) => short(model.known[at].microprocesses[one].id).to_string(),
        Row::Resource(at, one) => model.known[at].resources[one].id.to_string(),
    };
    model.rows.iter().map(row).collect()
}

fn two_spaces() -> Model {
    let mut model = Model::default();
    model.fit(20);
    model.look(look(
        1,
        vec![
            sight(3, 3, &[(1, State::Running), (2, State::Waiting), (7, State::Suspended)]),
            sight(5, 1000, &[]),
        ],
    ));
    model
}

#[test]
fn large_address_spaces_start_folded() {
    let model = two_spaces();
    assert_eq!(shown(&model), ["space 3", "summary 3", "3.1.1", "3.2.1", "3.7.1", "space 5"]);
    assert_eq!(model.known[0].counts(), [1, 0, 1, 0, 1]);
    assert_eq!(model.wanted(), Wanted { lists: vec![3], usage: false });
}

#[test]
fn folding_from_a_row_within_chooses_the_address_space() {
    let mut model = two_spaces();
    press(&mut model, "<down><down><down><left>");
    assert_eq!((shown(&model).len(), model.selected), (2, 0));
    assert_eq!(model.wanted(), Wanted::default());
    press(&mut model, "<down><enter>");
    assert_eq!(shown(&model), ["space 3", "space 5", "summary 5"]);
    assert_eq!((model.selected, model.wanted().lists), (1, vec![5]));
    // Manual folding and unfolding persists over the next query.
    model.look(look(
        2,
        vec![sight(3, 3, &[(1, State::Running)]), sight(5, 1000, &[(4, State::Blocked)])],
    ));
    assert_eq!(shown(&model), ["space 3", "space 5", "summary 5", "5.4.1"]);
}

#[test]
fn selection_follows_its_row() {
    let mut model = two_spaces();
    press(&mut model, "<down><down><down>");
    assert_eq!(short(model.microprocess().expect("one").id).to_string(), "3.2.1");
    let more = [(0, State::Running), (1, State::Running), (2, State::Blocked)];
    model.look(look(2, vec![sight(1, 0, &[]), sight(3, 3, &more), sight(5, 1000, &[])]));
    assert_eq!(short(model.microprocess().expect("one").id).to_string(), "3.2.1");
    // The microprocess ends: the row at its position is selected, or the last one.
    model.look(look(3, vec![sight(3, 1, &[(0, State::Running)])]));
    assert_eq!((shown(&model).len(), model.selected), (3, 2));
    model.look(look(4, vec![]));
    assert_eq!((shown(&model).len(), model.selected, model.microprocess()), (0, 0, None));
    assert_eq!(press(&mut model, "<down><enter><left>s"), None);
}

#[test]
fn rows_outside_the_screen_are_not_requested() {
    let mut model = Model::default();
    model.fit(4);
    let some: Vec<(u32, State)> = (0..10).map(|slot| (slot, State::Waiting)).collect();
    model.look(look(1, vec![sight(3, 10, &some), sight(5, 10, &some)]));
    assert_eq!((model.offset, model.wanted().lists), (0, vec![3]));
    press(&mut model, "<end>");
    assert_eq!((model.selected, model.offset, model.wanted().lists), (23, 20, vec![5]));
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
fn rows_sort_by_every_column_in_both_directions() {
    let mut model = two_spaces();
    assert_eq!(model.sort, Sort::Id);
    press(&mut model, ">>");
    assert_eq!(model.sort, Sort::State);
    press(&mut model, "i");
    assert_eq!(shown(&model)[2..5], ["3.7.1", "3.2.1", "3.1.1"]);
    press(&mut model, "i<<");
    assert_eq!((model.sort, &shown(&model)[2]), (Sort::Id, &"3.1.1".to_owned()));
    press(&mut model, "<");
    assert_eq!(model.sort, Sort::WaitsFor);
    press(&mut model, ">>>>>>>");
    assert_eq!(model.sort, Sort::WaitsFor);
}

#[test]
fn filter_shows_matching_rows() {
    let mut model = two_spaces();
    press(&mut model, "/WORKER-2q");
    assert_eq!(model.filter, "WORKER-2q", "keys are text while the filter is typed");
    assert!(!shown(&model).iter().any(|row| row.starts_with("3.")));
    press(&mut model, "<back>");
    assert_eq!(shown(&model), ["space 3", "summary 3", "3.2.1", "space 5"]);
    press(&mut model, "<enter>");
    assert_eq!((&model.mode, model.filter.as_str()), (&Mode::Normal, "WORKER-2"));
    // A discarded input changes nothing. A match of the program's name shows all of its rows.
    press(&mut model, "/x<esc>");
    assert_eq!(model.filter, "WORKER-2");
    press(&mut model, "<esc>/prog3<enter>");
    assert_eq!(shown(&model)[..5], ["space 3", "summary 3", "3.1.1", "3.2.1", "3.7.1"]);
    press(&mut model, "<esc>/suspended<enter>");
    assert_eq!(shown(&model)[2], "3.7.1");
    press(&mut model, "<esc>");
    assert_eq!(shown(&model).len(), 6);
}

#[test]
fn commands_apply_to_the_selection() {
    let mut model = two_spaces();
    assert_eq!(press(&mut model, "s"), None);
    assert!(
        model.said.as_ref().is_some_and(|(_, refused)| *refused),
        "an address space is not a microprocess"
    );
    press(&mut model, "<down><down>");
    let id = model.microprocess().expect("one").id;
    assert_eq!(press(&mut model, "s"), Some(Wish::Act(id, Action::Suspend)));
    assert_eq!(press(&mut model, "r"), Some(Wish::Act(id, Action::Resume)));
    assert_eq!(press(&mut model, "+"), Some(Wish::Act(id, Action::Priority(33))));
    assert_eq!(press(&mut model, "-"), Some(Wish::Act(id, Action::Priority(31))));
    assert_eq!(press(&mut model, "q"), Some(Wish::End));
}

#[test]
fn cancellation_needs_confirmation() {
    let mut model = two_spaces();
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
    model.look(look(2, vec![sight(5, 1, &[(9, State::Running)])]));
    assert_eq!(press(&mut model, "y"), Some(Wish::Act(id, Action::Cancel)));
}

#[test]
fn priorities_stay_in_range() {
    let mut model = two_spaces();
    press(&mut model, "<down><down>");
    for (priority, key, want) in [(63, "+", 63), (0, "-", 0)] {
        model.known[0].microprocesses[0].priority = priority;
        let wish = press(&mut model, key);
        assert!(matches!(wish, Some(Wish::Act(_, Action::Priority(n))) if n == want), "{wish:?}");
    }
}

#[test]
fn controls_work_in_every_mode() {
    for before in ["", "/", "?", "<down><down>c"] {
        let mut model = two_spaces();
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
    let mut model = two_spaces();
    press(&mut model, "u");
    assert_eq!(shown(&model), ["space 3", "summary 3", "space 5"]);
    assert_eq!(model.wanted(), Wanted { lists: vec![3], usage: true });
    let rows = [
        r#"{"id":"3.vp.0.1","state":"running"}"#,
        r#"{"id":"3.mailbox.7.2","owner":"3.microprocess.4.1","state":"idle","names":["/mailbox/post"]}"#,
    ];
    let resources: Vec<Resource> = rows.map(|row| serde_json::from_str(row).expect("a row")).into();
    let only = Sight { number: 3, itself: None, microprocesses: None, resources: Some(resources) };
    model.look(Look { at: Duration::ZERO, sights: Ok(vec![only]), board: None, whole: false });
    assert_eq!(shown(&model), ["space 3", "summary 3", "3.vp.0.1", "3.mailbox.7.2", "space 5"]);
    assert_eq!(model.microprocess(), None);
    for text in ["POST", "3.4.1", "mailbox"] {
        press(&mut model, &format!("/{text}<enter>"));
        assert_eq!(shown(&model), ["space 3", "summary 3", "3.mailbox.7.2", "space 5"]);
        press(&mut model, "<esc>");
    }
    press(&mut model, "u");
    assert_eq!(shown(&model).len(), 6);
}

#[test]
fn silent_address_space_keeps_its_place_and_rows() {
    let mut model = two_spaces();
    let silent = Sight {
        number: 3,
        itself: Some(Err("address space 3 is stopped".to_owned())),
        microprocesses: None,
        resources: None,
    };
    model.look(look(2, vec![silent, sight(5, 1000, &[])]));
    assert_eq!(model.known[0].trouble.as_deref(), Some("address space 3 is stopped"));
    assert_eq!(shown(&model).len(), 6);
    model.look(look(3, vec![sight(3, 3, &[(1, State::Running)]), sight(5, 1000, &[])]));
    assert_eq!(model.known[0].trouble, None);
}

#[test]
fn unreadable_directory_is_reported() {
    let mut model = two_spaces();
    model.look(Look {
        at: Duration::ZERO,
        sights: Err("no directory".to_owned()),
        board: None,
        whole: true,
    });
    assert_eq!((model.blind.as_deref(), shown(&model).len()), (Some("no directory"), 6));
    model.look(look(2, vec![]));
    assert_eq!((model.blind.as_deref(), shown(&model).len()), (None, 0));
}

#[test]
fn reused_id_starts_anew() {
    let mut model = two_spaces();
    let counted = |n| Metric {
        name: "kumihimo_vp_switches_total".to_owned(),
        help: String::new(),
        counter: true,
        samples: vec![(Vec::new(), n)],
    };
    let with = |generation: u32, switches: f64| {
        let mut sight = sight(3, 3, &[]);
        sight.microprocesses = None;
        if let Some(Ok((space, metrics))) = &mut sight.itself {
            space.id = format!("3.space.0.{generation}").parse().expect("an id");
            metrics.push(counted(switches));
        }
        sight
    };
    model.look(look(2, vec![with(1, 100.0)]));
    model.look(look(4, vec![with(1, 300.0)]));
    assert_eq!((model.known[0].rates.switches, shown(&model).len()), (Some(100.0), 5));
    model.look(look(5, vec![with(2, 900.0)]));
    assert_eq!((model.known[0].rates.switches, shown(&model).len()), (None, 2));
}
