//! Faulty, malicious, stopped and outdated peers, on both sides of the control socket.

mod harness;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::{Double, Raw, Room, fork, is_root, locked, pipe, serving, skip, wait_for_ever};
use kumihimo_machine::handler::Refused;
use kumihimo_machine::protocol::LONGEST_REQUEST;
use kumihimo_machine::space::Limits;
use kumihimo_machine::{Error, Neighbour};
use proptest::prelude::*;

const SPACE: &str = "{\"protocol\":1,\"ask\":\"space\"}\n";
const LIST: &str = "{\"protocol\":1,\"ask\":\"microprocesses\"}\n";

fn soon(millis: u64) -> Limits {
    Limits { patience: Duration::from_millis(millis), ..Limits::default() }
}

#[test]
fn invalid_request_is_an_error_and_keeps_the_connection_open() {
    let room = Room::new();
    let served = room.serve(Double::with(1));
    let mut raw = served.raw();
    for (line, kind) in [
        ("nonsense", "invalid"),
        ("", "invalid"),
        ("\0\u{7f}", "invalid"),
        ("{\"protocol\":1,\"ask\":\"dance\"}", "invalid"),
        ("{\"protocol\":1,\"ask\":\"microprocess\",\"id\":\"1.fiber.0.1\"}", "invalid"),
        ("{\"protocol\":1,\"ask\":\"resources\",\"kind\":\"fiber\"}", "invalid"),
        ("{\"protocol\":2,\"ask\":\"space\"}", "unsupported"),
        ("{\"protocol\":1,\"ask\":\"microprocess\",\"id\":\"9.0.1\"}", "stale"),
    ] {
        raw.say(format!("{line}\n"));
        let answer = raw.line();
        assert!(answer.contains(&format!("{{\"error\":{{\"kind\":\"{kind}\"")), "{line}: {answer}");
        raw.say(SPACE);
        assert!(raw.line().contains("\"program\":\"double\""));
        assert_eq!(raw.line(), "{\"end\":1}\n");
    }
}

#[test]
fn overlong_request_ends_the_connection() {
    let room = Room::new();
    let served = room.serve(Double::with(1));
    // The longest allowed request, and one byte more; with and without an end of line.
    for (length, end, fits) in
        [(LONGEST_REQUEST, "\n", true), (LONGEST_REQUEST + 1, "\n", false), (1 << 20, "", false)]
    {
        let mut raw = served.raw();
        let line = SPACE.trim_end().to_owned();
        let line = line.clone() + &" ".repeat(length - line.len()) + end;
        // The server may close the connection before the whole request is sent.
        let _ = raw.0.get_mut().write_all(line.as_bytes());
        if fits {
            assert!(raw.line().contains("double"));
            continue;
        }
        assert!(raw.line().contains("more than 65536 bytes"));
        assert_eq!(raw.line(), "");
    }
    assert_eq!(served.neighbour().space().unwrap().living, 1);
}

#[test]
fn idle_connection_is_closed() {
    let room = Room::new();
    let served = room.serve_within(Double::with(1), soon(200));
    let (mut silent, mut half) = (served.raw(), served.raw());
    half.say("{\"protocol\":1,");
    assert_eq!((silent.line(), half.line()), (String::new(), String::new()));
    assert_eq!(served.neighbour().space().unwrap().living, 1);
}

#[test]
fn client_that_does_not_read_is_closed_and_delays_no_other() {
    let room = Room::new();
    let served = room.serve_within(Double::with(100_000), soon(300));
    let mut raws: Vec<Raw> = (0..10).map(|_| served.raw()).collect();
    raws.iter_mut().for_each(|raw| raw.say(LIST));
    let mut neighbour = served.neighbour();
    for slot in 0..20 {
        assert_eq!(
            neighbour.microprocess(served.double.id(slot)).unwrap(),
            served.double.one(slot)
        );
    }
    // The server closes them eventually; none has received a whole answer by then.
    while connections(&mut neighbour).unwrap() > 1.0 {}
    for mut raw in raws {
        let rest = raw.rest();
        assert!(!rest.ends_with(b"{\"end\":100000}\n") && rest.len() < 1 << 20, "{}", rest.len());
    }
    assert_eq!(neighbour.space().unwrap().living, 100_000);
}

/// Returns the number of open connections, including that of the requesting client.
fn connections(neighbour: &mut Neighbour) -> Result<f64, Error> {
    let metrics = neighbour.metrics()?;
    Ok(metrics.iter().find(|one| one.name == "kumihimo_control_connections").unwrap().samples[0].1)
}

