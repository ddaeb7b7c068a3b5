//! Tests of the view, drawn on a text screen.

use std::time::Duration;

use kumihimo_arbiter::board::overrides::Offender;
use kumihimo_machine::handler::{Metric, State};
use kumihimo_machine::top::{TopGroup, TopSort, TopVp};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

use super::model::Model;
use super::simulated::{Program, answer, look, model, press};
use super::view::draw;
use crate::show::board::{Seen, example};

fn terminal(width: u16, height: u16) -> Terminal<TestBackend> {
    Terminal::new(TestBackend::new(width, height)).expect("a screen")
}

fn lines(terminal: &mut Terminal<TestBackend>, model: &mut Model) -> Vec<String> {
    terminal.draw(|frame| draw(frame, model)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| line(y).trim_end().to_owned()).collect()
}

fn counter(name: &str, samples: &[(&str, f64)]) -> Metric {
    let labels =
        |vp: &str| if vp.is_empty() { vec![] } else { vec![("vp".to_owned(), vp.to_owned())] };
    let samples = samples.iter().map(|(vp, value)| (labels(vp), *value)).collect();
    Metric { name: name.to_owned(), help: String::new(), counter: true, samples }
}

fn programs(n: f64) -> Vec<Program> {
    let three = [(1, State::Running), (2, State::Waiting), (7, State::Suspended)];
    let mut one = Program::new(3, 3, &three);
    one.rows[1].waits_for = Some("mutex 0x7f00, held by 3.1.1".to_owned());
    one.rows[1].inherited = Some(40);
    one.rows[0].kernel_thread = Some(4711);
    one.metrics = vec![
        counter("kumihimo_vp_switches_total", &[("0", n), ("1", n / 10.0)]),
        counter("kumihimo_vp_cpu_seconds_total", &[("0", n / 12_345.0), ("1", n / 24_690.0)]),
        counter("kumihimo_spawned_total", &[("", n / 1000.0)]),
        counter("kumihimo_misbehaved_total", &[("", 1.0)]),
        counter("kumihimo_control_refused_total", &[("", 2.0)]),
    ];
    vec![one, Program::new(5, 200_000, &[])]
}

fn busy() -> Model {
    let mut model = model();
    look(&mut model, 1, &programs(0.0));
    look(&mut model, 2, &programs(12_345.0));
    // The counters of one microprocess.
    let (_, answer) = model.known[0].answer.as_mut().expect("answered");
    let row = &mut answer.rows[1];
    (row.cpu, row.switch_rate) = (Some(0.125), Some(1_234.0));
    (row.waiting_ns, row.stack_bytes) = (Some(2_500_000), Some(640));
    model
}

#[test]
fn view_fits_80_by_24() {
    let mut model = busy();
    let lines = lines(&mut terminal(80, 24), &mut model);
    let want = [
        "kumi top  2 address spaces  200003 microprocesses  13.6k switches/s",
        "SPACE  PROGRAM      PID     VPS CPU   LIVING  SWITCH/s SPAWN/s BATCH/s",
        "  ID          NAME           CPU%  STATE     PRI   VP  FOR    WAITS-FOR",
        "- 3    prog3        300     2   150%  3       13.6k    12      -       1 misbeha",
        "  1 running, 1 waiting, 1 suspended, VP 0 12.3k/s, VP 1 1.2k/s  1 misbehaved, 2",
        "  3.1.1       worker-1       -     running   32    0   -",
        "  3.2.1       worker-2       12.5  waiting   32+40 0   2.5ms  mutex 0x7f00, held",
        "  3.7.1       worker-7       -     suspended 32    0   -",
        "+ 5    prog5        500     2   -     200000  -        -       -",
    ];
    assert_eq!(lines[..want.len()], want, "{lines:#?}");
    assert!(lines[want.len()..23].iter().all(String::is_empty), "{lines:#?}");
    for key in ["q end", "? help", "/ filter", "f find", "t group", "e exact", "src+- steer"] {
        assert!(lines[23].contains(key), "{}", lines[23]);
    }
}

#[test]
fn wide_screen_has_every_counter() {
    let mut model = busy();
    let drawn = lines(&mut terminal(120, 24), &mut model);
    for (at, cells) in [
        (2, "ID NAME CPU% STATE PRI VP SWITCH/s STACK FOR WAITS-FOR"),
        (6, "3.2.1 worker-2 12.5 waiting 32+40 0 1.2k 640 2.5ms mutex 0x7f00, held by 3.1.1"),
    ] {
        assert_eq!(drawn[at].split_whitespace().collect::<Vec<_>>().join(" "), cells);
    }
    // A narrow screen has the column of the sort key.
    model.settings.sort = TopSort::Switches;
    model.settings.backwards = true;
    let drawn = lines(&mut terminal(60, 24), &mut model);
    assert!(drawn[2].contains("SWITCH/s") && !drawn[2].contains("PRI"), "{drawn:#?}");
}

