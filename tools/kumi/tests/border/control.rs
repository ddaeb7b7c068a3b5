//! Microprocesses of another machine are listed and steered.

use std::sync::atomic::Ordering;

use kumihimo_machine::handler::{Action, Resource, State};
use kumihimo_resource::id::{Id, Kind, Serial};
use serde_json::Value;

use super::site::Site;

#[test]
fn ps_shows_microprocesses_of_another_machine() {
    let site = Site::new("border-ps");
    let one = site.there.space();
    let (a, pid) = (one.table.number, std::process::id());
    one.table.add(1, "worker", State::Running);
    let (_here, there) = site.serve();
    let want = format!(
        "machine build7, address space {a}: pid {pid}, 2 VPs, 3 of at most 100 kernel threads, 1 microprocesses: /usr/bin/double\n\
         ID            NAME    STATE    PRIORITY  VP  THREAD  WAITS-FOR\n\
         build7/{a}.1.1  worker  running  32        0   -\n"
    )
    .replace("1 microprocesses", "1 microprocess");
    for args in [
        &["ps", "--machine", "build7"][..],
        &["ps", "--machine", "build7", &a.to_string()],
        &["ps", &format!("build7/{a}")],
        &["ps", &format!("build7/{a}.1.1")],
        &["ps", &format!("build7/{a}/worker")],
        &["ps", &format!("build7@{}/{a}.microprocess.1.1", there.epoch)],
    ] {
        assert_eq!(site.here.kumi(args), (0, want.clone(), String::new()), "{args:?}");
    }
    let (code, said, _) = site.here.kumi(&["ps", "--json", "--machine", "build7"]);
    let row: Value = serde_json::from_str(&said).expect("one line");
    assert_eq!((code, &row["machine"]), (0, &Value::from("build7")));
    assert_eq!(row["epoch"], there.epoch.as_str());
    assert_eq!(row["id"], format!("{a}.microprocess.1.1"));
    // A name without a machine stays on this one.
    let (_, said, _) = site.here.kumi(&["ps"]);
    assert!(!said.contains("/usr/bin/double"), "{said}");
}

#[test]
fn every_machine_is_shown_and_the_unreachable_are_named() {
    let site = Site::new("border-all");
    let (own, other) = (site.here.space(), site.there.space());
    own.table.add(1, "mine", State::Running);
    other.table.add(1, "theirs", State::Waiting);
    let there = site.serve_there("127.0.0.1:0");
    // Port 1 refuses connections.
    site.write(&format!("peer build7 {}\npeer build9 127.0.0.1:1\n", there.place));
    let _here = super::site::start(&site.here, &site.folder(), None);
    for command in ["ps", "resources", "metrics", "locks"] {
        let (code, said, complaints) = site.here.kumi(&[command, "--machine", "all"]);
        assert_eq!(code, 1, "{command}: {complaints}");
        if command == "ps" {
            let (a, b) = (own.table.number, other.table.number);
            assert!(said.contains(&format!("build8/{a}.1.1")), "{said}");
            assert!(said.contains(&format!("build7/{b}.1.1")), "{said}");
        }
        let named = "kumi: machine build9 (127.0.0.1:1) is unreachable since 2";
        assert!(complaints.starts_with(named), "{command}: {complaints}");
        assert!(complaints.contains(" UTC, for "), "{complaints}");
    }
    let (code, said, _) = site.here.kumi(&["border", "list"]);
    let states: Vec<Vec<&str>> =
        said.lines().skip(1).map(|line| line.split_whitespace().take(2).collect()).collect();
    assert_eq!(code, 1);
    assert_eq!(states, [["build8", "this"], ["build7", "reachable"], ["build9", "unreachable"]]);
}

#[test]
fn requests_of_another_machine_are_performed() {
    let site = Site::new("border-steer");
    let one = site.there.space();
    let a = one.table.number;
    let id = one.table.add(1, "worker", State::Running);
    let vp = Id::new(id.location(), Kind::VP, Serial::new(0, 1));
    one.table.has(Resource { id: vp, owner: None, state: "running".to_owned(), names: vec![] });
    one.table.count("kumihimo_vp_switches_total", "0", 7.0);
    let _borders = site.serve();
    let target = format!("build7/{a}.1.1");
    for (args, said) in [
        (&["suspend", &*target][..], "suspended"),
        (&["suspend", &target], "was already suspended"),
        (&["resume", &target], "resumed"),
        (&["priority", "50", &target], "has priority 50"),
    ] {
        let want = (0, format!("{target}: {said}\n"), String::new());
        assert_eq!(site.here.kumi(args), want, "{args:?}");
    }
    let (code, said, _) =
        site.here.kumi(&["backtrace", "--machine", "build7", &format!("{a}.1.1")]);
    assert_eq!((code, said), (0, format!("{target}:\n0: worker::work\n1: main\n")));
    let (code, said, _) = site.here.kumi(&["resources", "--machine", "build7"]);
    assert!(code == 0 && said.starts_with("machine build7, address space"), "{said}");
    assert!(said.contains("vp    0.1"), "{said}");
    let (code, said, _) = site.here.kumi(&["metrics", "--machine", "build7"]);
    assert!(code == 0 && said.contains("machine=\"build7\",vp=\"0\"} 7\n"), "{said}");
    let (code, said, complaints) = site.here.kumi(&["cancel", &target, &target]);
    assert_eq!((code, said), (1, format!("{target}: cancelled\n")));
    assert!(complaints.contains("has ended"), "{complaints}");
    let acted =
        [Action::Suspend, Action::Suspend, Action::Resume, Action::Priority(50), Action::Cancel];
    assert_eq!(one.table.acted(), acted.map(|action| (id, action)));
}

#[test]
fn long_answers_arrive_whole() {
    const ROWS: u32 = 20_000;
    const BYTES: u64 = 3_000_000;
    let site = Site::new("border-long");
    let one = site.there.space_with(|table| {
        for slot in 1..=ROWS {
            table.add(slot, "worker", State::Waiting);
        }
    });
    one.table.traced.store(BYTES, Ordering::Relaxed);
    let _borders = site.serve();
    let (code, said, complaints) = site.here.kumi(&["ps", "--json", "--machine", "build7"]);
    assert_eq!((code, said.lines().count(), complaints.as_str()), (0, ROWS as usize, ""));
    let file = site.here.path().join("trace");
    let space = format!("build7/{}", one.table.number);
    let args = ["trace", "live", &space, "-o", file.to_str().expect("text")];
    let (code, _, complaints) = site.here.kumi(&args);
    assert_eq!(code, 0, "{complaints}");
    assert_eq!(std::fs::metadata(&file).expect("a trace").len(), BYTES);
}
