//! The interface of a store of files.

use rustix::io::Errno;

use crate::values::{Attributes, Caller, Changes, Entry, Kind, New, Node, Statistics};

/// What a store says: an errno is what reaches the program that asked.
pub type Result<T> = std::result::Result<T, Errno>;

/// An open file or directory, as the store numbers it. Stores that need none give 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// One name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The inode's number.
    pub node: Node,
    /// Where the listing goes on after this one: what a later `read_directory` begins with.
    pub next: u64,
    /// What it is, if the directory says so.
    pub kind: Option<Kind>,
    /// 1 to 255 bytes, any but 0 and `/`.
    pub name: &'a [u8],
}

/// What lseek(2) looks for.
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
    /// Either way.
    Any,
    /// `EEXIST` if it is there.
    Create,
    /// `ENODATA` if it is not.
    Replace,
}

/// A store of files: what the handlers of a file server ask for.
///
/// Every operation is atomic towards the others and may be called by any number of threads at once;
/// each blocks its caller, microprocess or kernel thread, while it waits for the disk or for
/// another operation on the same inode. Names come as the kernel sends them: never empty, no `/`,
/// no zero byte, `.` and `..` never for what changes a directory; their length is the store's to
/// check (`ENAMETOOLONG` above 255). Permissions are the kernel's affair (`default_permissions`),
/// the sticky bit included. A node is good from the `Entry` that gave it until all its references
/// were given back; the root always. An inode without a name lives until then.
///
/// # Errors
/// Each operation gives the errno that its manual page (section 2) lists; `EIO` where the disk
/// failed or the structure found there is damaged (said on standard error, by name, once), `ESTALE`
/// for a node that no longer exists, `EROFS` on a store that is read only, `ENOTSUP` for what it
/// cannot do.
#[allow(clippy::missing_errors_doc, reason = "said once, above")]
pub trait Store: Send + Sync + 'static {
    /// Where everything begins.
    fn root(&self) -> Node;

    /// The inode of a name. `.` and `..` may be asked for. Counts a reference.
    fn lookup(&self, directory: Node, name: &[u8]) -> Result<Entry>;

    /// Gives back so many references. An unknown node is ignored.
    fn forget(&self, node: Node, references: u64);

    /// stat(2).
    fn attributes(&self, node: Node) -> Result<Attributes>;

    /// chmod(2), chown(2), truncate(2), utimensat(2) in one.
    fn change(&self, node: Node, changes: &Changes) -> Result<Attributes>;

    /// readlink(2).
    fn read_link(&self, node: Node) -> Result<Vec<u8>>;

    /// open(2) with `O_CREAT|O_EXCL`, mkdir(2), symlink(2), mknod(2). A set-group-id directory
    /// gives its group on. Counts a reference.
    fn make(&self, caller: &Caller, directory: Node, name: &[u8], what: New<'_>) -> Result<Entry>;

    /// unlink(2).
    fn unlink(&self, directory: Node, name: &[u8]) -> Result<()>;

    /// rmdir(2).
    fn remove_directory(&self, directory: Node, name: &[u8]) -> Result<()>;

    /// rename(2); `keep`: `RENAME_NOREPLACE`.
    fn rename(&self, from: Node, name: &[u8], to: Node, new_name: &[u8], keep: bool) -> Result<()>;

    /// link(2). Counts a reference.
    fn link(&self, node: Node, directory: Node, name: &[u8]) -> Result<Entry>;

    /// Opens a file; `flags` are open(2)'s, without `O_CREAT`, `O_EXCL` and `O_TRUNC`.
    fn open(&self, node: Node, flags: u32) -> Result<Handle>;

    /// The last close of what was opened.
    fn release(&self, node: Node, handle: Handle);

    /// pread(2): as many bytes as there are, up to all of `into`; fewer at the file's end only.
    fn read(&self, node: Node, handle: Handle, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// pwrite(2): all of it, or an error, or what there was room for.
    fn write(&self, node: Node, handle: Handle, offset: u64, from: &[u8]) -> Result<usize>;

    /// As `write`, of what the client's kernel had kept (its write-back cache): the times are its
    /// affair, and stay, where the store can do that.
    fn write_kept(&self, node: Node, handle: Handle, offset: u64, from: &[u8]) -> Result<usize> {
        self.write(node, handle, offset, from)
    }

    /// fsync(2), of a directory too; `data`: fdatasync(2).
    fn sync(&self, node: Node, handle: Handle, data: bool) -> Result<()>;

    /// syncfs(2).
    fn sync_all(&self) -> Result<()>;

    /// Lists a directory from `offset` (0, or a `Listed::next`), `.` and `..` among the first,
    /// until `take` says `false` or the end. What `take` refused comes again. Names that neither
    /// come nor go meanwhile are listed exactly once.
    fn read_directory(
        &self,
        node: Node,
        handle: Handle,
        offset: u64,
        take: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<()>;

    /// statvfs(3).
    fn statistics(&self) -> Result<Statistics>;

    /// getxattr(2). `ENODATA`: there is none of that name.
    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>>;

    /// listxattr(2): each name followed by a zero byte.
    fn xattrs(&self, node: Node) -> Result<Vec<u8>>;

    /// setxattr(2).
    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;

    /// removexattr(2).
    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()>;

    /// fallocate(2); `mode` is its `FALLOC_FL_*`.
    fn allocate(
        &self,
        node: Node,
        handle: Handle,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> Result<()>;

    /// lseek(2) to data or to a hole. `ENXIO` beyond the end.
    fn seek(&self, node: Node, handle: Handle, offset: u64, what: Seek) -> Result<u64>;

    /// Everything goes to the disk and the store is clean; nothing is asked of it afterwards.
    fn close(&self) -> Result<()>;
}
