//! Sends the same random commands to Kumihimo's server and to Redis, and compares the replies.

mod beside;

use beside::{Client, Folder, Reply, Served};
use kumihimo_tests::{Random, rounds};

/// A random argument: ordinary values and edge cases.
fn value(random: &mut Random) -> Vec<u8> {
    let odd: [&[u8]; 14] = [
        b"",
        b"0",
        b"1",
        b"-1",
        b"007",
        b"+5",
        b" 7",
        b"9223372036854775807",
        b"-9223372036854775808",
        b"1.5",
        b"abc",
        b"a\r\nb",
        b"\x00\xff",
        b"nan",
    ];
    match random.below(3) {
        0 => odd[random.below(odd.len() as u64) as usize].to_vec(),
        1 => random.below(1000).to_string().into_bytes(),
        _ => vec![b'a' + random.below(26) as u8; random.below(200) as usize],
    }
}

fn small(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => value(random),
        _ => (random.below(12) as i64 - 6).to_string().into_bytes(),
    }
}

fn key(random: &mut Random) -> Vec<u8> {
    format!("key:{}", random.below(12)).into_bytes()
}

/// A time argument that is far in the future or invalid, so that no key expires during the test.
fn seconds(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => value(random).into_iter().filter(|b| !(b'1'..=b'9').contains(b)).collect(),
        1 => b"9223372036854775".to_vec(),
        2 => b"-5".to_vec(),
        _ => (100_000 * (1 + random.below(5))).to_string().into_bytes(),
    }
}

fn word(random: &mut Random, words: &[&str]) -> Vec<u8> {
    let word = words[random.below(words.len() as u64) as usize];
    // Redis ignores the case of keywords.
    if random.one_in(4) { word.to_ascii_uppercase().into_bytes() } else { word.as_bytes().to_vec() }
}

fn pattern(random: &mut Random) -> Vec<u8> {
    word(
        random,
        &["*", "key:?", "key:[0-5]", "key:[^0-5]", "k*1", "\\key:1", "nothing", "key:[", "*:1*"],
    )
}

/// A random command.
fn command(random: &mut Random) -> Vec<Vec<u8>> {
    let mut command: Vec<Vec<u8>> = Vec::new();
    let names = [
        "get",
        "set",
        "setnx",
        "del",
        "exists",
        "incr",
        "decr",
        "incrby",
        "decrby",
        "append",
        "strlen",
        "mget",
        "mset",
        "expire",
        "pexpire",
        "ttl",
        "persist",
        "type",
        "keys",
        "dbsize",
        "flushall",
        "lpush",
        "rpush",
        "lpop",
        "rpop",
        "llen",
        "lrange",
        "blpop",
        "brpop",
        "ping",
        "echo",
        "select",
        "publish",
        "nosuch",
        "expireat",
        "pexpireat",
        "scan",
        "config",
        "client",
    ];
    let name = names[random.below(names.len() as u64) as usize];
    command.push(word(random, &[name]));
    let add = |command: &mut Vec<Vec<u8>>, words: Vec<Vec<u8>>| command.extend(words);
    match name {
        "get" | "incr" | "decr" | "strlen" | "ttl" | "persist" | "type" | "llen" => {
            add(&mut command, vec![key(random)])
        }
        "setnx" | "append" | "publish" => add(&mut command, vec![key(random), value(random)]),
        "set" => {
            add(&mut command, vec![key(random), value(random)]);
            for _ in 0..random.below(4) {
                match random.below(4) {
                    0 => {
                        let unit = word(random, &["ex", "px"]);
                        let time = seconds(random);
                        add(&mut command, vec![unit, time]);
                    }
                    _ => command.push(word(random, &["nx", "xx", "get", "keepttl", "nonsense"])),
                }
            }
        }
        "del" | "exists" | "mget" => {
            (0..1 + random.below(4)).for_each(|_| command.push(key(random)))
        }
        "incrby" | "decrby" => add(&mut command, vec![key(random), value(random)]),
        "mset" => {
            (0..1 + random.below(4)).for_each(|_| command.extend([key(random), value(random)]))
        }
        "expire" | "pexpire" => {
            let time = if name == "expire" {
                seconds(random)
            } else {
                [seconds(random), b"000".to_vec()].concat()
            };
            add(&mut command, vec![key(random), time]);
            (0..random.below(3))
                .for_each(|_| command.push(word(random, &["nx", "xx", "gt", "lt", "odd"])));
        }
        "expireat" | "pexpireat" => {
            let zeros = if name == "expireat" { "" } else { "000" };
            // Times far in the past and far in the future.
            let time = [format!("-5{zeros}"), format!("1{zeros}"), format!("33333333333{zeros}")];
            add(
                &mut command,
                vec![key(random), time[random.below(3) as usize].clone().into_bytes()],
            );
        }
        "keys" => command.push(pattern(random)),
        "lpush" | "rpush" => {
            command.push(key(random));
            (0..1 + random.below(5)).for_each(|_| command.push(value(random)));
        }
        "lpop" | "rpop" => {
            command.push(key(random));
            if random.one_in(2) {
                command.push(small(random));
            }
        }
        "lrange" => add(&mut command, vec![key(random), small(random), small(random)]),
        "blpop" | "brpop" => {
            (0..1 + random.below(3)).for_each(|_| command.push(key(random)));
            command.push(word(random, &["0.001", "0.002", "0.001", "-1", "x"]));
        }
        "ping" => (0..random.below(3)).for_each(|_| command.push(value(random))),
        "echo" => command.push(value(random)),
        // Select the same database most of the time, so that commands find keys of earlier
        // commands.
        "select" => command.push(word(
            random,
            &["0", "0", "0", "0", "0", "1", "15", "16", "-1", "x", "99999999999"],
        )),
        "scan" => {
            let wrong = [
                vec![b"x".to_vec()],
                vec![b"0".to_vec(), b"count".to_vec()],
                vec![b"0".to_vec(), b"count".to_vec(), b"0".to_vec()],
            ];
            add(&mut command, wrong[random.below(3) as usize].clone());
        }
        "config" => add(
            &mut command,
            vec![
                word(random, &["get", "nosuch"]),
                word(random, &["databases", "maxmemory", "save"]),
            ],
        ),
        "client" => match random.below(4) {
            0 => command.push(b"getname".to_vec()),
            1 => add(&mut command, vec![b"setname".to_vec(), value(random)]),
            2 => command.push(b"nosuch".to_vec()),
            _ => {}
        },
        _ => {}
    }
    if ["blpop", "brpop", "scan"].contains(&name) {
        // A mutated timeout would make the test wait, and the order of a scan's keys is
        // unspecified.
        return command;
    }
    // Occasionally one word too few or too many.
    if random.one_in(20) {
        command.push(value(random));
    }
    if random.one_in(20) && command.len() > 1 {
        command.pop();
    }
    // A pattern would match settings that only Redis has.
    if command.concat().contains(&b'*') && name == "config" {
        command.truncate(1);
    }
    command
}

