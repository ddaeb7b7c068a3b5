//! The append log: acknowledged changes survive every kind of shutdown and crash.

mod beside;

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use beside::{Client, Folder, KV, Reply, Served, encoded, text, until};
use kumihimo_tests::rounds;
use rustix::process::Signal;

/// Runs one command of each kind that changes data. Returns the resulting contents.
fn change_everything(client: &mut Client) -> Vec<Reply> {
    for command in [
        "set a 1",
        "set b 2 px 100000000",
        "incrby a 41",
        "append b x",
        "setnx c 3",
        "setnx c 4",
        "mset d 5 e 6",
        "del d nothing",
        "rpush l 1 2 3 4",
        "lpush l 0",
        "lpop l",
        "rpop l 2",
        "expire e 100000",
        "persist e",
        "expire c 1000000",
        "select 3",
        "set a three",
        "decr n",
        "select 0",
        "blpop l 0",
        "set gone x px 1",
        "set old x",
        "expire old -1",
        "set k v ex 100000",
        "set k w keepttl",
    ] {
        let reply = client.ask(&command.split(' ').collect::<Vec<_>>());
        assert!(!matches!(reply, Reply::Line('-', _)), "{command}: {reply:?}");
    }
    until("it has expired", || client.ask(&["exists", "gone"]) == Reply::integer(0));
    assert_eq!(client.ask(&["incr", "gone"]), Reply::integer(1));
    contents(client)
}

fn contents(client: &mut Client) -> Vec<Reply> {
    let mut all = Vec::new();
    for number in ["0", "3"] {
        client.ask(&["select", number]);
        let keys = client.ask(&["keys", "*"]).sorted();
        for key in keys.members() {
            let ttl = client.ask(&[b"ttl".as_slice(), key.bytes()]);
            let text = client.ask(&[b"get".as_slice(), key.bytes()]);
            let list = client.ask(&[b"lrange".as_slice(), key.bytes(), b"0", b"-1"]);
            // The expiry is compared as present or absent: remaining times differ between the two
            // runs.
            all.extend([
                key.clone(),
                text,
                list,
                Reply::integer(i64::from(ttl != Reply::integer(-1))),
            ]);
        }
    }
    client.ask(&["select", "0"]);
    all
}

fn start(log: &str, sync: &str) -> Served {
    Served::start(&["--append-log", log, "--sync", sync])
}

#[test]
fn restart_restores_everything() {
    let folder = Folder::new("again");
    for sync in ["always", "everysec", "no"] {
        let log = text(&folder.file(sync));
        let server = start(&log, sync);
        let before = change_everything(&mut server.client());
        // A graceful shutdown loses nothing under any sync policy.
        server.signal(Signal::TERM);
        assert!(server.ended().0.success());
        let server = start(&log, sync);
        assert_eq!(contents(&mut server.client()), before, "{sync}");
        server.client().ask(&["flushall"]);
        server.client().give(&["shutdown"]);
        let (status, said) = server.ended();
        assert!(status.success() && said.contains("commands replayed"), "{said}");
        assert_eq!(contents(&mut start(&log, sync).client()), []);
    }
}

#[test]
fn redis_replays_the_log() {
    let folder = Folder::new("redis-reads");
    if Command::new("redis-server").arg("--version").output().is_err() {
        return kumihimo_tests::skip(
            "redis_replays_the_log",
            "no redis-server (apt-get install redis-server)",
        );
    }
    let log = folder.file("appendonly.aof");
    let server = start(&text(&log), "always");
    let before = change_everything(&mut server.client());
    server.kill();
    let found =
        Command::new("redis-check-aof").arg(&log).output().expect("it comes with redis-server");
    assert!(
        String::from_utf8_lossy(&found.stdout).contains("AOF is valid") || found.status.success(),
        "{found:?}"
    );
    let redis = Served::redis("redis_replays_the_log", &folder).expect("it is here");
    let mut client = redis.client();
    // Send the log as a client does, which is how Redis replays its own log.
    client.send(&std::fs::read(&log).expect("the log"));
    client.ask(&["echo", "the end"]);
    until("it has read all", || client.reply() == Reply::bulk("the end"));
    let mut client = redis.client();
    assert_eq!(contents(&mut client), before);
}

