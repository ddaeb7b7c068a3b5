//! Damaged images: the store does not panic, hang or access data beyond the end, and reports every
//! error. `KUMI_HOSTILE` is the minimum number of images (1,000 by default; `make soak`: 10,000).

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kumihimo_proof::fuzz::{self, Report};
use kumihimo_proof::hostile::{self, Layout};
use kumihimo_proof::watch::Watchdog;
use kumihimo_proof::{clock, images};
use kumihimo_tests::{Random, rounds};

fn least() -> u64 {
    std::env::var("KUMI_HOSTILE")
        .map_or(1000, |text| text.parse().expect("KUMI_HOSTILE must be a whole number"))
}

#[test]
fn damaged_images_are_refused_or_survived() {
    let name = "damaged_images_are_refused_or_survived";
    if !images::programs(name) {
        return;
    }
    let watchdog = Watchdog::new(name);
    let seeds: Vec<(Vec<u8>, Layout)> = fuzz::seeds()
        .into_iter()
        .map(|image| {
            let layout = Layout::of(&image);
            (image, layout)
        })
        .collect();
    let mut sum = [0u64; 5];
    let mut failures = String::new();
    let mut rounds = rounds(name);
    let mut source = Random(kumihimo_tests::seed());
    while sum[0] < least() || rounds.next().is_some() {
        let seed = source.number();
        let mut random = Random(seed);
        let (good, layout) =
            &seeds[usize::try_from(random.below(seeds.len() as u64)).expect("small")];
        let mut image = good.clone();
        let damage = hostile::damage(&mut image, layout, &mut random);
        watchdog.step(format!("image {seed}: {damage}"));
        clock::reset();
        let copy = image.clone();
        match catch_unwind(AssertUnwindSafe(|| fuzz::exercise(image))) {
            Ok(Ok(Report { opened, outcome, .. })) => {
                sum[1] += u64::from(opened);
                sum[2] += u64::from(outcome.damaged > 0);
                sum[3] += outcome.nodes as u64;
                sum[4] += outcome.done as u64;
            }
            Ok(Err(what)) => {
                let _ = writeln!(
                    failures,
                    "{seed}: {damage}: {what}; {}",
                    images::keep(&format!("hostile-{seed}"), &copy).display()
                );
            }
            Err(_) => {
                let _ = writeln!(
                    failures,
                    "{seed}: {damage}: a panic; {}",
                    images::keep(&format!("hostile-{seed}"), &copy).display()
                );
            }
        }
        sum[0] += 1;
        assert!(failures.lines().count() < 20, "{failures}");
    }
    let [images, opened, damaged, nodes, done] = sum;
    println!(
        "{images} images, {opened} opened, {damaged} with EIO, {nodes} nodes visited, {done} operations succeeded"
    );
    assert!(failures.is_empty(), "of {images}:\n{failures}");
    assert!(
        opened > images / 4 && damaged > images / 20,
        "some but not all damage must be detected"
    );
}

/// Processes the fuzzer's corpus again: the seeds, and images that once caused failures.
#[test]
fn corpus_images_are_handled() {
    let watchdog = Watchdog::new("corpus_images_are_handled");
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut count = 0;
    for file in std::fs::read_dir(&corpus).expect("the corpus") {
        let path = file.expect("a file of the corpus").path();
        watchdog.step(path.display().to_string());
        fuzz::image(&std::fs::read(&path).expect("a file of the corpus"));
        count += 1;
    }
    assert!(count >= 5, "{} has {count} files", corpus.display());
}