/// Returns whether two replies to `command` are equivalent.
fn same(command: &[Vec<u8>], ours: Reply, theirs: Reply) -> bool {
    let name = command[0].to_ascii_lowercase();
    match (name.as_slice(), &ours, &theirs) {
        (b"keys" | b"config", _, _) => ours.sorted() == theirs.sorted(),
        // Remaining times may differ by the time between the two requests.
        (b"ttl", Reply::Line(':', a), Reply::Line(':', b)) => {
            let (a, b): (i64, i64) = (a.parse().expect("a number"), b.parse().expect("a number"));
            a == b || a > 0 && b > 0 && (a - b).abs() <= 1
        }
        // Kumihimo's server replaces invalid UTF-8 in errors, Redis does not.
        (_, Reply::Line('-', a), Reply::Line('-', b)) => {
            a == b || command.iter().any(|word| !word.is_ascii() || word.contains(&0))
        }
        _ => ours == theirs,
    }
}

fn shown(command: &[Vec<u8>]) -> String {
    command.iter().map(|word| format!("{:?} ", String::from_utf8_lossy(word))).collect()
}

/// All contents of the selected database in a deterministic order.
fn contents(client: &mut Client) -> Vec<Reply> {
    let mut all = Vec::new();
    let keys = client.ask(&["keys", "*"]).sorted();
    for key in keys.members() {
        all.push(key.clone());
        let kind = client.ask(&[b"type".as_slice(), key.bytes()]);
        let read = if kind == Reply::Line('+', "list".to_owned()) {
            client.ask(&[b"lrange".as_slice(), key.bytes(), b"0", b"-1"])
        } else {
            client.ask(&[b"get".as_slice(), key.bytes()])
        };
        all.push(read);
    }
    all
}

