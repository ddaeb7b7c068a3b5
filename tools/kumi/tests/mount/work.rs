//! Real workloads on a mount, and the resulting tree as other programs read it.

use std::path::{Path, PathBuf};

use kumihimo_conformance::work::{self, Tree};
use kumihimo_conformance::{Image, Mounted, Options, Organisation, Scratch};
use kumihimo_tests::{root, rounds};

use crate::ground::{can_mount, has_e2fsprogs, kumi};

/// Creates a directory for a job.
fn job(place: &Path, name: &str) -> PathBuf {
    let job = place.join(name);
    std::fs::create_dir(&job).expect(name);
    job
}

/// Runs every job, on a tree of sources.
fn all(sources: &Path, place: &Path, scratch: &Path) {
    work::clones(sources, &job(place, "git"));
    work::packs(sources, &job(place, "tar"), scratch);
    work::synchronises(sources, &job(place, "rsync"));
    work::builds(&job(place, "make"));
    work::maps(&job(place, "mmap"));
    work::keeps_a_database(&job(place, "sqlite"));
    work::is_found_and_measured(sources, &job(place, "find"), scratch);
    work::copies_sparsely(&job(place, "sparse"));
    work::holds_many_small_files(&job(place, "small"), 3000);
}

/// The sources with which workloads run on an image.
enum Sources {
    Repository,
    Excerpt,
}

fn on_ext2(name: &str, organisation: Organisation, block: u32, options: &[&str]) {
    with_sources(name, &Sources::Repository, organisation, block, options);
}

/// Runs workloads on an image through a mount. Then e2fsprogs and the kernel check and read the
/// image.
fn with_sources(
    name: &str,
    sources: &Sources,
    organisation: Organisation,
    block: u32,
    options: &[&str],
) {
    if !has_e2fsprogs(name) {
        return;
    }
    let (image, scratch) = (Image::new(1024, block), Scratch::new("work"));
    let sources = match sources {
        Sources::Repository => root(),
        Sources::Excerpt => work::excerpt(&root(), scratch.path()),
    };
    // With a write-back cache, the kernel keeps timestamps itself and sends them only when they
    // differ from those sent last. The store then stamps the write a few milliseconds later.
    let tree = if options.contains(&"--writeback") { Tree::of } else { Tree::with_attributes };
    let options = Options::new(organisation).with(options);
    let mounted = Mounted::start(kumi(), &options, image.path());
    all(&sources, mounted.path(), scratch.path());
    let (before, contents) = (tree(mounted.path()), Tree::of(mounted.path()));
    mounted.unmount();
    image.expect_clean();
    contents.expect(&Tree::of(&image.dump()), "read by debugfs");
    if let Some(kernel) = image.by_the_kernel(true) {
        before.expect(&tree(kernel.path()), "read by the kernel");
    }
    // Serve the image again, and end the server by a signal.
    let again = Mounted::start(kumi(), &options, image.path());
    before.expect(&tree(again.path()), "read again");
    again.terminate();
    image.expect_clean();
}

fn on_a_directory(name: &str, organisation: Organisation) {
    if !can_mount(name) {
        return;
    }
    let scratch = Scratch::new("work");
    let served = scratch.directory("served");
    let mounted = Mounted::start(kumi(), &Options::new(organisation), &served);
    all(&root(), mounted.path(), scratch.path());
    let through = Tree::with_attributes(mounted.path());
    through.expect(&Tree::with_attributes(&served), "the directory itself");
    mounted.unmount();
}

mod ext2 {
    use super::{Organisation, Sources, on_ext2, with_sources};

    fn with_4096(name: &str, organisation: Organisation) {
        on_ext2(name, organisation, 4096, &[]);
    }
    crate::organisations::organisations!(with_4096);

    /// `make test` runs this and omits the others, which do the same with ten times the files.
    #[test]
    fn excerpt_by_microprocesses() {
        let name = "work::ext2::excerpt_by_microprocesses";
        with_sources(name, &Sources::Excerpt, Organisation::Microprocesses, 4096, &[]);
    }

    #[test]
    fn blocks_of_1024() {
        on_ext2("work::ext2::blocks_of_1024", Organisation::Microprocesses, 1024, &[]);
    }

    #[test]
    fn writeback_and_readdirplus() {
        let options = ["--writeback", "--readdirplus"];
        on_ext2(
            "work::ext2::writeback_and_readdirplus",
            Organisation::Microprocesses,
            4096,
            &options,
        );
    }

    /// A cache that is smaller than a bitmap and an indirect block for each file.
    #[test]
    fn with_little_memory() {
        on_ext2(
            "work::ext2::with_little_memory",
            Organisation::KernelThreads,
            2048,
            &["--cache", "1m"],
        );
    }
}

/// Concurrent writers with verification of the contents, with a small and with a large cache.
mod verified {
    use super::{Image, Mounted, Options, Organisation, has_e2fsprogs, job, kumi, rounds, work};

    fn with(name: &str, organisation: Organisation, options: &[&str]) {
        if !has_e2fsprogs(name) {
            return;
        }
        let image = Image::new(256, 1024);
        for mut round in rounds(name) {
            let mounted =
                Mounted::start(kumi(), &Options::new(organisation).with(options), image.path());
            let place = job(mounted.path(), "fio");
            work::verifies(&place, round.random.below(u64::MAX));
            std::fs::remove_dir_all(place).expect("removed");
            mounted.unmount();
            image.expect_clean();
        }
    }

    #[test]
    fn by_microprocesses() {
        with("verified::by_microprocesses", Organisation::Microprocesses, &["--cache", "1m"]);
    }

    #[test]
    fn with_writeback() {
        with(
            "verified::with_writeback",
            Organisation::Microprocesses,
            &["--writeback", "--readdirplus"],
        );
    }

    #[test]
    fn by_kernel_threads() {
        with("verified::by_kernel_threads", Organisation::KernelThreads, &[]);
    }
}

#[test]
fn on_the_host_by_microprocesses() {
    on_a_directory("work::on_the_host_by_microprocesses", Organisation::Microprocesses);
}

#[test]
fn on_the_host_sequentially() {
    on_a_directory("work::on_the_host_sequentially", Organisation::Sequential);
}