#[test]
fn acknowledged_changes_survive_kill_9() {
    let folder = Folder::new("kill");
    let log = text(&folder.file("log"));
    let acknowledged: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    for mut round in rounds("acknowledged_changes_survive_kill_9") {
        let server = start(&log, "always");
        std::thread::scope(|scope| {
            for (i, acknowledged) in acknowledged.iter().enumerate() {
                let mut client = server.client();
                scope.spawn(move || {
                    // One counter for each client: a crash must not set it back.
                    loop {
                        let key = format!("counter:{i}");
                        if !client.try_send(&encoded(&["incr", &key]).repeat(3)) {
                            return;
                        }
                        for _ in 0..3 {
                            match client.try_reply() {
                                Some(Reply::Line(':', n)) => acknowledged
                                    .store(n.parse().expect("a number"), Ordering::SeqCst),
                                Some(other) => panic!("{other:?}"),
                                None => return,
                            }
                        }
                    }
                });
            }
            // Kill at a random moment under load.
            std::thread::sleep(Duration::from_micros(20_000 + round.random.below(80_000)));
            server.signal(Signal::KILL);
        });
        drop(server);
        let server = start(&log, "always");
        let mut client = server.client();
        for (i, acknowledged) in acknowledged.iter().enumerate() {
            let sure = acknowledged.load(Ordering::SeqCst);
            let there = match client.ask(&["get", &format!("counter:{i}")]) {
                Reply::Bulk('$', Some(digits)) => {
                    String::from_utf8(digits).expect("digits").parse().expect("a number")
                }
                _ => 0_u64,
            };
            // Up to three increments were not acknowledged at the kill.
            assert!((sure..=sure + 3).contains(&there), "{sure} acknowledged, {there} there");
            acknowledged.store(there, Ordering::SeqCst);
        }
        server.kill();
    }
    assert!(acknowledged.iter().any(|counter| counter.load(Ordering::SeqCst) > 0));
}

#[test]
fn log_truncated_at_any_byte_is_replayed() {
    let folder = Folder::new("tail");
    let log = folder.file("log");
    let server = start(&text(&log), "always");
    let mut client = server.client();
    client.ask(&["set", "first", "1"]);
    let first = std::fs::metadata(&log).expect("the log").len() as usize;
    client.ask(&["set", "second", "22"]);
    let second = std::fs::metadata(&log).expect("the log").len() as usize;
    server.kill();
    let whole = std::fs::read(&log).expect("the log");
    assert_eq!(whole.len(), second);
    // Truncate at every byte of the last command, and around the boundaries of the others.
    for length in [0, 1, 22, 23, 24, first - 1].into_iter().chain(first..=second) {
        std::fs::write(&log, &whole[..length]).expect("a file");
        let server = start(&text(&log), "no");
        let mut client = server.client();
        let expected = i64::from(length >= first) + i64::from(length == second);
        assert_eq!(
            client.ask(&["exists", "first", "second"]),
            Reply::integer(expected),
            "{length}"
        );
        let left = std::fs::metadata(&log).expect("the log").len() as usize;
        // The first change is preceded by `SELECT 0`, which is a command as well.
        assert!(left <= length && [0, 23, first, second].contains(&left), "{left} of {length}");
        client.give(&["shutdown"]);
        let (_, said) = server.ended();
        let told =
            format!("{} bytes of an incomplete command at the end are dropped", length - left);
        assert_eq!(said.contains(&told), length != left, "{length}: {said}");
    }
}

