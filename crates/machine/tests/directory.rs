//! The run-time directory: ownership, refused entries, lack of space, numbers and generations.

mod harness;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use harness::{
    Double, Room, alone, fork, is_root, locked, mount, pipe, skip, wait_for_ever, with_mounts,
};
use kumihimo_machine::directory::Directory;
use kumihimo_machine::space::{Control, Number};
use kumihimo_machine::{Error, Machine};
use kumihimo_resource::id::{GENERATIONS, SPACES};
use kumihimo_resource::serials::{CLAIMED_AT_ONCE, Generations, Serials};

/// A user other than root; the user need not have a name.
const SOMEBODY: u32 = 54321;

fn error_text<T>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Directory(text)) => text,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("the call succeeded"),
    }
}

fn take(room: &Room) -> Result<Number, Error> {
    Number::take_in(room.directory())
}

fn next_is(room: &Room, number: u16) {
    fs::write(room.path().join("next"), format!("{number:010}\n")).unwrap();
}

#[test]
fn directory_is_created_for_its_user_only() {
    let room = Room::new();
    let number = take(&room).unwrap();
    let mode = |name: &str| fs::metadata(room.path().join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode(""), mode("next"), mode("1")), (0o700, 0o600, 0o600));
    assert_eq!(
        (number.location().space(), number.first_generation(), number.directory()),
        (1, 0, &*room.path())
    );
}

#[test]
fn foreign_directories_are_refused() {
    let room = Room::new();
    let refused = |plant: &dyn Fn(&Path), part: &str| {
        let path = room.0.join("planted");
        plant(&path);
        let before = fs::symlink_metadata(&path).unwrap();
        let texts = [error_text(Directory::own(&path)), error_text(Machine::at(&path))];
        for text in texts {
            assert!(
                text.contains(part)
                    && text.contains(path.to_str().unwrap())
                    && text.contains("KUMI_DIR"),
                "{text}"
            );
        }
        let after = fs::symlink_metadata(&path).unwrap();
        assert_eq!(
            (before.ino(), before.mode(), before.mtime_nsec()),
            (after.ino(), after.mode(), after.mtime_nsec())
        );
        fs::rename(&path, room.0.join(format!("done-{}", before.ino()))).unwrap();
    };
    fs::create_dir(room.0.join("elsewhere")).unwrap();
    refused(&|path| symlink(room.0.join("elsewhere"), path).unwrap(), "symbolic link");
    refused(&|path| symlink("nowhere", path).unwrap(), "symbolic link");
    refused(&|path| fs::write(path, "").unwrap(), "not a directory");
    for mode in [0o777, 0o720, 0o702, 0o1777] {
        let plant = |path: &Path| {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        refused(&plant, "writable by others");
    }
    assert_eq!(fs::read_dir(room.0.join("elsewhere")).unwrap().count(), 0);
}

#[test]
fn another_users_directory_is_refused() {
    const NAME: &str = "another_users_directory_is_refused";
    if !is_root() {
        return skip(NAME, "only root can change the owner of a directory");
    }
    let room = Room::new();
    for mode in [0o700, 0o755] {
        let path = room.0.join(format!("{mode:o}"));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&path, Some(SOMEBODY), None).unwrap();
        // Root, and a third user without search permission.
        for uid in [0, SOMEBODY + 1] {
            fork(uid, || {
                let text = error_text(Directory::own(&path));
                assert!(
                    text.contains(&format!("belongs to user {SOMEBODY} and not to user {uid}")),
                    "{text}"
                );
                if mode == 0o755 || uid == 0 {
                    let text = error_text(Number::take_in(Directory::at(&path).unwrap()));
                    assert!(text.contains("only that user's processes can join it"), "{text}");
                }
            })
            .ends_well();
        }
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }
}

