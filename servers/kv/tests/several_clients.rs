//! Interaction between clients: messages, waiting for items, atomic changes of several keys, and
//! lists of clients.

mod beside;

use beside::{Client, Reply, Served, until};

fn line(client: &mut Client, section: &str, name: &str) -> String {
    let info = client.ask(&["info", section]);
    let text = String::from_utf8(info.bytes().to_vec()).expect("text");
    let start = format!("{name}:");
    text.lines().find_map(|line| line.strip_prefix(&start)).expect("the line is there").to_owned()
}

fn wait_for_blocked(client: &mut Client, count: usize) {
    until("all wait", || line(client, "clients", "blocked_clients") == count.to_string());
}

fn array(words: &[&str]) -> Reply {
    Reply::Many('*', Some(words.iter().map(|word| Reply::bulk(word)).collect()))
}

#[test]
fn first_waiter_is_served_first() {
    let server = Served::start(&[]);
    let mut other = server.client();
    let mut waiting = Vec::new();
    for i in 0..8 {
        let mut client = server.client();
        client.give(&[if i % 2 == 0 { "blpop" } else { "brpop" }, "elsewhere", "queue", "0"]);
        waiting.push(client);
        wait_for_blocked(&mut other, i + 1);
    }
    // More items than waiters in one push: each waiter takes an item from its end of the whole
    // list.
    assert_eq!(other.ask(&["rpush", "queue", "0", "1", "2", "3"]), Reply::integer(4));
    for (client, item) in waiting.iter_mut().zip(["0", "3", "1", "2"]) {
        assert_eq!(client.reply(), array(&["queue", item]));
    }
    assert_eq!(other.ask(&["exists", "queue"]), Reply::integer(0));
    for (client, item) in waiting[4..].iter_mut().zip(["a", "b", "c", "d"]) {
        other.ask(&["lpush", "elsewhere", item]);
        assert_eq!(client.reply(), array(&["elsewhere", item]));
    }
    wait_for_blocked(&mut other, 0);
}

#[test]
fn disconnected_waiter_gets_no_item() {
    let server = Served::start(&[]);
    let mut other = server.client();
    for _ in 0..20 {
        let mut gone = server.client();
        gone.give(&["blpop", "queue", "0"]);
        wait_for_blocked(&mut other, 1);
        drop(gone);
        wait_for_blocked(&mut other, 0);
        assert_eq!(other.ask(&["lpush", "queue", "item"]), Reply::integer(1));
        assert_eq!(other.ask(&["lpop", "queue"]), Reply::bulk("item"));
    }
}

#[test]
fn requests_behind_a_blocking_one_are_answered_later() {
    let server = Served::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.send(b"*2\r\n$4\r\nECHO\r\n$1\r\na\r\n*3\r\n$5\r\nBLPOP\r\n$5\r\nqueue\r\n$1\r\n0\r\n*2\r\n$4\r\nECHO\r\n$1\r\nb\r\n");
    assert_eq!(client.reply(), Reply::bulk("a"));
    wait_for_blocked(&mut other, 1);
    client.give(&["echo", "c"]);
    other.ask(&["rpush", "queue", "item"]);
    assert_eq!(client.reply(), array(&["queue", "item"]));
    assert_eq!([client.reply(), client.reply()], [Reply::bulk("b"), Reply::bulk("c")]);
    assert_eq!(client.ask(&["blpop", "queue", "0.01"]), Reply::Many('*', None));
}

