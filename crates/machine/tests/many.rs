//! Thousands of processes that join and die concurrently, killed at any point, while others list
//! and clean up.

mod harness;

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use harness::{Double, Process, Room, fork};
use kumihimo_machine::Error;
use kumihimo_resource::serials::CLAIMED_AT_ONCE;
use rustix::fs::{FlockOperation, fcntl_lock};

const PROCESSES: u32 = 2_000;
/// Number of processes that live at the same time.
const AT_ONCE: usize = 100;

/// Joins, and records its number independently of the directory: in a witness file, locked while
/// the number is used, and in a log.
fn live(room: &Room, n: u32) {
    // Reserves a descriptor below all later ones. The kernel closes a process's descriptors in
    // their order, so the witness is unlocked before the number.
    let low = fs::File::open("/dev/null").unwrap();
    let served = room.serve(Double::with(1));
    let witness = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(room.0.join(format!("witness-{}", served.space)));
    let mut low: std::os::fd::OwnedFd = low.into();
    rustix::io::dup2(witness.unwrap(), &mut low).unwrap();
    fcntl_lock(&low, FlockOperation::NonBlockingLockExclusive)
        .expect("a number has one holder at a time");
    let first = served.number.first_generation();
    let more = n.is_multiple_of(3);
    if more {
        assert!(served.number.claim()(first + 2 * CLAIMED_AT_ONCE));
    }
    let end = first + if more { 2 } else { 1 } * CLAIMED_AT_ONCE;
    let mut log = OpenOptions::new().append(true).open(room.0.join("log")).unwrap();
    log.write_all(format!("{} {first} {end}\n", served.space).as_bytes()).unwrap();
    if n.is_multiple_of(5) {
        assert_eq!(served.neighbour().microprocesses().unwrap().len(), 1);
    }
    // Some processes leave in order, some exit at once, and some wait to be killed.
    match n % 4 {
        0 => drop((served, low)),
        1 => std::mem::forget((served, low)),
        _ => harness::wait_for_ever(),
    }
}

#[test]
fn thousands_join_and_die_at_once() {
    let room = Room::new();
    room.directory();
    fs::write(room.0.join("log"), "").unwrap();
    let room = &room;
    // Forks from a process with a single kernel thread.
    fork(0, || {
        let mut living: Vec<Process> = Vec::new();
        for n in 0..PROCESSES {
            living.push(fork(0, || live(room, n)));
            if living.len() == AT_ONCE {
                // Kills the processes at any point: just started, joining or ending.
                living.drain(..).for_each(Process::kill_if_it_lives);
            }
            if n.is_multiple_of(7) {
                // All processes compete for numbers that are in use or just became free.
                let next = OpenOptions::new()
                    .create(true)
                    .truncate(false)
                    .write(true)
                    .open(room.path().join("next"));
                next.unwrap().write_at(b"0000000001\n", 0).unwrap();
            }
            // Every tenth process lists the address spaces and removes dead ones.
            if n.is_multiple_of(10) {
                match room.machine().spaces() {
                    Ok(spaces) => {
                        for mut one in spaces.into_iter().take(2) {
                            match one.space() {
                                Ok(space) => assert_eq!(space.id.location().space(), one.number()),
                                Err(Error::Gone(_)) => {}
                                Err(e) => panic!("{e:?}"),
                            }
                        }
                    }
                    Err(e) => panic!("{e:?}"),
                }
            }
        }
        living.into_iter().for_each(Process::kill_if_it_lives);
    })
    .ends_well();
    assert!(room.machine().spaces().unwrap().is_empty());
    let sockets = fs::read_dir(room.path())
        .unwrap()
        .flatten()
        .filter(|one| one.file_name().to_string_lossy().contains("socket"));
    assert_eq!(sockets.count(), 0, "all sockets are removed");

    let log = fs::read_to_string(room.0.join("log")).unwrap();
    let mut used: HashMap<u32, Vec<(u32, u32)>> = HashMap::new();
    let mut count = 0;
    for line in log.lines() {
        let [number, first, end] =
            line.split(' ').map(|part| part.parse().unwrap()).collect::<Vec<_>>()[..]
        else {
            panic!("{line}")
        };
        used.entry(number).or_default().push((first, end));
        count += 1;
    }
    assert!(count > PROCESSES / 10, "most processes joined: {count}");
    for (number, mut used) in used {
        used.sort_unstable();
        assert!(used.windows(2).all(|two| two[0].1 <= two[1].0), "{number}: {used:?}");
    }
}
