//! Child processes.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use kumihimo_io::fs::File;
use kumihimo_io::io::pipe;
use kumihimo_io::process::unix::{CommandExt, ExitStatusExt};
use kumihimo_io::process::{Child, Command, Stdio};
use kumihimo_runtime::thread;

use super::Env;
use super::files::Place;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

pub fn output(_: Env) {
    let output = shell("echo out; echo err >&2; exit 3").output().unwrap();
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(output.status.code(), Some(3));
    // Standard input is empty, unless chosen.
    assert_eq!(shell("cat").output().unwrap().stdout, b"");
    // The same command again, with other defaults.
    let mut again = shell("exit 4");
    assert_eq!(again.output().unwrap().status.code(), Some(4));
    assert_eq!(again.status().unwrap().code(), Some(4));
    let quiet = shell("echo out; echo err >&2").stderr(Stdio::null()).output().unwrap();
    assert_eq!((quiet.stdout.len(), quiet.stderr.len()), (4, 0));
}

/// Both streams fill their pipes, one before the other.
pub fn much_output(_: Env) {
    let zeros = |n| format!("dd if=/dev/zero bs=1000 count={n} 2>/dev/null");
    let script = format!("{}; {} | cat >&2; echo end", zeros(300), zeros(400));
    let output = shell(&script).output().unwrap();
    assert_eq!((output.stdout.len(), output.stderr.len()), (300_004, 400_000));
    assert!(output.status.success());
    let one = shell(&zeros(300)).stdout(Stdio::piped()).spawn().unwrap();
    let output = one.wait_with_output().unwrap();
    assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 0));
}

pub fn through_a_child(env: Env) {
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, mut from) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
    let writes = env.spawn(move || to.write_all(&[7; 300_000]).unwrap());
    let mut all = Vec::new();
    from.read_to_end(&mut all).unwrap();
    writes();
    assert!(all.len() == 300_000 && all.iter().all(|b| *b == 7));
    assert!(cat.wait().unwrap().success());
}

pub fn waiting(_: Env) {
    let mut child = shell("read line; exit 5").stdin(Stdio::piped()).spawn().unwrap();
    assert!(child.id() > 0);
    assert!(child.try_wait().unwrap().is_none(), "it reads");
    // Closes its standard input.
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(5));
    child.kill().unwrap();

    let mut child = shell("exec sleep 1000").spawn().unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));

    let mut child = Child::from(std::process::Command::new("true").spawn().unwrap());
    assert!(child.wait().unwrap().success());
}

