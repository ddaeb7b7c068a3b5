//! Gates under lack of resources, with other users, after a fork, and with invalid arguments.

use std::time::Duration;

use kumihimo::gate::{ErrorKind, Gate, Options, RawGate};
use kumihimo::thread;
use kumihimo_tests::refusal::refuse;
use kumihimo_tests::skip;
use kumihimo_tests::user::become_user;

use crate::parts::{Held, Part, hear, play, serve_on, tell, until};

fn serving_next() {
    let _serving = Gate::serve("next", |n: u32| n + 1).expect("it serves");
    serve_on();
}

fn next() -> Gate<u32, u32> {
    Gate::connect("next").expect("it is there")
}

fn descriptors_at_most(most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a valid limit; the process belongs to the test.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

#[test]
fn oversized_requests_and_replies_are_refused() {
    let server = || {
        let options = Options::new().largest(100_000);
        let _sizes = RawGate::serve("sizes", &options, |asked, _, answer| {
            answer.resize(asked.len() * 2, 1);
            Ok(Vec::new())
        })
        .expect("it serves");
        serve_on();
    };
    let client = || {
        let _server = Part::serving("server");
        let sizes = RawGate::connect("sizes").expect("it is there");
        let mut reply = Vec::new();
        for (len, says) in
            [(100_001, "a request of 100001 bytes"), (60_000, "a reply of 120000 bytes")]
        {
            let error = sizes.call(&vec![0; len], &mut reply).expect_err("too large");
            assert!(
                error.kind() == ErrorKind::TooLarge && error.to_string().contains(says),
                "{error}"
            );
        }
        sizes.call(&[0; 50_000], &mut reply).expect("just so many");
        assert_eq!(reply.len(), 100_000);
        let small =
            RawGate::connect_with("sizes", &Options::new().largest(50_000)).expect("it is there");
        let error = small.call(&[0; 40_000], &mut reply).expect_err("too large for this one");
        assert!(
            error.kind() == ErrorKind::TooLarge && error.to_string().contains("80000"),
            "{error}"
        );
        assert_eq!(
            small.call(&[0; 50_001], &mut reply).expect_err("too large").kind(),
            ErrorKind::TooLarge
        );
        until("nothing is kept", || sizes.call(&[0; 10], &mut Vec::new()).is_ok());
    };
    play(
        "bad_input::oversized_requests_and_replies_are_refused",
        &[("client", &client), ("server", &server)],
    );
}

#[test]
fn extreme_timeouts_are_accepted() {
    let client = || {
        let _server = Part::serving("server");
        let patient =
            Gate::<u32, u32>::connect_with("next", &Options::new().patience(Duration::MAX))
                .expect("it is");
        assert_eq!(patient.call_within(&1, Duration::MAX).expect("a reply"), 2);
        let error = patient.call_within(&1, Duration::ZERO);
        assert!(error.is_ok() || error.is_err_and(|error| error.kind() == ErrorKind::TimedOut));
        let hasty =
            Gate::<u32, u32>::connect_with("next", &Options::new().patience(Duration::ZERO));
        assert_eq!(hasty.expect_err("no time").kind(), ErrorKind::TimedOut);
    };
    play(
        "bad_input::extreme_timeouts_are_accepted",
        &[("client", &client), ("server", &serving_next)],
    );
}

#[test]
fn invalid_names_and_missing_gates_are_refused() {
    let alone = || {
        for name in ["", ".", "/a", "a/", "a/b/c", "a\0b", &"x".repeat(201)] {
            let error = Gate::<u32, u32>::connect(name).expect_err("no name");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{name:?}: {error}");
            let error = Gate::serve(name, |n: u32| n).expect_err("no name");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{name:?}: {error}");
        }
        // Gate b of machine a, which only a border reaches.
        let error = Gate::serve("a/b", |n: u32| n).expect_err("no name");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let error = Gate::<u32, u32>::connect("a/b").expect_err("no border");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        let error = Gate::<u32, u32>::connect("nobody").expect_err("no server");
        assert!(
            error.kind() == ErrorKind::NotFound && error.to_string().contains("nobody"),
            "{error}"
        );
        let _one = Gate::serve("one", |n: u32| n).expect("it serves");
        assert_eq!(Gate::serve("one", |n: u32| n).expect_err("twice").kind(), ErrorKind::InUse);
        let _server = Part::serving("server");
        assert_eq!(
            Gate::serve("next", |n: u32| n).expect_err("another's").kind(),
            ErrorKind::InUse
        );
    };
    play(
        "bad_input::invalid_names_and_missing_gates_are_refused",
        &[("alone", &alone), ("server", &serving_next)],
    );
}

/// Sends the first bytes of a handshake of another version by hand. Returns the kind and the text
/// of the reply.
fn say_hello(version: u16) -> (u8, String) {
    let folder = std::env::var("KUMI_DIR").expect("it is set");
    let number = std::fs::read_link(format!("{folder}/gate.next")).expect("it is served");
    let path = format!("{folder}/{}.gates", number.display());
    // SAFETY: a valid address, integers, and buffers with their sizes.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
            *to = from as libc::c_char;
        }
        assert_eq!(libc::connect(fd, (&raw const address).cast(), size_of_val(&address) as u32), 0);
        let mut hello = b"KUMI".to_vec();
        hello.extend_from_slice(&version.to_le_bytes());
        hello.extend_from_slice(&[1, 0, 0, 0]);
        assert_eq!(
            libc::send(fd, hello.as_ptr().cast(), hello.len(), libc::MSG_NOSIGNAL),
            hello.len() as isize
        );
        let mut said = [0_u8; 1024];
        let len = libc::recv(fd, said.as_mut_ptr().cast(), said.len(), 0);
        libc::close(fd);
        let said = &said[..len.try_into().expect("it answers")];
        assert_eq!((&said[..4], said[6]), (&b"KUMI"[..], 3));
        (said[7], String::from_utf8_lossy(&said[10..]).into_owned())
    }
}

