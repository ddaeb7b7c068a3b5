//! The board's file: refused files, and concurrent creation; members, forks, shares and feedback.

mod harness;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::sync::Arc;
use std::time::Duration;

use harness::{Other, Room, Signal, now, patient, say, seat, skip, until, words};
use kumihimo_arbiter::board::Board;
use kumihimo_arbiter::board::Error;
use kumihimo_arbiter::feedback::Rule;
use kumihimo_arbiter::member::Member;
use kumihimo_arbiter::row::Row;
use kumihimo_arbiter::seat::{Bounds, Outcome};
use kumihimo_arbiter::share::Share;
use kumihimo_arbiter::view::View;

/// Body of the child processes of these tests. Does nothing in the test process itself.
#[test]
fn child() {
    let Some((path, words)) = words() else { return };
    match words[0].as_str() {
        "opens" => {
            let _ = std::io::stdin().read_line(&mut String::new());
            let board = Board::open(&path).expect("a board");
            let member = Member::join(board, "opens", 1, now(), &Signal).expect("a row");
            say(&format!("row {}", member.board().expect("a board").1));
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        // A user without rights reports the errors of both openings.
        "nobody" => {
            // SAFETY: integers, and an empty list.
            unsafe {
                assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
                assert_eq!(libc::setresgid(65_534, 65_534, 65_534), 0);
                assert_eq!(libc::setresuid(65_534, 65_534, 65_534), 0);
            }
            say(&Board::open(&path).expect_err("it is another user's").to_string());
            say(&View::open(&path).expect_err("it is another user's").to_string());
        }
        "forks" => {
            let room =
                std::mem::ManuallyDrop::new(Room(path.parent().expect("a directory").to_owned()));
            let member = room.member(1);
            let mut mine = seat(&member, 0, 5, patient());
            // SAFETY: the child takes no lock that another kernel thread could hold.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                member.forget_in_child();
                // The child is the only member of its board, and changes nothing in its parent's
                // row.
                let ok =
                    member.others() == 0 && mine.is_mine() && mine.runs(63, now()) == Outcome::Go;
                member.row().cells[0].set_thread(1);
                drop(mine);
                drop(member);
                // SAFETY: exits or pauses this process; the alarm ends it after the test.
                unsafe {
                    if !ok {
                        libc::_exit(1);
                    }
                    libc::prctl(libc::PR_SET_PDEATHSIG, 0);
                    libc::alarm(60);
                    libc::pause();
                    libc::_exit(0);
                }
            }
            assert_ne!(member.row().cells[0].thread(), Some(1));
            say(&format!("forked {child}"));
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        other => panic!("{other}"),
    }
}

fn refused(room: &Room, what: &str) {
    for error in [Board::open(&room.path()).map(drop), View::open(&room.path()).map(drop)] {
        let error = error.expect_err("it is refused").to_string();
        assert!(error.contains(what), "{error}");
        assert!(error.contains(&room.path().display().to_string()), "{error}");
        assert!(error.contains("KUMI_ARBITER"), "{error}");
    }
}

#[test]
fn symbolic_link_is_refused() {
    let room = Room::new();
    let elsewhere = room.0.join("elsewhere");
    for target in ["elsewhere", "nowhere"] {
        File::create(&elsewhere).expect("a file");
        symlink(target, room.path()).expect("a link");
        refused(&room, "symbolic link");
        std::fs::remove_file(room.path()).expect("it is there");
    }
    assert_eq!(elsewhere.metadata().expect("it is there").len(), 0, "written through the link");
    assert!(!room.0.join("nowhere").exists(), "made through the link");
}

#[test]
fn directory_and_pipe_are_refused() {
    let room = Room::new();
    std::fs::create_dir(room.path()).expect("a directory");
    let error = Board::open(&room.path()).expect_err("a directory").to_string();
    assert!(error.contains("not a regular file"), "{error}");
    std::fs::remove_dir(room.path()).expect("it is there");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        room.path(),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a pipe");
    refused(&room, "not a regular file");
}

#[test]
fn file_writable_by_others_is_refused() {
    let room = Room::new();
    drop(Board::open(&room.path()).expect("a board"));
    assert_eq!(room.path().metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(room.path(), PermissionsExt::from_mode(0o620)).expect("it is ours");
    refused(&room, "other users can write");
}

#[test]
fn other_contents_are_refused_and_left_alone() {
    let room = Room::new();
    std::fs::write(room.path(), "my only copy").expect("room");
    refused(&room, "not a board");
    assert_eq!(std::fs::read(room.path()).expect("it is there"), b"my only copy");
    std::fs::write(room.path(), "x").expect("room");
    refused(&room, "not a board");
}

#[test]
fn board_of_other_version_is_refused() {
    let room = Room::new();
    drop(Board::open(&room.path()).expect("a board"));
    let file = File::options().write(true).open(room.path()).expect("it is ours");
    file.write_all_at(&7u32.to_le_bytes(), 8).expect("room");
    refused(
        &room,
        &format!("version 7, this program supports version {}", kumihimo_arbiter::board::VERSION),
    );
    assert!(matches!(Board::open(&room.path()), Err(Error::Version { found: 7, .. })));
}

#[test]
fn truncated_board_is_refused() {
    let room = Room::new();
    drop(Board::open(&room.path()).expect("a board"));
    let file = File::options().write(true).open(room.path()).expect("it is ours");
    let length = file.metadata().expect("it is there").len();
    for wrong in [length - 4096, length + 4096, 64] {
        file.set_len(wrong).expect("room");
        refused(&room, &format!("{wrong} bytes long"));
    }
}

#[test]
fn unfinished_board_is_completed() {
    let room = Room::new();
    drop(Board::open(&room.path()).expect("a board"));
    let file = File::options().write(true).open(room.path()).expect("it is ours");
    // The creating process died before it wrote the magic number, and then before it allocated
    // anything.
    file.write_all_at(&[0; 8], 0).expect("room");
    let error = View::open(&room.path()).expect_err("unfinished").to_string();
    assert!(error.contains("not finished"), "{error}");
    assert_eq!(room.member(1).others(), 0);
    file.set_len(0).expect("room");
    drop(Board::open(&room.path()).expect("a board"));
    drop(View::open(&room.path()).expect("a board"));
}

#[test]
fn locked_board_times_out() {
    let room = Room::new();
    let file = File::create(room.path()).expect("a file");
    file.set_permissions(PermissionsExt::from_mode(0o600)).expect("it is ours");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
    assert!(matches!(Board::open(&room.path()), Err(Error::Busy(_))));
    drop(file);
    drop(Board::open(&room.path()).expect("a board"));
}

#[test]
fn full_file_system_is_reported() {
    if !rustix::process::geteuid().is_root() {
        return skip("full_file_system_is_reported", "only root can mount one");
    }
    let room = Room::new();
    let options = std::ffi::CString::new("size=64k").expect("no nul");
    if let Err(e) = rustix::mount::mount(
        "none",
        &room.0,
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        options.as_c_str(),
    ) {
        return skip("full_file_system_is_reported", &format!("no mounting here ({e})"));
    }
    let outcome = std::panic::catch_unwind(|| {
        let error = Board::open(&room.path()).expect_err("there is no room");
        assert!(matches!(error, Error::Full(..)), "{error}");
        assert!(error.to_string().contains("free some space"), "{error}");
        // The failed creation leaves the remaining space free.
        assert_eq!(room.path().metadata().expect("it is there").len(), 0);
        File::create(room.0.join("other"))
            .and_then(|mut file| file.write_all(&[1; 4096]))
            .expect("there is room for this");
    });
    rustix::mount::unmount(&room.0, rustix::mount::UnmountFlags::DETACH).expect("it is mounted");
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn board_of_other_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return skip("board_of_other_user_is_refused", "only root can become another user");
    }
    let room = Room::new();
    std::fs::set_permissions(&room.0, PermissionsExt::from_mode(0o755)).expect("it is ours");
    drop(Board::open(&room.path()).expect("a board"));
    // With mode 0600 the child cannot open the board, with 0644 it can open it for reading.
    for mode in [0o600, 0o644] {
        std::fs::set_permissions(room.path(), PermissionsExt::from_mode(mode)).expect("it is ours");
        let mut nobody = Other::start(&room.path(), "nobody");
        nobody.expect("or set KUMI_ARBITER to another path or to none");
        nobody.expect("or set KUMI_ARBITER to another path or to none");
        nobody.ends();
    }
    // Conversely, root does not use a board of another user.
    std::fs::set_permissions(room.path(), PermissionsExt::from_mode(0o600)).expect("it is ours");
    std::os::unix::fs::chown(room.path(), Some(65_534), Some(65_534)).expect("root may");
    refused(&room, "belongs to user 65534, not to user 0");
}

#[test]
fn sixteen_processes_create_one_board() {
    let room = Room::new();
    let mut others: Vec<Other> = (0..16).map(|_| Other::start(&room.path(), "opens")).collect();
    others.iter_mut().for_each(Other::go);
    let mut rows: Vec<String> = others
        .iter_mut()
        .map(|other| {
            loop {
                let line = other.line();
                assert!(!line.is_empty(), "it ended");
                if line.starts_with("row ") {
                    break line;
                }
            }
        })
        .collect();
    rows.sort();
    rows.dedup();
    assert_eq!(rows.len(), 16);
    let view = room.view();
    let mut pids: Vec<u32> = view.spaces().iter().map(|space| space.pid).collect();
    let mut children: Vec<u32> = others.iter().map(|other| other.child.id()).collect();
    pids.sort_unstable();
    children.sort_unstable();
    assert_eq!(pids, children);
    assert!(view.spaces().iter().all(|space| space.name == "opens" && space.vps == 1));
    others.into_iter().for_each(Other::ends);
    assert_eq!(view.spaces(), []);
}

#[test]
fn members_are_counted_as_they_come_and_go() {
    let room = Room::new();
    let first = room.member(1);
    assert_eq!(first.others(), 0);
    let second = room.member(2);
    let third = room.member(64);
    assert_eq!([first.others(), second.others(), third.others()], [2, 2, 2]);
    assert_eq!(first.other_row(1).expect("a row").cells.len(), 2);
    assert!(first.other_row(256).is_none());
    drop(second);
    assert_eq!([first.others(), third.others()], [1, 1]);
    // The row is taken again, without remains of the former member.
    let again = room.member(3);
    assert_eq!(again.board().expect("a board").1, 1);
    drop((again, third));
    assert_eq!(first.others(), 0);
}

#[test]
fn excess_members_and_vps_are_refused() {
    let room = Room::new();
    let board = Board::open(&room.path()).expect("a board");
    let error = Member::join(board, "x", 65, now(), &Signal).expect_err("65 cells").to_string();
    assert!(error.contains("65 virtual processors"), "{error}");
    let members: Vec<_> = (0..256).map(|_| room.member(1)).collect();
    let board = Board::open(&room.path()).expect("a board");
    let error = Member::join(board, "x", 1, now(), &Signal).expect_err("257 rows").to_string();
    assert!(error.contains("all 256 rows are taken"), "{error}");
    assert_eq!(members[0].others(), 255);
    drop(members);
    assert_eq!(room.member(1).others(), 0);
}

#[test]
fn forked_child_is_no_member() {
    let room = Room::new();
    let member = room.member(1);
    let mut parent = Other::start(&room.path(), "forks");
    let child: i32 = loop {
        let line = parent.line();
        assert!(!line.is_empty(), "it ended");
        if let Some(child) = line.strip_prefix("forked ") {
            break child.parse().expect("a process id");
        }
    };
    assert_eq!(member.others(), 1);
    // The parent dies while its child lives: no process holds the row.
    parent.child.kill().expect("it lives");
    parent.child.wait().expect("it ends");
    let child = rustix::process::Pid::from_raw(child).expect("a process id");
    let ended = rustix::process::test_kill_process(child).is_err();
    until("its row is free", || {
        member.recount();
        member.others() == 0
    });
    assert!(!ended, "the child found another member");
    rustix::process::kill_process(child, rustix::process::Signal::KILL).expect("it lives");
}

#[test]
fn private_member_never_waits() {
    let member = Arc::new(Member::private(Row::private(2)));
    let mut seat = seat(&member, 0, 5, Bounds::default());
    assert_eq!((member.others(), seat.is_mine()), (0, true));
    assert_eq!(seat.runs(0, now()), Outcome::Go);
    assert_eq!(seat.turn_over(0, now()), Outcome::Go);
    assert_eq!(seat.look(now()), Outcome::Go);
    assert!(!member.book(0, 1_000_000, now()));
    assert!(!member.waited());
}

#[test]
fn hard_share_applies_without_others() {
    const MS: u64 = 1_000_000;
    let member = Arc::new(Member::private(Row::private(1)));
    member.set_share(Share::new(250, Duration::from_millis(100), true));
    let mut seat = seat(&member, 0, 5, Bounds::default());
    assert_eq!(seat.runs(40, 1_000 * MS), Outcome::Go);
    assert!(!member.book(0, 20 * MS, 1_020 * MS));
    assert!(member.book(0, 10 * MS, 1_030 * MS), "its share is used up");
    assert_eq!(seat.runs(40, 1_030 * MS), Outcome::Wait);
    assert!(!seat.is_mine(), "it would not sleep");
    assert_eq!(seat.nap(1_099 * MS), Duration::from_millis(1));
    assert_eq!(seat.look(1_099 * MS), Outcome::Wait);
    assert_eq!(seat.look(1_100 * MS), Outcome::Go);
    // A debt of 5 ms remains.
    assert!(seat.is_mine());
    assert!(member.book(0, 20 * MS, 1_150 * MS));
    assert_eq!(seat.runs(63, 1_199 * MS), Outcome::Wait);
    // The VP no longer has the microprocess that it was to run.
    seat.idle();
    assert!(seat.is_mine());
}

#[test]
fn used_up_share_ranks_below_all_others() {
    const MS: u64 = 1_000_000;
    let room = Room::new();
    let (high, low) = (room.member(1), room.member(1));
    high.set_share(Share::new(500, Duration::from_millis(10), false));
    let (mut a, mut b) = (seat(&high, 0, 5, patient()), seat(&low, 0, 5, patient()));
    assert_eq!(a.runs(63, 100 * MS), Outcome::Go);
    assert_eq!(b.runs(0, 100 * MS), Outcome::Wait);
    assert!(high.book(0, 5 * MS, 105 * MS));
    assert_eq!(a.runs(63, 105 * MS), Outcome::Wait);
    assert!(b.is_mine());
    assert_eq!(b.look(105 * MS), Outcome::Go);
    b.idle();
    assert!(a.is_mine(), "no other VP needs the core");
    assert_eq!(a.look(106 * MS), Outcome::Go);
    assert_eq!(b.runs(0, 107 * MS), Outcome::Go);
    assert_eq!(a.runs(63, 108 * MS), Outcome::Wait);
    assert_eq!(a.look(110 * MS), Outcome::Go, "a new period");
    assert_eq!(room.view().spaces()[0].share, high.share());
}

#[test]
fn feedback_rule_applies_to_all_members() {
    const MS: u64 = 1_000_000;
    let room = Room::new();
    let (hog, other) = (room.member(1), room.member(1));
    hog.set_feedback(Rule::new(Duration::from_millis(4), 2, 10));
    assert_eq!(other.feedback(), hog.feedback());
    let (mut a, mut b) = (seat(&hog, 0, 5, patient()), seat(&other, 0, 5, patient()));
    assert_eq!(a.runs(20, 0), Outcome::Go);
    assert_eq!(b.runs(19, 0), Outcome::Wait);
    assert!(!hog.book(0, 4 * MS, 4 * MS));
    assert!(hog.book(0, 4 * MS, 8 * MS), "two quanta used up: a level lower");
    assert_eq!(a.runs(20, 8 * MS), Outcome::Go, "19, as the other one");
    assert_eq!(a.turn_over(20, 8 * MS), Outcome::Wait);
    assert_eq!(b.look(8 * MS), Outcome::Go);
    assert_eq!(room.view().spaces()[0].sunk, 1);
    // The address space waits, and rises to its former level.
    a.idle();
    assert!(hog.waited());
    assert_eq!(a.runs(20, 9 * MS), Outcome::Go);
    assert!(!b.is_mine());
}
