//! Power cuts at random moments: writes since the last flush are present, partly present, or
//! absent. `e2fsck -p` must repair the image, and synced data must be intact.

use kumihimo_proof::clock;
use kumihimo_proof::disks::{Memory, Recorder};
use kumihimo_proof::ext2::{FORMATS, Format, Heard, open};
use kumihimo_proof::power::{Load, Size, cut};
use kumihimo_proof::watch::Watchdog;
use kumihimo_proof::{images, paths};
use kumihimo_store::{Errno, Kind, Store};
use kumihimo_tests::{Random, Round, rounds};

/// Number of cuts for each load.
const CUTS: u64 = 12;
/// Number of loads in a round.
const LOADS: u64 = 4;

/// A small volume, on which blocks are reused often.
const SMALL: Format = Format {
    name: "small",
    size: 512 << 10,
    block: 1024,
    arguments: &["-b", "1024", "-I", "128", "-N", "64", "-m", "0"],
};

/// Runs one load with its cuts. Returns the number of files that had to be present, and the number
/// of cuts during a directory move.
fn power(image: &[u8], format: &Format, random: &mut Random, watchdog: &Watchdog) -> (usize, u64) {
    clock::reset();
    // Half of the loads move no directories: then e2fsck asks no question, and every path is known.
    let moves = random.one_in(2);
    let size = match format.name {
        "small" => Size { write: 30_000, offset: 60_000, files: 12, moves },
        _ => Size { write: 20_000, offset: 400_000, files: 40, moves },
    };
    // Short loads, which give short failure reports, and long ones.
    let steps = [6, 20, 60, 200][usize::try_from(random.below(4)).expect("small")];
    watchdog.step(format!("a load of {steps} steps on {}", format.name));
    let disk = Recorder::new(Memory::new(image.to_vec()));
    let heard = Heard::default();
    let store = open(disk.clone(), &heard, if random.one_in(2) { 128 << 10 } else { 8 << 20 })
        .expect("mounted");
    let mut load = Load::new(&store, disk.clone(), random.split(), size);
    for _ in 0..steps {
        clock::tick();
        if let Err(what) = load.step() {
            panic!("{}: {what}; operations before: {:#?}", format.name, load.log);
        }
    }
    let (end, log) = (disk.position(), std::mem::take(&mut load.log));
    let ledger = std::mem::take(&mut load.ledger);
    drop(load);
    let closed = random.one_in(3);
    if closed {
        store.close().expect("closed");
    }
    let events = disk.events();
    let (mut certain, mut asked) = (0, 0);
    for number in 0..CUTS {
        // The last cut is after the close, when all data is written.
        let position = if number == 0 {
            events.len()
        } else {
            usize::try_from(random.below(events.len() as u64 + 1)).expect("small")
        };
        watchdog.step(format!("a cut at {position} of {} on {}", events.len(), format.name));
        let image = cut(image, &events, position, random);
        certain += ledger.certain(position);
        let checked = images::repair(&image).and_then(|repaired| {
            asked += u64::from(repaired.asked);
            let store = open(Memory::new(repaired.image), &heard, 1 << 20)
                .map_err(|error| error.to_string())?;
            if repaired.asked {
                // A directory had two names: e2fsck keeps one of them, and the path of everything
                // below is unknown (`docs/src/reference/limits/mounts.md`).
                return match paths::all_contents(&store) {
                    _ if !moves => {
                        Err("e2fsck asked a question, but no directory was moved".to_owned())
                    }
                    Ok(contents) => ledger.check_anywhere(position, &contents),
                    Err(errno) => Err(errno.to_string()),
                };
            }
            ledger.check(position, |path| match paths::find(&store, path) {
                Ok(found) if found.kind == Kind::File => paths::contents(&store, path)
                    .map(Some)
                    .map_err(|errno| format!("{path}: {errno}")),
                Ok(found) => Err(format!("{path} is a {:?}", found.kind)),
                Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
                Err(errno) => Err(format!("{path}: {errno}")),
            })
        });
        if let Err(what) = checked {
            let before: Vec<_> = log.iter().filter(|(at, _)| *at <= position).collect();
            let before = &before[before.len().saturating_sub(80)..];
            panic!(
                "{}: cut at {position} of {} ({end} before the close, which was {closed}), image {}: {what}\noperations before: {before:#?}",
                format.name,
                events.len(),
                images::keep("power", &image).display(),
            );
        }
    }
    (certain, asked)
}

#[test]
fn synced_data_survives_a_power_cut() {
    let name = "synced_data_survives_a_power_cut";
    if !images::programs(name) {
        return;
    }
    let watchdog = Watchdog::new(name);
    let formats = [&SMALL, &FORMATS[0], &SMALL, &FORMATS[1], &FORMATS[3]];
    let formats = formats.map(|format| (format, format.image()));
    let (mut cuts, mut certain, mut asked) = (0, 0, 0);
    for Round { number, mut random } in rounds(name) {
        println!("round {number}");
        for _ in 0..LOADS {
            for (format, image) in &formats {
                let (files, questions) = power(image, format, &mut random, &watchdog);
                (certain, asked) = (certain + files, asked + questions);
                cuts += CUTS;
            }
        }
    }
    println!(
        "{cuts} cuts, {certain} files that had to be present, {asked} cuts during a directory move"
    );
    assert!(asked * 10 < cuts, "e2fsck asked questions too often");
    assert!(certain > 100, "too few synced files for a meaningful test");
}

