//! The place of the run-time directory: where it is, and which places are passed over.

mod harness;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use harness::{Room, fork, is_root, mount, skip, with_mounts};
use kumihimo_machine::directory::Directory;
use kumihimo_machine::space::Number;
use kumihimo_machine::{Error, Machine};

/// A user other than root; the user need not have a name.
const SOMEBODY: u32 = 54321;

fn error_text<T>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Directory(text)) => text,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("the call succeeded"),
    }
}

/// Runs `body` in a process with these environment variables and no other relevant ones.
fn with_environment(variables: &[(&str, &Path)], uid: u32, body: impl FnOnce()) {
    fork(uid, || {
        // SAFETY: this process has one kernel thread.
        unsafe {
            std::env::remove_var("KUMI_DIR");
            std::env::remove_var("XDG_RUNTIME_DIR");
            variables.iter().for_each(|(name, value)| std::env::set_var(name, value));
        }
        body();
    })
    .ends_well();
}

#[test]
fn kumi_dir_selects_the_directory() {
    let room = Room::new();
    let (chosen, session) = (room.path(), room.0.join("session"));
    fs::create_dir(&session).unwrap();
    with_environment(&[("KUMI_DIR", &chosen), ("XDG_RUNTIME_DIR", &session)], 0, || {
        assert_eq!(Directory::mine().unwrap().path(), chosen);
        assert_eq!(Machine::mine().unwrap().path(), chosen);
        assert_eq!(Number::take().unwrap().directory(), chosen);
    });
    with_environment(&[("KUMI_DIR", Path::new("relative"))], 0, || {
        let Err(Error::Invalid(text)) = Directory::mine() else { panic!("the call succeeded") };
        assert!(text.contains("absolute"), "{text}");
    });
    let missing = room.0.join("missing/kumihimo");
    with_environment(&[("KUMI_DIR", &missing), ("XDG_RUNTIME_DIR", &session)], 0, || {
        let text = error_text(Directory::mine());
        assert!(text.contains(missing.to_str().unwrap()), "no other place is tried: {text}");
    });
}

#[test]
fn user_without_a_session_gets_the_next_place() {
    const NAME: &str = "user_without_a_session_gets_the_next_place";
    if !is_root() {
        return skip(NAME, "only root can change its user");
    }
    let room = Room::new();
    let (session, own) = (room.0.join("session"), room.0.join("own"));
    fs::create_dir(&session).unwrap();
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(SOMEBODY), None).unwrap();
    let mounts = |shm: &'static std::ffi::CStr, environment: &[(&str, &Path)], expected: &str| {
        with_mounts(NAME, || {
            mount(Path::new("/dev/shm"), shm, rustix::mount::MountFlags::empty());
            with_environment(environment, SOMEBODY, || {
                // The second process finds the directory that the first one created.
                assert_eq!(Directory::mine().unwrap().path(), Path::new(expected));
                assert_eq!(Directory::mine().unwrap().path(), Path::new(expected));
                let _ = fs::remove_dir(expected);
            });
        });
    };
    let shm = format!("/dev/shm/kumihimo-{SOMEBODY}");
    let tmp = format!("/tmp/kumihimo-{SOMEBODY}");
    mounts(c"mode=1777", &[], &shm);
    // A directory of another user, named by an inherited variable, is not used.
    mounts(c"mode=1777", &[("XDG_RUNTIME_DIR", &session)], &shm);
    mounts(c"mode=1777", &[("XDG_RUNTIME_DIR", &own)], own.join("kumihimo").to_str().unwrap());
    // If a place is full or read-only, the next one is used.
    mounts(c"mode=1777,nr_inodes=1", &[], &tmp);
    mounts(c"mode=0755", &[], &tmp);
}

/// What a stranger leaves at the first place.
type Plant<'a> = (&'a str, &'a dyn Fn(&Path));

