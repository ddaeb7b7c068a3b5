//! Sockets handed over to real processes: this test program once more, as somebody else.

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kumihimo_io::net::{
    Server, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, inherited,
};
use kumihimo_runtime::thread;

const LONG: Duration = Duration::from_secs(3600);

/// The calling test in a process of its own, which [`is_child`] tells apart.
fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env("KUMI_TEST_CHILD", test);
    command
}

fn is_child(test: &str) -> bool {
    std::env::var("KUMI_TEST_CHILD").is_ok_and(|child| child == test)
}

fn answer(mut stream: TcpStream, who: &str) {
    let mut buf = [0; 16];
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        if stream.write_all(who.as_bytes()).is_err() || &buf[..n] == b"bye" {
            break;
        }
    }
}

/// Serves what is handed over until nobody holds its standard input.
fn successor() {
    let mut all = inherited::take().unwrap();
    assert_eq!(all.names().collect::<Vec<_>>(), ["http", "control"]);
    let listener: TcpListener = all.named("http").unwrap().expect("it was handed over");
    assert!(inherited::take().unwrap().names().next().is_none(), "once");
    let server = Server::new();
    thread::scope(|s| {
        let serving = s.spawn(|| server.serve(&listener, |stream, _| answer(stream, "new")));
        println!("ready");
        thread::blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).unwrap();
        server.drain(LONG);
        let tally = serving.join().unwrap().unwrap();
        assert!(tally.served > 0, "it had its part");
    });
}

/// Clients come all the time. Nobody is refused or cut off while the old server drains and its
/// successor takes over.
#[test]
fn successor_takes_over_without_refusing_a_connection() {
    const TEST: &str = "successor_takes_over_without_refusing_a_connection";
    if is_child(TEST) {
        return successor();
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at: SocketAddr = listener.local_addr().unwrap();
    let (control, _other) = UnixDatagram::pair().unwrap();
    let server = Server::new();
    let (over, by_old, by_new) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let ask = |stream: &mut TcpStream, what: &[u8]| {
        stream.write_all(what).unwrap();
        let mut buf = [0; 3];
        stream.read_exact(&mut buf).unwrap();
        match &buf {
            b"old" => by_old.fetch_add(1, Ordering::Relaxed),
            b"new" => by_new.fetch_add(1, Ordering::Relaxed),
            _ => panic!("{buf:?}"),
        };
        buf
    };
    let mut child = thread::scope(|s| {
        let serving = s.spawn(|| server.serve(&listener, |stream, _| answer(stream, "old")));
        for _ in 0..4 {
            s.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    ask(&mut TcpStream::connect(at).unwrap(), b"bye");
                }
            });
        }
        let mut long = TcpStream::connect(at).unwrap();
        assert_eq!(ask(&mut long, b"more"), *b"old");
        let mut command = again(TEST);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        inherited::hand_over(
            &mut command,
            &[("http", listener.as_fd()), ("control", control.as_fd())],
        )
        .unwrap();
        let mut child = command.spawn().unwrap();
        drop(command);
        // Both accept now.
        let mut said = [0; 4096];
        let mut all = String::new();
        while !all.contains("ready") {
            let n = thread::blocking(|| child.stdout.as_mut().unwrap().read(&mut said)).unwrap();
            assert_ne!(n, 0, "{all}");
            all += &String::from_utf8_lossy(&said[..n]);
        }
        server.drain(LONG);
        // Under way when the draining began: served to its end.
        assert_eq!(ask(&mut long, b"more"), *b"old");
        assert_eq!(ask(&mut long, b"bye"), *b"old");
        let tally = serving.join().unwrap().unwrap();
        assert_eq!(tally.cancelled, 0);
        // From here on there is nobody else.
        let so_far = by_new.load(Ordering::Relaxed);
        while by_new.load(Ordering::Relaxed) < so_far + 20 {
            thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
        child
    });
    assert!(by_old.into_inner() > 0);
    drop(child.stdin.take());
    let mut all = String::new();
    child.stdout.take().unwrap().read_to_string(&mut all).unwrap();
    assert!(child.wait().unwrap().success(), "{all}");
}

