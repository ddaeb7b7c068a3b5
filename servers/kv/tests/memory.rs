//! The memory of the server under hostile clients: `--maxmemory`, `--client-memory` and a constant
//! bound it. Long commands let others go on.

mod beside;

use std::iter::repeat_n;
use std::process::Command;

use beside::{Client, KV, Reply, Served, encoded, until};

/// Memory beside the two limits that a small number of connections may need: allocator, stacks,
/// copies that are made while a buffer grows.
const BESIDE: usize = 48 << 20;
const CLIENT_MEMORY: usize = 32 << 20;
const EXCEEDED: &str = "ERR the memory for clients is exhausted (--client-memory)";

fn start() -> (Served, Client, usize) {
    // With this threshold, glibc returns freed buffers to the kernel. Otherwise it keeps some.
    let server = Served::spawn(
        Command::new(KV)
            .args(["--listen", "127.0.0.1:0", "--maxmemory", "64m", "--client-memory", "32m"])
            .env("MALLOC_MMAP_THRESHOLD_", "131072"),
    );
    let mut client = server.client();
    let value = "x".repeat(1 << 20);
    assert_eq!(client.ask(&["set", "big", &value]), Reply::ok());
    for _ in 0..20 {
        assert!(matches!(client.ask(&["rpush", "list", &value]), Reply::Line(':', _)));
    }
    for i in 0..2000 {
        client.ask(&["set", &format!("{}{i}", "k".repeat(1000)), ""]);
    }
    let before = server.memory();
    (server, client, before)
}

fn assert_bounded(server: &Served, before: usize, what: &str) {
    let now = server.memory();
    assert!(now < before + 2 * CLIENT_MEMORY + BESIDE, "{what}: {now} bytes after {before}");
}

#[test]
fn reply_beyond_the_memory_for_clients_is_an_error() {
    let (server, mut client, before) = start();
    let mget: Vec<_> = ["mget"].into_iter().chain(repeat_n("big", 1000)).collect();
    let docs: Vec<_> = ["command", "docs"].into_iter().chain(repeat_n("get", 400_000)).collect();
    let info: Vec<_> = ["command", "info"].into_iter().chain(repeat_n("get", 400_000)).collect();
    for (what, command) in [("mget", mget), ("docs", docs), ("info", info)] {
        // A reply of up to 1 GB
        assert_eq!(client.ask(&command), Reply::error(EXCEEDED), "{what}");
        assert_bounded(&server, before, what);
        assert_eq!(client.ask(&["strlen", "big"]), Reply::integer(1 << 20));
    }
    // What fits is returned.
    let some: Vec<_> = ["mget"].into_iter().chain(["big"; 15]).collect();
    assert_eq!(client.ask(&some).members().len(), 15);
    // A command that also removes its reply changes nothing if it fails.
    for _ in 0..10 {
        client.ask(&["rpush", "list", &"x".repeat(1 << 20)]);
    }
    assert_eq!(client.ask(&["llen", "list"]), Reply::integer(30));
    assert_eq!(client.ask(&["lrange", "list", "0", "-1"]), Reply::error(EXCEEDED));
    assert_eq!(client.ask(&["lpop", "list", "30"]), Reply::error(EXCEEDED));
    assert_eq!(client.ask(&["llen", "list"]), Reply::integer(30));
    assert_eq!(client.ask(&["lpop", "list", "10"]).members().len(), 10);
    assert_bounded(&server, before + (10 << 20), "lists");
}

#[test]
fn long_names_of_clients_are_refused() {
    let (server, mut client, before) = start();
    // The memory of a request is released after its reply was sent, so two of them must fit.
    let name = "n".repeat(5 << 20);
    for (command, what) in [
        (&["client", "setname", &name][..], "Client names"),
        (&["client", "setinfo", "lib-name", &name], "lib-name"),
        (&["client", "setinfo", "lib-ver", &name], "lib-ver"),
        (&["hello", "2", "setname", &name], "Client names"),
    ] {
        let error = format!("ERR {what} cannot be longer than 256 bytes.");
        assert_eq!(client.ask(command), Reply::error(&error));
    }
    // Text from the client is shortened in errors.
    let Reply::Line('-', error) = client.ask(&["hello", "2", &name]) else { panic!("no error") };
    assert!(error.len() < 1200, "{}", error.len());
    // 100 MB do not fit at all: the connection ends.
    let mut large = server.client();
    large.try_send(&encoded(&["client", "setname", &"n".repeat(100 << 20)]));
    while large.try_reply().is_some() {}
    assert_bounded(&server, before, "names");
    assert_eq!(client.ask(&["client", "setname", &"n".repeat(256)]), Reply::ok());
}

