//! Actions of a VP towards a holder that does not leave the core: a dead, stopped, sleeping or
//! unresponsive holder, and a corrupted slot.

mod harness;

use harness::{
    Other, Room, Signal, goes, goes_before, is_over, now, patient, say, seat, skip, until, words,
};
use kumihimo_arbiter::board::Board;
use kumihimo_arbiter::board::overrides::Reason;
use kumihimo_arbiter::member::Member;
use kumihimo_arbiter::seat::{Bounds, Outcome};
use rustix::process::Signal as Sign;
use std::sync::Arc;
use std::time::Duration;

/// Body of the child processes of these tests. Does nothing in the test process itself.
#[test]
fn child() {
    let Some((path, words)) = words() else { return };
    let what: Vec<&str> = words.iter().map(String::as_str).collect();
    if what[0] == "scribbles" {
        return scribbles(&path);
    }
    let level: u8 = what[1].parse().expect("a level");
    let room = std::mem::ManuallyDrop::new(Room(path.parent().expect("a directory").to_owned()));
    // If the header is overwritten, the process cannot join.
    let Ok(board) = Board::open(&path) else { return };
    let member = Arc::new(Member::join(board, "child", 1, now(), &Signal).expect("a row"));
    let mut seat =
        seat(&member, 0, 5, if what[0] == "races" { Bounds::default() } else { patient() });
    match what[0] {
        // Runs one step after the other while it may.
        "steps" => {
            goes(&mut seat, 0, level);
            say("goes");
            while !is_over() {
                if seat.runs(level, now()) == Outcome::Wait {
                    say("waits");
                    goes(&mut seat, 0, level);
                    say("goes");
                }
            }
        }
        // Takes the core and never requests it again.
        "deaf" => {
            goes(&mut seat, 0, level);
            say("goes");
            while !is_over() {}
        }
        "sleeps" => {
            goes(&mut seat, 0, level);
            say("goes");
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        // Takes the core once, after the start signal.
        "queues" => {
            say("begins");
            let _ = std::io::stdin().read_line(&mut String::new());
            goes(&mut seat, 0, level);
            say("goes");
            let order = room.0.join("order");
            let mut order =
                std::fs::File::options().append(true).create(true).open(order).expect("a file");
            std::io::Write::write_all(&mut order, format!("{level}\n").as_bytes()).expect("room");
            seat.idle();
        }
        // Takes the core the given number of times, at changing levels.
        "races" => {
            let rounds: u64 = what[2].parse().expect("rounds");
            let mut random = u64::from(std::process::id());
            for _ in 0..rounds {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                goes(&mut seat, 0, (random >> 60) as u8);
                if random >> 50 & 3 == 0 {
                    let _ = seat.turn_over(level, now());
                }
                let _ = member.book(0, random >> 54, now());
                if random >> 40 & 7 != 0 {
                    seat.idle();
                }
            }
            seat.idle();
            say("done");
            until("the end", is_over);
        }
        _ => panic!("{words:?}"),
    }
}

/// Overwrites the whole board with random words, continuously.
fn scribbles(path: &std::path::Path) {
    let file = std::fs::File::options().read(true).write(true).open(path).expect("the board");
    let words = file.metadata().expect("it is there").len() as usize / 8;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: a new mapping of the whole file.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), words * 8, protection, flags, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: mapped permanently, aligned, and written by atomic stores only.
    let board =
        unsafe { std::slice::from_raw_parts(at.cast::<std::sync::atomic::AtomicU64>(), words) };
    say("goes");
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    while !is_over() {
        for _ in 0..10_000 {
            let value = match next() % 4 {
                // Plausible values: small rows, VPs and levels.
                0 => next() & 0xff01_0101_0103,
                1 => 0,
                _ => next(),
            };
            // Half of the writes hit the header and the first slots and rows, where the damage is
            // greatest.
            let at = if next() % 2 == 0 { next() as usize % 512 } else { next() as usize % words };
            board[at].store(value, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// Returns the override count and the last reason of process `pid`.
fn blamed(room: &Room, pid: u32) -> (u32, Option<Reason>) {
    let spaces = room.view().spaces();
    let space = spaces.iter().find(|space| space.pid == pid).expect("it is at the board");
    (space.overridden, space.reason)
}

#[test]
fn killed_holder_loses_its_core() {
    let room = Room::new();
    let member = room.member(1);
    let mut holder = Other::start(&room.path(), "steps 63");
    holder.expect("goes");
    let mut seat = seat(&member, 0, 5, Bounds::default());
    assert_eq!(seat.runs(0, now()), Outcome::Wait);
    assert_eq!(member.others(), 1);
    holder.child.kill().expect("it lives");
    holder.child.wait().expect("it ends");
    goes(&mut seat, 0, 0);
    assert_eq!(member.others(), 0, "it is counted as living");
    assert_eq!(room.view().overridden(), (1, holder.child.id()));
    // The row may already have another owner, yet the process can still be identified.
    let offenders = room.view().offenders();
    let seen: Vec<_> =
        offenders.iter().map(|one| (one.name.as_str(), one.pid, one.reason, one.times)).collect();
    assert_eq!(seen, [("child", holder.child.id(), Reason::Dead, 1)]);
}

#[test]
fn recount_records_killed_holder_once() {
    let room = Room::new();
    let member = room.member(1);
    let mut holder = Other::start(&room.path(), "steps 63");
    holder.expect("goes");
    holder.child.kill().expect("it lives");
    holder.child.wait().expect("it ends");
    member.recount();
    let offenders = room.view().offenders();
    assert_eq!(
        (offenders.len(), offenders[0].pid, offenders[0].reason),
        (1, holder.child.id(), Reason::Dead)
    );
    member.recount();
    assert_eq!(room.view().offenders().iter().map(|one| one.times).collect::<Vec<_>>(), [1]);
}

#[test]
fn killed_waiter_is_not_given_the_core() {
    let room = Room::new();
    let member = room.member(1);
    let mut mine = seat(&member, 0, 5, Bounds::default());
    let mut holder = Other::start(&room.path(), "steps 40");
    holder.expect("goes");
    let mut waiter = Other::start(&room.path(), "queues 30");
    waiter.expect("begins");
    waiter.go();
    until("it waits", || {
        room.view().cores().iter().any(|core| core.waiting.iter().any(|w| w.level == Some(30)))
    });
    waiter.child.kill().expect("it lives");
    waiter.child.wait().expect("it ends");
    assert_eq!(mine.runs(10, now()), Outcome::Wait);
    holder.ends();
    goes(&mut mine, 0, 10);
}

#[test]
fn stopped_holder_loses_its_core_and_takes_it_back() {
    let room = Room::new();
    let member = room.member(1);
    let mut holder = Other::start(&room.path(), "steps 63");
    holder.expect("goes");
    let mut seat = seat(&member, 0, 5, Bounds::default());
    assert_eq!(seat.runs(0, now()), Outcome::Wait);
    holder.signal(Sign::STOP);
    goes(&mut seat, 0, 0);
    assert_eq!(blamed(&room, holder.child.id()), (1, Some(Reason::Stopped)));
    holder.signal(Sign::CONT);
    until("the higher one takes its core back", || !seat.is_mine());
    assert_eq!(seat.runs(0, now()), Outcome::Wait);
    holder.ends();
}

#[test]
fn sleeping_holder_loses_its_core() {
    let room = Room::new();
    let member = room.member(1);
    let mut holder = Other::start(&room.path(), "sleeps 63");
    holder.expect("goes");
    let mut seat = seat(&member, 0, 5, Bounds::default());
    goes(&mut seat, 0, 0);
    assert_eq!(blamed(&room, holder.child.id()), (1, Some(Reason::Asleep)));
    holder.ends();
}

#[test]
fn unresponsive_holder_loses_its_core() {
    let room = Room::new();
    let member = room.member(1);
    let mut holder = Other::start(&room.path(), "deaf 63");
    holder.expect("goes");
    let mut seat = seat(&member, 0, 5, Bounds::default());
    goes(&mut seat, 0, 0);
    assert_eq!(blamed(&room, holder.child.id()), (1, Some(Reason::Unresponsive)));
    holder.ends();
}

#[test]
fn responsive_higher_holder_keeps_its_core() {
    let room = Room::new();
    let member = room.member(1);
    let mut holder = Other::start(&room.path(), "steps 63");
    holder.expect("goes");
    // Asked every 10 ms, with much time to acknowledge.
    let bounds = Bounds { quantum: Duration::from_millis(10), watchdog: Duration::from_secs(20) };
    let mut seat = seat(&member, 0, 5, bounds);
    assert!(!goes_before(&mut seat, 0, 62, now() + 300_000_000), "the lower one has the core");
    assert_eq!(blamed(&room, holder.child.id()), (0, None));
    holder.ends();
}

#[test]
fn equal_levels_take_turns() {
    let room = Room::new();
    let member = room.member(1);
    let mut holder = Other::start(&room.path(), "steps 7");
    holder.expect("goes");
    let mut seat = seat(&member, 0, 5, patient());
    assert_eq!(seat.runs(7, now()), Outcome::Wait);
    assert_eq!(seat.runs(8, now()), Outcome::Go, "the higher one goes at once");
    holder.expect("waits");
    assert_eq!(seat.turn_over(8, now()), Outcome::Go, "no VP waits at its level");
    assert_eq!(seat.runs(7, now()), Outcome::Go, "no lower than the waiter");
    for _ in 0..20 {
        assert_eq!(seat.turn_over(7, now()), Outcome::Wait);
        holder.expect("goes");
        // No quantum ends by itself in this test, so a request at a higher level takes the core.
        assert_eq!(seat.runs(8, now()), Outcome::Go);
        holder.expect("waits");
        assert_eq!(seat.runs(7, now()), Outcome::Go);
    }
    assert_eq!(blamed(&room, holder.child.id()), (0, None));
    drop(seat);
    holder.ends();
}

#[test]
fn waiters_get_the_core_by_level() {
    let room = Room::new();
    let member = room.member(1);
    let mut seat = seat(&member, 0, 5, patient());
    let mut others: Vec<Other> = [4, 9, 1, 7, 3, 8, 0, 6, 2, 5]
        .iter()
        .map(|level| Other::start(&room.path(), &format!("queues {level}")))
        .collect();
    others.iter_mut().for_each(|other| other.expect("begins"));
    // Taken only once all children run: starting a process sleeps in the kernel, for which a holder
    // would lose its core.
    assert_eq!(seat.runs(63, now()), Outcome::Go);
    others.iter_mut().for_each(Other::go);
    until("all of them wait", || {
        room.view().cores().iter().any(|core| core.core == 5 && core.waiting.len() == 10)
    });
    let cores = room.view().cores();
    let core = &cores[0];
    assert_eq!((cores.len(), core.core, core.holder.expect("held").level), (1, 5, Some(63)));
    let levels: Vec<u8> = core.waiting.iter().map(|stand| stand.level.expect("a level")).collect();
    assert_eq!(levels, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    seat.idle();
    others.iter_mut().for_each(|other| other.expect("goes"));
    others.into_iter().for_each(Other::ends);
    let order = std::fs::read_to_string(room.0.join("order")).expect("they wrote it");
    assert_eq!(
        order.lines().collect::<Vec<_>>(),
        ["9", "8", "7", "6", "5", "4", "3", "2", "1", "0"]
    );
}

#[test]
fn racing_processes_all_finish() {
    let room = Room::new();
    let mut others: Vec<Other> =
        (0..10).map(|_| Other::start(&room.path(), "races 3 300")).collect();
    others.iter_mut().for_each(|other| other.expect("done"));
    // All members are there and none needs the core, so it is free.
    assert_eq!(room.view().spaces().len(), 10);
    assert_eq!(room.view().cores(), []);
    others.into_iter().for_each(Other::ends);
    assert_eq!(room.view().spaces(), []);
}

#[test]
fn corrupting_process_is_identified_and_blocks_no_vp() {
    let room = Room::new();
    let member = room.member(1);
    // Opened first: the magic number will soon be overwritten.
    let view = room.view();
    assert_eq!(view.offenders(), []);
    let mut scribbler = Other::start(&room.path(), "scribbles");
    scribbler.expect("goes");
    // A view opened now may find no magic number.
    let scribbles =
        |pid| view.offenders().iter().any(|one| (one.pid, one.reason) == (pid, Reason::Corrupted));
    until("the process is identified", || scribbles(scribbler.child.id()));
    let view_now = room.view();
    assert!(
        view_now.offenders().iter().any(|one| one.pid == scribbler.child.id()),
        "a view opened later identifies it"
    );
    assert!(!scribbles(std::process::id()), "only the corrupting process is reported");
    let mut others: Vec<Other> = Vec::new();
    let mut seat = seat(&member, 0, 5, Bounds::default());
    // The magic number is being overwritten, so a process may be unable to join.
    for _ in 0..3 {
        if let Ok(board) = Board::open(&room.path()) {
            drop(board);
            others.push(Other::start(&room.path(), "races 3 30"));
        }
    }
    for round in 0..50 {
        goes(&mut seat, 0, round % 64);
        let _ = seat.turn_over(round % 64, now());
        seat.tick(now());
        let _ = member.book(0, 1_000, now());
        seat.idle();
        if round % 16 == 0 {
            member.recount();
        }
    }
    if let Ok(view) = kumihimo_arbiter::view::View::open(&room.path()) {
        for space in view.spaces() {
            assert!(space.vps <= 64 && !space.name.chars().any(char::is_control));
        }
        assert!(
            view.cores()
                .iter()
                .flat_map(|c| c.holder)
                .all(|h| h.level.is_none_or(|level| level < 64))
        );
    }
    // A process that joined before the header was overwritten finishes too. The others have ended
    // with an error.
    for mut other in others {
        while !matches!(other.line().as_str(), "done" | "") {}
    }
    scribbler.ends();
    // Once the corruption stops, the count is correct again.
    member.recount();
    assert_eq!(member.others(), 0);
    assert!(view.offenders().iter().all(|one| one.reason != Reason::Corrupted), "it has ended");
}

#[test]
fn member_in_other_pid_namespace_can_be_overridden() {
    let room = Room::new();
    let member = room.member(1);
    let exe = std::env::current_exe().expect("this program");
    let can = std::process::Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "true"])
        .output();
    if !can.is_ok_and(|output| output.status.success()) {
        return skip(
            "member_in_other_pid_namespace_can_be_overridden",
            "no pid namespaces for this user",
        );
    }
    let mut child = std::process::Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child"])
        .arg(exe)
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env("KUMI_ARBITER_CHILD", format!("{} deaf 63", room.path().display()))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a process");
    let says = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let stdin = child.stdin.take();
    let mut holder = Other { child, says, stdin };
    holder.expect("goes");
    let mut seat = seat(&member, 0, 5, Bounds::default());
    goes(&mut seat, 0, 0);
    assert_eq!(room.view().overridden().0, 1);
    holder.ends();
}

#[test]
fn roaming_vp_prefers_free_then_lowest_core() {
    let room = Room::new();
    let (here, there) = (room.member(2), room.member(2));
    let (mut first, mut second) = (seat(&there, 0, 5, patient()), seat(&there, 1, 6, patient()));
    let mut mine = seat(&here, 0, 5, patient()).with_cores([5, 6].into_iter());
    let better =
        |seat: &kumihimo_arbiter::seat::Seat, level, roams| seat.better_core(level, roams, now());
    // The current core is free.
    assert_eq!(better(&mine, 10, true), None);
    assert_eq!(first.runs(30, now()), Outcome::Go);
    assert_eq!(better(&mine, 10, true), Some(6), "that core is free");
    assert_eq!(better(&mine, 10, false), None, "it is to stay");
    assert_eq!(second.runs(20, now()), Outcome::Go);
    assert_eq!(better(&mine, 20, true), None, "no holder is lower");
    assert_eq!(better(&mine, 40, true), Some(6), "both holders are lower, this one more so");
    mine.move_to(6);
    assert_eq!(mine.runs(40, now()), Outcome::Go);
    assert!(mine.is_mine() && mine.holds().is_mine() && !second.is_mine() && first.is_mine());
    assert_eq!(better(&mine, 40, true), None, "it has the core");
    assert_eq!(better(&mine, 40, false), Some(5), "it must return to its home core");
    mine.move_to(5);
    assert!(second.is_mine() || second.runs(20, now()) == Outcome::Go, "it left");
    assert_eq!(mine.runs(40, now()), Outcome::Go);
    assert!(!first.is_mine());
}
