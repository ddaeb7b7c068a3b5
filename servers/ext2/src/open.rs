//! Opening a disk, with the checks on which all other code relies.

use std::fmt::{self, Display, Formatter};
use std::io;

use kumihimo::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use kumihimo::sync::{Arc, Mutex, RwLock};
use kumihimo_store::{Disk, Errno, Kind, Time};

use crate::Ext2;
use crate::layout::group::{self, DESCRIPTOR, Geometry};
use crate::layout::recognise::{ENOUGH, recognise};
use crate::layout::superblock::{
    CLEAN, ERRORS, HAS_JOURNAL, LENGTH, MAGIC, PLACE, SPARSE_SUPER, SPARSE_SUPER2, Superblock,
};
use crate::memory::bitmaps::Allocator;
use crate::memory::cache::Cache;
use crate::memory::complaint::{Complaints, Listener};
use crate::memory::inodes::{Nodes, ROOT};

/// Number of bytes of group descriptors that are read at once.
const AT_ONCE: usize = 64 << 10;
/// Maximum size of a file system: 2 TiB.
const LARGEST: u64 = 2 << 40;

/// Settings for opening a disk.
#[derive(Clone)]
pub struct Settings {
    /// Name of the disk in messages, such as its path.
    pub name: String,
    /// Whether nothing is written to the disk, not even that it is mounted.
    pub read_only: bool,
    /// Memory for blocks in bytes, in addition to bitmaps and inodes.
    pub cache_bytes: usize,
    /// Clock for the times of files.
    pub now: fn() -> Time,
    /// Receiver of reports of damage; `None` means standard error.
    pub listener: Option<Listener>,
}

impl Default for Settings {
    fn default() -> Settings {
        let name = "ext2 image".to_owned();
        Settings { name, read_only: false, cache_bytes: 64 << 20, now: Time::now, listener: None }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Settings { name, read_only, cache_bytes, .. } = self;
        formatter
            .debug_struct("Settings")
            .field("name", name)
            .field("read_only", read_only)
            .field("cache_bytes", cache_bytes)
            .finish_non_exhaustive()
    }
}

/// Why a disk cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The disk failed.
    Disk(io::Error),
    /// The disk has another format. Holds its description.
    Other(String),
    /// The file system has unsupported features. Holds their names.
    Incompatible(String),
    /// The file system can only be opened read-only. Holds the features that require this.
    ReadOnly(String),
    /// The disk is smaller than the file system.
    Truncated {
        /// Number of blocks of the file system.
        blocks: u64,
        /// Number of whole blocks of the disk.
        medium: u64,
    },
    /// The file system is larger than 2 TiB.
    TooLarge {
        /// Size in bytes.
        bytes: u64,
    },
    /// A structure is damaged. Holds a description.
    Damaged(String),
}

impl Display for OpenError {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Disk(error) => write!(formatter, "reading the disk failed: {error}"),
            OpenError::Other(what) => write!(formatter, "not an ext2 file system: {what}"),
            OpenError::Incompatible(what) => {
                write!(formatter, "ext2 with unsupported features: {what}")
            }
            OpenError::ReadOnly(what) => {
                write!(formatter, "it can only be mounted read-only, because of: {what}")
            }
            OpenError::Truncated { blocks, medium } => {
                write!(
                    formatter,
                    "truncated: its superblock counts {blocks} blocks, the medium has {medium}"
                )
            }
            OpenError::TooLarge { bytes } => {
                write!(formatter, "it has {bytes} bytes: at most 2 TiB are supported")
            }
            OpenError::Damaged(what) => write!(formatter, "{what}; run e2fsck"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let OpenError::Disk(error) = self { Some(error) } else { None }
    }
}

fn damaged<T>(what: impl Into<String>) -> Result<T, OpenError> {
    Err(OpenError::Damaged(what.into()))
}

fn read_superblock(disk: &dyn Disk) -> Result<Superblock, OpenError> {
    let mut bytes = [0; LENGTH];
    let there = disk.size() >= PLACE + LENGTH as u64;
    if there {
        disk.read(PLACE, &mut bytes).map_err(OpenError::Disk)?;
    }
    let superblock = Superblock(bytes);
    if !there || superblock.magic() != MAGIC {
        let mut start = vec![0; usize::try_from(disk.size()).unwrap_or(usize::MAX).min(ENOUGH)];
        disk.read(0, &mut start).map_err(OpenError::Disk)?;
        return Err(OpenError::Other(recognise(&start)));
    }
    Ok(superblock)
}

fn check_features(superblock: &Superblock, read_only: bool) -> Result<(), OpenError> {
    if superblock.revision() > 1 {
        return Err(OpenError::Incompatible(format!("revision {}", superblock.revision())));
    }
    if let Some(features) = superblock.incompatible() {
        return Err(OpenError::Incompatible(features));
    }
    if read_only {
        return Ok(());
    }
    if let Some(features) = superblock.not_writable() {
        return Err(OpenError::ReadOnly(features));
    }
    if superblock.compat() & HAS_JOURNAL != 0 {
        let what =
            "its journal (ext3), which would become stale; remove it: tune2fs -O ^has_journal";
        return Err(OpenError::ReadOnly(what.to_owned()));
    }
    Ok(())
}

