//! Names of gates in the run-time directory: holders, takeover from dead holders, and refusals.

mod harness;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use harness::{Process, Room, alone, fork, is_root, pipe, skip, wait_for_ever};
use kumihimo_machine::gates::{Gates, LONGEST_NAME, check_name};
use kumihimo_machine::{Error, Machine};

const OWNER: u32 = 54321;
const GUEST: u32 = 54322;

fn gates(room: &Room) -> Gates {
    Gates::open(room.number()).expect("a socket for gates")
}

fn in_use(result: Result<(), Error>) -> String {
    match result {
        Err(Error::InUse(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn planted<T: std::fmt::Debug>(result: Result<T, Error>, name: &str) {
    match result {
        Err(Error::Directory(text)) => {
            assert!(text.contains(name) && text.contains("remove it"), "{text}")
        }
        other => panic!("{name}: {other:?}"),
    }
}

/// A deadline that even a busy machine meets.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Starts a process that serves gates of these names, and returns it with its number once it
/// serves.
fn serving(room: &Room, names: &[&str]) -> (Process, u16) {
    let (mut from_child, mut to_test) = pipe();
    let process = fork(0, move || {
        let gates = gates(room);
        names.iter().for_each(|name| gates.bind(name).unwrap());
        to_test.write_all(&gates.number().to_ne_bytes()).unwrap();
        wait_for_ever();
    });
    let mut number = [0; 2];
    from_child.read_exact(&mut number).expect("the process starts to serve");
    (process, u16::from_ne_bytes(number))
}

fn exists_as(room: &Room, name: &str) -> bool {
    fs::symlink_metadata(room.path().join(name)).is_ok()
}

#[test]
fn invalid_names_are_refused() {
    let longest = "x".repeat(LONGEST_NAME);
    for good in ["a", "clock", "a.b", "\u{e9}", "with space", &longest] {
        check_name(good).unwrap();
    }
    let room = Room::new();
    let gates = gates(&room);
    for bad in ["", ".", "..", ".hidden", "a/b", "/", "a\0b", "a\nb", &format!("{longest}x")] {
        assert!(matches!(check_name(bad), Err(Error::Invalid(_))), "{bad:?}");
        assert!(matches!(gates.bind(bad), Err(Error::Invalid(_))), "{bad:?}");
        assert!(matches!(gates.unbind(bad), Err(Error::Invalid(_))), "{bad:?}");
        assert!(matches!(room.machine().gate(bad), Err(Error::Invalid(_))), "{bad:?}");
    }
}

#[test]
fn bound_name_is_found_until_it_is_unbound() {
    let room = Room::new();
    let gates = gates(&room);
    let (number, machine) = (gates.number(), room.machine());
    let longest = "x".repeat(LONGEST_NAME);
    assert_eq!(machine.gate("clock").unwrap(), None);
    for name in ["clock", "a.b", "\u{e9}", &longest] {
        gates.bind(name).unwrap();
        assert_eq!(machine.gate(name).unwrap(), Some(number));
    }
    assert_eq!(
        fs::read_link(room.path().join("gate.clock")).unwrap(),
        Path::new(&number.to_string())
    );
    assert_eq!(
        fs::metadata(room.path().join(format!("{number}.gates"))).unwrap().mode() & 0o777,
        0o600
    );
    let listed: Vec<_> =
        machine.gates().unwrap().into_iter().map(|(name, by)| (name, by == number)).collect();
    let all = ["a.b", "clock", &longest, "\u{e9}"];
    assert_eq!(listed, all.map(|name| (name.to_owned(), true)));
    let text = in_use(gates.bind("clock"));
    assert!(text.contains("\"clock\"") && text.contains("this address space"), "{text}");
    assert!(gates.unbind("clock").unwrap());
    assert!(!gates.unbind("clock").unwrap());
    assert_eq!(machine.gate("clock").unwrap(), None);
    gates.bind("clock").unwrap();
    let server = machine.connect(number, later()).unwrap();
    assert_eq!(
        (server.uid, server.pid),
        (rustix::process::geteuid().as_raw(), Some(std::process::id()))
    );
    drop(gates);
    assert_eq!(machine.gates().unwrap(), []);
    assert!(!exists_as(&room, "gate.clock") && !exists_as(&room, &format!("{number}.gates")));
    assert!(matches!(machine.connect(number, later()), Err(Error::Gone(_))));
}

#[test]
fn name_of_a_living_holder_is_kept_and_of_a_dead_one_taken_over() {
    let room = Room::new();
    let (process, number) = serving(&room, &["clock", "left"]);
    let (mine, machine) = (gates(&room), room.machine());
    assert_eq!(machine.gate("clock").unwrap(), Some(number));
    let text = in_use(mine.bind("clock"));
    assert!(
        text.contains("clock")
            && text.contains(&format!("address space {number} (process {})", process.0)),
        "{text}"
    );
    assert!(!mine.unbind("clock").unwrap(), "another address space holds the name");
    // A stopped holder is alive.
    process.stop();
    in_use(mine.bind("clock"));
    process.kill();
    assert!(exists_as(&room, "gate.clock"));
    mine.bind("clock").unwrap();
    assert_eq!(machine.gate("clock").unwrap(), Some(mine.number()));
    // Listing the gates omits those of dead holders and removes their entries.
    assert_eq!(machine.gates().unwrap(), [("clock".to_owned(), mine.number())]);
    assert!(!exists_as(&room, "gate.left") && !exists_as(&room, &format!("{number}.gates")));
}

#[test]
fn names_of_a_dead_holder_do_not_pass_to_the_next_holder_of_its_number() {
    let room = Room::new();
    let (process, number) = serving(&room, &["clock"]);
    process.kill();
    fs::write(room.path().join("next"), format!("{number:010}\n")).unwrap();
    let successor = room.number();
    assert_eq!(successor.location().space(), number);
    assert_eq!(room.machine().gate("clock").unwrap(), None, "the new holder serves no gates");
    let gates = Gates::open(successor).unwrap();
    gates.bind("clock").unwrap();
    assert_eq!(room.machine().gate("clock").unwrap(), Some(number));
}

/// Many processes request the name at the same time.
#[test]
fn exactly_one_process_takes_over_a_name() {
    // A process that another test forks would keep the pipe open whose end is waited for.
    alone(many_take_over);
}

fn many_take_over() {
    const MANY: usize = 16;
    let room = Room::new();
    for _ in 0..5 {
        let (dead, _) = serving(&room, &["clock", "other"]);
        dead.kill();
        let (mut begins, start) = pipe();
        let (mut from_child, to_test) = pipe();
        let all: Vec<_> = (0..MANY)
            .map(|n| {
                let (mut begins, mut to_test) =
                    (begins.try_clone().unwrap(), to_test.try_clone().unwrap());
                let (room, start) = (&room, &start);
                fork(0, move || {
                    let gates = gates(room);
                    to_test.write_all(b"r").unwrap();
                    // Waits until the end of the pipe releases all processes at once.
                    // SAFETY: closes this process's copy, which it does not use afterwards.
                    unsafe { libc::close(std::os::fd::AsRawFd::as_raw_fd(start)) };
                    let _ = begins.read(&mut [0]);
                    if n % 4 == 0 {
                        room.machine().gates().unwrap();
                    }
                    let won = match gates.bind("clock") {
                        Ok(()) => b"w",
                        Err(Error::InUse(_)) => b"l",
                        Err(e) => panic!("{e}"),
                    };
                    to_test.write_all(won).unwrap();
                    wait_for_ever();
                })
            })
            .collect();
        let mut ready = [0; MANY];
        from_child.read_exact(&mut ready).unwrap();
        drop(start);
        let _ = begins.read(&mut [0]);
        let mut answers = [0; MANY];
        from_child.read_exact(&mut answers).unwrap();
        assert_eq!(answers.iter().filter(|one| **one == b'w').count(), 1, "{answers:?}");
        all.into_iter().for_each(Process::kill);
        assert_eq!(room.machine().gates().unwrap(), []);
    }
}

/// The child's copies of lock and socket do not keep the name alive.
#[test]
fn forked_child_does_not_keep_a_name() {
    let room = Room::new();
    let (mut from_child, mut to_test) = pipe();
    let (held, holds) = pipe();
    let parent = fork(0, || {
        let number = room.number();
        let gates = Gates::open(number.clone()).unwrap();
        gates.bind("clock").unwrap();
        // SAFETY: this process has one kernel thread, and the child never returns.
        if unsafe { libc::fork() } == 0 {
            number.forget_in_child();
            assert!(!gates.unbind("clock").unwrap(), "the name belongs to the parent");
            drop(gates);
            to_test.write_all(b"x").unwrap();
            // Waits until the test, which has the other end, is over.
            // SAFETY: closes this process's copy, which it does not use afterwards.
            unsafe { libc::close(std::os::fd::AsRawFd::as_raw_fd(&holds)) };
            let _ = { &held }.read(&mut [0]);
            // SAFETY: ends the process without running code that belongs to the parent.
            unsafe { libc::_exit(0) }
        }
        wait_for_ever();
    });
    from_child.read_exact(&mut [0]).unwrap();
    assert!(exists_as(&room, "gate.clock"));
    parent.kill();
    gates(&room).bind("clock").unwrap();
    drop(holds);
}

#[test]
fn foreign_entries_are_neither_followed_nor_removed() {
    let room = Room::new();
    let mine = gates(&room);
    let path = |name: &str| room.path().join(name);
    fs::write(room.0.join("secret"), "x").unwrap();
    let refused = |name: &str, plant: &dyn Fn(&Path)| {
        let link = format!("gate.{name}");
        plant(&path(&link));
        let before = fs::symlink_metadata(path(&link)).unwrap().ino();
        planted(mine.bind(name), &link);
        planted(mine.unbind(name), &link);
        planted(room.machine().gate(name), &link);
        planted(room.machine().gates(), &link);
        assert_eq!(fs::symlink_metadata(path(&link)).unwrap().ino(), before);
        fs::rename(path(&link), room.0.join(&link)).unwrap();
    };
    refused("file", &|path| fs::write(path, "1").unwrap());
    refused("folder", &|path| fs::create_dir(path).unwrap());
    for (n, text) in ["../secret", "0", "4096", "01", "+1", "1x", "1.gates", "99999999999999999999"]
        .iter()
        .enumerate()
    {
        refused(&n.to_string(), &|path| symlink(text, path).unwrap());
    }
    // A number without a process counts as that of a dead address space.
    symlink("4000", path("gate.nobody")).unwrap();
    assert_eq!(room.machine().gate("nobody").unwrap(), None);
    mine.bind("nobody").unwrap();
    // Foreign entries in the place of sockets.
    let number = room.number();
    let socket = format!("{}.gates", number.location().space());
    fs::write(path(&socket), "").unwrap();
    planted(Gates::open(number.clone()), &socket);
    planted(room.machine().connect(number.location().space(), later()), &socket);
    fs::remove_file(path(&socket)).unwrap();
    symlink(path(&format!("{}.gates", mine.number())), path(&socket)).unwrap();
    planted(Gates::open(number.clone()), &socket);
    planted(room.machine().connect(number.location().space(), later()), &socket);
}

#[test]
fn full_directory_is_reported() {
    if !is_root() {
        return skip("full_directory_is_reported", "only root can mount");
    }
    let room = Room::new();
    fork(0, || {
        // SAFETY: an integer argument; this process has one kernel thread.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
        let private = rustix::mount::MountPropagationFlags::PRIVATE
            | rustix::mount::MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).unwrap();
        fs::create_dir(room.path()).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("kumihimo", room.path(), "tmpfs", flags, c"mode=0700,nr_inodes=20")
            .unwrap();
        let gates = gates(&room);
        let mut bound = 0;
        let text = loop {
            match gates.bind(&format!("g{bound}")) {
                Ok(()) => bound += 1,
                Err(Error::Exhausted(text)) => break text,
                Err(e) => panic!("{e}"),
            }
            assert!(bound < 20);
        };
        assert!(
            bound > 10 && text.contains("inodes") && text.contains(&format!("g{bound}")),
            "{bound}: {text}"
        );
        assert_eq!(room.machine().gates().unwrap().len(), bound);
        gates.unbind("g0").unwrap();
        gates.bind("again").unwrap();
        drop(gates);
        assert_eq!(room.machine().gates().unwrap(), []);
    })
    .ends_well();
}

/// One process serves all of them, and its death leaves the names behind.
#[test]
fn hundred_thousand_gates_are_served_and_removed() {
    const MANY: usize = 100_000;
    // The usual place of run-time directories; on a busy disk, the test takes a minute.
    let shm = Path::new("/dev/shm").join(format!("kumi-machine-gates-{}", std::process::id()));
    let room = fs::create_dir(&shm).map_or_else(|_| Room::new(), |()| Room(shm));
    let (mut from_child, mut to_test) = pipe();
    let process = fork(0, || {
        let gates = gates(&room);
        (0..MANY).for_each(|n| gates.bind(&format!("gate-{n}")).unwrap());
        to_test.write_all(b"x").unwrap();
        wait_for_ever();
    });
    from_child.read_exact(&mut [0]).unwrap();
    let machine = room.machine();
    assert_eq!(machine.gates().unwrap().len(), MANY);
    for n in [0, 77_777, MANY - 1] {
        assert_eq!(machine.gate(&format!("gate-{n}")).unwrap(), Some(1));
    }
    let mine = gates(&room);
    in_use(mine.bind("gate-5"));
    process.kill();
    mine.bind("gate-5").unwrap();
    assert_eq!(machine.gate("gate-6").unwrap(), None);
    assert_eq!(machine.gates().unwrap(), [("gate-5".to_owned(), mine.number())]);
    assert_eq!(
        fs::read_dir(room.path())
            .unwrap()
            .filter(|one| one.as_ref().unwrap().file_name() != "next")
            .count(),
        4
    );
}

#[test]
fn other_users_connect_only_with_permission() {
    if !is_root() {
        return skip("other_users_connect_only_with_permission", "only root can be several users");
    }
    let room = Room::new();
    fs::create_dir(room.path()).unwrap();
    fs::set_permissions(room.path(), PermissionsExt::from_mode(0o700)).unwrap();
    chown(room.path(), Some(OWNER), None).unwrap();
    let room = &room;
    let (mut from_child, mut to_test) = pipe();
    let (mut from_test, mut to_child) = pipe();
    let server = fork(OWNER, || {
        let gates = gates(room);
        gates.bind("clock").unwrap();
        for others in [None, Some(true), Some(false)] {
            others.map_or(Ok(()), |others| gates.open_to_others(others)).unwrap();
            to_test.write_all(b"x").unwrap();
            from_test.read_exact(&mut [0]).unwrap();
        }
    });
    let mut wait = || from_child.read_exact(&mut [0]).unwrap();
    let mut go = || to_child.write_all(b"x").unwrap();
    let mode = |name: &str| fs::metadata(room.path().join(name)).unwrap().mode() & 0o777;
    let connect = || Machine::at(&room.path()).and_then(|machine| machine.connect(1, later()));
    wait();
    assert_eq!((mode(""), mode("1.gates")), (0o700, 0o600));
    fork(GUEST, || assert!(matches!(connect(), Err(Error::Directory(_))))).ends_well();
    go();
    wait();
    assert_eq!((mode(""), mode("1.gates")), (0o755, 0o666));
    fork(GUEST, || {
        assert_eq!(room.machine().gate("clock").unwrap(), Some(1));
        assert_eq!(room.machine().gates().unwrap(), [("clock".to_owned(), 1)]);
        assert_eq!(connect().unwrap().uid, OWNER);
    })
    .ends_well();
    go();
    wait();
    assert_eq!(mode("1.gates"), 0o600);
    fork(GUEST, || assert!(matches!(connect(), Err(Error::Refused(_))))).ends_well();
    go();
    server.ends_well();
}

/// Locks and sockets work without process IDs.
#[test]
fn server_in_another_pid_namespace_is_reached() {
    if !is_root() {
        return skip(
            "server_in_another_pid_namespace_is_reached",
            "only root can create a pid namespace",
        );
    }
    let room = Room::new();
    let (process, number) = serving(&room, &["clock"]);
    let inside = || {
        assert_eq!(std::process::id(), 1);
        let (machine, mine) = (room.machine(), gates(&room));
        assert_eq!(machine.gate("clock").unwrap(), Some(number));
        let server = machine.connect(number, later()).unwrap();
        assert_eq!(
            (server.uid, server.pid),
            (0, None),
            "its process ID is not visible in this namespace"
        );
        let text = in_use(mine.bind("clock"));
        assert!(!text.contains("process"), "{text}");
        mine.bind("inside").unwrap();
    };
    fork(0, || {
        // SAFETY: an integer argument; this process has one kernel thread.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
        fork(0, inside).ends_well();
    })
    .ends_well();
    assert_eq!(room.machine().gates().unwrap(), [("clock".to_owned(), number)]);
    process.kill();
}

/// The server of the socket must be the owner of the directory.
#[test]
fn socket_served_by_another_user_is_not_used() {
    if !is_root() {
        return skip("socket_served_by_another_user_is_not_used", "only root can be several users");
    }
    let room = Room::new();
    let gates = gates(&room);
    chown(room.path(), Some(OWNER), None).unwrap();
    let machine = Machine::at(&room.path()).unwrap();
    let text = machine.connect(gates.number(), later()).unwrap_err().to_string();
    assert!(text.contains("belongs to user 0"), "{text}");
    chown(room.path().join(format!("{}.gates", gates.number())), Some(OWNER), None).unwrap();
    let text = machine.connect(gates.number(), later()).unwrap_err().to_string();
    assert!(text.contains("served by user 0"), "{text}");
}
