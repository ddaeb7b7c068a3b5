//! The power goes at random moments: whatever was written since the last flush is there, partly, or
//! not. `e2fsck -p` repairs it, and what was synced is there.

use kumihimo_proof::clock;
use kumihimo_proof::disks::{Memory, Recorder};
use kumihimo_proof::ext2::{FORMATS, Format, Heard, open};
use kumihimo_proof::power::{Load, Size, cut};
use kumihimo_proof::watch::Watchdog;
use kumihimo_proof::{images, paths};
use kumihimo_store::{Errno, Kind, Store};
use kumihimo_tests::{Random, Round, rounds};

/// Cuts of one load.
const CUTS: u64 = 12;
/// Loads of a round.
const LOADS: u64 = 4;

/// Blocks are used again and again here.
const SMALL: Format = Format {
    name: "small",
    size: 512 << 10,
    block: 1024,
    arguments: &["-b", "1024", "-I", "128", "-N", "64", "-m", "0"],
};

/// One load and its cuts; how many files had to be there, and how many directories were on their
/// way.
fn power(image: &[u8], format: &Format, random: &mut Random, watchdog: &Watchdog) -> (usize, u64) {
    clock::reset();
    // Half of the loads leave directories where they are: then nothing is asked, and all is found.
    let moves = random.one_in(2);
    let size = match format.name {
        "small" => Size { write: 30_000, offset: 60_000, files: 12, moves },
        _ => Size { write: 20_000, offset: 400_000, files: 40, moves },
    };
    // Short loads, so that what fails is short; and long ones.
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
            panic!("{}: {what}; done before: {:#?}", format.name, load.log);
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
        // The last one is no cut, but a power cut at rest.
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
                // A directory with two names: which of them e2fsck leaves, and with it where
                // everything below is, cannot be known (CAVEATS.md).
                return match paths::all_contents(&store) {
                    _ if !moves => Err("e2fsck asks, and no directory was moved".to_owned()),
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
                "{}: cut at {position} of {} ({end} before the close, which was {closed}), image {}: {what}\nbegun before: {before:#?}",
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
    println!("{cuts} cuts, {certain} files that had to be there, {asked} directories on their way");
    assert!(asked * 10 < cuts, "a question of e2fsck is the exception");
    assert!(certain > 100, "loads that sync nothing prove nothing");
}

/// Renames `/new` over `/old` after `before`, and does `after`; then power cuts at every place:
/// what `/old` says after each.
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
            let store = open(Memory::new(repaired.image), &heard, 1 << 20).expect("mounted again");
            let found = paths::contents(&store, "/old")
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            seen.insert(found.unwrap_or_else(|errno| {
                panic!("cut at {position} of {begin} to {}: {errno}", events.len())
            }));
        }
    }
    seen
}

/// What a name led to stays until it leads elsewhere, with a name in lost+found meanwhile: also
/// where lost+found has not been in memory for long. (Then it was gone before.)
#[test]
fn replaced_file_always_has_a_name() {
    if !images::programs("replaced_file_always_has_a_name") {
        return;
    }
    let forgets_lost_and_found = |store: &dyn Store| {
        // More than the cache holds, and what is asked for twice outlives what was asked for once.
        let file = paths::create(store, "/large").expect("made");
        assert_eq!(file.write(0, &vec![7; 1 << 20]), Ok(1 << 20));
        for _ in 0..4 {
            assert_eq!(paths::contents(store, "/large").map(|bytes| bytes.len()), Ok(1 << 20));
        }
    };
    let seen = renamed_over(forgets_lost_and_found, |_| ());
    assert!(seen.into_iter().eq(["new", "old"]), "either, and nothing else");
}

/// The same where what is replaced has another name, and loses that as well before anything is on
/// the disk. (Its inode was deleted first, while the disk's name still led there.)
#[test]
fn replaced_file_without_another_name_survives_until_its_successor_is_durable() {
    if !images::programs(
        "replaced_file_without_another_name_survives_until_its_successor_is_durable",
    ) {
        return;
    }
    let link = |store: &dyn Store| paths::link(store, "/old", "/other").expect("linked");
    let seen = renamed_over(link, |store| paths::unlink(store, "/other").expect("removed"));
    assert!(seen.into_iter().eq(["new", "old"]), "either, and nothing else");
}

/// A name that goes and comes again, in another block of its directory: what had it has the new one
/// first. (Then the name was there twice, and only one of them was found.)
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
    // Of 1,024 bytes a name of 200 takes 208: four of them and a short one are in the first block,
    // the next in the second; then there is room in the first.
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
            let store = open(Memory::new(repaired.image), &heard, 1 << 20).expect("mounted again");
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
