use redis_protocol::resp2::types::OwnedFrame;
use redis_protocol::resp3::decode::complete;
use redis_protocol::resp3::types::OwnedFrame as Resp3;

use super::*;

fn written(version: Version, write: impl FnOnce(&mut Reply)) -> String {
    let mut reply = Reply { version, ..Reply::default() };
    write(&mut reply);
    String::from_utf8(reply.bytes.to_vec()).expect("text")
}

#[test]
fn each_version_has_its_encoding() {
    let all = |reply: &mut Reply| {
        reply.null();
        reply.null_array();
        reply.map(1);
        reply.push(2);
        reply.set(12);
        reply.verbatim("a");
    };
    assert_eq!(written(Version::Two, all), "$-1\r\n*-1\r\n*2\r\n*2\r\n*12\r\n$1\r\na\r\n");
    assert_eq!(written(Version::Three, all), "_\r\n_\r\n%1\r\n>2\r\n~12\r\n=5\r\ntxt:a\r\n");
}

/// Writes one reply of each kind.
fn everything(reply: &mut Reply) {
    reply.array(11);
    reply.ok();
    reply.simple("simple");
    reply.bulk(b"");
    reply.bulk(&[b'x'; 1000]);
    reply.integer(i64::MIN);
    reply.null();
    reply.error("an error");
    reply.bulk_or_null(None);
    reply.map(1);
    reply.simple("key");
    reply.count(2);
    reply.set(1);
    reply.bulk(b"member");
    reply.verbatim("text");
}

#[test]
fn codec_decodes_every_reply() {
    let two = written(Version::Two, everything);
    let (frame, length) =
        redis_protocol::resp2::decode::decode(two.as_bytes()).expect("RESP2").expect("whole");
    assert_eq!(length, two.len());
    assert!(
        matches!(frame, OwnedFrame::Array(members) if members.len() == 11 && members[5] == OwnedFrame::Null)
    );
    let three = written(Version::Three, everything);
    let (frame, length) = complete::decode(three.as_bytes()).expect("RESP3").expect("whole");
    assert_eq!(length, three.len());
    let Resp3::Array { data, .. } = frame else { panic!("{frame:?}") };
    assert!(matches!(&data[8], Resp3::Map { data, .. } if data.len() == 1));
    assert!(matches!(&data[9], Resp3::Set { data, .. } if data.len() == 1));
    assert!(matches!(&data[10], Resp3::VerbatimString { data, .. } if data == b"text"));
    let push = |reply: &mut Reply| {
        reply.push(2);
        reply.bulk(b"message");
        reply.null_array();
    };
    let three = written(Version::Three, push);
    let (frame, _) = complete::decode(three.as_bytes()).expect("RESP3").expect("whole");
    assert!(matches!(frame, Resp3::Push { data, .. } if data.len() == 2));
}

#[test]
fn error_is_one_line() {
    assert_eq!(written(Version::Two, |reply| reply.error("no\r\n+OK")), "-ERR no  +OK\r\n");
    assert_eq!(
        written(Version::Two, |reply| reply.error("WRONGTYPE it is")),
        "-WRONGTYPE it is\r\n"
    );
}
