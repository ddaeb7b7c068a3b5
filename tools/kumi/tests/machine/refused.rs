//! Invalid requests: each causes one clear line and changes nothing.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;

use kumihimo_machine::directory::Directory;
use kumihimo_machine::handler::State;
use kumihimo_machine::space::Number;
use kumihimo_tests::process;
use rustix::process::{Pid, Signal, kill_process};

use super::double::{Folder, KUMI, told};
use super::pty::until_stopped;

/// Every subcommand with a target, with one or all microprocesses as targets.
const ABOUT_ONE: [&[&str]; 7] = [
    &["ps"],
    &["suspend"],
    &["resume"],
    &["cancel"],
    &["priority", "5"],
    &["backtrace"],
    &["watch"],
];

/// Asserts one line on standard error that contains `why`, exit code 1, and no output.
#[track_caller]
fn refuses(folder: &Folder, args: &[&str], why: &str) {
    let (code, said, complaints) = folder.kumi(args);
    assert_eq!((code, said.as_str()), (1, ""), "{args:?}: {complaints}");
    assert!(complaints.starts_with("kumi: ") && complaints.contains(why), "{args:?}: {complaints}");
    assert_eq!(complaints.lines().count(), 1, "{args:?}: {complaints}");
}

#[test]
fn invalid_runtime_directory_is_refused() {
    for (place, why) in [("/no/such/folder/kumi", "/no/such/folder/kumi"), ("relative", "absolute")]
    {
        for args in [
            &["ps"][..],
            &["resources"],
            &["metrics"],
            &["suspend", "1.1.1"],
            &["watch", "1.1.1"],
            &["top"],
        ] {
            let output =
                Command::new(KUMI).args(args).env("KUMI_DIR", place).output().expect("kumi");
            let (code, said, complaints) = told(&output);
            assert_eq!(
                (code, said.as_str(), complaints.lines().count()),
                (1, "", 1),
                "{args:?}: {complaints}"
            );
            assert!(complaints.contains(why), "{complaints}");
        }
    }
}

