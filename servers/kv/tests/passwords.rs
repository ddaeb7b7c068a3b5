//! Which clients may connect: the password, and protected mode.

mod beside;

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;

use beside::{Client, Folder, KV, Reply, Served, text};

const NOAUTH: &str = "NOAUTH Authentication required.";
const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn password_is_required_before_other_commands() {
    let folder = Folder::new("password");
    let file = folder.file("password");
    std::fs::write(&file, "secret\n").expect("a file");
    let path = text(&file);
    for args in [["--requirepass", "secret"], ["--requirepass-file", &path]] {
        let server = Served::start(&args);
        let mut client = server.client();
        for command in [&["ping"][..], &["get", "a"], &["shutdown"], &["client", "list"]] {
            assert_eq!(client.ask(command), Reply::error(NOAUTH), "{command:?}");
        }
        let Reply::Line('-', hello) = client.ask(&["hello", "3"]) else { panic!("no error") };
        assert!(hello.starts_with("NOAUTH HELLO must be called"), "{hello}");
        for wrong in
            [&["auth", "Secret"][..], &["auth", "secretsecret"], &["auth", "other", "secret"]]
        {
            assert_eq!(client.ask(wrong), Reply::error(WRONGPASS), "{wrong:?}");
            assert_eq!(client.ask(&["get", "a"]), Reply::error(NOAUTH));
        }
        assert_eq!(client.ask(&["auth", "a", "b", "c"]), Reply::error("ERR syntax error"));
        assert_eq!(client.ask(&["auth", "secret"]), Reply::ok());
        assert_eq!(client.ask(&["set", "a", "1"]), Reply::ok());
        // An attempt that fails later does not log the client out, as in Redis.
        assert_eq!(client.ask(&["auth", "wrong"]), Reply::error(WRONGPASS));
        assert_eq!(client.ask(&["get", "a"]), Reply::bulk("1"));
        let mut client = server.client();
        assert_eq!(
            client.ask(&["hello", "3", "auth", "default", "wrong"]),
            Reply::error(WRONGPASS)
        );
        let hello = client.ask(&["hello", "3", "auth", "default", "secret"]);
        assert!(matches!(hello, Reply::Many('%', Some(_))), "{hello:?}");
        assert_eq!(client.ask(&["get", "a"]), Reply::bulk("1"));
    }
}

#[test]
fn requests_before_the_password_are_short() {
    let server = Served::start(&["--requirepass", "secret"]);
    for (bytes, error) in [
        ("*11\r\n", "unauthenticated multibulk length"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", "unauthenticated bulk length"),
    ] {
        let mut client = server.client();
        client.send(bytes.as_bytes());
        assert_eq!(client.reply(), Reply::error(&format!("ERR Protocol error: {error}")));
        client.expect_end();
        let mut client = server.client();
        assert_eq!(client.ask(&["auth", "secret"]), Reply::ok());
        client.send(bytes.as_bytes());
        assert_eq!(server.client().ask(&["ping"]), Reply::error(NOAUTH));
    }
}

#[test]
fn passwordless_auth_is_answered_as_in_redis() {
    let folder = Folder::new("passwordless");
    let Some(redis) = Served::redis("passwordless_auth_is_answered_as_in_redis", &folder) else {
        return;
    };
    let ours = Served::start(&[]);
    let (mut ours, mut theirs) = (ours.client(), redis.client());
    for command in [
        &["auth", "x"][..],
        &["auth", "default", "x"],
        &["auth", "other", "x"],
        &["auth"],
        &["auth", "a", "b", "c"],
    ] {
        assert_eq!(ours.ask(command), theirs.ask(command), "{command:?}");
    }
}

#[test]
fn client_off_loopback_is_refused_without_a_password() {
    // Connecting a datagram socket sends nothing. It selects an address of this machine.
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let own = socket.connect("203.0.113.1:9").and_then(|()| socket.local_addr());
    let Some(own) = own.ok().filter(|own| !own.ip().is_loopback()) else {
        return kumihimo_tests::skip(
            "client_off_loopback_is_refused_without_a_password",
            "no address but those of loopback",
        );
    };
    let start =
        |args: &[&str]| Served::spawn(Command::new(KV).args(["--listen", "0.0.0.0:0"]).args(args));
    let connect = |server: &Served| {
        let at = SocketAddr::new(own.ip(), server.port);
        Client::new(TcpStream::connect(at).expect("a listening socket"))
    };
    let server = start(&[]);
    for _ in 0..3 {
        let mut client = connect(&server);
        let Reply::Line('-', error) = client.reply() else { panic!("it was served") };
        assert!(error.starts_with("DENIED Redis is running in protected mode"), "{error}");
        client.expect_end();
    }
    let pong = Reply::Line('+', "PONG".to_owned());
    assert_eq!(server.client().ask(&["ping"]), pong);
    let open = start(&["--protected-mode", "no"]);
    assert_eq!(connect(&open).ask(&["ping"]), pong);
    let closed = start(&["--requirepass", "secret"]);
    let mut client = connect(&closed);
    assert_eq!(client.ask(&["ping"]), Reply::error(NOAUTH));
    assert_eq!(client.ask(&["auth", "secret"]), Reply::ok());
    assert_eq!(client.ask(&["ping"]), pong);
}

#[test]
fn empty_password_is_refused() {
    let folder = Folder::new("empty-password");
    let file = folder.file("password");
    std::fs::write(&file, "\nsecret\n").expect("a file");
    let (path, nothing) = (text(&file), text(&folder.file("nothing")));
    for (args, error) in [
        (["--requirepass", ""], "the password is empty"),
        (["--requirepass-file", &path], "the first line is empty"),
        (["--requirepass-file", &nothing], "No such file"),
    ] {
        let output = Command::new(KV).args(args).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(error), "{args:?}: {said}");
    }
}
