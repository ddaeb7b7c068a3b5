//! The ext2 store under test, on a disk in memory. Its messages are collected, and `e2fsck` checks
//! its image whenever the image is clean.

use std::sync::{Arc, Mutex, PoisonError};

use kumihimo_ext2::{Ext2, OpenError, Settings};
use kumihimo_store::{Disk, Store};

use super::clock;
use super::disks::Memory;
use super::images;
use crate::compare::{Rules, Subject};
use crate::model::Limits;

/// Messages of the store.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    /// All messages so far.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Settings for a store whose messages are collected here, with a cache of `cache_bytes`.
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

/// Parameters of an image made by `mke2fs`.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Name for the test's output.
    pub name: &'static str,
    /// Size of the image in bytes.
    pub size: u64,
    /// Size of a block in bytes.
    pub block: usize,
    /// Arguments for `mke2fs`.
    pub arguments: &'static [&'static str],
}

/// Formats for tests: each block size; small and large inodes; several block groups; and one
/// without the features of later versions.
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
    /// Creates an empty image.
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
    /// Whether `e2fsck` checks the image at each close.
    checked: bool,
}

impl Mounted {
    /// Mounts an image.
    ///
    /// # Errors
    /// The store's reason to refuse the image.
    pub fn new(
        image: Vec<u8>,
        format: &Format,
        cache: usize,
        checked: bool,
    ) -> Result<Mounted, String> {
        let (disk, heard) = (Memory::new(image), Heard::default());
        let rules = Rules {
            limits: Limits { target: format.block - 1, ..Limits::default() },
            // Minus the xattr header and the terminator of the entries.
            xattr_room: Some(format.block - 36),
            no_room_beyond: true,
            ..Rules::default()
        };
        let store = open(disk.clone(), &heard, cache).map_err(|error| error.to_string())?;
        Ok(Mounted { store, disk, heard, cache, rules, checked })
    }

    /// Declares the volume as small, so that `ENOSPC` is allowed.
    #[must_use]
    pub fn small(mut self) -> Mounted {
        self.rules.small = true;
        self
    }

    /// Checks the image after the store was closed.
    ///
    /// # Errors
    /// Description of what is wrong, from `e2fsck` if it ran.
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

    /// Copy of the current image.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        self.disk.image()
    }
}

/// Opens the store on a disk.
///
/// # Errors
/// The store's reason to refuse the image.
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
        // A write-back by the timer does the same. Waiting for the timer would only slow the test
        // down.
        let _ = self.store.sync_all();
    }

    fn rules(&self) -> Rules {
        self.rules
    }
}
