use super::*;

fn request(length: u32, arguments: &[u8]) -> Vec<u8> {
    let header =
        fuse_in_header { len: length, opcode: 1, unique: 7, nodeid: 1, ..Default::default() };
    [header.as_bytes(), arguments].concat()
}

#[test]
fn short_message_is_not_a_request() {
    let whole = request(43, b"ab\0");
    assert!(Message::whole(&whole).split().is_some());
    assert!(Message::whole(&whole[..42]).split().is_none());
    assert!(Message::whole(&whole[..10]).split().is_none());
    assert!(Message::whole(&[]).split().is_none());
    let (_, mut arguments) = Message::whole(&whole).split().expect("whole");
    assert_eq!(arguments.name(), Ok(&b"ab"[..]));
    assert_eq!(arguments.name(), Err(Errno::INVAL));
    assert_eq!(arguments.take::<u64>(), Err(Errno::INVAL));
    assert_eq!(arguments.bytes(1), Err(Errno::INVAL));
}

#[test]
fn split_arguments_parse_like_contiguous_ones() {
    let whole = request(56, b"\x07\0\0\0\0\0\0\0name\0da");
    let whole = &[&whole[..], b"t"].concat()[..56];
    let pieces = Request { header: &whole[..40], first: &whole[40..48], rest: &whole[48..] };
    for message in [Message::whole(whole), Message::parts(&pieces)] {
        let (header, mut arguments) = message.split().expect("whole");
        assert_eq!((header.unique, message.length()), (7, 56));
        assert_eq!(arguments.take::<u64>(), Ok(7));
        assert_eq!(arguments.name(), Ok(&b"name"[..]));
        assert_eq!(arguments.bytes(3), Ok(&b"dat"[..]));
        assert_eq!(arguments.bytes(1), Err(Errno::INVAL));
    }
}

#[test]
fn error_replaces_a_partial_reply() {
    let mut reply = Reply::default();
    reply.begin(8);
    reply.extend(b"half");
    reply.finish(9, Err(Errno::NOSPC));
    let (header, rest) = fuse_out_header::read_from_prefix(reply.message()).expect("a header");
    assert_eq!((header.len, header.error, header.unique, rest.len()), (16, -28, 9, 0));
    reply.begin(0);
    reply.extend(b"abc");
    reply.pad();
    reply.room(4).copy_from_slice(b"data");
    reply.keep(2);
    reply.finish(10, Ok(()));
    assert_eq!(&reply.message()[16..], b"abc\0\0\0\0\0da");
}
