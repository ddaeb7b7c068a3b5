//! Standard streams: this program runs itself with others in their place.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use bodies::files::{Place, terminal};
use kumihimo_io::io;
use kumihimo_runtime::thread;

mod bodies;

/// The children's part: microprocesses that use the standard streams.
#[test]
fn child() {
    let Ok(part) = std::env::var("KUMI_TEST_PART") else { return };
    let parts = thread::spawn(move || match &*part {
        "echo" => echo(),
        "beside" => beside(),
        "reentrant" => reentrant(),
        "unfinished" => write!(io::stdout(), "no end of line").unwrap(),
        other => panic!("{other}"),
    });
    parts.join().expect("the child's part");
    // libtest prints no more, and what is in the buffer goes out.
    std::process::exit(0);
}

fn echo() {
    writeln!(io::stdout(), "<begin>").unwrap();
    for line in io::stdin().lines() {
        let line = line.unwrap();
        writeln!(io::stdout(), "{}", line.to_uppercase()).unwrap();
        if line == "end" {
            break;
        }
    }
    writeln!(io::stderr(), "<done>").unwrap();
}

/// On one VP: one waits for standard input, and another one goes on.
fn beside() {
    let reader = thread::spawn(|| {
        let mut line = String::new();
        assert_eq!(io::stdin().read_line(&mut line).unwrap(), line.len());
        line
    });
    (0..100).for_each(|_| thread::yield_now());
    assert!(!reader.is_finished());
    writeln!(io::stdout(), "<begin>").unwrap();
    write!(io::stdout(), "{}", reader.join().unwrap()).unwrap();
}

/// The holder may take it again; others wait, without holding up the VP.
fn reentrant() {
    let mut out = io::stdout().lock();
    writeln!(out, "<begin>").unwrap();
    let other = thread::spawn(|| writeln!(io::stdout(), "other").unwrap());
    (0..100).for_each(|_| thread::yield_now());
    assert!(!other.is_finished());
    let mut again = io::stdout().lock();
    drop(out);
    writeln!(again, "again").unwrap();
    writeln!(io::stdout(), "and again").unwrap();
    assert!(!other.is_finished());
    drop(again);
    other.join().unwrap();
    let mut error = io::stderr().lock();
    write!(error, "<err").unwrap();
    writeln!(io::stderr(), "or>").unwrap();
}

fn run(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child", "--nocapture"])
        .env("KUMI_TEST_PART", part)
        .env("KUMI_VPS", "1");
    command
}

/// What the child writes after libtest's first lines.
fn said(all: &[u8]) -> String {
    let all = String::from_utf8_lossy(all).replace("\r\n", "\n");
    all.split_once("<begin>\n").unwrap_or_else(|| panic!("{all}")).1.to_owned()
}

fn ended(mut child: Child) {
    assert!(child.wait().unwrap().success());
}

#[test]
fn pipes() {
    let mut child = run("echo")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line != "<begin>\n" {
        line.clear();
        from.read_line(&mut line).unwrap();
    }
    // Each line comes by itself: the buffer is one of lines.
    for n in 0..10 {
        writeln!(to, "line {n}").unwrap();
        line.clear();
        from.read_line(&mut line).unwrap();
        assert_eq!(line, format!("LINE {n}\n"));
    }
    drop(to);
    let mut rest = String::new();
    from.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(error.ends_with("<done>\n"));
    ended(child);
}

#[test]
fn files() {
    let place = Place::new();
    std::fs::write(place.at("in"), "a\nb").unwrap();
    let mut out = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(place.at("out"))
        .unwrap();
    let child = run("echo")
        .stdin(File::open(place.at("in")).unwrap())
        .stdout(out.try_clone().unwrap())
        .spawn();
    ended(child.unwrap());
    let mut all = Vec::new();
    out.rewind().unwrap();
    out.read_to_end(&mut all).unwrap();
    assert_eq!(said(&all), "A\nB\n");
}

