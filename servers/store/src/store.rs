//! Interface of a store of files.

use rustix::io::Errno;

use crate::values::{Attributes, Caller, Changes, Entry, Kind, New, Node, Statistics};

/// Result of a store operation; the errno is returned to the calling program.
pub type Result<T> = std::result::Result<T, Errno>;

/// Number of an open file or directory, chosen by the store. 0 in stores that need none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// Name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Number of the inode.
    pub node: Node,
    /// Offset of the next name, for a later `read_directory`.
    pub next: u64,
    /// Type of the inode, if the directory stores it.
    pub kind: Option<Kind>,
    /// The name: 1 to 255 bytes, without zero bytes and `/`.
    pub name: &'a [u8],
}

/// Target of lseek(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// `SEEK_DATA`.
    Data,
    /// `SEEK_HOLE`.
    Hole,
}

/// `XATTR_CREATE` and `XATTR_REPLACE` of setxattr(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Neither flag.
    Any,
    /// `EEXIST` if the attribute exists.
    Create,
    /// `ENODATA` if the attribute does not exist.
    Replace,
}

/// Store of files: the operations that the handlers of a file server call.
///
/// - **Concurrency**: operations are atomic with respect to each other, and any number of threads
///   may call them. Each blocks its caller, microprocess or kernel thread, while it waits for the
///   disk or for another operation on the same inode.
/// - **Names** are as the kernel sends them: never empty, without `/` and zero bytes, and not `.`
///   or `..` in operations that change a directory. The store checks their length (`ENAMETOOLONG`
///   above 255).
/// - **Permissions**, including the sticky bit, are checked by the kernel (`default_permissions`).
/// - **Nodes** are valid from the `Entry` that returned them until all references are released. The
///   root is always valid. An inode without a name exists until then.
///
/// # Errors
/// The errnos that the manual page of each call (section 2) lists, and:
///
/// - `EIO`: the disk failed, or a structure on it is damaged. Each damage is reported once on
///   standard error, with the name of the structure.
/// - `ESTALE`: the node no longer exists.
/// - `EROFS`: the store is read-only.
/// - `ENOTSUP`: the store does not support the operation.
#[allow(clippy::missing_errors_doc, reason = "stated once, above")]
pub trait Store: Send + Sync + 'static {
    /// Returns the root directory.
    fn root(&self) -> Node;

    /// Looks up a name, which may be `.` or `..`. Adds a reference.
    fn lookup(&self, directory: Node, name: &[u8]) -> Result<Entry>;

    /// Releases references. An unknown node is ignored.
    fn forget(&self, node: Node, references: u64);

    /// Returns the attributes of stat(2).
    fn attributes(&self, node: Node) -> Result<Attributes>;

    /// Executes chmod(2), chown(2), truncate(2) and utimensat(2) in one operation.
    fn change(&self, node: Node, changes: &Changes) -> Result<Attributes>;

    /// Returns the target of a symbolic link, as readlink(2).
    fn read_link(&self, node: Node) -> Result<Vec<u8>>;

    /// Creates an inode with a name: open(2) with `O_CREAT|O_EXCL`, mkdir(2), symlink(2), mknod(2).
    /// In a set-group-id directory the inode inherits the directory's group. Adds a reference.
    fn make(&self, caller: &Caller, directory: Node, name: &[u8], what: New<'_>) -> Result<Entry>;

    /// Removes a name as unlink(2).
    fn unlink(&self, directory: Node, name: &[u8]) -> Result<()>;

    /// Removes an empty directory as rmdir(2).
    fn remove_directory(&self, directory: Node, name: &[u8]) -> Result<()>;

    /// Renames as rename(2), with `keep` as `RENAME_NOREPLACE`.
    fn rename(&self, from: Node, name: &[u8], to: Node, new_name: &[u8], keep: bool) -> Result<()>;

    /// Adds a name as link(2). Adds a reference.
    fn link(&self, node: Node, directory: Node, name: &[u8]) -> Result<Entry>;

    /// Opens a file. `flags` are those of open(2) without `O_CREAT`, `O_EXCL` and `O_TRUNC`.
    fn open(&self, node: Node, flags: u32) -> Result<Handle>;

    /// Releases an open file after its last close.
    fn release(&self, node: Node, handle: Handle);

    /// Reads as pread(2). Fills `into`, except at the end of the file.
    fn read(&self, node: Node, handle: Handle, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// Writes as pwrite(2): everything, or as much as there is space for.
    fn write(&self, node: Node, handle: Handle, offset: u64, from: &[u8]) -> Result<usize>;

    /// Writes like `write`, for data from the write-back cache of the client's kernel. That kernel
    /// maintains the times, so the store leaves them unchanged if it can.
    fn write_kept(&self, node: Node, handle: Handle, offset: u64, from: &[u8]) -> Result<usize> {
        self.write(node, handle, offset, from)
    }

    /// Executes fsync(2), also for a directory, or fdatasync(2) if `data` is true.
    fn sync(&self, node: Node, handle: Handle, data: bool) -> Result<()>;

    /// Executes syncfs(2).
    fn sync_all(&self) -> Result<()>;

    /// Lists a directory from `offset` (0, or a `Listed::next`), with `.` and `..` among the first,
    /// until `take` returns `false` or the directory ends. The next call lists a refused name
    /// again. Names that are neither created nor removed meanwhile are listed exactly once.
    fn read_directory(
        &self,
        node: Node,
        handle: Handle,
        offset: u64,
        take: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<()>;

    /// Returns the statistics of statvfs(3).
    fn statistics(&self) -> Result<Statistics>;

    /// Returns an extended attribute as getxattr(2). `ENODATA` if it does not exist.
    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>>;

    /// Returns the names of listxattr(2), each followed by a zero byte.
    fn xattrs(&self, node: Node) -> Result<Vec<u8>>;

    /// Sets an extended attribute as setxattr(2).
    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;

    /// Removes an extended attribute as removexattr(2).
    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()>;

    /// Executes fallocate(2) with `FALLOC_FL_*` flags in `mode`.
    fn allocate(
        &self,
        node: Node,
        handle: Handle,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> Result<()>;

    /// Executes lseek(2) to data or to a hole. `ENXIO` beyond the end.
    fn seek(&self, node: Node, handle: Handle, offset: u64, what: Seek) -> Result<u64>;

    /// Writes everything to the disk and marks the store as clean. No operation may follow.
    fn close(&self) -> Result<()>;
}