#[test]
fn suspended_and_faulty_rows_are_highlighted() {
    let mut model = busy();
    press(&mut model, "j");
    let mut terminal = terminal(120, 24);
    let lines = lines(&mut terminal, &mut model);
    assert!(
        lines[3].ends_with("1 misbehaved, 2 refused")
            && lines[4].ends_with("1 misbehaved, 2 refused"),
        "{lines:#?}"
    );
    let buffer = terminal.backend().buffer();
    let wrong = lines[3].find("1 misbehaved").expect("said") as u16;
    assert_eq!(buffer[(wrong, 3)].fg, Color::Red);
    assert_eq!(buffer[(2, 7)].fg, Color::Yellow, "suspended");
    // The selected row is highlighted over the whole width.
    for (x, y, chosen) in [(0, 4, true), (119, 4, true), (0, 5, false)] {
        assert_eq!(buffer[(x, y)].modifier.contains(Modifier::REVERSED), chosen, "{x} {y}");
    }
}

#[test]
fn rows_that_are_not_known_yet_are_dots() {
    let mut model = model();
    let rows: Vec<(u32, State)> = (0..90).map(|slot| (slot, State::Waiting)).collect();
    look(&mut model, 1, &[Program::new(3, 90, &rows)]);
    press(&mut model, "G");
    let mut terminal = terminal(80, 24);
    let drawn = lines(&mut terminal, &mut model);
    assert!(drawn[20].ends_with("waiting   32    0   -") || drawn[20] == "  ...", "{drawn:#?}");
    assert_eq!(drawn[21], "  ...");
    answer(&mut model, &[Program::new(3, 90, &rows)]);
    assert!(lines(&mut terminal, &mut model)[21].starts_with("  3.89.1 "));
}

fn group(what: &str, count: u64, depth: u16) -> TopGroup {
    let what = what.to_owned();
    TopGroup { what, count, cpu: Some(0.5), waiting_ns: 1_500_000_000, depth, stack: None }
}

#[test]
fn tree_of_names_is_indented() {
    let mut model = busy();
    press(&mut model, "tt");
    answer(&mut model, &programs(0.0));
    let (_, answered) = model.known[0].answer.as_mut().expect("answered");
    answered.groups = vec![group("http", 12, 0), group("http/conn\x1b", 11, 1), group("", 2, 0)];
    answered.totals.groups = 3;
    let drawn = lines(&mut terminal(80, 24), &mut model);
    let want = [
        "  COUNT    CPU%    WAITED   GROUP",
        "- 3    prog3        300     2   150%  3       13.6k    12      -       1 misbeha",
        "  3 groups, 1 running, 1 waiting, 1 suspended, VP 0 12.3k/s, VP 1 1.2k/s  1 misb",
        "  12       50.0    1.5s     http",
        "  11       50.0    1.5s       conn\\u{1b}",
        "  2        50.0    1.5s     -",
    ];
    assert_eq!(drawn[2..8], want, "{drawn:#?}");
    assert!(drawn[0].ends_with("  tree"), "{drawn:#?}");
}

#[test]
fn stack_of_the_selected_group_is_shown_below() {
    let mut model = busy();
    press(&mut model, "T");
    answer(&mut model, &programs(0.0));
    press(&mut model, "jj");
    let mut terminal = terminal(80, 24);
    let drawn = lines(&mut terminal, &mut model);
    assert_eq!(drawn[5], "  3        50.0    1ns      worker::wait", "{drawn:#?}");
    let want = [
        "3 at this place; b shows the whole stack",
        "     0: worker::wait",
        "           at a.rs:1",
        "     1: main",
    ];
    assert_eq!(drawn[18..22], want, "{drawn:#?}");
    press(&mut model, "b");
    let drawn = lines(&mut terminal, &mut model);
    assert_eq!(drawn[3], "stack of 3 microprocesses");
    assert_eq!(drawn[4..7], want[1..]);
    press(&mut model, "x<enter>");
    answer(&mut model, &programs(0.0));
    let drawn = lines(&mut terminal, &mut model);
    assert!(drawn[4].starts_with("  in worker::wait (Esc leaves), 1 running"), "{drawn:#?}");
    assert!(drawn[5].starts_with("  3.1.1"), "{drawn:#?}");
}

