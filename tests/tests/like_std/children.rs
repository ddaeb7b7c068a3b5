//! Child processes.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;

use kumihimo::process::unix::CommandExt;
use kumihimo::process::{Command, Stdio};

use crate::Beside;
use crate::beside::behaviours;
use crate::place::Place;

behaviours!(
    status_has_the_exit_code,
    status_has_the_signal,
    output_collects_both_streams,
    much_output_does_not_block,
    input_is_piped,
    missing_program_is_not_found,
    file_that_is_no_program_is_refused,
    zero_byte_is_invalid,
    environment_is_given,
    environment_is_cleared,
    directory_is_given,
    missing_directory_is_not_found,
    streams_are_null,
    child_is_killed,
    ended_child_is_killed_without_error,
    try_wait_tells_running_from_ended,
    wait_is_repeated,
    wait_closes_the_input,
    wait_with_output_collects,
    lines_of_a_running_child,
    arguments_are_given_as_they_are,
    name_of_the_program_is_given,
    hook_runs_before_the_program,
    hook_that_fails_fails_the_start,
    foreign_user_is_refused_or_taken,
    file_is_a_childs_output,
    command_starts_twice,
    command_tells_its_parts,
);

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn status_has_the_exit_code(beside: Beside) {
    let code = |n| shell(&format!("exit {n}")).status().unwrap();
    assert!(code(0).success());
    assert_eq!((code(0).code(), code(7).code(), code(255).code()), (Some(0), Some(7), Some(255)));
    assert_eq!(beside.spawn(|| shell("exit 9").status().unwrap().code()).result(), Some(9));
}

fn status_has_the_signal(_: Beside) {
    let status = shell("kill -9 $$").status().unwrap();
    assert!(!status.success());
    assert_eq!((status.code(), status.signal()), (None, Some(libc::SIGKILL)));
}

fn output_collects_both_streams(beside: Beside) {
    let output = beside.spawn(|| shell("echo out; echo err >&2; exit 3").output().unwrap());
    let output = output.result();
    assert_eq!((&*output.stdout, &*output.stderr), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(output.status.code(), Some(3));
}

fn much_output_does_not_block(_: Beside) {
    let script = "head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2";
    let output = shell(script).output().unwrap();
    assert_eq!((output.stdout.len(), output.stderr.len()), (200_000, 200_000));
}

fn input_is_piped(beside: Beside) {
    let mut cat = Command::new("cat");
    let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writes = beside.spawn(move || input.write_all(&[b'x'; 100_000]).unwrap());
    let mut all = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut all).unwrap();
    writes.result();
    assert!(all == [b'x'; 100_000] && child.wait().unwrap().success());
}

fn missing_program_is_not_found(_: Beside) {
    let start = |name| Command::new(name).spawn().map(drop).unwrap_err().kind();
    assert_eq!(start("/no/such/program"), ErrorKind::NotFound);
    assert_eq!(start("kumihimo-no-such-program"), ErrorKind::NotFound);
}

fn file_that_is_no_program_is_refused(_: Beside) {
    let place = Place::new();
    kumihimo::fs::write(place.at("a"), "text").unwrap();
    let refused = Command::new(place.at("a")).spawn().map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
}

fn zero_byte_is_invalid(_: Beside) {
    let refused = |command: &mut Command| command.spawn().map(drop).unwrap_err().kind();
    assert_eq!(refused(&mut Command::new("a\0b")), ErrorKind::InvalidInput);
    assert_eq!(refused(Command::new("true").arg("a\0b")), ErrorKind::InvalidInput);
    assert_eq!(refused(Command::new("true").env("a", "b\0")), ErrorKind::InvalidInput);
    assert_eq!(refused(Command::new("true").current_dir("a\0b")), ErrorKind::InvalidInput);
}

fn environment_is_given(_: Beside) {
    let mut command = shell("echo $ONE-$TWO-$GONE");
    command.env("ONE", "1").envs([("TWO", "2"), ("GONE", "3")]).env_remove("GONE");
    assert_eq!(text(command.output().unwrap().stdout), "1-2-\n");
}

fn environment_is_cleared(_: Beside) {
    let mut command = Command::new("/usr/bin/env");
    command.env("BEFORE", "1").env_clear().env("ONLY", "this");
    assert_eq!(text(command.output().unwrap().stdout), "ONLY=this\n");
}

fn directory_is_given(_: Beside) {
    let place = Place::new();
    let output = Command::new("/bin/pwd").current_dir(place.path()).output().unwrap();
    let expected = std::fs::canonicalize(place.path()).unwrap();
    assert_eq!(text(output.stdout).trim_end(), expected.to_str().unwrap());
}

