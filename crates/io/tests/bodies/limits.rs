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

/// Descriptors that the runtime may give back at once: those of kernel threads that it could not
/// start for lack of one more.
const GIVEN_BACK: usize = 8;

fn is_emfile<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(e) if e.raw_os_error() == Some(libc::EMFILE))
}

/// Opens files until no descriptor is left.
fn fill(files: &mut Vec<File>) {
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
        assert!(files.len() <= 200);
    }
}

/// Asserts that `call` says EMFILE. It may have another result where it had a descriptor that the
/// runtime has given back.
fn says_emfile<T>(files: &mut Vec<File>, mut call: impl FnMut() -> io::Result<T>) {
    let said = (0..GIVEN_BACK).any(|_| {
        fill(files);
        is_emfile(&call())
    });
    assert!(said, "no descriptor is left, and the call needs none");
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
    let clients: Vec<TcpStream> = (0..3 * GIVEN_BACK)
        .map(|_| {
            let mut client = TcpStream::connect(addr).unwrap();
            client.write_all(b"waiting").unwrap();
            client
        })
        .collect();

    let mut files = Vec::new();
    for _ in 0..3 {
        says_emfile(&mut files, || listener.accept());
        says_emfile(&mut files, || TcpStream::connect(addr));
        says_emfile(&mut files, || TcpListener::bind(LOCAL));
        says_emfile(&mut files, || listener.try_clone());
        says_emfile(&mut files, || clients[0].try_clone());
        says_emfile(&mut files, UnixStream::pair);
        says_emfile(&mut files, || UnixStream::connect("/nowhere"));
        says_emfile(&mut files, || UnixListener::bind("/nowhere/at/all"));
    }

    // Those that waited are still there.
    let (mut served, peer) = with_one_more(&mut files, || listener.accept());
    assert!(clients.iter().any(|client| client.local_addr().unwrap() == peer));
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
    for _ in 0..3 {
        says_emfile(&mut files, || fs::File::open("/dev/null"));
        says_emfile(&mut files, || fs::read("/dev/null"));
        says_emfile(&mut files, || fs::read_dir("/"));
        says_emfile(&mut files, || fs::copy("/etc/passwd", "/dev/null"));
        says_emfile(&mut files, pipe);
        says_emfile(&mut files, || reader.try_clone());
        says_emfile(&mut files, || writer.try_clone());
        says_emfile(&mut files, || Command::new("true").output());
        says_emfile(&mut files, || signal::stream(signal::Kind::USER_1));
    }
    fill(&mut files);
    // None is left for a pidfd: a kernel thread waits.
    assert!(sleeps.wait().unwrap().success());
    // Nor for waiting for both streams at once.
    let output = running.wait_with_output().unwrap();
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"a\n"[..], &b"b\n"[..]));
}