#[test]
fn foreign_entries_are_refused_and_kept() {
    let room = Room::new();
    room.directory();
    let make_fifo = |path: &Path| {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
    };
    let make_writable = |path: &Path| {
        fs::write(path, "").unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
    };
    let contents = |text: &'static str| move |path: &Path| fs::write(path, text).unwrap();
    type Plant<'a> = (&'a dyn Fn(&Path), &'a str);
    let plants: [Plant<'_>; 10] = [
        (&|path| symlink(room.0.join("target"), path).unwrap(), "symbolic link"),
        (&|path| fs::create_dir(path).unwrap(), "not a regular file"),
        (&make_fifo, "not a regular file"),
        (&|path| drop(UnixListener::bind(path).unwrap()), "not a regular file"),
        (&make_writable, "writable by others"),
        (&contents("nonsense"), "not contain a number in the expected form"),
        (&contents("0000000001"), "not contain a number in the expected form"),
        (&contents("0000000001\n\n"), "not contain a number in the expected form"),
        (&contents("+000000001\n"), "not contain a number in the expected form"),
        (&contents("9999999999\n"), "out of range"),
    ];
    for name in ["next", "7"] {
        for (plant, part) in plants {
            if name != "next" {
                next_is(&room, 7);
            }
            let path = room.path().join(name);
            plant(&path);
            let before = fs::symlink_metadata(&path).unwrap();
            let text = error_text(take(&room));
            assert!(text.contains(part) && text.contains(path.to_str().unwrap()), "{text}");
            let after = fs::symlink_metadata(&path).unwrap();
            assert_eq!(
                (before.ino(), before.len(), before.mode()),
                (after.ino(), after.len(), after.mode())
            );
            if before.is_dir() {
                fs::remove_dir(&path).unwrap()
            } else {
                fs::remove_file(&path).unwrap()
            }
        }
    }
    assert!(!room.0.join("target").exists());
    next_is(&room, 7);
    assert_eq!(
        take(&room).unwrap().location().space(),
        7,
        "the directory works without foreign entries"
    );
}

#[test]
fn foreign_sockets_are_refused_and_kept() {
    alone(|| {
        let room = Room::new();
        let number = room.number();
        let path = room.path().join("1.socket");
        let start = || Control::start(number.clone(), std::sync::Weak::<Double>::new());
        let plants: [&dyn Fn(); 3] = [
            &|| symlink(room.0.join("target"), &path).unwrap(),
            &|| fs::write(&path, "").unwrap(),
            &|| fs::create_dir(&path).unwrap(),
        ];
        for plant in plants {
            plant();
            let before = fs::symlink_metadata(&path).unwrap().ino();
            for text in [
                error_text(start()),
                error_text(room.machine().neighbour(1).and_then(|mut one| one.space())),
            ] {
                assert!(
                    text.contains("not a socket") && text.contains(path.to_str().unwrap()),
                    "{text}"
                );
            }
            assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), before);
            if path.is_dir() {
                fs::remove_dir(&path).unwrap()
            } else {
                fs::remove_file(&path).unwrap()
            }
        }
        // The socket of a dead address space is replaced.
        drop(UnixListener::bind(&path).unwrap());
        start().unwrap();
    });
}

#[test]
fn unrelated_entries_are_ignored() {
    let room = Room::new();
    room.directory();
    for name in [
        "notes.txt",
        "0",
        "4096.socket",
        "01.socket",
        "+1.socket",
        ".socket",
        "18446744073709551617.socket",
        "x",
    ] {
        fs::write(room.path().join(name), "mine").unwrap();
    }
    let _one = room.serve(Double::default());
    let spaces = room.machine().spaces().unwrap();
    assert_eq!(spaces.iter().map(|one| one.number()).collect::<Vec<_>>(), [1]);
    assert_eq!(fs::read(room.path().join("0")).unwrap(), b"mine");
}

/// A process can be killed after the creation of any of its sockets, also before it gives the
/// socket its own name.
#[test]
fn every_socket_of_a_dead_address_space_is_removed() {
    let room = Room::new();
    for kind in ["socket", "socket.new", "ear", "gates", "gates.new"] {
        let number = take(&room).unwrap();
        let socket = room.path().join(format!("{}.{kind}", number.location().space()));
        drop(UnixListener::bind(&socket).unwrap());
        let listed = room.machine().spaces().unwrap().len();
        assert_eq!(listed, usize::from(kind == "socket"), "{kind}: only a control socket counts");
        assert!(socket.exists(), "{kind}: its process lives");
        drop(number);
        assert!(room.machine().spaces().unwrap().is_empty());
        assert!(!socket.exists(), "{kind}: its process is dead");
    }
}

#[test]
fn numbers_are_assigned_in_turn_and_wrap() {
    alone(|| {
        let room = Room::new();
        for turn in 1..5 {
            assert_eq!(
                take(&room).unwrap().location().space(),
                turn,
                "a number that just became free is used last"
            );
        }
        next_is(&room, SPACES - 1);
        let last = take(&room).unwrap();
        assert_eq!(last.location().space(), SPACES - 1);
        assert_eq!(take(&room).unwrap().location().space(), 1);
        next_is(&room, SPACES - 1);
        assert_eq!(take(&room).unwrap().location().space(), 1, "the last number is taken");
    });
}

