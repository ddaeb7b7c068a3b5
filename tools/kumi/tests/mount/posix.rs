//! POSIX conformance, compared with the kernel's driver or with the served directory itself.

use kumihimo_conformance::{
    Image, Mounted, Options, Organisation, Scratch, Store, compare, differences,
};
use kumihimo_tests::skip;

use crate::ground::{can_mount, has_e2fsprogs, kumi, serve};

fn of_ext2(name: &str, organisation: Organisation, block: u32, options: &[&str]) {
    if !has_e2fsprogs(name) {
        return;
    }
    let (theirs, ours) = (Image::new(256, block), Image::new(256, block));
    let Some(kernel) = theirs.by_the_kernel(false) else {
        return skip(name, "no loop mounts of ext2 here");
    };
    let mounted = Mounted::start(kumi(), &Options::new(organisation).with(options), ours.path());
    let compared = compare(kernel.path(), mounted.path(), &differences(Store::Ext2));
    mounted.unmount();
    ours.expect_clean();
    compared.expect_equal(name);
    assert!(compared.cases >= 600, "{}", compared.cases);
}

fn of_a_directory(name: &str, organisation: Organisation, options: &[&str]) {
    if !can_mount(name) {
        return;
    }
    let scratch = Scratch::new("posix");
    let (theirs, ours) = (scratch.directory("theirs"), scratch.directory("ours"));
    let mounted = Mounted::start(kumi(), &Options::new(organisation).with(options), &ours);
    let compared = compare(&theirs, mounted.path(), &differences(Store::Host));
    mounted.unmount();
    compared.expect_equal(name);
}

mod ext2 {
    use super::{Organisation, of_ext2};

    fn with_4096(name: &str, organisation: Organisation) {
        of_ext2(name, organisation, 4096, &[]);
    }
    crate::organisations::organisations!(with_4096);

    #[test]
    fn blocks_of_1024() {
        of_ext2("posix::ext2::blocks_of_1024", Organisation::Microprocesses, 1024, &[]);
    }

    #[test]
    fn blocks_of_2048() {
        of_ext2("posix::ext2::blocks_of_2048", Organisation::KernelThreads, 2048, &[]);
    }

    /// The kernel caches no attributes and names.
    #[test]
    fn without_caches() {
        of_ext2(
            "posix::ext2::without_caches",
            Organisation::Microprocesses,
            4096,
            &["--timeout", "0"],
        );
    }

    #[test]
    fn with_every_thread_its_request() {
        of_ext2(
            "posix::ext2::with_every_thread_its_request",
            Organisation::Microprocesses,
            4096,
            &["--threads", "per-request"],
        );
    }

    #[test]
    fn with_a_thread_for_each_file() {
        of_ext2(
            "posix::ext2::with_a_thread_for_each_file",
            Organisation::KernelThreads,
            4096,
            &["--threads", "per-file"],
        );
    }

    #[test]
    fn with_readdirplus() {
        of_ext2(
            "posix::ext2::with_readdirplus",
            Organisation::Microprocesses,
            4096,
            &["--readdirplus"],
        );
    }
}

mod host {
    use super::{Organisation, of_a_directory};

    fn plainly(name: &str, organisation: Organisation) {
        of_a_directory(name, organisation, &[]);
    }
    crate::organisations::organisations!(plainly);

    #[test]
    fn without_caches() {
        of_a_directory(
            "posix::host::without_caches",
            Organisation::Microprocesses,
            &["--timeout", "0"],
        );
    }
}

#[test]
fn read_only_mount_refuses_changes() {
    let name = "posix::read_only_mount_refuses_changes";
    if !has_e2fsprogs(name) {
        return;
    }
    let image = Image::new(16, 1024);
    let mounted = serve(Organisation::Microprocesses, &image);
    std::fs::write(mounted.path().join("f"), "text").expect("a file");
    mounted.unmount();
    let before = std::fs::read(image.path()).expect("the image");
    let options = Options::new(Organisation::Microprocesses).with(&["--read-only"]);
    let mounted = Mounted::start(kumi(), &options, image.path());
    assert_eq!(std::fs::read(mounted.path().join("f")).expect("a file"), b"text");
    let refused = [
        std::fs::write(mounted.path().join("g"), ""),
        std::fs::create_dir(mounted.path().join("d")),
        std::fs::remove_file(mounted.path().join("f")),
        std::fs::rename(mounted.path().join("f"), mounted.path().join("g")),
        std::fs::hard_link(mounted.path().join("f"), mounted.path().join("g")),
    ];
    let kinds = refused.map(|refused| refused.expect_err("read only").kind());
    assert_eq!(kinds, [std::io::ErrorKind::ReadOnlyFilesystem; 5]);
    mounted.unmount();
    assert!(before == std::fs::read(image.path()).expect("the image"), "the image changed");
}
