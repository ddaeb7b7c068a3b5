//! Kills a server while it writes. Data that was fsynced before must be present afterwards.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use kumihimo_tests::Random;

use crate::image::Image;
use crate::mounted::{Mounted, Options};

/// A durable file: its name, and the seed and the length of its contents.
struct Promised {
    name: String,
    seed: u64,
    length: usize,
}

/// Number of concurrent writers.
const WRITERS: u64 = 3;

fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let words = (0..length.div_ceil(8)).flat_map(|_| random.number().to_ne_bytes());
    words.take(length).collect()
}

/// Repeats on one image: mounts the image, writes, kills the server at a random moment, repairs the
/// image, mounts it again, and checks the contents.
///
/// # Panics
/// If fsynced data is missing or wrong, `e2fsck -p` needs an answer, or a client of the killed
/// server hangs.
pub fn kill_while_writing(
    kumi: &Path,
    options: &Options,
    image: &Image,
    times: u64,
    random: &mut Random,
) {
    let mut kept: Vec<Promised> = Vec::new();
    for round in 0..times {
        let mounted = Mounted::start(kumi, options, image.path());
        for promised in &kept {
            check(mounted.path(), promised, round);
        }
        // Free space for the following rounds.
        if round % 8 == 7 {
            kept.clear();
            for entry in std::fs::read_dir(mounted.path()).expect("a list") {
                let path = entry.expect("an entry").path();
                if path.is_dir() && !path.ends_with("lost+found") {
                    std::fs::remove_dir_all(&path).expect("it can be emptied");
                }
            }
        }
        let delay = Duration::from_micros(random.below(400_000));
        let (point, seeds) =
            (mounted.path(), (0..WRITERS).map(|_| random.split()).collect::<Vec<_>>());
        let point = point.to_owned();
        let killed_after = Instant::now();
        let promised = std::thread::scope(|scope| {
            let writers: Vec<_> = seeds
                .into_iter()
                .enumerate()
                .map(|(writer, random)| {
                    let directory = point.join(format!("{round}-{writer}"));
                    let name = format!("{round}-{writer}");
                    scope.spawn(move || write(&directory, &name, random))
                })
                .collect();
            std::thread::sleep(delay.saturating_sub(killed_after.elapsed()));
            mounted.kill();
            writers
                .into_iter()
                .flat_map(|writer| writer.join().expect("a writer ends"))
                .collect::<Vec<_>>()
        });
        kept.extend(promised);
        image.repair();
    }
    let mounted = Mounted::start(kumi, options, image.path());
    for promised in &kept {
        check(mounted.path(), promised, times);
    }
    mounted.unmount();
    image.expect_clean();
}

fn check(point: &Path, promised: &Promised, round: u64) {
    let Promised { name, seed, length } = promised;
    let found = std::fs::read(point.join(name))
        .unwrap_or_else(|e| panic!("round {round}: {name} was fsynced: {e}"));
    // The file may be longer: an append after the last fsync may have reached the disk.
    assert!(found.len() >= *length, "round {round}: {name}: {} of {length} bytes", found.len());
    let wrong =
        found.iter().zip(content(*seed, *length)).position(|(found, expected)| *found != expected);
    assert!(wrong.is_none(), "round {round}: {name}: byte {wrong:?} of {length} is wrong");
}

/// Writes until the server is dead. Returns the files that were fsynced.
fn write(directory: &Path, prefix: &str, mut random: Random) -> Vec<Promised> {
    let mut promised = Vec::new();
    let parent = directory.parent().expect("the mount point");
    let begun = std::fs::create_dir(directory).and_then(|()| File::open(parent)?.sync_all());
    if begun.is_err() {
        return promised;
    }
    let mut log = (random.number(), 0);
    for n in 0u64.. {
        let name = format!("file-{n}");
        let done = match random.below(6) {
            // A new file, durable once fsync returns.
            0..=2 => new_file(directory, &name, &mut random).map(|(seed, length)| {
                promised.push(Promised { name: format!("{prefix}/{name}"), seed, length });
            }),
            // A growing log file.
            3 => append(&directory.join("log"), log.0, log.1, random.below(3000) as usize).map(
                |length| {
                    log.1 = length;
                    let name = format!("{prefix}/log");
                    promised.retain(|promised| promised.name != name);
                    promised.push(Promised { name, seed: log.0, length });
                },
            ),
            // Operations without fsync, which guarantee nothing.
            4 => noise(directory, n, &mut random),
            // Replaces a file like an editor: writes a new file, syncs it, and renames it over the
            // old one. Either the new or the old contents must be present.
            _ => replace(directory, n, &mut random),
        };
        if done.is_err() {
            break;
        }
    }
    promised
}

fn new_file(directory: &Path, name: &str, random: &mut Random) -> io::Result<(u64, usize)> {
    let (seed, length) = (random.number(), random.below(60_000) as usize);
    let mut file = File::create_new(directory.join(name))?;
    file.write_all(&content(seed, length))?;
    file.sync_all()?;
    Ok((seed, length))
}

fn append(log: &Path, seed: u64, from: usize, more: usize) -> io::Result<usize> {
    let mut file = OpenOptions::new().append(true).create(true).open(log)?;
    file.write_all(&content(seed, from + more)[from..])?;
    if from == 0 {
        file.sync_all()?
    } else {
        file.sync_data()?
    }
    Ok(from + more)
}

fn noise(directory: &Path, n: u64, random: &mut Random) -> io::Result<()> {
    let inner = directory.join(format!("noise-{}", random.below(5)));
    match random.below(4) {
        0 => std::fs::create_dir_all(&inner)?,
        1 if inner.exists() => std::fs::remove_dir_all(&inner)?,
        2 if inner.exists() => {
            std::fs::write(inner.join(format!("{n}")), content(n, random.below(20_000) as usize))?
        }
        _ => {
            let (from, to) = (directory.join("moving"), directory.join("moved"));
            std::fs::write(&from, content(n, 100))?;
            std::fs::rename(from, to)?;
        }
    }
    Ok(())
}

fn replace(directory: &Path, n: u64, random: &mut Random) -> io::Result<()> {
    let beside = directory.join("document.new");
    let mut file = File::create(&beside)?;
    file.write_all(&content(n, random.below(10_000) as usize))?;
    file.sync_all()?;
    std::fs::rename(beside, directory.join("document"))
}
