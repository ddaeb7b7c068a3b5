//! Tests of the suite itself: the kernel's ext2 driver agrees with itself and runs all workloads.

use std::path::Path;

use kumihimo_conformance::work::{self, Tree};
use kumihimo_conformance::{Image, Scratch, compare};
use kumihimo_tests::{root, skip};

#[test]
fn kernels_ext2_agrees_with_itself() {
    let name = "kernels_ext2_agrees_with_itself";
    if !rustix::process::geteuid().is_root() || !Image::can_be_made() {
        return skip(name, "not root, or no e2fsprogs here");
    }
    let (one, other) = (Image::new(256, 4096), Image::new(256, 4096));
    let (Some(a), Some(b)) = (one.by_the_kernel(false), other.by_the_kernel(false)) else {
        return skip(name, "no loop mounts of ext2 here");
    };
    let compared = compare(a.path(), b.path(), &[]);
    compared.expect_equal(name);
    assert!(compared.cases >= 600, "{}", compared.cases);
    drop((a, b));
    one.expect_clean();
}

#[test]
fn kernels_ext2_runs_the_workloads() {
    let name = "kernels_ext2_runs_the_workloads";
    if !rustix::process::geteuid().is_root() || !Image::can_be_made() {
        return skip(name, "not root, or no e2fsprogs here");
    }
    let image = Image::new(1024, 1024);
    let Some(kernel) = image.by_the_kernel(false) else {
        return skip(name, "no loop mounts of ext2 here");
    };
    let all = |place: &Path, scratch: &Path| {
        let job = |name: &str| {
            let job = place.join(name);
            std::fs::create_dir(&job).expect(name);
            job
        };
        work::clones(&root(), &job("git"));
        work::packs(&root(), &job("tar"), scratch);
        work::synchronises(&root(), &job("rsync"));
        work::builds(&job("make"));
        work::maps(&job("mmap"));
        work::keeps_a_database(&job("sqlite"));
        work::is_found_and_measured(&root(), &job("find"), scratch);
        work::copies_sparsely(&job("sparse"));
        work::holds_many_small_files(&job("small"), 3000);
    };
    let scratch = Scratch::new("work");
    all(kernel.path(), scratch.path());
    let (before, contents) = (Tree::with_attributes(kernel.path()), Tree::of(kernel.path()));
    drop(kernel);
    image.expect_clean();
    contents.expect(&Tree::of(&image.dump()), "by debugfs");
    let again = image.by_the_kernel(true).expect("it was mounted before");
    before.expect(&Tree::with_attributes(again.path()), "by the kernel");
}
