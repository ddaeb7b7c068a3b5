//! Access to files of a store by path, as a kernel does it. Nodes are forgotten after use.

use std::collections::BTreeSet;

use kumihimo_store::{Caller, Errno, Handle, Kind, New, Node, Result, Store};

/// The root user.
pub const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 1, umask: 0 };
/// open(2)'s `O_RDWR`.
const WRITING: u32 = 2;

/// A node with a reference, which is released when dropped.
#[derive(Debug)]
pub struct Found<'a, S: Store + ?Sized> {
    store: &'a S,
    /// The node.
    pub node: Node,
    /// Type at the time of the lookup.
    pub kind: Kind,
    /// Size at the time of the lookup.
    pub size: u64,
}

impl<S: Store + ?Sized> Drop for Found<'_, S> {
    fn drop(&mut self) {
        self.store.forget(self.node, 1);
    }
}

/// An open file, closed when dropped.
#[derive(Debug)]
pub struct Opened<'a, S: Store + ?Sized> {
    found: Found<'a, S>,
    handle: Handle,
}

impl<S: Store + ?Sized> Drop for Opened<'_, S> {
    fn drop(&mut self) {
        self.found.store.release(self.found.node, self.handle);
    }
}

/// Splits a path into its parent directory and its last name.
fn parent(path: &str) -> (&str, &[u8]) {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    (directory, name.as_bytes())
}

/// Looks up a path; the root is the empty path. Symbolic links are not followed.
///
/// # Errors
/// As lookup's.
pub fn find<'a, S: Store + ?Sized>(store: &'a S, path: &str) -> Result<Found<'a, S>> {
    let found = |node: Node, name: &[u8]| {
        store.lookup(node, name).map(|entry| {
            let attributes = entry.attributes;
            Found { store, node: attributes.node, kind: attributes.kind, size: attributes.size }
        })
    };
    let mut here = found(store.root(), b".")?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        here = found(here.node, name.as_bytes())?;
    }
    Ok(here)
}

/// Opens a file for reading and writing, a directory for reading.
///
/// # Errors
/// As lookup's and open's.
pub fn open<'a, S: Store + ?Sized>(store: &'a S, path: &str) -> Result<Opened<'a, S>> {
    let found = find(store, path)?;
    let handle = store.open(found.node, if found.kind == Kind::Directory { 0 } else { WRITING })?;
    Ok(Opened { found, handle })
}

/// Creates a file or a directory.
///
/// # Errors
/// As make's.
pub fn make<'a, S: Store + ?Sized>(
    store: &'a S,
    path: &str,
    what: New<'_>,
) -> Result<Found<'a, S>> {
    let (directory, name) = parent(path);
    let attributes = store.make(&CALLER, find(store, directory)?.node, name, what)?.attributes;
    Ok(Found { store, node: attributes.node, kind: attributes.kind, size: 0 })
}

/// Creates an empty file and opens it.
///
/// # Errors
/// As make's and open's.
pub fn create<'a, S: Store + ?Sized>(store: &'a S, path: &str) -> Result<Opened<'a, S>> {
    let found = make(store, path, New::File { mode: 0o644 })?;
    let handle = store.open(found.node, WRITING)?;
    Ok(Opened { found, handle })
}

/// unlink(2).
///
/// # Errors
/// As unlink's.
pub fn unlink<S: Store + ?Sized>(store: &S, path: &str) -> Result<()> {
    let (directory, name) = parent(path);
    store.unlink(find(store, directory)?.node, name)
}

/// rmdir(2).
///
/// # Errors
/// As `remove_directory`'s.
pub fn remove_directory<S: Store + ?Sized>(store: &S, path: &str) -> Result<()> {
    let (directory, name) = parent(path);
    store.remove_directory(find(store, directory)?.node, name)
}

/// rename(2).
///
/// # Errors
/// As rename's.
pub fn rename<S: Store + ?Sized>(store: &S, from: &str, to: &str) -> Result<()> {
    let ((from, name), (to, new_name)) = (parent(from), parent(to));
    store.rename(find(store, from)?.node, name, find(store, to)?.node, new_name, false)
}

/// link(2).
///
/// # Errors
/// As link's.
pub fn link<S: Store + ?Sized>(store: &S, from: &str, to: &str) -> Result<()> {
    let (to, new_name) = parent(to);
    let entry = store.link(find(store, from)?.node, find(store, to)?.node, new_name)?;
    store.forget(entry.attributes.node, 1);
    Ok(())
}

/// All names in a directory except `.` and `..`.
///
/// # Errors
/// As `read_directory`'s.
pub fn list<S: Store + ?Sized>(store: &S, path: &str) -> Result<Vec<Vec<u8>>> {
    let open = open(store, path)?;
    let mut names = Vec::new();
    store.read_directory(open.found.node, open.handle, 0, &mut |listed| {
        if listed.name != b"." && listed.name != b".." {
            names.push(listed.name.to_vec());
        }
        true
    })?;
    Ok(names)
}

/// Complete contents of a file.
///
/// # Errors
/// As read's; `EFBIG` if the reported size exceeds 64 MB, which no test file reaches.
pub fn contents<S: Store + ?Sized>(store: &S, path: &str) -> Result<Vec<u8>> {
    open(store, path)?.contents()
}

/// Contents of each file of a store.
///
/// # Errors
/// As lookup's, `read_directory`'s and read's; `EILSEQ` for a name that no test creates.
pub fn all_contents<S: Store + ?Sized>(store: &S) -> Result<BTreeSet<Vec<u8>>> {
    let mut all = BTreeSet::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        for name in list(store, &directory)? {
            let name = String::from_utf8(name).map_err(|_| Errno::ILSEQ)?;
            let path = format!("{directory}/{name}");
            match find(store, &path)?.kind {
                Kind::Directory => directories.push(path),
                Kind::File => {
                    all.insert(contents(store, &path)?);
                }
                _ => {}
            }
        }
    }
    Ok(all)
}

impl<S: Store + ?Sized> Opened<'_, S> {
    /// The file's node.
    #[must_use]
    pub fn node(&self) -> Node {
        self.found.node
    }

    /// Complete contents.
    ///
    /// # Errors
    /// As [`contents`].
    pub fn contents(&self) -> Result<Vec<u8>> {
        let size = self.found.store.attributes(self.found.node)?.size;
        if size > 64 << 20 {
            return Err(Errno::FBIG);
        }
        let mut bytes = vec![0; usize::try_from(size).map_err(|_| Errno::FBIG)?];
        let count = self.found.store.read(self.found.node, self.handle, 0, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// pread(2).
    ///
    /// # Errors
    /// As read's.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.found.store.read(self.found.node, self.handle, offset, into)
    }

    /// pwrite(2).
    ///
    /// # Errors
    /// As write's.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<usize> {
        self.found.store.write(self.found.node, self.handle, offset, from)
    }

    /// ftruncate(2).
    ///
    /// # Errors
    /// As change's.
    pub fn truncate(&self, size: u64) -> Result<()> {
        let changes = kumihimo_store::Changes { size: Some(size), ..Default::default() };
        self.found.store.change(self.found.node, &changes).map(|_| ())
    }

    /// fallocate(2).
    ///
    /// # Errors
    /// As allocate's.
    pub fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<()> {
        self.found.store.allocate(self.found.node, self.handle, mode, offset, length)
    }

    /// fsync(2); `data`: fdatasync(2).
    ///
    /// # Errors
    /// As sync's.
    pub fn sync(&self, data: bool) -> Result<()> {
        self.found.store.sync(self.found.node, self.handle, data)
    }
}
