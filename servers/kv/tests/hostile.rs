//! Hostile clients, and exhausted resources: the server continues to serve other clients.

mod beside;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use beside::{Folder, KV, Reply, Served, encoded, until};
use kumihimo_tests::rounds;
use rustix::process::Signal;

/// Asserts that `server` still replies.
fn lives(server: &Served) {
    assert_eq!(server.client().ask(&["ping"]), Reply::Line('+', "PONG".to_owned()));
}

#[test]
fn server_survives_arbitrary_bytes() {
    let server = Served::start(&["--maxmemory", "64m"]);
    lives(&server);
    let before = (server.sockets(), server.memory());
    for mut round in rounds("server_survives_arbitrary_bytes") {
        let random = &mut round.random;
        let mut stream =
            TcpStream::connect(("127.0.0.1", server.port)).expect("a listening socket");
        let mut bytes = Vec::new();
        for _ in 0..random.below(30) {
            match random.below(6) {
                0 => bytes.extend((0..random.below(300)).map(|_| random.number() as u8)),
                1 => bytes.extend_from_slice(format!("*{}\r\n", random.number() as i64).as_bytes()),
                2 => bytes.extend_from_slice(
                    format!("*2\r\n$3\r\nGET\r\n${}\r\n", random.below(1 << 29)).as_bytes(),
                ),
                3 => bytes.extend_from_slice(&b"*1\r\n".repeat(random.below(2000) as usize)),
                _ => {
                    let names = [
                        "set",
                        "get",
                        "lpush",
                        "subscribe",
                        "hello",
                        "client",
                        "mset",
                        "scan",
                        "config",
                        "blpop",
                    ];
                    let name = names[random.below(names.len() as u64) as usize];
                    let mut command = vec![name.as_bytes().to_vec()];
                    for _ in 0..random.below(5) {
                        command.push(
                            (0..random.below(9)).map(|_| random.number() as u8 & 0x7f).collect(),
                        );
                    }
                    bytes.extend(encoded(&command));
                }
            }
        }
        // The server may close the connection before it has read everything. Its replies are
        // ignored.
        let _ = stream.write_all(&bytes);
        if random.one_in(2) {
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.take(100_000).read_to_end(&mut Vec::new());
        }
    }
    lives(&server);
    until("all have gone", || server.sockets() <= before.0);
    assert!(server.memory() < before.1 + (100 << 20), "{} after {}", server.memory(), before.1);
}

#[test]
fn nesting_and_lengths_take_no_memory() {
    let server = Served::start(&[]);
    lives(&server);
    let before = server.memory();
    let mut nested = server.client();
    nested.try_send(&b"*1\r\n".repeat(1_000_000));
    assert_eq!(nested.reply(), Reply::error("ERR Protocol error: expected '$', got '*'"));
    for bytes in ["*1048577\r\n", "*2147483647\r\n"] {
        let mut client = server.client();
        client.send(bytes.as_bytes());
        assert_eq!(client.reply(), Reply::error("ERR Protocol error: invalid multibulk length"));
        client.expect_end();
    }
    // The announced data never arrives, and no memory is allocated for it.
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let mut client = server.client();
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$536870912\r\nabc");
        waiting.push(client);
    }
    lives(&server);
    assert!(server.memory() < before + (32 << 20), "{} after {before}", server.memory());
}

#[test]
fn endless_line_is_refused() {
    let server = Served::start(&[]);
    let before = server.memory();
    let mut client = server.client();
    // Send up to 1 GB, until the server closes the connection.
    let piece = vec![b'a'; 1 << 20];
    let sent = (0..1024).take_while(|_| client.try_send(&piece)).count();
    assert!(sent < 100, "{sent} MB were taken");
    lives(&server);
    assert!(server.memory() < before + (32 << 20));
    let mut client = server.client();
    client.send(&vec![b'a'; (64 << 10) + 1]);
    assert_eq!(client.reply(), Reply::error("ERR Protocol error: too big inline request"));
    client.expect_end();
}

