//! Tests of `kumi ps`, `resources`, `metrics` and `trace live`.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::atomic::Ordering;

use kumihimo_machine::handler::{Microprocess, Resource, Space, State};
use kumihimo_resource::id::{Id, Kind, Serial};

use super::double::{Double, Folder};

fn some(folder: &Folder) -> Double {
    folder.space_with(|table| {
        let id = table.add(1, "listener", State::Waiting);
        table.put(Microprocess {
            waits_for: Some("readable descriptor 5".to_owned()),
            inherited: Some(40),
            vp: 1,
            ..table.row(id)
        });
        table.add(2, "worker", State::Running);
        table.add(3, "worker", State::Suspended);
        let id = table.add(4, "", State::Blocked);
        table.put(Microprocess {
            kernel_thread: Some(4711),
            stopping: true,
            priority: 50,
            ..table.row(id)
        });
    })
}

#[test]
fn ps_lists_all_address_spaces_in_order() {
    let folder = Folder::new("ps-all");
    let (one, other) = (some(&folder), folder.space());
    let (a, b, pid) = (one.table.number, other.table.number, std::process::id());
    let (code, said, complaints) = folder.kumi(&["ps"]);
    let want = format!(
        "address space {a}: pid {pid}, 2 VPs, 3 of at most 100 kernel threads, 4 microprocesses: /usr/bin/double\n\
         ID     NAME      STATE              PRIORITY      VP  THREAD  WAITS-FOR\n\
         {a}.1.1  listener  waiting            32 (40 lent)  1   -       readable descriptor 5\n\
         {a}.2.1  worker    running            32            0   -\n\
         {a}.3.1  worker    suspended          32            0   -\n\
         {a}.4.1  -         blocked, stopping  50            0   4711\n\
         \n\
         address space {b}: pid {pid}, 2 VPs, 3 of at most 100 kernel threads, 0 microprocesses: /usr/bin/double\n"
    );
    assert_eq!((code, said, complaints.as_str()), (0, want, ""));
    let (_, said, _) = folder.kumi(&["ps", "--spaces"]);
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..4], ["SPACE", "PID", "VPS", "LIVING"]);
    assert_eq!(rows[1][..6], [&a.to_string(), &pid.to_string(), "2", "4", "ring", "fixed"]);
    assert_eq!((rows.len(), rows[2][0]), (3, b.to_string().as_str()));
}

#[test]
fn ps_lists_only_named_targets() {
    let folder = Folder::new("ps-named");
    let (one, other) = (some(&folder), some(&folder));
    let (a, b) = (one.table.number, other.table.number);
    let ids = |args: &[&str]| {
        let (code, said, complaints) = folder.kumi(&[&["ps"], args].concat());
        let ids = said
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .filter(|word| word.contains('.'));
        (code, ids.map(str::to_owned).collect::<Vec<_>>(), complaints)
    };
    let of = |space: u16, slots: &[u32]| {
        slots.iter().map(|slot| format!("{space}.{slot}.1")).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[&b.to_string()]).1, of(b, &[1, 2, 3, 4]));
    assert_eq!(ids(&[&other.table.id().to_string()]).1, of(b, &[1, 2, 3, 4]));
    assert_eq!(
        ids(&[&format!("{b}.2.1"), &format!("{a}.microprocess.4.1")]).1,
        [of(a, &[4]), of(b, &[2])].concat()
    );
    assert_eq!(ids(&[&format!("{a}/worker"), &format!("{a}.2.1")]).1, of(a, &[2, 3]));
    assert_eq!(ids(&["--state", "running,blocked", &a.to_string()]).1, of(a, &[2, 4]));
    assert_eq!(ids(&["--sort", "priority", &a.to_string()]).1, of(a, &[4, 1, 2, 3]));
    // Missing targets are reported, and the others are shown.
    let (code, shown, complaints) =
        ids(&[&format!("{a}/nobody"), &format!("{a}.2.1"), &format!("{b}.9.1")]);
    assert_eq!((code, shown), (1, of(a, &[2])));
    assert!(
        complaints.contains("is named \"nobody\"")
            && complaints.contains(&format!("{b}.microprocess.9.1 has ended"))
    );
    assert_eq!(complaints.lines().count(), 2, "{complaints}");
}

#[test]
fn json_prints_one_object_per_line() {
    let folder = Folder::new("ps-json");
    let one = some(&folder);
    let lines = |args: &[&str]| -> Vec<String> {
        let (code, said, complaints) = folder.kumi(args);
        assert_eq!((code, complaints.as_str()), (0, ""));
        said.lines().map(str::to_owned).collect()
    };
    let rows = lines(&["ps", "--json"]);
    let rows: Vec<Microprocess> =
        rows.iter().map(|line| serde_json::from_str(line).expect("a row")).collect();
    let want: Vec<Microprocess> =
        (1..5).map(|slot| one.table.row(one.table.microprocess_id(slot, 1))).collect();
    assert_eq!(rows, want);
    let spaces = lines(&["ps", "--spaces", "--json"]);
    let space: Space = serde_json::from_str(&spaces[0]).expect("a space");
    assert_eq!((spaces.len(), space.id, space.living), (1, one.table.id(), 4));
}