#[test]
fn many_unfinished_requests_are_bounded_together() {
    let (server, mut client, before) = start();
    let mut waiting = Vec::new();
    let piece = vec![b'x'; 6 << 20];
    for _ in 0..40 {
        let mut hostile = server.client();
        hostile.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000000\r\n");
        hostile.try_send(&piece);
        // Others go on.
        assert_eq!(client.ask(&["strlen", "big"]), Reply::integer(1 << 20));
        assert_eq!(client.ask(&["set", "small", "x"]), Reply::ok());
        waiting.push(hostile);
    }
    assert_bounded(&server, before, "requests");
    // Many short arguments take more memory than their bytes.
    let mut hostile = server.client();
    hostile.send(b"*1048576\r\n$4\r\nMGET\r\n");
    hostile.try_send(&b"$1\r\na\r\n".repeat(1_000_000));
    assert_eq!(client.ask(&["get", "small"]), Reply::bulk("x"));
    assert_bounded(&server, before, "arguments");
    drop(waiting);
    let ten: Vec<_> = ["mget"].into_iter().chain(["big"; 10]).collect();
    until("a long reply fits", || matches!(client.ask(&ten), Reply::Many(..)));
}

#[test]
fn subscriptions_and_unread_messages_are_bounded_together() {
    let (server, mut client, before) = start();
    let mut subscribers = Vec::new();
    for _ in 0..20 {
        let mut hostile = server.client();
        hostile.give(&["subscribe", "news"]);
        subscribers.push(hostile);
    }
    let message = "m".repeat(1 << 20);
    for _ in 0..40 {
        client.ask(&["publish", "news", &message]);
    }
    assert_bounded(&server, before, "messages");
    let mut hostile = server.client();
    for i in 0..200 {
        let names: Vec<_> = (0..1000).map(|j| format!("{}{i}-{j}", "c".repeat(200))).collect();
        let command: Vec<_> =
            ["subscribe"].into_iter().chain(names.iter().map(String::as_str)).collect();
        if !hostile.try_send(&encoded(&command)) {
            break;
        }
    }
    assert_eq!(client.ask(&["strlen", "big"]), Reply::integer(1 << 20));
    assert_bounded(&server, before, "subscriptions");
}

#[test]
fn item_that_does_not_fit_stays_in_the_list() {
    // How much of the memory a request holds while it arrives depends on the growth of its buffer.
    // So the rest is varied until the request fits and its delivery does not.
    let stayed = (1..=14).any(item_stays_beside);
    assert!(stayed, "the delivery was never refused");
}

/// Pushes an item of 14 MB for a waiting client, while another client holds `megabytes`. Returns
/// whether the item was accepted and could not be delivered.
fn item_stays_beside(megabytes: usize) -> bool {
    let (server, mut client, _) = start();
    let mut waits = server.client();
    waits.give(&["blpop", "queue", "0"]);
    until("it waits", || {
        let info = client.ask(&["info", "clients"]);
        String::from_utf8_lossy(info.bytes()).lines().any(|line| line == "blocked_clients:1")
    });
    // APPEND makes values longer than one request, LPUSH does not: two clients hold the memory.
    let mut holds = server.client();
    holds.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000000\r\n");
    // Either of the two may be disconnected, also before it has sent everything.
    holds.try_send(&vec![b'x'; megabytes << 20]);
    let mut pushes = server.client();
    pushes.try_send(&encoded(&["rpush", "queue", &"x".repeat(14 << 20)]));
    if pushes.try_reply() != Some(Reply::integer(1)) {
        return false;
    }
    let delivered = matches!(waits.reply(), Reply::Many(..));
    let left = client.ask(&["llen", "queue"]);
    assert_eq!(left, Reply::integer(i64::from(!delivered)), "the item is in one place");
    !delivered
}

#[test]
fn keys_with_a_long_pattern_lets_others_go_on() {
    let (server, mut client, before) = start();
    let text = "a".repeat(1 << 20);
    client.ask(&["set", &text, "x"]);
    // 10^11 steps: the pattern is matched against each position of the key.
    let pattern = format!("*{}b", "a?".repeat(1 << 18));
    for command in [&["keys", &pattern][..], &["scan", "0", "match", &pattern, "count", "100000"]] {
        let mut hostile = server.client();
        let Reply::Line(':', id) = hostile.ask(&["client", "id"]) else { panic!("no number") };
        hostile.give(command);
        let shown = format!("cmd={}", command[0]);
        until("it runs", || {
            let list = client.ask(&["client", "list"]);
            String::from_utf8_lossy(list.bytes()).contains(&shown)
        });
        for i in 0..200 {
            assert_eq!(client.ask(&["set", &format!("other:{i}"), "x"]), Reply::ok());
            assert_eq!(client.ask(&["get", &format!("other:{i}")]), Reply::bulk("x"));
        }
        // It still runs, and ends when it is killed.
        assert_eq!(client.ask(&["client", "kill", "id", &id]), Reply::integer(1));
        hostile.expect_end();
    }
    assert_bounded(&server, before, "keys");
}