fn compare(test: &str, protocol: &str) {
    let folder = Folder::new(test);
    let Some(redis) = Served::redis(test, &folder) else { return };
    let ours = Served::start(&[]);
    for mut round in rounds(test) {
        let (mut ours, mut theirs) = (ours.client(), redis.client());
        for client in [&mut ours, &mut theirs] {
            client.ask(&["flushall"]);
            client.ask(&["hello", protocol]);
        }
        for _ in 0..40 {
            // Pipelined commands: replies must arrive in the order of the requests.
            let batch: Vec<_> =
                (0..1 + round.random.below(30)).map(|_| command(&mut round.random)).collect();
            let bytes: Vec<u8> =
                batch.iter().flat_map(|command| beside::encoded(command)).collect();
            ours.send(&bytes);
            theirs.send(&bytes);
            for command in &batch {
                let (ours, theirs) = (ours.reply(), theirs.reply());
                let text = format!("{}: ours {ours:?}, Redis's {theirs:?}", shown(command));
                assert!(same(command, ours, theirs), "{text}");
            }
        }
        assert_eq!(contents(&mut ours), contents(&mut theirs));
    }
}

#[test]
fn random_commands_get_rediss_replies_in_resp2() {
    compare("random_commands_get_rediss_replies_in_resp2", "2");
}

#[test]
fn random_commands_get_rediss_replies_in_resp3() {
    compare("random_commands_get_rediss_replies_in_resp3", "3");
}

#[test]
fn malformed_input_is_handled_as_in_redis() {
    let test = "malformed_input_is_handled_as_in_redis";
    let folder = Folder::new(test);
    let Some(redis) = Served::redis(test, &folder) else { return };
    let ours = Served::start(&[]);
    for mut round in rounds(test) {
        let random = &mut round.random;
        let mut bytes: Vec<u8> =
            (0..1 + random.below(4)).flat_map(|_| beside::encoded(&command(random))).collect();
        let holds =
            |word: &[u8]| bytes.windows(word.len()).any(|bytes| bytes.eq_ignore_ascii_case(word));
        // A mutation would produce patterns for settings that only Redis has, and timeouts to wait
        // for.
        if holds(b"config") || holds(b"blpop") || holds(b"brpop") || holds(b"scan") {
            continue;
        }
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] = b"*$:-0129\r\n\"' x\x00"[random.below(15) as usize],
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"*$:+1\r\n \""[random.below(9) as usize]),
            }
            if bytes.is_empty() {
                bytes.push(b'\n');
            }
        }
        // Every mutated input is terminated here: by an error, or by a command after which no reply
        // is pending.
        let said = [&ours, &redis].map(|server| {
            let mut client = server.client();
            client.ask(&["flushall"]);
            client.try_send(&bytes);
            client.try_send(b"\r\n*1\r\n$4\r\nQUIT\r\nQUIT\r\n");
            let end = b"\r\n".repeat(40_000);
            client.try_send(&end);
            client.half_close();
            let mut replies = Vec::new();
            while let Some(reply) = client.try_reply() {
                // Replies without a defined order, or about the connection itself.
                replies.push(match reply {
                    Reply::Many(..) => reply.sorted(),
                    Reply::Line('-', text) if text.contains("unknown command") => {
                        Reply::error("unknown command")
                    }
                    other => other,
                });
            }
            replies
        });
        let ttl = |reply: &Reply| !matches!(reply, Reply::Line(':', _));
        let [mut ours, mut theirs] =
            said.map(|replies| replies.into_iter().filter(ttl).collect::<Vec<_>>());
        // The mutation may have produced a command that only Redis supports.
        if let Some(at) = ours.iter().position(|reply| *reply == Reply::error("unknown command")) {
            ours.truncate(at);
            theirs.truncate(at);
        }
        assert_eq!(ours, theirs, "{:?}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn scan_returns_every_key_that_stays() {
    let server = Served::start(&[]);
    let mut client = server.client();
    let mut random = Random(7);
    for i in 0..500 {
        client.ask(&["set", &format!("stays:{i}"), "x"]);
    }
    let (mut cursor, mut seen, mut came) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let reply = client.ask(&["scan", &cursor, "match", "stays:*", "count", "7"]);
        seen.extend(reply.members()[1].members().iter().map(|key| key.bytes().to_vec()));
        cursor = String::from_utf8(reply.members()[0].bytes().to_vec()).expect("digits");
        if cursor == "0" {
            break;
        }
        // Add and remove other keys during the scan, so that the table grows.
        for _ in 0..random.below(40) {
            came += 1;
            client.ask(&["set", &format!("comes:{came}"), "x"]);
            client.ask(&["del", &format!("comes:{}", random.below(came + 1))]);
        }
    }
    seen.sort();
    let mut expected: Vec<_> = (0..500).map(|i| format!("stays:{i}").into_bytes()).collect();
    expected.sort();
    assert_eq!(seen, expected);
}