#[test]
fn histograms_cover_the_rows() {
    let mut model = busy();
    let (_, answered) = model.known[0].answer.as_mut().expect("answered");
    let mut wake_latency = vec![0; 32];
    wake_latency[10] = 7;
    answered.totals.vps = vec![TopVp { wake_latency, queue_lengths: vec![0, 3] }];
    press(&mut model, "v");
    let mut terminal = terminal(80, 24);
    let drawn = lines(&mut terminal, &mut model);
    let bar = "#".repeat(40);
    let want = [
        "address space 3, since its start".to_owned(),
        "VP 0: time from wake-up to run".to_owned(),
        format!("  <   1.0us         7 {bar}"),
        "VP 0: microprocesses in the run queue".to_owned(),
        format!("  <       2         3 {bar}"),
    ];
    assert_eq!(drawn[3..8], want, "{drawn:#?}");
    press(&mut model, "xGv");
    assert_eq!(lines(&mut terminal, &mut model)[4], "looking ...");
}

fn with_board(model: &mut Model, board: &Seen) {
    model.board = Some(board.clone());
}

#[test]
fn violations_are_counted_and_shown_on_demand() {
    let mut model = busy();
    let mut board = example();
    // The address space of one row is also at the board.
    board.spaces[1].pid = 300;
    with_board(&mut model, &board);
    let mut terminal = terminal(120, 24);
    let drawn = lines(&mut terminal, &mut model);
    assert!(drawn[0].ends_with("13.6k switches/s  1 violation: !"), "{drawn:#?}");
    assert!(drawn[1].starts_with("SPACE") && drawn[3].starts_with("- 3"), "{drawn:#?}");
    assert!(drawn[4].contains("share 50%,hard, 2 levels down"), "{drawn:#?}");
    let place = drawn[0].find("1 violation").expect("said") as u16;
    assert_eq!(terminal.backend().buffer()[(place, 0)].fg, Color::Red, "it is recent");
    press(&mut model, "!");
    let drawn = lines(&mut terminal, &mut model);
    assert_eq!(drawn[3], "gone (pid 99) ended while it held a core, 3 times, 61 s ago");
    assert_eq!(terminal.backend().buffer()[(0, 3)].fg, Color::Red);
    press(&mut model, "x");
    // Old ones are not red, and all are reached by scrolling.
    let one = board.offenders[0].clone();
    let old = |n| Offender {
        name: format!("name-{n}\x1b"),
        ago: Duration::from_secs(301),
        ..one.clone()
    };
    board.offenders = (0..40).map(old).collect();
    with_board(&mut model, &board);
    let drawn = lines(&mut terminal, &mut model);
    let place = drawn[0].find("40 violations: !").expect("said") as u16;
    assert_eq!(terminal.backend().buffer()[(place, 0)].fg, Color::Reset);
    press(&mut model, "!G");
    let drawn = lines(&mut terminal, &mut model);
    assert!(drawn[21].starts_with("name-39\\u{1b} (pid 99)"), "{drawn:#?}");
    press(&mut model, "k");
    let drawn = lines(&mut terminal, &mut model);
    assert!(drawn[21].starts_with("name-38\\u{1b} (pid 99)"), "{drawn:#?}");
}

#[test]
fn every_size_is_drawn_or_reported_as_too_small() {
    for keys in ["", "v", "?", "Tjj"] {
        let mut model = busy();
        press(&mut model, keys);
        answer(&mut model, &programs(0.0));
        for width in [0, 1, 2, 40, 59, 60, 61, 80, 500] {
            for height in [0, 1, 2, 9, 10, 11, 24, 200] {
                let lines = lines(&mut terminal(width, height), &mut model);
                let fits = width >= 60 && height >= 10;
                assert_eq!(lines.len(), usize::from(height));
                assert_eq!(
                    lines.first().is_some_and(|line| line.starts_with("kumi top")),
                    fits,
                    "{width}x{height}"
                );
                if width >= 40 && height > 0 && !fits {
                    assert_eq!(lines[0], format!("too small: {width}x{height}, 60x10 needed"));
                }
            }
        }
    }
}

