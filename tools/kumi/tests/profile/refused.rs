//! Programs that cannot be profiled, and profiles that end early.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use kumihimo_tests::process::{self, send_signal};
use rustix::process::Signal;

use super::served::{Folder, Served, eventually, one_to_one, told, wait_for_ever};

fn idle(test: &str, folder: &Folder) -> Served {
    folder.served(test, |all| !all.is_empty())
}

#[test]
fn absent_programs_are_named() {
    let test = "refused::absent_programs_are_named";
    if process::is_child(test) {
        return wait_for_ever();
    }
    let folder = Folder::new(test);
    let refuses = |args: &[&str], want: i32, why: &str| {
        let (code, said, complaints) = folder.profile(args);
        assert_eq!((code, &*said), (want, ""), "{args:?}: {complaints}");
        assert!(complaints.contains(why), "{args:?}: {complaints}");
        assert_eq!(complaints.lines().count(), 1, "{args:?}: {complaints}");
    };
    refuses(&[], 1, "no program on Kumihimo runs");
    refuses(&["4194303"], 1, "there is no process 4194303");
    // This process has not joined.
    let own = std::process::id().to_string();
    refuses(&[&own], 1, "does not run on Kumihimo");
    refuses(&["--", "/no/such/program"], 127, "/no/such/program: no such program");
    refuses(&["--", "/etc/passwd"], 126, "/etc/passwd");
    if one_to_one(test) {
        return;
    }
    let (one, _other) = (idle(test, &folder), idle(test, &folder));
    eventually("both are there", || {
        let (_, _, complaints) = folder.profile(&["--stacks"]);
        complaints.contains("2 programs run")
    });
    drop(one);
}

#[test]
fn second_profile_is_refused_and_an_interrupted_one_keeps_what_it_has() {
    let test = "refused::second_profile_is_refused_and_an_interrupted_one_keeps_what_it_has";
    if process::is_child(test) {
        return wait_for_ever();
    }
    if one_to_one(test) {
        return;
    }
    let folder = Folder::new(test);
    let served = idle(test, &folder);
    let pid = served.pid();
    let first = folder
        .command(&["--off-cpu", "--seconds", "86400", "-f", "folded", &pid])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kumi");
    eventually("the first profile is in progress", || served.is_profiled());
    let (code, _, complaints) = folder.profile(&["--stacks", &pid]);
    assert!(code == 1 && complaints.contains("another client is profiling"), "{complaints}");
    send_signal(first.id(), Signal::INT).expect("it runs");
    let (code, said, complaints) = told(&first.wait_with_output().expect("kumi"));
    assert_eq!((code, &*complaints), (0, ""));
    assert!(said.contains("[unpark] "), "{said}");
    // And a client that dies ends its profile.
    let mut first =
        folder.command(&["--seconds", "86400", &pid]).stderr(Stdio::null()).spawn().expect("kumi");
    eventually("the profile is in progress", || served.is_profiled());
    first.kill().expect("it runs");
    first.wait().expect("it runs");
    eventually("the profile has ended", || folder.profile(&["--stacks", &pid]).0 == 0);
}

#[test]
fn end_of_the_program_ends_its_profile() {
    let test = "refused::end_of_the_program_ends_its_profile";
    if process::is_child(test) {
        return wait_for_ever();
    }
    if one_to_one(test) {
        return;
    }
    let folder = Folder::new(test);
    let served = idle(test, &folder);
    let pid = served.pid();
    let profile = folder
        .command(&["--off-cpu", "--seconds", "86400", "-f", "folded", &pid])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kumi");
    eventually("the profile is in progress", || served.is_profiled());
    drop(served);
    let (code, said, complaints) = told(&profile.wait_with_output().expect("kumi"));
    // The program may have ended before it had sent anything.
    assert!(
        code == 0 && said.contains("[unpark] ") || complaints.contains("ended"),
        "{code}: {said}{complaints}"
    );
}

#[test]
fn program_that_ends_at_once_leaves_its_exit_code() {
    let test = "refused::program_that_ends_at_once_leaves_its_exit_code";
    if process::is_child(test) {
        return;
    }
    if one_to_one(test) {
        return;
    }
    let folder = Folder::new(test);
    // `kumi doctor` is written for Kumihimo, and `--version` starts no runtime.
    let (code, _, complaints) = folder.profile(&["--", env!("CARGO_BIN_EXE_kumi"), "--version"]);
    assert!(code == 0 && complaints.contains("ended before"), "{code}: {complaints}");
    let (code, _, complaints) = folder.profile(&["--", env!("CARGO_BIN_EXE_kumi"), "--nonsense"]);
    assert!(code == 2 && complaints.contains("ended before"), "{code}: {complaints}");
}

#[test]
fn stripped_program_is_shown_by_addresses() {
    let test = "refused::stripped_program_is_shown_by_addresses";
    if process::is_child(test) {
        return wait_for_ever();
    }
    if one_to_one(test) {
        return;
    }
    let folder = Folder::new(test);
    let stripped = folder.file("stripped");
    let own = std::env::current_exe().expect("this program");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(&own).status();
    if !strip.is_ok_and(|status| status.success()) {
        return kumihimo_tests::skip(test, "strip is not installed");
    }
    let child = process::command(test, &[]);
    let mut served = Command::new(&stripped)
        .args(child.get_args())
        .env("KUMI_TEST_CHILD", test)
        .env("KUMI_DIR", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("the stripped program");
    let pid = served.id().to_string();
    let mut text = String::new();
    eventually("the program can be profiled", || {
        let (code, said, _) = folder.profile(&["--stacks", "-f", "folded", &pid]);
        text = said;
        code == 0
    });
    let _ = served.kill();
    let _ = served.wait();
    // File and address in the file, which addr2line(1) resolves with the symbols.
    assert!(text.contains("+0x") && text.contains("[unpark] 1"), "{text}");
}

#[test]
fn foreign_users_are_refused() {
    let test = "refused::foreign_users_are_refused";
    if process::is_child(test) {
        return wait_for_ever();
    }
    if one_to_one(test) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return kumihimo_tests::skip(test, "only root can run programs of two users");
    }
    let folder = Folder::new(test);
    let served = idle(test, &folder);
    let user = kumihimo_tests::user::own_user();
    // A copy that this user may execute, and a run-time directory of its own.
    let place = std::env::temp_dir().join(format!("kumi-profile-user-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a folder");
    let kumi = place.join("kumi");
    std::fs::copy(env!("CARGO_BIN_EXE_kumi"), &kumi).expect("copied");
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).expect("open");
    let as_user = |args: &[&str]| {
        let output = Command::new(&kumi)
            .args(args)
            .env("KUMI_DIR", format!("/dev/shm/kumi-profile-{user}"))
            .uid(user)
            .gid(user)
            .output()
            .expect("kumi");
        told(&output)
    };
    let (code, _, complaints) = as_user(&["profile", &served.pid()]);
    let (in_code, _, in_complaints) =
        as_user(&["profile", "--in", folder.path().to_str().expect("UTF-8"), &served.pid()]);
    let _ = std::fs::remove_dir_all(&place);
    let _ = std::fs::remove_dir_all(format!("/dev/shm/kumi-profile-{user}"));
    assert!(code == 1 && complaints.contains("belongs to user 0"), "{complaints}");
    assert!(in_code == 1 && in_complaints.lines().count() == 1, "{in_complaints}");
}
