//! The stream of events: what pages show.

use kumihimo_machine::handler::{Microprocess, State};
use kumihimo_machine::locks::Holder;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::double::Folder;
use super::plain::Web;

/// A name that would run as a script, disguise itself, or end an event.
const HOSTILE: &str = "<script>alert(1)</script>\"'&\u{202e}\n\nevent: view-0\ndata: {}\n\n";

fn view(show: &str, space: u16, more: &str) -> String {
    format!(r#"{{"show":"{show}","space":{space}{more}}}"#)
}

#[test]
fn views_follow_the_address_space() {
    let folder = Folder::new("web-views");
    let one = folder.space();
    let number = one.table.number;
    for slot in 0..30 {
        one.table.add(slot, &format!("worker-{slot}"), State::Waiting);
    }
    one.table.count("kumihimo_vp_switches_total", "0", 7.0);
    let web = Web::start(&folder);
    let session = web.sign_in();
    let rows = view("microprocesses", number, r#","sort":"name","skip":10,"limit":5"#);
    let some = view("microprocesses", number, r#","filter":"WORKER-7","limit":5"#);
    let none = view("latency", 4000, "");
    let mut events = session.events(&[r#"{"show":"spaces"}"#, &rows, &some, &none]);
    let spaces = events.of(0);
    assert_eq!(spaces["spaces"][0]["number"], number);
    assert_eq!(spaces["spaces"][0]["living"], 30);
    assert_eq!(spaces["spaces"].as_array().map(Vec::len), Some(1), "not kumi web itself");
    let names = |data: &Value| -> Vec<String> {
        let rows = data["rows"].as_array().expect("rows");
        rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
    };
    let mut sorted: Vec<String> = (0..30).map(|slot| format!("worker-{slot}")).collect();
    sorted.sort();
    let data = events.of(1);
    assert_eq!((names(&data), &data["totals"]["matching"]), (sorted[10..15].to_vec(), &json!(30)));
    assert_eq!(names(&events.of(2)), ["worker-7"]);
    let error = events.of(3)["error"].as_str().expect("an error").to_owned();
    assert!(error.contains("there is no address space 4000"), "{error}");

    // A change is seen, and the end of the address space.
    let row = one.table.row(one.table.microprocess_id(7, 1));
    one.table.put(Microprocess { state: State::Suspended, ..row });
    while events.of(2)["rows"][0]["state"] != "suspended" {}
    drop(one);
    while events.of(0)["spaces"] != json!([]) {}
}

#[test]
fn hostile_names_are_data() {
    let folder = Folder::new("web-hostile");
    let one = folder.space();
    let id = one.table.add(1, HOSTILE, State::Waiting);
    let row = one.table.row(id);
    let holder = Holder::Microprocess { id, name: Some(HOSTILE.to_owned()) };
    let waits_for = Some(HOSTILE.to_owned());
    one.table.put(Microprocess { waits_for, holder: Some(holder), ..row });
    let web = Web::start(&folder);
    let session = web.sign_in();
    let mut events = session.events(&[&view("microprocesses", one.table.number, r#","limit":9"#)]);
    for _ in 0..3 {
        let (name, data) = events.next().expect("an event");
        assert_eq!((name.as_str(), &data["rows"][0]["name"]), ("view-0", &json!(HOSTILE)));
    }
    assert!(!session.page.contains("alert(1)"));
    // It comes back in the stack and in the outcome of a request, as JSON that no browser runs.
    let reply = session.get(&format!("/backtrace?id={id}"));
    assert_eq!((reply.status, reply.field("content-type")), (200, Some("application/json")));
    assert!(reply.json()["said"].as_str().is_some_and(|said| said.contains(HOSTILE)));
}

#[test]
fn invalid_views_are_refused() {
    let folder = Folder::new("web-invalid-views");
    let web = Web::start(&folder);
    let session = web.sign_in();
    let many = format!("/events?{}", ["view=%7B%22show%22%3A%22spaces%22%7D"; 33].join("&"));
    for target in [
        "/events",
        "/events?view=",
        "/events?view=%7B%22show%22%3A%22dance%22%7D",
        "/events?view=%7B%22show%22%3A%22microprocesses%22%2C%22space%22%3A1%2C%22limit%22%3A99999%7D",
        &many,
        "/find?view=x&text=a",
        "/find?view=%7B%22show%22%3A%22latency%22%2C%22space%22%3A1%7D&from=-1",
    ] {
        let reply = session.get(target);
        assert_eq!(reply.status, 400, "{target}: {reply:?}");
    }
    // More different views than one server watches.
    let views: Vec<String> = (1..=32).map(|space| view("latency", space, "")).collect();
    let views: Vec<&str> = views.iter().map(String::as_str).collect();
    let mut all = session.events(&views);
    all.of(31);
    let mut one_more = session.events(&[r#"{"show":"spaces"}"#]);
    let (name, data) = one_more.next().expect("a refusal");
    assert!(data["error"].as_str().is_some_and(|why| why.contains("close some pages")), "{data}");
    assert_eq!((name.as_str(), one_more.next()), ("refused", None));
}

#[test]
fn fifty_pages_share_one_watcher() {
    let folder = Folder::new("web-fifty");
    let one = folder.space();
    one.table.add(1, "worker", State::Waiting);
    let web = Web::start(&folder);
    let session = web.sign_in();
    let view = view("microprocesses", one.table.number, r#","limit":9"#);
    let mut pages: Vec<_> = (0..50).map(|_| session.events(&[&view])).collect();
    for page in &mut pages {
        assert_eq!(page.of(0)["rows"][0]["name"], "worker");
    }
    // All of them follow.
    let row = one.table.row(one.table.microprocess_id(1, 1));
    one.table.put(Microprocess { state: State::Suspended, ..row });
    for page in &mut pages {
        while page.of(0)["rows"][0]["state"] != "suspended" {}
    }
    let (code, said, complaints) = folder.kumi(&["ps", "--json", &web.pid().to_string()]);
    assert_eq!((code, complaints.as_str()), (0, ""));
    let names: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    let named = |name: &str| names.iter().filter(|row| row["name"] == name).count();
    // Where microprocesses are kernel threads, none is listed.
    if !names.is_empty() {
        assert_eq!((named("connection"), named("watcher")), (50, 1), "{said}");
    }
}

#[test]
fn rows_are_found() {
    let folder = Folder::new("web-find");
    let one = folder.space();
    for slot in 0..200 {
        one.table.add(slot, &format!("worker-{slot}"), State::Waiting);
    }
    let web = Web::start(&folder);
    let session = web.sign_in();
    let view = view("microprocesses", one.table.number, r#","sort":"id","limit":9"#);
    let find = |text: &str, from: u32| {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("view", &view)
            .append_pair("text", text)
            .append_pair("from", &from.to_string())
            .finish();
        session.get(&format!("/find?{query}")).json()["found"].clone()
    };
    assert_eq!(find("ER-150", 0), json!(150));
    // The search begins anew at the end.
    assert_eq!((find("ER-15", 151), find("ER-15", 160)), (json!(151), json!(15)));
    assert_eq!(find("nobody", 0), Value::Null);
}

#[test]
fn stream_ends_with_the_server() {
    let folder = Folder::new("web-stop");
    let web = Web::start(&folder);
    let mut events = web.sign_in().events(&[r#"{"show":"spaces"}"#]);
    events.of(0);
    assert!(web.end_by(Signal::TERM).success());
    while events.next().is_some() {}
}
