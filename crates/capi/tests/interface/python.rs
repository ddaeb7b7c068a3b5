//! examples/python/gates.py: calls a Rust server, and is called by a Rust client.

use std::process::Command;

use kumihimo::gate::{ErrorKind, RawGate};
use kumihimo_tests::process::{finish, is_child, start};

use crate::place::{Place, Server, done, has, shared_library};
use crate::programs::{serve_as_peer, serve_on};

fn python(place: &Place, program: &str) -> Command {
    let mut command = Command::new("python3");
    command
        .arg("-c")
        .arg(program)
        .env("KUMI_DIR", place.text())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("PYTHONPATH", kumihimo_tests::root().join("examples/python"));
    command.env("KUMI_LIBRARY", shared_library());
    command
}

const CALLS: &str = r#"
import os, threading
from gates import Gate
try:
    Gate("nobody serves this")
    raise SystemExit("it is not there")
except FileNotFoundError as error:
    assert "nobody serves this" in str(error), error
with Gate("peer") as gate:
    for i in range(1000):
        asked = b"e%d" % i
        assert gate.call(asked) == asked
    large = b"e" * (1 << 20)
    assert gate.call(large, timeout=30) == large
    assert gate.call(b"") == b""
    assert gate.call(b"w", timeout=30) == b"%d 1" % os.getpid()
    for asked, kind, says in (b"f", OSError, "no such book"), (b"?", OSError, "what?"), (b"n", FileNotFoundError, "none"):
        try:
            gate.call(asked)
            raise SystemExit("it fails")
        except kind as error:
            assert says in str(error), error
    def many(n):
        for i in range(200):
            asked = b"e%d %d" % (n, i)
            right[n] += gate.call(asked) == asked
    right = [0] * 8
    threads = [threading.Thread(target=many, args=(n,)) for n in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert right == [200] * 8, right
    gate.send(b"e")
print("all is well")
"#;

#[test]
fn python_calls_rust() {
    let test = "python::python_calls_rust";
    if is_child(test) {
        let _serving = serve_as_peer("peer");
        return serve_on();
    }
    if !has(test, "python3") {
        return;
    }
    let place = Place::new(test);
    let server = Server::of(start(test, &[("KUMI_DIR", place.text())]));
    assert_eq!(done(&mut python(&place, CALLS)).stdout, b"all is well\n");
    server.end();
}

/// Python handler that recurses, sorts, imports and sleeps: it needs a deep stack, and releases the
/// interpreter lock.
const SERVES: &str = r#"
import sys, time
from gates import Server
def deep(n): return 0 if n == 0 else 1 + sorted([deep(n - 1)])[0]
def handler(request, caller):
    what, rest = request[:1], request[1:]
    if what == b"u": return rest.upper()
    if what == b"d": return b"%d" % deep(200)
    if what == b"w": return b"%d" % caller.pid
    if what == b"i":
        import json, decimal
        return json.dumps({"pi": str(decimal.Decimal("3.14"))}).encode()
    if what == b"z":
        time.sleep(0.001)
        return b"z"
    if what == b"t": return 7
    raise {b"v": ValueError, b"k": KeyboardInterrupt}.get(what, KeyError)("as asked")
with Server("python", handler, threads=4):
    print("serving", flush=True)
    sys.stdin.read()
try:
    Server("a/b", handler)
    raise SystemExit("that is no name")
except OSError as error:
    assert str(error), error
print("all is well")
"#;

fn call_python() {
    let gate = RawGate::connect("python").expect("it is there");
    let mut reply = Vec::new();
    let mut call = |asked: &[u8]| {
        gate.call(asked, &mut reply).map(|()| String::from_utf8(reply.clone()).expect("UTF-8"))
    };
    for _ in 0..500 {
        assert_eq!(call(b"uhello").expect("a reply"), "HELLO");
    }
    assert_eq!(call(b"d").expect("a reply"), "200");
    assert_eq!(call(b"i").expect("a reply"), r#"{"pi": "3.14"}"#);
    assert_eq!(call(b"w").expect("a reply"), std::process::id().to_string());
    for (asked, says) in [
        (b"v", "ValueError: as asked"),
        (b"?", "KeyError: 'as asked'"),
        (b"k", "KeyboardInterrupt"),
        (b"t", "TypeError"),
    ] {
        let error = call(asked).expect_err("it fails");
        assert!(error.kind() == ErrorKind::Panicked && error.to_string().contains(says), "{error}");
    }
    kumihimo::thread::scope(|scope| {
        for i in 0..64 {
            let gate = &gate;
            scope.spawn(move || {
                let mut reply = Vec::new();
                for j in 0..20 {
                    gate.call(format!("ua{i} {j}").as_bytes(), &mut reply).expect("a reply");
                    assert_eq!(reply, format!("A{i} {j}").as_bytes());
                    gate.call(b"z", &mut reply).expect("a reply");
                }
            });
        }
    });
}

#[test]
fn rust_calls_python() {
    let test = "python::rust_calls_python";
    if is_child(test) {
        return call_python();
    }
    if !has(test, "python3") {
        return;
    }
    let place = Place::new(test);
    let server = Server::start(&mut python(&place, SERVES));
    let ended = finish(test, start(test, &[("KUMI_DIR", place.text())]));
    assert!(ended.status.success(), "{}", ended.told());
    assert_eq!(server.end(), "all is well\n");
}

/// A Python program ends with an open gate while it is called.
#[test]
fn interpreter_exits_with_an_open_gate() {
    let test = "python::interpreter_exits_with_an_open_gate";
    const LEAVES: &str = "import sys\nfrom gates import Server\nserver = Server('left', lambda request, caller: request)\n\
        print('serving', flush=True)\nsys.stdin.read()\n";
    if is_child(test) {
        let gate = RawGate::connect("left").expect("it is there");
        println!("serving");
        let mut reply = Vec::new();
        while gate.call(b"again", &mut reply).is_ok() {
            assert_eq!(reply, b"again");
        }
        return;
    }
    if !has(test, "python3") {
        return;
    }
    let place = Place::new(test);
    let server = Server::start(&mut python(&place, LEAVES));
    // The client prints `serving` before its first call.
    let caller = Server::of(start(test, &[("KUMI_DIR", place.text())]));
    server.end();
    caller.end();
}

/// Both sides are Python: the example run as a program.
#[test]
fn python_example_runs() {
    let test = "python::python_example_runs";
    if !has(test, "python3") {
        return;
    }
    let place = Place::new(test);
    let example = || {
        let mut command = Command::new("python3");
        command
            .arg(kumihimo_tests::root().join("examples/python/gates.py"))
            .env("KUMI_DIR", place.text());
        command.env("KUMI_LIBRARY", shared_library());
        command
    };
    let server = Server::start(example().args(["serve", "upper"]));
    assert_eq!(done(example().args(["call", "upper", "hello"])).stdout, b"HELLO\n");
    server.end();
}
