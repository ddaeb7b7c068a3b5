//! Sockets and files are resources as long as they live.

use std::collections::HashMap;
use std::io::{Read, Write};

use kumihimo_io::fs::File;
use kumihimo_io::net::{TcpListener, TcpStream, UnixStream};
use kumihimo_resource::id::{Id, Kind};
use kumihimo_resource::names::Name;
use kumihimo_resource::table::{Command, Error, table};
use kumihimo_runtime::runtime::Runtime;

/// The usage table of one kind.
fn there(kind: Kind) -> HashMap<Id, String> {
    let mut all = HashMap::new();
    table().usage(Some(kind), &mut |id, usage| drop(all.insert(id, usage.state)));
    all
}

/// In and out of a runtime, one after the other: the table is the process's.
#[test]
fn resources_live_as_long_as_their_handles() {
    let body = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let file = File::open("/proc/self/status").unwrap();
        let ids = [listener.resource(), near.resource(), far.resource()]
            .map(|id| id.expect("the table has room"));
        let sockets = there(Kind::SOCKET);
        for id in ids {
            assert!(sockets[&id].contains("socket:"), "{}", sockets[&id]);
        }
        let of_file = file.resource().unwrap();
        assert!(there(Kind::FILE)[&of_file].contains("/status"));
        drop((listener, near, far, file));
        assert!(ids.iter().all(|id| !there(Kind::SOCKET).contains_key(id)));
        assert!(
            matches!(table().read(ids[0], &mut Vec::new()), Err(Error::Stale(id)) if id == ids[0])
        );
        assert!(!there(Kind::FILE).contains_key(&of_file));
    };
    body();
    Runtime::builder().vps(2).build().unwrap().run(body);
}

#[test]
fn id_alone_allows_reading_writing_and_shutdown() {
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let id = near.resource().unwrap();
    table().name(&Name::new(Kind::SOCKET, "near").unwrap(), id).unwrap();
    assert_eq!(table().names().find(&Name::parse("/socket/near").unwrap()), Ok(id));
    assert_eq!(table().write(id, b"by id").unwrap(), 5);
    let mut room = [0; 5];
    far.read_exact(&mut room).unwrap();
    assert_eq!(&room, b"by id");
    let nothing =
        table().read(id, &mut Vec::new()).expect_err("nothing is there, and nobody waits");
    assert!(matches!(nothing, Error::Io(e) if e.kind() == std::io::ErrorKind::WouldBlock));
    far.write_all(b"answer").unwrap();
    let mut got = Vec::new();
    assert_eq!(table().read(id, &mut got).unwrap(), 6);
    assert_eq!(got, b"answer");
    assert!(matches!(table().control(id, &Command::Suspend), Err(Error::Invalid(_))));
    table().control(id, &Command::Cancel).unwrap();
    assert_eq!(far.read(&mut room).unwrap(), 0, "it was shut down");
    assert_eq!(near.read(&mut room).unwrap(), 0);
    drop(near);
    assert!(
        table().names().find(&Name::parse("/socket/near").unwrap()).is_err(),
        "its name went with it"
    );
}