/// Each is given out as what it is, by name or place; as anything else it is an error that says
/// what it is.
#[test]
fn inherited_socket_is_taken_as_its_own_type_only() {
    const TEST: &str = "inherited_socket_is_taken_as_its_own_type_only";
    if is_child(TEST) {
        let mut all = inherited::take().unwrap();
        assert_eq!(all.names().collect::<Vec<_>>(), ["web", "web", "names", "log", "file", ""]);
        let e = all.named::<UnixListener>("web").unwrap_err().to_string();
        assert!(
            e.contains("descriptor 3") && e.contains("an IPv4 stream socket that listens"),
            "{e}"
        );
        let e = all.named::<TcpListener>("names").unwrap_err().to_string();
        assert!(
            e.contains("\"names\"") && e.contains("an IPv4 datagram socket, not a TCP socket"),
            "{e}"
        );
        let e = all.named::<UnixDatagram>("file").unwrap_err().to_string();
        assert!(e.contains("no socket"), "{e}");
        assert!(all.named::<TcpListener>("nothing").unwrap().is_none());
        assert!(all.at::<TcpListener>(100).unwrap().is_none());

        // The first of that name, then the second.
        let first: TcpListener = all.named("web").unwrap().unwrap();
        let second: TcpListener = all.named("web").unwrap().unwrap();
        assert!(all.named::<TcpListener>("web").unwrap().is_none());
        assert_ne!(first.local_addr().unwrap(), second.local_addr().unwrap());
        let names: UdpSocket = all.at(2).unwrap().unwrap();
        let log: UnixDatagram = all.named("log").unwrap().unwrap();
        assert_eq!(log.recv(&mut [0; 9]).unwrap(), 4, "sent before there was this process");
        let unix: UnixListener = all.named("").unwrap().unwrap();
        for fd in [first.as_fd(), second.as_fd(), names.as_fd(), log.as_fd(), unix.as_fd()] {
            // SAFETY: no pointer.
            let flags = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&fd), libc::F_GETFD) };
            assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        }
        assert_eq!(std::env::var("KUMI_OF_THE_COMMAND").unwrap(), "set");
        assert!(std::env::var("PATH").is_ok(), "the rest of the environment is there");
        assert!(std::env::var("CARGO_MANIFEST_DIR").is_err(), "but for what was removed");
        assert_eq!(all.names().collect::<Vec<_>>(), ["file"]);
        return;
    }
    let path = std::env::temp_dir().join(format!("kumi-io-inherited-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let (first, second) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let names = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (log, sender) = UnixDatagram::pair().unwrap();
    sender.send(b"line").unwrap();
    let file = File::open("/dev/null").unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    let mut command = again(TEST);
    command.env("KUMI_OF_THE_COMMAND", "set").env_remove("CARGO_MANIFEST_DIR");
    // What this process was itself started with is not passed on.
    command.env("LISTEN_PID", "1").env("LISTEN_FDS", "77");
    let all = [
        ("web", first.as_fd()),
        ("web", second.as_fd()),
        ("names", names.as_fd()),
        ("log", log.as_fd()),
        ("file", file.as_fd()),
        ("", unix.as_fd()),
    ];
    inherited::hand_over(&mut command, &all).unwrap();
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    // Still ours.
    first.set_nonblocking(true).unwrap();
    assert_eq!(first.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    std::fs::remove_file(&path).unwrap();
}

/// What a confused or hostile environment says.
#[test]
fn contradictory_variables_are_refused() {
    const TEST: &str = "contradictory_variables_are_refused";
    if is_child(TEST) {
        match std::env::var("KUMI_TEST_EXPECT").unwrap().as_str() {
            "nothing" => assert!(inherited::take().unwrap().names().next().is_none()),
            text => {
                for _ in 0..2 {
                    let e = inherited::take().unwrap_err();
                    assert_eq!(e.kind(), std::io::ErrorKind::InvalidInput);
                    assert!(e.to_string().contains(text), "{e}");
                }
            }
        }
        return;
    }
    // By a shell, which knows its process id and keeps it in exec.
    let cases = [
        ("", "nothing"),
        ("LISTEN_FDS=1 LISTEN_PID=1", "nothing"),
        ("LISTEN_FDS=1 LISTEN_PID=me", "nothing"),
        ("LISTEN_FDS=0 LISTEN_PID=$$", "nothing"),
        ("LISTEN_PID=$$", "nothing"),
        ("LISTEN_FDS=x LISTEN_PID=$$", "LISTEN_FDS is \"x\""),
        ("LISTEN_FDS=-1 LISTEN_PID=$$", "LISTEN_FDS is \"-1\""),
        ("LISTEN_FDS=2147483647 LISTEN_PID=$$", "LISTEN_FDS is \"2147483647\""),
        ("LISTEN_FDS=2 LISTEN_FDNAMES=a LISTEN_PID=$$", "1 names for the 2 descriptors"),
        ("LISTEN_FDS=90 LISTEN_PID=$$", "is not open"),
    ];
    for (variables, expected) in cases {
        let program = again(TEST);
        let mut shell = Command::new("/bin/sh");
        shell.args([
            "-c",
            &format!("export KUMI_TEST_EXPECT='{expected}'; {variables} exec \"$0\" \"$@\""),
        ]);
        shell.arg(program.get_program()).args(program.get_args()).env("KUMI_TEST_CHILD", TEST);
        let output = shell.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{variables}: {text}");
    }
}

#[test]
fn invalid_names_cannot_be_handed_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for name in ["a:b", "line\n", "\0"] {
        let e = inherited::hand_over(&mut Command::new("true"), &[(name, listener.as_fd())])
            .unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::InvalidInput);
        assert!(e.to_string().contains("named"), "{e}");
    }
    // A program that is not there: said by `spawn`, as ever.
    let mut command = Command::new("/nowhere/at/all");
    inherited::hand_over(&mut command, &[("x", listener.as_fd())]).unwrap();
    assert_eq!(command.spawn().unwrap_err().kind(), std::io::ErrorKind::NotFound);
    // More than once, more than a few.
    let many: Vec<(&str, BorrowedFd)> = (0..40).map(|_| ("x", listener.as_fd())).collect();
    let mut command = Command::new("true");
    inherited::hand_over(&mut command, &many).unwrap();
    assert!(command.status().unwrap().success());
    assert!(command.status().unwrap().success());
}