#[test]
fn client_that_never_reads_holds_little_memory() {
    let server = Served::start(&[]);
    let mut client = server.client();
    let value = "x".repeat(1 << 20);
    assert_eq!(client.ask(&["set", "big", &value]), Reply::ok());
    let before = server.memory();
    let stream = TcpStream::connect(("127.0.0.1", server.port)).expect("a listening socket");
    stream.set_nonblocking(true).expect("a socket");
    let asked = encoded(&["get", "big"]).repeat(10_000);
    let mut at = 0;
    // Request ten thousand megabytes of replies, as far as the kernel buffers the requests.
    while let Ok(n) = (&stream).write(&asked[at..]) {
        at += n;
        if at == asked.len() {
            break;
        }
    }
    for _ in 0..50 {
        assert_eq!(client.ask(&["strlen", "big"]), Reply::integer(1 << 20));
    }
    assert!(server.memory() < before + (64 << 20), "{} after {before}", server.memory());
}

#[test]
fn subscriber_that_never_reads_is_disconnected() {
    let server = Served::start(&[]);
    let (mut deaf, mut other) = (server.client(), server.client());
    deaf.ask(&["subscribe", "news"]);
    let message = "x".repeat(1 << 20);
    let mut sent = 0;
    while other.ask(&["publish", "news", &message]) == Reply::integer(1) {
        sent += 1;
        assert!(sent < 200, "200 MB were kept for it");
    }
    until("it is gone", || {
        other.ask(&["client", "list"]).bytes().iter().filter(|b| **b == b'\n').count() == 1
    });
    server.signal(Signal::TERM);
    let (_, said) = server.ended();
    assert!(said.contains("bytes unread"), "{said}");
}

#[test]
fn requests_may_arrive_bytewise_before_a_half_close() {
    let server = Served::start(&[]);
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("a listening socket");
    stream.set_nodelay(true).expect("a socket");
    for byte in encoded(&["set", "slow", "value"]).iter().chain(b"get slow\r\nget") {
        stream.write_all(&[*byte]).expect("a listening socket");
    }
    stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("replies");
    assert_eq!(said, "+OK\r\n$5\r\nvalue\r\n");
    // Cross-protocol attack: a browser sends an HTTP request to the server.
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("a listening socket");
    let _ = stream.write_all(b"POST / HTTP/1.1\r\nHost: here\r\n\r\nFLUSHALL\r\n");
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert_eq!(said, b"");
    assert_eq!(server.client().ask(&["get", "slow"]), Reply::bulk("value"));
}

#[test]
fn connection_resets_leak_no_sockets() {
    let server = Served::start(&[]);
    lives(&server);
    let before = server.sockets();
    for i in 0..200 {
        let mut client = server.client();
        match i % 4 {
            0 => client.give(&["blpop", "queue", "0"]),
            1 => client.give(&["subscribe", "news"]),
            2 => client.give(&["get", "a"]),
            // Closing a socket with unread data resets the connection (RFC 1122, 4.2.2.13).
            _ => drop((client.ask(&["ping"]), client.give(&["ping"]))),
        }
    }
    until("all have gone", || server.sockets() <= before);
    let mut client = server.client();
    assert_eq!(client.ask(&["publish", "news", "x"]), Reply::integer(0));
    assert_eq!(client.ask(&["rpush", "queue", "x"]), Reply::integer(1));
    assert_eq!(client.ask(&["llen", "queue"]), Reply::integer(1));
}

#[test]
fn excess_connections_are_refused() {
    let server = Served::start(&["--max-connections", "3"]);
    let mut clients: Vec<_> = (0..3).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| drop(client.ask(&["ping"])));
    for _ in 0..3 {
        let mut refused = server.client();
        assert_eq!(refused.reply(), Reply::error("ERR max number of clients reached"));
        refused.expect_end();
    }
    clients.pop();
    until("there is room", || {
        server.client().ask(&["ping"]) == Reply::Line('+', "PONG".to_owned())
    });
}

