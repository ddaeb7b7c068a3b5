//! No descriptor left. Changes the whole process's table: a test program of its own.

use std::fs::File;
use std::io::{self, Read, Write};

use kumihimo_io::fs;
use kumihimo_io::io::pipe;
use kumihimo_io::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use kumihimo_io::process::{Command, Stdio};
use kumihimo_io::signal;

use super::Env;
use super::tcp::{LOCAL, listen};

fn is_emfile<T>(result: io::Result<T>) -> bool {
    matches!(result, Err(e) if e.raw_os_error() == Some(libc::EMFILE))
}

fn lower_descriptor_limit(to: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is live in both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = to.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

/// Every call that needs a descriptor says EMFILE, nothing is lost, and all goes on once one is
/// free.
pub fn descriptors_run_out(_: Env) {
    lower_descriptor_limit(200);
    let (listener, addr) = listen();
    let mut client = TcpStream::connect(addr).unwrap();
    client.write_all(b"waiting").unwrap();

    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
        assert!(files.len() <= 200);
    }
    for _ in 0..3 {
        assert!(is_emfile(listener.accept()));
        assert!(is_emfile(TcpStream::connect(addr)));
        assert!(is_emfile(TcpListener::bind(LOCAL)));
        assert!(is_emfile(listener.try_clone()));
        assert!(is_emfile(client.try_clone()));
        assert!(is_emfile(UnixStream::pair()));
        assert!(is_emfile(UnixStream::connect("/nowhere")));
        assert!(is_emfile(UnixListener::bind("/nowhere/at/all")));
    }

    // The one that waited is still there.
    let (mut served, peer) = with_one_more(&mut files, || listener.accept());
    assert_eq!(peer, client.local_addr().unwrap());
    let mut buf = [0; 7];
    served.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"waiting");
    drop(served);
    let other = with_one_more(&mut files, || TcpStream::connect(addr));
    assert_eq!(other.peer_addr().unwrap(), addr);
}

/// What `f` makes of a descriptor that becomes free. The runtime may take it for itself: a clock,
/// where a kernel thread is preempted for the first time.
fn with_one_more<T>(files: &mut Vec<File>, mut f: impl FnMut() -> std::io::Result<T>) -> T {
    loop {
        assert!(files.pop().is_some(), "with all of them free, still too few");
        match f() {
            Err(e) if e.raw_os_error() == Some(libc::EMFILE) => {}
            done => return done.unwrap(),
        }
    }
}

/// The same for files, pipes and children. Some calls do without, or say so and can be repeated.
pub fn descriptors_run_out_for_files(_: Env) {
    lower_descriptor_limit(200);
    let (reader, writer) = pipe().unwrap();
    let mut sleeps = Command::new("sleep").arg("0.1").spawn().unwrap();
    let mut both = Command::new("sh");
    both.args(["-c", "echo a; echo b >&2"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = both.spawn().unwrap();
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
        assert!(files.len() <= 200);
    }
    for _ in 0..3 {
        assert!(is_emfile(fs::File::open("/dev/null")));
        assert!(is_emfile(fs::read("/dev/null")));
        assert!(is_emfile(fs::read_dir("/")));
        assert!(is_emfile(fs::copy("/etc/passwd", "/dev/null")));
        assert!(is_emfile(pipe()));
        assert!(is_emfile(reader.try_clone()));
        assert!(is_emfile(writer.try_clone()));
        assert!(is_emfile(Command::new("true").output()));
        assert!(is_emfile(signal::stream(signal::Kind::USER_1)));
    }
    // None is left for a pidfd: a kernel thread waits.
    assert!(sleeps.wait().unwrap().success());
    // Nor for waiting for both streams at once.
    let output = running.wait_with_output().unwrap();
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"a\n"[..], &b"b\n"[..]));
}
