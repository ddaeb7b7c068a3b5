//! The ext2 store under test: on a disk in memory, its complaints heard, its image checked by
//! `e2fsck` whenever it is clean.

use std::sync::{Arc, Mutex, PoisonError};

use kumihimo_ext2::{Ext2, OpenError, Settings};
use kumihimo_store::{Disk, Store};

use super::clock;
use super::disks::Memory;
use super::images;
use crate::compare::{Rules, Subject};
use crate::model::Limits;

/// What the store complained of.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    /// All of it.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Settings of a store whose complaints are heard here, with a cache of so many bytes.
    #[must_use]
    pub fn settings(&self, cache_bytes: usize) -> Settings {
        let heard = self.0.clone();
        let listener: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(move |line| {
            heard.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned())
        });
        Settings {
            cache_bytes,
            now: clock::now,
            name: "image".to_owned(),
            listener: Some(listener),
            ..Settings::default()
        }
    }
}

/// A format that `mke2fs` makes.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Of the test.
    pub name: &'static str,
    /// Bytes of the image.
    pub size: u64,
    /// Bytes of a block.
    pub block: usize,
    /// For `mke2fs`.
    pub arguments: &'static [&'static str],
}

/// What stores are tested on: each size of a block; small and large inodes; several groups; without
/// what later versions added.
pub const FORMATS: [Format; 4] = [
    Format {
        name: "1 KB blocks",
        size: 8 << 20,
        block: 1024,
        arguments: &["-b", "1024", "-I", "128", "-g", "2048"],
    },
    Format {
        name: "2 KB blocks",
        size: 8 << 20,
        block: 2048,
        arguments: &["-b", "2048", "-I", "256"],
    },
    Format {
        name: "4 KB blocks",
        size: 16 << 20,
        block: 4096,
        arguments: &["-b", "4096", "-I", "256"],
    },
    Format {
        name: "plain",
        size: 8 << 20,
        block: 1024,
        arguments: &[
            "-b",
            "1024",
            "-I",
            "128",
            "-O",
            "^filetype,^sparse_super,^dir_index,^resize_inode",
        ],
    },
];

impl Format {
    /// An empty image.
    ///
    /// # Panics
    /// If `mke2fs` fails.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        images::make(self.size, self.arguments)
    }
}

/// A mounted image.
#[derive(Debug)]
pub struct Mounted {
    store: Ext2,
    disk: Memory,
    heard: Heard,
    cache: usize,
    rules: Rules,
    /// Whether `e2fsck` is asked at each end.
    checked: bool,
}

impl Mounted {
    /// Mounts it.
    ///
    /// # Errors
    /// Why that is refused.
    pub fn new(
        image: Vec<u8>,
        format: &Format,
        cache: usize,
        checked: bool,
    ) -> Result<Mounted, String> {
        let (disk, heard) = (Memory::new(image), Heard::default());
        let rules = Rules {
            limits: Limits { target: format.block - 1, ..Limits::default() },
            // The header and the end of the entries.
            xattr_room: Some(format.block - 36),
            no_room_beyond: true,
            ..Rules::default()
        };
        let store = open(disk.clone(), &heard, cache).map_err(|error| error.to_string())?;
        Ok(Mounted { store, disk, heard, cache, rules, checked })
    }

    /// It is small: `ENOSPC` is to be expected.
    #[must_use]
    pub fn small(mut self) -> Mounted {
        self.rules.small = true;
        self
    }

    /// What must be true of the image whenever the store was closed.
    ///
    /// # Errors
    /// What is wrong, by `e2fsck` if it was asked.
    pub fn verify(&self) -> Result<(), String> {
        let (beyond, said) = (self.disk.beyond(), self.heard.all());
        if beyond > 0 {
            return Err(format!("{beyond} accesses beyond the end of the disk"));
        }
        if !said.is_empty() {
            return Err(format!("complaints about a good image: {said:?}"));
        }
        if self.checked { self.disk.with(images::clean) } else { Ok(()) }
    }

    /// The image as it is on the disk.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        self.disk.image()
    }
}

/// Opens the store on a disk.
///
/// # Errors
/// Why that is refused.
pub fn open(disk: impl Disk, heard: &Heard, cache: usize) -> Result<Ext2, OpenError> {
    Ext2::open(Box::new(disk), heard.settings(cache))
}

impl Subject for Mounted {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn remount(&mut self) -> Result<(), String> {
        self.store.close().map_err(|errno| format!("close: {errno}"))?;
        self.verify()?;
        self.store = open(self.disk.clone(), &self.heard, self.cache)
            .map_err(|error| format!("opened again: {error}"))?;
        Ok(())
    }

    fn write_back(&self) {
        // What is written on time is written in the same way; waiting for it would be the test's
        // time.
        let _ = self.store.sync_all();
    }

    fn rules(&self) -> Rules {
        self.rules
    }
}