#[test]
fn second_server_on_a_log_is_refused() {
    let folder = Folder::new("two");
    let log = text(&folder.file("log"));
    let server = start(&log, "no");
    let output = Command::new(KV)
        .args(["--listen", "127.0.0.1:0", "--append-log", &log])
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success()
            && said.contains("another process writes it")
            && said.contains(&log),
        "{said}"
    );
    assert_eq!(server.client().ask(&["set", "a", "1"]), Reply::ok());
    let nowhere = text(&folder.file("no/such/folder"));
    let output = Command::new(KV)
        .args(["--listen", "127.0.0.1:0", "--append-log", &nowhere])
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success()
            && said.contains("No such file or directory")
            && said.contains(&nowhere),
        "{said}"
    );
}

/// Whether a log consists of complete commands. With `everysec`, a writer that lags behind may have
/// had to give up all changes but the first.
fn has_whole_commands(mut log: &[u8]) -> bool {
    /// Takes a line that begins with `kind` and a number.
    fn number(log: &mut &[u8], kind: u8) -> Option<usize> {
        let end = log.windows(2).position(|two| two == b"\r\n")?;
        let line = std::str::from_utf8(log[..end].strip_prefix(&[kind])?).ok()?;
        *log = &log[end + 2..];
        line.parse().ok()
    }
    fn command(log: &mut &[u8]) -> Option<()> {
        for _ in 0..number(log, b'*')? {
            let bytes = number(log, b'$')? + 2;
            *log = log.get(bytes..)?;
        }
        Some(())
    }
    let is_empty = log.is_empty();
    while !log.is_empty() {
        if command(&mut log).is_none() {
            return false;
        }
    }
    !is_empty
}

/// Mounts a small tmpfs at `$1`, half of which a file takes.
const SMALL_DISK: &str =
    "mount -t tmpfs -o size=128k tmpfs \"$1\" && head -c 64k /dev/zero >\"$1/ballast\"";

/// Whether a small tmpfs can be mounted at `folder`. Reports `test` as skipped otherwise.
fn may_mount(test: &str, folder: &Folder) -> bool {
    let args = ["-rm", "sh", "-c", SMALL_DISK, "sh", &text(&folder.0)];
    let may = Command::new("unshare").args(args).output();
    let may = may.is_ok_and(|output| output.status.success());
    if !may {
        kumihimo_tests::skip(test, "may not mount a small tmpfs (unshare -rm)");
    }
    may
}

/// Starts a server whose log is on a small disk of its own.
fn start_on_small_disk(folder: &Folder, sync: &str) -> Served {
    let run = format!(
        "{SMALL_DISK} && exec \"$0\" --listen 127.0.0.1:0 --append-log \"$1/log\" --sync \"$2\""
    );
    let args = ["-rm", "sh", "-c", &run, KV, &text(&folder.0), sync];
    Served::spawn(Command::new("unshare").args(args))
}

/// Path of a file on the small disk of `server`.
fn inside(server: &Served, folder: &Folder, name: &str) -> String {
    format!("/proc/{}/root{}/{name}", server.child.id(), text(&folder.0))
}

