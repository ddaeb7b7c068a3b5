//! Tests of `kumi top` in a pseudo-terminal.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use kumihimo_machine::handler::{Action, Resource, State};
use kumihimo_resource::id::{Id, Kind, Serial};
use rustix::process::Signal;

use super::double::{Double, Folder};
use super::pty::{Controlling, Pty};

/// An address space with two microprocesses.
fn two(folder: &Folder) -> Double {
    folder.space_with(|table| {
        table.add(1, "worker", State::Running);
        table.add(2, "reader", State::Waiting);
    })
}

fn top(folder: &Folder) -> Pty {
    Pty::start(folder, &["top", "--every", "100"], (80, 24), Controlling::Yes)
}

fn ends_well(mut pty: Pty) {
    assert!(pty.is_taken());
    pty.send("q");
    assert_eq!(pty.wait().code(), Some(0));
    assert!(
        !pty.is_taken() && pty.is_cooked() && !pty.screen().contains("kumi top"),
        "{}",
        pty.screen()
    );
}

#[test]
fn top_shows_address_spaces_start_and_end() {
    let folder = Folder::new("top-shows");
    let one = two(&folder);
    let a = one.table.number;
    let mut pty = top(&folder);
    pty.until_shown("2 microprocesses");
    pty.until_shown(&format!("{a}.2.1       reader"));
    one.table.add(3, "newcomer", State::Suspended);
    pty.until(|screen| screen.contains("newcomer") && screen.contains("1 suspended"));
    let other = folder.space();
    pty.until_shown("2 address spaces");
    drop(other);
    pty.until_shown("1 address space ");
    assert!(!pty.is_cooked());
    ends_well(pty);
}

#[test]
fn keys_fold_sort_filter_and_explain() {
    let folder = Folder::new("top-keys");
    let one = two(&folder);
    let a = one.table.number;
    one.table.has(Resource {
        id: Id::new(one.table.id().location(), Kind::MAILBOX, Serial::new(7, 1)),
        owner: None,
        state: "idle".to_owned(),
        names: vec!["/mailbox/post".to_owned()],
    });
    let mut pty = top(&folder);
    pty.until_shown("reader");
    pty.send("\r");
    pty.until(|screen| screen.contains(&format!("+ {a}")) && !screen.contains("reader"));
    // The right arrow key, as a terminal sends it.
    pty.send("\x1b[C");
    pty.until_shown("reader");
    // From the column of the CPU time.
    pty.send("<i");
    pty.until(|screen| {
        let at = |text| screen.find(text).unwrap_or(usize::MAX);
        screen.contains("NAME^") && at("worker") < at("reader")
    });
    pty.send("/READ");
    pty.until(|screen| screen.contains("filter: READ_") && !screen.contains("worker"));
    pty.send("\r\x1b");
    pty.until(|screen| screen.contains("worker") && !screen.contains("filter:"));
    pty.send("u");
    pty.until(|screen| screen.contains("/mailbox/post") && screen.contains("SERIAL"));
    pty.send("u?");
    pty.until_shown("any other key returns");
    pty.send("x");
    pty.until_shown("reader");
    // The search selects the row, which then is that of the commands.
    pty.send("gfread\r");
    pty.until_shown("\"read\" is in row");
    pty.send("s");
    pty.until_shown(&format!("{a}.2.1: suspended"));
    pty.send("b");
    pty.until_shown("0: reader::work");
    pty.send("x!");
    pty.until_shown("no address space has violated the board's protocol");
    pty.send("xv");
    pty.until_shown("it has no histograms");
    pty.send("x");
    ends_well(pty);
}

#[test]
fn older_version_shows_its_list_and_what_is_missing() {
    let folder = Folder::new("top-older");
    let _one = two(&folder);
    let mut pty = top(&folder);
    pty.until(|screen| {
        screen.contains("1 running, 1 waiting, no counters in Kumihimo 0.1.0")
            && screen.contains("reader")
    });
    pty.send("ttee");
    pty.until(|screen| screen.contains("CPU time is sampled") && screen.contains("reader"));
    ends_well(pty);
}

