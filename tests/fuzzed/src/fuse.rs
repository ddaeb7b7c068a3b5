//! Requests of a FUSE mount, on an ext2 image in memory.

use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use fuse_abi::linux::{FUSE_POSIX_ACL, fuse_in_header, fuse_init_in, fuse_out_header};
use kumihimo_fuse::{Answer, Message, Reply, Service, Settings};
use kumihimo_proof::disks::Memory;
use kumihimo_proof::ext2::Heard;
use kumihimo_proof::hostile::expand;
use kumihimo_proof::{clock, ext2};
use zerocopy::{FromBytes, IntoBytes};

/// An image with files, directories and links, of 1 MB.
const IMAGE: &[u8] = include_bytes!("../../../servers/proof/corpus/seed-1");
const CACHE: usize = 256 << 10;
/// Most memory of a reply: the largest read, and what replies begin with.
const MOST_REPLY: usize = (1 << 20) + (16 << 10);
/// Opcodes, those that need a node more often.
const OPCODES: [u32; 40] = [
    1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24, 25, 26, 27, 28,
    29, 30, 32, 34, 35, 36, 38, 42, 43, 44, 45, 46, 50, 4096,
];
const NAMES: [&[u8]; 12] = [
    b"one\0",
    b"many\0",
    b"sparse\0",
    b"new\0",
    b"two\0",
    b"direct\0",
    b"short\0",
    b"..\0",
    b"user.x\0",
    b"system.posix_acl_access\0",
    b"lost+found\0",
    b"\0",
];

/// A part of a request's arguments.
#[derive(Arbitrary, Debug)]
enum Part {
    Byte(u8),
    Word(u32),
    Long(u64),
    Zeros(u8),
    Name(u8),
    /// A node, or the number of an open file, from an earlier reply.
    Known(u8),
    Bytes(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
struct Asked {
    opcode: u8,
    node: u8,
    parts: Vec<Part>,
    /// Added to the length in the header.
    longer: Option<i8>,
}

/// Byte 0: settings, and whether the mount is negotiated first; the rest: requests.
pub(crate) fn requests(data: &[u8]) {
    let [how, data @ ..] = data else { return };
    clock::reset();
    let disk = Memory::new(expand(IMAGE));
    let heard = Heard::default();
    let store = ext2::open(disk.clone(), &heard, CACHE).expect("a good image");
    let settings = Settings {
        writeback: how & 1 != 0,
        readdirplus: how & 2 != 0,
        keep_cache: how & 4 != 0,
        direct: how & 8 != 0,
        ..Settings::default()
    };
    let service = Service::new(Arc::new(store), settings);
    let mut reply = Reply::default();
    if how & 16 == 0 {
        let init = fuse_init_in {
            major: 7,
            minor: 38,
            flags: FUSE_POSIX_ACL | u32::from(*how) << 24,
            ..Default::default()
        };
        let header = fuse_in_header { len: 40 + 64, opcode: 26, unique: 1, ..Default::default() };
        let message = [header.as_bytes(), init.as_bytes()].concat();
        ask(&service, &message, &mut reply);
    }
    let mut known = vec![1];
    let mut input = Unstructured::new(data);
    while !input.is_empty()
        && let Ok(asked) = input.arbitrary::<Asked>()
    {
        let message = asked.message(&known);
        ask(&service, &message, &mut reply);
        if let Some(first) = reply.sent().get(16..24) {
            known.push(u64::from_le_bytes(first.try_into().expect("eight bytes")));
        }
    }
    ask(&service, data, &mut reply);
    assert_eq!(disk.beyond(), 0, "{:?}", heard.all());
}

impl Asked {
    fn message(&self, known: &[u64]) -> Vec<u8> {
        let from = |index: u8| known[usize::from(index) % known.len()];
        let mut arguments = Vec::new();
        for part in &self.parts {
            match part {
                Part::Byte(byte) => arguments.push(*byte),
                Part::Word(word) => arguments.extend(word.to_le_bytes()),
                Part::Long(long) => arguments.extend(long.to_le_bytes()),
                Part::Zeros(count) => arguments.resize(arguments.len() + usize::from(*count), 0),
                Part::Name(name) => {
                    arguments.extend(NAMES[usize::from(*name) % NAMES.len()]);
                }
                Part::Known(index) => arguments.extend(from(*index).to_le_bytes()),
                Part::Bytes(bytes) => arguments.extend(bytes),
            }
        }
        let len = u32::try_from(40 + arguments.len()).expect("short");
        let len = len.wrapping_add_signed(self.longer.unwrap_or(0).into());
        let opcode = OPCODES[usize::from(self.opcode) % OPCODES.len()];
        let nodeid = from(self.node);
        let header = fuse_in_header { len, opcode, unique: 7, nodeid, ..Default::default() };
        [header.as_bytes(), &arguments].concat()
    }
}

/// Sends one request; checks the form of the reply.
fn ask(service: &Service, message: &[u8], reply: &mut Reply) {
    if service.handle(Message::whole(message), reply) == Answer::None {
        return;
    }
    let sent = reply.sent();
    let (out, rest) = fuse_out_header::read_from_prefix(sent).expect("a header");
    let header = fuse_in_header::read_from_prefix(message).expect("a header was sent").0;
    assert_eq!((out.len as usize, out.unique), (sent.len(), header.unique));
    assert!((-4095..=0).contains(&out.error) && (out.error == 0 || rest.is_empty()));
    let memory = reply.footprint();
    assert!(memory <= MOST_REPLY, "{memory} bytes for a request of {} bytes", message.len());
}
