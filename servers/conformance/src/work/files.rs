//! find, du, dd, cp, and many small files.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Tree, can, sh};

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

/// Compares the results of `find`, `du` and `dd` with those on the file system of `scratch`.
///
/// # Panics
/// If a result differs.
pub fn is_found_and_measured(sources: &Path, place: &Path, scratch: &Path) {
    if !can("find, du, dd", &["find", "du", "dd"]) {
        return;
    }
    let there = scratch.join("found");
    sh(sources, "cp", &["-a".as_ref(), "servers".as_ref(), there.as_os_str()]);
    sh(sources, "cp", &["-a".as_ref(), "servers".as_ref(), place.join("found").as_os_str()]);
    let here = place.join("found");
    let searches: [&[&str]; 5] = [
        &[".", "-printf", "%P %y %m %l %T@\n"],
        &[".", "-type", "f", "-name", "*.rs", "-size", "+4k"],
        &[".", "-type", "d", "-links", "+2"],
        &[".", "-newer", "kv/Cargo.toml"],
        &[".", "-type", "f", "-exec", "grep", "-l", "forbid(unsafe_code)", "{}", "+"],
    ];
    for arguments in searches {
        let (expected, found) =
            (lines(&sh(&there, "find", arguments)), lines(&sh(&here, "find", arguments)));
        let differing: Vec<_> = expected.symmetric_difference(&found).take(6).collect();
        assert!(!expected.is_empty() && differing.is_empty(), "find {arguments:?}: {differing:#?}");
    }
    // Sizes of directories depend on the file system and are excluded.
    let sizes = |place: &Path| sh(place, "find", &[".", "-type", "f", "-printf", "%s %P\n"]);
    assert_eq!(lines(&sizes(&there)), lines(&sizes(&here)));
    let used: u64 = sh(&here, "du", &["-sk", "."])
        .split('\t')
        .next()
        .and_then(|kb| kb.parse().ok())
        .expect("du(1)");
    assert!(used > 100, "{used}");
    // Copies of blocks: aligned, in the middle, at the end, truncated, and synced.
    for place in [&there, &here] {
        sh(
            place,
            "dd",
            &["if=/dev/zero", "of=dd", "bs=64k", "count=33", "status=none", "conv=fsync"],
        );
        let input = format!("if={}", there.join("kv/src/protocol/request.rs").display());
        sh(
            place,
            "dd",
            &[input.as_str(), "of=dd", "bs=1000", "seek=77", "conv=notrunc", "status=none"],
        );
        sh(
            place,
            "dd",
            &[
                "if=dd",
                "of=part",
                "bs=1",
                "skip=76999",
                "count=9000",
                "status=none",
                "conv=fdatasync",
            ],
        );
        sh(
            place,
            "dd",
            &[
                input.as_str(),
                "of=cut",
                "bs=512",
                "seek=3",
                "status=none",
                "oflag=append",
                "conv=notrunc",
            ],
        );
        sh(place, "dd", &["if=dd", "of=cut", "bs=4096", "seek=5", "count=1", "status=none"]);
    }
    Tree::of(&there).expect(&Tree::of(&here), "after dd");
}

/// `cp --sparse`: holes are preserved, and the contents are equal.
///
/// # Panics
/// If a copy differs.
pub fn copies_sparsely(place: &Path) {
    if !can("cp --sparse", &["cp", "truncate", "dd"]) {
        return;
    }
    let megabytes = |name: &str| place.join(name).metadata().expect("stat").blocks() / 2048;
    sh(place, "truncate", &["-s", "50M", "sparse"]);
    for at in ["3", "20", "49"] {
        let seek = format!("seek={at}");
        sh(
            place,
            "dd",
            &[
                "if=/dev/urandom",
                "of=sparse",
                "bs=1M",
                "count=1",
                &seek,
                "conv=notrunc",
                "status=none",
            ],
        );
    }
    sh(place, "sync", &["sparse"]);
    assert!((3..5).contains(&megabytes("sparse")), "{}", megabytes("sparse"));
    for (how, copy) in [("always", "always"), ("auto", "auto")] {
        sh(place, "cp", &[format!("--sparse={how}").as_str(), "sparse", copy]);
        sh(place, "cmp", &["sparse", copy]);
        sh(place, "sync", &[copy]);
        assert!((3..5).contains(&megabytes(copy)), "{how}: {}", megabytes(copy));
    }
    sh(place, "cp", &["--sparse=never", "sparse", "full"]);
    sh(place, "cmp", &["sparse", "full"]);
    sh(place, "sync", &["full"]);
    assert!(megabytes("full") >= 50, "{}", megabytes("full"));
    for name in ["sparse", "always", "auto", "full"] {
        std::fs::remove_file(place.join(name)).expect("it goes");
    }
}

/// Runs fio with several concurrent jobs: blocks of random sizes at random offsets, through the
/// page cache, with direct I/O, and by mapping. Each block has a checksum, which fio verifies when
/// it reads the block back.
/// # Panics
/// If a block differs from what was written.
pub fn verifies(place: &Path, seed: u64) {
    if !can("fio --verify", &["fio"]) {
        return;
    }
    let seed = format!("--randseed={}", seed >> 1);
    let jobs = [
        "--rw=randwrite",
        "--size=4m",
        "--numjobs=4",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_backlog=32",
    ];
    for how in [
        &["--name=cached", "--ioengine=psync", "--bsrange=1k-64k", "--bs_unaligned"][..],
        &["--name=synced", "--ioengine=psync", "--bsrange=4k-16k", "--fsync=16"],
        &["--name=direct", "--ioengine=psync", "--bsrange=4k-64k", "--direct=1"],
        &["--name=several", "--ioengine=libaio", "--bsrange=4k-32k", "--direct=1", "--iodepth=8"],
        &["--name=mapped", "--ioengine=mmap", "--bs=4k"],
    ] {
        let arguments =
            [how, &jobs[..], &[seed.as_str(), "--group_reporting", "--output-format=terse"]]
                .concat();
        sh(place, "fio", &arguments);
    }
}

/// Several threads create `count` small files. The files are read, and half of them are removed.
/// # Panics
/// If a file is missing or has wrong contents.
pub fn holds_many_small_files(place: &Path, count: usize) {
    const WRITERS: usize = 4;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for n in (writer..count).step_by(WRITERS) {
                    let directory = place.join(format!("{}", n % 50));
                    let _ = std::fs::create_dir(&directory);
                    std::fs::write(directory.join(format!("small-{n}")), format!("this is {n}"))
                        .expect("a small file");
                }
            });
        }
    });
    let check = |expected: &dyn Fn(usize) -> bool| {
        for n in 0..count {
            let path = place.join(format!("{}/small-{n}", n % 50));
            match std::fs::read_to_string(&path) {
                Ok(text) => assert!(expected(n) && text == format!("this is {n}"), "{n}: {text}"),
                Err(e) => assert!(!expected(n), "{n}: {e}"),
            }
        }
    };
    check(&|_| true);
    for n in (0..count).step_by(2) {
        std::fs::remove_file(place.join(format!("{}/small-{n}", n % 50))).expect("it goes");
    }
    check(&|n| n % 2 == 1);
    let listed: usize = (0..50)
        .map(|n| std::fs::read_dir(place.join(n.to_string())).map_or(0, Iterator::count))
        .sum();
    assert_eq!(listed, count / 2);
}
