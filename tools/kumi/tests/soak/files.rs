//! A mounted directory under faults, on a small file system that is full now and then. One client
//! is a model of the files.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use kumihimo_tests::Random;
use rustix::mount::{UnmountFlags, unmount};

use crate::ground;
use crate::service::{Fault, Service};

pub const FAULTS: [Fault; 3] = [Fault::Kill, Fault::Stop, Fault::Memory];
const FILES: u64 = 12;
const MOST: u64 = 200_000;
const OPERATIONS: [&str; 8] =
    ["create", "remove", "resize", "shorten below", "rename twice", "write", "write", "read"];
/// Operations that the message of a failure lists.
const JOURNAL: usize = 40;

pub fn service(kumi: &'static Path, place: &Path, small: &Path) -> Service {
    let (store, point) = (small.join("store"), ground::point(place));
    let run = place.join("machine");
    fs::create_dir_all(&store).expect("a directory");
    Service::new("mount", place.join("mount.errors"), "mounted", move || {
        // The mount of an earlier life, whose server has ended.
        let _ = unmount(&point, UnmountFlags::DETACH);
        let mut command = Command::new(kumi);
        command.args(["mount", "-f", "--timeout", "0"]).arg(&store).arg(&point);
        command.env("KUMI_DIR", &run).env("KUMI_ARBITER", "on").env("KUMI_VPS", "2");
        command
    })
}

/// The client, and the contents that it expects.
pub struct Model {
    store: PathBuf,
    point: PathBuf,
    /// `None`: the last operation on the file failed, so that its contents are unknown.
    files: BTreeMap<u64, Option<Vec<u8>>>,
    /// The last operations, for the message of a failure.
    journal: VecDeque<String>,
    pub succeeded: u64,
}

impl Model {
    pub fn new(place: &Path, small: &Path) -> Model {
        let (store, point) = (small.join("store"), ground::point(place));
        Model { store, point, files: BTreeMap::new(), journal: VecDeque::new(), succeeded: 0 }
    }

    fn path(&self, file: u64) -> PathBuf {
        self.point.join(format!("file-{file}"))
    }

    fn step(&mut self, random: &mut Random) {
        let file = random.below(FILES);
        let path = self.path(file);
        let before = self.files.get(&file).cloned();
        let operation = match before {
            None | Some(None) => 0,
            Some(Some(_)) => random.below(OPERATIONS.len() as u64) as usize,
        };
        let done = match (operation, before) {
            // Written anew, whatever was there.
            (0, _) | (_, None | Some(None)) => {
                let contents = bytes(random);
                fs::write(&path, &contents).map(|()| Some(contents))
            }
            (1, _) => fs::remove_file(&path).map(|()| None),
            (2, Some(Some(mut old))) => {
                let length = random.below(MOST);
                let shortened = fs::OpenOptions::new().write(true).open(&path);
                old.resize(length as usize, 0);
                shortened.and_then(|file| file.set_len(length)).map(|()| Some(old))
            }
            (3, Some(Some(mut old))) => {
                // By another process, below the mount.
                let length = random.below(old.len() as u64 + 1);
                old.truncate(length as usize);
                let below = self.store.join(format!("file-{file}"));
                let shortened = fs::OpenOptions::new().write(true).open(below);
                shortened.and_then(|file| file.set_len(length)).map(|()| Some(old))
            }
            (4, Some(Some(old))) => {
                let to = self.path(FILES + file);
                fs::rename(&path, &to).and_then(|()| fs::rename(&to, &path)).map(|()| Some(old))
            }
            (5 | 6, Some(Some(mut old))) => {
                let (at, part) = (random.below(old.len() as u64 + 1) as usize, bytes(random));
                old.resize(old.len().max(at + part.len()), 0);
                old[at..at + part.len()].copy_from_slice(&part);
                write_at(&path, at as u64, &part).map(|()| Some(old))
            }
            (_, Some(Some(old))) => match read(&path) {
                Ok(found) => {
                    assert!(
                        found == old,
                        "{}: {} bytes of {}, after {:#?}",
                        path.display(),
                        found.len(),
                        old.len(),
                        self.journal
                    );
                    Ok(Some(old))
                }
                Err(error) => Err(error),
            },
        };
        let length = done.as_ref().map(|contents| contents.as_ref().map(Vec::len));
        self.journal.push_back(format!("file {file}: {} {length:?}", OPERATIONS[operation]));
        if self.journal.len() > JOURNAL {
            self.journal.pop_front();
        }
        match done {
            Ok(Some(contents)) => drop(self.files.insert(file, Some(contents))),
            Ok(None) => drop(self.files.remove(&file)),
            Err(error) => {
                assert!(is_expected(&error), "{}: {error}", path.display());
                self.files.insert(file, None);
                return;
            }
        }
        self.succeeded += 1;
    }