#[test]
fn generations_of_a_number_never_repeat() {
    alone(|| {
        let room = Room::new();
        room.directory();
        let mut first = 0;
        for _ in 0..20 {
            next_is(&room, 9);
            let number = take(&room).unwrap();
            assert_eq!((number.location().space(), number.first_generation()), (9, first));
            let of = Generations::new(first, number.claim());
            // As a resource table does: each use of a slot takes a generation, until more must be
            // claimed.
            let serials = Serials::new();
            let mut now = serials.first(&of).unwrap();
            let mut most = now.generation();
            for _ in 0..5_000_000 {
                now = serials.next(now, &of).unwrap();
                most = most.max(now.generation());
            }
            drop(number);
            first = fs::read_to_string(room.path().join("9")).unwrap().trim().parse().unwrap();
            assert!(first > most && first - most <= 2 * CLAIMED_AT_ONCE, "{first} {most}");
        }
        assert!(first > 20 * CLAIMED_AT_ONCE, "further generations were claimed");
    });
}

#[test]
fn exhausted_numbers_are_not_assigned() {
    alone(|| {
        let room = Room::new();
        room.directory();
        let note = |number: u16, used: u32| {
            fs::write(room.path().join(number.to_string()), format!("{used:010}\n")).unwrap()
        };
        note(1, GENERATIONS);
        note(2, GENERATIONS - CLAIMED_AT_ONCE + 1);
        note(3, GENERATIONS - CLAIMED_AT_ONCE);
        let number = take(&room).unwrap();
        assert_eq!(
            (number.location().space(), number.first_generation()),
            (3, GENERATIONS - CLAIMED_AT_ONCE)
        );
        drop(number);
        (1..SPACES).for_each(|number| note(number, GENERATIONS));
        let text = error_text(take(&room));
        assert!(text.contains("used up (4095)"), "{text}");
    });
}

#[test]
fn all_taken_numbers_are_an_error() {
    let room = Room::new();
    room.directory();
    let (room, test) = (&room, "all_taken_numbers_are_an_error");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < 5_000) {
        return skip(test, "the limit on descriptors is too low");
    }
    fork(0, || {
        let all = rustix::process::Rlimit { current: limit.maximum, ..limit };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
        let locked = |number: u16| locked(&room.path().join(number.to_string()));
        let mut held: Vec<File> = (1..SPACES).map(locked).collect();
        let text = error_text(take(room));
        assert!(text.contains("all 4095 numbers") && text.contains("taken (4095)"), "{text}");
        drop(held.remove(1233));
        assert_eq!(take(room).unwrap().location().space(), 1234, "a number is free again");
    })
    .ends_well();
}

/// A process that is stopped while it takes a number does not prevent others from taking one.
#[test]
fn wait_for_the_holder_of_next_is_bounded() {
    let room = Room::new();
    room.directory();
    next_is(&room, 5);
    let _held = locked(&room.path().join("next"));
    assert_eq!(take(&room).unwrap().location().space(), 5);
}

#[test]
fn full_directory_is_reported() {
    let room = Room::new();
    with_mounts("full_directory_is_reported", || {
        let flags = rustix::mount::MountFlags::empty();
        // First no space for a file, then none for its contents.
        mount(&room.path(), c"mode=0700,nr_inodes=2", flags);
        let text = error_text(take(&room));
        assert!(text.contains("full") && text.contains("KUMI_DIR"), "{text}");
        mount(&room.path(), c"mode=0700,size=12k", flags);
        let number = take(&room).unwrap();
        let mut filler = File::create(room.path().join("filler")).unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
        assert!(
            number.claim()(5 * CLAIMED_AT_ONCE),
            "a file that has contents is overwritten in place"
        );
        let text = error_text(take(&room));
        assert!(text.contains("full"), "{text}");
        drop(number);
        next_is(&room, 1);
        assert_eq!(
            take(&room).unwrap().first_generation(),
            5 * CLAIMED_AT_ONCE,
            "used numbers need no space"
        );
    });
}

