//! Arguments that cannot be served, and the UNIX socket.

use std::fs::{self, Permissions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::process::Signal;

use super::double::Folder;
use super::plain::{Reply, Web, request};

#[track_caller]
fn refuses(folder: &Folder, args: &[&str], why: &str) {
    let (code, said, complaints) = folder.kumi(&[&["web"], args].concat());
    assert_eq!((code, said.as_str()), (1, ""), "{args:?}: {complaints}");
    assert!(complaints.starts_with("kumi: ") && complaints.contains(why), "{args:?}: {complaints}");
    assert_eq!(complaints.lines().count(), 1, "{args:?}: {complaints}");
}

#[test]
fn taken_port_is_reported() {
    let folder = Folder::new("web-port");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("bound").to_string();
    refuses(&folder, &["--listen", &at], "another program listens there: use another port");
}

#[test]
fn open_addresses_need_a_password_and_tls() {
    let folder = Folder::new("web-open");
    let password = folder.path().join("password");
    fs::write(&password, "correct horse").expect("written");
    fs::set_permissions(&password, Permissions::from_mode(0o600)).expect("changed");
    let password = password.to_str().expect("text");
    for at in ["0.0.0.0:0", "[::]:0"] {
        refuses(&folder, &["--listen", at], "other machines can reach this address");
        let args = ["--listen", at, "--password-file", password];
        refuses(&folder, &args, "other machines can reach this address");
    }
    for (args, why) in [
        (&["--password-file", "/no/such/file"][..], "/no/such/file: No such file"),
        (&["--certificate", "/no/such/file", "--key", password], "/no/such/file: No such file"),
        (&["--certificate", password, "--key", password], "it has no certificate in PEM"),
    ] {
        refuses(&folder, args, why);
    }
    fs::set_permissions(password, Permissions::from_mode(0o644)).expect("changed");
    refuses(&folder, &["--password-file", password], "other users may read this password file");
    // clap's own refusals have exit code 2.
    for args in [
        &["--listen", "8080"][..],
        &["--listen", "unix:"],
        &["--certificate", password],
        &["--every", "1"],
    ] {
        assert_eq!(folder.kumi(&[&["web"], args].concat()).0, 2, "{args:?}");
    }
}

#[test]
fn unix_socket_is_the_users_own() {
    let folder = Folder::new("web-unix");
    let path = folder.path().join("web");
    let listen = format!("unix:{}", path.display());
    // A file that is no socket stays as it is.
    fs::write(&path, "precious").expect("written");
    refuses(&folder, &["--listen", &listen], "this is no socket of user");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "precious");
    fs::remove_file(&path).expect("removed");
    // A socket that an ended process has left is replaced.
    drop(UnixListener::bind(&path).expect("a socket"));

    let web = Web::start_with(&folder, &["--listen", &listen]);
    assert_eq!(web.place, listen);
    assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    refuses(&folder, &["--listen", &listen], "another program listens there");
    let ask = |target: &str| {
        let mut stream = UnixStream::connect(&path).expect("it listens");
        stream
            .write_all(request("localhost:8080", "GET", target, "", "").as_bytes())
            .expect("sent");
        Reply::of(stream)
    };
    assert_eq!(ask("/").status, 403);
    assert_eq!(ask(&format!("/?token={}", web.token())).status, 303);
    assert!(web.end_by(Signal::TERM).success());
    assert!(!path.exists(), "the socket is removed");
}

#[test]
fn socket_of_another_program_is_not_removed() {
    let folder = Folder::new("web-unix-replaced");
    let path = folder.path().join("web");
    let web = Web::start_with(&folder, &["--listen", &format!("unix:{}", path.display())]);
    fs::remove_file(&path).expect("removed");
    let _other = UnixListener::bind(&path).expect("a socket");
    assert!(web.end_by(Signal::INT).success());
    assert!(path.exists());
}