#[test]
fn one_large_write_does_not_exceed_maxmemory() {
    let server = Served::start(&["--maxmemory", "8m", "--client-memory", "64m"]);
    let mut client = server.client();
    let oom = Reply::error("OOM command not allowed when used memory > 'maxmemory'.");
    assert_eq!(client.ask(&["set", "a", &"x".repeat(9 << 20)]), oom);
    assert_eq!(client.ask(&["set", "a", &"x".repeat(4 << 20)]), Reply::ok());
    assert_eq!(client.ask(&["append", "a", &"x".repeat(5 << 20)]), oom);
    // Empty items take 16 bytes each, and their table doubles.
    let push: Vec<_> = ["rpush", "list"].into_iter().chain(repeat_n("", 50_000)).collect();
    let pushed = (0..20).take_while(|_| client.ask(&push) != oom).count();
    assert!(pushed < 6, "{pushed}");
    assert_eq!(client.ask(&["set", "small", "x"]), Reply::ok());
}

/// They are copied after the locks have been released.
#[test]
fn replies_with_large_values_are_whole_and_of_one_moment() {
    let server = Served::start(&[]);
    let mut client = server.client();
    let large = |c: &str, size: usize| c.repeat(size);
    let (first, second) = (large("a", 200_000), large("b", 64 << 10));
    client.ask(&["set", "first", &first]);
    client.ask(&["set", "second", &second]);
    client.ask(&["set", "small", "x"]);
    client.ask(&["rpush", "list", "item"]);
    let names = ["small", "first", "none", "list", "second", "small", "first"];
    let all: Vec<_> = ["mget"].into_iter().chain(names).collect();
    let null = Reply::Bulk('$', None);
    let items = client.ask(&all);
    let expected = [
        Reply::bulk("x"),
        Reply::bulk(&first),
        null.clone(),
        null.clone(),
        Reply::bulk(&second),
        Reply::bulk("x"),
        Reply::bulk(&first),
    ];
    assert!(items.members() == expected, "MGET");
    // Behind each other, before the first is read.
    for name in ["first", "small", "none", "second"] {
        client.give(&["get", name]);
    }
    assert!(client.reply() == Reply::bulk(&first));
    assert_eq!(client.reply(), Reply::bulk("x"));
    assert_eq!(client.reply(), null);
    assert!(client.reply() == Reply::bulk(&second));
    // A text becomes large, and is changed while others read it.
    client.ask(&["set", "grows", &"c".repeat(60_000)]);
    let mut reader = server.client();
    for n in 1..=100 {
        reader.give(&["get", "grows"]);
        let length = 60_000 + 1000 * n;
        let grown = client.ask(&["append", "grows", &"d".repeat(1000)]);
        assert_eq!(grown, Reply::integer(length as i64));
        let text = reader.reply();
        let text = text.bytes();
        assert!([length, length - 1000].contains(&text.len()), "{} of {length}", text.len());
        assert!(text[..60_000].iter().all(|byte| *byte == b'c'));
        assert!(text[60_000..].iter().all(|byte| *byte == b'd'));
    }
    assert_eq!(client.ask(&["strlen", "grows"]), Reply::integer(160_000));
    let wrong = Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value");
    assert_eq!(client.ask(&["lpush", "first", "x"]), wrong);
    let old = client.ask(&["set", "first", "short", "get"]);
    assert!(old == Reply::bulk(&first));
    assert_eq!(client.ask(&["get", "first"]), Reply::bulk("short"));
}

/// Values of all sizes come and go. What the allocator cannot return is bounded: new data is
/// refused beyond twice `--maxmemory`, `--client-memory` and 160 MiB.
#[test]
fn resident_memory_is_bounded_under_a_mixed_load() {
    const DATA: usize = 100 << 20;
    const CLIENTS: usize = 16 << 20;
    let server = Served::start(&["--maxmemory", "100m", "--client-memory", "16m"]);
    let mut client = server.client();
    let mut random = kumihimo_tests::Random(1);
    let mut most = 0;
    let sizes = [(10, 400), (500, 3000), (20_000, 200_000), (1, 60), (4000, 70_000), (100, 1000)];
    for (round, (from, to)) in sizes.into_iter().enumerate() {
        let mut names = Vec::new();
        // 100 commands at once, until the limit is reached.
        loop {
            let first = names.len();
            for _ in 0..100 {
                let name = format!("{round}:{}", names.len());
                let size = random.below(to - from) + from;
                client.give(&["set", &name, &"x".repeat(size as usize)]);
                names.push(name);
            }
            let full = (first..names.len()).filter(|_| client.reply() != Reply::ok()).count();
            if full > 0 {
                break;
            }
        }
        most = most.max(server.memory());
        for some in names.chunks(100) {
            let gone = some.iter().filter(|_| !random.one_in(4)).map(String::as_str);
            let command: Vec<_> = ["del"].into_iter().chain(gone).collect();
            if command.len() > 1 {
                client.ask(&command);
            }
        }
    }
    println!("{:.2} of --maxmemory are resident at most", most as f64 / DATA as f64);
    assert!(most <= 2 * DATA + CLIENTS + (160 << 20), "{most}");
    let info = client.ask(&["info", "memory"]);
    let info = String::from_utf8_lossy(info.bytes()).into_owned();
    let shown = info.lines().find_map(|line| line.strip_prefix("used_memory_rss:"));
    let shown: usize = shown.expect("a line").parse().expect("a number");
    assert!(shown > DATA / 2 && shown <= most + CLIENTS, "{shown} of {most}");
}
