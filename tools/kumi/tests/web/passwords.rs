//! The password, and a thousand wrong ones.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;

use kumihimo_tests::until;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::double::Folder;
use super::plain::{Reply, Web, request};

const RIGHT: &str = "password=correct+horse";

fn start(folder: &Folder) -> Web {
    let path = folder.path().join("password");
    fs::write(&path, "correct horse\n").expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("changed");
    let path = path.to_str().expect("text");
    Web::start_with(folder, &["--listen", "127.0.0.1:0", "--password-file", path])
}

fn fields(web: &Web) -> String {
    format!("Origin: http://{}\r\nContent-Type: application/x-www-form-urlencoded\r\n", web.place)
}

fn attempt(web: &Web, body: &str) -> Reply {
    web.ask("POST", "/sign-in", &fields(web), body)
}

/// An attempt from another address of the loopback interface.
fn attempt_from(web: &Web, from: Ipv4Addr, body: &str) -> Reply {
    let to: SocketAddr = web.place.parse().expect("an address");
    let stream: OwnedFd = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&stream, &SocketAddr::from((from, 0))).expect("any address of 127/8 is one's own");
    connect(&stream, &to).expect("it listens");
    let mut stream = std::net::TcpStream::from(stream);
    let text = request(&web.place, "POST", "/sign-in", &fields(web), body);
    stream.write_all(text.as_bytes()).expect("sent");
    Reply::of(stream)
}

#[test]
fn password_begins_a_session() {
    let folder = Folder::new("web-password");
    let web = start(&folder);
    let page = web.ask("GET", "/", "", "");
    assert_eq!(page.status, 200);
    assert!(page.body.contains("type=\"password\"") && !page.body.contains("page-key"));
    for wrong in ["", "password=", "password=correct", "password=correct+horse+", "other=x"] {
        let reply = attempt(&web, wrong);
        assert_eq!(reply.status, 403, "{wrong}");
        assert!(reply.field("set-cookie").is_none() && reply.body.contains("password is wrong"));
    }
    let forged = fields(&web).replace("Origin: http://", "Origin: http://evil.example/");
    assert_eq!(web.ask("POST", "/sign-in", &forged, RIGHT).status, 403);
}

#[test]
fn thousand_wrong_passwords_do_not_lock_the_owner_out() {
    let folder = Folder::new("web-thousand");
    let web = start(&folder);
    let before = attempt(&web, RIGHT);
    assert_eq!(before.status, 303);
    let open = web.session(&before);
    let mut statuses = BTreeMap::new();
    for n in 0..1000 {
        let reply = attempt(&web, &format!("password=guess+{n}"));
        assert!(reply.field("set-cookie").is_none());
        if reply.status == 429 {
            let wait: u32 = reply.field("retry-after").expect("a time").parse().expect("a number");
            assert!((1..=61).contains(&wait), "{wait}");
            assert!(reply.body.contains("Too many wrong passwords"));
        }
        *statuses.entry(reply.status).or_insert(0) += 1;
    }
    // The first five were looked at, and most of the others were not.
    let (looked_at, refused) = (statuses[&403], statuses[&429]);
    assert!(looked_at >= 5 && refused > looked_at, "{statuses:?}");
    assert_eq!(looked_at + refused, 1000);

    // An open session, the printed address, and another address are not affected.
    assert_eq!(open.get("/").status, 200);
    web.sign_in();
    assert_eq!(attempt_from(&web, Ipv4Addr::new(127, 0, 0, 2), RIGHT).status, 303);
    assert_eq!(attempt_from(&web, Ipv4Addr::new(127, 0, 0, 3), "password=x").status, 403);
    // From the same address the password is accepted as soon as the time is over.
    until("the delay ends", || (), || attempt(&web, RIGHT).status == 303);
}