#[test]
fn full_disk_refuses_changes() {
    let test = "full_disk_refuses_changes";
    let folder = Folder::new("space");
    if !may_mount(test, &folder) {
        return;
    }
    for sync in ["always", "everysec"] {
        let server = start_on_small_disk(&folder, sync);
        let inside = |name: &str| inside(&server, &folder, name);
        let mut client = server.client();
        assert_eq!(client.ask(&["set", "first", "1"]), Reply::ok());
        // With `everysec`, the reply does not wait for the log's writer. If all changes came in the
        // writer's first batch, the disk would be too small for the whole batch, and the log stays
        // empty.
        until("the first command is written", || {
            has_whole_commands(&std::fs::read(inside("log")).expect("the log"))
        });
        let value = "x".repeat(1000);
        let mut stored = 0;
        let refused = loop {
            match client.ask(&["set", &format!("key:{stored}"), &value]) {
                Reply::Line('+', _) => stored += 1,
                Reply::Line('-', refused) => break refused,
                other => panic!("{other:?}"),
            }
            // With `everysec`, replies do not wait for the log's writer, which may lag behind on a
            // busy machine.
            assert!(sync == "everysec" || stored < 100, "100 kB in 64");
        };
        assert_eq!(
            refused,
            "MISCONF Errors writing to the append log: No space left on device (os error 28)"
        );
        // A client whose change failed after it ran has been disconnected. Reads still work,
        // changes do not.
        let mut client = server.client();
        assert_eq!(client.ask(&["get", "first"]), Reply::bulk("1"));
        assert_eq!(client.ask(&["set", "more", "1"]), Reply::error(&refused));
        // The file contains complete commands only.
        until("it ends with a whole command", || {
            has_whole_commands(&std::fs::read(inside("log")).expect("the log"))
        });
        std::fs::remove_file(inside("ballast")).expect("it is there");
        until("there is room again", || client.ask(&["set", "more", "1"]) == Reply::ok());
        // The mount disappears with the server, but not while a file in it is open.
        let log = std::fs::File::open(inside("log")).expect("the log");
        server.signal(Signal::TERM);
        let (status, said) = server.ended();
        assert!(status.success(), "{status}: {said}");
        assert!(said.contains("changes are refused") && said.contains("written again"), "{said}");
        let copy = folder.file("copy");
        std::io::copy(&mut &log, &mut std::fs::File::create(&copy).expect("a file"))
            .expect("a copy");
        let server = start(&text(&copy), "no");
        let mut client = server.client();
        for i in 0..stored {
            assert_eq!(
                client.ask(&["strlen", &format!("key:{i}")]),
                Reply::integer(1000),
                "{i} of {stored}"
            );
        }
        assert_eq!(client.ask(&["get", "more"]), Reply::bulk("1"));
    }
}

#[test]
fn shutdown_writes_the_rest_when_there_is_room_again() {
    let test = "shutdown_writes_the_rest_when_there_is_room_again";
    let folder = Folder::new("room");
    if !may_mount(test, &folder) {
        return;
    }
    let server = start_on_small_disk(&folder, "always");
    let mut client = server.client();
    let (value, mut stored) = ("x".repeat(1000), 0);
    while client.ask(&["set", &format!("key:{stored}"), &value]) == Reply::ok() {
        stored += 1;
    }
    // The writer waits before its next attempt. It is stopped, so that there is room, and a signal,
    // when it goes on.
    server.signal(Signal::STOP);
    std::fs::remove_file(inside(&server, &folder, "ballast")).expect("it is there");
    // The mount disappears with the server, but not while a file in it is open.
    let log = std::fs::File::open(inside(&server, &folder, "log")).expect("the log");
    server.signal(Signal::TERM);
    server.signal(Signal::CONT);
    let (status, said) = server.ended();
    assert!(status.success(), "{status}: {said}");
    let copy = folder.file("copy");
    std::io::copy(&mut &log, &mut std::fs::File::create(&copy).expect("a file")).expect("a copy");
    // The change that was refused for lack of room ran in memory, and is in the log, too.
    let server = start(&text(&copy), "no");
    let there = server.client().ask(&["exists", &format!("key:{stored}")]);
    assert_eq!(there, Reply::integer(1));
}

#[test]
fn shutdown_answers_requests_that_have_arrived() {
    let folder = Folder::new("end");
    let log = text(&folder.file("log"));
    let server = start(&log, "everysec");
    let (mut waits, mut listens, mut works) = (server.client(), server.client(), server.client());
    waits.give(&["blpop", "queue", "0"]);
    listens.ask(&["subscribe", "news"]);
    assert_eq!(works.ask(&["set", "a", "1"]), Reply::ok());
    works.send(&encoded(&["incr", "a"]).repeat(1000));
    assert_eq!(works.reply(), Reply::integer(2));
    server.signal(Signal::INT);
    let mut last = 2;
    while let Some(reply) = works.try_reply() {
        last += 1;
        assert_eq!(reply, Reply::integer(last));
    }
    for client in [&mut waits, &mut listens] {
        while client.try_reply().is_some() {}
    }
    let (status, said) = server.ended();
    assert!(status.success(), "{status}: {said}");
    let server = start(&log, "everysec");
    assert_eq!(server.client().ask(&["get", "a"]), Reply::bulk(&last.to_string()));
}