/// Checks the numbers of the superblock against each other and the disk.
fn geometry(superblock: &Superblock, size: u64) -> Result<Geometry, OpenError> {
    if superblock.log_block_size() > 2 {
        return damaged(format!(
            "superblock: invalid block size of 2^{} KiB",
            superblock.log_block_size()
        ));
    }
    let block_size = 1024_usize << superblock.log_block_size();
    let bits = u32::try_from(block_size * 8).unwrap_or(0);
    let (blocks, per_group) = (superblock.blocks(), superblock.blocks_per_group());
    let (inodes, inodes_per_group) = (superblock.inodes(), superblock.inodes_per_group());
    let bytes = u64::from(blocks) * block_size as u64;
    if bytes > LARGEST {
        return Err(OpenError::TooLarge { bytes });
    }
    if superblock.first_data_block() != u32::from(block_size == 1024) {
        return damaged(format!(
            "superblock: invalid first data block {}",
            superblock.first_data_block()
        ));
    }
    let first_data_block = superblock.first_data_block();
    if blocks <= first_data_block + 4 {
        return damaged(format!("superblock: {blocks} blocks are too few"));
    }
    if per_group < 8 || per_group > bits || per_group % 8 != 0 {
        return damaged(format!("superblock: {per_group} blocks in a group are invalid"));
    }
    if inodes_per_group == 0 || inodes_per_group > bits || inodes_per_group % 8 != 0 {
        return damaged(format!("superblock: {inodes_per_group} inodes in a group are invalid"));
    }
    let inode_size = usize::from(superblock.inode_size());
    if inode_size < 128 || inode_size > block_size || !inode_size.is_power_of_two() {
        return damaged(format!("superblock: inodes of {inode_size} bytes are invalid"));
    }
    let medium = size / block_size as u64;
    if u64::from(blocks) > medium {
        return Err(OpenError::Truncated { blocks: u64::from(blocks), medium });
    }
    let groups = (blocks - first_data_block).div_ceil(per_group);
    if groups.checked_mul(inodes_per_group) != Some(inodes) {
        return damaged(format!(
            "superblock: {groups} groups of {inodes_per_group} inodes are not {inodes} inodes"
        ));
    }
    let first_inode = superblock.first_inode();
    if first_inode < 11 || first_inode > inodes || first_inode > inodes_per_group {
        return damaged(format!(
            "superblock: invalid first inode {first_inode} that is not reserved"
        ));
    }
    let descriptor_blocks = (groups as usize * DESCRIPTOR).div_ceil(block_size);
    let descriptor_blocks = u32::try_from(descriptor_blocks).unwrap_or(u32::MAX);
    let table_blocks = (inodes_per_group as usize * inode_size).div_ceil(block_size);
    Ok(Geometry {
        block_size,
        blocks,
        first_data_block,
        blocks_per_group: per_group,
        inodes_per_group,
        inodes,
        inode_size,
        first_inode,
        table_blocks: u32::try_from(table_blocks).unwrap_or(u32::MAX),
        head_blocks: 1 + descriptor_blocks + u32::from(superblock.reserved_descriptors()),
        sparse: superblock.ro_compat() & SPARSE_SUPER != 0
            || superblock.compat() & SPARSE_SUPER2 != 0,
        groups: Vec::new(),
    })
}

/// Reads the group descriptors. Checks that the structures of each group lie within the group and
/// do not overlap.
fn read_groups(disk: &dyn Disk, geometry: &mut Geometry) -> Result<Vec<u8>, OpenError> {
    let groups =
        (geometry.blocks - geometry.first_data_block).div_ceil(geometry.blocks_per_group) as usize;
    let length = groups * DESCRIPTOR;
    let place = (u64::from(geometry.first_data_block) + 1) * geometry.block_size as u64;
    if place + length as u64 > disk.size() {
        return damaged("group descriptors: the medium is too small for them");
    }
    let mut bytes = Vec::new();
    for number in 0..groups {
        // Read in pieces: the superblock may count millions of groups that are not there. The first
        // descriptor that is not one ends the loop.
        if number * DESCRIPTOR == bytes.len() {
            let more = (length - bytes.len()).min(AT_ONCE);
            let from = place + bytes.len() as u64;
            bytes.resize(bytes.len() + more, 0);
            disk.read(from, &mut bytes[number * DESCRIPTOR..]).map_err(OpenError::Disk)?;
        }
        let (places, counts) = group::read(&bytes[number * DESCRIPTOR..]);
        let start = geometry.group_start(number);
        let blocks = geometry.group_blocks(number);
        let head = if geometry.has_head(number) { geometry.head_blocks } else { 0 };
        let mut parts = [
            (start, head, "superblock and descriptors"),
            (places.block_bitmap, 1, "block bitmap"),
            (places.inode_bitmap, 1, "inode bitmap"),
            (places.inode_table, geometry.table_blocks, "inode table"),
        ];
        for (at, length, name) in parts {
            let inside = at >= start && length <= blocks && at - start <= blocks - length;
            if !inside {
                return damaged(format!(
                    "group {number}: its {name} in block {at} lies outside of the group"
                ));
            }
        }
        parts.sort_unstable();
        for pair in parts.windows(2) {
            if pair[0].0 + pair[0].1 > pair[1].0 {
                return damaged(format!(
                    "group {number}: its {} and its {} overlap",
                    pair[0].2, pair[1].2
                ));
            }
        }
        if u32::from(counts.free_blocks) > blocks
            || u32::from(counts.free_inodes) > geometry.inodes_per_group
        {
            return damaged(format!(
                "group {number}: its descriptor counts more free blocks or inodes than it has"
            ));
        }
        geometry.groups.push(places);
    }
    Ok(bytes)
}

