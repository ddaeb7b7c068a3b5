//! C programs, built as users build them, on either side of a gate, with a Rust process on the
//! other.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use kumihimo::gate::{Error, ErrorKind, Options, RawGate, Region};
use kumihimo_tests::process::{finish, is_child, start};

use crate::build::{STRICT_C, STRICT_CPP, build};
use crate::place::{Place, Server, done, has, here};

/// [`built_from`] peer.c.
fn built(test: &str, place: &Place, how: &[&str]) -> Option<Command> {
    let source = here().join("tests/interface/native/peer.c");
    let strict = ["-std=gnu99", "-Wall", "-Wextra", "-Werror"];
    build("cc", &strict, &source, test, place, how)
}

fn again(command: &Command) -> Command {
    let mut other = Command::new(command.get_program());
    other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    other
}

/// Serves a gate with the actions of `handle` in peer.c.
pub fn serve_as_peer(name: &str) -> kumihimo::gate::Serving {
    RawGate::serve(name, &Options::new(), |asked, context, answer| {
        match asked.first() {
            None => {}
            Some(b'e') => answer.extend_from_slice(asked),
            Some(b'f') => return Err(Error::new(ErrorKind::Invalid, "no such book")),
            Some(b'n') => return Err(Error::new(ErrorKind::NotFound, "none")),
            Some(b'w') => {
                write!(
                    answer,
                    "{} {}",
                    context.pid().unwrap_or(0),
                    u8::from(context.deadline().is_some())
                )
                .expect("memory");
            }
            Some(b's') => {
                let came = context.regions()?;
                write!(answer, "{}", came[0].iter().map(|byte| u64::from(*byte)).sum::<u64>())
                    .expect("memory");
                return Ok(came);
            }
            Some(b'z') => std::thread::sleep(std::time::Duration::from_millis(1)),
            Some(_) => panic!("what?"),
        }
        Ok(Vec::new())
    })
    .expect("it serves")
}

/// In the server's process: prints that it serves, and waits for the end of standard input.
pub fn serve_on() {
    println!("serving");
    std::io::stdout().flush().expect("standard output is open");
    kumihimo::thread::blocking(|| {
        let _ = std::io::stdin().read(&mut [0]);
    });
}

/// Calls a gate with the actions of `handle` in peer.c.
fn call_peer(name: &str) {
    let gate = RawGate::connect(name).expect("it is there");
    let mut reply = Vec::new();
    for i in 0..2000 {
        let asked = format!("e{i}");
        gate.call(asked.as_bytes(), &mut reply).expect("a reply");
        assert_eq!(reply, asked.as_bytes());
    }
    kumihimo::thread::scope(|scope| {
        for i in 0..100 {
            let gate = &gate;
            scope.spawn(move || {
                let mut reply = Vec::new();
                for j in 0..20 {
                    let asked = format!("e{i} {j}");
                    gate.call(asked.as_bytes(), &mut reply).expect("a reply");
                    assert_eq!(reply, asked.as_bytes());
                    gate.call(b"z", &mut reply).expect("a reply");
                }
            });
        }
    });
    let large = vec![b'e'; 1 << 20];
    gate.call(&large, &mut reply).expect("a reply");
    assert_eq!(reply, large);
    for (asked, kind, says) in [
        (b"f", ErrorKind::Invalid, "no such book"),
        (b"n", ErrorKind::NotFound, "No such file"),
        (b"?", ErrorKind::Panicked, "what?"),
    ] {
        let error = gate.call(asked, &mut reply).expect_err("it fails");
        assert!(error.kind() == kind && error.to_string().contains(says), "{error}");
    }
    gate.call(b"w", &mut reply).expect("a reply");
    assert_eq!(reply, format!("{} 0", std::process::id()).as_bytes());
    gate.call_within(b"w", &mut reply, std::time::Duration::from_secs(30)).expect("a reply");
    assert_eq!(reply, format!("{} 1", std::process::id()).as_bytes());
    gate.send(b"e").expect("sent");
    let region = Region::copy_of(&[3; 5000]).expect("memory");
    let back = gate.call_with(b"s", std::slice::from_ref(&region), &mut reply).expect("a reply");
    assert_eq!((&*reply, back.len()), (&b"15000"[..], 1));
    assert_eq!(&*back[0], &*region);
    assert!(gate.call(b"s", &mut reply).is_err(), "no region came along");
}