#[test]
fn missing_address_space_is_reported() {
    let folder = Folder::new("no-space");
    // Without a target, a machine without address spaces is not an error.
    let (code, said, complaints) = folder.kumi(&["ps"]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(complaints.contains("no address space of yours runs"), "{complaints}");
    for args in [&["ps", "--json"][..], &["ps", "--spaces"], &["metrics"], &["resources"]] {
        assert_eq!(folder.kumi(args).0, 0);
    }
    for args in ABOUT_ONE {
        refuses(&folder, &[args, &["12.1.1"]].concat(), "there is no address space 12");
    }
    for args in [["ps", "12"], ["metrics", "12"], ["resources", "12"], ["suspend", "12/worker"]] {
        refuses(&folder, &args, "there is no address space 12");
    }
}

#[test]
fn stale_ids_are_refused() {
    let folder = Folder::new("stale");
    let one = folder.space();
    let a = one.table.number;
    // The next microprocess in the slot must not be affected.
    let id = one.table.microprocess_id(1, 2);
    one.table.add(1, "worker", State::Running);
    let row = one.table.row(one.table.microprocess_id(1, 1));
    one.table.end(row.id);
    one.table.put(kumihimo_machine::handler::Microprocess { id, ..row });
    for args in ABOUT_ONE {
        let id = format!("{a}.1.1");
        let args = [args, &[&*id]].concat();
        if args[0] == "ps" {
            let (code, _, complaints) = folder.kumi(&args);
            assert!(code == 1 && complaints.contains("1.1 has ended"), "{complaints}");
        } else {
            refuses(&folder, &args, "1.1 has ended");
        }
    }
    assert_eq!((one.table.row(id).state, one.table.acted().len()), (State::Running, 0));
    // An address space that has taken over another one's number.
    let serial = one.table.id().serial();
    let before = format!("{a}.space.{}.{}", serial.slot(), serial.generation() + 1);
    for command in ["ps", "metrics", "resources"] {
        refuses(&folder, &[command, &before], "has ended: address space");
    }
}

#[test]
fn malformed_and_wrong_kind_ids_are_refused() {
    let folder = Folder::new("wrong");
    let one = folder.space();
    let a = one.table.number;
    let vp = format!("{a}.vp.0.1");
    for (id, why) in [
        (vp.as_str(), "of kind vp: expected a microprocess"),
        ("12.x.1", "its slot"),
        ("worker", "SPACE/NAME"),
        ("1/12.42.7", "machine 1"),
        ("5/", "SPACE/NAME"),
    ] {
        for args in ABOUT_ONE.into_iter().skip(1) {
            let (code, said, complaints) = folder.kumi(&[args, &[id]].concat());
            assert_eq!((code, said.as_str()), (2, ""), "{args:?} {id}");
            assert!(complaints.contains(why), "{args:?} {id}: {complaints}");
        }
    }
    for args in [
        &["priority", "64", "1.1.1"][..],
        &["priority", "-1", "1.1.1"],
        &["suspend"],
        &["ps", "--sort", "colour"],
        &["ps", "--state", "asleep"],
        &["resources", "--kind", "kind5"],
        &["watch", "--every", "0", "1.1.1"],
        &["top", "--every", "1"],
        &["completions", "cmd"],
    ] {
        assert_eq!(folder.kumi(args).0, 2, "{args:?}");
    }
    assert_eq!(one.table.acted(), []);
}

/// Starts a child process with an address space of one microprocess. Returns its output and its
/// number.
fn process_of_its_own(test: &str, folder: &Folder) -> (Child, impl Iterator<Item = String>, u16) {
    let mut child = process::start(test, &[("KUMI_DIR", folder.path().to_str().expect("text"))]);
    let mut lines =
        BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let number = lines.find_map(|line| {
        line.split_once("number ").map(|(_, number)| number.parse().expect("a number"))
    });
    (child, lines, number.expect("the line with the number"))
}

/// The child process.
fn serve() {
    let path = std::env::var_os("KUMI_DIR").expect("told");
    let folder = std::mem::ManuallyDrop::new(Folder::there(path.into()));
    let one = folder.space();
    one.table.add(1, "worker", State::Running);
    println!("\nnumber {}", one.table.number);
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn stopped_target_is_reported() {
    const NAME: &str = "refused::stopped_target_is_reported";
    if process::is_child(NAME) {
        return serve();
    }
    let folder = Folder::new("stopped");
    let (mut child, _lines, a) = process_of_its_own(NAME, &folder);
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).expect("it lives");
    until_stopped(&child);
    let id = format!("{a}.1.1");
    let why = format!("address space {a} is stopped and cannot answer: kill -CONT {}", child.id());
    let late = format!(
        "{why}, or detach its debugger; if the request was received, it may still take effect when the process continues"
    );
    refuses(&folder, &["suspend", &id], &late);
    // Other address spaces are shown nevertheless.
    let other = folder.space();
    let (code, said, complaints) = folder.kumi(&["ps"]);
    assert!(
        code == 1 && said.starts_with(&format!("address space {}: ", other.table.number)),
        "{said}"
    );
    assert!(complaints.contains(&why) && complaints.lines().count() == 1, "{complaints}");
    kill_process(pid, Signal::CONT).expect("it lives");
    let (code, said, complaints) = folder.kumi(&["suspend", &id]);
    assert!(code == 0 && said.contains("suspended"), "{said}{complaints}");
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn dead_target_is_reported() {
    const NAME: &str = "refused::dead_target_is_reported";
    if process::is_child(NAME) {
        return serve();
    }
    let folder = Folder::new("dies");
    let (mut child, _lines, a) = process_of_its_own(NAME, &folder);
    let id = format!("{a}.1.1");
    let mut watch = folder
        .command(&["watch", "--every", "1", &id])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("kumi");
    let mut lines =
        BufReader::new(watch.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.next().expect("a line").contains("worker running"));
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    assert!(lines.next().expect("a line").ends_with(" ended"));
    assert!(watch.wait().expect("it ends").success());
    refuses(&folder, &["suspend", &id], &format!("there is no address space {a}"));
    assert_eq!(
        folder.kumi(&["ps", "--json"]).0,
        0,
        "the remains of a dead address space are ignored"
    );
}

/// A process that has a number and serves another protocol on its socket.
fn stranger(folder: &Folder, answer: impl Fn(&mut dyn Write) + Send + Sync + 'static) -> u16 {
    let number = Number::take_in(Directory::own(folder.path()).expect("there")).expect("a number");
    let a = number.location().space();
    let listener = UnixListener::bind(folder.path().join(format!("{a}.socket"))).expect("a socket");
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        let _number = number;
        for connection in listener.incoming().map_while(Result::ok) {
            let mut connection = connection;
            answer(&mut connection);
        }
    });
    a
}