#[test]
fn hundred_thousand_rows_print_and_a_closed_pipe_is_no_error() {
    let folder = Folder::new("ps-many");
    let one = folder.space_with(|table| {
        for slot in 0..100_000 {
            table.add(slot, "worker", State::Waiting);
        }
    });
    let (code, said, _) = folder.kumi(&["ps"]);
    assert_eq!((code, said.lines().count()), (0, 100_002));
    assert!(
        said.ends_with(&format!(
            "{}.99999.1  worker  waiting  32        0   -\n",
            one.table.number
        ))
    );
    for args in [&["ps"][..], &["ps", "--json"]] {
        let mut child = folder
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kumi");
        let mut first = String::new();
        let mut out = BufReader::with_capacity(64, child.stdout.take().expect("a pipe"));
        out.read_line(&mut first).expect("a line");
        drop(out);
        let mut complaints = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut complaints).expect("text");
        assert_eq!(
            (child.wait().expect("it ends").code(), complaints.as_str()),
            (Some(0), ""),
            "{first}"
        );
    }
}

#[test]
fn foreign_names_cannot_control_the_terminal() {
    let folder = Folder::new("ps-plain");
    let one = folder.space_with(|table| {
        let id = table.add(1, "\x1b]0;owned\x07\u{202e}", State::Waiting);
        table.put(Microprocess { waits_for: Some("a\nb\x1b[2J".to_owned()), ..table.row(id) });
    });
    let id = format!("{}.1.1", one.table.number);
    for args in [&["ps"][..], &["backtrace", &id], &["ps", "--json"]] {
        let (code, said, complaints) = folder.kumi(args);
        let steers = |c: char| c.is_control() && c != '\n';
        assert!(
            code == 0 && !said.contains(steers) && !complaints.contains(steers),
            "{said:?} {complaints:?}"
        );
    }
    assert_eq!(folder.kumi(&["ps"]).1.lines().count(), 3);
}

#[test]
fn resources_print_the_usage_table() {
    let folder = Folder::new("resources");
    let one = folder.space_with(|table| {
        let of = |kind, slot| Id::new(table.id().location(), kind, Serial::new(slot, 1));
        let owner = Some(table.microprocess_id(3, 1));
        let names = vec!["/mailbox/post".to_owned()];
        table.has(Resource {
            id: of(Kind::MAILBOX, 7),
            owner,
            state: "2 waiting".to_owned(),
            names,
        });
        table.has(Resource {
            id: of(Kind::VP, 0),
            owner: None,
            state: "running".to_owned(),
            names: vec![],
        });
    });
    let a = one.table.number;
    let (code, said, complaints) = folder.kumi(&["resources"]);
    let head = format!("address space {a}: pid {}: /usr/bin/double\n", std::process::id());
    let want = format!(
        "{head}KIND     SERIAL  OWNER  STATE      NAMES\n\
         vp       0.1     -      running\n\
         mailbox  7.1     {a}.3.1  2 waiting  /mailbox/post\n"
    );
    assert_eq!((code, said, complaints.as_str()), (0, want, ""));
    let (_, said, _) = folder.kumi(&["resources", "--named"]);
    assert!(
        said.ends_with(&format!("{a}.mailbox.7.1  {a}.3.1  2 waiting  /mailbox/post\n")),
        "{said}"
    );
    let (_, said, _) = folder.kumi(&["resources", "--kind", "vp", "--json", &a.to_string()]);
    let row: Resource = serde_json::from_str(&said).expect("one row");
    assert_eq!(row.id.kind(), Kind::VP);
}

#[test]
fn metrics_of_all_address_spaces_are_merged() {
    let folder = Folder::new("metrics");
    let (one, other) = (folder.space(), folder.space());
    one.table.count("kumihimo_vp_switches_total", "0", 7.0);
    other.table.count("kumihimo_vp_switches_total", "0", 9.0);
    let (code, said, complaints) = folder.kumi(&["metrics"]);
    assert_eq!((code, complaints.as_str()), (0, ""));
    assert_eq!(said.matches("# TYPE kumihimo_vp_switches_total counter\n").count(), 1, "{said}");
    for (space, value) in [(one.table.number, 7), (other.table.number, 9)] {
        let pid = std::process::id();
        let line = format!(
            "kumihimo_vp_switches_total{{space=\"{space}\",pid=\"{pid}\",program=\"/usr/bin/double\",vp=\"0\"}} {value}\n"
        );
        assert!(said.contains(&line), "{said}");
    }
    let (_, said, _) = folder.kumi(&["metrics", "--json", &other.table.number.to_string()]);
    let first: serde_json::Value =
        serde_json::from_str(said.lines().next().expect("a line")).expect("JSON");
    assert_eq!(
        (&first["space"], &first["name"]),
        (&other.table.number.into(), &"kumihimo_vp_switches_total".into())
    );
}

#[test]
fn running_address_space_can_be_traced() {
    let folder = Folder::new("trace-live");
    let one = folder.space();
    let output = folder.path().join("out");
    let path = output.to_str().expect("text");
    let live = || folder.kumi(&["trace", "live", &one.table.number.to_string(), "-o", path]);
    std::fs::write(&output, "before").expect("room");
    let (code, said, complaints) = live();
    assert_eq!((code, said.as_str(), complaints.lines().count()), (1, "", 1));
    assert!(complaints.contains("nothing is traced"), "{complaints}");
    assert_eq!(std::fs::read(&output).expect("there"), b"before", "the existing file must stay");
    one.table.traced.store(3_000_000, Ordering::Relaxed);
    let (code, _, complaints) = live();
    assert!(code == 0 && complaints.contains(path), "{complaints}");
    assert_eq!(std::fs::read(&output).expect("there"), vec![b'x'; 3_000_000]);
    let left = std::fs::read_dir(folder.path()).expect("a folder").flatten();
    assert!(!left.into_iter().any(|entry| entry.file_name().to_string_lossy().ends_with(".part")));
}