/// The open file is shared with other users of the terminal: its flags stay.
#[test]
fn a_terminal() {
    let (ours, theirs) = terminal();
    let (mut ours, theirs) = (std::fs::File::from(ours), std::fs::File::from(theirs));
    let open = || theirs.try_clone().unwrap();
    let child = run("echo").stdin(open()).stdout(open()).stderr(Stdio::null()).spawn().unwrap();
    let mut all = Vec::new();
    let mut until = |end: &str, ours: &mut File| {
        while !String::from_utf8_lossy(&all).ends_with(end) {
            let mut part = [0; 256];
            let n = ours.read(&mut part).unwrap();
            all.extend_from_slice(&part[..n]);
        }
    };
    until("<begin>\r\n", &mut ours);
    // SAFETY: F_GETFL takes no pointer.
    let flags = || unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_GETFL) };
    ours.write_all(b"typed\n").unwrap();
    until("TYPED\r\n", &mut ours);
    assert_eq!(flags() & libc::O_NONBLOCK, 0, "while it is in use");
    ours.write_all(b"end\n").unwrap();
    until("END\r\n", &mut ours);
    ended(child);
    assert_eq!(flags() & libc::O_NONBLOCK, 0, "and afterwards");
}

/// Somebody else has set O_NONBLOCK: reads and writes wait all the same.
#[test]
fn descriptors_set_nonblocking_by_others_still_wait() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let theirs = OwnedFd::from(theirs);
    let child = run("echo").stdin(theirs.try_clone().unwrap()).stdout(theirs).spawn().unwrap();
    let mut ours = BufReader::new(ours);
    let mut line = String::new();
    while line != "<begin>\n" {
        line.clear();
        assert!(ours.read_line(&mut line).unwrap() > 0);
    }
    // More than the socket holds, and read late.
    let long = "x".repeat(100_000);
    let mut writer = ours.get_ref().try_clone().unwrap();
    let writes = std::thread::spawn(move || {
        for _ in 0..10 {
            writeln!(writer, "{long}").unwrap();
        }
        writeln!(writer, "end").unwrap();
    });
    let mut lines = 0;
    loop {
        line.clear();
        ours.read_line(&mut line).unwrap();
        if line == "END\n" {
            break;
        }
        assert_eq!(line.len(), 100_001);
        lines += 1;
    }
    assert_eq!(lines, 10);
    writes.join().unwrap();
    ended(child);
}

#[test]
fn closed_ones() {
    let mut command = run("echo");
    // SAFETY: close(2) may be called between fork and exec. Rust opens /dev/null in their place
    // only before `main`: so after exec.
    unsafe {
        command.pre_exec(|| {
            libc::close(0);
            libc::close(1);
            Ok(())
        });
    }
    ended(command.stderr(Stdio::null()).spawn().unwrap());
}

#[test]
fn read_of_stdin_lets_others_run() {
    let mut child = run("beside").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line != "<begin>\n" {
        line.clear();
        assert!(from.read_line(&mut line).unwrap() > 0);
    }
    child.stdin.take().unwrap().write_all(b"late\n").unwrap();
    line.clear();
    from.read_line(&mut line).unwrap();
    assert_eq!(line, "late\n");
    ended(child);
}

#[test]
fn stdout_lock_is_reentrant() {
    let output = run("reentrant").output().unwrap();
    assert!(output.status.success());
    assert_eq!(said(&output.stdout), "again\nand again\nother\n");
    assert!(output.stderr.ends_with(b"<error>\n"));
}

#[test]
fn exit_flushes_stdout() {
    let output = run("unfinished").output().unwrap();
    assert!(output.stdout.ends_with(b"no end of line"));
}

#[test]
fn standard_streams_are_unwind_safe() {
    fn is_safe<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>(_: Option<T>) {}
    is_safe(None::<io::Stdin>);
    is_safe(None::<io::StdinLock<'_>>);
    is_safe(None::<io::Stdout>);
    is_safe(None::<io::StdoutLock<'_>>);
    is_safe(None::<io::Stderr>);
    is_safe(None::<io::StderrLock<'_>>);
}
