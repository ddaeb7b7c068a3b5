//! The key-value server: its parser of requests, whole connections, and its append log.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

use kumihimo_kv::fuzzing::{Parsed, Served, parse};
use kumihimo_kv::{Password, Settings};
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;

use crate::memory::file;

/// Longest input. Below the limits of a line, which depend on how the bytes arrive.
const LONGEST: usize = 32 << 10;

/// Bytes of requests, and how they arrive: the commands are independent of it. Byte 0: whether the
/// client is authenticated; byte 1: the size of a read.
pub(crate) fn requests(data: &[u8]) {
    let [how, piece, input @ ..] = data else { return };
    if input.len() > LONGEST {
        return;
    }
    let unauthenticated = how & 1 != 0;
    let (whole, most) = parse(input, usize::MAX, unauthenticated);
    let (parts, _) = parse(input, usize::from(*piece) + 1, unauthenticated);
    assert_eq!(whole, parts, "in reads of {} bytes", usize::from(*piece) + 1);
    assert!(most <= (64 << 10) + 16 * input.len(), "{most} bytes for {}", input.len());
    let Parsed { commands, .. } = whole;
    let mut rest = input;
    for (inline, words) in &commands {
        assert!(!words.is_empty(), "a command without a name");
        // In its canonical form, it is the same command.
        let encoded = if *inline { quoted(words) } else { encoded(words) };
        let (again, _) = parse(&encoded, usize::MAX, false);
        assert_eq!((&again.commands, again.unfinished), (&vec![(*inline, words.clone())], 0));
        if !*inline {
            assert_eq!(by_codec(&encoded).as_ref(), Some(&(words.clone(), encoded.len())));
        }
    }
    // As long as the codec understands the input, both find the same commands.
    for (_, words) in commands {
        let Some((theirs, length)) = by_codec(rest) else { break };
        assert_eq!(theirs, words);
        rest = &rest[length..];
    }
}

fn encoded(words: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend(word);
        out.extend(b"\r\n");
    }
    out
}

fn quoted(words: &[Vec<u8>]) -> Vec<u8> {
    let mut out = String::new();
    for word in words {
        let hex: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        out += &format!("\"{hex}\" ");
    }
    (out + "\r\n").into_bytes()
}

/// The first command, and its length, as the codec of another project decodes it.
fn by_codec(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let Ok(Some((OwnedFrame::Array(items), length))) = decode(bytes) else { return None };
    let words = items.into_iter().map(|item| match item {
        OwnedFrame::BulkString(word) => Some(word),
        _ => None,
    });
    let words: Option<Vec<_>> = words.collect();
    words.filter(|words| !words.is_empty()).map(|words| (words, length))
}

/// What a client sends until it closes its end, to a server with an append log. Byte 0: settings.
pub(crate) fn commands(data: &[u8]) {
    let [how, input @ ..] = data else { return };
    if input.len() > LONGEST {
        return;
    }
    let settings = Settings {
        max_memory: if how & 1 != 0 { 64 << 10 } else { 0 },
        client_memory: 1 << 20,
        password: if how & 2 != 0 { Password::new("secret") } else { None },
        ..Settings::default()
    };
    let served = Served::new(settings, true);
    let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
    theirs.write_all(input).expect("the socket's buffer has room");
    theirs.shutdown(Shutdown::Write).expect("it is open");
    let reader = thread::spawn(move || {
        let mut replies = Vec::new();
        // A connection that is dropped may be reset.
        let _ = theirs.read_to_end(&mut replies);
        replies
    });
    served.serve(ours);
    let replies = reader.join().expect("reading does not panic");
    check_replies(input, &replies);
    let (_, clients) = served.counted();
    assert_eq!(clients, 0, "memory of a client that has left is still counted");
    // The log reproduces the data.
    let replayed = Served::new(Settings::default(), false);
    let log = served.log();
    let result = replayed.replay(file(&log)).expect("a server replays its own log");
    assert_eq!((result.good, result.dropped), (log.len() as u64, 0));
    assert_eq!(replayed.data(), served.data(), "the log {}", log.escape_ascii());
}

/// All replies are whole, in the version of the protocol that every connection begins with.
fn check_replies(input: &[u8], replies: &[u8]) {
    let lower = input.to_ascii_lowercase();
    // `HELLO 3` changes the version, and `CLIENT` may end the connection inside a reply.
    if [&b"hello"[..], b"client"].iter().any(|word| lower.windows(word.len()).any(|w| w == *word)) {
        return;
    }
    let mut rest = replies;
    while !rest.is_empty() {
        match decode(rest) {
            Ok(Some((_, length))) => rest = &rest[length..],
            other => panic!("{other:?} at {}", rest.escape_ascii()),
        }
    }
}

/// The bytes of an append log.
pub(crate) fn log(data: &[u8]) {
    let server = || Served::new(Settings::default(), false);
    let first = server();
    let Ok(replayed) = first.replay(file(data)) else { return };
    assert_eq!(replayed.good + replayed.dropped, data.len() as u64);
    // What is left replays to the same data, and nothing is cut off any more.
    let good = &data[..usize::try_from(replayed.good).expect("below the input's length")];
    let second = server();
    let again = second.replay(file(good)).expect("an intact log");
    assert_eq!((again.commands, again.good, again.dropped), (replayed.commands, replayed.good, 0));
    assert_eq!(first.data(), second.data());
}
