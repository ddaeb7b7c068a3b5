//! Records between the two sides of a gate: handshake, errors, and packets over a link's socket.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arbitrary::{Arbitrary, Unstructured};
use kumihimo_gate::fuzzing::{self, Received};
use rustix::fs::{SealFlags, fcntl_add_seals};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

use crate::memory::file;

/// What is passed with a record.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    Nothing,
    /// Memory of this many bytes, sealed by this set of seals.
    Memory(u16, u8),
    /// Two of them.
    Two(u16),
    /// Something else.
    Null,
}

#[derive(Arbitrary, Debug)]
struct Packet {
    /// The form of its bytes.
    form: Form,
    passed: Passed,
}

#[derive(Arbitrary, Debug)]
enum Form {
    Bytes(Vec<u8>),
    Ring,
    Region(u64, u16),
    Forget(u64),
    Bye(u8, Vec<u8>),
    /// Longer than a record.
    Long(u16),
}

impl Form {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Form::Bytes(bytes) => bytes.clone(),
            Form::Ring => vec![0x10],
            Form::Region(id, length) => {
                [&[0x11][..], &id.to_le_bytes(), &u64::from(*length).to_le_bytes()].concat()
            }
            Form::Forget(id) => [&[0x12][..], &id.to_le_bytes()].concat(),
            Form::Bye(kind, text) => {
                let length = u16::try_from(text.len()).unwrap_or(0).to_le_bytes();
                [&[0x13, *kind][..], &length, text].concat()
            }
            Form::Long(length) => vec![0x13; 900 + usize::from(*length) % 4096],
        }
    }
}

/// Byte 0: a record of the handshake, or packets.
pub(crate) fn records(data: &[u8]) {
    let [how, data @ ..] = data else { return };
    if how & 1 == 0 {
        handshake(data);
    } else {
        let mut input = Unstructured::new(data);
        while !input.is_empty()
            && let Ok(packet) = input.arbitrary::<Packet>()
        {
            link(&packet);
        }
    }
}

/// A record that is accepted is accepted again in its canonical form, which is stable.
fn handshake(data: &[u8]) {
    for decode in [fuzzing::hello, fuzzing::welcome] {
        match decode(data) {
            Ok(encoded) => {
                assert_eq!(encoded.len(), data.len());
                assert_eq!(decode(&encoded).as_ref(), Ok(&encoded));
                // Magic, version, kind and flag; fields without a flag are ignored.
                assert_eq!(encoded[..8], data[..8]);
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                let refused = fuzzing::welcome(&fuzzing::refuse(&error));
                let shown = refused.expect_err("a refusal").to_string();
                assert!(shown.len() <= 1024 && !shown.chars().any(char::is_control), "{shown}");
            }
        }
    }
    if let Some((error, encoded)) = fuzzing::error(data) {
        let (again, stable) = fuzzing::error(&encoded).expect("an encoded error is decoded");
        assert_eq!((again, stable), (error, encoded));
    }
    if let Some(number) = data.first_chunk() {
        let number = u32::from_le_bytes(*number);
        assert!(fuzzing::status(number).is_none_or(|again| again == number));
    }
}

fn memory(length: u16, seals: u8) -> OwnedFd {
    let file = file(&vec![5; length.into()]);
    let all = [SealFlags::SHRINK, SealFlags::GROW, SealFlags::WRITE, SealFlags::SEAL];
    for (bit, seal) in all.into_iter().enumerate() {
        if seals >> bit & 1 == 1 {
            fcntl_add_seals(&file, seal).expect("the file can be sealed");
        }
    }
    file.into()
}

fn link(packet: &Packet) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("two sockets");
    let bytes = packet.form.bytes();
    let fds: Vec<OwnedFd> = match packet.passed {
        Passed::Nothing => Vec::new(),
        Passed::Memory(length, seals) => vec![memory(length % 16384, seals)],
        Passed::Two(length) => vec![memory(length % 16384, 15), memory(1, 15)],
        Passed::Null => vec![std::fs::File::open("/dev/null").expect("a null device").into()],
    };
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    if !borrowed.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)));
    }
    sendmsg(&theirs, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty())
        .expect("the queue has room");
    drop(theirs);
    match fuzzing::receive(ours.as_fd()).expect("a packet has come") {
        Received::End => assert!(bytes.is_empty()),
        Received::Wrong(what) => assert!(!what.is_empty()),
        Received::NoRoom => {}
        Received::Unknown(came) | Received::Record(came) => {
            assert!(came == bytes && bytes.len() <= 1024);
            assert!(!matches!(packet.passed, Passed::Two(_) | Passed::Null));
        }
        Received::Region(length) => {
            let Passed::Memory(size, seals) = packet.passed else { panic!("{packet:?}") };
            assert!(length <= usize::from(size % 16384) && seals & 15 == 15, "{packet:?}");
        }
    }
}
