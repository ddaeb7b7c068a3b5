//! Tests of the view, drawn on a text screen.

use std::time::Duration;

use kumihimo_arbiter::board::overrides::Offender;
use kumihimo_machine::handler::{Metric, State};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

use super::model::Model;
use super::model_tests::{look, press, sight};
use super::view::draw;
use crate::show::board::example;

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

fn busy() -> Model {
    let mut model = Model::default();
    for (seconds, n) in [(1, 0.0), (2, 12_345.0)] {
        let mut one =
            sight(3, 3, &[(1, State::Running), (2, State::Waiting), (7, State::Suspended)]);
        let rows = one.microprocesses.as_mut().expect("some");
        rows[1].waits_for = Some("mutex 0x7f00, held by 3.1.1".to_owned());
        rows[1].inherited = Some(40);
        rows[0].kernel_thread = Some(4711);
        let Some(Ok((_, metrics))) = &mut one.itself else { panic!("a sight") };
        metrics.push(counter("kumihimo_vp_switches_total", &[("0", n), ("1", n / 10.0)]));
        metrics.push(counter(
            "kumihimo_vp_cpu_seconds_total",
            &[("0", n / 12_345.0), ("1", n / 24_690.0)],
        ));
        metrics.push(counter("kumihimo_spawned_total", &[("", n / 1000.0)]));
        metrics.push(counter("kumihimo_misbehaved_total", &[("", 1.0)]));
        metrics.push(counter("kumihimo_control_refused_total", &[("", 2.0)]));
        model.look(look(seconds, vec![one, sight(5, 200_000, &[])]));
    }
    model
}

