//! A disk that fails from its nth access on: requests fail with `EIO`, no thread hangs or panics,
//! and data synced before is intact.

use kumihimo_proof::clock;
use kumihimo_proof::disks::{Failing, Memory, Recorder};
use kumihimo_proof::ext2::{FORMATS, Heard, open};
use kumihimo_proof::power::{Load, Size};
use kumihimo_proof::watch::Watchdog;
use kumihimo_proof::{images, paths};
use kumihimo_store::{Errno, Store};
use kumihimo_tests::{Round, rounds};

/// Number of disks in a round.
const DISKS: u64 = 60;

#[test]
fn synced_data_survives_a_failing_disk() {
    let name = "synced_data_survives_a_failing_disk";
    if !images::programs(name) {
        return;
    }
    let watchdog = Watchdog::new(name);
    let image = FORMATS[0].image();
    let (mut failed, mut checked) = (0, 0);
    for Round { number, mut random } in rounds(name) {
        for disk_number in 0..DISKS {
            watchdog.step(format!("round {number}, disk {disk_number}"));
            clock::reset();
            let memory = Memory::new(image.clone());
            let heard = Heard::default();
            // Positions in the ledger count recorded writes. The recorder is above the failing
            // disk.
            let well = if random.one_in(3) { random.below(60) } else { random.below(1500) };
            let recorder = Recorder::new(memory.clone());
            let failing = Failing::new(recorder.clone(), well);
            let Ok(store) = open(failing.clone(), &heard, 128 << 10) else {
                assert!(failing.fails(), "failed although the disk works");
                continue;
            };
            let size = Size { write: 20_000, offset: 400_000, files: 30, moves: true };
            let mut load = Load::new(&store, recorder.clone(), random.split(), size);
            let mut wrong = 0;
            for _ in 0..120 {
                clock::tick();
                if let Err(what) = load.step() {
                    assert!(failing.fails(), "{what} although the disk works: {:#?}", load.log);
                    let honest = [Errno::IO, Errno::ROFS]
                        .iter()
                        .any(|errno| what.ends_with(&errno.to_string()));
                    assert!(honest, "{what}: {:#?}", load.log);
                    wrong += 1;
                    if wrong > 20 {
                        break;
                    }
                }
            }
            let ledger = std::mem::take(&mut load.ledger);
            let log = std::mem::take(&mut load.log);
            drop(load);
            let dirty = failing.fails() && wrong > 0;
            if dirty {
                assert!(!heard.all().is_empty(), "a failing disk must cause a message");
                failed += 1;
            }
            let _ = store.close();
            drop(store);
            let repaired = images::repair(&memory.image())
                .unwrap_or_else(|what| panic!("disk {disk_number}, failing after {well}: {what}"));
            let store = open(Memory::new(repaired.image), &heard, 1 << 20).expect("repaired");
            let position = recorder.position();
            checked += ledger.certain(position);
            let result = if repaired.asked {
                // A directory was being moved, so its path is unknown.
                let contents = paths::all_contents(&store).expect("all can be read");
                ledger.check_anywhere(position, &contents)
            } else {
                ledger.check(position, |path| match paths::contents(&store, path) {
                    Ok(contents) => Ok(Some(contents)),
                    Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
                    Err(errno) => Err(format!("{path}: {errno}")),
                })
            };
            result.unwrap_or_else(|what| {
                panic!("disk {disk_number}, failing after {well}: {what}: {log:#?}")
            });
        }
    }
    println!("{failed} disks failed during the load, {checked} files checked");
    assert!(failed > 10 && checked > 10);
}