/// Renames `/new` over `/old` after running `before`, then runs `after`, and cuts the power at
/// every position. Returns the set of contents of `/old` found after the cuts.
fn renamed_over(
    before: impl Fn(&dyn Store),
    after: impl Fn(&dyn Store),
) -> std::collections::BTreeSet<String> {
    let image = FORMATS[0].image();
    let disk = Recorder::new(Memory::new(image.clone()));
    let heard = Heard::default();
    let store = open(disk.clone(), &heard, 128 << 10).expect("mounted");
    let written = |path: &str, bytes: &[u8]| {
        let file = paths::create(&store, path).expect("made");
        assert_eq!(file.write(0, bytes), Ok(bytes.len()));
        file.sync(false).expect("synced");
    };
    written("/new", b"new");
    written("/old", b"old");
    before(&store);
    store.sync_all().expect("synced");
    let begin = disk.position();
    paths::rename(&store, "/new", "/old").expect("renamed");
    after(&store);
    store.sync_all().expect("synced");
    let events = disk.events();
    let mut random = Random(1);
    let mut seen = std::collections::BTreeSet::new();
    for position in begin..=events.len() {
        for _ in 0..4 {
            let repaired =
                images::repair(&cut(&image, &events, position, &mut random)).expect("repaired");
            let store = open(Memory::new(repaired.image), &heard, 1 << 20).expect("remounted");
            let found = paths::contents(&store, "/old")
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            seen.insert(found.unwrap_or_else(|errno| {
                panic!("cut at {position} of {begin} to {}: {errno}", events.len())
            }));
        }
    }
    seen
}

/// A replaced file keeps its name until the new file has it. The store gives the replaced file a
/// temporary name in lost+found, even if lost+found is not in the cache.
#[test]
fn replaced_file_always_has_a_name() {
    if !images::programs("replaced_file_always_has_a_name") {
        return;
    }
    let forgets_lost_and_found = |store: &dyn Store| {
        // More than the cache holds. Blocks that were read twice are evicted last.
        let file = paths::create(store, "/large").expect("made");
        assert_eq!(file.write(0, &vec![7; 1 << 20]), Ok(1 << 20));
        for _ in 0..4 {
            assert_eq!(paths::contents(store, "/large").map(|bytes| bytes.len()), Ok(1 << 20));
        }
    };
    let seen = renamed_over(forgets_lost_and_found, |_| ());
    assert!(seen.into_iter().eq(["new", "old"]), "old or new contents, nothing else");
}

/// The same for a replaced file whose other name is removed before anything is on the disk. Its
/// inode must not be deleted while the disk still refers to it.
#[test]
fn replaced_file_without_another_name_survives_until_its_successor_is_durable() {
    if !images::programs(
        "replaced_file_without_another_name_survives_until_its_successor_is_durable",
    ) {
        return;
    }
    let link = |store: &dyn Store| paths::link(store, "/old", "/other").expect("linked");
    let seen = renamed_over(link, |store| paths::unlink(store, "/other").expect("removed"));
    assert!(seen.into_iter().eq(["new", "old"]), "old or new contents, nothing else");
}

/// The old name of a renamed file is used again in another block of the directory. The rename must
/// reach the disk first: otherwise the name exists twice, and only one of the files can be found.
#[test]
fn reused_name_hides_no_file() {
    if !images::programs("reused_name_hides_no_file") {
        return;
    }
    let image = FORMATS[0].image();
    let disk = Recorder::new(Memory::new(image.clone()));
    let heard = Heard::default();
    let store = open(disk.clone(), &heard, 8 << 20).expect("mounted");
    let made = |path: &str| {
        let file = paths::create(&store, path).expect("made");
        assert_eq!(file.write(0, path.as_bytes()), Ok(path.len()));
    };
    // Of a block of 1,024 bytes, a 200-byte name takes 208. Four of them and a short one fill the
    // first block, the next goes into the second. Then space in the first block is freed.
    paths::make(&store, "/d", kumihimo_store::New::Directory { mode: 0o755 }).expect("made");
    let long = |letter: &str| format!("/d/{}", letter.repeat(200));
    made("/d/short");
    ["a", "b", "c", "d", "x"].into_iter().for_each(|letter| made(&long(letter)));
    paths::unlink(&store, &long("d")).expect("removed");
    store.sync_all().expect("synced");
    let begin = disk.position();
    paths::rename(&store, &long("x"), "/elsewhere").expect("renamed");
    paths::rename(&store, "/d/short", &long("x")).expect("renamed");
    store.sync_all().expect("synced");
    let events = disk.events();
    let mut random = Random(1);
    for position in begin..=events.len() {
        for _ in 0..8 {
            let repaired =
                images::repair(&cut(&image, &events, position, &mut random)).expect("repaired");
            let store = open(Memory::new(repaired.image), &heard, 1 << 20).expect("remounted");
            let is_at = |path: &str, contents: &str| {
                paths::contents(&store, path).is_ok_and(|bytes| bytes == contents.as_bytes())
            };
            let (x, short) = (long("x"), "/d/short");
            assert!(
                is_at(&x, &x) || is_at("/elsewhere", &x),
                "cut at {position} of {begin} to {}",
                events.len()
            );
            assert!(
                is_at(&x, short) || is_at(short, short),
                "cut at {position} of {begin} to {}",
                events.len()
            );
        }
    }
}