#[test]
fn other_gate_version_or_type_is_refused() {
    let client = || {
        let _server = Part::serving("server");
        for version in [0, 2, 9, u16::MAX] {
            let (kind, text) = say_hello(version);
            assert!(kind == 3 && text.contains(&format!("version {version}")), "{kind}: {text}");
        }
        let error = RawGate::connect("next").expect_err("it is typed");
        assert!(
            error.kind() == ErrorKind::Version && error.to_string().contains("typed"),
            "{error}"
        );
        // An untyped literal is an i32, whose wire type differs from u32.
        let error = Gate::<i32, u32>::connect("next").expect_err("it takes a u32");
        assert!(
            error.kind() == ErrorKind::Version && error.to_string().contains("other types"),
            "{error}"
        );
        assert_eq!(next().call(&1).expect("a reply"), 2);
    };
    play(
        "bad_input::other_gate_version_or_type_is_refused",
        &[("client", &client), ("server", &serving_next)],
    );
}

#[test]
fn refused_memory_for_a_lane_fails_connect() {
    let client = || {
        let server = Part::serving("server");
        let error = Gate::<u32, u32>::connect("next").expect_err("no lane");
        assert!(error.kind() == ErrorKind::Io && error.to_string().contains("seccomp"), "{error}");
        drop(server);
    };
    let server = || {
        let _serving = Gate::serve("next", |n: u32| n + 1).expect("it serves");
        refuse(&[(libc::SYS_memfd_create, libc::EPERM)]).expect("seccomp");
        serve_on();
    };
    play(
        "bad_input::refused_memory_for_a_lane_fails_connect",
        &[("client", &client), ("server", &server)],
    );
}

fn says_what_to_do(error: &kumihimo::gate::Error, left: u32) {
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{left} left: {error}");
    let said = error.to_string();
    assert!(said.contains("ulimit -n") && said.contains("gate \""), "{left} left: {said}");
}

#[test]
fn connecting_without_descriptors_fails_cleanly() {
    let client = || {
        let _server = Part::serving("server");
        let gate = next();
        assert_eq!(gate.call(&1).expect("a reply"), 2);
        let before = Held::now();
        descriptors_at_most(200);
        let mut files = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            files.push(file);
        }
        for left in 0..6 {
            match Gate::<u32, u32>::connect("next") {
                // An address space that has enough descriptors.
                Ok(other) => assert_eq!(other.call(&left).expect("a reply"), left + 1),
                Err(error) => says_what_to_do(&error, left),
            }
            match Gate::serve("another", |n: u32| n) {
                Ok(served) => drop(served),
                Err(error) => says_what_to_do(&error, left),
            }
            // The existing link continues to work.
            assert_eq!(gate.call(&1).expect("a reply"), 2);
            drop(files.pop());
        }
        drop(files);
        assert_eq!(next().call(&1).expect("a reply"), 2);
        until("nothing is left", || Held::now() == before);
    };
    play(
        "bad_input::connecting_without_descriptors_fails_cleanly",
        &[("client", &client), ("server", &serving_next)],
    );
}

