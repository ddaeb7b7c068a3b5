//! Several threads on one store. Each thread compares its own tree with a model, and all threads
//! work in one common directory.

use std::sync::Arc;

use kumihimo_proof::disks::Memory;
use kumihimo_proof::ext2::{FORMATS, Heard, open};
use kumihimo_proof::watch::Watchdog;
use kumihimo_proof::{images, paths};
use kumihimo_store::{Errno, New, Store};
use kumihimo_tests::{Random, Round, rounds};

const THREADS: u64 = 4;
const STEPS: u64 = 400;

/// Expected contents of a thread's own directory, by name.
type Own = std::collections::BTreeMap<String, Vec<u8>>;

fn name(random: &mut Random, own: &str) -> String {
    format!("{own}/{}", random.below(12))
}

/// Operates in the common directory, where names appear and disappear at any time.
fn common(store: &dyn Store, random: &mut Random) {
    let (one, other) = (name(random, "common"), name(random, "common"));
    let result = match random.below(7) {
        0 | 1 => paths::create(store, &one)
            .and_then(|open| open.write(random.below(9000), &[7; 3000]).map(|_| ())),
        2 => paths::unlink(store, &one),
        3 => paths::rename(store, &one, &other),
        4 => paths::link(store, &one, &other),
        5 => paths::list(store, "common").map(|names| {
            let mut once = names.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), names.len(), "a name is listed once: {names:?}");
        }),
        _ => paths::open(store, &one).and_then(|open| {
            let contents = open.contents()?;
            assert!(
                contents.iter().all(|byte| *byte == 7 || *byte == 0),
                "bytes that no thread wrote"
            );
            open.sync(false)
        }),
    };
    assert!(
        matches!(result, Ok(()) | Err(Errno::NOENT | Errno::EXIST)),
        "in the common directory: {:?}",
        result
    );
}

fn own(store: &dyn Store, random: &mut Random, directory: &str, known: &mut Own) {
    let (one, other) = (name(random, directory), name(random, directory));
    match random.below(8) {
        0..=2 => {
            let bytes: Vec<u8> = (0..random.below(20_000))
                .map(|at| u8::try_from(at % 251).expect("a byte"))
                .collect();
            let opened = if known.contains_key(&one) {
                paths::open(store, &one)
            } else {
                paths::create(store, &one)
            };
            let opened = opened.expect("the own file");
            opened.truncate(0).and_then(|()| opened.write(0, &bytes)).expect("written");
            known.insert(one, bytes);
        }
        3 => assert_eq!(
            paths::unlink(store, &one).is_ok(),
            known.remove(&one).is_some(),
            "unlink {one}"
        ),
        4 if one != other => {
            assert_eq!(
                paths::rename(store, &one, &other).is_ok(),
                known.contains_key(&one),
                "rename {one} to {other}"
            );
            if let Some(bytes) = known.remove(&one) {
                known.insert(other, bytes);
            }
        }
        5 => {
            let there: Vec<String> = known
                .keys()
                .map(|path| path.rsplit('/').next().expect("a name").to_owned())
                .collect();
            let mut names = paths::list(store, directory).expect("the own directory");
            names.sort();
            let mut there: Vec<Vec<u8>> = there.into_iter().map(String::into_bytes).collect();
            there.sort();
            assert_eq!(names, there, "the own directory's names");
        }
        _ => match (paths::contents(store, &one), known.get(&one)) {
            (Ok(contents), Some(bytes)) => assert!(&contents == bytes, "{one}"),
            (Err(Errno::NOENT), None) => {}
            (contents, bytes) => {
                panic!("{one}: {:?}, {}", contents.map(|bytes| bytes.len()), bytes.is_some())
            }
        },
    }
}

#[test]
fn concurrent_threads_see_consistent_trees() {
    let name = "concurrent_threads_see_consistent_trees";
    if !images::programs(name) {
        return;
    }
    let watchdog = Watchdog::new(name);
    let format = &FORMATS[0];
    let image = format.image();
    for Round { number, mut random } in rounds(name) {
        watchdog.step(format!("round {number}"));
        let (disk, heard) = (Memory::new(image.clone()), Heard::default());
        let cache = if random.one_in(2) { 256 << 10 } else { 16 << 20 };
        let store = Arc::new(open(disk.clone(), &heard, cache).expect("mounted"));
        drop(paths::make(&*store, "common", New::Directory { mode: 0o755 }).expect("a directory"));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (store, mut random) = (Arc::clone(&store), random.split());
                std::thread::spawn(move || {
                    let directory = format!("own{thread}");
                    drop(
                        paths::make(&*store, &directory, New::Directory { mode: 0o755 })
                            .expect("a directory"),
                    );
                    let mut known = Own::new();
                    for _ in 0..STEPS {
                        match random.below(8) {
                            0..=3 => own(&*store, &mut random, &directory, &mut known),
                            4..=6 => common(&*store, &mut random),
                            _ if random.one_in(5) => store.sync_all().expect("sync"),
                            _ => drop(store.statistics().expect("statistics")),
                        }
                    }
                    known
                })
            })
            .collect();
        let known: Vec<Own> =
            threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).collect();
        store.close().expect("closed");
        assert!(heard.all().is_empty() && disk.beyond() == 0, "{:?}", heard.all());
        disk.with(images::clean).expect("clean");
        let again = open(disk, &heard, 1 << 20).expect("remounted");
        for (path, bytes) in known.iter().flatten() {
            assert!(
                &paths::contents(&again, path).expect("what was written") == bytes,
                "{path} afterwards"
            );
        }
    }
}
