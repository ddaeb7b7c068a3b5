use std::path::Path;

use fuse_abi::linux::{
    FOPEN_DIRECT_IO, FUSE_ROOT_ID, fuse_entry_out, fuse_in_header, fuse_opcode as Op, fuse_open_in,
    fuse_open_out,
};
use kumihimo::sync::Arc;
use kumihimo_host::Host;
use rustix::fs::OFlags;
use zerocopy::Immutable;

use super::*;
use crate::protocol::service::{Answer, Settings};
use crate::protocol::wire::Message;

/// Sends a request as the kernel does. Returns the reply after its header.
fn ask(service: &Service, op: Op, nodeid: u64, arguments: &[u8]) -> Vec<u8> {
    let len = u32::try_from(size_of::<fuse_in_header>() + arguments.len()).expect("short");
    let header = fuse_in_header { len, opcode: op as u32, unique: 7, nodeid, ..Default::default() };
    let mut reply = Reply::default();
    let answer =
        service.handle(Message::whole(&[header.as_bytes(), arguments].concat()), &mut reply);
    assert_eq!(answer, Answer::Send);
    assert_eq!(reply.message()[4..8], [0; 4], "no error");
    reply.message()[16..].to_vec()
}

fn as_struct<T: FromBytes + Immutable>(bytes: &[u8]) -> T {
    T::read_from_prefix(bytes).expect("as long").0
}

/// Creates a service, negotiates with a kernel that offers `flags2`, and returns the flags with
/// which the service opens a file.
fn opens(settings: Settings, flags2: u32, flags: OFlags) -> u32 {
    let host =
        Host::open(Path::new(env!("CARGO_MANIFEST_DIR")), kumihimo_host::Settings::default())
            .expect("a directory");
    let service = Service::new(Arc::new(host), settings);
    let kernel = fuse_init_in {
        major: FUSE_KERNEL_VERSION,
        minor: FUSE_KERNEL_MINOR_VERSION,
        flags: FUSE_INIT_EXT | FUSE_POSIX_ACL,
        flags2,
        ..Default::default()
    };
    let agreed: fuse_init_out = as_struct(&ask(&service, Op::FUSE_INIT, 0, kernel.as_bytes()));
    assert_eq!(agreed.flags2 & !flags2, 0, "only flags that the kernel offered");
    let entry: fuse_entry_out =
        as_struct(&ask(&service, Op::FUSE_LOOKUP, FUSE_ROOT_ID, b"Cargo.toml\0"));
    let how = fuse_open_in { flags: flags.bits(), ..Default::default() };
    as_struct::<fuse_open_out>(&ask(&service, Op::FUSE_OPEN, entry.nodeid, how.as_bytes()))
        .open_flags
}

#[test]
fn direct_opens_bypass_the_cache_of_shared_files() {
    let shared = || Settings { keep_cache: false, ..Settings::default() };
    let (offered, direct) = (DIRECT_IO_ALLOW_MMAP, OFlags::DIRECT);
    assert_eq!(opens(shared(), offered, direct) & FOPEN_DIRECT_IO, FOPEN_DIRECT_IO);
    for (settings, flags2, flags) in [
        (shared(), offered, OFlags::empty()),
        // Without the kernel's flag such a file could not be mapped.
        (shared(), 0, direct),
        // The kernel's cache is valid, or holds data that is to be written.
        (Settings::default(), offered, direct),
        (Settings { writeback: true, ..shared() }, offered, direct),
    ] {
        let what = format!("{settings:?} {flags2:x} {flags:?}");
        assert_eq!(opens(settings, flags2, flags) & FOPEN_DIRECT_IO, 0, "{what}");
    }
}