#[test]
fn messages_reach_all_subscribers() {
    let server = Served::start(&[]);
    let (mut two, mut three, mut other) = (server.client(), server.client(), server.client());
    three.ask(&["hello", "3"]);
    for (client, kind) in [(&mut two, '*'), (&mut three, '>')] {
        client.give(&["subscribe", "news", "weather"]);
        for (name, count) in [("news", 1), ("weather", 2)] {
            let told = vec![Reply::bulk("subscribe"), Reply::bulk(name), Reply::integer(count)];
            assert_eq!(client.reply(), Reply::Many(kind, Some(told)));
        }
        client.give(&["psubscribe", "n*"]);
        client.reply();
    }
    assert_eq!(other.ask(&["publish", "news", "hello"]), Reply::integer(4));
    assert_eq!(other.ask(&["publish", "nothing", "hello"]), Reply::integer(2));
    assert_eq!(other.ask(&["publish", "elsewhere", "hello"]), Reply::integer(0));
    for (client, kind) in [(&mut two, '*'), (&mut three, '>')] {
        for words in [
            &["message", "news", "hello"][..],
            &["pmessage", "n*", "news", "hello"],
            &["pmessage", "n*", "nothing", "hello"],
        ] {
            let words = words.iter().map(|word| Reply::bulk(word)).collect();
            assert_eq!(client.reply(), Reply::Many(kind, Some(words)));
        }
    }
    // A RESP2 client with subscriptions may use subscription commands only. In RESP3 all commands
    // are allowed.
    let refused = "ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
    assert_eq!(two.ask(&["get", "a"]), Reply::error(refused));
    assert_eq!(two.ask(&["ping"]), array(&["pong", ""]));
    assert_eq!(three.ask(&["get", "a"]), Reply::Line('_', String::new()));
    // A subscriber's own message arrives before the reply to its `PUBLISH`.
    three.give(&["publish", "weather", "sun"]);
    let words = ["message", "weather", "sun"].map(Reply::bulk);
    assert_eq!(three.reply(), Reply::Many('>', Some(words.to_vec())));
    assert_eq!(three.reply(), Reply::integer(2));
    two.reply();
    two.give(&["unsubscribe"]);
    let left: Vec<_> = (0..2).map(|_| two.reply().members()[2].clone()).collect();
    assert_eq!(left, [Reply::integer(2), Reply::integer(1)]);
    two.give(&["punsubscribe", "n*"]);
    assert_eq!(two.reply().members()[2], Reply::integer(0));
    assert_eq!(two.ask(&["get", "a"]), Reply::Bulk('$', None));
    drop(three);
    until("it has left", || other.ask(&["publish", "news", "x"]) == Reply::integer(0));
}

#[test]
fn multi_key_commands_are_atomic() {
    let server = Served::start(&[]);
    let names: Vec<String> = (0..20).map(|i| format!("k{i}")).collect();
    std::thread::scope(|scope| {
        let (server, names) = (&server, &names);
        for writer in 0..3 {
            scope.spawn(move || {
                let mut client = server.client();
                for round in 0..200 {
                    let value = format!("{writer}-{round}");
                    let mut command = vec!["mset"];
                    names.iter().for_each(|name| command.extend([name.as_str(), &value]));
                    assert_eq!(client.ask(&command), Reply::ok());
                }
            });
        }
        scope.spawn(move || {
            let mut client = server.client();
            for _ in 0..400 {
                let command: Vec<_> =
                    ["mget"].into_iter().chain(names.iter().rev().map(String::as_str)).collect();
                let values = client.ask(&command);
                assert!(values.members().windows(2).all(|pair| pair[0] == pair[1]), "{values:?}");
            }
        });
    });
}

#[test]
fn clients_are_listed_and_killed() {
    let server = Served::start(&[]);
    let (mut client, mut other, mut waits) = (server.client(), server.client(), server.client());
    assert_eq!(other.ask(&["client", "setname", "victim"]), Reply::ok());
    let Reply::Line(':', id) = other.ask(&["client", "id"]) else { panic!("no number") };
    waits.give(&["blpop", "queue", "0"]);
    wait_for_blocked(&mut client, 1);
    let list = client.ask(&["client", "list"]);
    let list = String::from_utf8(list.bytes().to_vec()).expect("text");
    assert_eq!(list.lines().count(), 3, "{list}");
    let victim = list.lines().find(|line| line.contains("name=victim")).expect("it is there");
    assert!(victim.contains(&format!("id={id} ")) && victim.contains("cmd=client"), "{victim}");
    assert!(list.lines().any(|line| line.contains("flags=b")), "{list}");
    assert_eq!(client.ask(&["client", "kill", "id", &id]), Reply::integer(1));
    other.expect_end();
    // Kills all clients except the caller, including one that waits in a blocking command.
    assert_eq!(client.ask(&["client", "kill", "type", "normal"]), Reply::integer(1));
    waits.expect_end();
    wait_for_blocked(&mut client, 0);
    assert_eq!(
        client.ask(&["client", "kill", "type", "normal", "skipme", "no"]),
        Reply::integer(1)
    );
    client.expect_end();
}

#[test]
fn keys_expire_without_being_read() {
    let server = Served::start(&[]);
    let mut client = server.client();
    client.ask(&["set", "looked-at", "x", "px", "30"]);
    client.ask(&["rpush", "not-looked-at", "x"]);
    client.ask(&["pexpire", "not-looked-at", "30"]);
    client.ask(&["set", "stays", "x", "px", "1000000"]);
    until("it has expired", || client.ask(&["get", "looked-at"]) == Reply::Bulk('$', None));
    assert_eq!(client.ask(&["ttl", "looked-at"]), Reply::integer(-2));
    until("the other one, too", || client.ask(&["dbsize"]) == Reply::integer(1));
    assert_eq!(line(&mut client, "stats", "expired_keys"), "2");
    client.ask(&["getset", "no", "such"]);
    assert_eq!(client.ask(&["persist", "stays"]), Reply::integer(1));
    assert_eq!(client.ask(&["ttl", "stays"]), Reply::integer(-1));
}
