//! Tests of `kumi suspend`, `resume`, `cancel`, `priority`, `backtrace` and `watch`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use kumihimo_machine::handler::{Action, State};

use super::double::Folder;

#[test]
fn every_target_has_its_own_outcome() {
    let folder = Folder::new("steer");
    let one = folder.space();
    let (table, a) = (&one.table, one.table.number);
    let runs = table.add(1, "worker", State::Running);
    let blocked = table.add(2, "reader", State::Blocked);
    table.add(3, "fortress", State::Waiting);
    table.add(4, "stubborn", State::Running);
    let [one_id, two, three, four, gone] = [1, 2, 3, 4, 9].map(|slot| format!("{a}.{slot}.1"));
    let (code, said, complaints) =
        folder.kumi(&["suspend", &one_id, &two, &three, &gone, &four, &one_id]);
    assert_eq!(code, 1);
    let want = format!(
        "{one_id}: suspended\n\
         {two}: is blocked in the kernel, and will be suspended when it returns\n\
         {four}: suspension requested, but it has not reached a point where it can stop\n\
         {one_id}: was already suspended\n"
    );
    assert_eq!(said, want);
    let want = format!(
        "kumi: {three}: {a}.microprocess.3.1 lets nobody steer it\nkumi: {gone}: {a}.microprocess.9.1 has ended\n"
    );
    assert_eq!(complaints, want);
    assert_eq!((table.row(runs).state, table.row(blocked).stopping), (State::Suspended, true));
    for (args, want) in [
        (&["resume", &one_id][..], "resumed"),
        (&["resume", &one_id], "was not suspended"),
        (&["priority", "63", &one_id], "has priority 63"),
        (&["priority", "63", &one_id], "already had priority 63"),
        (&["backtrace", &one_id], "\n0: worker::work\n1: main"),
        (&["cancel", &one_id], "cancelled"),
    ] {
        let (code, said, complaints) = folder.kumi(args);
        let gap = if want.starts_with('\n') { "" } else { " " };
        assert_eq!((code, said, complaints), (0, format!("{one_id}:{gap}{want}\n"), String::new()));
    }
    let last = table.acted().last().copied();
    assert_eq!(last, Some((runs, Action::Cancel)));
}

#[test]
fn unique_name_is_resolved() {
    let folder = Folder::new("steer-name");
    let one = folder.space();
    let (table, a) = (&one.table, one.table.number);
    let id = table.add(1, "a/b", State::Running);
    for slot in 2..6 {
        table.add(slot, "worker", State::Running);
    }
    let (code, said, _) = folder.kumi(&["suspend", &format!("{a}/a/b")]);
    assert_eq!((code, said), (0, format!("{a}.1.1 ({a}/a/b): suspended\n")));
    let (code, _, complaints) = folder.kumi(&["cancel", &format!("{a}/worker")]);
    let want = format!(
        "{a}/worker is 4 microprocesses: give the id of one ({a}.2.1, {a}.3.1, {a}.4.1, ...)"
    );
    assert!(code == 1 && complaints.contains(&want), "{complaints}");
    let (code, _, complaints) = folder.kumi(&["cancel", &format!("{a}/nobody")]);
    assert!(code == 1 && complaints.contains(&format!("see kumi ps {a}")), "{complaints}");
    assert_eq!(table.acted(), [(id, Action::Suspend)]);
}

#[test]
fn json_reports_outcomes_and_refusals() {
    let folder = Folder::new("steer-json");
    let one = folder.space();
    let (table, a) = (&one.table, one.table.number);
    table.add(1, "worker", State::Running);
    table.add(3, "fortress", State::Waiting);
    let named = format!("{a}/worker");
    let (code, said, complaints) =
        folder.kumi(&["suspend", "--json", &named, &format!("{a}.3.1"), &format!("{a}.9.1")]);
    assert_eq!((code, complaints.as_str()), (1, ""));
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(
        (&lines[0]["id"], &lines[0]["of"]),
        (&format!("{a}.microprocess.1.1").into(), &named.into())
    );
    assert_eq!(lines[0]["done"], "now");
    assert_eq!(lines[1]["refused"]["kind"], "denied");
    assert_eq!((&lines[2]["refused"]["kind"], lines.len()), (&"stale".into(), 3));
    let (_, said, _) = folder.kumi(&["backtrace", "--json", &format!("{a}.1.1")]);
    let line: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(line["backtrace"], "0: worker::work\n1: main");
}

#[test]
fn watch_runs_until_the_microprocess_ends() {
    let folder = Folder::new("watch");
    let one = folder.space();
    let (table, a) = (&one.table, one.table.number);
    let id = table.add(1, "worker", State::Running);
    let other = table.add(2, "", State::Waiting);
    let (first, second) = (format!("{a}.1.1"), format!("{a}/worker"));
    let mut child = folder
        .command(&[
            "watch",
            "--every",
            "1",
            &first,
            &second,
            &format!("{a}.2.1"),
            &format!("{a}.9.1"),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kumi");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    // The next line without its time.
    let mut next = || {
        let line = out.next().expect("a line").expect("text");
        line.trim_start().split_once(' ').expect("a time").1.to_owned()
    };
    assert_eq!(next(), format!("{first} worker running, priority 32, VP 0"));
    assert_eq!(next(), format!("{a}.2.1 waiting, priority 32, VP 0"));
    let mut row = table.row(id);
    row.state = State::Suspended;
    table.put(row.clone());
    assert_eq!(next(), format!("{first} worker suspended, priority 32, VP 0"));
    row.state = State::Blocked;
    row.kernel_thread = Some(5);
    table.put(row);
    assert_eq!(next(), format!("{first} worker blocked, priority 32, VP 0, kernel thread 5"));
    table.end(id);
    assert_eq!(next(), format!("{first} ended"));
    table.end(other);
    assert_eq!(next(), format!("{a}.2.1 ended"));
    let output = child.wait_with_output().expect("it ends");
    let complaints = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "one target was missing: {complaints}");
    assert_eq!(complaints, format!("kumi: {a}.9.1: {a}.microprocess.9.1 has ended\n"));
}

#[test]
fn watch_ends_with_the_address_space() {
    let folder = Folder::new("watch-space");
    let one = folder.space();
    let a = one.table.number;
    one.table.add(1, "", State::Running);
    let mut child = folder
        .command(&["watch", "--json", "--every", "1", &format!("{a}.1.1")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kumi");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || -> serde_json::Value {
        serde_json::from_str(&out.next().expect("a line").expect("text")).expect("JSON")
    };
    assert_eq!(next()["state"], "running");
    drop(one);
    assert_eq!(next()["ended"], true);
    assert!(child.wait().expect("it ends").success());
}
