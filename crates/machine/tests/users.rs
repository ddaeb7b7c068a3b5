//! Users that may read and control an address space: its owner, root, and the permitted ones.

mod harness;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::UnixListener;

use harness::{Double, Room, fork, is_root, pipe, serving, skip};
use kumihimo_machine::handler::{Action, Refused};
use kumihimo_machine::{Error, Machine};

const OWNER: u32 = 54321;
const GUEST: u32 = 54322;
const STRANGER: u32 = 54323;

/// A room whose run-time directory belongs to another user.
fn room_of_owner(test: &str) -> Option<Room> {
    if !is_root() {
        skip(test, "only root can change its user");
        return None;
    }
    let room = Room::new();
    fs::create_dir(room.path()).unwrap();
    fs::set_permissions(room.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    chown(room.path(), Some(OWNER), None).unwrap();
    Some(room)
}

fn denied<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Refused(Refused::Denied(text))) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_users_are_refused_and_counted() {
    let Some(room) = room_of_owner("other_users_are_refused_and_counted") else { return };
    let room = &room;
    let (mut from_child, mut to_test) = pipe();
    let (mut from_test, mut to_child) = pipe();
    let server = fork(OWNER, || {
        let served = room.serve(Double::with(3));
        let mut step = |text: &[u8]| {
            to_test.write_all(text).unwrap();
            from_test.read_exact(&mut [0]).unwrap();
        };
        step(b"1");
        served.control.allow(GUEST).unwrap();
        served.control.allow(GUEST).unwrap();
        step(b"2");
        let acted = served.double.acted.lock().unwrap().clone();
        assert_eq!(
            acted,
            [(served.double.id(0), Action::Suspend), (served.double.id(1), Action::Resume)]
        );
        // Three attempts of the stranger.
        assert_eq!(served.control.refused(), 3);
        let refused = served.neighbour().metrics().unwrap();
        assert_eq!(
            (refused[0].name.as_str(), refused[0].samples[0].1),
            ("kumihimo_control_refused_total", 3.0)
        );
        assert!(served.control.disallow(GUEST).unwrap());
        assert!(!served.control.disallow(GUEST).unwrap());
        step(b"3");
        assert_eq!(served.control.refused(), 4, "the guest is refused on an open connection");
        assert_eq!(served.double.acted.lock().unwrap().len(), 2);
    });
    let mut wait = || from_child.read_exact(&mut [0]).unwrap();
    let mut go = || to_child.write_all(b"x").unwrap();
    let id = |slot| {
        Double { location: kumihimo_resource::id::Location::new(1).unwrap(), ..Double::default() }
            .id(slot)
    };
    let look = || Machine::at(&room.path()).and_then(|machine| machine.neighbour(1));

    wait();
    // Only the owner and root can reach the directory.
    let mode = |name: &str| fs::metadata(room.path().join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode(""), mode("1.socket")), (0o700, 0o600));
    for uid in [GUEST, STRANGER] {
        fork(uid, || {
            assert!(matches!(look(), Err(Error::Directory(text)) if text.contains("denied")))
        })
        .ends_well();
    }
    // Root can read and control, but removes no entry of another user.
    assert_eq!(
        look().unwrap().act(id(0), Action::Suspend).unwrap(),
        kumihimo_machine::handler::Done::Now
    );
    assert_eq!(room.machine().spaces().unwrap().len(), 1);
    go();

    wait();
    assert_eq!((mode(""), mode("1.socket"), mode("1")), (0o755, 0o666, 0o600));
    let (mut from_guest, mut to_test) = pipe();
    let (mut from_test, mut to_guest) = pipe();
    let guest = fork(GUEST, || {
        let mut spaces = room.machine().spaces().unwrap();
        assert_eq!(spaces.len(), 1);
        spaces[0].act(id(1), Action::Resume).unwrap();
        to_test.write_all(b"x").unwrap();
        from_test.read_exact(&mut [0]).unwrap();
        // The refusal applies to the open connection.
        let text = denied(spaces[0].act(id(2), Action::Cancel));
        assert!(text.contains(&format!("does not admit user {GUEST}")), "{text}");
        // The socket's mode is restored.
        denied(look().unwrap().space());
    });
    from_guest.read_exact(&mut [0]).unwrap();
    fork(STRANGER, || {
        for text in [
            denied(look().unwrap().act(id(2), Action::Cancel)),
            denied(look().unwrap().microprocesses()),
            denied(look().unwrap().space()),
        ] {
            assert!(
                text.contains(&format!("user {OWNER}"))
                    && text.contains(&format!("user {STRANGER}")),
                "{text}"
            );
        }
    })
    .ends_well();
    go();

    wait();
    to_guest.write_all(b"x").unwrap();
    guest.ends_well();
    go();
    server.ends_well();
}

/// The server of the socket must be the owner of the directory.
#[test]
fn socket_served_by_another_user_is_not_used() {
    let Some(room) = room_of_owner("socket_served_by_another_user_is_not_used") else {
        return;
    };
    // Root created the listener and then changed the inode's owner.
    let listener = UnixListener::bind(room.path().join("1.socket")).unwrap();
    let owned_by_root = room.machine().neighbour(1).unwrap_err();
    assert!(owned_by_root.to_string().contains("belongs to user 0"), "{owned_by_root}");
    chown(room.path().join("1.socket"), Some(OWNER), None).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut take_notification = Vec::new();
        stream.read_to_end(&mut take_notification).unwrap();
        take_notification
    });
    let error = room.machine().neighbour(1).unwrap().space().unwrap_err();
    assert!(
        matches!(&error, Error::Directory(text) if text.contains("served by user 0")),
        "{error:?}"
    );
    assert_eq!(server.join().unwrap(), b"", "no request was sent");
}

/// Root can list another user's living address spaces, but the entries of dead ones are for that
/// user to remove.
#[test]
fn dead_address_spaces_of_another_user_are_not_listed_or_removed() {
    let Some(room) = room_of_owner("dead_address_spaces_of_another_user_are_not_listed_or_removed")
    else {
        return;
    };
    let (room, (mut from_child, mut to_test)) = (&room, pipe());
    let dead = fork(OWNER, || {
        let _served = room.serve(Double::with(1));
        to_test.write_all(b"x").unwrap();
        harness::wait_for_ever();
    });
    from_child.read_exact(&mut [0]).unwrap();
    dead.kill();
    assert!(room.machine().spaces().unwrap().is_empty());
    assert!(room.path().join("1.socket").exists());
    fork(OWNER, || {
        assert!(room.machine().spaces().unwrap().is_empty());
        assert!(!room.path().join("1.socket").exists());
    })
    .ends_well();
}

/// A user needs no permission for the user's own directory; this includes root.
#[test]
fn owner_needs_no_permission() {
    let room = Room::new();
    let (_process, number) = serving(&room, Double::with(2));
    assert_eq!(room.machine().neighbour(number).unwrap().microprocesses().unwrap().len(), 2);
}
