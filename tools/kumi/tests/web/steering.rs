//! Steering: the requests arrive at the address space, and only those that are meant.

use kumihimo_machine::handler::{Action, State};
use serde_json::json;

use super::double::Folder;
use super::plain::Web;

#[test]
fn actions_reach_the_microprocess() {
    let folder = Folder::new("web-steer");
    let one = folder.space();
    let [a, b] = [1, 2].map(|slot| one.table.add(slot, "worker", State::Waiting));
    let web = Web::start(&folder);
    let session = web.sign_in();
    let short = format!("{}.1.1", one.table.number);
    for (action, said) in [
        (json!("suspend"), "suspended"),
        (json!("suspend"), "was already suspended"),
        (json!("resume"), "resumed"),
        (json!({ "priority": 63 }), "has priority 63"),
        (json!("cancel"), "cancelled"),
    ] {
        let reply = session.post("/act", &json!({ "id": a, "action": action }).to_string());
        assert_eq!(
            (reply.status, reply.json()),
            (200, json!({ "said": format!("{short}: {said}") }))
        );
    }
    let actions =
        [Action::Suspend, Action::Suspend, Action::Resume, Action::Priority(63), Action::Cancel];
    assert_eq!(one.table.acted(), actions.map(|action| (a, action)));
    // Its successor is another microprocess.
    let reply = session.post("/act", &json!({ "id": a, "action": "suspend" }).to_string());
    assert_eq!(reply.status, 409);
    assert!(reply.json()["error"].as_str().is_some_and(|why| why.contains("has ended")));
    assert_eq!(one.table.row(b).state, State::Waiting);
}

#[test]
fn impossible_actions_are_refused() {
    let folder = Folder::new("web-steer-refused");
    let one = folder.space();
    let fortress = one.table.add(1, "fortress", State::Waiting);
    let web = Web::start(&folder);
    let session = web.sign_in();
    let number = one.table.number;
    for (id, action, why) in [
        (fortress.to_string(), json!("suspend"), "lets nobody steer it"),
        (fortress.to_string(), json!({ "priority": 64 }), "a priority is 0 to 63"),
        (format!("{number}.space.0.1"), json!("cancel"), "is no microprocess of this machine"),
        (format!("1/{number}.1.1"), json!("cancel"), "is no microprocess of this machine"),
        ("4000.1.1".to_owned(), json!("cancel"), "there is no address space 4000"),
    ] {
        let reply = session.post("/act", &json!({ "id": id, "action": action }).to_string());
        let error = reply.json()["error"].as_str().expect("an error").to_owned();
        assert!(reply.status == 409 && error.contains(why), "{id}: {error}");
    }
    assert!(one.table.acted().is_empty());
    for (body, why) in [
        (json!({ "space": 4000, "seconds": 1 }), "there is no address space 4000"),
        (json!({ "space": number, "seconds": 0 }), "a profile takes 1 to 30 seconds"),
        (json!({ "space": number, "seconds": 31 }), "a profile takes 1 to 30 seconds"),
    ] {
        let reply = session.post("/profile", &body.to_string());
        let error = reply.json()["error"].as_str().expect("an error").to_owned();
        assert!(reply.status == 409 && error.contains(why), "{error}");
    }
}

/// The server is an address space of the user itself, with microprocesses that serve the page.
#[test]
fn server_does_not_steer_itself() {
    let folder = Folder::new("web-itself");
    let web = Web::start(&folder);
    let session = web.sign_in();
    let (code, said, _) = folder.kumi(&["ps", "--json"]);
    assert_eq!(code, 0);
    let own: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    // Where microprocesses are kernel threads, none is listed.
    for row in &own {
        let body = json!({ "id": row["id"], "action": "suspend" }).to_string();
        let reply = session.post("/act", &body);
        assert_eq!(reply.status, 409);
        let error = reply.json()["error"].as_str().expect("an error").to_owned();
        assert!(error.contains("is kumi web itself"), "{error}");
    }
    let mut events = session.events(&[r#"{"show":"spaces"}"#]);
    assert_eq!(events.of(0)["spaces"], json!([]));
}