fn rust_calls_c(test: &str, threads: &str) {
    if is_child(test) {
        return call_peer("peer");
    }
    let place = Place::new(test);
    let Some(mut peer) = built(test, &place, &[]) else { return };
    let server = Server::start(peer.args(["serve", "peer", threads]));
    let ended = finish(test, start(test, &[("KUMI_DIR", place.text())]));
    assert!(ended.status.success(), "{}", ended.told());
    assert!(server.end().contains("handled 1"));
}

#[test]
fn rust_calls_c_on_microprocesses() {
    rust_calls_c("programs::rust_calls_c_on_microprocesses", "0");
}

#[test]
fn rust_calls_c_on_kernel_threads() {
    rust_calls_c("programs::rust_calls_c_on_kernel_threads", "3");
}

/// In a program whose `main` is not Rust's, std reports no overflow.
#[test]
fn overflow_in_a_handler_is_reported() {
    let test = "programs::overflow_in_a_handler_is_reported";
    let place = Place::new(test);
    let Some(peer) = built(test, &place, &[]) else { return };
    for (threads, shown) in [("0", "microprocess '"), ("2", "kernel thread 'kumi-handler-")] {
        let output = again(&peer).args(["dig", threads]).output().expect("the program");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{threads}: {said}");
        let lines: Vec<_> = said.lines().filter(|line| line.contains("overflowed its s")).collect();
        let is_named =
            matches!(lines[..], [line] if line.starts_with("kumihimo: ") && line.contains(shown));
        assert!(is_named, "{threads}: {said}");
    }
}

#[test]
fn c_calls_rust() {
    let test = "programs::c_calls_rust";
    if is_child(test) {
        let _serving = serve_as_peer("peer");
        return serve_on();
    }
    let place = Place::new(test);
    let Some(mut peer) = built(test, &place, &[]) else { return };
    let server = Server::of(start(test, &[("KUMI_DIR", place.text())]));
    let said = done(peer.args(["call", "peer"])).stdout;
    assert_eq!(said, b"all is well\n");
    server.end();
}

/// The library is linked into the program.
#[test]
fn c_calls_c_linked_statically() {
    let test = "programs::c_calls_c_linked_statically";
    let place = Place::new(test);
    let Some(peer) = built(test, &place, &["--static"]) else { return };
    let server = Server::start(again(&peer).args(["serve", "peer", "0"]));
    assert_eq!(done(again(&peer).args(["call", "peer"])).stdout, b"all is well\n");
    assert!(server.end().contains("handled 1"));
}

/// The programs of the book's page about C.
#[test]
fn examples_in_c_call_each_other() {
    let test = "programs::examples_in_c_call_each_other";
    let place = Place::new(test);
    let program = |name: &str| {
        let source = kumihimo_tests::root().join("examples/c").join(name);
        build("cc", &STRICT_C, &source, test, &place, &[])
    };
    let Some(mut server) = program("upper_server.c") else { return };
    let Some(mut client) = program("upper_client.c") else { return };
    let server = Server::start(&mut server);
    assert_eq!(done(client.arg("hello")).stdout, b"HELLO\n");
    server.end();
}

/// The programs of the book's pages about C and C++ that need no other program.
#[test]
fn examples_run_alone() {
    let test = "programs::examples_run_alone";
    for (name, said) in [
        ("workers.c", "49995000\n"),
        ("pipeline.c", "333833500, with ticks\n"),
        ("echo.c", "1000 of 1000 replies\n"),
        ("fetch.cpp", "stopped\n499500\n"),
    ] {
        let (compilers, flags) = if name.ends_with(".cpp") {
            (["g++", "clang++"], &STRICT_CPP)
        } else {
            (["gcc", "clang"], &STRICT_C)
        };
        for compiler in compilers {
            let place = Place::new(&format!("{test}-{name}-{compiler}"));
            let source = kumihimo_tests::root().join("examples/c").join(name);
            if let Some(mut built) = build(compiler, flags, &source, test, &place, &[]) {
                assert_eq!(done(&mut built).stdout, said.as_bytes(), "{name} {compiler}");
            }
        }
    }
}

/// The manual pages render without warnings.
#[test]
fn manual_pages_are_well_formed() {
    if !has("programs::manual_pages_are_well_formed", "man") {
        return;
    }
    let pages = std::fs::read_dir(here().join("man")).expect("a folder").flatten();
    for page in pages.map(|page| page.path()) {
        let output = done(
            Command::new("man")
                .arg("--warnings")
                .arg("-l")
                .arg(&page)
                .env("MANPAGER", "cat")
                .env("LC_ALL", "C.UTF-8"),
        );
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(complained.is_empty(), "{complained}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("kumi_"));
    }
}
