//! Boards whose file another process truncates while they are in use: no process ends, and no
//! wake-up is lost.

mod harness;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::{Other, Room, Signal, goes, now, patient, say, seat, until, words};
use kumihimo_arbiter::board::{self, Board};
use kumihimo_arbiter::member::Member;
use kumihimo_arbiter::row::{Reach, SleepMode};
use kumihimo_arbiter::seat::{Bounds, Outcome};

/// Handles SIGBUS as the runtime does.
fn handle_bus_errors() {
    extern "C" fn on_bus(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel passes a valid siginfo; the default action ends the process when the
        // access is repeated.
        unsafe {
            if !board::recover((*info).si_addr() as usize) {
                libc::signal(libc::SIGBUS, libc::SIG_DFL);
            }
        }
    }
    static INSTALLED: Once = Once::new();
    // SAFETY: all zeroes are a valid sigaction, and the handler is async-signal-safe.
    INSTALLED.call_once(|| unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()), 0);
    });
}

fn truncate(room: &Room, length: u64) {
    let file = File::options().write(true).open(room.path()).expect("it is ours");
    file.set_len(length).expect("it is shorter");
}

/// Body of the child processes of these tests. Does nothing in the test process itself.
#[test]
fn child() {
    let Some((path, words)) = words() else { return };
    handle_bus_errors();
    let board = Board::open(&path).expect("a board");
    let fd = std::fs::read_dir("/proc/self/fd")
        .expect("a list of descriptors")
        .flatten()
        .find(|entry| entry.path().read_link().is_ok_and(|target| target == path))
        .and_then(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let member =
        std::sync::Arc::new(Member::join(board, "child", 1, now(), &Signal).expect("a row"));
    let mut seat = seat(&member, 0, 5, Bounds::default());
    let cut = || File::options().write(true).open(&path).expect("ours").set_len(0).expect("cut");
    match words[0].as_str() {
        // A limit below the board's size forbids the repair.
        "limited" => {
            let limit = libc::rlimit { rlim_cur: 4096, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: a live struct rlimit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
            cut();
        }
        // The program closed the board's descriptor, and opened a file of its own there.
        "reused" => {
            let own = File::create(path.with_file_name("own")).expect("a file");
            // SAFETY: replaces the descriptor by a copy of another one.
            unsafe { assert!(libc::dup2(own.as_raw_fd(), fd.expect("the board's")) >= 0) };
            cut();
        }
        // Truncated more often than a process repairs it.
        "again" => (0..300_u32).for_each(|level| {
            cut();
            let _ = seat.runs((level % 64) as u8, now());
            seat.idle();
        }),
        other => panic!("{other}"),
    }
    assert_eq!(seat.runs(20, now()), Outcome::Go);
    member.recount();
    seat.idle();
    assert!(member.board().expect("a board").0.truncations().1, "it has left");
    say("goes on");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn truncated_board_is_repaired() {
    handle_bus_errors();
    let room = Room::new();
    let (first, second) = (room.member(2), room.member(1));
    let (mut a, mut b) = (seat(&first, 0, 5, patient()), seat(&second, 0, 5, patient()));
    for length in [0, 64, 4096, 70_000] {
        truncate(&room, length);
        let _ = a.runs(20, now());
        let _ = b.runs(30, now());
        first.recount();
        second.recount();
        a.idle();
        b.idle();
        assert_eq!([first.others(), second.others()], [1, 1]);
        let names = room.view().spaces().iter().map(|space| space.vps).collect::<Vec<_>>();
        assert_eq!(names, [2, 1], "both are found by observers again");
        // Arbitration continues.
        assert_eq!(a.runs(20, now()), Outcome::Go);
        assert_eq!(b.runs(19, now()), Outcome::Wait);
        b.idle();
        a.idle();
    }
    assert!(first.board().expect("a board").0.truncations().0 > 0);
}

#[test]
fn sleeping_vps_are_woken_by_the_repair() {
    handle_bus_errors();
    let room = Room::new();
    let member = room.member(2);
    let cells = member.row().cells;
    let asleep = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            cells[0].prepare_sleep(SleepMode::Futex);
            asleep.store(true, Ordering::Release);
            cells[0].sleep(None, Reach::Shared);
            cells[0].finish_sleep();
        });
        until("it is about to sleep", || asleep.load(Ordering::Acquire));
        truncate(&room, 0);
        until("it is awake", || {
            // As a waker does. Either the sleep is seen, or the repair has ended it.
            match cells[0].claim_wake() {
                Some(SleepMode::Futex) => cells[0].wake(Reach::Shared),
                Some(SleepMode::Descriptors) | None => {}
            }
            sleeper.is_finished()
        });
    });
    // A VP that sleeps on descriptors is still found asleep, so that its waker writes to one.
    cells[1].prepare_sleep(SleepMode::Descriptors);
    truncate(&room, 0);
    assert_eq!(cells[1].claim_wake(), Some(SleepMode::Descriptors));
}

#[test]
fn board_that_cannot_be_repaired_is_left() {
    for how in ["limited", "reused", "again"] {
        let room = Room::new();
        let mut other = Other::start(&room.path(), how);
        other.expect("goes on");
        other.ends();
        if how == "reused" {
            assert_eq!(room.0.join("own").metadata().expect("a file").len(), 0, "written to");
        }
    }
}

#[test]
fn observer_survives_a_truncation() {
    let room = Room::new();
    let view = {
        drop(Board::open(&room.path()).expect("a board"));
        room.view()
    };
    truncate(&room, 0);
    assert_eq!(view.cores(), []);
    assert_eq!(view.spaces(), []);
    assert_eq!(view.offenders(), []);
    assert_eq!((view.overridden(), view.feedback()), ((0, 0), None));
}

#[test]
fn endless_truncation_stops_no_member() {
    handle_bus_errors();
    let room = Room::new();
    let members = [room.member(1), room.member(1)];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(room.path()).expect("it is ours");
            while !is_over.load(Ordering::Relaxed) {
                file.set_len(0).expect("it is cut");
                // A repair in between is overwritten too.
                let _ = file.write_all_at(&[0xff_u8; 64], 4096);
            }
        });
        let steps = members.each_ref().map(|member| {
            scope.spawn(|| {
                let bounds = Bounds {
                    quantum: Duration::from_millis(1),
                    watchdog: Duration::from_millis(5),
                };
                let mut seat = seat(member, 0, 5, bounds);
                for round in 0..200 {
                    goes(&mut seat, 0, round % 64);
                    seat.tick(now());
                    member.recount();
                    seat.idle();
                }
            })
        });
        for thread in steps {
            thread.join().expect("it finishes");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