/// The amount of unread output in memory is bounded, however many clients request lists.
#[test]
fn unread_lists_do_not_fill_memory() {
    let room = Room::new();
    let served = room.serve(Double::with(200_000));
    let mut raws: Vec<Raw> = (0..20).map(|_| served.raw()).collect();
    raws.iter_mut().for_each(|raw| raw.say(LIST));
    // Each is refused or partly answered. The last one is processed after all others.
    let firsts: Vec<String> = raws.iter_mut().map(Raw::line).collect();
    let busy = firsts.iter().filter(|line| line.contains("\"busy\"")).count();
    assert!(busy > 10, "{busy} of 20 are busy; 64 MiB are less than four lists");
    // Requests that are not lists are still answered.
    assert_eq!(served.neighbour().space().unwrap().living, 200_000);
}

#[test]
fn longest_idle_connection_makes_room() {
    let room = Room::new();
    let served = room.serve_within(Double::with(1), Limits { connections: 3, ..Limits::default() });
    let mut raws = [served.raw(), served.raw(), served.raw()];
    let ask = |raw: &mut Raw| {
        raw.say(SPACE);
        assert!(raw.line().contains("double"));
        assert_eq!(raw.line(), "{\"end\":1}\n");
    };
    ask(&mut raws[0]);
    let mut fourth = served.raw();
    assert_eq!(raws[1].line(), "");
    ask(&mut raws[2]);
    ask(&mut fourth);
    ask(&mut raws[0]);
}

#[test]
fn flood_of_connections_does_not_block_clients() {
    let room = Room::new();
    let served = room.serve(Double::with(100));
    let path = room.path().join(format!("{}.socket", served.space));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = || {
            let mut open = Vec::new();
            while !over.load(Ordering::Relaxed) {
                if let Ok(mut stream) = UnixStream::connect(&path) {
                    let _ = stream.set_nonblocking(true);
                    let _ = stream.write(&[b'\n'; 3000]);
                    open.push(stream);
                }
                if open.len() > 150 {
                    open.drain(..100);
                }
            }
        };
        scope.spawn(flood);
        scope.spawn(flood);
        let mut neighbour = served.neighbour();
        let answers: Vec<_> =
            (0..10).map(|_| (neighbour.microprocesses(), connections(&mut neighbour))).collect();
        over.store(true, Ordering::Relaxed);
        let mut answered = 0;
        for (all, open) in answers {
            match all {
                Ok(all) => {
                    assert_eq!(all.len(), 100);
                    answered += 1;
                }
                // If connections arrive faster than they are answered, the client reports it.
                Err(Error::Refused(Refused::Busy(_)) | Error::Timeout(_) | Error::Gone(_)) => {}
                Err(e) => panic!("{e:?}"),
            }
            assert!(open.is_err() || open.is_ok_and(|open| open <= 64.0));
        }
        assert!(answered > 0, "an accepted client has time for a request");
    });
    assert_eq!(served.neighbour().microprocesses().unwrap().len(), 100);
}

#[test]
fn stopped_address_space_is_distinguished_from_a_slow_one() {
    let room = Room::new();
    let (process, number) = serving(&room, Double::with(5));
    let mut connected =
        room.machine().time_limit(Duration::from_secs(1)).neighbour(number).unwrap();
    assert_eq!(connected.microprocesses().unwrap().len(), 5);
    process.stop();
    let machine = room.machine().time_limit(Duration::from_millis(100));
    for neighbour in [&mut connected, &mut machine.neighbour(number).unwrap()] {
        let error = neighbour.microprocesses().unwrap_err();
        let Error::Stopped(text) = error else { panic!("{error:?}") };
        assert!(text.contains(&format!("kill -CONT {}", process.0)), "{text}");
    }
    assert_eq!(machine.spaces().unwrap().len(), 1, "the stopped address space is alive");
    // Fills the backlog.
    let path = room.path().join(format!("{number}.socket"));
    let mut waiting = Vec::new();
    let socket = || {
        use rustix::net::*;
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None)
                .unwrap();
        connect(&socket, &SocketAddrUnix::new(&path).unwrap()).map(|()| socket)
    };
    while let Ok(one) = socket() {
        waiting.push(one);
    }
    let error = machine.neighbour(number).unwrap().space().unwrap_err();
    assert!(matches!(&error, Error::Timeout(text) if text.contains("stopped")), "{error:?}");
    drop(waiting);
    process.signal(libc::SIGCONT);
    let machine = room.machine();
    assert_eq!(machine.neighbour(number).unwrap().microprocesses().unwrap().len(), 5);
}