pub fn a_deadline_ends_a_wait_for_one(_: Env) {
    let soon = || Instant::now() + Duration::from_millis(5);
    let mut child = shell("exec sleep 1000").stdout(Stdio::piped()).spawn().unwrap();
    thread::scope_until(soon(), |_| {
        assert_eq!(child.wait().unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(
            child.stdout.as_mut().unwrap().read(&mut [0]).unwrap_err().kind(),
            ErrorKind::TimedOut
        );
    });
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

pub fn what_cannot_begin(_: Env) {
    assert_eq!(Command::new("/no/such/program").spawn().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(Command::new("/no/such/program").output().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(
        Command::new("/etc/passwd").status().unwrap_err().kind(),
        ErrorKind::PermissionDenied
    );
    assert_eq!(Command::new("a\0b").spawn().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(
        shell("exit 0").current_dir("/no/such/place").status().unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let mut command = shell("exit 0");
    // SAFETY: it calls nothing.
    unsafe { command.pre_exec(|| Err(std::io::Error::from_raw_os_error(libc::EDOM))) };
    assert_eq!(command.spawn().unwrap_err().raw_os_error(), Some(libc::EDOM));
}

pub fn what_a_child_is_given(_: Env) {
    let place = Place::new();
    let mut command = shell("echo $A $B $C; pwd; echo $0");
    command
        .arg("name")
        .env("A", "1")
        .envs([("B", "2"), ("C", "3")])
        .env_remove("C")
        .current_dir(&place.0);
    assert_eq!(command.get_program(), "sh");
    assert_eq!(command.get_args().count(), 3);
    assert_eq!(command.get_envs().count(), 3);
    assert_eq!(command.get_current_dir(), Some(&*place.0));
    assert!(format!("{command:?}").contains("\"sh\""));
    let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let there = place.0.canonicalize().unwrap();
    assert_eq!(output, format!("1 2\n{}\nname\n", there.display()));
    assert!(Command::new("/usr/bin/env").env_clear().output().unwrap().stdout.is_empty());

    let output = Command::new("sh")
        .arg0("other")
        .args(["-c", "tr '\\0' ' ' < /proc/$$/cmdline"])
        .output()
        .unwrap();
    assert!(output.stdout.starts_with(b"other "));
    // Its own group has its own id.
    let output = shell("cut -d' ' -f1,5 /proc/self/stat; cut -d' ' -f1,5 /proc/$$/stat")
        .process_group(0)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (id, group) = text.lines().nth(1).unwrap().split_once(' ').unwrap();
    assert_eq!(id, group);
    let mut command = shell("exit 0");
    // SAFETY: no pointers.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    command.uid(uid).gid(gid);
    assert!(command.status().unwrap().success());
}

/// Files and pipes of ours as standard streams; a pipe's copy here is closed with the command.
pub fn streams_of_ours(_: Env) {
    let place = Place::new();
    std::fs::write(place.at("in"), "from a file").unwrap();
    let (mut reader, writer) = pipe().unwrap();
    let errors = File::create(place.at("errors")).unwrap();
    let mut child = shell("cat; echo error >&2")
        .stdin(File::open(place.at("in")).unwrap())
        .stdout(writer)
        .stderr(errors)
        .spawn()
        .unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "from a file");
    assert!(child.wait().unwrap().success());
    assert_eq!(std::fs::read(place.at("errors")).unwrap(), b"error\n");

    // One child's output is another one's input.
    let first = shell("echo through two").stdout(Stdio::piped()).spawn().unwrap();
    let (id, from) = (first.id(), first.stdout.map(Stdio::from).unwrap());
    assert_eq!(Command::new("cat").stdin(from).output().unwrap().stdout, b"through two\n");
    // SAFETY: a child of ours that nobody else waits for.
    assert_eq!(unsafe { libc::waitpid(id as i32, std::ptr::null_mut(), 0) }, id as i32);
    assert!(place.0.as_os_str().as_bytes().starts_with(b"/"));
}

/// The kernel sends the signal when the kernel thread ends that started the child (prctl(2)).
pub fn child_that_is_to_die_with_its_parent_lives(env: Env) {
    let mut command = shell("read line");
    command.stdin(Stdio::piped());
    // SAFETY: one system call.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let mut child = thread::blocking(|| command.spawn()).unwrap();
    // These need kernel threads, which end again.
    let block = || env.spawn(|| std::thread::sleep(Duration::from_millis(20)));
    let others: Vec<_> = (0..8).map(|_| block()).collect();
    others.into_iter().for_each(|other| other());
    thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it was killed");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

/// A child inherits the signal mask of its parent, and nothing of the kernel thread that started
/// it.
pub fn child_inherits_the_signal_mask(_: Env) {
    let mask = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("SigBlk:"));
        line.expect("a line of proc_pid_status(5)").to_owned()
    };
    let own = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    for _ in 0..2 {
        let child = Command::new("cat").arg("/proc/self/status").output().unwrap().stdout;
        assert_eq!(mask(std::str::from_utf8(&child).unwrap()), mask(&own));
    }
    // That of the process, and not that of a thread of the pool.
    let slack = shell("cat /proc/$$/timerslack_ns").output().unwrap().stdout;
    assert_eq!(String::from_utf8(slack).unwrap().trim(), "50000");
}