#[test]
fn title_shows_the_filter_and_last_line_the_message() {
    let mut model = busy();
    let mut terminal = terminal(100, 24);
    press(&mut model, "/mutex");
    assert!(lines(&mut terminal, &mut model)[22].starts_with("filter: mutex_"));
    press(&mut model, "<enter>");
    answer(&mut model, &programs(0.0));
    let drawn = lines(&mut terminal, &mut model);
    assert!(drawn[0].ends_with("filter: mutex") && drawn[5].starts_with("  3.2.1"), "{drawn:#?}");
    assert!(drawn[4].starts_with("  1 match, 1 waiting"), "{drawn:#?}");
    press(&mut model, "<esc>/no such<enter>");
    answer(&mut model, &programs(0.0));
    assert!(lines(&mut terminal, &mut model)[3].starts_with("+ 5"));
    press(&mut model, "<esc>fbc");
    answer(&mut model, &programs(0.0));
    assert!(lines(&mut terminal, &mut model)[22].starts_with("find: bc_"));
    press(&mut model, "<esc>");
    model.told("3.1.1: suspended".to_owned(), false);
    assert_eq!(lines(&mut terminal, &mut model)[22], "3.1.1: suspended");
    press(&mut model, "eg<down><down>c");
    let drawn = lines(&mut terminal, &mut model);
    assert!(drawn[22].starts_with("cancel 3.1.1? y confirms"), "{drawn:#?}");
    assert!(drawn[0].ends_with("  exact"), "{drawn:#?}");
}

#[test]
fn help_explains_the_keys_at_80_by_24() {
    let mut model = busy();
    press(&mut model, "?");
    let mut narrow = terminal(80, 24);
    let first = lines(&mut narrow, &mut model);
    assert!(first[3].starts_with("up down PgUp"), "{first:#?}");
    assert!(first[22].starts_with("up and down scroll; any other key returns"), "{first:#?}");
    press(&mut model, "G");
    let last = lines(&mut narrow, &mut model);
    assert!(last[21].ends_with("~/.config."), "{last:#?}");
    press(&mut model, "g");
    let all = lines(&mut terminal(200, 80), &mut model);
    let help: Vec<&String> = all[3..].iter().take_while(|line| !line.contains("scroll")).collect();
    assert!(help.iter().all(|line| line.len() <= 80), "nothing is truncated");
    press(&mut model, "x");
    assert!(lines(&mut terminal(80, 24), &mut model)[3].starts_with("- 3"));
}

#[test]
fn names_cannot_control_the_terminal() {
    let mut model = model();
    let mut one = Program::new(3, 2, &[(1, State::Running), (2, State::Running)]);
    one.rows[0].name = Some("\x1b[2J\n".to_owned());
    one.rows[1].name = Some("\u{7e54}".repeat(50));
    look(&mut model, 1, &[one]);
    let drawn = lines(&mut terminal(80, 24), &mut model);
    assert!(drawn[5].contains("\\u{1b}[2J\\n") && drawn[5].contains("running"), "{drawn:#?}");
    assert!(drawn[6].contains("running"), "{drawn:#?}");
}

#[test]
fn empty_view_is_explained() {
    let mut model = model();
    let mut terminal = terminal(100, 24);
    assert_eq!(lines(&mut terminal, &mut model)[3], "looking ...");
    look(&mut model, 1, &[]);
    let drawn = lines(&mut terminal, &mut model);
    assert!(drawn[3].starts_with("no address space of yours runs"));
    assert_eq!(drawn[0], "kumi top  0 address spaces  0 microprocesses  - switches/s");
    model.is_narrow = true;
    assert!(lines(&mut terminal, &mut model)[3].contains("have ended"));
}

#[test]
fn silent_address_space_shows_the_reason() {
    let mut model = busy();
    let mut all = programs(0.0);
    all[0].trouble =
        Some("address space 3 is stopped and cannot answer: kill -CONT 300".to_owned());
    look(&mut model, 3, &all);
    let drawn = lines(&mut terminal(100, 24), &mut model);
    assert!(drawn[3].starts_with("- 3    prog3        address space 3 is stopped"), "{drawn:#?}");
}

#[test]
fn older_address_space_shows_what_is_missing() {
    let mut model = busy();
    let mut all = programs(0.0);
    all[0].has_counters = false;
    look(&mut model, 4, &all);
    press(&mut model, "t");
    answer(&mut model, &all);
    let drawn = lines(&mut terminal(100, 24), &mut model);
    assert!(
        drawn[4].contains("1 suspended, no counters and no groups in Kumihimo 0.1.0"),
        "{drawn:#?}"
    );
    assert!(drawn[2].starts_with("  ID") && drawn[5].starts_with("  3.1.1"), "{drawn:#?}");
}