#[test]
fn squatted_place_is_passed_over_by_server_and_client() {
    const NAME: &str = "squatted_place_is_passed_over_by_server_and_client";
    if !is_root() {
        return skip(NAME, "only root can mount, and change the owner of a directory");
    }
    let first = format!("/dev/shm/kumihimo-{SOMEBODY}");
    let tmp = format!("/tmp/kumihimo-{SOMEBODY}");
    let (first, tmp) = (Path::new(&first), Path::new(&tmp));
    let owned = |mode: u32, uid: u32| {
        move |path: &Path| {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(path, Some(uid), None).unwrap();
        }
    };
    let planted: [Plant<'_>; 6] = [
        ("belongs to user 54399", &owned(0o700, 54399)),
        ("belongs to user 54399", &owned(0o755, 54399)),
        ("writable by others", &owned(0o777, 54399)),
        ("writable by others", &owned(0o770, SOMEBODY)),
        ("not a directory", &|path| fs::write(path, "").unwrap()),
        ("symbolic link", &|path| symlink("/", path).unwrap()),
    ];
    for (part, plant) in planted {
        with_mounts(NAME, || {
            for place in ["/dev/shm", "/tmp"] {
                mount(Path::new(place), c"mode=1777", rustix::mount::MountFlags::empty());
            }
            plant(first);
            with_environment(&[], SOMEBODY, || {
                let server = Number::take().unwrap();
                assert_eq!(server.directory(), tmp);
                let directory = Directory::mine().unwrap();
                let [why] = directory.passed_over() else { panic!("{directory:?}") };
                assert!(why.contains(part) && why.contains(first.to_str().unwrap()), "{why}");
                let client = Machine::mine().unwrap();
                assert_eq!((client.path(), client.passed_over()), (tmp, directory.passed_over()));
            });
            // The place is free again, while the server may still run: it is not used, because
            // there is a directory at the other one.
            fs::rename(first, "/dev/shm/gone").unwrap();
            with_environment(&[], SOMEBODY, || {
                let directory = Directory::mine().unwrap();
                assert_eq!((directory.path(), directory.passed_over()), (tmp, &[][..]));
            });
            // Both are taken.
            fs::rename("/dev/shm/gone", first).unwrap();
            fs::remove_dir_all(tmp).unwrap();
            plant(tmp);
            with_environment(&[], SOMEBODY, || {
                let text = error_text(Directory::mine());
                for part in [first.to_str().unwrap(), tmp.to_str().unwrap(), "KUMI_DIR"] {
                    assert!(text.contains(part), "{text}");
                }
            });
        });
    }
}

#[test]
fn missing_and_unusual_places_are_passed_over_or_used() {
    const NAME: &str = "missing_and_unusual_places_are_passed_over_or_used";
    let shm = format!("/dev/shm/kumihimo-{SOMEBODY}");
    let tmp = format!("/tmp/kumihimo-{SOMEBODY}");
    with_mounts(NAME, || {
        for place in ["/dev", "/tmp"] {
            mount(Path::new(place), c"mode=1777", rustix::mount::MountFlags::empty());
        }
        // There is no /dev/shm: nothing is there that a user would have to know of.
        with_environment(&[], SOMEBODY, || {
            let directory = Directory::mine().unwrap();
            assert_eq!((directory.path(), directory.passed_over()), (Path::new(&tmp), &[][..]));
            fs::remove_dir(&tmp).unwrap();
        });
        // A mount without execution has no effect on a directory.
        mount(Path::new("/dev/shm"), c"mode=1777", rustix::mount::MountFlags::NOEXEC);
        with_environment(&[], SOMEBODY, || {
            assert_eq!(Number::take().unwrap().directory(), Path::new(&shm));
        });
        // The mode is changed while the directory is in use: others could write from now on.
        fs::set_permissions(&shm, PermissionsExt::from_mode(0o777)).unwrap();
        with_environment(&[], SOMEBODY, || {
            let directory = Directory::mine().unwrap();
            assert_eq!(directory.path(), Path::new(&tmp));
            assert!(directory.passed_over()[0].contains("writable by others"));
        });
    });
}