#[test]
fn settings_are_remembered() {
    let folder = Folder::new("top-settings");
    let one = two(&folder);
    let a = one.table.number;
    let file = folder.config().join("kumihimo/top.json");
    let mut pty = top(&folder);
    pty.until_shown("reader");
    ends_well(pty);
    assert!(!file.exists(), "nothing was changed");
    let mut pty = top(&folder);
    pty.until_shown("reader");
    pty.send("<i");
    pty.until_shown("NAME^");
    ends_well(pty);
    let mut pty = top(&folder);
    pty.until(|screen| screen.contains("NAME^") && screen.contains("reader"));
    ends_well(pty);
    // Options replace the settings of one run.
    let args = ["top", "--every", "100", "--sort", "state", "--filter", "READER", &a.to_string()];
    let mut pty = Pty::start(&folder, &args, (80, 24), Controlling::Yes);
    pty.until(|screen| screen.contains("STATE^") && screen.contains("filter: READER"));
    pty.until(|screen| screen.contains("reader") && !screen.contains("worker"));
    ends_well(pty);
    let text = std::fs::read_to_string(&file).expect("the settings");
    assert!(text.contains(r#""sort":"name","backwards":true"#), "{text}");
    std::fs::write(&file, "{").expect("a foreign file");
    let mut pty = top(&folder);
    pty.until_shown("the settings are ignored");
    ends_well(pty);
    assert_eq!(std::fs::read_to_string(&file).expect("unchanged"), "{");
}

#[test]
fn only_named_address_spaces_are_shown() {
    let folder = Folder::new("top-narrow");
    let one = two(&folder);
    let other = folder.space_with(|table| {
        table.add(1, "elsewhere", State::Running);
    });
    let named = other.table.number.to_string();
    let args = ["top", "--every", "100", &named];
    let mut pty = Pty::start(&folder, &args, (80, 24), Controlling::Yes);
    pty.until(|screen| screen.contains("1 address space ") && screen.contains("elsewhere"));
    assert!(!pty.screen().contains("reader"), "{}", pty.screen());
    drop(other);
    pty.until_shown("the address spaces that were named have ended");
    let looks = one.table.until_asked(0, 0).0;
    assert_eq!(looks, 0, "others are not queried");
    ends_well(pty);
    let args = ["top", "--every", "100", "4000"];
    let mut pty = Pty::start(&folder, &args, (80, 24), Controlling::Yes);
    assert_eq!(pty.wait().code(), Some(1));
    assert!(pty.screen().contains("there is no address space 4000"), "{}", pty.screen());
}

#[test]
fn selection_can_be_controlled() {
    let folder = Folder::new("top-steers");
    let one = two(&folder);
    let (table, a) = (&one.table, one.table.number);
    let (worker, reader) = (table.microprocess_id(1, 1), table.microprocess_id(2, 1));
    let fortress = table.add(3, "fortress", State::Waiting);
    let mut pty = top(&folder);
    pty.until_shown("fortress");
    pty.send("jjs");
    pty.until_shown(&format!("{a}.1.1: suspended"));
    pty.send("r");
    pty.until_shown(&format!("{a}.1.1: resumed"));
    pty.send("+");
    pty.until_shown(&format!("{a}.1.1: has priority 33"));
    pty.send("jc");
    pty.until_shown(&format!("cancel {a}.2.1?"));
    pty.send("n");
    pty.until_shown("not cancelled");
    pty.send("cy");
    pty.until(|screen| {
        screen.contains(&format!("{a}.2.1: cancelled")) && !screen.contains("reader")
    });
    pty.send("s");
    pty.until_shown("lets nobody steer it");
    assert_eq!(table.row(fortress).state, State::Waiting);
    let want = [
        (worker, Action::Suspend),
        (worker, Action::Resume),
        (worker, Action::Priority(33)),
        (reader, Action::Cancel),
    ];
    assert_eq!(table.acted(), want);
    ends_well(pty);
}

#[test]
fn lists_are_requested_only_while_on_the_screen() {
    let folder = Folder::new("top-asks");
    let small = two(&folder);
    let large = folder.space_with(|table| {
        table.add(1, "hidden", State::Running);
        table.say_living(100_000);
    });
    let mut pty = top(&folder);
    pty.until_shown("100000");
    let (_, lists) = large.table.until_asked(4, 0);
    assert_eq!(lists, 0, "the address space is folded");
    small.table.until_asked(4, 3);
    pty.send("G\r");
    pty.until_shown("hidden");
    pty.send("\r");
    pty.until(|screen| !screen.contains("hidden"));
    // Queries that began before the folding may still request a list.
    let (mut looks, mut lists) = large.table.until_asked(0, 1);
    let settled = (0..50).any(|_| {
        let before = lists;
        (looks, lists) = large.table.until_asked(looks + 3, 0);
        lists == before
    });
    assert!(settled, "{lists} requests for lists in {looks} queries");
    ends_well(pty);
}

#[test]
fn top_follows_the_size_of_the_terminal() {
    let folder = Folder::new("top-size");
    let _one = two(&folder);
    let mut pty = top(&folder);
    pty.until_shown("reader");
    pty.resize(40, 8);
    pty.until_shown("too small: 40x8, 60x10 needed");
    pty.resize(1, 1);
    pty.resize(200, 50);
    pty.until(|screen| screen.contains("reader") && screen.lines().count() == 50);
    pty.resize(60, 10);
    pty.until(|screen| screen.contains("kumi top") && screen.contains("q end"));
    ends_well(pty);
}

#[test]
fn signals_end_top_and_restore_the_terminal() {
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP] {
        let folder = Folder::new("top-signal");
        let mut pty = top(&folder);
        pty.until_shown("no address space of yours runs");
        pty.kill(signal);
        assert_eq!(pty.wait().signal(), Some(signal.as_raw()));
        assert!(!pty.is_taken() && pty.is_cooked(), "{signal:?}");
    }
}

#[test]
fn top_ends_when_its_terminal_closes() {
    let folder = Folder::new("top-gone");
    let _one = two(&folder);
    // With SIGHUP and without.
    for controlling in [Controlling::Yes, Controlling::No] {
        let mut pty = Pty::start(&folder, &["top"], (80, 24), controlling);
        pty.until_shown("reader");
        pty.hang_up();
        let status = pty.wait();
        assert_eq!(status.signal(), Some(Signal::HUP.as_raw()), "{status}");
    }
}

#[test]
fn top_stops_and_continues_as_a_job() {
    let folder = Folder::new("top-job");
    let _one = two(&folder);
    let mut pty = top(&folder);
    pty.until_shown("reader");
    // Stopped by its key: the shell uses the terminal meanwhile.
    pty.send("\x1a");
    pty.until_stopped();
    assert!(!pty.is_taken() && pty.is_cooked());
    pty.kill(Signal::CONT);
    pty.until_shown("reader");
    // Stopped by a signal from outside.
    pty.kill(Signal::STOP);
    pty.until_stopped();
    pty.kill(Signal::CONT);
    pty.send("?");
    pty.until_shown("any other key returns");
    // A redraw replaces the output of other programs.
    pty.send("\x0cx");
    pty.until_shown("reader");
    assert!(!pty.is_cooked());
    ends_well(pty);
}

#[test]
fn top_without_a_terminal_suggests_ps() {
    let folder = Folder::new("top-none");
    let output = folder.command(&["top"]).stdin(Stdio::null()).output().expect("kumi");
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(
        output.status.code() == Some(1)
            && said.contains("needs a terminal")
            && said.contains("kumi ps"),
        "{said}"
    );
}

#[test]
fn sort_keys_of_groups_are_checked() {
    let folder = Folder::new("sort-keys");
    for (args, why) in [
        (
            &["--group", "name", "--sort", "priority"][..],
            "--sort priority: groups have the keys count",
        ),
        (&["--sort", "count"], "--sort count: microprocesses have no count"),
    ] {
        let (code, said, complaints) = folder.kumi(&[&["top", "--once"], args].concat());
        assert_eq!((code, said.as_str()), (1, ""), "{complaints}");
        assert!(complaints.contains(why), "{complaints}");
    }
}