#[test]
fn server_without_descriptors_refuses_callers() {
    let client = || {
        let mut server = Part::serving("server");
        let gate = next();
        assert_eq!(gate.call(&1).expect("a reply"), 2);
        server.say("take all");
        server.expect("taken");
        let hasty = Options::new().patience(Duration::from_millis(300));
        let error = Gate::<u32, u32>::connect_with("next", &hasty).expect_err("no free connection");
        assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Exhausted), "{error}");
        assert_eq!(gate.call(&1).expect("those inside are served"), 2);
        server.say("give back");
        server.expect("given");
        assert_eq!(next().call(&1).expect("a reply"), 2);
    };
    let server = || {
        let _serving = Gate::serve("next", |n: u32| n + 1).expect("it serves");
        tell("serving");
        hear();
        descriptors_at_most(200);
        let mut files = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            files.push(file);
        }
        tell("taken");
        hear();
        drop(files);
        tell("given");
        hear();
    };
    play(
        "bad_input::server_without_descriptors_refuses_callers",
        &[("client", &client), ("server", &server)],
    );
}

#[test]
fn links_beyond_the_limit_are_refused() {
    let client = || {
        let _server = Part::serving("server");
        let mut gates = Vec::new();
        let error = loop {
            match Gate::<u32, u32>::connect("next") {
                Ok(gate) => gates.push(gate),
                Err(error) => break error,
            }
            assert!(gates.len() <= 50);
        };
        assert!(
            error.kind() == ErrorKind::Exhausted && error.to_string().contains("ulimit"),
            "{error}"
        );
        assert_eq!(gates.len(), 50);
        for gate in &gates {
            assert_eq!(gate.call(&1).expect("a reply"), 2);
        }
        gates.truncate(49);
        until("one more can come", || Gate::<u32, u32>::connect("next").is_ok());
    };
    let server = || {
        let _serving = Gate::serve("next", |n: u32| n + 1).expect("it serves");
        descriptors_at_most(100);
        serve_on();
    };
    play(
        "bad_input::links_beyond_the_limit_are_refused",
        &[("client", &client), ("server", &server)],
    );
}

/// Closes the sockets of this process's links: see hostile.rs.
fn close_links() {
    for fd in crate::hostile::links() {
        // SAFETY: none. The effect on the owner of the descriptor is under test.
        unsafe { libc::close(fd) };
    }
}

#[test]
fn gate_descriptor_closed_by_other_code_fails_its_calls() {
    let client = || {
        let _server = Part::serving("server");
        let holds = Gate::<u32, u32>::connect("holds").expect("it is there");
        let waits = thread::spawn({
            let holds = holds.clone();
            move || holds.call(&1)
        });
        until("it is under way", || holds.under_way() == 1);
        close_links();
        let error = waits.join().expect("no panic").expect_err("the link is cut");
        assert!(
            error.kind() == ErrorKind::Gone && error.to_string().contains("closed the socket"),
            "{error}"
        );
        // Connects anew.
        assert_eq!(holds.call(&0).expect("a reply"), 0);
    };
    let server = || {
        let handler = |n: u32| {
            if n != 0 {
                thread::sleep(Duration::from_secs(3600));
            }
            n
        };
        let _serving = Gate::serve("holds", handler).expect("it serves");
        serve_on();
    };
    play(
        "bad_input::gate_descriptor_closed_by_other_code_fails_its_calls",
        &[("client", &client), ("server", &server)],
    );
}

/// Runs `f` in a forked child and returns the child's status.
fn in_child(f: impl FnOnce()) -> i32 {
    // SAFETY: the child runs only `f` and exits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_ok();
            libc::_exit(i32::from(!ok));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    }
}

