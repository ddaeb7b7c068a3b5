//! Which requests are admitted: host, token, cookie, origin, key of the page, user.

use kumihimo_machine::handler::State;
use kumihimo_tests::process::{self, is_child};
use kumihimo_tests::skip;
use kumihimo_tests::user::{become_user, own_user};

use super::double::Folder;
use super::plain::{Reply, Web, request};

#[test]
fn hosts_that_a_stranger_may_own_are_refused() {
    let folder = Folder::new("web-hosts");
    let web = Web::start(&folder);
    let session = web.sign_in();
    let fields = session.fields(&session.page_key);
    for host in ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "0.0.0.0"] {
        for (method, target) in [("GET", "/"), ("GET", "/page.js"), ("POST", "/act")] {
            let text = request(host, method, target, &fields, "{}");
            let reply = web.send(text.as_bytes());
            assert_eq!(reply.status, 421, "{host} {target}: {reply:?}");
            assert!(!reply.body.contains(&session.page_key));
        }
    }
    for text in [
        "GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost:x\r\nConnection: close\r\n\r\n",
    ] {
        assert_eq!(web.send(text.as_bytes()).status, 400, "{text:?}");
    }
    // A forwarded connection has another port.
    let text = request("LocalHost:9", "GET", "/", &format!("Cookie: {}\r\n", session.cookie), "");
    assert_eq!(web.send(text.as_bytes()).status, 200);
}

#[test]
fn without_a_session_there_is_nothing_to_see() {
    let folder = Folder::new("web-no-session");
    let one = folder.space();
    let id = one.table.add(1, "secret", State::Waiting);
    let web = Web::start(&folder);
    let view = "/events?view=%7B%22show%22%3A%22spaces%22%7D";
    let targets = ["/", "/?token=", "/?token=00", view, "/find", "/backtrace?id=1.1.1", "/nothing"];
    for cookie in ["", "Cookie: kumi_web=\r\n", "Cookie: kumi_web_1=00; a=b\r\n"] {
        for target in targets {
            let reply = web.ask("GET", target, cookie, "");
            assert_eq!(reply.status, 403, "{target}: {reply:?}");
            assert!(reply.field("set-cookie").is_none() && !reply.body.contains("secret"));
        }
        let fields = format!("Origin: http://{}\r\n{cookie}", web.place);
        for target in ["/act", "/profile", "/sign-out"] {
            let body = format!(r#"{{"id":"{id}","action":"cancel"}}"#);
            assert_eq!(web.ask("POST", target, &fields, &body).status, 403, "{target}");
        }
    }
    assert!(one.table.acted().is_empty());
    assert_eq!(web.ask("GET", "/page.js", "", "").status, 200);
}

#[test]
fn every_response_forbids_foreign_content() {
    let folder = Folder::new("web-headers");
    let web = Web::start(&folder);
    let session = web.sign_in();
    let replies = [
        session.get("/"),
        session.get("/page.css"),
        session.get("/nothing"),
        web.ask("GET", "/", "", ""),
        web.ask("PUT", "/", "", ""),
        web.ask("GET", &format!("/?token={}", web.token()), "", ""),
    ];
    for reply in &replies {
        let policy = reply.field("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; "), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
            ("x-frame-options", "DENY"),
        ] {
            assert_eq!(reply.field(name), Some(value), "{reply:?}");
        }
    }
    let cookie = replies[5].field("set-cookie").expect("a cookie");
    for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/;"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    // Each page is small.
    assert!(replies[0].body.len() < 1 << 20);
}

#[test]
fn requests_of_other_pages_change_nothing() {
    let folder = Folder::new("web-forged");
    let one = folder.space();
    let id = one.table.add(1, "worker", State::Waiting);
    let web = Web::start(&folder);
    let session = web.sign_in();
    let other = web.sign_in();
    let body = format!(r#"{{"id":"{id}","action":"cancel"}}"#);
    let good = session.fields(&session.page_key);
    let own = format!("Origin: http://{}\r\n", web.place);
    for (fields, status) in [
        (session.fields(""), 403),
        (session.fields(&other.page_key), 403),
        (good.replace(&own, ""), 403),
        (good.replace(&own, "Origin: http://evil.example\r\n"), 403),
        (good.replace(&own, "Origin: null\r\n"), 403),
        // Another server of this machine: a browser takes it for the same site.
        (good.replace(&own, "Origin: http://127.0.0.1:1\r\n"), 403),
        (format!("{good}Sec-Fetch-Site: same-site\r\n"), 403),
        (good.replace("application/json", "text/plain"), 415),
        (good.replace("X-Page-Key", "X-Other"), 403),
    ] {
        let reply = web.ask("POST", "/act", &fields, &body);
        assert_eq!(reply.status, status, "{fields}: {reply:?}");
    }
    for body in
        ["", "[]", "{}", r#"{"id":"1.1.1","action":"dance"}"#, r#"{"id":"x","action":"cancel"}"#]
    {
        assert_eq!(session.post("/act", body).status, 400, "{body}");
    }
    for target in ["/act", "/profile", "/sign-in", "/sign-out"] {
        assert_eq!(session.get(target).status, 405, "{target}");
    }
    let cross = format!("Cookie: {}\r\nSec-Fetch-Site: cross-site\r\n", session.cookie);
    assert_eq!(web.ask("GET", "/backtrace?id=1.1.1", &cross, "").status, 403);
    assert!(one.table.acted().is_empty());
    // The same without a fault.
    assert_eq!(web.ask("POST", "/act", &good, &body).status, 200);
    assert_eq!(one.table.acted().len(), 1);
}

#[test]
fn signed_out_session_ends_with_its_streams() {
    let folder = Folder::new("web-sign-out");
    let web = Web::start(&folder);
    let session = web.sign_in();
    let mut events = session.events(&[r#"{"show":"spaces"}"#]);
    events.of(0);
    let reply = session.post("/sign-out", "{}");
    assert!(reply.field("set-cookie").is_some_and(|cookie| cookie.contains("Max-Age=0")));
    while events.next().is_some() {}
    assert_eq!(session.get("/").status, 403);
}

const STRANGER: &str = "admission::other_users_of_the_machine_are_not_served";

#[test]
fn other_users_of_the_machine_are_not_served() {
    if is_child(STRANGER) {
        assert!(become_user(own_user()));
        let place = std::env::var("KUMI_TEST_PLACE").expect("the parent sets it");
        let stream = std::net::TcpStream::connect(&place).expect("the port is open to all");
        let mut to = &stream;
        // The server may have closed by now.
        let token = std::env::var("KUMI_TEST_TOKEN").expect("the parent sets it");
        let target = format!("/?token={token}");
        let _ =
            std::io::Write::write_all(&mut to, request(&place, "GET", &target, "", "").as_bytes());
        let reply = Reply::of(stream);
        assert_eq!(reply.status, 0, "{reply:?}");
        return;
    }
    if !rustix::process::geteuid().is_root() {
        skip(STRANGER, "only root can change its user");
        return;
    }
    let folder = Folder::new("web-users");
    let web = Web::start(&folder);
    let environment = [("KUMI_TEST_PLACE", &*web.place), ("KUMI_TEST_TOKEN", web.token())];
    let ended = process::again(STRANGER, &environment);
    assert!(ended.status.success(), "{}", ended.told());
    // Root's own requests are served.
    web.sign_in();
}