#[test]
fn read_only_directory_is_reported() {
    let room = Room::new();
    with_mounts("read_only_directory_is_reported", || {
        mount(&room.0.join("mount"), c"mode=0755", rustix::mount::MountFlags::empty());
        let inner = room.0.join("mount/kumihimo");
        let open = Directory::own(&inner).unwrap();
        let before = Number::take_in(Directory::own(&inner).unwrap()).unwrap();
        let claim = before.claim();
        drop(before);
        rustix::mount::mount_remount(room.0.join("mount"), rustix::mount::MountFlags::RDONLY, "")
            .unwrap();
        for path in [&inner, &room.0.join("mount/another")] {
            let text = error_text(Directory::own(path));
            assert!(text.contains("Read-only") && text.contains(path.to_str().unwrap()), "{text}");
        }
        let text = error_text(Number::take_in(open));
        assert!(text.contains("read-only"), "{text}");
        assert!(!claim(2 * CLAIMED_AT_ONCE), "no further generations can be claimed");
    });
}

#[test]
fn path_too_long_for_a_socket_works_through_proc() {
    let room = Room::new();
    let long = room.0.join("x".repeat(200));
    fs::create_dir(&long).unwrap();
    let serve = |path: &Path| {
        let number = std::sync::Arc::new(Number::take_in(Directory::own(path).unwrap())?);
        Control::start(number, std::sync::Weak::<Double>::new())
    };
    let path = long.join("kumihimo");
    let control = serve(&path).unwrap();
    // The address start through /proc.
    let mut neighbour = Machine::at(&path).unwrap().neighbour(1).unwrap();
    assert!(
        matches!(neighbour.space(), Err(Error::Refused(_))),
        "the socket is reached, but no handler answers"
    );
    with_mounts("path_too_long_for_a_socket_works_through_proc", || {
        mount(Path::new("/proc"), c"", rustix::mount::MountFlags::empty());
        let text = error_text(serve(&path));
        assert!(
            text.contains("too long") && text.contains("/proc") && text.contains("KUMI_DIR"),
            "{text}"
        );
        let mut neighbour = Machine::at(&path).unwrap().neighbour(1).unwrap();
        assert!(error_text(neighbour.space()).contains("too long"));
        let control = serve(&room.path()).unwrap();
        let mut neighbour = room.machine().neighbour(1).unwrap();
        assert!(matches!(neighbour.space(), Err(Error::Refused(_))), "a short path needs no /proc");
        drop(control);
    });
    drop(control);
}

#[test]
fn forked_child_keeps_no_number_and_no_descriptors() {
    let room = Room::new();
    let (mut from_child, mut to_test) = pipe();
    let (gate, mut opens) = pipe();
    let parent = fork(0, || {
        let served = room.serve(Double::with(1));
        let (raw, claim) = (served.raw(), served.number.claim());
        let mut held = Some((served, raw));
        let child = fork(0, || {
            // The forking process ends before its child.
            // SAFETY: the call has only integer arguments.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
            // Ends the child if the test fails, and the pipe is therefore not closed.
            // SAFETY: the call has only integer arguments.
            unsafe { libc::alarm(60) };
            assert!(!claim(9 * CLAIMED_AT_ONCE), "the child has no number");
            let before = harness::descriptors();
            let number = held.as_ref().map(|(served, _)| served.number.clone()).unwrap();
            number.forget_in_child();
            number.forget_in_child();
            // Lock, directory, stop, listener, core listener and its epoll set, core notifier,
            // connection.
            assert_eq!(harness::descriptors(), before - 8);
            // The numbers of the closed descriptors now belong to other files.
            let others: Vec<File> = (0..8).map(|_| File::open("/dev/null").unwrap()).collect();
            assert!(!claim(9 * CLAIMED_AT_ONCE));
            drop((number, held.take()));
            others.iter().for_each(|other| {
                assert!(other.metadata().is_ok(), "a descriptor of another file was closed")
            });
            to_test.write_all(b"forgotten\n").unwrap();
            let _ = (&gate).read(&mut [0]);
        });
        std::mem::forget(child);
        wait_for_ever();
    });
    drop(gate);
    let mut line = [0; 10];
    from_child.read_exact(&mut line).unwrap();
    // The child's calls have no effect on the parent.
    let machine = room.machine();
    assert_eq!(machine.neighbour(1).unwrap().microprocesses().unwrap().len(), 1);
    next_is(&room, 1);
    assert_eq!(take(&room).unwrap().location().space(), 2, "the number is taken");
    parent.kill();
    // The child is alive.
    assert!(machine.spaces().unwrap().is_empty());
    assert!(
        !room.path().join("1.socket").exists() && !room.path().join("1.ear").exists(),
        "the dead parent's files are removed"
    );
    next_is(&room, 1);
    let number = take(&room).unwrap();
    assert_eq!((number.location().space(), number.first_generation()), (1, CLAIMED_AT_ONCE));
    opens.write_all(b"x").unwrap();
}