#[test]
fn forked_child_cannot_use_inherited_gates() {
    let client = || {
        let _server = Part::serving("server");
        let gate = next();
        let own = Gate::serve("own", |n: u32| n).expect("it serves");
        let loops = Gate::<u32, u32>::connect("own").expect("it is there");
        for round in 0..20 {
            assert_eq!(gate.call(&round).expect("a reply"), round + 1);
            let status = in_child(|| {
                for error in [
                    gate.call(&1).expect_err("the parent's"),
                    gate.call_within(&1, Duration::from_secs(9)).expect_err("the parent's"),
                    gate.send(&1).expect_err("the parent's"),
                    gate.stream(&1).map(drop).expect_err("the parent's"),
                    loops.call(&1).expect_err("the parent's"),
                    Gate::<u32, u32>::connect("next").expect_err("no gates in a child"),
                    Gate::serve("new", |n: u32| n).expect_err("no gates in a child"),
                ] {
                    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                    assert!(error.to_string().contains("fork"), "{error}");
                }
                // SAFETY: copies that the child never uses again.
                unsafe {
                    drop(std::ptr::read(&raw const gate));
                    drop(std::ptr::read(&raw const own));
                }
            });
            assert_eq!(status, 0, "round {round}");
            assert_eq!(loops.call(&round).expect("a reply"), round);
        }
        assert_eq!(gate.call(&1).expect("a reply"), 2);
        drop(own);
    };
    play(
        "bad_input::forked_child_cannot_use_inherited_gates",
        &[("client", &client), ("server", &serving_next)],
    );
}

#[test]
fn gate_handler_may_fork() {
    let client = || {
        let _server = Part::serving("server");
        let forks = Gate::<u32, u32>::connect("forks").expect("it is there");
        for n in 0..20 {
            // The child's copy of the handler returns as well, and its result is lost.
            assert_eq!(forks.call(&n).expect("a reply"), n + 1);
        }
        assert_eq!(forks.under_way(), 0);
    };
    let server = || {
        let handler = |n: u32| {
            // SAFETY: the child continues as a plain kernel thread, and exits at the end of its
            // microprocess.
            match unsafe { libc::fork() } {
                0 => n + 100,
                child => {
                    thread::blocking(|| {
                        // SAFETY: an own child.
                        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
                    });
                    n + 1
                }
            }
        };
        let _serving = Gate::serve("forks", handler).expect("it serves");
        serve_on();
    };
    play("bad_input::gate_handler_may_fork", &[("client", &client), ("server", &server)]);
}

#[test]
fn hundred_thousand_gates_can_be_served() {
    const GATES: u32 = 100_000;
    let alone = || {
        let before = Held::now().descriptors;
        let mut gates: Vec<_> = (0..GATES)
            .map(|n| Gate::serve(&format!("gate {n}"), move |m: u32| n + m).expect("it serves"))
            .collect();
        for n in [0, 1, GATES / 2, GATES - 1] {
            let gate = Gate::<u32, u32>::connect(&format!("gate {n}")).expect("it is there");
            assert_eq!(gate.call(&1).expect("a reply"), n + 1);
        }
        gates.drain(..).for_each(drop);
        assert_eq!(
            Gate::<u32, u32>::connect("gate 5").expect_err("it is closed").kind(),
            ErrorKind::NotFound
        );
        let links = || {
            let folder = std::env::var("KUMI_DIR").expect("it is set");
            std::fs::read_dir(folder).expect("it is there").flatten().count()
        };
        assert!(links() < 10, "{}", links());
        until("nothing is left", || {
            Held::now().links == 0
                && kumihimo::runtime::metrics().expect("a runtime runs").living < 10
        });
        assert!(Held::now().descriptors <= before + 1);
    };
    play("bad_input::hundred_thousand_gates_can_be_served", &[("alone", &alone)]);
}

#[test]
fn other_user_may_call_only_if_allowed() {
    const NAME: &str = "bad_input::other_user_may_call_only_if_allowed";
    const USER: &str = "54321";
    let server = || {
        // SAFETY: reads an integer.
        if unsafe { libc::geteuid() } != 0 {
            return skip(NAME, "needs root to change the user");
        }
        let closed = Gate::serve("closed", |n: u32| n).expect("it serves");
        let mut client = Part::start("client");
        // The other user cannot even see the gate.
        client.expect("Io Io");
        drop(client);
        let allowed = Options::new().allow(USER.parse().expect("a number"));
        let _open = Gate::<u32, u32>::serve_with("open", &allowed, |_, context| Ok(context.uid()))
            .expect("it serves");
        let mut client = Part::start("client");
        client.expect(&format!("NotPermitted {USER}"));
        drop((client, closed));
    };
    let client = || {
        let options = Options::new().directory(std::env::var_os("KUMI_DIR").expect("it is set"));
        assert!(become_user(USER.parse().expect("a number")));
        let one = |name| match Gate::<u32, u32>::connect_with(name, &options)
            .and_then(|gate| gate.call(&1))
        {
            Ok(uid) => uid.to_string(),
            Err(error) => format!("{:?}", error.kind()),
        };
        tell(&format!("{} {}", one("closed"), one("open")));
        hear();
    };
    play(NAME, &[("server", &server), ("client", &client)]);
}