#[test]
fn slow_answer_is_a_timeout() {
    let room = Room::new();
    let (gate, opens) = pipe();
    let waits = Box::new(move || drop((&gate).read(&mut [0])));
    let served = room.serve(Double { before: Some(waits), ..Double::with(1) });
    let machine = room.machine().time_limit(Duration::from_millis(50));
    let mut neighbour = machine.neighbour(served.space).unwrap();
    let error = neighbour.microprocess(served.double.id(0)).unwrap_err();
    assert!(matches!(&error, Error::Timeout(text) if text.contains("within 50ms")), "{error:?}");
    drop(opens);
    assert_eq!(
        served.neighbour().microprocesses().unwrap().len(),
        1,
        "a late answer is not returned for a later request"
    );
}

#[test]
fn address_space_in_another_pid_namespace_answers() {
    const NAME: &str = "server_in_another_pid_namespace_is_reached";
    if !is_root() {
        return skip(NAME, "only root can create a pid namespace");
    }
    let room = Room::new();
    let here = room.serve(Double::with(3));
    let (mut from_child, mut to_test) = pipe();
    let (room, there) = (&room, here.double.id(2));
    let outer = fork(0, || {
        // SAFETY: an integer argument; this process has one kernel thread.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
        let inner = fork(0, || {
            assert_eq!(std::process::id(), 1);
            // The process ID of the outer address space is not visible, but requests succeed.
            let mut outside = room.machine().neighbour(here.space).unwrap();
            assert_eq!(outside.microprocess(there).unwrap().id, there);
            let _served = room.serve(Double::with(4));
            to_test.write_all(b"x").unwrap();
            wait_for_ever();
        });
        std::mem::forget(inner);
        wait_for_ever();
    });
    from_child.read_exact(&mut [0]).unwrap();
    let mut spaces = room.machine().spaces().unwrap();
    assert_eq!(spaces.len(), 2);
    let space = spaces[1].space().unwrap();
    assert_eq!((space.pid, space.living), (1, 4), "its process ID is 1 in its own namespace");
    drop(outer);
}

/// A server that sends arbitrary bytes.
struct Impostor {
    room: Room,
    _lock: File,
    listener: UnixListener,
}

impl Impostor {
    fn new() -> Impostor {
        let room = Room::new();
        room.directory();
        let lock = locked(&room.path().join("1"));
        let listener = UnixListener::bind(room.path().join("1.socket")).unwrap();
        Impostor { room, _lock: lock, listener }
    }

    /// Returns the result of a request if each connection receives `reply` and then ends.
    fn after_reply<T>(
        &self,
        reply: &[u8],
        ask: impl FnOnce(&mut Neighbour) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for stream in self.listener.incoming() {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    let mut stream = stream.unwrap();
                    let _ = stream.write_all(reply);
                }
            });
            let machine = self.room.machine().time_limit(Duration::from_secs(1));
            let answer = ask(&mut machine.neighbour(1).unwrap());
            over.store(true, Ordering::Relaxed);
            UnixStream::connect(self.room.path().join("1.socket")).unwrap();
            answer
        })
    }
}

const GREETING: &str = "{\"protocol\":1,\"version\":\"9.9.9\",\"space\":1,\"new\":true}\n";

#[test]
fn incompatible_versions_are_reported_and_new_fields_ignored() {
    let impostor = Impostor::new();
    let error = impostor
        .after_reply(b"{\"protocol\":7,\"version\":\"9.9.9\",\"space\":1}\n", Neighbour::space)
        .unwrap_err();
    let Error::Protocol(text) = error else { panic!("{error:?}") };
    assert!(
        text.contains("protocol 7") && text.contains("9.9.9") && text.contains("protocol 1"),
        "{text}"
    );
    // Fields that a later version adds are ignored.
    let answer = "{\"done\":\"now\",\"since\":3}\n{\"end\":1,\"took\":2}\n";
    let id = "1.0.0".parse().unwrap();
    let act =
        |neighbour: &mut Neighbour| neighbour.act(id, kumihimo_machine::handler::Action::Cancel);
    impostor.after_reply(format!("{GREETING}{answer}").as_bytes(), act).unwrap();
}

