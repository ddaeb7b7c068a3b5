//! Entry point of the fuzzer (cargo-fuzz or a test): opens, walks, changes and closes an arbitrary
//! image.

use std::path::Path;

use kumihimo_ext2::Ext2;
use kumihimo_store::New;

use crate::disks::Memory;
use crate::ext2::Heard;
use crate::hostile::{self, Outcome};
use crate::{clock, images, paths};

/// Cache for blocks, small enough that blocks are evicted.
const CACHE: usize = 256 << 10;

/// Result of processing an image.
#[derive(Debug)]
pub struct Report {
    /// Whether the image was opened, read-only or for writing.
    pub opened: bool,
    /// Counts of the operations on the image.
    pub outcome: Outcome,
    /// Messages of the store.
    pub said: Vec<String>,
}

/// Processes one image in its compressed form ([`hostile::compress`]).
///
/// # Panics
/// If the store violates a requirement.
pub fn image(data: &[u8]) {
    let image = hostile::expand(data);
    clock::reset();
    if let Err(what) = exercise(image) {
        panic!("{what}");
    }
}

/// Opens an image twice, read-only first, and performs all operations on it.
///
/// # Errors
/// An access beyond the end of the disk, a write to a read-only image, or an `EIO` without a
/// message.
pub fn exercise(image: Vec<u8>) -> Result<Report, String> {
    let mut report = Report { opened: false, outcome: Outcome::default(), said: Vec::new() };
    for read_only in [true, false] {
        let (disk, heard) = (Memory::new(image.clone()), Heard::default());
        let mut settings = heard.settings(CACHE);
        settings.read_only = read_only;
        let name = settings.name.clone();
        let outcome = match Ext2::open(Box::new(disk.clone()), settings) {
            Err(error) if error.to_string().is_empty() => {
                return Err("refused without a message".to_owned());
            }
            Err(_) => Outcome::default(),
            Ok(store) => {
                report.opened = true;
                hostile::exercise(&store, !read_only)
            }
        };
        let said = heard.all();
        if disk.beyond() > 0 {
            return Err(format!("{} accesses beyond the end: {said:?}", disk.beyond()));
        }
        if read_only && disk.with(|now| now != image) {
            return Err(format!("a read-only image was written: {said:?}"));
        }
        // A useful message contains more than the name of the image.
        if outcome.damaged > 0 && !said.iter().any(|line| line.len() > name.len() + 20) {
            return Err(format!(
                "EIO {} times, but no message explains it: {said:?}",
                outcome.damaged
            ));
        }
        report.outcome = outcome;
        report.said = said;
    }
    Ok(report)
}

/// Small valid images that cover all features of the file system: some made by `mke2fs` from a
/// directory, one made by the store itself.
///
/// # Panics
/// If an image cannot be made.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let tree = Tree::new();
    let from = tree.0.to_str().expect("a path in UTF-8");
    let mut seeds: Vec<Vec<u8>> = [
        (768 << 10, ["-b", "1024", "-I", "128", "-N", "96", "-d", from].as_slice()),
        (1 << 20, ["-b", "1024", "-I", "256", "-N", "128", "-g", "256", "-d", from].as_slice()),
        (1 << 20, ["-b", "2048", "-I", "256", "-N", "96", "-d", from].as_slice()),
        (2 << 20, ["-b", "4096", "-I", "256", "-N", "96", "-d", from].as_slice()),
        (
            768 << 10,
            [
                "-b",
                "1024",
                "-I",
                "128",
                "-N",
                "96",
                "-O",
                "^filetype,^sparse_super,^dir_index,^resize_inode",
                "-d",
                from,
            ]
            .as_slice(),
        ),
    ]
    .into_iter()
    .map(|(size, arguments)| images::make(size, arguments))
    .collect();
    // Directories with an index. e2fsck creates one in large directories.
    seeds.push(images::indexed(&seeds[0]));
    seeds.push(own());
    seeds
}

/// The source directory of an image, removed when dropped.
struct Tree(std::path::PathBuf);

impl Tree {
    fn new() -> Tree {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = std::env::temp_dir()
            .join(format!("kumihimo-proof-tree-{}-{number}", std::process::id()));
        std::fs::create_dir(&root).expect("a directory in the temporary directory");
        let tree = Tree(root);
        tree.fill().expect("its files");
        tree
    }

    fn fill(&self) -> std::io::Result<()> {
        let path = |name: &str| self.0.join(name);
        let write = |path: &Path, length: usize| std::fs::write(path, vec![b'd'; length]);
        std::fs::create_dir_all(path("one/two/three/four"))?;
        std::fs::create_dir(path("many"))?;
        for number in 0..40 {
            let name = format!("many/{number}-with-a-name-that-takes-some-room-in-its-directory");
            // Hard links take no inodes.
            if number == 0 {
                write(&path(&name), 100)?
            } else {
                std::fs::hard_link(
                    path("many/0-with-a-name-that-takes-some-room-in-its-directory"),
                    path(&name),
                )?
            }
        }
        write(&path("one/direct"), 5000)?;
        write(&path("one/two/indirect"), 60_000)?;
        // The offset is large enough to need two levels of indirect blocks.
        let sparse = std::fs::File::create(path("sparse"))?;
        std::os::unix::fs::FileExt::write_all_at(&sparse, &[1; 5000], 400 << 10)?;
        std::os::unix::fs::FileExt::write_all_at(&sparse, &[2; 3000], 5 << 20)?;
        std::os::unix::fs::symlink("short", path("one/short"))?;
        std::os::unix::fs::symlink("l".repeat(200), path("one/long"))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An image made by the store, with xattrs and devices.
fn own() -> Vec<u8> {
    use kumihimo_store::{Kind, Store, XattrMode};
    let disk = Memory::new(images::make(512 << 10, &["-b", "1024", "-I", "256", "-N", "64"]));
    let store =
        crate::ext2::open(disk.clone(), &Heard::default(), CACHE).expect("a good image is opened");
    for number in 0..10 {
        let directory = format!("d{number}");
        drop(paths::make(&store, &directory, New::Directory { mode: 0o755 }).expect("a directory"));
        let file = paths::create(&store, &format!("{directory}/file")).expect("a file");
        file.write(number * 3000, &[1; 5000]).expect("written");
        store.set_xattr(file.node(), b"user.one", &[3; 20], XattrMode::Any).expect("an xattr");
        store.set_xattr(file.node(), b"trusted.two", &[4; 300], XattrMode::Any).expect("an xattr");
    }
    let device = New::Special { kind: Kind::BlockDevice, mode: 0o600, device: 0x0801 };
    drop(paths::make(&store, "d1/device", device).expect("a device"));
    store.close().expect("closed");
    disk.image()
}