#[test]
fn view_fits_80_by_24() {
    let mut model = busy();
    let lines = lines(&mut terminal(80, 24), &mut model);
    let want = [
        "kumi top  2 address spaces  200003 microprocesses  13.6k switches/s",
        "SPACE  PROGRAM      PID     VPS CPU   LIVING  SWITCH/s SPAWN/s BATCH/s",
        "  ID               NAME           STATE      PRI   VP  THREAD   WAITS-FOR",
        "- 3    prog3        300     2   150%  3       13.6k    12      -       1 misbeha",
        "  1 running, 1 waiting, 1 suspended, VP 0 12.3k/s, VP 1 1.2k/s  1 misbehaved, 2",
        "  3.1.1            worker-1       running    32    0   4711",
        "  3.2.1            worker-2       waiting    32+40 0   -        mutex 0x7f00, he",
        "  3.7.1            worker-7       suspended  32    0   -",
        "+ 5    prog5        500     2   -     200000  -        -       -",
    ];
    assert_eq!(lines[..want.len()], want, "{lines:#?}");
    assert!(lines[want.len()..23].iter().all(String::is_empty), "{lines:#?}");
    for key in
        ["q end", "? help", "/ find", "u used", "s suspend", "r resume", "c cancel", "+- pri"]
    {
        assert!(lines[23].contains(key), "{}", lines[23]);
    }
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
fn offender_at_the_board_is_named() {
    let mut model = busy();
    let mut board = example();
    // The address space of one row is also at the board.
    board.spaces[1].pid = 300;
    let mut seen = look(3, vec![sight(3, 1, &[(1, State::Running)])]);
    seen.board = Some(board.clone());
    model.look(seen);
    let mut terminal = terminal(120, 24);
    let drawn = lines(&mut terminal, &mut model);
    assert_eq!(drawn[1], "gone (pid 99) ended while it held a core, 3 times, 61 s ago");
    assert!(drawn[2].starts_with("SPACE") && drawn[4].starts_with("- 3"), "{drawn:#?}");
    assert!(drawn[5].contains("share 50%,hard, 2 levels down"), "{drawn:#?}");
    assert_eq!(terminal.backend().buffer()[(0, 1)].fg, Color::Red);
    // Only the latest violations fit, and old ones are not shown.
    let one = board.offenders[0].clone();
    board.offenders =
        (0..5).map(|n| Offender { name: format!("name-{n}\x1b"), ..one.clone() }).collect();
    board.offenders.push(Offender { ago: Duration::from_secs(301), ..one });
    let mut seen = look(4, vec![]);
    seen.board = Some(board);
    model.look(seen);
    let drawn = lines(&mut terminal, &mut model);
    assert!(drawn[1].starts_with("name-0\\u{1b}") && drawn[2].starts_with("name-1"), "{drawn:#?}");
    assert!(drawn[3] == "and 3 more: kumi board" && drawn[4].starts_with("SPACE"), "{drawn:#?}");
}

#[test]
fn every_size_is_drawn_or_reported_as_too_small() {
    let mut model = busy();
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

#[test]
fn title_shows_the_filter_and_last_line_the_message() {
    let mut model = busy();
    let mut terminal = terminal(100, 24);
    press(&mut model, "/mutex");
    assert!(lines(&mut terminal, &mut model)[22].starts_with("filter: mutex_"));
    press(&mut model, "<enter>");
    let drawn = lines(&mut terminal, &mut model);
    assert!(drawn[0].ends_with("filter: mutex") && drawn[5].starts_with("  3.2.1"), "{drawn:#?}");
    press(&mut model, "<esc>/no such<enter>");
    assert!(lines(&mut terminal, &mut model)[3].starts_with("+ 5"));
    press(&mut model, "<esc>");
    model.told("3.1.1: suspended".to_owned(), false);
    assert_eq!(lines(&mut terminal, &mut model)[22], "3.1.1: suspended");
    press(&mut model, "g<down><down>c");
    assert!(lines(&mut terminal, &mut model)[22].starts_with("cancel 3.1.1? y confirms"));
}

#[test]
fn help_explains_the_keys_at_80_by_24() {
    let mut model = busy();
    press(&mut model, "?");
    let drawn = lines(&mut terminal(80, 24), &mut model);
    assert!(
        drawn[3].starts_with("up down PgUp") && drawn[21].starts_with("any key returns"),
        "{drawn:#?}"
    );
    let wide = lines(&mut terminal(200, 24), &mut model);
    assert_eq!(drawn[3..22], wide[3..22], "nothing is truncated");
    press(&mut model, "x");
    assert!(lines(&mut terminal(80, 24), &mut model)[3].starts_with("- 3"));
}

#[test]
fn names_cannot_control_the_terminal() {
    let mut model = Model::default();
    let mut one = sight(3, 2, &[(1, State::Running), (2, State::Running)]);
    let rows = one.microprocesses.as_mut().expect("some");
    rows[0].name = Some("\x1b[2J\n".to_owned());
    rows[1].name = Some("\u{7e54}".repeat(50));
    model.look(look(1, vec![one]));
    let drawn = lines(&mut terminal(80, 24), &mut model);
    assert!(drawn[5].contains("\\u{1b}[2J\\n") && drawn[5].contains("running"), "{drawn:#?}");
    assert!(drawn[6].contains("running"), "{drawn:#?}");
}

#[test]
fn empty_view_is_explained() {
    let mut model = Model::default();
    let mut terminal = terminal(100, 24);
    assert_eq!(lines(&mut terminal, &mut model)[3], "looking ...");
    model.look(look(1, vec![]));
    let drawn = lines(&mut terminal, &mut model);
    assert!(drawn[3].starts_with("no address space of yours runs"));
    assert_eq!(drawn[0], "kumi top  0 address spaces  0 microprocesses  - switches/s");
}

#[test]
fn silent_address_space_shows_the_reason() {
    let mut model = busy();
    let mut silent = sight(3, 0, &[]);
    silent.itself =
        Some(Err("address space 3 is stopped and cannot answer: kill -CONT 300".to_owned()));
    silent.microprocesses = None;
    model.look(look(3, vec![silent, sight(5, 1, &[])]));
    let drawn = lines(&mut terminal(100, 24), &mut model);
    assert!(drawn[3].starts_with("- 3    prog3        address space 3 is stopped"), "{drawn:#?}");
}