#[test]
fn accepting_resumes_after_descriptor_exhaustion() {
    let run = "ulimit -n 48; exec \"$0\" --listen 127.0.0.1:0";
    let server = Served::spawn(Command::new("sh").args(["-c", run, KV]));
    let mut clients: Vec<_> = (0..60).map(|_| server.client()).collect();
    // The admitted client is served while another one waits in the backlog.
    assert_eq!(clients[0].ask(&["set", "a", "1"]), Reply::ok());
    let last = clients.len() - 1;
    clients[last].give(&["get", "a"]);
    for _ in 0..20 {
        assert_eq!(clients[0].ask(&["get", "a"]), Reply::bulk("1"));
    }
    // The remaining clients fit beside the runtime's own descriptors, of which each kernel thread
    // has some.
    clients.drain(..55);
    let last = clients.len() - 1;
    assert_eq!(clients[last].reply(), Reply::bulk("1"));
    server.signal(Signal::TERM);
    let (status, said) = server.ended();
    assert!(status.success(), "{status}");
    assert!(
        said.contains("cannot accept") && said.contains("accepting connections again"),
        "{said}"
    );
}

#[test]
fn writes_beyond_maxmemory_are_refused() {
    let server = Served::start(&["--maxmemory", "2m"]);
    let mut client = server.client();
    let value = "x".repeat(1000);
    let oom = Reply::error("OOM command not allowed when used memory > 'maxmemory'.");
    let stored = (0..10_000)
        .take_while(|i| client.ask(&["set", &format!("key:{i}"), &value]) != oom)
        .count();
    // 1,008 bytes of value, 32 of key, the entry, and its slot in the table.
    assert!((1_000..2_000).contains(&stored), "{stored}");
    // A smaller write may still fit: a command is refused before it exceeds the limit.
    assert_eq!(client.ask(&["lpush", "list", &value]), oom);
    assert_eq!(client.ask(&["get", "key:0"]), Reply::bulk(&value));
    assert_eq!(client.ask(&["config", "get", "maxmemory"]).members()[1], Reply::bulk("2097152"));
    for i in 0..stored / 2 {
        client.ask(&["del", &format!("key:{i}")]);
    }
    assert_eq!(client.ask(&["lpush", "list", "x"]), Reply::integer(1));
    assert_eq!(client.ask(&["flushall"]), Reply::ok());
    let info = client.ask(&["info", "memory"]);
    let info = String::from_utf8(info.bytes().to_vec()).expect("text");
    let used: usize = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"))
        .expect("a line")
        .parse()
        .expect("a number");
    assert!(used < 64 << 10, "{used} bytes for nothing");
}

#[test]
fn unusable_address_is_named() {
    let folder = Folder::new("addresses");
    let server = Served::start(&[]);
    let file = folder.file("file");
    std::fs::write(&file, "not a socket").expect("a file");
    let taken = format!("127.0.0.1:{}", server.port);
    for (args, error) in [
        (vec!["--listen", &taken], "Address already in use"),
        (vec!["--listen", "192.0.2.1:0"], "Cannot assign requested address"),
        (vec!["--unix", file.to_str().expect("text")], "Address already in use"),
        (vec!["--listen", "nonsense"], "invalid socket address"),
        (vec!["--maxmemory", "lots"], "expected a number of bytes"),
        (vec!["--max-connections", "0"], "expected a whole number above 0"),
    ] {
        let output = Command::new(KV).args(&args).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(error) && said.contains(args[1]),
            "{args:?}: {said}"
        );
    }
}

#[test]
fn stale_unix_socket_is_replaced() {
    let folder = Folder::new("left");
    let path = beside::text(&folder.file("kv.sock"));
    let first = Served::start(&["--unix", &path]);
    let output = Command::new(KV).args(["--unix", &path]).output().expect("it starts");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("Address already in use"),
        "one lives there: {output:?}"
    );
    first.kill();
    let second = Served::start(&["--unix", &path]);
    let stream = std::os::unix::net::UnixStream::connect(&path).expect("a listening socket");
    assert_eq!(beside::Client::new(stream).ask(&["ping"]), Reply::Line('+', "PONG".to_owned()));
    second.signal(Signal::TERM);
    assert!(second.ended().0.success());
    assert!(!folder.file("kv.sock").exists());
}