#[test]
fn invalid_answers_are_errors() {
    let impostor = Impostor::new();
    let protocol = |reply: &str, part: &str| match impostor
        .after_reply(reply.as_bytes(), Neighbour::microprocesses)
    {
        Err(Error::Protocol(text)) => assert!(text.contains(part), "{text}"),
        other => panic!("{reply}: {other:?}"),
    };
    protocol("HTTP/1.1 400 Bad Request\r\n\r\n", "invalid answer");
    protocol("{\"end\":0}\n", "without an answer");
    protocol(&GREETING.replace("\"space\":1", "\"space\":2"), "address space 2");
    protocol(&format!("{GREETING}{{}}\n"), "missing field");
    protocol(&format!("{GREETING}{{\"end\":3}}\n"), "0 of 3 lines arrived");
    protocol(&format!("{GREETING}{{\"end\":-1}}\n"), "");
    let gone = |reply: &str| {
        let error = impostor.after_reply(reply.as_bytes(), Neighbour::microprocesses).unwrap_err();
        assert!(matches!(error, Error::Gone(_)), "{reply}: {error:?}");
    };
    gone("");
    gone("{\"protocol\":1,");
    for reply in [GREETING.to_owned(), format!("{GREETING}{{\"id\":")] {
        let error = impostor.after_reply(reply.as_bytes(), Neighbour::microprocesses).unwrap_err();
        assert!(matches!(&error, Error::Refused(Refused::Busy(_)) | Error::Gone(_)), "{error:?}");
    }
    let error = impostor
        .after_reply(b"{\"error\":{\"kind\":\"denied\",\"message\":\"no\"}}\n", Neighbour::space)
        .unwrap_err();
    assert!(matches!(error, Error::Refused(Refused::Denied(text)) if text == "no"));
    // Two items instead of one, and a part of a trace that would exceed memory.
    let two = "{\"done\":\"now\"}\n{\"done\":\"now\"}\n{\"end\":2}\n";
    let id = "1.0.0".parse().unwrap();
    let act =
        |neighbour: &mut Neighbour| neighbour.act(id, kumihimo_machine::handler::Action::Cancel);
    let error = impostor.after_reply(format!("{GREETING}{two}").as_bytes(), act).unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error:?}");
    let trace = format!("{GREETING}{{\"bytes\":1152921504606846976}}\n");
    let error =
        impostor.after_reply(trace.as_bytes(), |one| one.trace(&mut Vec::new())).unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error:?}");
}

/// A line without an end, which is also the whole answer.
#[test]
fn endless_line_is_an_error() {
    let impostor = Impostor::new();
    let endless = vec![b' '; 18 << 20];
    let reply = [GREETING.as_bytes(), &endless].concat();
    let error = impostor.after_reply(&reply, Neighbour::microprocesses).unwrap_err();
    assert!(
        matches!(&error, Error::Protocol(text) if text.contains("without an end")),
        "{error:?}"
    );
}

#[test]
fn client_survives_garbage() {
    let impostor = Impostor::new();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let line = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..100),
        Just(b"{\"end\":1}\n".to_vec()),
        Just(b"{\"error\":{}}\n".to_vec()),
        Just(b"{\"bytes\":9}\n".to_vec()),
    ];
    let reply = proptest::collection::vec(line, 0..5)
        .prop_map(|lines| [GREETING.as_bytes(), &lines.concat()].concat());
    runner
        .run(&reply, |reply| {
            prop_assert!(impostor.after_reply(&reply, Neighbour::microprocesses).is_err());
            let mut out = Vec::new();
            let _ = impostor.after_reply(&reply, |one| one.trace(&mut out));
            Ok(())
        })
        .unwrap();
}

#[test]
fn server_survives_garbage() {
    let room = Room::new();
    let served = room.serve(Double::with(2));
    let neighbour = std::cell::RefCell::new(served.neighbour());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let line = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..2000),
        Just(LIST.as_bytes().to_vec()),
        Just(
            b"{\"protocol\":1,\"ask\":\"act\",\"id\":\"1.0.0\",\"action\":\"suspend\"}\n".to_vec()
        ),
        Just(vec![b'[', 200]),
        Just("[".repeat(2000).into_bytes()),
    ];
    runner
        .run(&proptest::collection::vec(line, 0..5), |lines| {
            let mut raw = served.raw();
            let _ = raw.0.get_mut().write_all(&lines.concat());
            let _ = raw.0.get_ref().shutdown(std::net::Shutdown::Write);
            let answer = raw.rest();
            for line in answer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                prop_assert!(
                    serde_json::from_slice::<serde_json::Value>(line).is_ok(),
                    "a line of JSON: {:?}",
                    line
                );
            }
            prop_assert_eq!(neighbour.borrow_mut().microprocesses().unwrap().len(), 2);
            Ok(())
        })
        .unwrap();
    assert!(served.double.acted.lock().unwrap().is_empty());
}
