//! Wrong input: each causes one clear line and changes nothing.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::double::Folder;
use super::site::Site;

/// Asserts one line on standard error that contains `why`, exit code 1, and no output.
#[track_caller]
fn refuses(folder: &Folder, args: &[&str], why: &str) {
    let (code, said, complaints) = folder.kumi(args);
    assert_eq!((code, said.as_str()), (1, ""), "{args:?}: {complaints}");
    assert!(complaints.starts_with("kumi: ") && complaints.contains(why), "{args:?}: {complaints}");
    assert_eq!(complaints.lines().count(), 1, "{args:?}: {complaints}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn unknown_machines_and_missing_borders_are_reported() {
    let site = Site::new("border-unknown");
    let none = "no border runs in";
    for args in [
        &["ps", "--machine", "build7"][..],
        &["ps", "--machine", "all"],
        &["suspend", "build7/1.1.1"],
        &["watch", "build7/1.1.1"],
        &["border", "list"],
    ] {
        refuses(&site.here, args, none);
    }
    let _borders = site.serve();
    for args in [
        &["ps", "--machine", "build9"][..],
        &["resources", "--machine", "build9"],
        &["top", "--once", "build9/1"],
        &["suspend", "build9/1.1.1"],
    ] {
        refuses(&site.here, args, "knows no machine \"build9\": it knows build8, build7");
    }
    refuses(&site.here, &["suspend", "build7/4000.1.1"], "there is no address space 4000");
    refuses(&site.here, &["suspend", "--machine", "all", "1.1.1"], "name one machine");
    let wrong = site.here.kumi(&["ps", "--machine", "Build7"]);
    assert!(wrong.0 == 2 && wrong.2.contains("not a valid machine name"), "{wrong:?}");
    let wrong = site.here.kumi(&["suspend", "build_7/1.1.1"]);
    assert!(wrong.0 == 2 && wrong.2.contains("not a valid machine name"), "{wrong:?}");
}

#[test]
fn second_border_and_taken_port_are_refused() {
    let site = Site::new("border-second");
    let (_here, there) = site.serve();
    let config = site.folder();
    refuses(&site.here, &["border", "--config", text(&config)], "a border runs in");
    // Another machine's border at the same address.
    let free = Folder::new("border-second-free");
    let args = ["border", "--config", text(&config), "--listen", &there.place];
    refuses(&free, &args, "another program listens there");
}

#[test]
fn border_without_certificates_does_not_start() {
    let site = Site::new("border-bare");
    let config = site.folder();
    let args = ["border", "--config", text(&config), "--listen", "0.0.0.0:0"];
    let (key, certificate) = (config.join("border.key"), config.join("border.pem"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("mine");
    refuses(&site.here, &args, "border.key: other users may use this private key: chmod go= it");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("mine");
    let pem = fs::read(&certificate).expect("readable");
    fs::write(&certificate, "nothing").expect("writable");
    refuses(&site.here, &args, "border.pem: it has no certificate in PEM");
    fs::write(&certificate, pem).expect("writable");
    // The key of another certificate.
    fs::copy(site.other_folder().join("border.key"), &key).expect("a copy");
    refuses(&site.here, &args, "border.pem: ");
    fs::remove_file(&key).expect("it is there");
    refuses(&site.here, &args, "border.key: No such file");
    fs::remove_file(config.join("ca.pem")).expect("it is there");
    refuses(&site.here, &args, "ca.pem: No such file");
    fs::remove_file(config.join("border.conf")).expect("it is there");
    refuses(&site.here, &args, "`kumi border init` makes a configuration");
}

#[test]
fn wrong_configurations_are_refused_with_the_line() {
    let site = Site::new("border-config");
    let config = site.folder();
    for (lines, why) in [
        ("\ndance\n", "border.conf: line 2: \"dance\" is unknown"),
        ("peer build8 127.0.0.1:1", "this machine is build8, as one of the peers"),
        ("allow build7 everything", "line 1: \"everything\" is no right"),
    ] {
        site.write(lines);
        refuses(&site.here, &["border", "--config", text(&config)], why);
    }
    // What exists is never replaced.
    let init = ["border", "init", "--config", text(&config), "build8=127.0.0.1:1"];
    refuses(&site.here, &init, "there is an authority already");
    let wrong = site.here.kumi(&["border", "init", "build8"]);
    assert!(wrong.0 == 2 && wrong.2.contains("expected NAME=HOST:PORT"), "{wrong:?}");
}

#[test]
fn one_more_machine_joins() {
    let site = Site::new("border-add");
    let config = site.folder();
    let add = ["border", "add", "--config", text(&config), "build9=10.0.0.9:7643"];
    let (code, lines, complaints) = site.here.kumi(&add);
    assert_eq!((code, complaints.as_str()), (0, ""));
    assert!(lines.ends_with("ssh 10.0.0.9 kumi border\n"), "{lines}");
    let text = fs::read_to_string(config.join("border.conf")).expect("readable");
    assert!(text.contains("peer build9 10.0.0.9:7643\nallow build9 observe steer\n"), "{text}");
    let nine = fs::read_to_string(config.with_file_name("border-build9").join("border.conf"));
    assert!(nine.expect("readable").contains("peer build7 127.0.0.1:1\n"));
    refuses(&site.here, &add, "has a machine named build9 already");
}

#[test]
fn garbage_at_the_sockets_changes_nothing() {
    let site = Site::new("border-garbage");
    let _one = site.there.space();
    let (_here, there) = site.serve();
    let path = site.here.path().join("border.socket");
    for (line, why) in [
        (&b"dance\n"[..], "invalid request"),
        (b"\xff\xfe\n", "invalid request"),
        (b"{\"protocol\":9,\"border\":\"machines\"}\n", "protocol 9"),
        (
            b"{\"protocol\":1,\"border\":\"control\",\"machine\":\"x\",\"epoch\":\"00000000000000ff\",\"space\":1}\n",
            "knows no machine",
        ),
        (
            b"{\"protocol\":1,\"border\":\"spaces\",\"machine\":\"build7\",\"epoch\":\"00000000000000ff\"}\n",
            "has ended",
        ),
    ] {
        let mut socket = UnixStream::connect(&path).expect("it listens");
        socket.write_all(line).expect("it reads");
        let mut lines = BufReader::new(socket).lines();
        let greeting = lines.next().expect("a greeting").expect("text");
        assert!(greeting.contains("\"border\":\"build8\""), "{greeting}");
        let answer = lines.next().expect("an answer").expect("text");
        assert!(answer.contains("error") && answer.contains(why), "{answer}");
    }
    // A request without an end is refused, and the connection is closed.
    let mut socket = UnixStream::connect(&path).expect("it listens");
    let _ = socket.write_all(&vec![b'x'; 100_000]);
    let mut answer = String::new();
    let _ = socket.read_to_string(&mut answer);
    assert!(answer.contains("border"), "{answer}");
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0; 1000]] {
        let mut socket = TcpStream::connect(&there.place).expect("it listens");
        let _ = socket.write_all(bytes);
        // TLS ends the connection.
        let _ = socket.read_to_end(&mut Vec::new());
    }
    assert_eq!(site.here.kumi(&["ps", "--machine", "build7"]).0, 0);
}
