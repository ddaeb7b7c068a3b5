//! Images for tests: made by mke2fs, opened by this crate, checked by e2fsck, mounted by the
//! kernel.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use kumihimo_ext2::{Ext2, OpenError, Settings};
use kumihimo_store::{Caller, Handle, New, Node, Store, open_disk};

pub const ROOT: Caller = Caller { uid: 0, gid: 0, pid: 1, umask: 0 };
pub const NONE: Handle = Handle(0);

/// Image in a temporary directory, which is removed on drop.
pub struct Image {
    pub directory: PathBuf,
    pub path: PathBuf,
    pub complaints: Arc<Mutex<Vec<String>>>,
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub fn run(command: &mut Command) -> Output {
    command.env("PATH", PATH).output().expect("a program of this machine")
}

/// Directories in which Debian installs e2fsprogs, which are not in every user's PATH.
pub const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// Returns whether images can be made and checked. Reports the test as skipped if not.
pub fn has_e2fsprogs(test: &str) -> bool {
    let missing = ["mke2fs", "e2fsck", "debugfs"].into_iter().find(|program| {
        let mut command = Command::new(program);
        command.arg("-V").env("PATH", PATH).output().is_err()
    });
    missing
        .inspect(|program| kumihimo_tests::skip(test, &format!("no {program} here (e2fsprogs)")))
        .is_none()
}

impl Image {
    pub fn empty(name: &str, bytes: u64) -> Image {
        let directory =
            std::env::temp_dir().join(format!("kumihimo-ext2-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("a directory for the image");
        let path = directory.join("image");
        std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("an image");
        Image { directory, path, complaints: Arc::default() }
    }

    pub fn made(name: &str, bytes: u64, options: &[&str]) -> Image {
        let image = Image::empty(name, bytes);
        let output = run(Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext2"])
            .args(options)
            .arg(&image.path));
        assert!(output.status.success(), "mke2fs: {}", String::from_utf8_lossy(&output.stderr));
        image
    }

    pub fn settings(&self) -> Settings {
        let complaints = Arc::clone(&self.complaints);
        let listener: kumihimo_ext2::Listener = Arc::new(move |line: &str| {
            complaints.lock().expect("complaints").push(line.to_owned())
        });
        Settings { name: "image".to_owned(), listener: Some(listener), ..Settings::default() }
    }

    pub fn try_open(&self, read_only: bool) -> Result<Ext2, OpenError> {
        let disk = open_disk(&self.path, !read_only).expect("the image");
        Ext2::open(Box::new(disk), Settings { read_only, ..self.settings() })
    }

    pub fn open(&self) -> Ext2 {
        self.try_open(false).expect("a file system")
    }

    pub fn check(&self) {
        let output = run(Command::new("e2fsck").arg("-fn").arg(&self.path));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            output.status.code(),
            Some(0),
            "e2fsck: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let complaints = self.complaints.lock().expect("complaints");
        assert!(complaints.is_empty(), "{complaints:?}");
    }

    pub fn debugfs(&self, request: &str) -> Vec<u8> {
        run(Command::new("debugfs").args(["-R", request]).arg(&self.path)).stdout
    }
}

pub fn file(store: &Ext2, directory: Node, name: &str) -> Node {
    store
        .make(&ROOT, directory, name.as_bytes(), New::File { mode: 0o644 })
        .expect(name)
        .attributes
        .node
}

pub fn directory(store: &Ext2, above: Node, name: &str) -> Node {
    store
        .make(&ROOT, above, name.as_bytes(), New::Directory { mode: 0o755 })
        .expect(name)
        .attributes
        .node
}

pub fn find(store: &Ext2, directory: Node, name: &str) -> Node {
    store.lookup(directory, name.as_bytes()).expect(name).attributes.node
}

pub fn write_all(store: &Ext2, node: Node, offset: u64, bytes: &[u8]) {
    let mut done = 0;
    while done < bytes.len() {
        done += store.write(node, NONE, offset + done as u64, &bytes[done..]).expect("a write");
    }
}

pub fn read_all(store: &Ext2, node: Node) -> Vec<u8> {
    let mut bytes =
        vec![0; usize::try_from(store.attributes(node).expect("attributes").size).expect("small")];
    let read = store.read(node, NONE, 0, &mut bytes).expect("a read");
    assert_eq!(read, bytes.len());
    bytes
}

pub fn names(store: &Ext2, node: Node) -> Vec<String> {
    let mut all = Vec::new();
    store
        .read_directory(node, NONE, 0, &mut |listed| {
            all.push(String::from_utf8_lossy(listed.name).into_owned());
            true
        })
        .expect("names");
    all
}

/// Returns bytes without repetition.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut step = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_le_bytes()[6]
    };
    (0..length).map(|_| step()).collect()
}

/// Loop mount by the kernel, unmounted on drop.
pub struct Mounted(pub PathBuf);

impl Mounted {
    pub fn new(image: &Path, at: PathBuf, kind: &str) -> Option<Mounted> {
        std::fs::create_dir_all(&at).expect("a mount point");
        let output =
            run(Command::new("mount").args(["-t", kind, "-o", "loop"]).arg(image).arg(&at));
        output.status.success().then_some(Mounted(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run(Command::new("umount").arg(&self.0));
    }
}