#[test]
fn unknown_protocol_and_foreign_program_are_reported() {
    let folder = Folder::new("version");
    let a = stranger(&folder, |to| {
        let _ = to.write_all(b"{\"protocol\":99,\"version\":\"9.9.9\",\"space\":1}\n");
    });
    refuses(&folder, &["suspend", &format!("{a}.1.1")], "uses protocol 99");
    refuses(&folder, &["ps"], "Kumihimo 9.9.9");
    let folder = Folder::new("program");
    let a = stranger(&folder, |to| {
        let _ = to.write_all(b"\x1b[2JHTTP/1.1 400 Bad Request\r\n\r\n");
    });
    refuses(&folder, &["metrics", &a.to_string()], &format!("address space {a}: invalid answer"));
}

#[test]
fn denied_access_is_reported() {
    let folder = Folder::new("denied");
    let a = stranger(&folder, |to| {
        let _ = to.write_all(b"{\"error\":{\"kind\":\"denied\",\"message\":\"user 0 may not ask address space 1\"}}\n");
    });
    for args in ABOUT_ONE {
        refuses(
            &folder,
            &[args, &[&*format!("{a}.1.1")]].concat(),
            "user 0 may not ask address space 1",
        );
    }
}

/// User id of `nobody`: different from root and from the user of the tests.
const SOMEBODY_ELSE: u32 = 65534;

#[test]
fn another_users_address_space_needs_permission() {
    const NAME: &str = "refused::another_users_address_space_needs_permission";
    let folder = Folder::new("user");
    let as_somebody = |args: &[&str]| Command::new(KUMI).args(args).uid(SOMEBODY_ELSE).output();
    if !as_somebody(&["--version"]).is_ok_and(|output| output.status.success()) {
        return kumihimo_tests::skip(
            NAME,
            "only root can run the test as another user, and that user must be able to run the binaries",
        );
    }
    let one = folder.space();
    let id = one.table.add(1, "worker", State::Running);
    let short = format!("{}.1.1", one.table.number);
    let there = folder.path().to_str().expect("text");
    let suspend = || told(&as_somebody(&["suspend", "--in", there, &short]).expect("kumi"));
    let (code, said, complaints) = suspend();
    assert_eq!((code, said.as_str(), complaints.lines().count()), (1, "", 1), "{complaints}");
    one.control.allow(SOMEBODY_ELSE).expect("modes are changed");
    assert_eq!(suspend(), (0, format!("{short}: suspended\n"), String::new()));
    assert_eq!(one.table.row(id).state, State::Suspended);
    let (code, said, _) = told(&as_somebody(&["ps", "--in", there]).expect("kumi"));
    assert!(code == 0 && said.contains("worker"), "{said}");
    one.control.disallow(SOMEBODY_ELSE).expect("modes are changed");
    let (code, _, complaints) = suspend();
    assert_eq!((code, complaints.lines().count()), (1, 1), "{complaints}");
}

#[test]
fn process_that_is_no_address_space_is_named() {
    let folder = Folder::new("no-process");
    let _double = folder.space();
    for command in [&["ps"][..], &["top", "--once"]] {
        let (code, said, complaints) = folder.kumi(&[command, &["4194303"]].concat());
        assert_eq!((code, said.as_str()), (1, ""));
        assert!(
            complaints.contains("no address space there has process id 4194303"),
            "{complaints}"
        );
    }
}

#[test]
fn number_of_printed_rows_needs_a_printed_screen() {
    let folder = Folder::new("top-options");
    refuses(&folder, &["top", "--limit", "5"], "--limit needs --once or --json");
}

#[test]
fn address_space_without_counters_is_named() {
    let folder = Folder::new("no-counters");
    let _double = folder.space();
    let (code, _, complaints) = folder.kumi(&["top", "--once"]);
    assert_eq!(code, 1);
    assert!(complaints.contains("has no counters of microprocesses"), "{complaints}");
}