fn missing_directory_is_not_found(_: Beside) {
    let place = Place::new();
    let refused = Command::new("true").current_dir(place.at("none")).spawn().map(drop);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
}

fn streams_are_null(_: Beside) {
    let mut command = shell("cat; echo lost; echo lost >&2");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success());
    let mut child = command.spawn().unwrap();
    assert!(child.stdin.is_none() && child.stdout.is_none() && child.stderr.is_none());
    child.wait().unwrap();
}

fn child_is_killed(_: Beside) {
    let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

fn ended_child_is_killed_without_error(_: Beside) {
    let mut child = Command::new("true").spawn().unwrap();
    assert!(child.wait().unwrap().success());
    child.kill().expect("it has ended already");
}

fn try_wait_tells_running_from_ended(_: Beside) {
    let mut command = Command::new("cat");
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    assert!(child.try_wait().unwrap().is_none());
    drop(child.stdin.take());
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        kumihimo::thread::yield_now();
    };
    assert!(status.success());
    assert_eq!(child.try_wait().unwrap(), Some(status));
}

fn wait_is_repeated(beside: Beside) {
    let mut child = shell("exit 5").spawn().unwrap();
    assert_ne!(child.id(), 0);
    let first = child.wait().unwrap();
    assert_eq!(beside.spawn(move || child.wait().unwrap()).result(), first);
}

fn wait_closes_the_input(_: Beside) {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    assert!(child.wait().unwrap().success(), "cat ends with its input");
    assert!(child.stdin.is_none());
}

fn wait_with_output_collects(_: Beside) {
    let mut command = shell("cat; echo e >&2");
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"given").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(output.stdout), text(output.stderr)), ("given".into(), "e\n".into()));
}

fn lines_of_a_running_child(_: Beside) {
    let mut command = shell("while read line; do echo got $line; done");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for n in 0..3 {
        writeln!(input, "{n}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), format!("got {n}"));
    }
    drop(input);
    assert!(lines.next().is_none() && child.wait().unwrap().success());
}

fn arguments_are_given_as_they_are(_: Beside) {
    let mut command = Command::new("printf");
    command.args(["%s|", "", "a b", "*", "\"'"]).arg("$HOME");
    assert_eq!(text(command.output().unwrap().stdout), "|a b|*|\"'|$HOME|");
}

fn name_of_the_program_is_given(_: Beside) {
    let mut command = Command::new("/bin/sh");
    command.arg0("other").args(["-c", "echo $0"]);
    assert_eq!(text(command.output().unwrap().stdout), "other\n");
}

fn hook_runs_before_the_program(_: Beside) {
    let mut command = shell("ulimit -n");
    // SAFETY: the hook calls an async-signal-safe function only.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 77, rlim_max: 77 };
            match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    assert_eq!(text(command.output().unwrap().stdout), "77\n");
}

fn hook_that_fails_fails_the_start(_: Beside) {
    let mut command = Command::new("true");
    // SAFETY: the hook makes an error without an allocation.
    unsafe { command.pre_exec(|| Err(std::io::Error::from_raw_os_error(libc::E2BIG))) };
    assert_eq!(command.spawn().map(drop).unwrap_err().raw_os_error(), Some(libc::E2BIG));
}

fn foreign_user_is_refused_or_taken(_: Beside) {
    let mut command = Command::new("id");
    let started = command.arg("-u").uid(65_534).gid(65_534).output();
    if rustix::process::geteuid().is_root() {
        assert_eq!(text(started.unwrap().stdout), "65534\n");
    } else {
        assert_eq!(started.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}

fn file_is_a_childs_output(_: Beside) {
    let place = Place::new();
    let file = kumihimo::fs::File::create(place.at("out")).unwrap();
    assert!(shell("echo into the file").stdout(file).status().unwrap().success());
    assert_eq!(kumihimo::fs::read(place.at("out")).unwrap(), b"into the file\n");
}

fn command_starts_twice(_: Beside) {
    let mut command = shell("echo again");
    (0..2).for_each(|_| assert_eq!(command.output().unwrap().stdout, b"again\n"));
}

fn command_tells_its_parts(_: Beside) {
    let mut command = Command::new("program");
    command.args(["a", "b"]).env("K", "V").current_dir("/tmp");
    assert_eq!(command.get_program(), "program");
    assert_eq!(command.get_args().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(command.get_envs().next(), Some(("K".as_ref(), Some("V".as_ref()))));
    assert_eq!(command.get_current_dir(), Some("/tmp".as_ref()));
}
