//! Measures operations: blocks looked at, and memory. Not time, which depends on the machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use kumihimo_ext2::Ext2;
use kumihimo_store::{
    Attributes, Caller, Changes, Entry, Handle, Listed, New, Node, Result, Seek, Statistics, Store,
    XattrMode,
};

struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let now = NOW.get() + bytes;
    NOW.set(now);
    PEAK.set(PEAK.get().max(now));
}

// SAFETY: forwards to the system's allocator, and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Memory of the cache of the stores under test.
pub const CACHE: usize = 256 << 10;

/// Calls `call` and returns its result with the number of bytes by which this thread's memory grew
/// meanwhile, at its peak.
pub fn memory<R>(call: impl FnOnce() -> R) -> (R, usize) {
    let before = NOW.get();
    PEAK.set(before);
    let result = call();
    (result, usize::try_from(PEAK.get() - before).expect("the peak is not below the start"))
}

/// A store each of whose operations is measured. An operation on an image of N real bytes may look
/// at N / 4 blocks, the number of block numbers that fit, and take 16 N bytes, besides what the
/// request itself and the cache take.
pub struct Metered {
    store: Arc<Ext2>,
    real_bytes: u64,
}

impl Metered {
    pub fn new(store: Ext2, real_bytes: u64) -> Metered {
        Metered { store: Arc::new(store), real_bytes }
    }

    fn looks(&self) -> u64 {
        let counters = self.store.counters();
        counters.hits + counters.misses
    }

    /// Runs an operation and asserts the bounds.
    fn measured<R>(&self, what: &str, call: impl FnOnce(&Ext2) -> R) -> R {
        let before = self.looks();
        let (result, memory) = memory(|| call(&self.store));
        let looks = self.looks() - before;
        let (most, room) =
            (self.real_bytes / 4 + 4096, self.real_bytes * 16 + 2 * CACHE as u64 + (4 << 20));
        assert!(
            looks <= most,
            "{what} looked at {looks} blocks, of an image with {} bytes",
            self.real_bytes
        );
        assert!(
            memory as u64 <= room,
            "{what} took {memory} bytes, for an image with {} bytes",
            self.real_bytes
        );
        result
    }
}

impl Store for Metered {
    fn root(&self) -> Node {
        self.store.root()
    }

    fn lookup(&self, directory: Node, name: &[u8]) -> Result<Entry> {
        self.measured("lookup", |store| store.lookup(directory, name))
    }

    fn forget(&self, node: Node, references: u64) {
        self.measured("forget", |store| store.forget(node, references));
    }

    fn attributes(&self, node: Node) -> Result<Attributes> {
        self.measured("attributes", |store| store.attributes(node))
    }

    fn change(&self, node: Node, changes: &Changes) -> Result<Attributes> {
        self.measured("change", |store| store.change(node, changes))
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>> {
        self.measured("read_link", |store| store.read_link(node))
    }

    fn make(&self, caller: &Caller, directory: Node, name: &[u8], what: New<'_>) -> Result<Entry> {
        self.measured("make", |store| store.make(caller, directory, name, what))
    }

    fn unlink(&self, directory: Node, name: &[u8]) -> Result<()> {
        self.measured("unlink", |store| store.unlink(directory, name))
    }

    fn remove_directory(&self, directory: Node, name: &[u8]) -> Result<()> {
        self.measured("remove_directory", |store| store.remove_directory(directory, name))
    }

    fn rename(&self, from: Node, name: &[u8], to: Node, new_name: &[u8], keep: bool) -> Result<()> {
        self.measured("rename", |store| store.rename(from, name, to, new_name, keep))
    }

    fn link(&self, node: Node, directory: Node, name: &[u8]) -> Result<Entry> {
        self.measured("link", |store| store.link(node, directory, name))
    }

    fn open(&self, node: Node, flags: u32) -> Result<Handle> {
        self.measured("open", |store| store.open(node, flags))
    }

    fn release(&self, node: Node, handle: Handle) {
        self.measured("release", |store| store.release(node, handle));
    }

    fn read(&self, node: Node, handle: Handle, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.measured("read", |store| store.read(node, handle, offset, into))
    }

    fn write(&self, node: Node, handle: Handle, offset: u64, from: &[u8]) -> Result<usize> {
        self.measured("write", |store| store.write(node, handle, offset, from))
    }

    fn sync(&self, node: Node, handle: Handle, data: bool) -> Result<()> {
        self.measured("sync", |store| store.sync(node, handle, data))
    }

    fn sync_all(&self) -> Result<()> {
        self.measured("sync_all", |store| store.sync_all())
    }

    fn read_directory(
        &self,
        node: Node,
        handle: Handle,
        offset: u64,
        take: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<()> {
        self.measured("read_directory", |store| store.read_directory(node, handle, offset, take))
    }

    fn statistics(&self) -> Result<Statistics> {
        self.measured("statistics", |store| store.statistics())
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>> {
        self.measured("xattr", |store| store.xattr(node, name))
    }

    fn xattrs(&self, node: Node) -> Result<Vec<u8>> {
        self.measured("xattrs", |store| store.xattrs(node))
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.measured("set_xattr", |store| store.set_xattr(node, name, value, mode))
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()> {
        self.measured("remove_xattr", |store| store.remove_xattr(node, name))
    }

    fn allocate(
        &self,
        node: Node,
        handle: Handle,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        self.measured("allocate", |store| store.allocate(node, handle, mode, offset, length))
    }

    fn seek(&self, node: Node, handle: Handle, offset: u64, what: Seek) -> Result<u64> {
        self.measured("seek", |store| store.seek(node, handle, offset, what))
    }

    fn close(&self) -> Result<()> {
        self.measured("close", |store| store.close())
    }
}