    /// Works on files until `over`. Mounts again whenever the server has ended.
    pub fn run(&mut self, service: &Service, random: &mut Random, over: &AtomicBool) {
        while !over.load(SeqCst) {
            for _ in 0..1 + random.below(20) {
                self.step(random);
            }
            self.settle(random, service);
        }
    }

    fn settle(&mut self, random: &mut Random, service: &Service) {
        if !service.is_alive() {
            service.revive();
            self.compare("after a crash");
        }
        // Files whose contents are unknown are removed, in some cases below the mount.
        let is_unknown = |(file, contents): (&u64, &Option<_>)| contents.is_none().then_some(*file);
        let unknown: Vec<u64> = self.files.iter().filter_map(is_unknown).collect();
        for file in unknown {
            self.files.remove(&file);
            let name = format!("file-{file}");
            let _ = fs::remove_file(self.store.join(format!("file-{}", FILES + file)));
            let from = if random.one_in(2) { &self.store } else { &self.point };
            let _ = fs::remove_file(from.join(&name));
            let _ = fs::remove_file(self.store.join(&name));
        }
    }

    /// Compares what the server has stored with the model.
    pub fn compare(&self, when: &str) {
        for (file, contents) in &self.files {
            let Some(contents) = contents else { continue };
            let path = self.store.join(format!("file-{file}"));
            let found =
                fs::read(&path).unwrap_or_else(|e| panic!("{when}: {}: {e}", path.display()));
            assert!(found == *contents, "{when}: {} differs", path.display());
        }
    }

    /// Compares what is read through the mount with the model, and unmounts.
    pub fn finish(&mut self, service: &Service) {
        service.revive();
        self.compare("at the end");
        for (file, contents) in &self.files {
            let Some(contents) = contents else { continue };
            let found = read(&self.path(*file)).expect("it is served");
            assert!(found == *contents, "file {file} differs");
        }
        service.end_in_order();
    }
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let length = if random.one_in(4) { random.below(MOST) } else { random.below(5000) };
    let mut own = random.split();
    (0..length).map(|_| own.number() as u8).collect()
}

fn write_at(path: &Path, at: u64, part: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(part)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    fs::File::open(path)?.read_to_end(&mut all)?;
    Ok(all)
}

/// Errors of a server that has ended, of a full file system, and of one without memory.
fn is_expected(error: &io::Error) -> bool {
    let expected = [
        libc::ENOTCONN,
        libc::ECONNABORTED,
        libc::ENOSPC,
        libc::ENOMEM,
        libc::EIO,
        libc::EMFILE,
        libc::ENFILE,
        libc::EINTR,
        // The file of an operation that failed before.
        libc::ENOENT,
        // The server has ended and unmounted.
        libc::EROFS,
    ];
    error.raw_os_error().is_some_and(|number| expected.contains(&number))
}

/// Fills the small file system now and then, until `over`.
pub fn fill(small: &Path, mut random: Random, over: &AtomicBool) {
    let filler = small.join("filler");
    while !over.load(SeqCst) {
        thread::sleep(Duration::from_millis(100 + random.below(400)));
        if let Ok(mut file) = fs::File::create(&filler) {
            while file.write_all(&[1; 1 << 16]).is_ok() {}
        }
        thread::sleep(Duration::from_millis(random.below(300)));
        let _ = fs::remove_file(&filler);
    }
}