impl Ext2 {
    /// Opens the file system on `disk`. Marks a writable file system as mounted on the disk, until
    /// `Store::close`.
    ///
    /// A file system that was not unmounted cleanly is opened after a report. Its counts of free
    /// blocks may be wrong, and its contents are as the power cut left them.
    ///
    /// # Errors
    /// An [`OpenError`], which does not contain the name of the disk. Except for `OpenError::Disk`,
    /// nothing was written.
    pub fn open(disk: Box<dyn Disk>, settings: Settings) -> Result<Ext2, OpenError> {
        let superblock = read_superblock(&*disk)?;
        check_features(&superblock, settings.read_only)?;
        let mut geometry = geometry(&superblock, disk.size())?;
        let descriptors = read_groups(&*disk, &mut geometry)?;
        let seed = (settings.now)();
        #[allow(clippy::cast_possible_truncation, reason = "a seed")]
        let seed = (seed.seconds as u32).wrapping_mul(0x9E37_79B1) ^ seed.nanoseconds;
        // Two mounts may have the same clock reading; the second must not give an inode the
        // generation that it had during the first.
        let seed = seed ^ u32::from(superblock.mounts()) << 16;
        let complaints = Arc::new(Complaints::new(settings.name, settings.listener));
        let store = Ext2 {
            cache: Cache::new(
                disk,
                geometry.block_size,
                settings.cache_bytes,
                Arc::clone(&complaints),
            ),
            geometry,
            incompat: superblock.incompat(),
            allocator: Allocator::new(superblock, descriptors),
            nodes: Nodes::default(),
            claims: Arc::default(),
            order: Mutex::default(),
            gate: RwLock::new(()),
            tree: Mutex::new(()),
            commits: Mutex::default(),
            lost: crate::memory::inodes::Lost::default(),
            // Transaction 1 is open, so no transaction is complete.
            transaction: AtomicU64::new(1),
            broken: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            generation: AtomicU32::new(seed),
            complaints,
            now: settings.now,
            read_only: settings.read_only,
            state_before: 0,
        };
        store.begin()
    }

    fn begin(mut self) -> Result<Ext2, OpenError> {
        let root = match self.inode(ROOT) {
            Ok(root) if root.state().kind() == Kind::Directory => root,
            _ => return damaged("inode 2: the root is not a directory"),
        };
        root.state().references = 1;
        drop(root);
        let state = self.allocator.superblock(Superblock::state);
        if state & CLEAN == 0 || state & ERRORS != 0 {
            let what = if state & ERRORS != 0 {
                "it is marked as damaged"
            } else {
                "it was not unmounted cleanly"
            };
            self.complaints.damage(what);
        }
        self.state_before = state;
        if self.read_only {
            return Ok(self);
        }
        let now = u32::try_from((self.now)().seconds).unwrap_or(u32::MAX);
        let bytes = self.allocator.superblock(Superblock::clone);
        let mut mounted = bytes;
        mounted.set_state(state & !CLEAN);
        mounted.count_mount(now);
        let disk = self.cache.disk();
        disk.write(PLACE, &mounted.0).and_then(|()| disk.flush()).map_err(OpenError::Disk)?;
        self.allocator.change_superblock(|superblock| *superblock = mounted);
        self.find_lost();
        if self.allocator.superblock(Superblock::last_orphan) != 0 {
            self.end_orphans().map_err(|errno| {
                OpenError::Damaged(format!("processing the list of orphans failed: {errno}"))
            })?;
        }
        Ok(self)
    }

    /// Writes everything to the disk and marks it as clean. Deleted inodes that are still
    /// referenced are freed.
    pub(crate) fn end_mount(&self) -> Result<(), Errno> {
        if self.read_only || self.closed.load(kumihimo::sync::atomic::Ordering::Relaxed) {
            return Ok(());
        }
        self.end_nameless();
        // The second commit writes what the first one frees; inodes that ended meanwhile need a
        // third.
        while self.is_dirty() {
            self.commit()?;
        }
        let clean = self.state_before | CLEAN;
        self.allocator.change_superblock(|superblock| superblock.set_state(clean));
        self.commit()?;
        self.closed.store(true, kumihimo::sync::atomic::Ordering::Relaxed);
        Ok(())
    }
}
